"""`config/*.json`: a broker's tables on disk, as Java writes them.

Each file has a `.bak` with its previous content, which is read when the file is
damaged. This module does not know the tables.

Source: `ConfigManager`, `MixAll.string2File` in apache/rocketmq.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from rmqcli.errors import BodyError
from rmqcli.files import read_regular, remove_temporaries, replace_file
from rmqcli.log import get_logger
from rmqcli.store.message_store import StoreError, StoreFullError, store_errors
from rmqcli.wire.fastjson import loads

if TYPE_CHECKING:
    from pathlib import Path

logger = get_logger(__name__)

#: More than any broker's tables have; a bound, because a folder may contain anything.
_BYTES_MAX: Final = 256 * 1024 * 1024


class ConfigFolder:
    """The `config` folder of a store's folder; it need not exist yet."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def read(self, name: str) -> object | None:
        """Return the content of a file such as `topics.json`, or None without the file.

        Bare keys become text, like all keys of JSON. Raises StoreError when neither the
        file nor its `.bak` can be read.
        """
        problem: StoreError | None = None
        for each in (name, f"{name}.bak"):
            try:
                value = self._read(each)
            except StoreError as error:
                problem = problem or error
                continue
            if value is not None:
                if problem is not None:
                    logger.warning("%s; read from %s", problem.message, each)
                return value
        if problem is not None:
            raise problem
        return None

    def _read(self, name: str) -> object | None:
        path = self.directory / name
        data = b""
        missing = suppress(FileNotFoundError, NotADirectoryError)
        with store_errors(f"{path} cannot be read"), missing:
            data = read_regular(path, _BYTES_MAX + 1)
        if len(data) > _BYTES_MAX:
            raise StoreError(f"{path} has more than {_BYTES_MAX} bytes")
        if not data.strip():
            return None  # then Java, too, reads the .bak
        try:
            return loads(data)
        except BodyError as error:
            raise StoreError(f"{path} cannot be read: {error.message}") from error

    def clean(self) -> None:
        """Remove the temporary files of a process that was killed while it wrote.

        Only the process that holds the folder's lock may call this. Files that cannot
        be removed are left.
        """
        with suppress(OSError):
            remove_temporaries(self.directory)

    def write(self, name: str, text: str) -> None:
        """Replace a file; a reader sees the old or the new one, even after a kill.

        Raises StoreFullError if that fails; then the old file is unchanged.
        """
        path = self.directory / name
        with store_errors(f"{path} cannot be written", StoreFullError):
            self.directory.mkdir(parents=True, exist_ok=True)
            replace_file(path, text.encode(), backup=self.directory / f"{name}.bak")
