"""Store folders of real brokers, and messages with which to fill other folders."""

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

#: Settings with files so small that a test fills several of them.
TINY = StoreSettings(
    commit_log_file_bytes=16 * 1024,
    consume_queue_file_units=50,
    index_slots=40,
)

START_MS = 1_700_000_000_000


def unpack(version: str, directory: Path) -> Path:
    """Unpack the store folder of a broker that was stopped cleanly; return its path."""
    with tarfile.open(golden_vectors.path(f"store-{version}.tar.gz")) as archive:
        archive.extractall(directory, filter="data")
    return directory / "store"


def message(number: int, *, topic: str = "orders", queue_id: int = 0) -> MessageFields:
    """Return the message with a number, which its body, key and times contain."""
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
    """Return the messages in `data`, all of which must be decodable."""
    assert data is not None
    messages = []
    for each in decode_messages(data):
        assert isinstance(each, StoredMessage), each
        messages.append(each)
    return messages


def number_of(stored_message: StoredMessage) -> int:
    """Return the number of a message, from the end of its key."""
    assert stored_message.keys is not None
    return int(stored_message.keys.rpartition("-")[2])


def state_of(folder):
    """Return the contents, mode, mtime and ctime of each path below a folder."""
    return {
        path.relative_to(folder): (
            path.stat().st_mtime_ns,
            path.stat().st_ctime_ns,
            path.stat().st_mode,
            hashlib.sha256(path.read_bytes()).digest() if path.is_file() else None,
        )
        for path in sorted(folder.rglob("*"))
    }
