"""Transactions that are neither committed nor rolled back.

A half message lies in RMQ_SYS_TRANS_HALF_TOPIC. What ends it is a record in
RMQ_SYS_TRANS_OP_HALF_TOPIC with its offset. The broker's check moves past half messages
by committing an offset, and appends a new copy of each that is still open. So a
transaction is open if its last copy after that offset has no end record. A message that
a producer sends again has the same id, but is a half message of its own.

The order of the requests avoids false answers: first the offset of the records, then
that of the half messages, then the half messages, and their ends last. In another order
an ended transaction could look open. Brokers of 5.x collect ends for three
seconds, so that one which ended just now is still shown.

Source: TransactionalMessageServiceImpl.check, TransactionalMessageUtil.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import field
from typing import TYPE_CHECKING, Final

from rmqcli.admin.brokers import denial_of, reader_addresses
from rmqcli.admin.delayed import stored_messages
from rmqcli.admin.lag.memory import untold_errors_of
from rmqcli.api.calls.config import get_broker_config
from rmqcli.api.calls.offset import (
    get_max_offset,
    get_min_offset,
    query_consumer_offset,
)
from rmqcli.dataclass import dataclass
from rmqcli.errors import NotFoundError, PartialError, RmqError
from rmqcli.model import MessageQueue
from rmqcli.units import counted, read_count
from rmqcli.wire.message.properties import REAL_TOPIC

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from rmqcli.api.client import Client
    from rmqcli.engine.message import PulledMessage
    from rmqcli.errors import DeniedError
    from rmqcli.wire.message.decode import StoredMessage

HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
#: Those of a broker with transRocksDBEnable and without transWriteOriginTransHalfEnable
#: (5.5.0), which notes in RocksDB which of the half messages it still checks.
ROCKSDB_HALF_TOPIC: Final = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
ROCKSDB_OP_TOPIC: Final = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
_ENDED_PLACE: Final = "TRANS_OFFSET"  # commit log offset of a half message that ended
_GROUP: Final = "CID_RMQ_SYS_TRANS"  # MixAll.CID_SYS_RMQ_TRANS
_ENDED_TAG: Final = "d"  # TransactionalMessageUtil.REMOVE_TAG
_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"  # PROPERTY_TRANSACTION_CHECK_TIMES
#: PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET
PREPARED_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
#: The most half messages, and the most records of ended transactions, read from one
#: broker.
SCANNED_MAX: Final = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """One half message that its producer has neither committed nor rolled back.

    `queue` and `queue_offset` are where the half message is; `msg_id` is its UNIQ_KEY.
    `born_ms` is when it was sent, by the producer's clock. `checks` is how often the
    broker has asked for its state, and `checks_max` after how many it gives up; None if
    the broker does not show that setting. `producers` are the clients of the producer
    group that the broker can ask now; empty when none is connected, or the message
    names no group, and None when the broker did not say.
    """

    queue: MessageQueue
    queue_offset: int
    msg_id: str | None
    keys: str | None
    producer_group: str | None
    born_ms: int
    checks: int
    checks_max: int | None
    producers: tuple[str, ...] | None


@dataclass(slots=True)
class OpenTransactions:
    """The oldest open transactions, the number of all, and errors by broker.

    `scanned` counts the half messages of all topics that were read. `denial` is the
    error if all brokers denied access.
    """

    transactions: list[OpenTransaction] = field(default_factory=list)
    count: int = 0
    errors: dict[str, RmqError] = field(default_factory=dict)
    scanned: int = 0
    denial: DeniedError | None = None


def find_open_transactions(
    client: Client, topic: str, *, limit: int
) -> OpenTransactions:
    """Find the open transactions of a topic on all its brokers; keep the oldest.

    A broker that has left the route, and on which groups had queues of the topic, is
    among the errors. Raises NotFoundError for an unknown topic, and NoBrokerError when
    none answers.
    """
    addresses = reader_addresses(client.route(topic).brokers)
    found = OpenTransactions()
    for name, address in addresses.items():
        try:
            _read_broker(client, name, address, topic, found)
        except RmqError as error:
            found.errors[name] = error
    if len(found.errors) == len(addresses):
        client.raise_if_none_answers(found.errors.values())
    if not found.scanned:
        found.denial = denial_of(found.errors.get(name) for name in addresses)
    found.errors |= untold_errors_of(client, [topic])
    found.transactions.sort(key=lambda e: (e.born_ms, e.queue, e.queue_offset))
    del found.transactions[limit:]
    return found


def open_transactions_of(
    client: Client, name: str, address: str, *, scanned_max: int
) -> OpenTransactions:
    """Find the open transactions of all topics on one broker.

    At most `scanned_max` half messages are read; more of them are an error.
    """
    found = OpenTransactions()
    try:
        _read_broker(client, name, address, None, found, scanned_max=scanned_max)
    except RmqError as error:
        found.errors[name] = error
    return found


def _read_broker(
    client: Client,
    name: str,
    address: str,
    topic: str | None,
    found: OpenTransactions,
    *,
    scanned_max: int = SCANNED_MAX,
) -> None:
    op_start, _ = _range(client, address, OP_TOPIC)
    start, end = _range(client, address, HALF_TOPIC)
    queue = MessageQueue(HALF_TOPIC, name, 0)
    until = min(end, start + scanned_max)
    half = [
        message
        for message in stored_messages(client, address, queue, start, until)
        if topic in (None, message.properties.get(REAL_TOPIC))
    ]
    found.scanned += max(0, until - start)
    ended = _ended(client, name, address, op_start) if half else set()
    still_open = _still_open(half, ended)
    found.count += len(still_open)
    found.transactions += _with_producers(client, address, queue, still_open)
    if until < end:
        raise PartialError(
            f"{name} has {counted(end - start, 'half message')} to look at; not"
            f" read: the {end - until:,} newest"
        )
    _check_rocksdb(client, name, address, topic, scanned_max=scanned_max)


def _check_rocksdb(
    client: Client, name: str, address: str, topic: str | None, *, scanned_max: int
) -> None:
    """Raise PartialError if there may be open transactions in a broker's RocksDB."""
    start, end = _range(client, address, ROCKSDB_HALF_TOPIC)
    maybe_open = end - start
    if maybe_open <= scanned_max:
        queue = MessageQueue(ROCKSDB_HALF_TOPIC, name, 0)
        offsets = {
            message.commit_log_offset
            for message in stored_messages(client, address, queue, start, end)
            if topic in (None, message.properties.get(REAL_TOPIC))
        }
        start, end = _range(client, address, ROCKSDB_OP_TOPIC) if offsets else (0, 0)
        if end - start <= scanned_max:
            queue = MessageQueue(ROCKSDB_OP_TOPIC, name, 0)
            for record in stored_messages(client, address, queue, start, end):
                offsets.discard(read_count(record.properties.get(_ENDED_PLACE)) or 0)
        maybe_open = len(offsets)
    if maybe_open:
        raise PartialError(
            f"{name} has {counted(maybe_open, 'half message')} that may be open: it"
            " notes in RocksDB which of them it has given up (transRocksDBEnable)"
        )


def _still_open(
    half: Iterable[StoredMessage], ended: Collection[int]
) -> list[StoredMessage]:
    """Return the half messages without an end that were not written again. Pure."""
    #: (UNIQ_KEY, born time), which copies keep -> the last copy of each half message
    last: dict[tuple[str | None, int], list[StoredMessage]] = defaultdict(list)

    def is_open(message: StoredMessage) -> bool:
        prepared = message.properties.get(PREPARED_OFFSET)
        return message.queue_offset not in ended and read_count(prepared) not in ended

    for message in half:
        identity = message.properties.get("UNIQ_KEY"), message.born_timestamp_ms
        same = last[identity]
        before = [each for each in same if _is_copy_of(message, each)]
        if before:
            # The broker writes copies in the order of the messages.
            same.remove(next(filter(is_open, before), before[0]))
        same.append(message)
    return [each for same in last.values() for each in same if is_open(each)]


def _is_copy_of(message: StoredMessage, other: StoredMessage) -> bool:
    """Whether a check may have written `other` again as `message`. Pure.

    They have the same id and born time. A check increments the number of checks, or
    stores the half message's offset in the copy.
    """
    prepared = read_count(message.properties.get(PREPARED_OFFSET))
    if prepared is None:
        return checks_of(message) == checks_of(other) + 1
    known = read_count(other.properties.get(PREPARED_OFFSET))
    return prepared in (known, other.queue_offset)


def checks_of(message: StoredMessage | PulledMessage) -> int:
    """Return how often the broker has asked for the state of a half message. Pure."""
    return read_count(message.properties.get(_CHECK_TIMES)) or 0


def _range(client: Client, address: str, topic: str) -> tuple[int, int]:
    """Return from where the broker checks a topic to its end; (0, 0) without one."""
    try:
        low = client.invoke(address, get_min_offset(topic, 0))
        committed = client.invoke(address, query_consumer_offset(_GROUP, topic, 0))
        high = client.invoke(address, get_max_offset(topic, 0))
    except NotFoundError:
        return 0, 0  # the broker creates the topic with its first transaction
    return min(max(low, committed or 0), high), high


def _ended(client: Client, name: str, address: str, start: int) -> set[int]:
    """Return the offsets of half messages that have ended since the broker's check."""
    try:
        end = client.invoke(address, get_max_offset(OP_TOPIC, 0))
    except NotFoundError:
        return set()
    if end - start > SCANNED_MAX:
        raise PartialError(
            f"{name} has {counted(end - start, 'record')} of ended transactions, more"
            f" than the {SCANNED_MAX:,} that are read: which ones are open is not known"
        )
    ended: set[int] = set()
    queue = MessageQueue(OP_TOPIC, name, 0)
    for record in stored_messages(client, address, queue, start, end):
        ended.update(ended_offsets(record))
    return ended


def ended_offsets(record: StoredMessage) -> list[int]:
    """Return the offsets of the half messages that a record of OP_TOPIC ends."""
    if record.tags != _ENDED_TAG:
        return []
    parts = record.raw_body.decode("ascii", "replace").split(",")
    return [n for each in parts if (n := read_count(each)) is not None]


def _with_producers(
    client: Client, address: str, queue: MessageQueue, messages: Iterable[StoredMessage]
) -> list[OpenTransaction]:
    """Add who could answer the broker's check, and how often it asks."""
    from rmqcli.api.calls.producer import get_producer_connection_list

    messages = list(messages)
    if not messages:
        return []
    groups = {each.properties.get("PGROUP") for each in messages}
    connected = client.ask_many(
        {
            group: (address, get_producer_connection_list(group))
            for group in groups
            if group is not None
        },
    )
    (config,) = client.gather([client.submit(address, get_broker_config())])
    checks_max = None
    if not isinstance(config, RmqError):
        checks_max = read_count(config.get("transactionCheckMax"))
    found = []
    for message in messages:
        group = message.properties.get("PGROUP")
        members = () if group is None else connected[group]
        found.append(
            OpenTransaction(
                queue=queue,
                queue_offset=message.queue_offset,
                msg_id=message.msg_id,
                keys=message.keys,
                producer_group=group,
                born_ms=message.born_timestamp_ms,
                checks=checks_of(message),
                checks_max=checks_max,
                producers=None
                if isinstance(members, RmqError)
                else tuple(sorted({each.client_id for each in members})),
            )
        )
    return found
