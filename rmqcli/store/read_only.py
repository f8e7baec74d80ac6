"""Reads the folder of a store or of a real broker, even while its broker runs.

Never writes, locks or cuts anything. Messages may have no queue entries, because their
broker was killed or is about to write the entries. They are found in the log after the
last message that has an entry, as in recovery.

Source: `DefaultMessageStore` in apache/rocketmq, for what the files mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.store.config_files import ConfigFolder
from rmqcli.store.folder import check_layout
from rmqcli.store.log_scan import ScannedRecord, scan
from rmqcli.store.message_store import QueueUnit, StoreError
from rmqcli.store.settings import StoreSettings
from rmqcli.store.store_files import StoreFiles

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class ReadOnlyStore(StoreFiles):
    """A `StoreReader` of a folder. Bounds are those of the last call that read them.

    Raises StoreError for a folder that is not a broker's, or of a kind that cannot be
    read.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, StoreSettings(), writable=False)
        check_layout(folder)
        # A broker creates its lock at its start, and its log at the first message.
        is_new = (folder / "lock").exists() and not (folder / "consumequeue").exists()
        if not ((folder / "commitlog").is_dir() or is_new):
            raise StoreError(
                f"{folder} is not a broker's store: it has no commitlog folder",
                hint="name the broker's storePathRootDir",
            )
        self.config = ConfigFolder(folder / "config")
        self._end = 0  # where the last scan ended
        try:
            self._open_files()
            self.refresh()
        except BaseException:
            self._opened.close()
            raise

    def refresh(self) -> None:
        """Read everything again that the broker may have written. Raises StoreError."""
        self._refresh_log()
        self._queues.refresh()
        for queue in self._queues.queues.values():
            queue.min_offset = queue.lower_bound(self._log.start)
        self._add_from_log()
        self._index.refresh()

    def _refresh_log(self) -> None:
        self._log.files.refresh()
        # The end of the last file: the fields of a record show whether it is whole.
        self._log.end = self._log.files.limit

    def queues(self) -> Iterable[tuple[str, int]]:
        """Read the list of the queues' folders again; return topic and id of each."""
        self._queues.load()
        return list(self._queues.queues)

    def queues_with_files(self) -> Iterable[tuple[str, int]]:
        """Return those of `queues` that are not only known from messages in the log.

        The topics of the others may have been deleted: the log keeps their messages.
        """
        return [key for key in self.queues() if self._queues.queues[key].has_files]

    def queue_bounds(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        """Read the list of the queue's files again; return the current bounds."""
        self._refresh_log()
        queue = self._queues.queues.get((topic, queue_id))
        if queue is None or queue.is_deleted:
            self._queues.load()
        else:
            queue.refresh()
        self._add_from_log()
        queue = self._queues.queues.get((topic, queue_id))
        if queue is None:
            return None
        queue.min_offset = queue.lower_bound(self._log.start)
        return queue.min_offset, queue.max_offset

    def log_bounds(self) -> tuple[int, int]:
        """Read the log from the queues' last message on; return the current bounds."""
        self._refresh_log()
        self._add_from_log()
        return self._log.start, self._end

    def _add_from_log(self) -> None:
        """Add entries for the messages in the log after the queues' last entries."""
        files = self._log.files
        start = max(self._end, self._queues.log_end(), files.start)
        for record in scan(files, min(start, files.limit)):
            if isinstance(record, int):
                self._end = record
            else:
                self._add(record)

    def _add(self, record: ScannedRecord) -> None:
        code = record.tags_code(self.settings.delay_levels_ms)
        if code is None:
            return
        for key, queue_offset in record.places():
            self._add_entry(record, key, queue_offset, code)

    def _add_entry(
        self, record: ScannedRecord, key: tuple[str, int], queue_offset: int, code: int
    ) -> None:
        count = record.batch_count
        queue = self._queues.make_for(key, queue_offset, is_batch=count > 0)
        if queue is None:
            return
        if queue.max_offset < queue_offset:
            queue.refresh()
        if queue.max_offset == 0:
            queue.start_at(queue_offset)
        if queue.max_offset == queue_offset:
            queue.add(
                QueueUnit(record.commit_log_offset, record.size_bytes, code),
                count=count or 1,
                store_timestamp_ms=record.store_timestamp_ms,
            )

    def query_index(
        self, topic: str, key: str, *, begin_ms: int, end_ms: int, count_max: int
    ) -> list[int]:
        """Read the list of the index files again; return what they say about a key."""
        self._index.refresh()
        return super().query_index(
            topic, key, begin_ms=begin_ms, end_ms=end_ms, count_max=count_max
        )

    def close(self) -> None:
        """Close the files. Idempotent."""
        self._opened.close()
