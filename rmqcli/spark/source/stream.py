"""The reader of a stream, which decides which offsets each micro-batch covers.

Spark calls it in one long-lived process for each query; only `read` runs in workers.
The offsets are stored only in Spark's checkpoint, so a restarted query continues where
it was, and a repeated batch reads the same ranges.

From 4.2 on, Spark tells a source where a batch starts, lets it limit the batch, and
tells it about Trigger.AvailableNow. The classes in PySpark show whether it does so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from rmqcli.admin.witness import read_witnesses
from rmqcli.api.calls.offset import PENDING_RESET_REMARK, update_consumer_offset
from rmqcli.clock import Deadline
from rmqcli.errors import (
    ConfigError,
    NotFoundError,
    PartialError,
    RmqError,
    UnsupportedError,
    UsageError,
)
from rmqcli.model import OffsetRange
from rmqcli.position import AtGroup, Earliest, Latest
from rmqcli.spark.shown_errors import warn, with_hints
from rmqcli.spark.source.options import default_start
from rmqcli.spark.source.pinned import (
    check_queues,
    departed_error,
    partitions_of,
    report_loss,
    warn_of_departed,
)
from rmqcli.spark.source.progress import (
    BEGUN_AGAIN,
    limited,
    messages_from_json,
    offsets_from_json,
    offsets_to_json,
    unread,
)
from rmqcli.spark.source.read import Reading, retried

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # before 4.2
    ReadAllAvailable = ReadMaxRows = ReadMinRows = None
    SupportsTriggerAvailableNow = object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa

    from rmqcli.admin.witness import Witness
    from rmqcli.api.client import Client
    from rmqcli.model import MessageQueue
    from rmqcli.spark.source.options import SourceOptions
    from rmqcli.spark.source.progress import Json, Offsets

T = TypeVar("T")

#: Added queues are noticed within this time.
ROUTE_EVERY_MS: Final = 5_000
#: While there are no new messages, Spark calls `latestOffset` every 10 ms; brokers are
#: queried less often.
_IDLE_MS: Final = 100


class RocketMQStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream. Used by one thread at a time; pickled without its connection."""

    def __init__(self, options: SourceOptions) -> None:
        """Raises UnsupportedError for an option that this PySpark cannot serve."""
        for name, value in (
            ("maxOffsetsPerTrigger", options.offsets_per_trigger_max),
            ("minOffsetsPerTrigger", options.offsets_per_trigger_min),
        ):
            if value is not None and ReadMaxRows is None:
                raise UnsupportedError(
                    f"option {name} needs PySpark 4.2 or newer: older versions do not"
                    " tell a source where a batch starts",
                    hint="leave it out, or use a trigger with another interval",
                )
        self._options = options
        self._client: Client | None = None
        self._initial: Offsets | None = None
        #: the ends of the queues, from the last query
        self._ends: Offsets = {}
        #: the offsets up to which Spark is known to have read, so that a queue that
        #: leaves the route is noticed
        self._known: Offsets = {}
        #: queue -> an offset, and the message before it, if there is one: what the
        #: checkpoint says, or what was read for it
        self._noted: dict[MessageQueue, tuple[int, Witness | None]] = {}
        #: of these, those that the broker still had when the last batch was planned
        self._verified: set[tuple[MessageQueue, Witness]] = set()
        #: where a query with Trigger.AvailableNow ends
        self._target: Offsets | None = None
        self._route_read_ms: int | None = None
        self._committed: Offsets = {}
        self._is_idle = False
        #: when the last batch with messages was planned, by the monotonic clock
        self._batch_ms: int | None = None
        self._warned: set[str] = set()
        #: queues that were created again -> the offset up to which they had been read,
        #: until the progress has shown them
        self._begun_again: Offsets = {}

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle what `read` needs in a worker: the options."""
        return type(self), (self._options,)

    # --- called by Spark

    def initialOffset(self) -> Json:  # noqa: N802  # Spark's name
        """Where a query without a checkpoint starts; the same at every call."""
        with with_hints():
            if self._initial is None:
                self._check_commit_group()
                self._initial = self._retried(self._find_initial)
                self._known = dict(self._initial)
            return self._to_json(self._initial)

    def latestOffset(self, start: Json | None = None, limit: Any = None) -> Json:  # noqa: ANN401, N802  # Spark's name and class
        """Where the next batch ends. Before 4.2, PySpark passes no arguments."""
        with with_hints():
            before = dict(self._known)
            if start is not None:
                before |= self._from_json(start)
                self._known = before
                self._commit(before)
            if self._is_idle:
                self._connected().poll(_IDLE_MS)
            end = self._latest(before)
            if not isinstance(limit, ReadAllAvailable or ()) and self._waits(
                before, end
            ):
                end = before
            if isinstance(limit, ReadMaxRows or ()):
                begins = dict.fromkeys(self._made_anew(before, end), 0)
                end = limited(before | begins, end, rows_max=limit.max_rows)
            self._is_idle = end == before
            if not self._is_idle:
                self._batch_ms = self._connected().clock.monotonic_ms()
            self._known = end
            return self._to_json(end)

    def getDefaultReadLimit(self) -> Any:  # noqa: ANN401, N802  # Spark's name and class
        """The limit that `maxOffsetsPerTrigger` and `minOffsetsPerTrigger` set.

        Spark takes only one. `latestOffset` also applies the smaller one.
        """
        rows_max = self._options.offsets_per_trigger_max
        rows_min = self._options.offsets_per_trigger_min
        if rows_max is not None:
            return ReadMaxRows(rows_max)
        return ReadAllAvailable() if rows_min is None else ReadMinRows(rows_min)

    def _waits(self, before: Offsets, end: Offsets) -> bool:
        """Whether a batch waits for more messages, or for `maxTriggerDelay` to pass.

        The first batch does not wait, and with Trigger.AvailableNow none does.
        """
        rows_min = self._options.offsets_per_trigger_min
        if rows_min is None or self._target is not None or self._batch_ms is None:
            return False
        rows = sum(map(len, unread(before, end).values()))
        waited_ms = self._connected().clock.monotonic_ms() - self._batch_ms
        return rows < rows_min and waited_ms < self._options.trigger_delay_max_ms

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802  # Spark's name
        """The ends of the queues, shown as `latestOffset` in the query's progress.

        `begun again`, once, has the offsets up to which queues had been read that were
        created again.
        """
        if not self._ends:
            return None
        found: dict[str, Any] = dict(offsets_to_json(self._ends))
        if self._begun_again:
            found[BEGUN_AGAIN] = {
                str(queue): offset for queue, offset in self._begun_again.items()
            }
            self._begun_again = {}
        return found

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        """Pin the offsets at which the query will end."""
        with with_hints():
            self._target = self._retried(self._ask_ends)

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """The ranges of a batch.

        Raises PartialError when the broker has removed a part of them, unless
        `failOnDataLoss` is false.
        """
        with with_hints():
            last = self._from_json(end)
            first = self._from_json(start)  # its messages are the ones to compare
            self._check_gone(first, last)
            self._known |= first | last
            ranges = partitions_of(self._ranges(first, last), self._options)
            self._from_json(end)  # where the next batch starts
        return [InputPartition(each) for each in ranges]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a partition, in a worker."""
        wanted = getattr(partition, "value", None)
        if wanted is None:
            return iter(())
        return Reading(self._options).batches(wanted)

    def commit(self, end: Json) -> None:
        """Commit for `commitGroup`: Spark has processed everything below `end`."""
        with with_hints():
            self._commit(offsets_from_json(end, self._options.subscription))

    def stop(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()
            self._client = None

    # --- requests to the cluster

    def _connected(self) -> Client:
        if self._client is None:
            from rmqcli.api.client import Client

            self._client = Client(self._options.client_config())
        return self._client

    def _retried(self, ask: Callable[[], T]) -> T:
        """Call `ask` until it succeeds, for the time of option `retryFor` at most.

        Retries after errors that are retriable. Once the stream has begun, also retries
        when a topic is not found: name servers forget a broker while it restarts, and a
        topic that has no other broker with it.
        """

        def may_pass(error: RmqError) -> bool:
            self._route_read_ms = None  # the next attempt reads the routes again
            is_forgotten = isinstance(error, NotFoundError) and bool(self._known)
            return error.retriable or is_forgotten

        return retried(self._connected(), ask, self._options, may_pass=may_pass)

    def _queues(self) -> list[MessageQueue]:
        client = self._connected()
        now_ms = client.clock.monotonic_ms()
        read_ms = self._route_read_ms
        is_due = read_ms is None or now_ms - read_ms >= ROUTE_EVERY_MS
        queues = self._options.subscription.queues(client, refresh=is_due)
        if is_due:
            self._route_read_ms = now_ms
        return queues

    # --- the messages by which queues are recognized

    def _to_json(self, offsets: Offsets) -> Json:
        """The offsets with the message before each: equal offsets are equal texts."""
        places = {
            queue: offset - 1
            for queue, offset in offsets.items()
            if offset and self._noted.get(queue, (None,))[0] != offset
        }
        for queue, message in self._messages_at(places).items():
            self._noted[queue] = offsets[queue], message
        noted = {queue: self._noted.get(queue, (0, None)) for queue in offsets}
        return offsets_to_json(
            offsets,
            {
                queue: message
                for queue, (offset, message) in noted.items()
                if message is not None and offset == offsets[queue]
            },
        )

    def _from_json(self, value: Json) -> Offsets:
        """The offsets of a checkpoint; the messages before them are noted."""
        offsets = offsets_from_json(value, self._options.subscription)
        for queue, message in messages_from_json(value).items():
            self._noted[queue] = offsets[queue], message
        return offsets

    def _messages_at(
        self, places: Mapping[MessageQueue, int]
    ) -> dict[MessageQueue, Witness | None]:
        """The messages at offsets of queues that are in the route."""

        def ask() -> dict[MessageQueue, Witness | None]:
            client = self._connected()
            there = places.keys() & set(self._queues())
            found: dict[MessageQueue, Witness | None] = {}
            for queue, each in read_witnesses(
                client, {queue: places[queue] for queue in there}
            ).items():
                if isinstance(each, RmqError):
                    raise each
                found[queue] = each
            return found

        return self._retried(ask) if places else {}

    def _made_anew(self, first: Offsets, last: Offsets) -> set[MessageQueue]:
        """The queues of a batch that are no longer those that were read.

        They have another message before `first`. Raises ConfigError for them unless
        `failOnDataLoss` is false.
        """
        noted = {
            queue: message
            for queue, (offset, message) in self._noted.items()
            if message is not None
            and offset == first.get(queue)
            and last.get(queue) != offset
        }
        places = {
            queue: message.queue_offset
            for queue, message in noted.items()
            if (queue, message) not in self._verified
        }
        anew = set()
        messages = self._messages_at(places)
        for queue in sorted(messages):
            found = messages[queue]
            if found is None or noted[queue].is_same(found):
                continue
            self._tell_begun_again(
                queue,
                first[queue],
                f"{queue}: read up to {first[queue]}, and now another message is at"
                f" offset {found.queue_offset}",
            )
            anew.add(queue)
        self._verified = {each for each in noted.items() if each[0] not in anew}
        return anew

    def _find_initial(self) -> Offsets:
        from rmqcli.admin.positions import check_groups, resolve_each

        client, start = self._connected(), self._options.start
        queues = self._queues()
        self._options.subscription.check(queues)
        check_queues(start, queues)
        departed = departed_error(client, self._options, queues)
        if departed is not None:
            raise departed
        warn_of_departed(client, self._options, queues)
        default = default_start(is_stream=True)
        own = {queue: start.of(queue) or default for queue in queues}
        check_groups(client, queues, own.values())
        offsets: Offsets = {}
        for queue, at in resolve_each(client, queues, default, own=own).items():
            if isinstance(at, RmqError):
                raise at
            unmatched = start.unmatched(queue, at)
            if unmatched is not None:
                raise unmatched
            offset = at.min_offset if at.offset is None else at.offset
            if at.wanted is not None and at.wanted < at.min_offset:
                report_loss(self._options, queue, [(at.wanted, at.min_offset)])
            elif at.wanted is not None and at.wanted > at.max_offset:
                raise UsageError(
                    f"{start.option}: {queue} ends at {at.max_offset}, before"
                    f" {at.wanted}",
                    hint="use latest to start at the end of the queue",
                )
            offsets[queue] = offset
        return offsets

    def _ask_ends(self) -> Offsets:
        from rmqcli.admin.positions import resolve

        found = resolve(self._connected(), self._queues(), Latest())
        self._ends = {queue: at.max_offset for queue, at in found.items()}
        return dict(self._ends)

    def _latest(self, before: Offsets) -> Offsets:
        """The ends of all queues, at least the offsets that Spark has reached.

        Only a queue that begins again ends before what was read.
        """
        ends = self._retried(self._ask_ends)
        if any(queue not in ends for queue in before):
            ends = self._wait_for(before)
        if self._target is not None:
            # A broker that was restarting then was not in the route.
            for queue in before.keys() & ends.keys():
                self._target.setdefault(queue, ends[queue])
            ends = {
                queue: min(end, self._target[queue])
                for queue, end in ends.items()
                if queue in self._target
            }
        for queue, offset in before.items():
            end = ends.get(queue)
            if end is None or (
                end < offset and not self._begins_again(queue, offset, end)
            ):
                ends[queue] = offset
        return ends

    def _wait_for(self, before: Offsets) -> Offsets:
        """Wait for queues that are not in the route, as their broker may be restarting.

        Returns the ends of the queues that are in the route.
        """
        client = self._connected()
        deadline = Deadline(client.clock, self._options.retry_for_ms)
        while True:
            self._route_read_ms = None
            ends = self._retried(self._ask_ends)
            gone = sorted(set(before) - set(ends))
            if not gone:
                return ends
            if not self._options.fail_on_data_loss or deadline.left_ms() <= 0:
                self._check_gone(before, ends)
                return ends
            client.poll(min(self._options.retry_every_ms, deadline.left_ms()))

    def _check_gone(self, before: Offsets, after: Offsets) -> None:
        """Raise PartialError for, or warn about, queues that have left the route."""
        gone = sorted(set(before) - set(after))
        if not gone:
            return
        names = ", ".join(f"{queue} (read up to {before[queue]})" for queue in gone[:5])
        if self._options.fail_on_data_loss:
            raise PartialError(
                f"no longer in the route: {names}",
                hint="start the broker and then the query again, or ignore the loss"
                ' with .option("failOnDataLoss", "false")',
            )
        self._warn_once(f"no longer in the route: {names}")

    def _warn_once(self, text: str) -> bool:
        """Write a warning; return False if it was written before."""
        if text in self._warned:
            return False
        self._warned.add(text)
        warn(text)
        return True

    def _begins_again(self, queue: MessageQueue, offset: int, end: int) -> bool:
        """Whether a queue that ends before what was read is to be read from 0.

        Its topic was deleted and created again, unless a slave that has not received
        all messages answers for its master. Raises ConfigError unless `failOnDataLoss`
        is false.
        """
        text = f"{queue}: read up to {offset}, and now it ends at {end}"
        if not self._options.fail_on_data_loss:
            client = self._connected()
            broker = client.route(queue.topic).broker(queue.broker_name)
            if broker is None or client.reader_of(queue) != broker.master_address:
                self._warn_once(
                    f"{text} on a slave; nothing is read until it ends later"
                )
                return False
        self._tell_begun_again(queue, offset, text)
        return True

    def _tell_begun_again(self, queue: MessageQueue, offset: int, text: str) -> None:
        """Raise ConfigError, or warn that a queue is read from 0 again."""
        if self._options.fail_on_data_loss:
            raise ConfigError(
                f"{text}: the topic was deleted and created again, or the checkpoint"
                " belongs to another cluster",
                hint="start the query with a new checkpointLocation",
            )
        if self._warn_once(
            f"{text}: the topic was deleted and created again; it is read from its"
            " beginning"
        ):
            self._begun_again[queue] = offset

    def _ranges(self, first: Offsets, last: Offsets) -> list[OffsetRange]:
        """The ranges of a batch, without the offsets that brokers no longer have."""
        from rmqcli.admin.positions import resolve

        wanted = []
        anew = self._made_anew(first, last)
        for queue, end in sorted(last.items()):
            # A queue that was added to the stream is read from its very first message.
            start = 0 if queue in anew else first.get(queue, 0)
            if end < start and self._begins_again(queue, start, end):
                start = 0
            if start < end:
                wanted.append(OffsetRange(queue, start, end))
        if not wanted:
            return []
        queues = [each.queue for each in wanted]
        self._retried(self._queues)
        found = self._retried(lambda: resolve(self._connected(), queues, Earliest()))
        ranges = []
        for each in wanted:
            start = max(each.start, min(found[each.queue].min_offset, each.end))
            if each.start < start:
                report_loss(self._options, each.queue, [(each.start, start)])
            ranges.append(OffsetRange(each.queue, start, each.end))
        return ranges

    # --- the consumer group

    def _check_commit_group(self) -> None:
        """Raise UsageError when `commitGroup` has members online, which would commit.

        Raises NotFoundError when the group does not exist.
        """
        group = self._options.commit_group
        if group is None:
            return
        from rmqcli.admin.lag.proxied import find_proxied_members
        from rmqcli.admin.mistakes import explain_missing
        from rmqcli.admin.positions import check_groups
        from rmqcli.api.calls.consumer import get_consumer_connection_list

        client = self._connected()
        queues = self._queues()
        try:
            check_groups(client, queues, [AtGroup(group)])
        except NotFoundError as error:
            raise explain_missing(client, error) from None
        proxied = find_proxied_members(client)
        if group in proxied.by_group or any(
            client.invoke(address, get_consumer_connection_list(group)) is not None
            for address in {client.reader_of(queue) for queue in queues}
        ):
            raise UsageError(
                f"option commitGroup: group {group} has members online, which"
                " commit their own offsets",
                hint="name a group that only this query uses",
            )
        if proxied.unknown_because is not None:
            warn(f"option commitGroup: {proxied.unknown_because}")

    def _commit(self, offsets: Offsets) -> None:
        """Commit the offsets up to which Spark has processed messages, to the masters.

        If a broker does not answer, or ignores a commit because of a pending reset, its
        offsets are committed with a later batch: the stream continues from the
        checkpoint, not from the group's offsets.
        """
        group = self._options.commit_group
        if group is None:
            return
        client = self._connected()
        pendings = []
        for queue, offset in sorted(offsets.items()):
            if self._committed.get(queue) == offset:
                continue
            try:
                route = client.route(queue.topic)
                address = client.master_of(route, queue.broker_name)
            except RmqError as error:
                warn(f"{queue}: offset {offset} not committed: {error.message}")
                continue
            call = update_consumer_offset(
                group, queue.topic, queue.queue_id, commit_offset=offset
            )
            pendings.append((queue, offset, client.submit(address, call)))
        answers = client.gather([pending for _, _, pending in pendings])
        for (queue, offset, _), answer in zip(pendings, answers, strict=True):
            if not isinstance(answer, RmqError):
                if PENDING_RESET_REMARK not in answer:
                    self._committed[queue] = offset
                    continue
                why = f"a reset waits until a member of group {group} pulls from it"
            elif answer.retriable:
                why = answer.message
            else:
                raise answer
            warn(f"{queue}: offset {offset} not committed: {why}")
