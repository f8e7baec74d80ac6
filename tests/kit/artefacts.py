"""Fetches the jars of one RocketMQ once and compiles the kit's Java programs.

Everything lands in a cache folder that survives the test run (`RMQ_TEST_CACHE`, else
`~/.cache/rmqcli-tests`): `<version>/lib`, `<version>/programs-<hash of sources>` and
`class-archives/<hash of Java and class path>`. A folder appears under its final name
complete or not at all.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

VERSIONS = ("4.6.0", "4.9.7", "5.3.3", "5.5.0")

KIT = Path(__file__).resolve().parent

#: Pinned, so that a new version of the plug-in cannot change a test run.
COPY_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
_COPY_JAR_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
_FETCH_TIMEOUT_S = 600
_COMPILE_TIMEOUT_S = 120


class UnavailableError(Exception):
    """Real RocketMQ cannot run here; the message is the reason to skip."""


def missing_tools() -> str | None:
    """Why no real RocketMQ can be fetched and run here, or None."""
    missing = [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]
    return f"not installed: {', '.join(missing)}" if missing else None


def cache_root() -> Path:
    """The folder for everything fetched or compiled."""
    configured = os.environ.get("RMQ_TEST_CACHE")
    return Path(configured) if configured else Path.home() / ".cache" / "rmqcli-tests"


def library(version: str) -> Path:
    """The folder with all jars of `version`, fetched with Maven when absent.

    Raises UnavailableError when tools are missing or Maven fails.
    """
    return made_once(
        cache_root() / version / "lib", lambda target: _fetch(version, target)
    )


def jars(name: str, coordinates: Iterable[str]) -> list[Path]:
    """The jars of `group:artifact:version` coordinates, without their dependencies.

    `name` is the name of their folder; other coordinates need another one. Raises
    UnavailableError when tools are missing or Maven fails.
    """

    def fetch(target: Path) -> None:
        for each in coordinates:
            run_tool(
                [
                    *("mvn", "-q", "-B", _COPY_JAR_GOAL),
                    f"-Dartifact={each}",
                    f"-DoutputDirectory={target}",
                ],
                timeout_s=_FETCH_TIMEOUT_S,
            )

    return sorted(made_once(cache_root() / name, fetch).glob("*.jar"))


def class_path(version: str) -> str:
    """The `-cp` of a Java program: the kit's programs, then all jars.

    It names jars only, because Java cannot archive classes that lie in folders.
    """
    jars = library(version)
    programs = programs_jar(version, sorted((KIT / "java").glob("*.java")), jars)
    return f"{programs}{os.pathsep}{jars}/*"


def class_archive(class_path: str) -> Path:
    """The path of the class archive for this class path, which may not exist yet.

    Each Java installation has its own. Raises UnavailableError if there is no Java.
    """
    program = shutil.which("java")
    if program is None:
        raise UnavailableError("not installed: java")
    java = Path(program).resolve()
    identity = f"{java} {java.stat().st_mtime_ns} {class_path}"
    digest = hashlib.sha256(os.fsencode(identity)).hexdigest()[:16]
    return cache_root() / "class-archives" / digest / "classes.jsa"


def programs_jar(name: str, sources: Sequence[Path], jars: Path) -> Path:
    """The jar of programs, compiled when absent in the folder `name` of the cache.

    `jars` is the folder of what they use. Raises UnavailableError when a tool fails.
    """
    digest = hashlib.sha256(b"\0".join(each.read_bytes() for each in sources))

    def compile_all(target: Path) -> None:
        classes = target / "classes"
        compiler = ["javac", "-nowarn", "-encoding", "UTF-8", "-cp", f"{jars}/*"]
        jar = ["jar", "--create", "--file", str(target / "programs.jar")]
        for command in (
            [*compiler, "-d", str(classes), *map(str, sources)],
            [*jar, "-C", str(classes), "."],
        ):
            run_tool(command, timeout_s=_COMPILE_TIMEOUT_S)

    folder = cache_root() / name / f"programs-{digest.hexdigest()[:16]}"
    return made_once(folder, compile_all) / "programs.jar"


def _fetch(version: str, target: Path) -> None:
    # 4.x has no proxy; from 5.0 the proxy brings the broker along.
    server = "rocketmq-broker" if version.startswith("4.") else "rocketmq-proxy"
    run_tool(
        [
            *("mvn", "-q", "-B", "-f", str(KIT / "pom.xml"), COPY_GOAL),
            f"-Drocketmq.version={version}",
            f"-Drocketmq.server={server}",
            "-DincludeScope=runtime",
            f"-DoutputDirectory={target}",
        ],
        timeout_s=_FETCH_TIMEOUT_S,
    )
    if not any(target.glob(f"rocketmq-broker-{version}.jar")):
        raise UnavailableError(f"Maven did not fetch the broker of version {version}")


def made_once(target: Path, make: Callable[[Path], None]) -> Path:
    """Return a folder of the cache, which `make` fills when it is absent.

    `make` gets a temporary folder, which is renamed when it is complete; other
    processes wait for that. Raises UnavailableError when the folder is absent and
    Java's tools are missing.
    """
    if target.is_dir():
        return target
    if reason := missing_tools():
        raise UnavailableError(reason)
    target.parent.mkdir(parents=True, exist_ok=True)
    with _locked(target.parent / f".{target.name}.lock"):
        if target.is_dir():  # another worker made it while this one waited
            return target
        temporary = target.parent / f".{target.name}.part"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        make(temporary)
        temporary.rename(target)
    return target


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def run_tool(command: list[str], *, timeout_s: int) -> None:
    """Run a command. Raises UnavailableError when it fails or takes too long."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"{command[0]} took longer than {timeout_s} s") from None
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip()[-2000:]
        raise UnavailableError(f"{command[0]} exited {done.returncode}: {said}")
