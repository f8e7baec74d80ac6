"""Which producers are connected, and which of them sent a topic's newest messages.

Brokers know producers by group and connection, and not by topic. What ties a producer
to a topic is the address from which its messages came (bornHost), which is that of its
connection. So a producer that has sent nothing lately is not found by topic. A sender
that no broker lists is only an address. It may have closed its connection, have no
group, or send through a proxy: one in cluster mode does not report its producers to
brokers.

Source: ProducerManager, AdminBrokerProcessor.getAllProducerInfo in apache/rocketmq.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import field, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from rmqcli.admin.brokers import ask_each, denial_of, reader_addresses, split_answers
from rmqcli.admin.lag.memory import untold_errors_of
from rmqcli.admin.read.range import RangeReader, ReadOptions
from rmqcli.api.calls.producer import (
    get_all_producer_info,
    get_producer_connection_list,
)
from rmqcli.api.calls.pull import MSG_NUMS_MAX
from rmqcli.api.calls.stats import get_topic_stats_info
from rmqcli.dataclass import dataclass
from rmqcli.errors import ConfigError, DecodeError, RmqError, UnsupportedError
from rmqcli.hint import Argument, Hint
from rmqcli.model import OffsetRange
from rmqcli.wire.ids import host_bytes, host_text
from rmqcli.wire.message.decode import StoredMessage, decode_messages
from rmqcli.wire.version import V4_9_4, version_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqcli.api.client import Client
    from rmqcli.errors import DeniedError

#: Every Java client is in this group, too: MixAll.CLIENT_INNER_PRODUCER_GROUP.
_INNER_GROUP: Final = "CLIENT_INNER_PRODUCER"
#: The newest messages of each queue that are read to find their senders.
MESSAGES_PER_QUEUE: Final = MSG_NUMS_MAX
#: the property in which proxies store the address of a gRPC client
_CLIENT_OF_PROXY: Final = "__BORNHOST"  # MessageConst.PROPERTY_BORN_HOST
#: a broker's name, and an address in the form of records
_Place: TypeAlias = "tuple[str, bytes]"

_SILENT: Final = "the broker did not list its producers"
_PROXIED: Final = "sent through a proxy, which does not tell who sent"
_NOT_LISTED: Final = "the broker listed no producer at this address"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerRow:
    """One connection of a producer, or the address of a sender that no broker lists.

    `address` is that of its end of the connection. A sender that is not listed has no
    `client_id` but a `reason`, and its group is known only if its messages name it:
    those of transactions, and those sent over gRPC, whose group is the topic.
    `last_heartbeat_ms` is by the broker's clock; None if the broker does not report it.
    `messages` counts those of the newest messages of the topic that came from there;
    None if no topic was asked about.
    """

    group: str | None
    client_id: str | None = None
    address: str
    language: int | None = None
    version: int | None = None
    last_heartbeat_ms: int | None = None
    broker_name: str
    messages: int | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerList:
    """Producers, sorted by group, client and broker, and what is not known.

    `messages_read` is how many messages were read to find their senders. `denial` is
    the error if all brokers denied access. `untold` are brokers that have left the
    route, or have no master, if that was asked: producers that are connected only to
    them are not here.
    """

    producers: list[ProducerRow]
    errors: dict[str, RmqError] = field(hash=False)
    messages_read: int = 0
    denial: DeniedError | None = None
    untold: dict[str, RmqError] = field(default_factory=dict, hash=False)


def list_producers(
    client: Client, *, topic: str | None = None, group: str | None = None
) -> ProducerList:
    """List the producers that are connected, those of one group, or those of a topic.

    With `topic`, the newest 32 messages of each queue are read, and only their senders
    are listed; with both, also senders of an unknown group, which may be this one.
    Brokers before 4.9.4 list producers of a given group only. Raises
    NotFoundError for an unknown topic, and NoBrokerError when no broker answers.
    """
    if topic is None:
        brokers = tuple(client.cluster_info().brokers.values())
    else:
        brokers = client.route(topic).brokers
    addresses = reader_addresses(brokers)
    connected, errors = _connected(client, addresses, group)
    client.raise_if_none_answers(errors.values())
    if topic is None:
        rows = [row for row in connected if group in (None, row.group)]
        return ProducerList(
            producers=_sorted(_without_inner(rows)),
            errors=errors,
            denial=denial_of(errors.get(name) for name in addresses),
        )
    senders, read = _senders(client, topic, addresses, errors)
    places = [(_place(row), row) for row in connected]
    known = {place for place, _ in places} & senders.keys()
    found = _without_inner(
        [
            replace(row, messages=senders[place].messages)
            for place, row in places
            if place in known and group in (None, row.group)
        ]
    )
    found += [
        row
        for place, row in senders.items()
        if place not in known and (group is None or row.group in (None, group))
    ]
    denial = None if read else denial_of(errors.get(name) for name in addresses)
    errors |= untold_errors_of(client, [topic])
    return ProducerList(
        producers=_sorted(found), errors=errors, messages_read=read, denial=denial
    )


def _connected(
    client: Client, addresses: Mapping[str, str], group: str | None
) -> tuple[list[ProducerRow], dict[str, RmqError]]:
    """Return all producers that brokers list, and why some do not.

    Brokers before 4.9.4 list those of `group`.
    """
    versions = {}
    errors: dict[str, RmqError] = {}
    for name, address in addresses.items():
        try:
            versions[name] = client.broker_version(address)
        except RmqError as error:
            errors[name] = error
    new = {n: addresses[n] for n, version in versions.items() if version >= V4_9_4}
    old = {n: addresses[n] for n in versions if n not in new}
    listed = ask_each(client, new, get_all_producer_info())
    tables, failed = split_answers(listed)
    errors |= failed
    rows = [
        ProducerRow(
            group=owner,
            client_id=each.client_id,
            address=each.remote_ip.rpartition("/")[2],
            language=each.language,
            version=each.version,
            last_heartbeat_ms=each.last_update_timestamp or None,
            broker_name=name,
        )
        for name, table in tables.items()
        for owner, members in table.items()
        for each in members
    ]
    if group is None:
        for name in old:
            errors[name] = UnsupportedError(
                f"{name} runs RocketMQ {version_name(versions[name])}, which lists the"
                f" producers of a given group only",
                hint=Hint("give ", Argument("group")),
            )
        return rows, errors
    answers = ask_each(client, old, get_producer_connection_list(group))
    connected, failed = split_answers(answers)
    rows += [
        ProducerRow(
            group=group,
            client_id=each.client_id,
            address=each.client_addr,
            language=each.language,
            version=each.version,
            broker_name=name,
        )
        for name, members in connected.items()
        for each in members
    ]
    return rows, errors | failed


def _senders(
    client: Client,
    topic: str,
    addresses: Mapping[str, str],
    errors: dict[str, RmqError],
) -> tuple[dict[_Place, ProducerRow], int]:
    """Return the senders of the newest messages by place, and how many were read.

    `errors` has the brokers that do not list producers. Adds those of other brokers,
    and of records that cannot be read.
    """
    silent = set(errors)
    stats = ask_each(client, addresses, get_topic_stats_info(topic))
    told, failed = split_answers(stats)
    errors |= failed
    ranges = [
        OffsetRange(queue, max(ends.min_offset, end - MESSAGES_PER_QUEUE), end)
        for of_broker in told.values()
        for queue, ends in of_broker.items()
        if ends.min_offset < (end := ends.max_offset)
    ]
    counts: Counter[_Place] = Counter()
    groups: dict[_Place, str] = {}
    proxied: set[_Place] = set()
    options = ReadOptions(raise_abandoned=False, retry_for_ms=client.config.timeout_ms)
    reader = RangeReader(client, ranges, options)
    for chunk in reader:
        for message in decode_messages(chunk.body):
            if isinstance(message, StoredMessage):
                place = chunk.queue.broker_name, message.born_host_bytes()
                counts[place] += 1
                if _CLIENT_OF_PROXY in message.properties:
                    proxied.add(place)
                if group := message.properties.get("PGROUP"):
                    groups[place] = group
            else:
                name = chunk.queue.broker_name
                why = f"a record of {chunk.queue} cannot be read: {message.error}"
                errors.setdefault(name, DecodeError(why))
    errors.update((q.broker_name, error) for q, error in reader.abandoned.items())
    rows = {
        place: ProducerRow(
            group=groups.get(place),
            address=host_text(place[1]),
            broker_name=place[0],
            messages=count,
            reason=_SILENT
            if place[0] in silent
            else _PROXIED
            if place in proxied
            else _NOT_LISTED,
        )
        for place, count in counts.items()
    }
    return rows, counts.total()


def _place(row: ProducerRow) -> _Place:
    """Return the broker and the address of a row, as a message of it has them.

    Java writes an IPv6 address with or without brackets and the number of a network
    interface, depending on its version and on the address.
    """
    try:
        return row.broker_name, host_bytes(row.address)
    except ConfigError:
        return row.broker_name, b""


def _without_inner(rows: list[ProducerRow]) -> list[ProducerRow]:
    """Leave the inner group out where the client has another one on the connection."""
    others = {
        (row.broker_name, row.address) for row in rows if row.group != _INNER_GROUP
    }
    return [
        row
        for row in rows
        if row.group != _INNER_GROUP or (row.broker_name, row.address) not in others
    ]


def _sorted(rows: list[ProducerRow]) -> list[ProducerRow]:
    return sorted(
        rows,
        key=lambda e: (
            e.group or "\uffff",
            e.client_id or "",
            e.broker_name,
            e.address,
        ),
    )
