"""The packages and settings that each table format needs, and the names of tables.

Pure: this module reads settings and knows which package fits which PySpark. Spark 4 is
built for Scala 2.13 only.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from rmqcli.dataclass import dataclass
from rmqcli.errors import ConfigError, UsageError
from rmqcli.hint import Hint, Setting

if TYPE_CHECKING:
    from collections.abc import Mapping

SCALA: Final = "2.13"
PACKAGES_SETTING: Final = "spark.jars.packages"
_EXTENSIONS: Final = "spark.sql.extensions"
_SESSION_CATALOG: Final = "spark.sql.catalog.spark_catalog"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
#: A part of a table's name, in backticks if it has other characters.
_PART = re.compile(r"`((?:[^`]|``)+)`|([\w-]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A table format.

    `packages` maps minor versions of PySpark to Maven coordinates.
    """

    name: str
    title: str
    packages: Mapping[str, str]
    #: a class of the package, which shows that the package is present
    marker: str
    #: settings that the session gets unless the user has set them
    settings: Mapping[str, str]


DELTA: Final = Format(
    name="delta",
    title="Delta Lake",
    packages={
        "4.0": "io.delta:delta-spark_2.13:4.0.0",
        "4.1": "io.delta:delta-spark_4.1_2.13:4.4.0",
        "4.2": "io.delta:delta-spark_4.2_2.13:4.4.0",
    },
    marker="org.apache.spark.sql.delta.catalog.DeltaCatalog",
    settings={
        _EXTENSIONS: "io.delta.sql.DeltaSparkSessionExtension",
        _SESSION_CATALOG: "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    },
)
ICEBERG: Final = Format(
    name="iceberg",
    title="Apache Iceberg",
    packages={
        "4.0": "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0",
        "4.1": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0",
    },
    marker="org.apache.iceberg.spark.SparkCatalog",
    settings={},
)
FORMATS: Final = {each.name: each for each in (DELTA, ICEBERG)}


def missing_error(kind: Format, *, pyspark: str) -> ConfigError:
    """The error for a session that lacks the package of a format."""
    return ConfigError(
        f"{kind.title} is not among the packages of this Spark session (PySpark"
        f" {pyspark}, Scala {SCALA})",
        hint=_package_hint(kind, pyspark),
    )


def unfit_error(
    kind: Format, reason: str, *, pyspark: str, given: Mapping[str, str]
) -> ConfigError:
    """The error for a package that is built for another Spark."""
    chosen = given.get(PACKAGES_SETTING) or given.get("spark.jars") or ""
    shown = f" ({chosen[:200]})" if chosen else ""
    return ConfigError(
        f"{kind.title} of this Spark session{shown} does not work with PySpark"
        f" {pyspark} (Scala {SCALA}): {reason}",
        hint=_package_hint(kind, pyspark),
    )


def _package_hint(kind: Format, pyspark: str) -> str:
    minor = ".".join(pyspark.split(".")[:2])
    package = kind.packages.get(minor)
    if package is not None:
        return Hint("give ", Setting("conf", f"{PACKAGES_SETTING}={package}"))
    newest = max(kind.packages, key=lambda text: [int(n) for n in text.split(".")])
    return Hint(
        f"no release of {kind.title} for PySpark {minor} is known to rmq: install"
        f" pyspark=={newest}.* and give ",
        Setting("conf", f"{PACKAGES_SETTING}={kind.packages[newest]}"),
    )


def is_path(target: str) -> bool:
    """Whether a target for Delta Lake is a path or URL rather than a table's name."""
    return "/" in target or target in (".", "..")


def absolute(target: str) -> str:
    """Return a URL unchanged, and a path as an absolute path."""
    return target if _SCHEME.match(target) else os.path.abspath(target)


def local_path(target: str, *, default_fs: str) -> str | None:
    """Return the path of a Delta Lake table on the local file system.

    None for a table elsewhere. `default_fs` is Hadoop's `fs.defaultFS`, which decides
    for a path without a scheme.
    """
    if not _SCHEME.match(target):
        return os.path.abspath(target) if default_fs.startswith("file:") else None
    url = urlsplit(target)
    return os.path.normpath(url.path) if url.scheme.lower() == "file" else None


def parse_name(target: str) -> tuple[str, ...]:
    """Return the parts of a table's name. Raises UsageError for an invalid name."""
    parts: list[str] = []
    at = 0
    while True:
        match = _PART.match(target, at)
        if match is None:
            break
        quoted, plain = match.groups()
        parts.append(plain if quoted is None else quoted.replace("``", "`"))
        at = match.end()
        if at == len(target):
            return tuple(parts)
        if target[at] != ".":
            break
        at += 1
    raise UsageError(
        f"{target!r} is not the name of a table",
        hint="write CATALOG.NAMESPACE.TABLE, a part with other characters in backticks",
    )


def quoted(parts: tuple[str, ...]) -> str:
    """Return the name for use in SQL, each part in backticks."""
    return ".".join(f"`{part.replace('`', '``')}`" for part in parts)


def check_target(kind: Format, target: str, given: Mapping[str, str]) -> None:
    """Raise UsageError for a target that is not valid for the format.

    Raises ConfigError for a name in a catalog that the settings do not configure, or in
    Spark's own catalog when that does not keep names.
    """
    if kind is DELTA:
        _check_delta(target, given)
    else:
        _check_iceberg(target, given)


def _check_delta(target: str, given: Mapping[str, str]) -> None:
    if is_path(target):
        return
    parts = parse_name(target)
    if len(parts) > 2 and parts[0] != "spark_catalog":
        if f"spark.sql.catalog.{parts[0]}" not in given:
            raise ConfigError(
                f"the catalog {parts[0]} of the table {target} is not configured",
                hint=Hint(
                    "give ",
                    Setting("conf", f"spark.sql.catalog.{parts[0]}=CLASS"),
                    ", or a path as the target",
                ),
            )
        return
    if not _keeps_names(given):
        raise ConfigError(
            f"{target} is the name of a table, but Spark's built-in catalog forgets"
            " names when the session ends",
            hint=Hint(
                f"for a folder write ./{target}; for a Hive metastore give ",
                Setting("conf", "spark.sql.catalogImplementation=hive"),
            ),
        )


def _keeps_names(given: Mapping[str, str]) -> bool:
    """Whether Spark's own catalog keeps the names of its tables after the session."""
    own = DELTA.settings[_SESSION_CATALOG]
    return (
        given.get("spark.sql.catalogImplementation") == "hive"
        or given.get(_SESSION_CATALOG, own) != own
    )


def settings_of(
    kind: Format, target: str, given: Mapping[str, str], *, folder: str
) -> dict[str, str]:
    """Return the settings to add: those that the format needs and the user has not set.

    `given` are the user's settings. `folder` is removed after the session; Spark's
    warehouse is put there when no table can be written to it, and is otherwise left
    where Spark has it.
    """
    made = dict(kind.settings)
    is_elsewhere = kind is ICEBERG or is_path(target)
    if is_elsewhere and not _keeps_names(given):
        made["spark.sql.warehouse.dir"] = os.path.join(folder, "warehouse")
    return {name: value for name, value in made.items() if name not in given}


def _check_iceberg(target: str, given: Mapping[str, str]) -> None:
    if "/" in target and "`" not in target:
        raise UsageError(
            f"{target} is a path, but an Iceberg table needs a name in a catalog",
            hint="write CATALOG.NAMESPACE.TABLE; a catalog of the type hadoop keeps its"
            " tables in a folder",
        )
    parts = parse_name(target)
    default = given.get("spark.sql.defaultCatalog")
    catalog = parts[0]
    if f"spark.sql.catalog.{catalog}" not in given and default is not None:
        catalog = default
    if f"spark.sql.catalog.{catalog}" in given:
        return
    raise ConfigError(
        f"no catalog {parts[0]} of Iceberg is configured for the table {target}",
        hint=Hint(
            "give ",
            Setting("conf", f"spark.sql.catalog.{parts[0]}={ICEBERG.marker}"),
            " ",
            Setting("conf", f"spark.sql.catalog.{parts[0]}.type=hadoop"),
            " ",
            Setting("conf", f"spark.sql.catalog.{parts[0]}.warehouse=FOLDER"),
            ", for example",
        ),
    )
