"""Exports of embedded clusters for tests of imports, written without Spark."""

from __future__ import annotations

from typing import Any

import pyarrow.parquet as pq

from rmqcli.config import ClientConfig
from rmqcli.position import Earliest, Latest
from rmqcli.spark.export.cluster import BrokerCluster
from rmqcli.spark.export.disk import Disk, walk_files
from rmqcli.spark.export.export import Export, ExportOptions
from rmqcli.spark.export.plan import ExportRequest
from rmqcli.testing import Seed
from tests.spark.export.inline import FixedClock, InlineRunner, SilentReport

#: The properties that brokers and clients add.
ADDED = {"UNIQ_KEY", "CLUSTER", "MSG_REGION", "TRACE_ON", "WAIT", "KEYS", "TAGS"}


def seeds(count, *, first=0):
    """Messages of mixed kinds; property `n` of each message is its number."""
    return [
        Seed(
            body=b"" if n % 50 == 49 else f"größer {n} ".encode() * (1 + n % 5),
            tags=None if n % 3 == 0 else "AB"[n % 2],
            keys=[f"k{n}", "all"] if n % 4 else (),
            properties={"n": str(n), "colour": "größer"} if n % 5 else {"n": str(n)},
            flag=n % 7,
        )
        for n in range(first, first + count)
    ]


class _LaterClock(FixedClock):
    """A clock that is an hour ahead, because the id of a run contains its time."""

    def epoch_ms(self) -> int:
        return super().epoch_ms() + 3_600_000


def export(
    namesrv, topic, path, *, runner=None, since_last=False, start=None, **request
):
    """Export a topic as `rmq export TOPIC --to-parquet PATH` does."""
    request = {"from_position": "earliest", "to_position": "latest", **request}
    Export(
        request=ExportRequest(topic=topic, **request),
        options=ExportOptions(
            path=str(path), since_last=since_last, allow_gaps=start is not None
        ),
        cluster=BrokerCluster(
            config=ClientConfig(namesrv=(namesrv,)),
            start=start or Earliest(),
            end=Latest(),
            note=lambda _: None,
        ),
        report=SilentReport(),
        clock=_LaterClock() if since_last else FixedClock(),
        disk=Disk(),
        runner=runner or InlineRunner(),
    ).run()
    return path


def essence(path, *, by_broker=False):
    """Return (body, keys, tags, flag, user properties) of each message, by queue.

    The messages of a queue are in order.
    """
    queues: dict[Any, list[dict[str, Any]]] = {}
    for name in walk_files(str(path)):
        if name.endswith(".parquet"):
            for row in pq.ParquetFile(f"{path}/{name}").read().to_pylist():
                key = row["queue_id"]
                if by_broker:
                    key = row["broker_name"], key
                queues.setdefault(key, []).append(row)
    return {
        key: [
            (
                row["body"],
                row["keys"],
                row["tags"],
                row["flag"],
                {k: v for k, v in row["properties"] if k not in ADDED},
            )
            for row in sorted(rows, key=lambda row: row["queue_offset"])
        ]
        for key, rows in sorted(queues.items())
    }
