"""The files of a store: its log, queues and index, and the reads from them.

`DiskStore` and `ReadOnlyStore` differ in what they know of new messages. What they have
found is read in the same way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.store.commit_log import CommitLog
from rmqcli.store.fixed_files import FixedFiles, OpenFiles
from rmqcli.store.index import KeyIndex
from rmqcli.store.queue_table import QueueTable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rmqcli.store.message_store import QueueUnit
    from rmqcli.store.settings import StoreSettings


class StoreFiles:
    """The opened files of a folder, and the part of a `StoreReader` that reads them."""

    def __init__(
        self, folder: Path, settings: StoreSettings, *, writable: bool
    ) -> None:
        """Open nothing yet."""
        self.folder = folder
        self.settings = settings
        self._opened = OpenFiles(writable=writable)

    def _open_files(self) -> None:
        """Open the files; the caller closes `_opened` when this fails."""
        folder, settings, opened = self.folder, self.settings, self._opened
        self._log = CommitLog(
            FixedFiles(folder / "commitlog", settings.commit_log_file_bytes, opened)
        )
        self._queues = QueueTable(
            folder / "consumequeue", settings.consume_queue_file_units, opened
        )
        self._index = KeyIndex(str(folder / "index"), settings.index_slots, opened)

    @property
    def batch_topics(self) -> set[str]:
        return self._queues.batch_topics

    def units(
        self, topic: str, queue_id: int, start: int, count_max: int
    ) -> Sequence[QueueUnit]:
        queue = self._queues.queues.get((topic, queue_id))
        return [] if queue is None else queue.units(start, count_max)

    def read(self, commit_log_offset: int, size_bytes: int) -> bytes | None:
        return self._log.read(commit_log_offset, size_bytes)

    def read_units(self, units: Sequence[QueueUnit]) -> bytes:
        return self._log.read_units(units)

    def message_at(self, commit_log_offset: int) -> bytes | None:
        return self._log.message_at(commit_log_offset)

    def store_time_ms(self, topic: str, queue_id: int, queue_offset: int) -> int | None:
        units = self.units(topic, queue_id, queue_offset, 1)
        return self._log.store_time_ms(units[0].commit_log_offset) if units else None

    def query_index(
        self, topic: str, key: str, *, begin_ms: int, end_ms: int, count_max: int
    ) -> list[int]:
        start = self._log.start
        found = self._index.find(
            topic, key, begin_ms=begin_ms, end_ms=end_ms, count_max=count_max
        )
        return [offset for offset in found if offset >= start]
