"""The official gRPC clients: Java's from Maven, Python's from PyPI, each fetched once.

They live in the tests' cache folder, apart from RocketMQ's own jars and from this
environment, whose libraries they would replace.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.kit.artefacts import (
    _COPY_GOAL,
    KIT,
    _made_once,
    _run,
    cache_root,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

JAVA_VERSION = "5.2.0"
PYTHON_VERSION = "5.1.2"
_FETCH_TIMEOUT_S = 600
_RUN_TIMEOUT_S = 400


def run_java_tour(
    endpoints: str, arguments: Iterable[str], directory: Path
) -> dict[str, str]:
    """What GrpcTour prints, by name. Raises UnavailableError, CalledProcessError."""
    command = [*java_program("GrpcTour", directory), endpoints, *arguments]
    return _said(command, directory)


def java_program(name: str, directory: Path) -> list[str]:
    """The command of a program of `java_grpc`, which logs below `directory`.

    Raises UnavailableError where the client cannot be fetched.
    """
    jars = _made_once(cache_root() / f"grpc-java-{JAVA_VERSION}" / "lib", _fetch_java)
    sources = sorted((KIT / "java_grpc").glob("*.java"))
    digest = hashlib.sha256(b"\0".join(each.read_bytes() for each in sources))
    classes = _made_once(
        cache_root()
        / f"grpc-java-{JAVA_VERSION}"
        / f"classes-{digest.hexdigest()[:16]}",
        lambda target: _run(
            [
                *("javac", "-nowarn", "-cp", f"{jars}/*", "-d", str(target)),
                *map(str, sources),
            ],
            timeout_s=_FETCH_TIMEOUT_S,
        ),
    )
    return [
        *("java", "-Xmx256m", "-XX:+UseSerialGC", f"-Duser.home={directory}"),
        *("-cp", f"{jars}/*{os.pathsep}{classes}", name),
    ]


def run_python_client(
    endpoints: str, arguments: Iterable[str], directory: Path
) -> dict[str, str]:
    """What official_python.py prints, by name. Raises as `run_java_tour` does."""
    command = [sys.executable, str(KIT / "official_python.py"), endpoints, *arguments]
    return _said(command, directory, **python_environment())


def python_environment() -> dict[str, str]:
    """What an interpreter needs to find the official Python client.

    Raises UnavailableError where it cannot be fetched.
    """
    folder = _made_once(
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
    _run(
        [
            *("mvn", "-q", "-B", "-f", str(pom), _COPY_GOAL),
            *("-DincludeScope=runtime", f"-DoutputDirectory={target}"),
        ],
        timeout_s=_FETCH_TIMEOUT_S,
    )


def _fetch_python(target: Path) -> None:
    # A folder for PYTHONPATH: it comes before this environment's own packages.
    _run(
        [
            *(sys.executable, "-m", "venv", f"{target}/pip"),
        ],
        timeout_s=_FETCH_TIMEOUT_S,
    )
    _run(
        [
            *(f"{target}/pip/bin/python", "-m", "pip", "install", "-q"),
            *("--target", str(target)),
            f"rocketmq-python-client=={PYTHON_VERSION}",
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
