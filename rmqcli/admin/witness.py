"""Whether queues are those that a copy, an export or a plan noted, by single messages.

A cluster that was wiped and started again has the same addresses, topics and queues,
and soon the same offsets. So what goes on later notes one message of each queue, the
last one that was read or written. Before it goes on, they are compared with what is at
their offsets now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from rmqcli.api.calls.offset import get_max_offset
from rmqcli.api.calls.pull import pull_message
from rmqcli.clock import Deadline
from rmqcli.errors import PartialError, RefusedError, RmqError
from rmqcli.units import format_rfc3339
from rmqcli.wire.message.decode import decode_messages
from rmqcli.wire.message.record import StoredMessage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rmqcli.api.client import Client
    from rmqcli.model import MessageQueue

#: Characters of a message's ID that are noted.
_ID_MAX: Final = 64
#: How long a broker may take to count messages that it has stored.
SETTLE_MS: Final = 2_000
_SETTLE_EVERY_MS: Final = 100
ANOTHER: Final = (
    "the topic was deleted and created again, or its broker has lost messages"
)


class Witness(NamedTuple):
    """A message at an offset of a queue, and by what it is known again.

    `store_timestamp_ms` is None for a message that was sent: brokers do not tell it
    then. What is None is not compared. Without an id, `store_timestamp_ms` is a time
    after which the message cannot have been stored.
    """

    queue_offset: int
    msg_id: str | None
    store_timestamp_ms: int | None

    @classmethod
    def of(cls, message: StoredMessage) -> Witness:
        """Return the witness that a stored message is."""
        msg_id = message.msg_id or message.offset_msg_id
        # An ID of another client may be anything, also what no file can hold.
        is_plain = msg_id.isascii() and msg_id.isprintable()
        return cls(
            message.queue_offset,
            msg_id[:_ID_MAX] if is_plain else None,
            message.store_timestamp_ms,
        )

    def is_same(self, found: Witness) -> bool:
        """Whether a message that is stored now can be the one that was noted."""
        noted_at, at = self.store_timestamp_ms, found.store_timestamp_ms
        if self.queue_offset != found.queue_offset:
            return False
        if self.msg_id is None:
            return noted_at is None or at is None or at <= noted_at
        return self.msg_id == found.msg_id and (
            noted_at == at or None in (noted_at, at)
        )

    def __str__(self) -> str:
        at = self.store_timestamp_ms
        stored = "" if at is None else f", stored at {format_rfc3339(at) or at}"
        return f"{self.msg_id or 'a message'}{stored}"


def read_witnesses(
    client: Client, places: Mapping[MessageQueue, int]
) -> dict[MessageQueue, Witness | RmqError | None]:
    """Read the message at an offset of each queue; None where there is none."""
    found: dict[MessageQueue, Witness | RmqError | None] = {}
    questions = {}
    for queue, offset in places.items():
        try:
            address = client.reader_of(queue)
        except RmqError as error:
            found[queue] = error
        else:
            questions[queue] = address, pull_message(queue, offset, max_msg_nums=1)
    for queue, answer in client.ask_many(questions).items():
        if isinstance(answer, RmqError):
            found[queue] = answer
            continue
        found[queue] = witness_at(places[queue], answer.body)
    return found


def witness_at(offset: int, body: bytes) -> Witness | None:
    """Return the message at `offset` in the body of a pull; None if it is not there."""
    return _first(each for each in _stored(body) if each.queue_offset == offset)


def first_witness(body: bytes) -> Witness | None:
    """Return the first message in the body of a pull; None without a readable one."""
    return _first(_stored(body))


def last_witness(body: bytes) -> Witness | None:
    """Return the last message in the body of a pull; None without a readable one."""
    return _first(reversed(_stored(body)))


def _stored(body: bytes) -> list[StoredMessage]:
    found = decode_messages(body)
    return [each for each in found if isinstance(each, StoredMessage)]


def _first(messages: Iterable[StoredMessage]) -> Witness | None:
    return next((Witness.of(each) for each in messages), None)


def check_written_after(
    queue: MessageQueue, queue_offset: int, before: int, *, done: str, anew: str
) -> None:
    """Raise RefusedError unless a message is stored behind the one written before.

    `before` is the offset of that one: what was written is gone if a queue has given an
    offset of it again. `done` and `anew` are those of `compare`.
    """
    if queue_offset <= before:
        raise RefusedError(
            f"{queue} stored a message at offset {queue_offset}, but {done} up to"
            f" {before + 1}: {ANOTHER}",
            hint=anew,
        )


class Noted(NamedTuple):
    """The offset up to which a queue is done, and its witness.

    The witness is None where none could be read.
    """

    until: int
    witness: Witness | None


def note_ends(
    client: Client, bounds: Mapping[MessageQueue, tuple[int, int]]
) -> dict[MessageQueue, Noted | RmqError]:
    """Note the last message of each queue; `bounds` are min and max offsets."""
    found = read_witnesses(
        client, {queue: high - 1 for queue, (low, high) in bounds.items() if high > low}
    )
    noted: dict[MessageQueue, Noted | RmqError] = {}
    for queue, (_, high) in bounds.items():
        last = found.get(queue)
        noted[queue] = last if isinstance(last, RmqError) else Noted(high, last)
    return noted


class Comparison(NamedTuple):
    """What became of queues. `errors` has those that could not be compared.

    `unproven` are queues without a message that could be compared, on brokers of which
    no other queue proves that they are the same. `compare` refuses those that have
    messages which count as done, unless it is told not to.
    """

    errors: dict[MessageQueue, RmqError]
    unproven: list[MessageQueue]


def compare(
    client: Client,
    noted: Mapping[MessageQueue, Noted],
    bounds: Mapping[MessageQueue, tuple[int, int]],
    *,
    done: str,
    anew: str,
    refuse_unproven: bool = True,
    settle_ms: int = 0,
) -> Comparison:
    """Compare what was noted with what is stored; `bounds` are min and max offsets.

    In errors `done` says what was done up to there ("the log has read"), and `anew`
    how to begin anew. Raises RefusedError for a queue that is not the one that was
    noted: it ends before, or has another message in the place of the witness. Also for
    one that has messages which count as done, and no message that could be compared;
    without `refuse_unproven` such a queue is in `unproven` instead.

    `settle_ms` is how long to wait for the ends of queues that were written to: brokers
    store messages before they count them.
    """
    deadline = Deadline(client.clock, settle_ms)
    there = {}
    errors: dict[MessageQueue, RmqError] = {}
    for queue, (until, witness) in noted.items():
        low, high = bounds[queue]
        last = until if witness is None else max(until, witness.queue_offset + 1)
        if high < last and settle_ms:
            try:
                high = _settled(client, queue, last, deadline)
            except RmqError as error:
                errors[queue] = error
                continue
        if high < last:
            ended = f"{queue} ends at {high}, but {done} up to {last}"
            broker = client.route(queue.topic).broker(queue.broker_name)
            if broker is None or broker.master_address is None:
                errors[queue] = PartialError(
                    f"{ended}: it is read from a slave, which may be behind"
                )
                continue
            raise RefusedError(f"{ended}: {ANOTHER}", hint=anew)
        if witness is not None and low <= witness.queue_offset:
            there[queue] = witness
    proven = set()
    places = {queue: witness.queue_offset for queue, witness in there.items()}
    for queue, found in read_witnesses(client, places).items():
        witness = there[queue]
        if isinstance(found, RmqError):
            errors[queue] = found
        elif found is not None and not witness.is_same(found):
            raise RefusedError(
                f"{queue} has another message at offset {witness.queue_offset} than"
                f" {done} ({found}, not {witness}): {ANOTHER}",
                hint=anew,
            )
        elif found is not None:
            proven.add(queue.broker_name)
    unproven = []
    for queue, (until, _) in noted.items():
        if queue in errors or queue.broker_name in proven or not until:
            continue
        if bounds[queue][0] < until and refuse_unproven:
            raise RefusedError(
                f"{queue} has no message any more by which it could be recognized, and"
                f" messages before offset {until}, up to which {done}: nothing shows"
                " that it is the same topic",
                hint=anew,
            )
        unproven.append(queue)
    return Comparison(errors, unproven)


def _settled(client: Client, queue: MessageQueue, end: int, deadline: Deadline) -> int:
    """Return the end of a queue, as soon as it is `end`, or when the time is over."""
    address = client.reader_of(queue)
    while True:
        high = client.invoke(address, get_max_offset(queue.topic, queue.queue_id))
        if high >= end or deadline.is_over():
            return high
        client.poll(min(_SETTLE_EVERY_MS, deadline.left_ms()))
