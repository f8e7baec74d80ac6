"""All consume queues of a folder: `consumequeue/<topic>/<queue id>/`.

Source: `ConsumeQueueStore` in apache/rocketmq.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Final

from rmqcli.store.consume_queue import ConsumeQueue
from rmqcli.store.fixed_files import FixedFiles
from rmqcli.store.message_store import UNIT_BYTES, StoreError

if TYPE_CHECKING:
    from pathlib import Path

    from rmqcli.store.fixed_files import OpenFiles

_QUEUE_ID_DIGITS_MAX: Final = 10


class QueueTable:
    """The queues by (topic, queue id), each with its files.

    `file_bytes` is for the files of new queues; the ones there are keep theirs.
    """

    def __init__(self, directory: Path, file_units: int, opened: OpenFiles) -> None:
        self._directory = directory
        self._file_bytes = file_units * UNIT_BYTES
        self._opened = opened
        #: (topic, queue id) -> queue.
        self.queues: dict[tuple[str, int], ConsumeQueue] = {}
        self._dirty: set[ConsumeQueue] = set()
        self._unsynced: set[ConsumeQueue] = set()
        self.load()

    def load(self) -> None:
        """Open the queues that lie in the folder and are not open yet."""
        for topic in _names(str(self._directory)):
            for name in _names(str(self._directory / topic)):
                if not (name.isdecimal() and len(name) <= _QUEUE_ID_DIGITS_MAX):
                    continue
                key = (topic, int(name))
                if key not in self.queues:
                    self._open(key)
        lengths = [
            queue.file_bytes for queue in self.queues.values() if queue.has_files
        ]
        if lengths:
            self._file_bytes = max(set(lengths), key=lengths.count)

    def _open(self, key: tuple[str, int]) -> ConsumeQueue:
        topic, queue_id = key
        directory = self._directory / topic / str(queue_id)
        files = FixedFiles(directory, self._file_bytes, self._opened)
        if files.file_bytes % UNIT_BYTES:
            raise StoreError(
                f"{directory} has files of {files.file_bytes} bytes, which is no "
                f"multiple of {UNIT_BYTES}: not consume queues"
            )
        queue = self.queues[key] = ConsumeQueue(files)
        return queue

    def add(
        self,
        queue: ConsumeQueue,
        commit_log_offset: int,
        size_bytes: int,
        tags_code: int,
    ) -> None:
        """Append an entry to a queue of the table."""
        queue.add(commit_log_offset, size_bytes, tags_code)
        self._dirty.add(queue)

    def make(self, key: tuple[str, int]) -> ConsumeQueue:
        """The queue, made when there is none. Raises ValueError for an odd topic."""
        topic = key[0]
        if not topic or topic in (".", "..") or "/" in topic or "\0" in topic:
            raise ValueError(f"topic {topic!r} cannot be the name of a folder")
        return self.queues.get(key) or self._open(key)

    def write_out(self) -> None:
        """Write the entries that are only in memory. Raises StoreFullError."""
        while self._dirty:
            queue = next(iter(self._dirty))
            queue.write_out()
            self._dirty.discard(queue)
            self._unsynced.add(queue)

    def sync(self) -> None:
        """Make the entries that were written out survive a power cut."""
        while self._unsynced:
            queue = next(iter(self._unsynced))
            queue.sync()
            self._unsynced.discard(queue)

    def delete_topic(self, topic: str) -> None:
        """Forget a topic's queues and delete their files. Raises StoreError."""
        for key in [key for key in self.queues if key[0] == topic]:
            queue = self.queues.pop(key)
            queue.close()
            self._dirty.discard(queue)
            self._unsynced.discard(queue)
            directory = self._directory / topic
            try:
                shutil.rmtree(directory / str(key[1]), ignore_errors=False)
            except FileNotFoundError:
                continue  # never written out
            except OSError as error:
                raise StoreError(f"{directory} cannot be deleted: {error}") from error
        if (self._directory / topic).is_dir() and not _names(
            f"{self._directory}/{topic}"
        ):
            (self._directory / topic).rmdir()

    def move_mins(self, log_start: int) -> None:
        """Move all lower bounds to what is still in the log, and delete files below."""
        for queue in self.queues.values():
            queue.min_offset = max(queue.min_offset, queue.lower_bound(log_start))
            queue.delete_before_min()

    def cut(self, log_end: int) -> None:
        """Drop every entry of a message at `log_end` of the log or after."""
        for queue in self.queues.values():
            queue.cut(queue.lower_bound(log_end))

    def log_end(self) -> int:
        """Where the message ends that is farthest in the log; 0 without messages."""
        ends = [
            entry.commit_log_offset + entry.size_bytes
            for queue in self.queues.values()
            if (entry := queue.last()) is not None
        ]
        return max(ends, default=0)


def _names(directory: str) -> list[str]:
    """Names of the folders in a folder; none when it is not there."""
    try:
        with os.scandir(directory) as entries:
            return [entry.name for entry in entries if entry.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise StoreError(f"{directory} cannot be read: {error.strerror}") from error
