"""The index of keys: which messages may have `topic#key`, over all index files.

What was appended waits here until somebody asks or it is written out: hashing many keys
together costs a fifth. Never says for sure: the caller compares topic and key.

Source: `IndexService` in apache/rocketmq.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from rmqcli.one_line_log import one_line
from rmqcli.store import index_file
from rmqcli.store.index_file import GrowingIndexFile, IndexFile
from rmqcli.store.key_hash import index_hash, index_hashes
from rmqcli.store.message_store import StoreError

if TYPE_CHECKING:
    from rmqcli.store.fixed_files import OpenFiles

logger = one_line(logging.getLogger(__name__))

_NAME_DIGITS: Final = 17
#: Keys of one message; a peer chooses how many it names.
_KEYS_MAX: Final = 1_000
_PENDING_MAX: Final = 8_192
#: More of them are only there while files cannot be written.
_WAITING_MAX: Final = 8 * _PENDING_MAX
_TIME_MS_MAX: Final = 253_000_000_000_000  # the year 9987


class KeyIndex:
    """`index/<local time>`: the files, oldest first, the last of which grows.

    `slots` is for new files. With a read-only `opened` nothing may be added.
    """

    def __init__(self, directory: str, slots: int, opened: OpenFiles) -> None:
        self._directory = directory
        self._slots = slots
        self._opened = opened
        self._files: list[IndexFile] = []
        self._settle_at = _PENDING_MAX
        self._reported: set[str] = set()
        #: Topic, key, commit log offset and time of what is not in a file's memory yet.
        self._pending: list[tuple[str, str, int, int]] = []
        self.refresh()

    def refresh(self) -> None:
        """Look again which files there are and what their headers say."""
        known = {file.path: file for file in self._files}
        files = []
        for path in self._paths():
            try:
                file = known.get(path) or self._open(path)
                if not isinstance(file, GrowingIndexFile):
                    file.read_header()
            except FileNotFoundError:
                continue
            except StoreError as error:
                self._report(path, error.message)
                continue
            except OSError as error:
                self._report(path, f"{path} cannot be read: {error.strerror}")
                continue
            files.append(file)
        if files and self._opened.writable and not files[-1].header.count > 1:
            # Nothing in it, and maybe not all of it there: made anew when needed.
            empty = files.pop()
            self._opened.forget(empty.path)
            os.unlink(empty.path)
        self._files = files

    def _open(self, path: str) -> IndexFile:
        return IndexFile(path, self._opened)

    def _paths(self) -> list[str]:
        try:
            names = os.listdir(self._directory)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            self._report(
                self._directory, f"{self._directory} cannot be read: {error.strerror}"
            )
            return []
        return [
            f"{self._directory}/{name}"
            for name in sorted(names)
            if len(name) == _NAME_DIGITS and name.isdecimal()
        ]

    def _report(self, path: str, text: str) -> None:
        """Log it as a warning, the first time; one that is just made is empty."""
        with suppress(OSError):
            if path not in self._reported and os.lstat(path).st_size:
                self._reported.add(path)
                logger.warning("keys are looked for without it: %s", text)

    @property
    def end_offset(self) -> int:
        """Commit log offset of the newest message in it; -1 without any."""
        if self._pending:
            return self._pending[-1][2]
        return self._files[-1].header.end_offset if self._files else -1

    def add(
        self, topic: str, keys: str, unique_key: str, place: tuple[int, int]
    ) -> None:
        """Add a message's keys; `place` is its commit log offset and store time."""
        pending = self._pending
        offset, time_ms = place
        if unique_key:
            pending.append((topic, unique_key, offset, time_ms))
        if keys:
            for key in keys.split(" ")[:_KEYS_MAX]:
                if key:
                    pending.append((topic, key, offset, time_ms))
        if len(pending) >= self._settle_at:
            # The message is in the log: that its keys cannot be filed is no error now.
            with suppress(StoreError):
                self.settle()
            self._settle_at = len(pending) + _PENDING_MAX

    def need_room(self) -> None:
        """Raise StoreFullError when no more keys may wait for files to be written."""
        if len(self._pending) > _WAITING_MAX:
            self.settle()

    def settle(self) -> None:
        """Put what is pending into the files' memory. Raises StoreFullError."""
        pending = self._pending
        if not pending:
            return
        hashes = index_hashes(
            [each[0] for each in pending], [each[1] for each in pending]
        )
        items = [
            (key_hash, each[2], each[3])
            for key_hash, each in zip(hashes, pending, strict=True)
        ]
        done = 0
        while done < len(items):
            file = self._growing(items[done][2])
            some = items[done : done + file.room]
            file.add(some)
            done += len(some)
            # At once: making the next file may fail, and this one has them.
            del pending[: len(some)]

    def _growing(self, time_ms: int) -> GrowingIndexFile:
        """The file to add to."""
        last = self._files[-1] if self._files else None
        if isinstance(last, GrowingIndexFile):
            if last.room > 0:
                return last
            last.write_out()
            self._files[-1] = self._open(last.path)
        elif last is not None and last.header.count < last.items_max:
            self._files[-1] = growing = GrowingIndexFile(last.path, self._opened)
            return growing
        path = f"{self._directory}/{self._name(time_ms)}"
        made = index_file.create(path, self._slots, self._opened)
        self._files.append(made)
        return made

    def _name(self, time_ms: int) -> str:
        """A name after all others, the local time if that is possible."""
        seconds, ms = divmod(min(max(time_ms, 0), _TIME_MS_MAX), 1000)
        time = datetime.fromtimestamp(seconds, tz=UTC).astimezone()
        name = f"{time:%Y%m%d%H%M%S}{ms:03}"
        paths = self._paths()  # one that cannot be read has a name too
        newest = os.path.basename(paths[-1]) if paths else ""
        return name if name > newest else f"{int(newest) + 1:017}"

    def write_out(self) -> None:
        """Make everything durable. Raises StoreFullError."""
        self.settle()
        if self._files and isinstance(self._files[-1], GrowingIndexFile):
            self._files[-1].write_out()

    def find(
        self, topic: str, key: str, *, begin_ms: int, end_ms: int, count_max: int
    ) -> list[int]:
        """Commit log offsets of messages that may have the key, newest first."""
        if self._pending:
            self.settle()
        key_hash = index_hash(topic, key)
        found: list[int] = []
        for file in reversed(self._files):
            header = file.header
            if header.end_ms + 1000 < begin_ms or header.begin_ms > end_ms:
                continue
            found += file.find(
                key_hash,
                begin_ms=begin_ms,
                end_ms=end_ms,
                count_max=count_max - len(found),
            )
            if len(found) >= count_max:
                break
        return found

    def forget_from(self, offset: int) -> None:
        """After a kill: drop what points at `offset` of the log or behind it."""
        while self._files and self._files[-1].header.begin_offset >= offset:
            self._delete(self._files.pop())
        if self._files:
            path = self._files.pop().path
            try:
                growing = GrowingIndexFile(path, self._opened)
                growing.forget_from(offset)
            except StoreError as error:
                self._report(path, error.message)
                return
            self._files.append(growing)
            if growing.header.count == 1:
                self._delete(self._files.pop())

    def trim(self, log_start: int) -> None:
        """Delete files all of whose messages are gone."""
        while len(self._files) > 1 and self._files[0].header.end_offset < log_start:
            self._delete(self._files.pop(0))

    def _delete(self, file: IndexFile) -> None:
        self._opened.forget(file.path)
        with suppress(FileNotFoundError):
            os.unlink(file.path)
