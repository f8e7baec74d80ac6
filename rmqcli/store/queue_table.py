"""All consume queues of a folder: `consumequeue/<topic>/<queue id>/`.

Those of topics with queue.type=BatchCQ are in `batchconsumequeue`. Which topics these
are is in `config/topics.json`. A queue of a topic that is not there is one of them if
its first record is an inner batch.

Source: `ConsumeQueueStore` in apache/rocketmq.
"""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeAlias

from rmqcli.files import file_name_fault
from rmqcli.log import get_logger
from rmqcli.store.batch_queue import BATCH_UNIT_BYTES, BatchConsumeQueue
from rmqcli.store.config_files import ConfigFolder
from rmqcli.store.consume_queue import ConsumeQueue
from rmqcli.store.fixed_files import FixedFiles, OpenFiles
from rmqcli.store.message_store import UNIT_BYTES, QueueUnit, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


logger = get_logger(__name__)

Queue: TypeAlias = ConsumeQueue | BatchConsumeQueue

_BATCH_FOLDER: Final = "batchconsumequeue"

#: The largest queue id and queue offset for which file names exist.
QUEUE_ID_MAX: Final = (1 << 31) - 1
QUEUE_OFFSET_MAX: Final = ((1 << 63) - 1) // UNIT_BYTES
_QUEUE_ID_DIGITS_MAX: Final = 10
#: A damaged folder could have any number of faults to report.
_REPORTS_MAX: Final = 1_000


class QueueTable:
    """The queues by (topic, queue id), each with its files.

    `file_units` is for the files of new queues; existing ones keep theirs. A queue
    that cannot be read is reported and left out, and one that cannot be written keeps
    its entries in memory; neither affects the others.
    """

    def __init__(self, directory: Path, file_units: int, opened: OpenFiles) -> None:
        self._directory = directory
        self._batch_directory = directory.parent / _BATCH_FOLDER
        self._file_units = file_units
        self._file_bytes = file_units * UNIT_BYTES
        self._opened = opened
        #: (topic, queue id) -> queue.
        self.queues: dict[tuple[str, int], Queue] = {}
        self.batch_topics = _batch_topics(ConfigFolder(directory.parent / "config"))
        self._dirty: set[Queue] = set()
        self._unsynced: set[Queue] = set()
        self._reported: set[str] = set()
        self.load()

    def load(self) -> None:
        """Open the queues in the folder that are not open yet; close deleted ones."""
        for key in [key for key, each in self.queues.items() if each.is_deleted]:
            self._close(key)
        self._load(self._directory)
        self._load(self._batch_directory)
        lengths = [
            queue.file_bytes
            for queue in self.queues.values()
            if queue.has_files and isinstance(queue, ConsumeQueue)
        ]
        if lengths:
            self._file_bytes = max(set(lengths), key=lengths.count)

    def _load(self, directory: Path) -> None:
        for topic in self._names(str(directory)):
            fault = file_name_fault(topic)
            if fault is None and directory == self._batch_directory:
                self.batch_topics.add(topic)
            if fault is not None:
                self._report(f"skipping folder of topic {topic!r}: its name {fault}")
                continue
            for queue_id in self._queue_ids(directory / topic):
                if (topic, queue_id) not in self.queues:
                    try:
                        self._open((topic, queue_id), directory)
                    except StoreError as error:
                        self._report(f"skipping queue: {error.message}")

    def refresh(self) -> None:
        """Read the files of all queues again, which another process writes.

        A queue that can no longer be read is reported and remains unchanged.
        """
        self.load()
        for queue in self.queues.values():
            try:
                queue.refresh()
            except StoreError as error:
                self._report(
                    "could not refresh queue, keeping its previous state: "
                    f"{error.message}"
                )

    def _open(self, key: tuple[str, int], parent: Path) -> Queue:
        topic, queue_id = key
        directory = parent / topic / str(queue_id)
        is_batch = parent == self._batch_directory
        unit_bytes = BATCH_UNIT_BYTES if is_batch else UNIT_BYTES
        file_bytes = self._file_units * unit_bytes if is_batch else self._file_bytes
        files = FixedFiles(directory, file_bytes, self._opened)
        if files.file_bytes % unit_bytes:
            raise StoreError(
                f"{directory} has files of {files.file_bytes} bytes, which is not a "
                f"multiple of {unit_bytes}: these are not consume queue files"
            )
        queue = BatchConsumeQueue(files) if is_batch else ConsumeQueue(files)
        self.queues[key] = queue
        return queue

    def add(
        self, queue: Queue, unit: QueueUnit, *, count: int = 1, store_timestamp_ms: int
    ) -> None:
        """Append the entries of a record with `count` messages to a queue."""
        queue.add(unit, count=count, store_timestamp_ms=store_timestamp_ms)
        self._dirty.add(queue)

    def make(self, key: tuple[str, int], *, is_batch: bool = False) -> Queue:
        """Return the queue, after creating it if it does not exist.

        One that is created has entries for batches if `is_batch` is true, or if its
        topic is one of `batch_topics`.

        Raises ValueError for a topic or a queue id that cannot be a folder's name, and
        StoreError for a queue that cannot be read.
        """
        topic, queue_id = key
        fault = file_name_fault(topic)
        if fault is not None:
            raise ValueError(f"topic {topic!r} cannot be stored: its name {fault}")
        if not 0 <= queue_id <= QUEUE_ID_MAX:
            raise ValueError(f"queue {queue_id} of topic {topic!r} cannot be stored")
        found = self.queues.get(key)
        if found is not None:
            return found
        if is_batch:
            self.batch_topics.add(topic)
        is_batch = topic in self.batch_topics
        return self._open(key, self._batch_directory if is_batch else self._directory)

    def make_for(
        self, key: tuple[str, int], queue_offset: int, *, is_batch: bool
    ) -> Queue | None:
        """Return the queue of a record that was found in the log.

        Returns None, with a warning, if no queue can have such an entry, or the queue
        cannot be read.
        """
        if not 0 <= queue_offset <= QUEUE_OFFSET_MAX:
            self._report(f"entry {queue_offset} of queue {key} cannot be stored")
            return None
        try:
            return self.make(key, is_batch=is_batch)
        except ValueError as error:
            self._report(f"messages in the log cannot be assigned to a queue: {error}")
        except StoreError as error:
            self._report(f"skipping queue: {error.message}")
        return None

    @property
    def has_pending(self) -> bool:
        """Whether entries are only in memory."""
        return bool(self._dirty)

    def write_out(self) -> StoreError | None:
        """Write the entries that are only in memory; return the first error or None.

        A queue that cannot be written keeps its entries, and the others are written.
        """

        def write_out(queue: Queue) -> None:
            queue.write_out()
            self._unsynced.add(queue)

        return _each(self._dirty, write_out)

    def sync(self) -> None:
        """Make the entries that were written out survive a power cut.

        Tries all queues, and then raises the first StoreError.
        """
        error = _each(self._unsynced, lambda queue: queue.sync())
        if error is not None:
            raise error

    def delete_topic(self, topic: str) -> None:
        """Remove a topic's queues and delete their files. Raises StoreError.

        Does nothing for a name that cannot be a folder's.
        """
        if file_name_fault(topic) is not None:
            return
        for key in [key for key in self.queues if key[0] == topic]:
            self._close(key)
        for parent in (self._directory, self._batch_directory):
            self._delete(parent / topic)

    def delete_queue(self, topic: str, queue_id: int) -> None:
        """Remove a queue and delete its files. Raises StoreError."""
        if file_name_fault(topic) is not None or (topic, queue_id) not in self.queues:
            return
        self._close((topic, queue_id))
        for parent in (self._directory, self._batch_directory):
            try:
                shutil.rmtree(parent / topic / str(queue_id))
            except FileNotFoundError:  # never written out, or of the other kind
                continue
            except OSError as error:
                raise StoreError(f"a queue cannot be deleted: {error}") from error

    def _close(self, key: tuple[str, int]) -> None:
        queue = self.queues.pop(key)
        queue.close()
        self._dirty.discard(queue)
        self._unsynced.discard(queue)

    def _delete(self, directory: Path) -> None:
        try:
            for queue_id in self._queue_ids(directory):
                shutil.rmtree(directory / str(queue_id), ignore_errors=False)
            with suppress(FileNotFoundError):  # never written out
                directory.rmdir()
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:  # files that are not the queue's stay
                raise StoreError(f"{directory} cannot be deleted: {error}") from error

    def move_mins(self, log_start: int) -> None:
        """Move all lower bounds to the start of the log, and delete files below."""
        for queue in self.queues.values():
            queue.min_offset = max(queue.min_offset, queue.lower_bound(log_start))
            try:
                queue.delete_before_min()
            except StoreError as error:
                self._report(f"could not delete old files: {error.message}")

    def cut(self, log_end: int) -> None:
        """Drop the entries of all messages from commit log offset `log_end` on."""
        for queue in self.queues.values():
            queue.cut(queue.lower_bound(log_end))

    def log_end(self) -> int:
        """Return where in the log the last message with an entry ends, or 0."""
        ends = [
            entry.commit_log_offset + entry.size_bytes
            for queue in self.queues.values()
            if (entry := queue.last()) is not None
        ]
        return max(ends, default=0)

    def _queue_ids(self, directory: Path) -> list[int]:
        """Return the ids of a topic's queues that have a folder.

        A name with leading zeros is not that of a queue.
        """
        return [
            int(name)
            for name in self._names(str(directory))
            if name.isascii()
            and name.isdecimal()
            and len(name) <= _QUEUE_ID_DIGITS_MAX
            and str(int(name)) == name
            and int(name) <= QUEUE_ID_MAX
        ]

    def _names(self, directory: str) -> list[str]:
        """Return the names of the folders in a folder, without links.

        The list is empty if the folder does not exist and, with a warning, if it cannot
        be read.
        """
        try:
            with os.scandir(directory) as entries:
                return [
                    entry.name
                    for entry in entries
                    if entry.is_dir(follow_symlinks=False)
                ]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            self._report(f"skipping {directory}: {error.strerror}")
            return []

    def _report(self, text: str) -> None:
        """Log `text` as a warning, but only once."""
        if text not in self._reported and len(self._reported) < _REPORTS_MAX:
            self._reported.add(text)
            logger.warning("%s", text)


def _each(queues: set[Queue], do: Callable[[Queue], None]) -> StoreError | None:
    """Remove the queues for which `do` succeeds; return the first error or None."""
    first = None
    for queue in list(queues):
        try:
            do(queue)
        except StoreError as error:
            first = first or error
        else:
            queues.discard(queue)
    return first


def _batch_topics(config: ConfigFolder) -> set[str]:
    """Return the topics with queue.type=BatchCQ; none if topics.json is not readable.

    The broker that needs the file reports why it cannot be read.
    """
    with suppress(StoreError):
        data = config.read("topics.json")
        table = data.get("topicConfigTable") if isinstance(data, dict) else None
        if isinstance(table, dict):
            return {topic for topic, each in table.items() if _is_batch(each)}
    return set()


def _is_batch(config: object) -> bool:
    attributes = config.get("attributes") if isinstance(config, dict) else None
    return isinstance(attributes, dict) and attributes.get("queue.type") == "BatchCQ"
