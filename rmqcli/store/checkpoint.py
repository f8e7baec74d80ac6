"""`checkpoint` and `abort`: what a store writes down for its next start.

Source: `StoreCheckpoint` and `DefaultMessageStore.createTempFile` in apache/rocketmq.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from rmqcli.store.message_store import StoreError

if TYPE_CHECKING:
    from pathlib import Path

_TIMES: Final = struct.Struct(">qqq")
_BYTES: Final = 4096
_OURS: Final = " rmq"


class Checkpoint(NamedTuple):
    """Store times (epoch ms) up to which log, queues and index are on the disk."""

    physic_ms: int = 0  # physicMsgTimestamp
    logics_ms: int = 0  # logicsMsgTimestamp
    index_ms: int = 0  # indexMsgTimestamp


def read_checkpoint(folder: Path) -> Checkpoint:
    """What is written; zeros when there is none or it is damaged."""
    try:
        data = (folder / "checkpoint").read_bytes()
    except OSError:
        return Checkpoint()
    if len(data) < _TIMES.size:
        return Checkpoint()
    times = Checkpoint._make(_TIMES.unpack_from(data))
    return times if min(times) >= 0 else Checkpoint()


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Write it and make it durable. Raises StoreError."""
    try:
        fd = os.open(
            folder / "checkpoint", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644
        )
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
    """Who had the folder open and did not close it; None after a clean stop."""
    try:
        text = (folder / "abort").read_text(errors="replace")
    except FileNotFoundError:
        return None
    return "ours" if text.endswith(_OURS) else "java"


def write_abort(folder: Path) -> None:
    """Say that the folder is open. Raises OSError.

    A real 5.x broker writes its process id, 4.x nothing; neither reads it.
    """
    (folder / "abort").write_text(f"{os.getpid()}{_OURS}")
