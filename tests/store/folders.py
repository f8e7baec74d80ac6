"""Folders of real brokers to test on, and messages to fill other folders with."""

from __future__ import annotations

import hashlib
import tarfile
from typing import TYPE_CHECKING

from rmqcli.store.settings import StoreSettings
from rmqcli.wire.message.decode import StoredMessage, decode_messages
from rmqcli.wire.message.encode import MessageFields
from tests import golden_vectors

if TYPE_CHECKING:
    from pathlib import Path

VERSIONS = ("4.6.0", "5.5.0")

#: Files so small that a test fills several.
TINY = StoreSettings(
    commit_log_file_bytes=16 * 1024,
    consume_queue_file_units=50,
    index_slots=40,
)

START_MS = 1_700_000_000_000


def unpack(version: str, directory: Path) -> Path:
    """The store folder of a cleanly stopped broker of that version."""
    with tarfile.open(golden_vectors.path(f"store-{version}.tar.gz")) as archive:
        archive.extractall(directory, filter="data")
    return directory / "store"


def message(number: int, *, topic: str = "orders", queue_id: int = 0) -> MessageFields:
    """The message of that number: body, key and times say which it is."""
    return MessageFields(
        topic=topic,
        queue_id=queue_id,
        body=f"body of {number} ".encode() * 5,
        born_timestamp_ms=START_MS + number,
        store_timestamp_ms=START_MS + number * 10,
        properties={
            "KEYS": f"order-{number}",
            "TAGS": "A",
            "UNIQ_KEY": f"{number:032X}",
        },
    )


def stored(data: bytes | None) -> list[StoredMessage]:
    """The messages in `data`, all of which must be readable."""
    assert data is not None
    messages = []
    for each in decode_messages(data):
        assert isinstance(each, StoredMessage), each
        messages.append(each)
    return messages


def number_of(stored_message: StoredMessage) -> int:
    """Which message it is, by the number at the end of its key."""
    assert stored_message.keys is not None
    return int(stored_message.keys.rpartition("-")[2])


def state_of(folder):
    """Every name below a folder with its bytes, mode and times of change."""
    return {
        path.relative_to(folder): (
            path.stat().st_mtime_ns,
            path.stat().st_ctime_ns,
            path.stat().st_mode,
            hashlib.sha256(path.read_bytes()).digest() if path.is_file() else None,
        )
        for path in sorted(folder.rglob("*"))
    }
