"""The zip for Spark's executors: its bytes, and the modules imported from it."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from rmqcli.errors import ConfigError
from rmqcli.spark import package
from rmqcli.spark.export.executors import PACKAGES
from rmqcli.spark.package import package_bytes, zip_package

ROOT = Path(__file__).parents[2]
#: The modules that an export and the data source import on an executor.
LOADED = (
    "rmqcli.spark.export.part",
    "rmqcli.spark.export.cluster",
    "rmqcli.spark.source.data_source",
    "rmqcli.spark.sink.write",
    "rmqcli.api.client",
    "rmqcli.admin.read.range",
    "rmqcli.wire.message.columns",
    "rmqcli.consumer.consumer",
    "rmqcli.producer.producer",
)


def test_the_same_sources_give_the_same_bytes():
    first = hashlib.sha256(package_bytes()).hexdigest()
    assert hashlib.sha256(package_bytes()).hexdigest() == first


def test_names_are_sorted_and_times_and_modes_are_fixed(tmp_path):
    with zipfile.ZipFile(zip_package(str(tmp_path))) as archive:
        entries = archive.infolist()
    names = [entry.filename for entry in entries]
    ours = [name for name in names if name.startswith("rmqcli/")]
    assert ours == sorted(ours)
    assert names[: len(ours)] == ours
    assert names[len(ours)].startswith("sortedcontainers/")
    assert {entry.date_time for entry in entries} == {(1980, 1, 1, 0, 0, 0)}
    assert {entry.external_attr >> 16 for entry in entries} == {0o644}
    assert all(name.endswith(".py") for name in names)
    sources = {p.relative_to(ROOT).as_posix() for p in ROOT.glob("rmqcli/**/*.py")}
    assert sources == set(ours)


@pytest.mark.slow
def test_the_library_is_imported_from_the_zip_with_compiled_packages_beside(tmp_path):
    """Only PySpark and the compiled packages are installed, as on an executor."""
    path = zip_package(str(tmp_path))
    beside = tmp_path / "beside"
    beside.mkdir()
    for name in (*PACKAGES, "pyspark", "py4j"):
        found = importlib.util.find_spec(name)
        assert found is not None
        assert found.origin is not None
        folder = Path(found.origin).parent
        (beside / name).symlink_to(folder)
        for libraries in folder.parent.glob(f"{name}.libs"):
            (beside / libraries.name).symlink_to(libraries)
    code = f"import {', '.join(LOADED)}, rmqcli; print(rmqcli.__file__)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": f"{path}:{beside}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout == f"{path}/rmqcli/__init__.py\n"


def test_every_requirement_is_in_the_zip_or_listed_or_not_needed_by_executors():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = project["dependencies"] + project["optional-dependencies"]["spark"]
    required = {re.split("[^a-z0-9.-]", each)[0] for each in listed}
    # These are for the command line, for gRPC through a proxy, and for Spark itself.
    elsewhere = {"typer", "rich", "tomlkit", "grpcio", "protobuf", "pyspark"}
    assert required - elsewhere == {*PACKAGES, *package.PACKAGES} - {"rmqcli"}


def test_a_package_that_is_not_installed_as_files_cannot_be_packed(monkeypatch):
    monkeypatch.setattr(package, "PACKAGES", ("sys",))
    with pytest.raises(ConfigError, match="sys cannot be packed") as caught:
        package_bytes()
    assert "install rmqcli with pip" in caught.value.hint
