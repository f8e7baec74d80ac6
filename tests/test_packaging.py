"""The wheel: it builds, installs into an empty environment and runs."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from rmqcli import __version__
from tests.kit.waiting import PATIENCE_S

ROOT = Path(__file__).parents[1]

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("hatchling") is None, reason="hatchling is missing"
    ),
]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=PATIENCE_S,
    )
    (path,) = folder.glob("*.whl")
    return path


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert tops == {
        "rmqcli",
        f"rmqcli-{__version__}.dist-info",
        f"rmqcli-{__version__}.data",
    }
    assert "rmqcli/py.typed" in names
    sources = {p.relative_to(ROOT).as_posix() for p in ROOT.glob("rmqcli/**/*.py")}
    assert sources <= set(names)


def test_the_wheel_installs_completions_where_shells_look(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    for place in (
        "bash-completion/completions/rmq",
        "zsh/site-functions/_rmq",
        "fish/vendor_completions.d/rmq.fish",
    ):
        assert f"rmqcli-{__version__}.data/data/share/{place}" in names


@pytest.mark.skipif(importlib.util.find_spec("pip") is None, reason="pip is missing")
def test_the_wheel_runs_in_an_environment_of_its_own(wheel, tmp_path):
    """Offline: the wheel's dependencies come from the environment of the tests."""
    home = tmp_path / "venv"
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(python), "install",
         "--no-index", "--no-deps", "--no-compile", "-q", str(wheel)],
        check=True, timeout=PATIENCE_S,
    )  # fmt: skip
    (packages,) = home.glob("lib/python*/site-packages")
    (packages / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    environ = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}

    def run(*command):
        done = subprocess.run(
            command, cwd=tmp_path, env=environ, capture_output=True, text=True,
            check=True, timeout=PATIENCE_S,
        )  # fmt: skip
        return done.stdout

    where = run(python, "-c", "import rmqcli; print(rmqcli.__file__)")
    assert where.startswith(str(packages))
    assert run(home / "bin" / "rmq", "--version") == f"rmq {__version__}\n"
    assert "To begin:" in run(home / "bin" / "rmq", "--help")
    assert (home / "share/bash-completion/completions/rmq").is_file()
