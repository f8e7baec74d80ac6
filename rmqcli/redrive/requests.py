"""Sends a batch of letters: several requests at once, each with many letters.

The letters of a batch that go to one topic are cut into runs of neighbours, and each
run goes to one queue, the next run to the next queue. A queue has one request in flight
at a time, so letters that follow each other into one queue keep their order. What a
request means when it fails, and which broker is tried next, `Publisher` decides.

Letters with a sharding key, such as the message group of a FIFO topic, all go to the
queue in which a proxy stores the messages of that group, and to no other one. After a
request that may not have stored its letters that queue gets no more of them: they would
be before the others. A letter that the broker refuses for itself is passed over, as a
consumer passes over a dead letter. Letters with a priority, or of a lite topic, are
sent alone, because a broker looks at these in single messages only.

This is faster than `rmqcli.producer.send`, which accounts for each message: here a
request has one outcome for all of its letters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqcli import tasks
from rmqcli.admin.dlq.log import UNKNOWN, LetterResult
from rmqcli.api.runner import ClientRunner
from rmqcli.errors import BrokerError, ConnectError, RmqError, TransportError, WireError
from rmqcli.producer.config import ProducerConfig
from rmqcli.producer.lane import (
    ALONE_BYTES,
    BATCH_BYTES_MAX,
    BATCH_MESSAGES_MAX,
    MESSAGE_OVERHEAD_BYTES,
)
from rmqcli.producer.patience import Patience, cause_of
from rmqcli.producer.remoting.publisher import (
    Prepared,
    Publisher,
    Stored,
    may_be_one_message,
)
from rmqcli.producer.remoting.requests import explain_limit
from rmqcli.redrive.letter import goes_alone, sharding_key, unique_key
from rmqcli.wire.ids import message_group_index
from rmqcli.wire.message.batch import encode_items

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from rmqcli.api.client import Client
    from rmqcli.model import MessageQueue
    from rmqcli.producer.ids import UniqueIds
    from rmqcli.producer.remoting.target import PublishTarget
    from rmqcli.redrive.letter import Letter

#: Into so many queues the letters of a batch are spread, if the topic has as many.
_QUEUES_MAX: Final = 8
#: Give up after this many consecutive requests without a connection.
DEAD_AFTER: Final = 5


class RedriveRequests:
    """The requests of one batch at a time. Used in the thread of the client.

    `given_up` is why sending stopped; None while brokers can be reached.
    """

    def __init__(
        self,
        client: Client,
        ids: UniqueIds,
        rng: random.Random,
        *,
        is_stopped: Callable[[], bool],
    ) -> None:
        self._client = client
        self._ids = ids
        self._is_stopped = is_stopped
        self._runner = ClientRunner(client)
        self._config = ProducerConfig()
        self._publisher = Publisher(
            client,
            self._runner,
            config=self._config,
            rng=rng,
        )
        #: topics with the target of the plan, of which a broker may have moved since
        self._noted: set[str] = set()
        self._turn = rng.randrange(1 << 16)
        self._failed_in_a_row = 0
        self._results: list[list[LetterResult]] = []
        self._errors: list[RmqError | None] = []
        self._open: list[tasks.Pending[None]] = []
        #: queue -> why it gets no more letters that have a sharding key
        self._blocked: dict[MessageQueue, RmqError] = {}
        self.given_up: RmqError | None = None

    def begin(self, batch: Iterable[tuple[PublishTarget, list[Letter]]]) -> None:
        """Send the first requests of a batch. `finish` must be called before the next.

        The others follow while the client is polled.
        """
        self._results, self._errors, self._open = [], [], []
        # The runner forgets requests that ended only in a turn, and they hold bodies.
        self._runner.turn(0)
        for target, letters in batch:
            if target.topic not in self._noted:
                self._noted.add(target.topic)
                self._publisher.note_target(target)
            queues = target.queues
            keyed, others = _by_queue(letters, queues)
            lanes: dict[MessageQueue, list[tuple[int, list[Letter]]]] = {}
            for run in _runs(others, min(len(queues), _QUEUES_MAX)):
                queue = queues[self._turn % len(queues)]
                self._turn += 1
                lanes.setdefault(queue, []).append(self._with_index(run))
            self._open += [
                tasks.start(self._lane(queue, runs), self._runner)
                for queue, runs in lanes.items()
            ]
            self._open += [
                tasks.start(
                    self._lane(
                        queue,
                        [self._with_index(run) for run in _runs(found, 1)],
                        is_fixed=True,
                    ),
                    self._runner,
                )
                for queue, found in keyed.items()
            ]

    def _with_index(self, run: list[Letter]) -> tuple[int, list[Letter]]:
        """Return a run with the index of its results."""
        self._results.append([])
        return len(self._results) - 1, run

    def finish(self) -> list[LetterResult]:
        """Wait until all requests have ended; return the results of all letters.

        Those of letters without a sharding key are in the order of the letters.
        """
        self._runner.run(self._open)
        for pending in self._open:
            pending.result()  # raises what only a defect causes
        if self._errors and all(isinstance(e, TransportError) for e in self._errors):
            # The next batch would fail, too, and more letters would become doubtful.
            self.given_up = self.given_up or self._errors[0]
        return [result for results in self._results for result in results]

    def _lane(
        self,
        queue: MessageQueue,
        runs: list[tuple[int, list[Letter]]],
        *,
        is_fixed: bool = False,
    ) -> tasks.Task[None]:
        for index, letters in runs:
            self._results[index] += yield from self._send(
                queue, letters, is_fixed=is_fixed
            )

    def _send(
        self, queue: MessageQueue, letters: list[Letter], *, is_fixed: bool
    ) -> tasks.Task[list[LetterResult]]:
        """Send letters with one request, or each alone if one may be at fault.

        With `is_fixed` they go to no other queue, and not after a failure.
        """
        stopped_by = self.given_up
        if stopped_by is None and is_fixed:
            stopped_by = self._blocked.get(queue)
        if stopped_by is not None:
            self._errors.append(stopped_by)
            return [not_sent(each, stopped_by) for each in letters]
        prepared = self._prepared(queue.topic, letters)
        try:
            stored = yield from self._stored(prepared, queue, is_fixed=is_fixed)
        except RmqError as error:
            if isinstance(error, TransportError):
                self._failed_in_a_row += 1
                if self._failed_in_a_row >= DEAD_AFTER:
                    self.given_up = cause_of(error)
            if len(letters) > 1 and may_be_one_message(error):
                results = []
                for each in letters:
                    results += yield from self._send(queue, [each], is_fixed=is_fixed)
                return results
            if is_fixed and not may_be_one_message(error):
                self._blocked[queue] = cause_of(error)
            if isinstance(error, BrokerError) and len(letters) == 1:
                explain_limit(error, len(letters[0].body))
            self._errors.append(cause_of(error))
            return [failed(each, error) for each in letters]
        self._failed_in_a_row = 0
        self._errors.append(None)
        first = stored.result(0)
        at, base = first.queue or queue, first.queue_offset
        status, topic = first.status.value, queue.topic
        return [
            LetterResult(
                letter.place,
                status,
                topic,
                msg_id,
                at.broker_name,
                at.queue_id,
                None if base is None else base + number,
            )
            for number, (letter, msg_id) in enumerate(
                zip(letters, prepared.msg_ids, strict=True)
            )
        ]

    def _stored(
        self, prepared: Prepared, queue: MessageQueue, *, is_fixed: bool
    ) -> tasks.Task[Stored]:
        """Send a request; repeat it while no broker can be reached to store it.

        A broker may be restarting, or one of its slaves is about to become the master.
        """
        patience = Patience(self._client.clock)
        while True:
            try:
                return (
                    yield from self._publisher.send(
                        prepared,
                        queue=queue if is_fixed else None,
                        first=queue,
                        timeout_ms=self._client.config.timeout_ms,
                        retry_times=self._config.retry_times_when_send_failed,
                        is_sent_once=True,
                    )
                )
            except ConnectError as error:
                pause_ms = patience.pause_ms(error, is_known=True)
                if self._is_stopped():
                    raise
            yield tasks.Sleep(pause_ms)

    def _prepared(self, topic: str, letters: list[Letter]) -> Prepared:
        now_ms = self._client.clock.epoch_ms()
        msg_ids = tuple([self._ids.next_id() for _ in letters])
        first = letters[0]
        # Brokers of 5.x fail on a request without a body, but accept a batch of one.
        if len(letters) == 1 and first.body:
            return Prepared(
                topic=topic,
                msg_ids=msg_ids,
                body=first.body,
                properties=(first.properties + unique_key(msg_ids[0])).decode(),
                flag=first.flag,
                born_timestamp_ms=now_ms,
            )
        return Prepared(
            topic=topic,
            msg_ids=msg_ids,
            body=encode_items(
                (each.body, each.properties + unique_key(msg_id), each.flag)
                for each, msg_id in zip(letters, msg_ids, strict=True)
            ),
            is_batch=True,
            born_timestamp_ms=now_ms,
        )


def _by_queue(
    letters: list[Letter], queues: Sequence[MessageQueue]
) -> tuple[dict[MessageQueue, list[Letter]], list[Letter]]:
    """Return the letters with a sharding key by their queues, and the others."""
    keyed: dict[MessageQueue, list[Letter]] = {}
    others = []
    for letter in letters:
        key = sharding_key(letter.properties)
        if key is None:
            others.append(letter)
            continue
        index = message_group_index(key, len(queues))
        keyed.setdefault(queues[index], []).append(letter)
    return keyed, others


def _runs(letters: list[Letter], queues: int) -> Iterator[list[Letter]]:
    """Cut letters into runs of about equal length, each of which fits in a request."""
    length_max = min(BATCH_MESSAGES_MAX, -(-len(letters) // queues))
    run: list[Letter] = []
    run_bytes = 0
    for letter in letters:
        size = len(letter.body) + len(letter.properties) + MESSAGE_OVERHEAD_BYTES
        is_alone = len(letter.body) >= ALONE_BYTES or goes_alone(letter.properties)
        if run and (
            is_alone or len(run) >= length_max or run_bytes + size > BATCH_BYTES_MAX
        ):
            yield run
            run, run_bytes = [], 0
        run.append(letter)
        run_bytes += size
        if is_alone:
            yield run
            run, run_bytes = [], 0
    if run:
        yield run


def failed(letter: Letter, error: RmqError) -> LetterResult:
    """The result of a send that failed; without an answer it may be stored."""
    status = "NOT_SENT"
    if isinstance(error, BrokerError):
        status = error.name
    elif isinstance(error, ConnectError):
        pass
    elif isinstance(error, TransportError | WireError):
        status = UNKNOWN  # also if the answer cannot be read
    return LetterResult(
        letter.place, status, letter.topic, error=cause_of(error).message
    )


def not_sent(letter: Letter, error: RmqError | None) -> LetterResult:
    """The result of a letter that was not tried any more."""
    message = None if error is None else error.message
    return LetterResult(letter.place, "NOT_SENT", letter.topic, error=message)
