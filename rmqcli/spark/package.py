"""Pack rmqcli as one file that Spark's executors can import: a zip of Python sources.

Spark puts the zip on the path of its Python workers (`--py-files`, `addPyFile`,
`addArtifacts`). The zip contains rmqcli and the pure Python packages that its library
needs. Packages with compiled parts cannot be imported from a zip: they must be
installed on the executors, or sent as a packed environment.
"""

from __future__ import annotations

import importlib.util
import io
import os
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rmqcli.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The packages in the zip. The other packages that rmqcli requires have compiled parts,
#: are for the command line only, or are PySpark, which the executors have.
PACKAGES: Final = ("rmqcli", "sortedcontainers")

#: The modification time of all files in the zip: the earliest that a zip can have.
_TIME: Final = (1980, 1, 1, 0, 0, 0)
_MODE: Final = 0o644


def package_bytes() -> bytes:
    """Return the content of the zip. Equal sources give equal bytes, in any folder.

    Raises ConfigError when a package is not installed as files.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for package in PACKAGES:
            for name, path in _sources(package):
                info = zipfile.ZipInfo(name, _TIME)
                info.compress_type = zipfile.ZIP_DEFLATED
                info.create_system = 3  # Unix, on every system
                info.external_attr = _MODE << 16
                archive.writestr(info, path.read_bytes())
    return buffer.getvalue()


def zip_package(folder: str) -> str:
    """Write the zip into a folder; return its path."""
    path = os.path.join(folder, "rmqcli.zip")
    Path(path).write_bytes(package_bytes())
    return path


def _sources(package: str) -> Iterator[tuple[str, Path]]:
    """The Python files of a package with their names in the zip, sorted by name."""
    found = importlib.util.find_spec(package)
    folder = Path((found and found.origin) or package).parent
    files = {
        file.relative_to(folder.parent).as_posix(): file
        for file in folder.rglob("*.py")
    }
    if f"{package}/__init__.py" not in files:
        raise ConfigError(
            f"{package} cannot be packed for Spark's executors: it is not installed as"
            f" files in {folder}",
            hint="install rmqcli with pip, and run it from there",
        )
    yield from sorted(files.items())
