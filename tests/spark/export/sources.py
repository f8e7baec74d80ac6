"""Chunk sources without a broker: a record is determined by its queue and offset."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rmqcli.admin.read.body import Chunk
from rmqcli.model import MessageQueue, OffsetRange
from rmqcli.spark.export.export import SINCE_LAST
from rmqcli.spark.extent import QueueExtent
from rmqcli.wire.message.encode import MessageFields, encode_message

if TYPE_CHECKING:
    from rmqcli.spark.export.plan import ExportRequest

STORE_START_MS = 1_760_000_000_000  # 2025-10-09T08:53:20Z
MS_PER_MESSAGE = 60_000


def record(queue: MessageQueue, offset: int, *, body_bytes: int = 40) -> bytes:
    """Return the stored message at an offset."""
    body = f"{queue} {offset} ".encode()
    return encode_message(
        MessageFields(
            topic=queue.topic,
            body=body + b"\x00\xff" * ((body_bytes - len(body)) // 2),
            queue_id=queue.queue_id,
            queue_offset=offset,
            commit_log_offset=offset * 300,
            born_timestamp_ms=STORE_START_MS + offset * MS_PER_MESSAGE - 5,
            store_timestamp_ms=STORE_START_MS + offset * MS_PER_MESSAGE,
            born_host="127.0.0.1:55555",
            properties={
                "TAGS": "ABC"[offset % 3],
                "KEYS": f"k{offset}",
                "UNIQ_KEY": f"{queue.queue_id:08X}{offset:024X}",
            },
        )
    )


@dataclass(frozen=True)
class MadeSource:
    """A source of chunks with `step` records. It has only plain values to pickle.

    Offsets in `lost` are reported as missing; records in `broken` have a wrong magic.
    """

    step: int = 500
    lost: frozenset[int] = frozenset()
    broken: frozenset[int] = frozenset()
    body_bytes: int = 40
    fail_at: int | None = None
    #: fail at `fail_at` only while this file does not exist, and create it
    fail_once: str | None = None
    is_secret: bool = False

    def connect(self):
        return contextlib.nullcontext(self)

    def read(self, wanted: OffsetRange, *, on_trouble=None):
        for start in range(wanted.start, wanted.end, self.step):
            end = min(start + self.step, wanted.end)
            if self.fail_at is not None and start <= self.fail_at < end:
                self._fail()
            yield Chunk(
                wanted.queue,
                start,
                end,
                b"".join(self._records(wanted.queue, start, end)),
                tuple((o, o + 1) for o in range(start, end) if o in self.lost),
            )

    def _records(self, queue, start, end):
        for offset in range(start, end):
            if offset not in self.lost:
                data = bytearray(record(queue, offset, body_bytes=self.body_bytes))
                if offset in self.broken:
                    data[4:8] = b"\x01\x02\x03\x04"
                yield bytes(data)

    def _fail(self):
        from rmqcli.errors import DisconnectedError

        if self.fail_once is not None:
            try:
                with open(self.fail_once, "x"):
                    pass
            except FileExistsError:
                return

        raise DisconnectedError(
            "the broker went away",
            address="127.0.0.1:10911",
            hint="a peer that only speaks TLS does this: connect with TLS",
        )


@dataclass
class MadeCluster:
    """The queues of one broker; `queues` maps queue id to min and max offset.

    Positions are `earliest`, `latest` or an offset.
    """

    queues: dict[int, tuple[int, int]]
    source: MadeSource = field(default_factory=MadeSource)
    broker_name: str = "broker-a"
    average_bytes: int | None = None

    def message_bytes(self, plan):
        return self.average_bytes

    def last_messages(self, topic, queues):
        return tuple(queues)

    def check_same(self, topic, ends, noted, *, done, anew):
        """The queues are always the same: `test_wiped.py` has others."""

    def resolve(self, request: ExportRequest):
        extents = []
        for queue_id, (low, high) in sorted(self.queues.items()):
            start = request.from_position
            end = request.to_position
            extents.append(
                QueueExtent(
                    queue=MessageQueue(request.topic, self.broker_name, queue_id),
                    asked_start=(
                        low if start in ("earliest", SINCE_LAST) else int(start)
                    ),
                    asked_end=high if end == "latest" else int(end),
                    min_offset=low,
                    max_offset=high,
                )
            )
        return extents
