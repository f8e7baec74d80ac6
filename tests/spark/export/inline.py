"""Exports without Spark: the parts are written in this process, one after the other."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from rmqcli.spark.export.disk import Disk, walk_files
from rmqcli.spark.export.export import Export, ExportOptions
from rmqcli.spark.export.part import PartFailure, write_task
from rmqcli.spark.export.plan import ExportRequest

if TYPE_CHECKING:
    from rmqcli.spark.export.export import WorkersStart
    from rmqcli.spark.export.manifest import PartResult
    from tests.spark.export.sources import MadeCluster


class FixedClock:
    """A clock with a constant time, so ids of runs differ only in their random part."""

    def monotonic_ms(self) -> int:
        return 0

    def epoch_ms(self) -> int:
        return 1_760_000_000_000

    def wait_ms(self, event, timeout_ms) -> bool:
        return bool(event.is_set())


@dataclass
class InlineRunner:
    """Writes parts in order; raises KeyboardInterrupt after `stop_after` parts."""

    stop_after: int | None = None
    runs: list[list[int]] = field(default_factory=list)
    starts: list[WorkersStart] = field(default_factory=list)

    @contextlib.contextmanager
    def __call__(self, start, /):
        self.starts.append(start)
        yield self.write

    def write(self, parts, context, /, *, watch):
        self.runs.append([part.index for part in parts])
        outcomes: list[PartResult | PartFailure] = []
        for part in parts:
            if self.stop_after is not None and len(outcomes) == self.stop_after:
                raise KeyboardInterrupt
            outcomes += write_task([part], context)
        return outcomes


class SilentReport:
    def __init__(self) -> None:
        self.infos: list[str] = []
        self.is_planned = False

    def info(self, text):
        self.infos.append(text)

    def planned(self, topic, queues):
        self.is_planned = True

    def progress(self, progress):
        pass


def export_of(
    path, cluster: MadeCluster, *, runner=None, report=None, disk=None, request=None,
    **options,
) -> Export:  # fmt: skip
    settings = {
        "topic": "orders",
        "from_position": "earliest",
        "to_position": "latest",
        "rows_per_file": 100,
        **(request or {}),
    }
    return Export(
        request=ExportRequest(**settings),
        options=ExportOptions(path=str(path), **options),
        cluster=cluster,
        report=report or SilentReport(),
        clock=FixedClock(),
        disk=disk or Disk(),
        runner=runner or InlineRunner(),
    )


def offsets_in(path) -> list[tuple[int, int]]:
    """Return (queue id, queue offset) of every row in a directory, sorted."""
    found: list[tuple[int, int]] = []
    for name in walk_files(str(path)):
        if not name.endswith(".parquet"):
            continue
        with open(os.path.join(path, name), "rb") as file:
            table = pq.ParquetFile(file, pre_buffer=False).read(
                ["queue_id", "queue_offset"], use_threads=False
            )
        found += zip(
            table["queue_id"].to_pylist(),
            table["queue_offset"].to_pylist(),
            strict=True,
        )
    return sorted(found)


def expected(queues: dict[int, tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the result of `offsets_in` for complete ranges."""
    return [
        (q, o) for q, (low, high) in sorted(queues.items()) for o in range(low, high)
    ]
