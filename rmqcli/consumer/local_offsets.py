"""Offsets of a broadcasting member, in the file and the format that Java clients use.

The keys of the table are objects, which JSON does not allow; fastjson reads them, and
so does `wire.fastjson`.

Source: LocalFileOffsetStore, OffsetSerializeWrapper, MixAll#string2File.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

from rmqcli.errors import BodyError, ConfigError
from rmqcli.files import file_name_fault, read_regular, replace_file
from rmqcli.wire.bodies.offset import OffsetSerializeWrapper
from rmqcli.wire.body import decode_body

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rmqcli.model import MessageQueue

_FILE_BYTES_MAX: Final = 64 * 1024 * 1024
_NOT_IN_NAMES: Final = re.compile(r"[^%|a-zA-Z0-9_@.#:-]|^\.+$")


def local_offset_path(home: Path, client_id: str, group: str) -> Path:
    """Java's path of the file: `HOME/.rocketmq_offsets/CLIENT/GROUP/offsets.json`.

    Raises ConfigError when the client id or the group cannot be the name of a folder.
    """
    folder = home / ".rocketmq_offsets"
    for what, text in (("client id", client_id), ("group's name", group)):
        name = _NOT_IN_NAMES.sub(lambda found: found[0].encode().hex("_"), text)
        fault = file_name_fault(name)
        if fault is not None:
            raise ConfigError(
                f"cannot create a path for the offset file: the {what}"
                f" {text[:60]!r} {fault}",
                hint="choose a shorter name",
            )
        folder /= name
    return folder / "offsets.json"


def parse_local_offsets(text: str) -> dict[MessageQueue, int]:
    """Parse the text of an offset file. Raises BodyError."""
    return decode_body(OffsetSerializeWrapper, text).offset_table


def format_local_offsets(offsets: Mapping[MessageQueue, int]) -> str:
    """Return the text of an offset file as fastjson prints it; queues are sorted."""
    entries = ",".join(
        "{\n"
        f'\t\t\t"brokerName":{json.dumps(queue.broker_name, ensure_ascii=False)},\n'
        f'\t\t\t"queueId":{queue.queue_id},\n'
        f'\t\t\t"topic":{json.dumps(queue.topic, ensure_ascii=False)}\n'
        f"\t\t}}:{offset}"
        for queue, offset in sorted(offsets.items())
    )
    table = f"{{{entries}\n\t}}" if entries else "{}"
    return f'{{\n\t"offsetTable":{table}\n}}'


class LocalOffsetFile:
    """The offset file of one member. Implements the engine's `OffsetFile`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._backup = path.with_name(path.name + ".bak")

    def read(self) -> dict[MessageQueue, int]:
        """Return the offsets of the file or of its backup.

        The backup is read when the file is missing, empty or damaged; the result is
        empty when there is no backup either. Raises ConfigError when a file cannot be
        read, or when the backup is damaged, too.
        """
        try:
            found = self._read(self.path)
        except BodyError:
            found = None
        if found is not None:
            return found
        try:
            return self._read(self._backup) or {}
        except BodyError as error:
            raise ConfigError(
                f"offsets in {self._backup} cannot be read: {error.message}",
                hint="remove the file to start at the configured position",
            ) from error

    def _read(self, path: Path) -> dict[MessageQueue, int] | None:
        try:
            data = read_regular(path, _FILE_BYTES_MAX + 1)
            if len(data) > _FILE_BYTES_MAX:
                raise ConfigError(f"{path} is too large to hold offsets")
            text = data.decode()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error}") from error
        except UnicodeError as error:
            raise BodyError(f"{path} is not UTF-8: {error}") from error
        return parse_local_offsets(text) if text.strip() else None

    def write(self, offsets: dict[MessageQueue, int]) -> None:
        """Merge `offsets` into those of the file, as 4.9.8 does. Raises OSError.

        The new file is complete before it replaces the old one, which becomes the
        backup. A file that cannot be read is replaced without a merge.
        """
        try:
            merged = self.read() | offsets
        except ConfigError:
            merged = offsets
        self.path.parent.mkdir(parents=True, exist_ok=True)
        data = format_local_offsets(merged).encode()
        replace_file(self.path, data, backup=self._backup)
