"""`rmq topics`, and `rmq topic show`, `create`, `update` and `delete`.

Each command calls `rmqcli.admin.topics` and shows the result as tables or JSON. This
module decides what the user must confirm, and the exit code if only some brokers
answered.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from rmqcli.cli.by_broker import (
    ERROR_COLUMN,
    RESULT_COLUMN,
    SILENT_COLUMN,
    errors_json,
    masters_of,
    raise_if_silent,
    rows_of_silent,
    show_detail,
    show_list,
    show_results,
    warn_about_departed,
    warn_about_slaves,
)
from rmqcli.cli.confirm import confirm, confirm_by_name
from rmqcli.cli.offline import read_from
from rmqcli.cli.options import (
    Common,
    argument,
    brokers_option,
    cluster_option,
    command_options,
    duration_option,
    endpoints_option,
    option,
    plaintext_option,
    store_option,
    switch,
)
from rmqcli.cli.ui.escape import safe
from rmqcli.cli.ui.output import (
    Column,
    empty_row,
    json_column,
    number_column,
    place_columns,
    row_of,
)
from rmqcli.dataclass import dataclass
from rmqcli.errors import PartialError, UsageError
from rmqcli.model import PERM_READ, PERM_WRITE
from rmqcli.units import counted, format_duration, format_rfc3339

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqcli.admin.topics import (
        TopicChange,
        TopicDetail,
        TopicList,
        TopicResult,
        TopicRow,
    )
    from rmqcli.api.client import Client
    from rmqcli.proxy.rpc import ProxyQueue
    from rmqcli.wire.bodies.stats import TopicOffset


def _of_config(
    name: str,
    help: str = "",
    *,
    value: Callable[[Any], object] | None = None,
    **more: Any,
) -> Column:
    """Return a column for a broker's setting of a topic; null if it has no settings."""
    read = value or attrgetter(name)
    more.setdefault("priority", 30)
    return Column(
        name, help, value=lambda found: found.config and read(found.config), **more
    )


COLUMNS = (
    Column(
        "topic", "name of the topic; null in the row of a broker that did not answer"
    ),
    Column("kind", "normal, static, retry, dlq or system", priority=20),
    Column(
        "message_type",
        "message type, if a 5.x broker reports it",
        title="TYPE",
        priority=30,
    ),
    Column("perm", "rw, r, w or none", states={"none": "bad"}, priority=40),
    number_column(
        "read_queue_nums",
        "number of readable queues on all brokers",
        "READ",
        priority=50,
    ),
    number_column(
        "write_queue_nums",
        "number of writable queues on all brokers",
        "WRITE",
        priority=10,
    ),
    json_column("order", "whether the list of its queues is fixed"),
    Column("brokers", "brokers that have the topic", shorten=True, priority=60),
    SILENT_COLUMN,
)
#: What --sample adds.
_COUNT_COLUMNS = (
    number_column(
        "rate_in",
        "with --sample: messages stored per second",
        title="IN/S",
        is_wanted=True,
    ),
    number_column(
        "messages",
        "with --sample: number of messages",
        priority=15,
        is_wanted=True,
    ),
    json_column(
        "sample_ms",
        "with --sample: its duration as it was measured",
        value=lambda _: None,
    ),
    Column("reason", "with --sample: why a number is null", priority=1),
)
SAMPLE_COLUMNS = (
    *COLUMNS[:-2],
    *_COUNT_COLUMNS[:-1],
    *COLUMNS[-2:],
    _COUNT_COLUMNS[-1],
)
QUEUE_COLUMNS = (
    *place_columns("broker that has the queue", "number of the queue on its broker"),
    number_column(
        "min_offset",
        "offset of the oldest message that is still stored",
        title="MIN",
        value=lambda found: found.offset and found.offset.min_offset,
        priority=20,
    ),
    number_column(
        "max_offset",
        "offset that the next message gets",
        title="MAX",
        value=lambda found: found.offset and found.offset.max_offset,
        priority=10,
    ),
    number_column(
        "messages",
        "number of messages",
        value=lambda found: (
            found.offset and max(0, found.offset.max_offset - found.offset.min_offset)
        ),
    ),
    Column(
        "last_update",
        "when the last message was stored; null when empty",
        value=lambda found: _stored_at(found.offset),
        priority=30,
    ),
)
#: Kinds of topics that are listed without --all.
_USERS = ("normal", "static")
#: A topic on one broker; settings are null if the broker has none for the topic.
_BROKER_COLUMNS = (
    Column("broker_name", title="BROKER"),
    json_column("cluster"),
    Column("address", priority=10),
    _of_config("read_queue_nums", title="READ", align="right"),
    _of_config("write_queue_nums", title="WRITE", align="right"),
    _of_config("perm", value=lambda config: _perm_text(config.perm)),
    # Not the broker's own while it is drained.
    Column(
        "route_perm",
        title="IN ROUTE",
        value=lambda b: None if b.route_perm is None else _perm_text(b.route_perm),
    ),
    _of_config("order", priority=40),
    _of_config("topic_filter_type", title=None),
    _of_config("topic_sys_flag", title=None),
    _of_config("attributes", priority=50),
    ERROR_COLUMN,
)
STEP_COLUMNS = (
    Column("server", "broker, or name server"),
    Column("address", "its address", priority=20),
    RESULT_COLUMN,
    _of_config(
        "write_queue_nums", "number of queues now", title="QUEUES", align="right"
    ),
    _of_config(
        "perm", "rw, r or w", value=lambda config: _perm_text(config.perm), priority=30
    ),
    ERROR_COLUMN,
)

#: The numbers are those of mqadmin.
_PERMS = {"rw": 6, "wr": 6, "6": 6, "r": 4, "4": 4, "w": 2, "2": 2}


def parse_perm(text: str) -> int:
    """Read permissions. Raises UsageError."""
    if text not in _PERMS:
        raise UsageError(f"{text!r} is not one of rw, r, w")
    return _PERMS[text]


def parse_attribute(text: str) -> tuple[str, str]:
    """Read the name and the value of an attribute. Raises UsageError."""
    name, equals, value = text.removeprefix("+").partition("=")
    if not equals or not name or not value or "," in text:
        raise UsageError(
            f"{text!r} is not +NAME=VALUE", hint="for example +message.type=FIFO"
        )
    return name, value


@command_options(fields=SAMPLE_COLUMNS, changes=False)
def topics(
    common: Common,
    sample: int | None = duration_option(
        help="Sample twice, DURATION apart, and show rates and numbers of messages."
    ),
    show_all: bool = switch(
        "--all", help="Include retry, dead letter and system topics."
    ),
    store: str | None = store_option(),
) -> None:
    """List topics.

    Example: rmq topics -o jsonl | jq -r .topic
             rmq topic list --all
             rmq topics --sample 10s

    The exit code is 6 if a broker did not answer. With --sample it is 6, too, if a rate
    or a number of messages is not known.
    """
    if sample is not None and sample < 1:
        raise UsageError("--sample must be greater than zero")
    if sample is not None and store is not None:
        raise UsageError(
            "--sample and --store cannot be used together",
            hint="no messages are stored in a folder while it is read",
        )
    with read_from(common, store) as source, source.open_client() as client:
        found, rows, unknown = _listed(source, client, sample, show_all)
        if store is None:
            warn_about_departed(common, client)
            warn_about_slaves(common, client)
    columns = COLUMNS if sample is None else SAMPLE_COLUMNS
    rows += rows_of_silent(found.errors, columns)
    show_list(common, rows, columns, none="no topics")
    hidden = Counter(row.kind for row in found.topics) if not show_all else Counter()
    for kind in _USERS:
        hidden.pop(kind, None)
    if hidden:
        parts = ", ".join(f"{count} {kind}" for kind, count in sorted(hidden.items()))
        noun = "topic" if hidden.total() == 1 else "topics"
        common.messages.info(f"not shown: {parts} {noun}; --all shows them")
    raise_if_silent(found.errors, found.denial)
    if unknown:
        raise PartialError(
            f"not all numbers of {counted(len(unknown), 'topic')} are known:"
            f" {unknown[0]}"
        )


def _listed(
    common: Common, client: Client, sample_ms: int | None, show_all: bool
) -> tuple[TopicList, list[dict[str, Any]], list[str]]:
    """Return the topics, a row for each that is shown, and why numbers are unknown.

    The numbers that offsets can never tell are not among the unknown ones.
    """
    from rmqcli.admin.topics import list_topics

    def shown(found: TopicList) -> list[TopicRow]:
        return [row for row in found.topics if show_all or row.kind in _USERS]

    found = list_topics(client)
    if sample_ms is None:
        return found, [row_of(COLUMNS, row) for row in shown(found)], []
    from rmqcli.admin.topic_counts import count_topics

    before = count_topics(client, found, topics=shown(found))
    common.messages.progress(f"waiting {format_duration(sample_ms)}")
    client.clock.wait_ms(threading.Event(), sample_ms)
    common.messages.clear_progress()
    client.cluster_info(refresh=True)
    found = list_topics(client)
    after = count_topics(client, found, topics=shown(found), since=before)
    elapsed_ms = after.at_ms - before.at_ms
    rows, unknown = [], []
    for topic in shown(found):
        count = after.topics[topic.topic]
        counts = row_of(_COUNT_COLUMNS, count) | {"sample_ms": elapsed_ms}
        rows.append(row_of(COLUMNS, topic) | counts)
        if count.rate_in is None and topic.kind != "static":
            unknown.append(count.reason or "")
    return found, rows, unknown


@command_options(fields=QUEUE_COLUMNS, changes=False)
def show(
    common: Common,
    topic: str = argument(help="Topic to show."),
    endpoints: Any = endpoints_option(),
    plaintext: bool = plaintext_option(),
) -> None:
    """Show a topic's queues, offsets and settings.

    Example: rmq topic show orders -o json | jq '.queues[].max_offset'

    -o jsonl and -o csv list only the queues. A proxy (--endpoints) reports queues,
    permissions and message types; offsets, groups and settings are then null.
    NAMESRV_ADDR takes precedence over ROCKETMQ_ENDPOINTS.
    """
    common = common.with_endpoints_or_namesrv(endpoints, plaintext=plaintext)
    if common.endpoints:
        _show_by_proxy(common, topic)
        return
    from rmqcli.admin.topics import show_topic

    with common.open_client() as client:
        detail = show_topic(client, topic)
    data = _data(detail)
    show_detail(
        common,
        data,
        list_name="queues",
        columns=QUEUE_COLUMNS,
        write_tables=lambda: _write_tables(common, detail, data),
    )
    raise_if_silent(detail.errors, detail.denial)


def _show_by_proxy(common: Common, topic: str) -> None:
    from rmqcli.names import check_topic
    from rmqcli.proxy.reader import ProxyReader  # loads gRPC

    check_topic(topic)
    with ProxyReader(common.client_config()) as reader:
        queues = reader.route(topic)
    data = _data_by_proxy(topic, queues)
    show_detail(
        common,
        data,
        list_name="queues",
        columns=QUEUE_COLUMNS,
        write_tables=lambda: _write_tables_by_proxy(common, data),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettingsOptions:
    """The options of `rmq topic update` as they were typed."""

    topic: str = argument(help="Name of the topic.")
    queues: int | None = option(min=1, max=65_535, help="Queues on each broker.")
    perm: int | None = option(parser=parse_perm, metavar="rw|r|w", help="Permissions.")
    cluster: str | None = cluster_option()
    broker: list[str] | None = brokers_option()
    attribute: list[Any] | None = option(
        parser=parse_attribute,
        metavar="+NAME=VALUE",
        help="Attribute (RocketMQ 5), e.g. +message.type=FIFO; repeatable.",
    )
    order: bool | None = option(
        "--order/--no-order",
        help="Keep the list of queues fixed, for ordered sending.",
    )

    def change(self) -> TopicChange:
        """The settings that were given."""
        from rmqcli.admin.topics import TopicChange

        return TopicChange(
            queue_nums=self.queues,
            perm=self.perm,
            order=self.order,
            attributes=dict(self.attribute or ()),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCreateOptions(TopicSettingsOptions):
    """The options of `rmq topic create`, whose help names what a new topic has."""

    queues: int | None = option(
        min=1, max=65_535, help="Queues on each broker (default: 8)."
    )
    perm: int | None = option(
        parser=parse_perm, metavar="rw|r|w", help="Permissions (default: rw)."
    )


@command_options(TopicCreateOptions, fields=STEP_COLUMNS)
def create(common: Common, options: TopicCreateOptions) -> None:
    """Create a topic.

    Example: rmq topic create orders --queues 8

    An existing topic is not changed: if it has the given settings, that is a success,
    otherwise the exit code is 7.
    """
    from rmqcli.admin.topics import create_topic
    from rmqcli.names import check_topic

    check_topic(options.topic)
    with common.open_client() as client:
        masters = masters_of(client, options.cluster, options.broker)
        steps = create_topic(client, options.topic, masters, options.change())
        _publish(common, client, options, steps)
    if {step.result for step in steps} == {"unchanged"}:
        common.messages.info(f"topic {safe(options.topic)} exists already")
    show_results(common, steps, STEP_COLUMNS)


@command_options(TopicSettingsOptions, fields=STEP_COLUMNS, asks=True)
def update(common: Common, options: TopicSettingsOptions) -> None:
    """Change settings of a topic.

    Example: rmq topic update orders --queues 16

    Only the given settings are changed, and read back. With fewer queues, consumers can
    no longer read the messages of the removed ones; this must be confirmed, and so must
    the loss of a permission.
    """
    from rmqcli.admin.topics import (
        TopicChange,
        known_configs,
        queues_lost_by,
        update_topic,
    )
    from rmqcli.names import check_topic

    check_topic(options.topic)
    change = options.change()
    if change == TopicChange():
        raise UsageError("nothing to change", hint="see: rmq topic update --help")
    with common.open_client() as client:
        masters = masters_of(client, options.cluster, options.broker)
        known = known_configs(client, options.topic, masters, change)
        lost = queues_lost_by(client, options.topic, masters, change, known)
        for queues in lost:
            common.messages.warn(f"consumers can no longer read {queues}")
        shut_out = who_is_shut_out(known.values(), change.perm)
        for who in shut_out:
            common.messages.warn(f"{who} {options.topic}")
        what = ["queues"] if lost else []
        what += ["permissions"] if shut_out else []
        if what:
            removed = f"This removes {' and '.join(what)} of topic"
            confirm(common, f"{removed} {safe(options.topic)}.")
        steps = update_topic(client, options.topic, masters, change, before=known)
        _publish(common, client, options, steps)
    show_results(common, steps, STEP_COLUMNS)


def who_is_shut_out(known: Iterable[object], perm: int | None) -> list[str]:
    """Return who loses a permission with `perm`: parts of sentences, before the topic.

    `known` are the topic's settings on brokers; anything else among them is skipped.
    """
    from rmqcli.wire.bodies.config import TopicConfig

    if perm is None:
        return []
    lost = 0
    for config in known:
        if isinstance(config, TopicConfig):
            lost |= config.perm & ~perm
    found = ["producers can no longer send to"] if lost & PERM_WRITE else []
    return found + (["consumers can no longer read"] if lost & PERM_READ else [])


def _publish(
    common: Common,
    client: Client,
    options: TopicSettingsOptions,
    steps: list[TopicResult],
) -> None:
    from rmqcli.admin.topics import publish

    if not publish(client, options.topic, steps, timeout_ms=common.timeout_ms):
        common.messages.warn(
            "no name server lists the topic on all of these brokers yet"
        )


@command_options(fields=STEP_COLUMNS, asks=True)
def delete(
    common: Common,
    topic: str = argument(help="Topic to delete."),
) -> None:
    """Delete a topic and its messages.

    Example: rmq topic delete orders-old --yes

    To confirm, type the topic's name. The committed offsets of groups are kept.
    """
    from rmqcli.admin import topics as topics_change

    with common.open_client() as client:
        route = topics_change.check_may_delete(client, topic)
        names = ", ".join(sorted(broker.broker_name for broker in route.brokers))
        confirm_by_name(
            common,
            f"This deletes topic {safe(topic)} and its messages on {safe(names)}.",
            name=topic,
        )
        steps = topics_change.delete_topic(client, route)
    show_results(common, steps, STEP_COLUMNS)


def queue_rows(detail: TopicDetail) -> list[dict[str, Any]]:
    """Return a row for each queue of a topic."""
    rows = [row_of(QUEUE_COLUMNS, each) for each in detail.queues]
    for row in rows:
        if row["broker_name"] in detail.compacted:
            row["messages"] = None
    return rows


def _data(detail: TopicDetail) -> dict[str, Any]:
    queues = queue_rows(detail)
    return {
        "topic": detail.topic,
        "kind": detail.kind,
        "message_type": detail.message_type,
        "brokers": [row_of(_BROKER_COLUMNS, each) for each in detail.brokers],
        "queues": queues,
        "groups": detail.groups or (None if detail.errors else []),
        "errors": errors_json(detail.errors),
    }


def _data_by_proxy(topic: str, queues: Sequence[ProxyQueue]) -> dict[str, Any]:
    """Return the keys of `_data`; values that the proxy does not report are null."""
    from rmqcli.admin.topics import topic_kind
    from rmqcli.wire.bodies.route import ClusterInfo

    rows = []
    for name in sorted({each.queue.broker_name for each in queues}):
        found = [each for each in queues if each.queue.broker_name == name]
        read = sum(each.is_readable for each in found)
        write = sum(each.is_writable for each in found)
        perm = (PERM_READ if read else 0) | (PERM_WRITE if write else 0)
        rows.append(
            empty_row(
                _BROKER_COLUMNS,
                broker_name=name,
                read_queue_nums=read,
                write_queue_nums=write,
                perm=_perm_text(perm),
                route_perm=_perm_text(perm),
            )
        )
    return {
        "topic": topic,
        "kind": topic_kind(topic, ClusterInfo({}, {})),
        "message_type": _message_type_by_proxy(queues),
        "brokers": rows,
        "queues": [
            empty_row(QUEUE_COLUMNS, **asdict(queue))
            for queue in sorted(each.queue for each in queues)
        ],
        "groups": None,
        "errors": [],
    }


def _message_type_by_proxy(queues: Sequence[ProxyQueue]) -> str | None:
    """Return the message type, e.g. `FIFO`; None if the proxy does not report it.

    For a MIXED topic, a proxy reports every type that the topic accepts.
    """
    from rmqcli.wire.protobuf.definition_pb2 import MessageType

    numbers = {number for each in queues for number in each.accept_message_types}
    numbers.discard(int(MessageType.MESSAGE_TYPE_UNSPECIFIED))
    mixed = ("NORMAL", "FIFO", "DELAY", "TRANSACTION")
    if numbers >= {MessageType.Value(name) for name in mixed}:
        return "MIXED"
    known = MessageType.values()
    names = [MessageType.Name(n) if n in known else str(n) for n in sorted(numbers)]
    return "/".join(names) or None


def _perm_text(perm: int) -> str | None:
    from rmqcli.admin.topics import perm_text

    return perm_text([perm])


def _stored_at(offset: TopicOffset | None) -> str | None:
    if offset is None or offset.last_update_timestamp <= 0:
        return None
    return format_rfc3339(offset.last_update_timestamp)


def _write_tables(common: Common, detail: TopicDetail, data: dict[str, Any]) -> None:
    kind = detail.message_type or detail.kind
    messages = [row["messages"] for row in data["queues"]]
    known = [count for count in messages if count is not None]
    count = counted(sum(known), "message")
    if unknown := len(messages) - len(known):
        count = f"at least {count}, {counted(unknown, 'queue')} unknown"
        count = count if known else "messages unknown"
    queues = counted(len(messages), "queue")
    if detail.errors.keys() - {row["broker_name"] for row in data["queues"]}:
        queues = f"at least {queues}"
        count = count if unknown else f"at least {count}"
    if detail.compacted:
        count += " (compacted: older messages with the key of a newer one are removed)"
    groups = ", ".join(map(safe, detail.groups)) or "none"
    if detail.errors:
        groups = f"at least {groups}" if detail.groups else "unknown"
    sys.stdout.write(
        f"topic {safe(detail.topic)}: {safe(kind)},"
        f" {queues}, {count}\n"
        f"groups: {groups}\n"
        "\n"
    )
    _write_places(common, data)


def _write_tables_by_proxy(common: Common, data: dict[str, Any]) -> None:
    kind = data["message_type"] or data["kind"]
    sys.stdout.write(
        f"topic {safe(data['topic'])}: {safe(kind)},"
        f" {counted(len(data['queues']), 'queue')}\n"
        "offsets and groups: unknown, because a proxy does not report them\n"
        "\n"
    )
    _write_places(common, data)


def _write_places(common: Common, data: dict[str, Any]) -> None:
    """Write the tables of a topic's brokers and queues."""
    common.write_table(data["brokers"], _BROKER_COLUMNS)
    sys.stdout.write("\n")
    common.write_table(data["queues"], QUEUE_COLUMNS)
