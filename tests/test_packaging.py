"""The wheel: it builds, installs into an empty environment and runs."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rmqcli import __version__
from rmqcli.cli.help import GUIDES
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
    guides = {f"rmqcli/docs/{name}.md" for name in GUIDES}
    assert sources | guides <= set(names)


def test_the_wheel_installs_completions_where_shells_look(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    for place in (
        "bash-completion/completions/rmq",
        "zsh/site-functions/_rmq",
        "fish/vendor_completions.d/rmq.fish",
    ):
        assert f"rmqcli-{__version__}.data/data/share/{place}" in names


def test_the_image_is_built_of_all_files_that_the_wheel_needs():
    """No container engine is needed: the wheel is built of what is copied."""
    text = (ROOT / ".github" / "Containerfile").read_text(encoding="utf-8")
    copied = {
        Path(source)
        for sources in re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE)
        for source in sources.split()
    }
    assert [each for each in copied if not (ROOT / each).exists()] == []
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = settings["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = [
        "pyproject.toml",
        settings["project"]["readme"],
        *settings["project"]["license-files"],
        *wheel["packages"],
        *wheel["shared-data"],
    ]
    assert [
        each for each in needed
        if not copied & {Path(each), *Path(each).parents}
    ] == []  # fmt: skip


def plain_files(name, seen):
    """The files of a distribution and of all that it needs without extras."""
    if name in seen:
        return
    seen.add(name)
    found = importlib.metadata.distribution(name)
    yield from (each for each in found.files or () if ".." not in each.parts)
    for each in map(Requirement, found.requires or ()):
        if each.marker is None or each.marker.evaluate({"extra": ""}):
            yield from plain_files(canonicalize_name(each.name), seen)


@pytest.fixture(scope="module")
def small(wheel, tmp_path_factory):
    """The Python of an environment with the wheel, as `pip install .` makes it.

    Offline: what the wheel needs are links to the files of the tests' environment.
    """
    home = tmp_path_factory.mktemp("small") / "venv"
    venv.create(home, with_pip=False)
    (packages,) = home.glob("lib/python*/site-packages")
    zipfile.ZipFile(wheel).extractall(packages)
    (built,) = importlib.metadata.distributions(name="rmqcli", path=[str(packages)])
    seen = {"rmqcli"}
    for each in map(Requirement, built.requires or ()):
        if each.marker is None or each.marker.evaluate({"extra": ""}):
            for file in plain_files(canonicalize_name(each.name), seen):
                place = packages / file
                place.parent.mkdir(parents=True, exist_ok=True)
                place.symlink_to(file.locate())
    return home / "bin" / "python"


def run_small(python, *words, **settings):
    environ = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    return subprocess.run(
        [str(python), *words], env=environ, capture_output=True, text=True,
        check=False, timeout=PATIENCE_S, **settings,
    )  # fmt: skip


_EVERYTHING_ELSE = """
import sys
from rmqcli.cli.main import run
from rmqcli.testing import EmbeddedCluster
from rmqcli.cli.commands import COMMANDS

with EmbeddedCluster(queues=1) as cluster:
    cluster.create_topic("T")
    cluster.create_group("G")
    lines = [
        "send T hello", "tail T --no-follow", "consume T -g G --count 1", "lag",
        "topics", "topic show T", "groups", "group show G", "brokers",
        "reset-offset G T --to earliest", "help", "help reading", "version",
        "completion bash",
        *(f"{entry.path} --help" for entry in COMMANDS),
    ]
    for line in lines:
        needs_cluster = not line.startswith(("help", "version", "completion"))
        where = ["-n", cluster.namesrv] if needs_cluster else []
        code = run([*line.split(), *where])
        if code:
            sys.exit(f"{line}: {code}")
"""


@pytest.mark.slow
def test_without_the_extra_everything_but_spark_works(small, tmp_path):
    done = run_small(small, "-c", _EVERYTHING_ELSE, cwd=tmp_path)
    assert (done.returncode, done.stderr[-300:] if done.returncode else "") == (0, "")


@pytest.mark.parametrize(
    "line",
    [
        "export T --to-parquet out",
        "export-compact out",
        "import T --from-parquet out",
        "spark package --out out.zip",
        "sql select",
    ],
)
def test_without_the_extra_a_command_of_spark_names_it(small, tmp_path, line):
    done = run_small(small, "-m", "rmqcli", *line.split(), cwd=tmp_path)
    command = "spark package" if line.startswith("spark") else line.split()[0]
    assert (done.returncode, done.stdout, done.stderr) == (
        2,
        "",
        (
            f"error: rmq {command} needs PySpark and PyArrow and numpy, which"
            " the extra spark installs\nhint: run: pip install 'rmqcli[spark]'\n"
        ),
    )
    assert list(tmp_path.iterdir()) == []


def test_without_the_extra_the_exporter_names_it_and_still_prints_its_rules(
    small, tmp_path
):
    done = run_small(small, "-m", "rmqcli", "exporter", "--once", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (
        2,
        "",
        (
            "error: rmq exporter needs prometheus-client, which the extra exporter"
            " installs\nhint: run: pip install 'rmqcli[exporter]'\n"
        ),
    )
    done = run_small(small, "-m", "rmqcli", "exporter", "--print-rules", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("# Alert rules for the metrics of `rmq exporter`.")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "kind", "package"),
    [
        ("msgpack", "msgpack", "msgpack"),
        ("gzip+cbor", "cbor", "cbor2"),
        ("avro:order.avsc", "avro", "fastavro"),
    ],
)
def test_without_the_extra_a_format_of_bodies_names_it(
    small, tmp_path, text, kind, package
):
    line = ["-m", "rmqcli", "tail", "T", "--decode", text]
    done = run_small(small, *line, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (
        2,
        "",
        (
            f"error: --decode: bodies cannot be decoded as {kind}: the package"
            f" {package} is not installed\nhint: run: pip install 'rmqcli[decode]'\n"
        ),
    )


def test_without_the_extra_the_data_source_names_it(small, tmp_path):
    code = "from rmqcli import Consumer, RocketMQDataSource"
    done = run_small(small, "-c", code, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "rmqcli.errors.ConfigError: RocketMQDataSource needs PySpark and PyArrow and"
        " numpy, which the extra spark installs"
    )


@pytest.mark.slow
def test_without_the_extra_the_demo_leaves_its_spark_step_out(small, tmp_path):
    done = run_small(small, "-m", "rmqcli", "demo", cwd=tmp_path)
    assert done.returncode == 0
    assert "skipped: rmq export needs PySpark and PyArrow and numpy" in done.stdout
    assert "to include it: run: pip install 'rmqcli[spark]'" in done.stdout


@pytest.mark.slow
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
