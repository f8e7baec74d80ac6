"""The paths and names of everything that an export writes. Pure.

    DIR/<topic>.<broker>.q3.<from>-<to>.parquet       or below dt=…/, broker=…/queue=…/
    DIR/_SUCCESS                                      marks all runs as complete
    DIR/_rmq/manifest.json  lock
    DIR/_rmq/locks/<token>.json                       leases, in a remote storage,
                                                      instead of `lock`
    DIR/_rmq/manifest/<number>.json                   segments: later runs
    DIR/_rmq/compact/                                 a compaction that has not ended
    DIR/_rmq/runs/<run_id>/plan.json  part-<n>.json  undecodable.jsonl  spark.log
    DIR/_rmq/tmp/<run_id>.<attempt>/                  temporary files

Readers of Parquet directories skip names that begin with `_`. Path keys (`dt`, `hour`,
`broker`, `queue`) are never names of columns, because readers would disagree about
their values. A file's name has both ends of its range, so an attempt that writes the
same range again replaces the file instead of adding a second one. (With the start
alone, a range that is cut elsewhere would leave overlapping files.)
"""

from __future__ import annotations

import datetime
import os
import re
import zlib
from typing import TYPE_CHECKING, Final

from rmqcli.dataclass import dataclass
from rmqcli.errors import ConfigError

if TYPE_CHECKING:
    from rmqcli.spark.export.plan import PartSpec

META: Final = "_rmq"
TEMP: Final = "tmp"
COMPACTION: Final = "compact"
SEGMENTS: Final = "manifest"
SUCCESS: Final = "_SUCCESS"
SUFFIX: Final = ".parquet"

_NAME_BYTES_MAX: Final = 100
_UNSAFE = re.compile(rb"[^A-Za-z0-9_-]")
_SEGMENT = re.compile(r"([0-9]{8,})\.json")
_RUN_ID = re.compile(r"[0-9]{8}T[0-9]{6}Z-[0-9a-f]{8}")


def encode_name(name: str) -> str:
    """Encode the name of a topic or broker for a file name: ASCII, no dot, no slash.

    Characters outside `A-Z a-z 0-9 _ -` become `%XX` for each of their UTF-8 bytes,
    which is reversible. A result of more than 100 bytes is cut and ends with a CRC.
    """
    raw = name.encode("utf-8", "surrogatepass")
    text = _UNSAFE.sub(lambda match: b"%%%02X" % match[0][0], raw).decode("ascii")
    if len(text) <= _NAME_BYTES_MAX:
        return text
    return f"{text[: _NAME_BYTES_MAX - 9]}~{zlib.crc32(raw):08x}"


def file_name(topic: str, part: PartSpec, *, start: int, end: int) -> str:
    """Return the name of the file of offsets `start <= o < end` of a part's queue."""
    return (
        f"{encode_name(topic)}.{encode_name(part.broker_name)}.q{part.queue_id}"
        f".{start:020d}-{end:020d}{SUFFIX}"
    )


def queue_folder(part: PartSpec) -> str:
    """Return the folder of a queue, when partitioned by queue."""
    return f"broker={encode_name(part.broker_name)}/queue={part.queue_id}"


def time_folder(epoch_hours: int, *, with_hour: bool) -> str:
    """Return the folder for a store time in hours since 1970 (UTC).

    The broker keeps store times, so a second export puts a message in the same folder.
    """
    day, hour = divmod(epoch_hours, 24)
    try:
        date = datetime.date(1970, 1, 1) + datetime.timedelta(days=day)
    except OverflowError:
        # A corrupt record may have any 64-bit number as its time, but needs a folder.
        return "dt=unknown"
    text = f"dt={date.isoformat()}"
    return f"{text}/hour={hour:02d}" if with_hour else text


def new_run_id(*, epoch_ms: int, entropy: bytes) -> str:
    """Return the id of a run: the time when it was planned, and 4 random bytes."""
    at = datetime.datetime.fromtimestamp(epoch_ms / 1000, datetime.UTC)
    return f"{at:%Y%m%dT%H%M%SZ}-{entropy[:4].hex()}"


def is_run_id(text: str) -> bool:
    """Whether a text has the form of the ids that `new_run_id` returns."""
    return _RUN_ID.fullmatch(text) is not None


def segment_number(name: str) -> int | None:
    """Return the number in the name of a segment's file; None for other names."""
    match = _SEGMENT.fullmatch(name)
    return int(match[1]) if match else None


class _Below:
    """A path below the root of an ExportLayout."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def __get__(self, layout: ExportLayout, _: object = None) -> str:
        return os.path.join(layout.root, *self._names)


@dataclass(frozen=True, slots=True)
class ExportLayout:
    """The paths of one export directory.

    `root` is an absolute path without symbolic links, or the URL of a remote storage.
    """

    root: str

    meta = _Below(META)
    manifest = _Below(META, "manifest.json")
    #: the folder of a compaction that has not ended
    compaction = _Below(META, COMPACTION)
    journal = _Below(META, COMPACTION, "journal.json")
    merged_manifest = _Below(META, COMPACTION, "manifest.json")
    #: the folder of the manifest's segments, each with the runs of one commit
    segments = _Below(META, SEGMENTS)
    lock = _Below(META, "lock")
    #: the folder of the leases of exports into a remote storage
    locks = _Below(META, "locks")
    success = _Below(SUCCESS)
    runs = _Below(META, "runs")
    #: the folder of temporary files, with a folder for each attempt at a run
    temp = _Below(META, TEMP)

    def merged_file(self, number: int) -> str:
        return os.path.join(self.compaction, f"{number:08d}{SUFFIX}")

    def segment(self, number: int) -> str:
        return os.path.join(self.segments, f"{number:08d}.json")

    def run(self, run_id: str) -> str:
        """The folder of a run. Raises ConfigError for an invalid run id."""
        if not is_run_id(run_id):
            raise ConfigError(f"{run_id!r} is not the id of an export run")
        return os.path.join(self.runs, run_id)

    def plan(self, run_id: str) -> str:
        return os.path.join(self.run(run_id), "plan.json")

    def log(self, run_id: str) -> str:
        return os.path.join(self.run(run_id), "spark.log")

    def part_record(self, run_id: str, index: int) -> str:
        return os.path.join(self.run(run_id), f"part-{index:06d}.json")

    def part_undecodable(self, run_id: str, index: int) -> str:
        return os.path.join(self.run(run_id), f"undecodable-{index:06d}.jsonl")

    def undecodable(self, run_id: str) -> str:
        return os.path.join(self.run(run_id), "undecodable.jsonl")
