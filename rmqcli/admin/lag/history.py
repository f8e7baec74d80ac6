"""Keeps what `behaviour` has seen of groups, from one run of `rmq check` to the next.

A JSON file for each cluster, group and window in `$XDG_STATE_HOME/rmqcli/behaviour`
(else `~/.local/state/...`), readable by its owner only:

    {"version": 1, "namesrv": ["HOST:PORT"], "group": "GROUP", "window_ms": 600000,
     "is_begun": true,
     "queues": [["TOPIC", "BROKER", QUEUE, is_bounded, is_assumed,
                 [[AT_MS, PROGRESS, MAX_OFFSET], ...]], ...]}

A file appears whole or not at all, and two checks of different groups share none. When
two checks of one group run at once, the sample of the first is lost, and no harm is
done. A file that cannot be used is replaced, and the history begins anew, which the
next verdicts show. Files that were not written for a week are removed.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import TYPE_CHECKING, Any, Final

from rmqcli.admin.lag.behaviour import History, Point, Series
from rmqcli.admin.lag.memory import count_of, make_folder, remove_file
from rmqcli.files import read_regular, replace_file, state_folder
from rmqcli.log import get_logger
from rmqcli.units import DAY_MS, counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rmqcli.engine.queue_lag import QueueKey

logger = get_logger(__name__)

_VERSION: Final = 1
_BYTES_MAX: Final = 4 << 20
_FILES_MAX: Final = 20_000
_KEPT_MS: Final = 7 * DAY_MS
#: Longer names end here; the digest tells files apart.
_NAME_MAX: Final = 60


def history_directory(environ: Mapping[str, str]) -> str | None:
    """Return the folder of the histories; None when there is no home directory."""
    return state_folder(environ, "behaviour")


class HistoryFolder:
    """The histories of one cluster's groups over one window. Not thread-safe."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        namesrv: Sequence[str],
        *,
        window_ms: int,
    ) -> None:
        self._directory = os.fspath(directory)
        self._namesrv = sorted(set(namesrv))
        self._window_ms = window_ms

    def path(self, group: str) -> str:
        """Return the path of a group's file."""
        text = json.dumps([self._namesrv, group, self._window_ms])
        digest = hashlib.sha256(text.encode()).hexdigest()[:32]
        kept = (c if c.isascii() and c.isalnum() else "_" for c in group[:_NAME_MAX])
        return os.path.join(self._directory, f"{''.join(kept)}-{digest}.json")

    def load(self, group: str) -> tuple[History, str | None]:
        """Return a group's history, and why it begins anew if its file is unusable."""
        path = self.path(group)
        try:
            value = json.loads(read_regular(path, _BYTES_MAX, is_own=True))
            if value["version"] != _VERSION:
                return History(), f"{path} was written by another version of rmq"
            return _history(value), None
        except FileNotFoundError:
            return History(), None
        except (
            OSError,
            ValueError,
            TypeError,
            KeyError,
            AttributeError,
            RecursionError,
        ) as error:
            logger.debug("%s cannot be used: %r", path, error)
            return History(), f"{path} cannot be used"

    def save(self, group: str, history: History) -> str | None:
        """Write a group's history; return why that is impossible, or None."""
        data = self._encoded(group, history)
        if data is None:
            return (
                f"the history of {counted(len(history.queues), 'queue')} is"
                " too large to keep"
            )
        path = self.path(group)
        try:
            make_folder(self._directory)
            replace_file(path, data, mode=0o600, is_synced=False)
        except OSError as error:
            return f"the history cannot be kept: {path}: {error.strerror or error}"
        return None

    def clean(self, *, now_ms: int) -> None:
        """Remove files that were not written for a week, and the oldest of too many."""
        try:
            with os.scandir(self._directory) as entries:
                files = sorted(
                    (entry.stat(follow_symlinks=False).st_mtime_ns, entry.path)
                    for entry in entries
                    if entry.name.endswith(".json")
                )
            spare = max(0, len(files) - _FILES_MAX)
            for index, (written_ns, path) in enumerate(files):
                if index < spare or now_ms - written_ns // 1_000_000 > _KEPT_MS:
                    remove_file(path)
        except OSError as error:
            logger.debug("%s cannot be cleaned: %s", self._directory, error)

    def _encoded(self, group: str, history: History) -> bytes | None:
        queues = {key: series.points for key, series in history.queues.items()}
        while True:
            rows = [
                [*key, each.is_bounded, each.is_assumed, queues[key]]
                for key, each in history.queues.items()
            ]
            data = json.dumps(
                {
                    "version": _VERSION,
                    "namesrv": self._namesrv,
                    "group": group,
                    "window_ms": self._window_ms,
                    "is_begun": history.is_begun,
                    "queues": rows,
                },
                separators=(",", ":"),
            ).encode()
            if len(data) <= _BYTES_MAX:
                return data
            if all(len(points) <= 4 for points in queues.values()):
                return None
            # Every second point. The oldest and the newest are the ones that count.
            queues = {
                key: points if len(points) <= 4 else (*points[:-1:2], points[-1])
                for key, points in queues.items()
            }


def _history(value: Any) -> History:  # noqa: ANN401  # JSON
    queues: dict[QueueKey, Series] = {}
    for topic, broker, queue_id, is_bounded, is_assumed, points in value["queues"]:
        key = _text(topic), _text(broker), count_of(queue_id)
        queues[key] = Series(
            tuple(_points(points)), _flag(is_bounded), _flag(is_assumed)
        )
    return History(queues, is_begun=_flag(value["is_begun"]))


def _points(value: Any) -> Iterator[Point]:  # noqa: ANN401  # JSON
    if not value:
        raise ValueError("a queue without a point")
    last = 0
    for at_ms, progress, max_offset in value:
        if max_offset < last:
            raise ValueError("the end of a queue moved back")
        last = count_of(max_offset)
        yield Point(count_of(at_ms), _signed(progress), last)


def _text(value: Any) -> str:  # noqa: ANN401  # JSON
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a string")
    return value


def _flag(value: Any) -> bool:  # noqa: ANN401  # JSON
    if not isinstance(value, bool):
        raise TypeError(f"{value!r} is not a boolean")
    return value


def _signed(value: Any) -> int:  # noqa: ANN401  # JSON
    if type(value) is not int or abs(value) >= 1 << 63:
        raise ValueError(f"{value!r} is not an offset")
    return int(value)
