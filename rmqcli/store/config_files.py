"""`config/*.json`: a broker's tables on disk, as Java writes them.

Each has a `.bak` with what it was before, which is read when it is damaged. Knows
nothing of what is in them.

Source: `ConfigManager`, `MixAll.string2File` in apache/rocketmq.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from rmqcli.errors import BodyError
from rmqcli.files import (
    read_regular,
    remove_temporaries,
    sync_folder,
    write_temporary,
)
from rmqcli.log import get_logger
from rmqcli.store.message_store import StoreError, StoreFullError
from rmqcli.wire.fastjson import loads

if TYPE_CHECKING:
    from pathlib import Path

logger = get_logger(__name__)

#: More than any broker's tables; a folder may be anybody's.
_BYTES_MAX: Final = 256 * 1024 * 1024


class ConfigFolder:
    """The `config` folder of a store's folder; it need not exist yet."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def read(self, name: str) -> object | None:
        """What a file such as `topics.json` holds; None when there is none.

        Bare keys become text, as all keys of JSON. Raises StoreError when neither the
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
        try:
            data = read_regular(path, _BYTES_MAX + 1)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise StoreError(f"{path} cannot be read: {error.strerror}") from error
        if len(data) > _BYTES_MAX:
            raise StoreError(f"{path} is over {_BYTES_MAX} bytes")
        if not data.strip():
            return None  # Java too goes on to the .bak
        try:
            return loads(data)
        except BodyError as error:
            raise StoreError(f"{path} cannot be read: {error.message}") from error

    def clean(self) -> None:
        """Remove the temporary files of a process that was killed while it wrote.

        Only for who has the folder to himself. What cannot be removed stays.
        """
        with suppress(OSError):
            remove_temporaries(self.directory)

    def write(self, name: str, text: str) -> None:
        """Replace a file; a reader sees the old or the new one, even after a kill.

        Raises StoreFullError and leaves the old file.
        """
        path, new = self.directory / name, None
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            new = write_temporary(self.directory, text.encode(), mode=0o644)
            before = self.directory / f"{name}.bak"
            if path.exists():
                # A link, so that there is a file of the name at every moment.
                with suppress(FileNotFoundError):
                    before.unlink()
                os.link(path, before, follow_symlinks=False)
            new.replace(path)
            sync_folder(self.directory)
        except OSError as error:
            if new is not None:
                with suppress(OSError):
                    new.unlink()
            raise StoreFullError(
                f"{path} cannot be written: {error.strerror}"
            ) from error
