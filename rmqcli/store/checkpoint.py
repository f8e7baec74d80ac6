"""The files `checkpoint` and `abort`, which a store keeps for its next start.

Source: `StoreCheckpoint` and `DefaultMessageStore.createTempFile` in apache/rocketmq.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from rmqcli.files import read_regular
from rmqcli.store.message_store import StoreError

if TYPE_CHECKING:
    from pathlib import Path

_TIMES: Final = struct.Struct(">qqq")
_BYTES: Final = 4096
_OURS: Final = " rmq"
_ABORT_BYTES_MAX: Final = 256


class Checkpoint(NamedTuple):
    """Store times (epoch ms) up to which log, queues and index are on the disk."""

    physic_ms: int = 0  # physicMsgTimestamp
    logics_ms: int = 0  # logicsMsgTimestamp
    index_ms: int = 0  # indexMsgTimestamp


def read_checkpoint(folder: Path) -> Checkpoint:
    """Return the stored checkpoint; zeros if it is missing or damaged."""
    try:
        data = read_regular(folder / "checkpoint", _TIMES.size)
    except OSError:
        return Checkpoint()
    if len(data) < _TIMES.size:
        return Checkpoint()
    times = Checkpoint._make(_TIMES.unpack_from(data))
    return times if min(times) >= 0 else Checkpoint()


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Write the checkpoint durably. Raises StoreError."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        fd = os.open(folder / "checkpoint", flags, 0o644)
        try:
            if os.fstat(fd).st_size < _BYTES:
                os.ftruncate(fd, _BYTES)
            os.pwrite(fd, _TIMES.pack(*checkpoint), 0)
            os.fdatasync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise StoreError(
            f"{folder / 'checkpoint'} cannot be written: {error.strerror}"
        ) from error


def read_abort(folder: Path) -> Literal["ours", "java"] | None:
    """Return which program did not close the folder; None after a clean stop.

    Raises OSError if the file cannot be read.
    """
    try:
        data = read_regular(folder / "abort", _ABORT_BYTES_MAX)
    except FileNotFoundError:
        return None
    return "ours" if data.endswith(_OURS.encode()) else "java"


def write_abort(folder: Path) -> None:
    """Mark the folder as open. Raises OSError.

    A real 5.x broker writes its process id, 4.x nothing; neither reads it.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(folder / "abort", flags, 0o644), "w") as file:
        file.write(f"{os.getpid()}{_OURS}")
