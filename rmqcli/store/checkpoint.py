"""The files `checkpoint`, `timercheck` and `abort`, kept for a broker's next start.

Source: `StoreCheckpoint`, `TimerCheckpoint` and `DefaultMessageStore.createTempFile` in
apache/rocketmq.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from rmqcli.files import read_regular
from rmqcli.store.message_store import TimerProgress, store_errors

if TYPE_CHECKING:
    from pathlib import Path

_TIMES: Final = struct.Struct(">qqq")
#: lastReadTimeMs, lastTimerLogFlushPos, lastTimerQueueOffset, masterTimerQueueOffset
_TIMERS: Final = struct.Struct(">qqqq")
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
    times = Checkpoint._make(_read(folder / "checkpoint", _TIMES))
    return times if min(times) >= 0 else Checkpoint()


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Write the checkpoint durably. Raises StoreError."""
    _write(folder / "checkpoint", _TIMES.pack(*checkpoint))


def read_timer_progress(folder: Path) -> TimerProgress:
    """Return the stored progress of the timers; zeros if it is missing or damaged."""
    read_ms, _, queue_offset, _ = _read(folder / "config" / "timercheck", _TIMERS)
    if min(read_ms, queue_offset) < 0:
        return TimerProgress()
    return TimerProgress(read_ms, queue_offset)


def write_timer_progress(folder: Path, progress: TimerProgress) -> None:
    """Write the progress of the timers durably. Raises StoreError.

    It names no place in the timer log, so a real broker reads its whole timer log, if
    there is one, and the timers' topic from `queue_offset` on.
    """
    read_ms, queue_offset = progress
    data = _TIMERS.pack(read_ms, 0, queue_offset, queue_offset)
    with suppress(OSError):  # the write then says what is wrong
        (folder / "config").mkdir(exist_ok=True)
    _write(folder / "config" / "timercheck", data)


def _read(path: Path, numbers: struct.Struct) -> tuple[int, ...]:
    data = b""
    with suppress(OSError):
        data = read_regular(path, numbers.size)
    return numbers.unpack(data if len(data) == numbers.size else bytes(numbers.size))


def _write(path: Path, data: bytes) -> None:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with store_errors(f"{path} cannot be written"):
        fd = os.open(path, flags, 0o644)
        try:
            if os.fstat(fd).st_size < _BYTES:
                os.ftruncate(fd, _BYTES)
            os.pwrite(fd, data, 0)
            os.fdatasync(fd)
        finally:
            os.close(fd)


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
