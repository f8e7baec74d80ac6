"""The cluster that an export reads: positions for the driver, chunks for the workers.

`BrokerCluster` resolves positions to offsets in the driver. `BrokerSource`, which Spark
pickles to the workers with the client's configuration, pulls the records there.
"""

from __future__ import annotations

import contextlib
from dataclasses import astuple, replace
from typing import TYPE_CHECKING, Final

from rmqcli.dataclass import dataclass
from rmqcli.errors import RmqError
from rmqcli.model import MessageQueue, OffsetRange
from rmqcli.position import Earliest, Latest
from rmqcli.spark.export.export import SINCE_LAST
from rmqcli.spark.extent import NotedMessage, extent_of
from rmqcli.units import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from rmqcli.admin.read.body import Chunk
    from rmqcli.admin.witness import Witness
    from rmqcli.api.client import Client
    from rmqcli.config import ClientConfig
    from rmqcli.position import Position
    from rmqcli.spark.export.part import ChunkReader
    from rmqcli.spark.export.plan import ExportPlan, ExportRequest
    from rmqcli.spark.extent import QueueExtent, QueueKey, QueueRange

#: A part fails after this long without an answer. It is tried once more after all other
#: parts, so a broker has longer than this to come back.
_RETRY_FOR_MS: Final = 10_000

_SAMPLED_QUEUES: Final = 16
_SAMPLED_MESSAGES: Final = 16
_QUEUES_NAMED: Final = 5


def _client(config: ClientConfig) -> Client:
    from rmqcli.api.client import Client  # workers and driver load it late

    return Client(config)


@dataclass(frozen=True, slots=True)
class BrokerSource:
    """Chunks from brokers. Pickled to workers together with the credentials."""

    config: ClientConfig
    #: whether the keys may be sent to the workers over unencrypted connections
    allow_unencrypted: bool = False

    @property
    def is_secret(self) -> bool:
        """Whether it holds keys, which may only be sent over encrypted connections."""
        return self.config.credentials is not None and not self.allow_unencrypted

    @contextlib.contextmanager
    def connect(self) -> Iterator[ChunkReader]:
        """Open a client for the duration of the block."""
        with _client(self.config) as client:
            yield _BrokerReader(client)


class _BrokerReader:
    def __init__(self, client: Client) -> None:
        self._client = client

    def read(
        self,
        wanted: OffsetRange,
        *,
        on_trouble: Callable[[RmqError], None] | None = None,
    ) -> Iterator[Chunk]:
        from rmqcli.admin.read.range import RangeReader, ReadOptions

        def tell(_: MessageQueue, error: RmqError) -> None:
            if on_trouble is not None:
                on_trouble(error)

        options = ReadOptions(retry_for_ms=_RETRY_FOR_MS, on_trouble=tell)
        yield from RangeReader(self._client, [wanted], options)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerCluster:
    """A cluster behind its name servers. `note` is called with notes about queues.

    Unless `allow_gaps`, a topic of which a broker has left the route is not exported as
    if it were whole; runs that continue others know their queues themselves.
    """

    config: ClientConfig
    note: Callable[[str], None]
    start: Position = Earliest()
    end: Position = Latest()
    allow_unencrypted: bool = False
    allow_gaps: bool = False

    @property
    def source(self) -> BrokerSource:
        return BrokerSource(self.config, self.allow_unencrypted)

    def name_of(self, topic: str) -> str:
        """Return the names of the clusters that a topic is in, joined by commas.

        Raises NotFoundError for an unknown topic.
        """
        with _client(self.config) as client:
            brokers = client.route(topic).brokers
        return ",".join(sorted({broker.cluster for broker in brokers}))

    def resolve(self, request: ExportRequest) -> list[QueueExtent]:
        """Resolve both ends of the range in each queue, now.

        The queues are taken from the request, which may be that of an earlier run.
        Raises NotFoundError for an unknown topic or group, and for a queue that the
        topic does not have. When positions cannot be resolved, raises the
        error of the first such queue. Raises PartialError when groups had queues of the
        topic on a broker that has left the route.
        """
        from rmqcli.admin.lag.memory import check_complete, warnings_of_departed
        from rmqcli.admin.positions import check_groups, resolve_ranges
        from rmqcli.queue_selector import parse_queue_selector, select_queues

        since_last = request.from_position == SINCE_LAST
        start = Earliest() if since_last else self.start
        selectors = [parse_queue_selector(text) for text in request.queues]
        with _client(self.config) as client:
            queues = client.route(request.topic).read_queues()
            if not (selectors or since_last or self.allow_gaps):
                check_complete(client, request.topic)
                for text in warnings_of_departed(
                    client, [request.topic], done="exported"
                ):
                    self.note(text)
            chosen = select_queues(queues, selectors)
            check_groups(client, chosen, [start, self.end])
            ranges = resolve_ranges(client, chosen, start, self.end)
        for queue, found in sorted(ranges.items()):
            for note in dict.fromkeys((found.start.note, found.end.note)):
                if note:
                    self.note(f"{queue}: {note}")
        return [extent_of(found) for _, found in sorted(ranges.items())]

    def last_messages(
        self, topic: str, queues: Iterable[QueueRange]
    ) -> tuple[QueueRange, ...]:
        """Return the ranges with the message before the end of each.

        A note names the queues whose message cannot be read, and later runs cannot
        compare them. Raises the first error if that is so of each queue.
        """
        from rmqcli.admin.witness import read_witnesses

        queues = tuple(queues)
        places = {
            each.queue_in(topic): each.end - 1
            for each in queues
            if each.end > each.min_offset
        }
        with _client(self.config) as client:
            found = read_witnesses(client, places) if places else {}
        failed = {q: each for q, each in found.items() if isinstance(each, RmqError)}
        for queue, error in sorted(failed.items()):
            if len(failed) == len(places):
                raise error
            self.note(
                f"{queue}: its last message was not read ({error.message}), so that"
                " later runs cannot tell whether the queue is still the same"
            )
        return tuple(
            replace(each, last=_noted(found.get(each.queue_in(topic))))
            for each in queues
        )

    def check_same(
        self,
        topic: str,
        ends: Mapping[QueueKey, int],
        noted: Mapping[QueueKey, NotedMessage],
        *,
        done: str,
        anew: str,
        settle_ms: int = 0,
    ) -> None:
        """Raise RefusedError unless the queues are those of an earlier run.

        `ends` are the offsets up to which it read or wrote them, and `noted` messages
        of theirs. Queues that are no longer in the route are not compared. A note names
        those of which nothing shows that they are the same. `settle_ms` is as in
        `compare`.
        """
        from rmqcli.admin.positions import resolve_ranges
        from rmqcli.admin.witness import Noted, Witness, compare

        with _client(self.config) as client:
            queues = {
                (queue.broker_name, queue.queue_id): queue
                for queue in client.route(topic).read_queues()
            }
            keys = [key for key, end in ends.items() if end and key in queues]
            if not keys:
                return
            ranges = resolve_ranges(
                client, [queues[key] for key in keys], Earliest(), Latest()
            )
            known = {
                queues[key]: Noted(ends[key], Witness(*astuple(noted[key])))
                if key in noted
                else Noted(ends[key], None)
                for key in keys
            }
            bounds = {
                queue: (found.offsets.start, found.offsets.end)
                for queue, found in ranges.items()
            }
            compared = compare(
                client,
                known,
                bounds,
                done=done,
                anew=anew,
                refuse_unproven=False,
                settle_ms=settle_ms,
            )
        for error in compared.errors.values():
            raise error
        if compared.unproven:
            self.note(
                "nothing shows that these queues are still the same, because no message"
                " of an earlier run is known and still stored:"
                f" {listed(sorted(compared.unproven), _QUEUES_NAMED)}"
            )

    def message_bytes(self, plan: ExportPlan) -> int | None:
        """Return the average size of a stored message, from a sample of the ranges.

        None when no message could be read. Errors are ignored, because this is only an
        estimate.
        """
        from rmqcli.admin.read.range import RangeReader, ReadOptions

        samples = []
        for queue in plan.queues[:_SAMPLED_QUEUES]:
            start = (queue.start + queue.end) // 2
            end = min(queue.end, start + _SAMPLED_MESSAGES)
            if start < end:
                place = queue.queue_in(plan.request.topic)
                samples.append(OffsetRange(place, start, end))
        if not samples:
            return None
        size = messages = 0
        options = ReadOptions(retry_for_ms=0)
        with contextlib.suppress(RmqError), _client(self.config) as client:
            for chunk in RangeReader(client, samples, options):
                size += len(chunk.body)
                messages += chunk.end - chunk.start
        return size // messages if size and messages else None


def _noted(found: Witness | RmqError | None) -> NotedMessage | None:
    """Return a message to note; None if it was not read."""
    if found is None or isinstance(found, RmqError):
        return None
    return NotedMessage(*found)
