"""A store in RocketMQ's own files, which a real broker can open.

An append writes only the log; entries of queues and index wait in memory and are
rebuilt from the log if the process dies. `flush` makes the log durable and the queues
visible to other processes. The checkpoint, which limits how much a start has to read
again, is written once every few seconds of messages.

Source: `DefaultMessageStore`, `CommitLog.asyncPutMessages` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqcli.log import get_logger
from rmqcli.store.checkpoint import (
    Checkpoint,
    read_abort,
    read_checkpoint,
    write_abort,
    write_checkpoint,
)
from rmqcli.store.folder import FolderLock, check_layout
from rmqcli.store.message_store import (
    Appended,
    QueueUnit,
    StoreError,
    StoreFullError,
    is_in_log_only,
    lmq_place,
    message_count,
)
from rmqcli.store.recovery import JAVA_SLACK_MS, OWN_SLACK_MS, Recovery
from rmqcli.store.settings import END_BYTES_MIN, StoreSettings
from rmqcli.store.store_files import StoreFiles
from rmqcli.wire.message.encode import MessageFields, encode_placed
from rmqcli.wire.message.layout import RECORD_BYTES_MAX
from rmqcli.wire.message.properties import KEYS, UNIQ_KEY
from rmqcli.wire.message.system_flag import TRANSACTION_ROLLBACK, transaction_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from rmqcli.store.queue_table import Queue

logger = get_logger(__name__)


#: How much a start may have to read again after a kill: messages, or ms of messages.
_CHECKPOINT_MESSAGES: Final = 100_000
_CHECKPOINT_MS: Final = 5_000
#: Queue entries in memory before they are written without a flush.
_PENDING_MAX: Final = 100_000


class DiskStore(StoreFiles):
    """A `MessageStore` on disk, for one process; other processes use `ReadOnlyStore`.

    Raises StoreError when the folder is in use, or of a kind that cannot be read.
    """

    def __init__(self, folder: Path, settings: StoreSettings | None = None) -> None:
        super().__init__(folder, settings or StoreSettings(), writable=True)
        check_layout(folder)
        self._lock = FolderLock(folder)
        self._is_closed = False
        self._pending = 0  # messages whose queue entries were not written out
        self._unsafe = 0  # messages since the checkpoint
        self._last_ms = 0
        self._reported = ""  # the last failure that was logged
        try:
            self._open()
        except BaseException as error:
            self._opened.close()
            self._lock.release()
            if isinstance(error, OSError):
                raise StoreError(f"{folder} cannot be opened: {error}") from error
            raise

    def _open(self) -> None:
        settings, folder = self.settings, self.folder
        aborted = read_abort(folder)
        (folder / "commitlog").mkdir(exist_ok=True)  # so readers recognise a store
        self._open_files()
        self._checkpoint = read_checkpoint(folder)
        if aborted is None:
            write_abort(folder)
        recovery = Recovery(
            self._log, self._queues, self._index, settings.delay_levels_ms
        )
        recovery.run(
            None if aborted is None else self._checkpoint,
            slack_ms=OWN_SLACK_MS if aborted == "ours" else JAVA_SLACK_MS,
        )
        self.recovered_count = recovery.dispatched
        self._last_ms = recovery.last_store_ms or self._checkpoint.logics_ms
        if recovery.dispatched or aborted is not None:
            self._log.files.sync()
            try:
                self._save()
            except StoreError as error:
                self._report(error)  # entries in memory can be rebuilt
            else:
                # Only now was the checkpoint written by this store.
                write_abort(folder)

    def append(
        self, messages: Sequence[MessageFields], *, tags_codes: Sequence[int]
    ) -> list[Appended]:
        if len(messages) != len(tags_codes):
            raise ValueError(f"{len(messages)} messages, {len(tags_codes)} tags codes")
        if not messages:
            return []
        if self._pending > _PENDING_MAX:
            self._write_out()
        self._index.need_room()
        targets = [self._queue(fields) for fields in messages]
        lmqs = [self._lmq(fields) for fields in messages]
        places, parts, end = self._placed(messages, targets)
        self._log.write(parts, end)
        add = self._queues.add
        for fields, queue, lmq, place, code in zip(
            messages, targets, lmqs, places, tags_codes, strict=True
        ):
            if queue is not None:
                unit, when = QueueUnit(*place[:2], code), fields.store_timestamp_ms
                add(queue, unit, count=message_count(fields), store_timestamp_ms=when)
                if lmq is not None and lmq[0].max_offset == lmq[1]:
                    add(lmq[0], unit, store_timestamp_ms=when)
            if transaction_type(fields.sys_flag) != TRANSACTION_ROLLBACK:
                self._add_keys(fields, place[0])
        self._last_ms = messages[-1].store_timestamp_ms
        self._pending += len(places)
        self._unsafe += len(places)
        return places

    def _queue(self, fields: MessageFields) -> Queue | None:
        """Return the queue for the message's entry; None if it is in the log only."""
        if fields.store_timestamp_ms < self._checkpoint.logics_ms:
            self._move_checkpoint_back(fields.store_timestamp_ms)
        if is_in_log_only(fields):
            return None
        return self._open_queue(fields.topic, fields.queue_id)

    def _lmq(self, fields: MessageFields) -> tuple[Queue, int] | None:
        """Return the second queue of a lite topic's message, and the offset there."""
        place = lmq_place(fields)
        return None if place is None else (self._open_queue(place[0], 0), place[1])

    def _open_queue(self, topic: str, queue_id: int) -> Queue:
        key = (topic, queue_id)
        queue = self._queues.queues.get(key) or self._queues.make(key)
        if queue.pending_count > 2 * _PENDING_MAX:
            raise StoreFullError(
                f"queue {queue_id} of topic {topic} cannot be written: "
                f"{queue.pending_count} entries are only in memory",
            )
        return queue

    def _placed(
        self, messages: Sequence[MessageFields], targets: Sequence[Queue | None]
    ) -> tuple[list[Appended], list[tuple[int, bytes]], int]:
        """Return the places, the bytes to write by offset, and the log's new end."""
        log, places, parts = self._log, [], []
        at = start = log.end
        room = log.room(at)
        records: list[bytes] = []
        taken: dict[Queue | None, int] = {}
        for fields, queue in zip(messages, targets, strict=True):
            more = taken.get(queue, 0)
            queue_offset = 0 if queue is None else queue.max_offset + more
            taken[queue] = more + message_count(fields)
            record = encode_placed(
                fields, queue_offset=queue_offset, commit_log_offset=at
            )
            if len(record) > RECORD_BYTES_MAX:
                raise ValueError(
                    f"a message of {len(record)} bytes exceeds the limit of"
                    f" {RECORD_BYTES_MAX}"
                )
            if len(record) + END_BYTES_MIN > room:
                if len(record) + END_BYTES_MIN > log.files.file_bytes:
                    raise ValueError(
                        f"a message of {len(record)} bytes does not fit into a log "
                        f"file of {log.files.file_bytes}"
                    )
                records.append(log.blank(at))
                parts.append((start, b"".join(records)))
                records = []
                at = start = at + room
                room = log.room(at)
                record = encode_placed(
                    fields, queue_offset=queue_offset, commit_log_offset=at
                )
            records.append(record)
            places.append(Appended(at, len(record), queue_offset))
            at += len(record)
            room -= len(record)
        parts.append((start, b"".join(records)))
        return places, parts, at

    def _add_keys(self, fields: MessageFields, offset: int) -> None:
        properties = fields.property_table()
        keys, unique = properties.get(KEYS), properties.get(UNIQ_KEY)
        if keys or unique:
            place = offset, fields.store_timestamp_ms
            self._index.add(fields.topic, keys or "", unique or "", place)

    def flush(self) -> None:
        """Make everything that was appended survive a power cut. Raises StoreError.

        Readers in other processes see it then, too, unless the disk is too full for the
        queues' entries: these stay in memory until the next flush.
        """
        self._log.files.sync()
        if not (self._pending or self._queues.has_pending):
            return
        if self._write_out() and self._is_checkpoint_due():
            try:
                self._save()
            except StoreError as error:
                self._report(error)

    def _is_checkpoint_due(self) -> bool:
        return (
            self._unsafe >= _CHECKPOINT_MESSAGES
            or self._last_ms - self._checkpoint.logics_ms >= _CHECKPOINT_MS
        )

    def _write_out(self) -> bool:
        """Write the queues' pending entries; return whether all could be written."""
        error = self._queues.write_out()
        self._pending = 0
        if error is None:
            self._reported = ""
        else:
            self._report(error)
        return error is None

    def _report(self, error: StoreError) -> None:
        if error.message != self._reported:
            self._reported = error.message
            text = "could not write all data, keeping the rest in memory: %s"
            logger.warning(text, error.message)

    def _save(self) -> None:
        """Make queues and index durable, and then write the checkpoint.

        Raises StoreError if a part cannot be written, after writing the others.
        """
        error = self._queues.write_out()
        self._index.write_out()
        self._queues.sync()
        if error is not None:
            raise error
        self._pending = 0
        self._checkpoint = Checkpoint(self._last_ms, self._last_ms, self._last_ms)
        write_checkpoint(self.folder, self._checkpoint)
        self._unsafe = 0

    def _move_checkpoint_back(self, time_ms: int) -> None:
        """Set the checkpoint back to `time_ms`, because the clock was set back.

        Messages now have earlier times than the checkpoint. Raises StoreFullError.
        """
        try:
            checkpoint = Checkpoint(time_ms, time_ms, time_ms)
            write_checkpoint(self.folder, checkpoint)
        except StoreError as error:
            raise StoreFullError(error.message) from error
        self._checkpoint = checkpoint

    def queues(self) -> Iterable[tuple[str, int]]:
        return list(self._queues.queues)

    def queue_bounds(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        queue = self._queues.queues.get((topic, queue_id))
        return None if queue is None else (queue.min_offset, queue.max_offset)

    def log_bounds(self) -> tuple[int, int]:
        return self._log.start, self._log.end

    def delete_topic(self, topic: str) -> None:
        self._queues.delete_topic(topic)

    def delete_queue(self, topic: str, queue_id: int) -> None:
        self._queues.delete_queue(topic, queue_id)

    def trim(self, topic: str | None, before: int) -> None:
        if topic is not None:
            for (name, _), queue in self._queues.queues.items():
                if name == topic:
                    bounded = min(before, queue.max_offset)
                    queue.min_offset = max(queue.min_offset, bounded)
            return
        files = self._log.files
        old = [base for base in files.bases[:-1] if base + files.file_bytes <= before]
        # A file that ends where the log ends is the last one if no other exists yet.
        for base in [base for base in old if base + files.file_bytes <= self._log.end]:
            files.delete(base)
        if old:
            self._queues.move_mins(self._log.start)
            self._index.trim(self._log.start)

    def expire(self, now_ms: int) -> int:
        """Delete old log files as set in `settings`; return the log's new start.

        A file is as old as the first message of the next file. Call it about every ten
        seconds (DefaultMessageStore.CleanCommitLogService).
        """
        files, settings = self._log.files, self.settings
        keep_from = files.start
        for base in files.bases[1:]:
            is_over = (
                settings.commit_log_bytes_max is not None
                and self._log.end - keep_from > settings.commit_log_bytes_max
            )
            stored_ms = self._log.store_time_ms(base)
            is_old = (
                settings.file_reserved_ms is not None
                and stored_ms is not None
                and stored_ms < now_ms - settings.file_reserved_ms
            )
            if not (is_over or is_old):
                break
            keep_from = base
        if keep_from > files.start:
            self.trim(None, keep_from)
        return files.start

    def close(self) -> None:
        """Write everything, so that the next start is quick, and unlock the folder.

        Raises StoreError when that fails; the folder is unlocked nevertheless, and the
        next start recovers it as after a kill.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._log.files.sync()
            if self._unsafe:
                self._save()
            (self.folder / "abort").unlink(missing_ok=True)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the folder as a killed process does: nothing more is written."""
        self._is_closed = True
        self._opened.close()
        self._lock.release()
