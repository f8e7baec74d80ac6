"""Where each thing of an export lies, and how it is named.

    DIR/<topic>.<broker>.q3.<from>-<to>.parquet       or below dt=…/, broker=…/queue=…/
    DIR/_SUCCESS                                      the last run is complete
    DIR/_rmq/manifest.json  manifest.previous.json  lock
    DIR/_rmq/runs/<run_id>/plan.json  part-<n>.json  undecodable.jsonl  spark.log
    DIR/_rmq/tmp/<run_id>.<attempt>/                  nothing in here counts

Readers of Parquet directories skip names that begin with `_`. Path keys (`dt`, `hour`,
`broker`, `queue`) are never names of columns: readers would disagree about them.
Both ends are in a file's name, so whoever writes it again replaces it and never adds a
second one beside it (a start alone is not enough: pinterest/secor#600). Pure.
"""

from __future__ import annotations

import datetime
import os
import re
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rmqcli.errors import ConfigError

if TYPE_CHECKING:
    from rmqcli.spark.export.plan import PartSpec

META: Final = "_rmq"
TEMP: Final = "tmp"
SUCCESS: Final = "_SUCCESS"
SUFFIX: Final = ".parquet"

_NAME_BYTES_MAX: Final = 100
_UNSAFE = re.compile(rb"[^A-Za-z0-9_-]")
_RUN_ID = re.compile(r"[0-9]{8}T[0-9]{6}Z-[0-9a-f]{8}")


def encode_name(name: str) -> str:
    """A topic's or broker's name as part of a file name: ASCII, no dot, no slash.

    Everything outside `A-Z a-z 0-9 _ -` becomes `%XX` of its UTF-8 bytes, which can be
    undone; a name that gets longer than 100 is cut and marked with its CRC.
    """
    raw = name.encode("utf-8", "surrogatepass")
    text = _UNSAFE.sub(lambda match: b"%%%02X" % match[0][0], raw).decode("ascii")
    if len(text) <= _NAME_BYTES_MAX:
        return text
    return f"{text[: _NAME_BYTES_MAX - 9]}~{zlib.crc32(raw):08x}"


def file_name(topic: str, part: PartSpec, *, start: int, end: int) -> str:
    """The name of the file that holds offsets `start <= o < end` of a part's queue."""
    return (
        f"{encode_name(topic)}.{encode_name(part.broker_name)}.q{part.queue_id}"
        f".{start:020d}-{end:020d}{SUFFIX}"
    )


def queue_folder(part: PartSpec) -> str:
    """The folder of `--partition-by queue`."""
    return f"broker={encode_name(part.broker_name)}/queue={part.queue_id}"


def time_folder(epoch_hours: int, *, with_hour: bool) -> str:
    """The folder of `--partition-by date` or `hour` for an hour since 1970, in UTC.

    The store time decides: the broker keeps it, so a second export finds the same.
    """
    day, hour = divmod(epoch_hours, 24)
    try:
        date = datetime.date(1970, 1, 1) + datetime.timedelta(days=day)
    except OverflowError:
        # A corrupt record may hold any 64 bits as its time; it still needs a folder.
        return "dt=unknown"
    text = f"dt={date.isoformat()}"
    return f"{text}/hour={hour:02d}" if with_hour else text


def new_run_id(*, epoch_ms: int, entropy: bytes) -> str:
    """A run's name: when it was planned, and 4 random bytes."""
    at = datetime.datetime.fromtimestamp(epoch_ms / 1000, datetime.UTC)
    return f"{at:%Y%m%dT%H%M%SZ}-{entropy[:4].hex()}"


def is_run_id(text: str) -> bool:
    """Whether a folder's name can be one of `new_run_id`."""
    return _RUN_ID.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of one export directory. `root` is absolute and has no links in it."""

    root: str

    @property
    def meta(self) -> str:
        return os.path.join(self.root, META)

    @property
    def manifest(self) -> str:
        return os.path.join(self.meta, "manifest.json")

    @property
    def previous_manifest(self) -> str:
        return os.path.join(self.meta, "manifest.previous.json")

    @property
    def lock(self) -> str:
        return os.path.join(self.meta, "lock")

    @property
    def success(self) -> str:
        return os.path.join(self.root, SUCCESS)

    @property
    def runs(self) -> str:
        return os.path.join(self.meta, "runs")

    def run(self, run_id: str) -> str:
        """The folder of what a run keeps. Raises ConfigError for a name not ours."""
        return os.path.join(self.runs, _checked(run_id))

    def plan(self, run_id: str) -> str:
        return os.path.join(self.run(run_id), "plan.json")

    def part_record(self, run_id: str, index: int) -> str:
        return os.path.join(self.run(run_id), f"part-{index:06d}.json")

    def part_undecodable(self, run_id: str, index: int) -> str:
        return os.path.join(self.run(run_id), f"undecodable-{index:06d}.jsonl")

    def undecodable(self, run_id: str) -> str:
        return os.path.join(self.run(run_id), "undecodable.jsonl")

    @property
    def temp(self) -> str:
        """The folder of everything unfinished; in it one per attempt at a run."""
        return os.path.join(self.meta, TEMP)


def _checked(run_id: str) -> str:
    if not is_run_id(run_id):
        raise ConfigError(f"{run_id!r} is not the name of an export run")
    return run_id
