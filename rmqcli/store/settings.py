"""Sizes of a store's files, and how long they are kept.

The defaults are small, so that a demo's folder is small, too. Files are sparse: they
use no space before they are filled. An existing folder keeps its file lengths.

Source: `MessageStoreConfig` in apache/rocketmq. A real broker opens a folder only with
the same numbers in its broker.conf, so each line names the property.
"""

from __future__ import annotations

from typing import Final

from rmqcli.dataclass import dataclass

#: Bytes that a log file keeps free for the mark of its end (END_FILE_MIN_BLANK_LENGTH).
END_BYTES_MIN: Final = 8

_SECOND: Final = 1_000
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE

#: MessageStoreConfig.messageDelayLevel, level 1 first.
DELAY_LEVELS_MS: Final = (
    *(each * _SECOND for each in (1, 5, 10, 30)),
    *(each * _MINUTE for each in (*range(1, 11), 20, 30)),
    *(each * _HOUR for each in (1, 2)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """How a `DiskStore` lays out a new folder and what it deletes from an old one.

    16 MiB of log hold four messages of the largest size, or 60,000 small ones, so that
    a busy broker does not create a file every second. Each key takes one index item;
    four items per slot are RocketMQ's ratio, which readers of a folder rely on.
    """

    commit_log_file_bytes: int = 16 * 1024 * 1024  # mappedFileSizeCommitLog
    consume_queue_file_units: int = 30_000  # mappedFileSizeConsumeQueue / 20
    index_slots: int = 250_000  # maxHashSlotNum; maxIndexNum is four times that
    file_reserved_ms: int | None = 72 * _HOUR  # fileReservedTime; None: for ever
    commit_log_bytes_max: int | None = None  # above it, the oldest files are deleted
    delay_levels_ms: tuple[int, ...] = DELAY_LEVELS_MS  # messageDelayLevel

    def __post_init__(self) -> None:
        if self.commit_log_file_bytes < 4096:
            raise ValueError(
                f"commit_log_file_bytes must be at least 4096, not"
                f" {self.commit_log_file_bytes}"
            )
        if self.consume_queue_file_units < 1:
            raise ValueError(
                f"consume_queue_file_units must be at least 1, not"
                f" {self.consume_queue_file_units}"
            )
        if self.index_slots < 1:
            raise ValueError(f"index_slots must be at least 1, not {self.index_slots}")
