"""Finds the end of a log and makes queues and index agree with it.

After a clean stop the queues show where the log ends, and only the log from their last
message on is read. After a kill, reading begins at the last file that, according to the
checkpoint, was on disk together with its queue entries; later entries of queues and
index are dropped and rebuilt.

Source: `CommitLog.recoverNormally` and `recoverAbnormally` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqcli.dataclass import dataclass
from rmqcli.log import get_logger
from rmqcli.store.log_scan import ScannedRecord, names_of, scan, text_of, too_large_at
from rmqcli.store.message_store import QueueUnit, StoreError
from rmqcli.wire.message import layout
from rmqcli.wire.message.system_flag import TRANSACTION_ROLLBACK, transaction_type

if TYPE_CHECKING:
    from rmqcli.store.checkpoint import Checkpoint
    from rmqcli.store.commit_log import CommitLog
    from rmqcli.store.index import KeyIndex
    from rmqcli.store.queue_table import QueueTable

logger = get_logger(__name__)

#: A real broker's checkpoint may be this much newer than the data on disk.
JAVA_SLACK_MS: Final = 3_000
#: This store's checkpoint is exact, but later messages may have the same millisecond.
OWN_SLACK_MS: Final = 1


@dataclass(eq=False)
class Recovery:
    """Recovers a store once, when it is opened.

    `dispatched` counts the records that were put into queues again.
    """

    log: CommitLog
    queues: QueueTable
    index: KeyIndex
    delay_levels_ms: tuple[int, ...]
    dispatched: int = 0
    #: storeTimestamp of the last record; 0 when none was read
    last_store_ms: int = 0

    def run(self, checkpoint: Checkpoint | None, *, slack_ms: int) -> None:
        """Recover, and set the log's end. `checkpoint` is None after a clean stop."""
        start = self._clean_start() if checkpoint is None else None
        if start is None:
            start = self._start_after_kill(checkpoint, slack_ms)
            self.queues.cut(start)
            self.index.forget_from(start)
        end = start
        indexed = self.index.end_offset
        for record in scan(self.log.files, start):
            if isinstance(record, int):
                end = record
                break
            self._dispatch(record, is_indexed=record.commit_log_offset <= indexed)
        self._cut_log(end)
        self.queues.move_mins(self.log.start)

    def _clean_start(self) -> int | None:
        """Return where the queues' last message begins; None if the log lacks it."""
        files = self.log.files
        self.log.end = files.limit
        at = files.start
        for queue in self.queues.queues.values():
            last = queue.last()
            if last is not None:
                at = max(at, last.commit_log_offset)
        if at > files.start and self.log.message_at(at) is None:
            return None
        return at

    def _start_after_kill(self, checkpoint: Checkpoint | None, slack_ms: int) -> int:
        """Return the beginning of the last file that was on disk with its queues."""
        files = self.log.files
        if checkpoint is None:
            return files.start
        times = [checkpoint.physic_ms, checkpoint.logics_ms]
        if checkpoint.index_ms:
            times.append(checkpoint.index_ms)
        until_ms = min(times) - slack_ms
        for base in reversed(files.bases):
            data = files.read(base, layout.RECORD_BYTES_MIN)
            head = layout.read_head(data, 0)
            if head is None or head.magic not in (layout.MAGIC_V1, layout.MAGIC_V2):
                continue
            if 0 < layout.store_timestamp_ms(data, 0, head.sys_flag) <= until_ms:
                return base
        return files.start

    def _cut_log(self, end: int) -> None:
        """Clear all bytes after the last whole record, so that they are never read.

        Raises StoreError, and cuts nothing, at a record that is too large to be read.
        """
        files = self.log.files
        size = too_large_at(files, end)
        if size is not None:
            raise StoreError(
                f"{files.directory} has a record of {size} bytes at {end}, more "
                f"than {layout.RECORD_BYTES_MAX}: not opened, because opening would "
                "discard the data after it"
            )
        tail = files.read(end, 8) if files.has(files.base_of(end)) else b""
        later = [base for base in files.bases if base > files.base_of(end)]
        if tail.strip(b"\0") or any(files.read(base, 8).strip(b"\0") for base in later):
            logger.warning(
                "log ends with an incomplete record, truncated folder=%s at=%d",
                files.directory,
                end,
            )
            self.queues.cut(end)
        files.cut(end)
        self.log.end = end

    def _dispatch(self, record: ScannedRecord, *, is_indexed: bool) -> None:
        offset = record.commit_log_offset
        self.last_store_ms = record.store_timestamp_ms
        if transaction_type(record.sys_flag) != TRANSACTION_ROLLBACK and not is_indexed:
            _, keys, unique = names_of(record.properties)
            when = (offset, record.store_timestamp_ms)
            self.index.add(text_of(record.topic), text_of(keys), text_of(unique), when)
        code = record.tags_code(self.delay_levels_ms)
        if code is None:
            return
        is_new = [
            self._add_entry(record, key, queue_offset, code)
            for key, queue_offset in record.places()
        ]
        self.dispatched += any(is_new)

    def _add_entry(
        self, record: ScannedRecord, key: tuple[str, int], queue_offset: int, code: int
    ) -> bool:
        """Add a record to one of its queues; False if it is there already."""
        offset, count = record.commit_log_offset, record.batch_count
        queue = self.queues.make_for(key, queue_offset, is_batch=count > 0)
        if queue is None:
            return False
        at = queue.max_offset
        if queue_offset < at:
            known = queue.entry(queue_offset)
            if known is not None and known.commit_log_offset >= offset:
                return False
            # The topic was deleted and created again, so its queues start again.
            queue.cut(queue_offset)
        if queue_offset != queue.max_offset:
            if queue.max_offset > queue.min_offset:
                logger.warning(
                    "gap in queue topic=%s queue=%d from=%d to=%d",
                    *key,
                    queue.max_offset,
                    queue_offset,
                )
            queue.start_at(queue_offset)
        self.queues.add(
            queue,
            QueueUnit(offset, record.size_bytes, code),
            count=count or 1,
            store_timestamp_ms=record.store_timestamp_ms,
        )
        return True
