"""Topics: listing, showing, creating, changing and deleting them.

Brokers have a topic's settings; the name server also knows the topics of brokers that
do not answer now, so listing topics queries both. Changes are made server by server,
with a result for each. There is no transaction across servers: changes that succeeded
stay in place, and repeating the call does the rest.

Source: TopicValidator, MixAll, UpdateTopicSubCommand, DeleteTopicSubCommand and
DefaultMQAdminExtImpl.createOrUpdateOrderConf in apache/rocketmq.
"""

from __future__ import annotations

import re
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Final

from rmqcli.admin.brokers import (
    ask_each,
    change_each,
    change_many,
    denial_of,
    failed_word,
    have_left,
    no_master,
    not_shown,
    reader_addresses,
    split_answers,
    use_one_of,
    with_address,
)
from rmqcli.admin.lag.memory import (
    departed_errors,
    departed_errors_of,
    untold_errors_of,
)
from rmqcli.api.broker_errors import not_found
from rmqcli.api.calls.config import (
    delete_topic_in_broker,
    get_all_subscription_group_config,
    get_all_topic_config,
    get_broker_runtime_info,
    get_topic_config,
    get_topic_tables,
    update_and_create_topic,
)
from rmqcli.api.calls.consumer import get_consumer_connection_list
from rmqcli.api.calls.namesrv import (
    delete_topic_in_namesrv,
    get_all_topic_list,
    get_route_info_by_topic,
)
from rmqcli.api.calls.namesrv_config import (
    delete_kv_config,
    get_kv_config,
    put_kv_config,
)
from rmqcli.api.calls.stats import get_topic_stats_info, query_topic_consume_by_who
from rmqcli.api.runner import run_task, run_tasks
from rmqcli.checked import check_fields
from rmqcli.clock import Deadline
from rmqcli.dataclass import dataclass
from rmqcli.errors import (
    BrokerError,
    ChangeUnknownError,
    ConfigError,
    DeadlineError,
    NoBrokerError,
    NotFoundError,
    PartialError,
    RefusedError,
    RmqError,
    UnsupportedError,
)
from rmqcli.hint import ForPrograms, Hint, LibraryCall, Setting
from rmqcli.model import (
    DLQ_GROUP_TOPIC_PREFIX,
    PERM_READ,
    PERM_WRITE,
    RETRY_GROUP_TOPIC_PREFIX,
    SCHEDULE_TOPIC,
    MessageQueue,
)
from rmqcli.names import similar
from rmqcli.tasks import All, Request, Sleep
from rmqcli.units import counted
from rmqcli.wire.bodies.config import TopicConfig
from rmqcli.wire.bodies.lite import LITE_BIND_TOPIC
from rmqcli.wire.codes import ResponseCode
from rmqcli.wire.version import V5_0_0, version_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from rmqcli.admin.brokers import Addresses
    from rmqcli.api.call import Call
    from rmqcli.api.client import Client
    from rmqcli.errors import DeniedError, NameKind
    from rmqcli.model import QueueData, TopicRoute
    from rmqcli.tasks import Part, Task
    from rmqcli.wire.bodies.route import ClusterInfo
    from rmqcli.wire.bodies.stats import TopicOffset


SYSTEM_TOPICS = frozenset(
    (
        "TBW102",
        "BenchmarkTest",
        "SELF_TEST_TOPIC",
        SCHEDULE_TOPIC,
        "OFFSET_MOVED_EVENT",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "RMQ_SYS_TRACE_TOPIC",
        "CHECKPOINT_TOPIC",
        "DefaultHeartBeatSyncerTopic",  # ProxyConfig.heartbeatSyncerTopicName
    )
)
#: TopicValidator.SYSTEM_TOPIC_PREFIX, and its spelling in older system topics.
SYSTEM_TOPIC_PREFIXES = ("rmq_sys_", "RMQ_SYS_")
REPLY_TOPIC_POSTFIX = "REPLY_TOPIC"  # MixAll.REPLY_TOPIC_POSTFIX

#: TopicAttributes.TOPIC_MESSAGE_TYPE_ATTRIBUTE
MESSAGE_TYPE_ATTRIBUTE = "message.type"
_LITE = "LITE"
#: What a broker answers that caught an exception: its name, its text, and where.
_JAVA_EXCEPTION: Final = re.compile(r"\A[\w.]+Exception: (.*), [^ ,]+\Z", re.DOTALL)
QUEUE_NUMS_DEFAULT = 8
PERM_DEFAULT = 6
QUEUE_NUMS_MAX = 65_535
NAMESPACE_ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"  # NamesrvUtil
_ROUTE_POLL_MS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRow:
    """One topic in a list. Queue counts are sums over `brokers`.

    They come from the brokers' settings, and for brokers that did not answer from the
    topic's route; None when that is not known either. `is_compacted` is whether a
    broker removes messages amid its queues, so that offsets do not tell how many there
    are.
    """

    topic: str
    kind: str
    message_type: str | None
    perm: str | None
    read_queue_nums: int | None
    write_queue_nums: int | None
    order: bool | None
    brokers: tuple[str, ...]
    is_compacted: bool = False


@dataclass(frozen=True, slots=True)
class TopicList:
    """Topics sorted by name, and the errors of brokers that did not answer.

    `denial` is the error if all brokers denied access: the names are those that name
    servers know.
    `untold` are brokers that have left the route, or have no master, if that was asked:
    what only they know is not here.
    """

    topics: list[TopicRow]
    errors: dict[str, RmqError] = field(hash=False)
    denial: DeniedError | None = None
    untold: dict[str, RmqError] = field(default_factory=dict, hash=False)


def _is_compacted(config: TopicConfig) -> bool:
    return config.attributes.get("cleanup.policy") == "COMPACTION"


def topic_kind(topic: str, info: ClusterInfo) -> str:
    """Return `retry`, `dlq`, `system` or `normal`.

    Topics that are named after a cluster or a broker are system topics. Pure.
    """
    if topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
        return "retry"
    if topic.startswith(DLQ_GROUP_TOPIC_PREFIX):
        return "dlq"
    is_system = (
        topic in SYSTEM_TOPICS
        or topic.startswith(SYSTEM_TOPIC_PREFIXES)
        or topic in info.brokers
        or topic in info.clusters
        or topic.removesuffix(f"_{REPLY_TOPIC_POSTFIX}") in info.clusters
    )
    return "system" if is_system else "normal"


def perm_text(perms: Iterable[int]) -> str | None:
    """Return `rw`, `r`, `w` or `none`; different values are joined by `/`.

    None when there are no permissions to describe.
    """
    texts = {
        ("r" if perm & PERM_READ else "") + ("w" if perm & PERM_WRITE else "")
        for perm in perms
    }
    return "/".join(sorted(text or "none" for text in texts)) or None


def message_type(configs: Iterable[TopicConfig]) -> str | None:
    """Return the topic's message type, e.g. `FIFO`; None when no broker reports one.

    In 5.x, a topic without the attribute has NORMAL messages; brokers before 5.0 do not
    know the attribute. Different values are joined by `/`.
    """
    types = {
        config.attributes[MESSAGE_TYPE_ATTRIBUTE]
        for config in configs
        if MESSAGE_TYPE_ATTRIBUTE in config.attributes
    }
    return "/".join(sorted(types)) or None


def list_topics(client: Client) -> TopicList:
    """List all topics, including system topics, sorted by name.

    Raises NoBrokerError when no broker answers.
    """
    info = client.cluster_info()
    answers = ask_each(
        client, reader_addresses(info.brokers.values()), get_topic_tables()
    )
    tables, errors = split_answers(answers)
    client.raise_if_none_answers(errors.values())
    configs: dict[str, dict[str, TopicConfig]] = {}
    static: set[str] = set()
    for broker_name, table in tables.items():
        for topic, config in table.topic_config_table.items():
            configs.setdefault(topic, {})[broker_name] = config
        static.update(table.topic_queue_mapping_detail_map)
    names = set(configs)
    routes: Mapping[str, TopicRoute | RmqError] = {}
    if errors:
        names.update(_known_names(client))
        routes = client.routes(names)
    rows = [
        _row(topic, configs.get(topic, {}), info, routes.get(topic), errors)
        for topic in sorted(names)
    ]
    rows = [
        # Brokers count the queues of a static topic that moved away, too.
        replace(row, kind="static", read_queue_nums=None, write_queue_nums=None)
        if row.topic in static
        else row
        for row in rows
    ]
    return TopicList(rows, errors, denial_of(answers.values()))


def _known_names(client: Client) -> list[str]:
    try:
        return client.namesrv(get_all_topic_list())
    except BrokerError:  # 5.x can be configured to refuse this request
        return []


def _row(
    topic: str,
    configs: Mapping[str, TopicConfig],
    info: ClusterInfo,
    route: TopicRoute | RmqError | None,
    silent: Collection[str],
) -> TopicRow:
    """Return the row of a topic; `route` has its queues on brokers that are silent.

    Without a route, as of a topic that is kept out of it, the silent brokers may have
    any number of its queues.
    """
    queues: list[QueueData] = []
    if not isinstance(route, RmqError | None):
        queues = [each for each in route.queues if each.broker_name in silent]
    values: list[TopicConfig | QueueData] = [*configs.values(), *queues]
    is_known = bool(values) and not isinstance(route, RmqError)
    return TopicRow(
        topic=topic,
        kind=topic_kind(topic, info),
        message_type=message_type(configs.values()),
        perm=perm_text(each.perm for each in values),
        read_queue_nums=sum(e.read_queue_nums for e in values) if is_known else None,
        write_queue_nums=sum(e.write_queue_nums for e in values) if is_known else None,
        order=any(each.order for each in configs.values()) if configs else None,
        brokers=tuple(sorted({*configs, *(each.broker_name for each in queues)})),
        is_compacted=any(map(_is_compacted, configs.values())),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicBroker:
    """A topic on one broker. `config` is None when it was not reported: see `error`.

    `route_perm` are the permissions that name servers give clients, None without any.
    They are not the broker's own ones while it is drained.
    """

    broker_name: str
    cluster: str
    address: str | None
    config: TopicConfig | None = field(hash=False)
    error: RmqError | None = None
    route_perm: int | None = None


@dataclass(frozen=True, slots=True)
class TopicQueue:
    """One queue. `offset` is None when no broker reported it."""

    queue: MessageQueue
    offset: TopicOffset | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDetail:
    """Everything about one topic; `errors` is keyed by broker name.

    `denial` is the error if all brokers denied access: the rest is from name servers.
    """

    topic: str
    kind: str
    message_type: str | None
    brokers: list[TopicBroker]
    queues: list[TopicQueue]
    groups: list[str]
    errors: dict[str, RmqError] = field(hash=False)
    denial: DeniedError | None = None

    @property
    def compacted(self) -> set[str]:
        """The brokers that remove messages amid queues, and do not tell how many."""
        return {
            each.broker_name
            for each in self.brokers
            if each.config is not None and _is_compacted(each.config)
        }


def show_topic(client: Client, topic: str) -> TopicDetail:
    """Query every broker of a topic for everything about it.

    Brokers that have left the route, or have no master, are among the errors. Raises
    the errors of `read_topic`.
    """
    detail = read_topic(client, topic)
    detail.errors.update(untold_errors_of(client, [topic]))
    return detail


def read_topic(client: Client, topic: str) -> TopicDetail:
    """Query the brokers of a topic's route for everything about it.

    Raises NotFoundError for an unknown topic, NoBrokerError when no broker answers.
    """
    client.cluster_info()
    return run_task(client, ask_topic(client, client.route(topic)))


def ask_topic(client: Client, route: TopicRoute) -> Task[TopicDetail]:
    """Do as `read_topic`, with a topic's route; the client knows its brokers."""
    topic = route.topic
    addresses = reader_addresses(route.brokers)
    answers = yield All([_ask_broker(client, a, topic) for a in addresses.values()])
    stats: dict[str, Any] = {}
    configs: dict[str, TopicConfig | RmqError | None] = {}
    names: set[str] = set()
    errors: dict[str, RmqError] = {}
    for name, (ends, config, *groups) in zip(addresses, answers, strict=True):
        stats[name] = ends
        if isinstance(ends, RmqError):
            errors[name] = ends
            continue
        configs[name] = config
        for found in groups:
            if isinstance(found, RmqError):
                errors[name] = found
            else:
                names.update(found)
    client.raise_if_none_answers(errors[n] for n in stats if n not in configs)
    return TopicDetail(
        topic=topic,
        kind=topic_kind(topic, client.cluster_info()),
        message_type=message_type(
            c for c in configs.values() if c is not None and not isinstance(c, RmqError)
        ),
        brokers=_brokers(route, addresses, configs, errors),
        queues=_queues(route, stats),
        groups=sorted(names),
        errors=errors,
        denial=denial_of(stats.values()),
    )


def _ask_broker(client: Client, address: str, topic: str) -> Task[list[Any]]:
    """Ask a broker all about a topic; errors are values, also the first one.

    Returns the ends of its queues, its settings, and one or more lists of groups.
    """
    questions: list[Part] = [
        Request(address, get_topic_stats_info(topic)),
        Request(address, query_topic_consume_by_who(topic)),
    ]
    if client.known_version(address) is not None:
        questions.append(_ask_config(client, address, topic))
    ends, groups, *configs = yield All(questions)
    if isinstance(ends, RmqError):
        return [ends, None]
    # The broker has answered, so that its version is known now.
    (config,) = configs or (yield All([_ask_config(client, address, topic)]))
    if not isinstance(groups, RmqError) and topic in groups:
        (groups,) = yield All([_groups_of_5_3(address, topic, groups)])
    bound: list[Any] = []
    if isinstance(config, RmqError):
        bound = [config]
    elif config is not None and message_type([config]) == _LITE:
        bound = yield All([_groups_of_lite_topics(address, topic)])
    return [ends, config, groups, *bound]


def _groups_of_lite_topics(address: str, topic: str) -> Task[list[str]]:
    """Return the groups that are bound to a topic, and consume its lite topics.

    Brokers list no group with such a topic: offsets and subscriptions are those of the
    lite topics.
    """
    groups = yield Request(address, get_all_subscription_group_config())
    return [
        name
        for name, config in groups.items()
        if config.attributes.get(LITE_BIND_TOPIC) == topic
    ]


def _groups_of_5_3(address: str, topic: str, found: list[str]) -> Task[list[str]]:
    """Return the groups of a topic from a broker that listed the topic itself.

    5.3.3 lists the topic's name in place of the names of groups that are online without
    a committed offset. So all groups of the broker are asked for their subscriptions.
    Source: ConsumerManager.topicGroupTable.
    """
    groups = yield Request(address, get_all_subscription_group_config())
    answers = yield All(
        [Request(address, get_consumer_connection_list(each)) for each in groups]
    )
    online = []
    for group, answer in zip(groups, answers, strict=True):
        if isinstance(answer, RmqError):
            raise answer
        if answer is not None and topic in answer.subscriptions:
            online.append(group)
    return online + [name for name in found if name != topic or name in groups]


def topic_configs(
    client: Client, topic: str, addresses: Mapping[str, str]
) -> dict[str, TopicConfig | RmqError | None]:
    """Return the topic's settings by broker name; None where a broker lacks the topic.

    The brokers must have answered before, so that their versions are known: 4.x has no
    request for a single topic, and never answers that of 5.x.
    """
    for address in addresses.values():
        client.broker_version(address)
    tasks = [_ask_config(client, each, topic) for each in addresses.values()]
    return dict(zip(addresses, run_tasks(client, tasks), strict=True))


def _ask_config(client: Client, address: str, topic: str) -> Task[TopicConfig | None]:
    """Ask a broker whose version is known for a topic's settings."""
    if (client.known_version(address) or 0) < V5_0_0:
        table = yield Request(address, get_all_topic_config())
        return table.get(topic)  # type: ignore[no-any-return]  # of the answer
    try:
        return (yield Request(address, get_topic_config(topic)))  # type: ignore[no-any-return]
    except NotFoundError:
        return None


def batch_topics(client: Client, topics: Iterable[str]) -> list[str]:
    """Return those of `topics` that keep a batch as one record (queue.type=BatchCQ).

    A broker compares a filter with such a record, which has no tags, and not with the
    messages in it: it would leave out all of them. A topic whose settings a broker
    refuses to tell counts as one of these; brokers that do not answer are ignored.
    Raises NotFoundError for an unknown topic.

    Source: MessageBatch, CommitLog.checkMessageAndReturnSize (tagsCode).
    """
    found = []
    for topic in dict.fromkeys(topics):
        addresses = reader_addresses(client.route(topic).brokers)
        versions = ask_each(client, addresses, get_broker_runtime_info())
        may_have = {  # a refusal tells the version, too
            name: address
            for name, address in addresses.items()
            if isinstance(versions[name], dict | BrokerError)
            and client.broker_version(address) >= V5_0_0
        }
        for config in topic_configs(client, topic, may_have).values():
            if isinstance(config, BrokerError) or (
                isinstance(config, TopicConfig)
                and config.attributes.get("queue.type") == "BatchCQ"
            ):
                found.append(topic)
                break
    return found


def topics_without_tag_filter(client: Client, topics: Iterable[str]) -> list[str]:
    """Return those of `topics` in which a broker would hide messages with a tag.

    In a batch that is kept as one record (see `batch_topics`), and in the topic of the
    delay levels, where the time of delivery is stored in place of the tag's hash.

    Source: CommitLog.checkMessageAndReturnSize (tagsCode).
    """
    given = list(dict.fromkeys(topics))
    others = [topic for topic in given if topic != SCHEDULE_TOPIC]
    found = set(batch_topics(client, others))
    return [topic for topic in given if topic == SCHEDULE_TOPIC or topic in found]


def _brokers(
    route: TopicRoute,
    addresses: Mapping[str, str],
    configs: Mapping[str, TopicConfig | RmqError | None],
    errors: Mapping[str, RmqError],
) -> list[TopicBroker]:
    rows = []
    perms = {data.broker_name: data.perm for data in route.queues}
    for broker in sorted(route.brokers, key=lambda b: b.broker_name):
        config = configs.get(broker.broker_name)
        rows.append(
            TopicBroker(
                broker_name=broker.broker_name,
                cluster=broker.cluster,
                address=addresses.get(broker.broker_name),
                config=None if isinstance(config, RmqError) else config,
                error=errors.get(broker.broker_name),
                route_perm=perms.get(broker.broker_name),
            )
        )
    return rows


def _queues(
    route: TopicRoute,
    stats: Mapping[str, dict[MessageQueue, TopicOffset] | RmqError],
) -> list[TopicQueue]:
    """Return all queues of the route, and those that only a broker reports."""
    offsets: dict[MessageQueue, TopicOffset | None] = {
        MessageQueue(route.topic, data.broker_name, queue_id): None
        for data in route.queues
        for queue_id in range(max(data.read_queue_nums, data.write_queue_nums))
    }
    for answer in stats.values():
        if not isinstance(answer, RmqError):
            offsets.update(answer)
    return [TopicQueue(queue, offsets[queue]) for queue in sorted(offsets)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicChange:
    """Settings to change; None keeps the current value, or a new topic's default."""

    queue_nums: int | None = None
    perm: int | None = None
    order: bool | None = None
    attributes: dict[str, str] = field(default_factory=dict, hash=False)
    #: attributes to remove, which then have their defaults
    removed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise TypeError or ConfigError for a value that is not possible."""
        ranges = {
            "queue_nums": (1, QUEUE_NUMS_MAX),
            "perm": (0, PERM_READ | PERM_WRITE),
        }
        check_fields(self, ranges=ranges)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicResult:
    """What became of a change on one server.

    `result` is `created`, `changed`, `unchanged`, `deleted`, `failed`, or `unknown`
    where an answer was lost. `address` is None for a broker that could not be asked.
    """

    server: str
    address: str | None
    result: str
    config: TopicConfig | None = field(default=None, hash=False)
    error: RmqError | None = None


def choose_masters(
    client: Client, *, cluster: str | None, brokers: Collection[str]
) -> dict[str, str | None]:
    """Choose the brokers to change something on; return their masters' addresses.

    When neither `cluster` nor `brokers` is given, they are those of the only cluster.
    The address is None where only slaves are left, and of a broker that has left the
    route: what is asked of such a broker or changed on it fails, and the others do what
    they are told. With several clusters, the record of earlier runs does not say which
    of them a broker has left, and it is not among them. Raises UsageError when
    there are several clusters, and NotFoundError for a name that does not exist, for
    one of `brokers` without a master, and when no broker has one.
    """
    info = client.cluster_info()
    masters = client.masters()
    if brokers:
        for name in brokers:
            if name not in masters:
                raise _no_master(name, info)
        return {name: masters[name] for name in sorted(brokers)}
    clusters = sorted(info.clusters)
    if cluster is None:
        if len(clusters) > 1:
            raise ConfigError(
                f"there are {len(clusters)} clusters: {', '.join(clusters)}",
                hint=Hint("name one: ", Setting("cluster", clusters[0])),
            )
        names = set(info.brokers)
    elif cluster in info.clusters:
        names = info.clusters[cluster] & info.brokers.keys()
    else:
        raise not_found("cluster", cluster, hint=use_one_of(clusters))
    if not names & masters.keys():
        raise _no_master(min(names or info.brokers), info)
    names = {*names, *departed_errors(client)}
    return {name: masters.get(name) for name in sorted(names)}


def create_topic(
    client: Client, topic: str, masters: Addresses, change: TopicChange
) -> list[TopicResult]:
    """Create `topic` on `masters`; return one result for each.

    A broker that already has the topic with the settings of `change` is left alone, so
    that a creation that failed on some brokers can be repeated. Where the topic exists
    with other settings, the result is `failed`. Raises UnsupportedError, before
    anything is changed, when `change` has attributes and a broker is older than 5.0,
    and NoBrokerError when no broker answers.
    """
    known, failed = _known_configs(client, topic, masters, change)
    wanted = {n: _changed(topic, None, change) for n, at in known.items() if at is None}
    unchanged: dict[str, TopicConfig] = {}
    for name, config in known.items():
        if config is None:
            continue
        if _is_same(_changed(topic, config, change), config, change):
            unchanged[name] = config
        else:
            failed[name] = RefusedError(
                f"topic {topic} exists on {name} with other settings:"
                f" {_differences(config, change)}",
                hint=_how_to_change(topic, config, change),
            )
    return _write(client, masters, wanted, unchanged, failed, change, done="created")


def update_topic(
    client: Client,
    topic: str,
    masters: Addresses,
    change: TopicChange,
    *,
    before: Mapping[str, TopicConfig | RmqError | None],
) -> list[TopicResult]:
    """Change the given settings of `topic`; return one result for each of `masters`.

    `before` is what `known_configs` returned when it was decided what the change may
    remove: masters that did not tell their settings then are left alone. Other settings
    keep their values. On a master without the topic the result is `failed`. Raises
    NotFoundError when all masters answer and none of them has the topic, or an
    attribute to remove, and the other errors of `create_topic`.
    """
    known, failed = _known_configs(client, topic, masters, change)
    for name, error in before.items():
        if isinstance(error, RmqError):
            known.pop(name, None)
            failed[name] = error
    if have_left(failed.values()) and all(each is None for each in known.values()):
        raise not_found("topic", topic, hint=_how_to_create(topic))
    if not failed:
        there = [each.attributes for each in known.values() if each is not None]
        check_removed(f"topic {topic}", there, change.removed)
    wanted: dict[str, TopicConfig] = {}
    unchanged: dict[str, TopicConfig] = {}
    for name, config in known.items():
        if config is None:
            failed[name] = not_found("topic", topic, hint=_how_to_create(topic))
            continue
        changed = _changed(topic, config, change)
        if _is_same(changed, config, change):
            unchanged[name] = config
        else:
            wanted[name] = changed
    return _write(client, masters, wanted, unchanged, failed, change, done="changed")


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedQueues:
    """Queues `first` to `last` of a broker, which a change would remove.

    `messages` counts what they store; None when that is not known.
    """

    broker_name: str
    first: int
    last: int
    messages: int | None

    def __str__(self) -> str:
        queues = f"queues {self.first} to {self.last} of {self.broker_name}"
        if self.first == self.last:
            queues = f"queue {self.first} of {self.broker_name}"
        if self.messages is None:
            return f"{queues}, with an unknown number of messages"
        return f"{queues}, with {counted(self.messages, 'message')}"


def removed_queues(
    broker_name: str,
    kept: int,
    config: TopicConfig,
    ends: Mapping[MessageQueue, TopicOffset] | RmqError,
) -> RemovedQueues:
    """Return the queues of a broker's topic that go when `kept` of them remain.

    `config` is what the broker has now, `ends` what it answered about the queues.
    """
    messages = None
    if not isinstance(ends, RmqError):
        messages = sum(
            max(0, offset.max_offset - offset.min_offset)
            for queue, offset in ends.items()
            if queue.queue_id >= kept
        )
    return RemovedQueues(
        broker_name=broker_name,
        first=kept,
        last=_queue_nums(config) - 1,
        messages=messages,
    )


def _queue_nums(config: TopicConfig) -> int:
    return max(config.read_queue_nums, config.write_queue_nums)


def queues_lost_by(
    client: Client,
    topic: str,
    masters: Addresses,
    change: TopicChange,
    known: Mapping[str, TopicConfig | RmqError | None],
) -> list[RemovedQueues]:
    """Return the queues that `change` would remove and that may store messages.

    Consumers and `rmq` can no longer read them, until the topic has as many queues
    again. `known` is what `known_configs` returned. Sorted by broker name.
    """
    if change.queue_nums is None:
        return []
    kept = change.queue_nums
    before = {
        name: config
        for name, config in sorted(known.items())
        if isinstance(config, TopicConfig) and _queue_nums(config) > kept
    }
    asked = {name: masters[name] for name in before}
    ends = ask_each(client, asked, get_topic_stats_info(topic))
    lost = [removed_queues(n, kept, config, ends[n]) for n, config in before.items()]
    return [each for each in lost if each.messages != 0]


def known_configs(
    client: Client,
    topic: str,
    masters: Addresses,
    change: TopicChange = TopicChange(),  # noqa: B008  # it is frozen
) -> dict[str, TopicConfig | RmqError | None]:
    """Return the topic's settings by master, None without it, or the master's error.

    Raises NoBrokerError when no broker answers, and UnsupportedError for attributes of
    `change` that a master does not support.
    """
    known, failed = _known_configs(client, topic, masters, change)
    return {name: failed.get(name, known.get(name)) for name in masters}


def _known_configs(
    client: Client, topic: str, masters: Addresses, change: TopicChange
) -> tuple[dict[str, TopicConfig | None], dict[str, RmqError]]:
    """Return the topic's settings by master, None without the topic, and errors.

    Raises UnsupportedError for attributes that a master does not support, and
    NoBrokerError when no broker answers.
    """
    # Any answer has the broker's version, which decides how to query the topic. Brokers
    # of 5.x refuse to give their figures in the second in which they start.
    versions = ask_each(client, masters, get_broker_runtime_info())
    failed = {
        name: answer
        for name, answer in versions.items()
        if isinstance(answer, RmqError)
        and (masters[name] is None or not isinstance(answer, BrokerError))
    }
    client.raise_if_none_answers(failed.values())
    answering = with_address(masters, failed)
    if change.attributes or change.removed:
        check_attributes(client, answering)
    known, errors = split_answers(topic_configs(client, topic, answering))
    return known, failed | errors


def _write(
    client: Client,
    masters: Addresses,
    wanted: Mapping[str, TopicConfig],
    unchanged: Mapping[str, TopicConfig],
    failed: Mapping[str, RmqError],
    change: TopicChange,
    *,
    done: str,
) -> list[TopicResult]:
    """Write the settings `wanted`, and read them back.

    Returns one result for each of `masters`. The fixed queues of an ordered topic are
    stored first, because brokers take from there, as soon as they register, whether it
    is ordered; then there is also a result for each name server. Raises PartialError
    when one does not store them: then no broker was changed.
    """
    failed = dict(failed)
    at = with_address(masters, failed)
    results = {
        name: _result(name, at[name], "unchanged", config)
        for name, config in unchanged.items()
    }
    both = {**unchanged, **wanted}
    topic = next((each.topic_name for each in both.values()), "")
    sets_order = change.order is not None or (
        change.queue_nums is not None and any(each.order for each in both.values())
    )
    order = None
    if both and sets_order:
        call = get_kv_config(NAMESPACE_ORDER_TOPIC_CONFIG, topic)
        listed = run_task(client, client.ask_namesrvs(call))
        order = _Order(known_configs(client, topic, client.masters()), listed)
    steps = [] if order is None else order.fix(client, topic, both)
    unfixed = {(topic, s.server): s.error for s in steps if s.error is not None}
    if order is not None and unfixed:
        raise not_fixed(client, {topic: order.listed}, unfixed)
    answers = change_many(
        client,
        {
            n: (at[n], update_and_create_topic(c, removed=change.removed))
            for n, c in wanted.items()
        },
        look=_how_to_look(topic),
    )
    written = {
        name: at[name]
        for name, answer in answers.items()
        if not isinstance(answer, RmqError) or isinstance(answer, ChangeUnknownError)
    }
    read = topic_configs(client, topic, written)
    for name, answer in answers.items():
        is_lost = isinstance(answer, ChangeUnknownError)
        if isinstance(answer, RmqError) and not is_lost:
            attributes = wanted[name].attributes
            failed[name] = about_attribute(
                client, at, name, "topic", attributes, answer
            )
            continue
        found = read[name]
        knows_order = client.broker_version(at[name]) >= V5_0_0
        fault = _fault(name, wanted[name], found, change, knows_order=knows_order)
        if fault is not None or not isinstance(found, TopicConfig):
            error = fault or PartialError(f"{name} does not show topic {topic}")
            failed[name] = answer if isinstance(answer, RmqError) else error
            continue
        results[name] = _result(name, at[name], done, found)
    for name, error in failed.items():
        results[name] = _result(name, masters[name], error)
    refused = {name for name in wanted if results[name].result == "failed"}
    if order is not None and steps and refused:
        order = replace(order, listed=order.listed or "")  # there is one now
        kept = {name: config for name, config in both.items() if name not in refused}
        steps = order.fix(client, topic, kept)
        if not kept:  # it is as if nothing had been asked for
            steps = [step for step in steps if step.error is not None]
    return [results[name] for name in masters] + steps


def _fault(
    name: str,
    wanted: TopicConfig,
    found: TopicConfig | RmqError | None,
    change: TopicChange,
    *,
    knows_order: bool,
) -> RmqError | None:
    """Return what is wrong with the settings that were read back, if anything.

    Without `knows_order` the broker is of 4.x, and learns only when it registers again,
    from the name server, whether the topic is ordered.
    """
    topic = wanted.topic_name
    if isinstance(found, RmqError):
        return not_shown(name, f"topic {topic}", found, look=_how_to_look(topic))
    if found is not None and not knows_order:
        found = replace(found, order=wanted.order)
    if found is not None and not _is_same(wanted, found, change):
        return PartialError(
            f"{name} confirmed the settings of topic {topic}, but has others"
        )
    return None


def fixed_queues_call(
    topic: str, configs: Mapping[str, TopicConfig | RmqError | None], listed: str | None
) -> Call[None] | None:
    """Return the request to name servers that makes a topic's fixed queues right.

    These are the queues of the brokers where it is ordered; brokers take from there
    when they register whether it is. `configs` are its settings by broker, as they are
    to be: None without it, an error where they are not known. `listed` is the present
    list, None without one: brokers whose settings are not known keep their part. None
    if there is none to be.
    """
    parts = dict(
        part.rsplit(":", 1) for part in (listed or "").split(";") if ":" in part
    )
    for name, config in configs.items():
        if isinstance(config, RmqError):
            continue
        parts.pop(name, None)
        if config is not None and config.order:
            parts[name] = str(config.write_queue_nums)
    text = ";".join(f"{name}:{count}" for name, count in sorted(parts.items()))
    return _list_call(topic, text or None) if text or listed is not None else None


def _list_call(topic: str, text: str | None) -> Call[None]:
    """Return the request to name servers to store a topic's list, or none."""
    if text is None:
        return delete_kv_config(NAMESPACE_ORDER_TOPIC_CONFIG, topic)
    return put_kv_config(NAMESPACE_ORDER_TOPIC_CONFIG, topic, text)


def not_fixed(
    client: Client,
    listed: Mapping[str, str | None],
    errors: Mapping[tuple[str, str], RmqError],
) -> PartialError:
    """Return the error for fixed queues that not every name server has stored.

    `listed` is what topics had before, None for nothing; name servers that may have
    stored something else get it back, because brokers that register would take it from
    there. `errors` are those of topics on name servers.
    """
    calls = {
        (topic, server): (server, _list_call(topic, text))
        for topic, text in listed.items()
        for server in client.config.namesrv
        if isinstance(errors.get((topic, server)), ChangeUnknownError | None)
    }
    kept = [key for key, e in change_many(client, calls).items() if e is not None]
    (topic, server), error = next(iter(errors.items()))
    may_have = f"; {kept[0][1]} may have those of topic {kept[0][0]}" if kept else ""
    return PartialError(
        f"name server {server} did not store the fixed queues of topic {topic}, so no"
        f" broker was changed: {error.message}{may_have}",
        hint=error.hint,
    )


@dataclass(frozen=True, slots=True)
class _Order:
    """A topic's settings on all brokers, and its list of fixed queues."""

    configs: Mapping[str, TopicConfig | RmqError | None]
    listed: str | None

    def fix(
        self, client: Client, topic: str, changed: Mapping[str, TopicConfig]
    ) -> list[TopicResult]:
        """Store the list in every name server; return one result for each.

        `changed` are the settings on the brokers that are changed.
        """
        call = fixed_queues_call(topic, {**self.configs, **changed}, self.listed)
        if call is None:
            return []
        servers = {address: address for address in client.config.namesrv}
        again = "repeat the change to finish it"
        answers = change_each(client, servers, call, look=again)
        return _steps(servers, answers, done="changed")


def publish(
    client: Client, topic: str, steps: Iterable[TopicResult], *, timeout_ms: int
) -> bool:
    """Wait until name servers know about the steps of brokers that succeeded.

    Returns False when the name server does not list the topic on these brokers within
    `timeout_ms`.
    """
    done = {step.server for step in steps if step.config is not None}
    if not done:
        return True
    deadline = Deadline(client.clock, timeout_ms)
    return run_task(client, _await_route(client, topic, done, deadline))


def _await_route(
    client: Client, topic: str, brokers: set[str], deadline: Deadline
) -> Task[bool]:
    while True:
        queues: tuple[QueueData, ...] = ()
        try:
            route = yield from client.ask_namesrvs(get_route_info_by_topic(topic))
        except NotFoundError:
            pass  # the brokers have not registered it yet
        else:
            client.remember(topic, route)
            queues = route.queues
        if {queue.broker_name for queue in queues} >= brokers:
            return True
        if deadline.is_over():
            return False
        yield Sleep(min(_ROUTE_POLL_MS, deadline.left_ms()))


def check_may_delete(client: Client, topic: str) -> TopicRoute:
    """Return the route of a topic that may be deleted.

    That of any name server: one may list the topic after an earlier deletion, which it
    did not take. Raises NotFoundError for an unknown topic, RefusedError for a system
    topic.
    """
    try:
        route = client.route(topic)
    except NotFoundError:
        call = get_route_info_by_topic(topic)
        asking = client.ask_namesrvs(call, needs_all_for_not_found=True)
        route = run_task(client, asking)
        client.remember(topic, route)
    if topic_kind(topic, client.cluster_info()) == "system":
        raise RefusedError(f"topic {topic} is a system topic; nothing was deleted")
    return route


def delete_topic(client: Client, route: TopicRoute) -> list[TopicResult]:
    """Delete the topic on every broker of its route, and then in every name server.

    The brokers come first, because a broker that still has the topic would register it
    again. If one fails, name servers are not asked: they would forget the route to
    messages that are still there, and the deletion could not be repeated. A broker that
    has left the route is a failure, too: a topic that it has comes back with it. Raises
    NoBrokerError when no broker answers in time; its hint says if the topic may have
    been deleted nevertheless.
    """
    topic = route.topic
    brokers = {each.broker_name: each for each in route.brokers}
    gone = departed_errors_of(client, [topic]) | departed_errors(client)
    masters: dict[str, str] = {}
    failed: dict[str, RmqError] = {}
    for name in sorted(brokers):
        if (address := brokers[name].master_address) is not None:
            masters[name] = address
        else:
            failed[name] = no_master(name)
    look = _how_to_look(topic)
    deleted = change_each(client, masters, delete_topic_in_broker(topic), look=look)
    deleted = _read_back_deletion(client, topic, masters, deleted)
    try:
        client.raise_if_none_answers(
            each.__cause__ if isinstance(each.__cause__, DeadlineError) else each
            for each in deleted.values()
            if each is not None
        )
    except NoBrokerError as error:
        if any(isinstance(each, ChangeUnknownError) for each in deleted.values()):
            error.hint = Hint("the topic may have been deleted; ", look)
        raise
    results = _steps(masters, deleted, done="deleted") + _failures(failed)
    if all(each.error is None for each in results):
        servers = {address: address for address in client.config.namesrv}
        # Errors do not matter: most topics have no such entry, and name servers leave
        # it out of routes by default.
        ask_each(client, servers, delete_kv_config(NAMESPACE_ORDER_TOPIC_CONFIG, topic))
        call = delete_topic_in_namesrv(topic)
        again = "repeat the deletion to finish it"
        answers = change_each(client, servers, call, look=again)
        lost = {n: at for n, at in servers.items() if answers[n] is not None}
        shown = ask_each(client, lost, get_route_info_by_topic(topic))
        for name, answer in shown.items():
            is_lost = isinstance(answers[name], ChangeUnknownError)
            if is_lost and isinstance(answer, NotFoundError):
                answers[name] = None
        results += _steps(servers, answers, done="deleted")
    return results + _failures(gone)


def _read_back_deletion(
    client: Client,
    topic: str,
    masters: Mapping[str, str],
    answers: Mapping[str, RmqError | None],
) -> dict[str, RmqError | None]:
    """Return the errors of a deletion, corrected by what brokers have afterwards.

    A broker that does not show whether it has the topic changes nothing about what it
    answered.
    """
    asked = {
        name: at
        for name, at in masters.items()
        if isinstance(answers[name], ChangeUnknownError | None)
    }
    # Any answer has the broker's version, which decides how to query the topic.
    new = {n: at for n, at in asked.items() if client.known_version(at) is None}
    ask_each(client, new, get_broker_runtime_info())
    known = {n: at for n, at in asked.items() if client.known_version(at) is not None}
    corrected = dict(answers)
    for name, config in topic_configs(client, topic, known).items():
        if config is None:
            corrected[name] = None
        elif isinstance(config, TopicConfig) and corrected[name] is None:
            corrected[name] = PartialError(
                f"{name} confirmed the deletion of topic {topic}, but has it afterwards"
            )
    return corrected


def _failures(errors: Mapping[str, RmqError]) -> list[TopicResult]:
    """The results of brokers that could not be asked."""
    return [_result(name, None, error) for name, error in errors.items()]


def _steps(
    addresses: Mapping[str, str], answers: Mapping[str, RmqError | None], *, done: str
) -> list[TopicResult]:
    return [_result(n, at, answers[n] or done) for n, at in addresses.items()]


def _result(
    server: str,
    address: str | None,
    result: str | RmqError,
    config: TopicConfig | None = None,
) -> TopicResult:
    """Return the result of a server: a word, or the error that it failed with."""
    error = result if isinstance(result, RmqError) else None
    word = failed_word(result) if isinstance(result, RmqError) else result
    return TopicResult(
        server=server, address=address, result=word, config=config, error=error
    )


def _how_to_look(topic: str) -> str:
    return Hint("see whether it was done: ", LibraryCall("Admin.topic", topic))


def _changed(topic: str, known: TopicConfig | None, change: TopicChange) -> TopicConfig:
    """Return the settings to write: all of them, because a broker replaces them all."""
    config = known or TopicConfig(
        topic_name=topic,
        read_queue_nums=QUEUE_NUMS_DEFAULT,
        write_queue_nums=QUEUE_NUMS_DEFAULT,
        perm=PERM_DEFAULT,
    )
    if change.queue_nums is not None:
        config = replace(
            config,
            read_queue_nums=change.queue_nums,
            write_queue_nums=change.queue_nums,
        )
    if change.perm is not None:
        config = replace(config, perm=change.perm)
    if change.order is not None:
        config = replace(config, order=change.order)
    # Attributes are written as changes: a broker keeps those that are not named.
    return replace(config, attributes=change.attributes)


def _is_same(config: TopicConfig, known: TopicConfig, change: TopicChange) -> bool:
    has_attributes = change.attributes.items() <= known.attributes.items()
    if known.attributes.keys() & set(change.removed):
        return False
    return has_attributes and replace(config, attributes={}) == replace(
        known, attributes={}
    )


def _differences(known: TopicConfig, change: TopicChange) -> str:
    """Say which settings of `change` a topic does not have, and what it has instead."""
    parts = []
    nums = {known.read_queue_nums, known.write_queue_nums}
    if change.queue_nums is not None and nums != {change.queue_nums}:
        has = "/".join(map(str, sorted(nums)))
        noun = "queue" if nums == {1} else "queues"
        parts.append(f"{has} {noun}, not {change.queue_nums}")
    if change.perm not in (None, known.perm):
        perms = [perm_text([perm]) for perm in (known.perm, change.perm or 0)]
        parts.append(f"permissions {perms[0]}, not {perms[1]}")
    if change.order not in (None, known.order):
        parts.append("not ordered" if change.order else "ordered")
    for name, value in change.attributes.items():
        if known.attributes.get(name) != value:
            has = known.attributes.get(name, "not set")
            parts.append(f"{name.removeprefix('+')} {has}, not {value}")
    return ", ".join(parts)


def _how_to_change(topic: str, known: TopicConfig, change: TopicChange) -> str:
    """Name the call that gives a topic the settings that it does not have."""
    call = LibraryCall("Admin.update_topic", topic)
    wanted: list[Setting] = []
    nums = change.queue_nums
    if nums is not None and {known.read_queue_nums, known.write_queue_nums} != {nums}:
        wanted.append(Setting("queue_nums", nums))
    if change.perm not in (None, known.perm):
        wanted.append(Setting("perm", change.perm))
    if change.order not in (None, known.order):
        wanted.append(Setting("order", change.order))
    attributes = {
        name: value
        for name, value in change.attributes.items()
        if known.attributes.get(name) != value
    }
    if attributes:
        wanted.append(Setting("attributes", attributes))
    return Hint("change them with: ", call, ForPrograms(" with"), " ", *wanted)


def _how_to_create(topic: str) -> str:
    return Hint("create it with: ", LibraryCall("Admin.create_topic", topic))


def check_attributes(client: Client, masters: Mapping[str, str]) -> None:
    """Raise UnsupportedError for a broker without attributes, which came with 5.0."""
    for name, address in masters.items():
        version = client.broker_version(address)
        if version < V5_0_0:
            raise UnsupportedError(
                f"{name} runs RocketMQ {version_name(version)}, and attributes need"
                f" {version_name(V5_0_0)}"
            )


def check_removed(
    of: str, attributes: Iterable[Mapping[str, str]], removed: Iterable[str]
) -> None:
    """Raise NotFoundError for the first of `removed` that is set nowhere.

    `attributes` are those on each master of what `of` names: a topic or a group.
    Brokers refuse it, too: "attempt to delete a nonexistent key".
    """
    known = {name for each in attributes for name in each}
    there = f"its attributes: {', '.join(sorted(known))}" if known else "it has none"
    for name in removed:
        if name not in known:
            near = similar(name, known)
            raise NotFoundError(
                f"{of} has no attribute {name}"
                + (f"; did you mean {' or '.join(near)}?" if near else ""),
                code=ResponseCode.QUERY_NOT_FOUND,
                hint="" if near else there,
            )


def about_attribute(
    client: Client,
    masters: Mapping[str, str],
    name: str,
    kind: NameKind,
    attributes: Mapping[str, str],
    answer: RmqError,
) -> RmqError:
    """Return a broker's refusal with the attribute that it does not accept, if any.

    Source: AttributeUtil.validateAlter, Attribute.verify. The text is alone for a
    topic, and between the names of an exception and of a method for a group.
    """
    remark = answer.remark if isinstance(answer, BrokerError) else ""
    remark = _JAVA_EXCEPTION.sub(r"\1", remark)
    what, _, attribute = remark.rpartition("key: ")
    if what == "unsupported ":
        version = version_name(client.broker_version(masters[name]))
        return UnsupportedError(
            f"{name}, which runs RocketMQ {version}, does not know the attribute"
            f" {attribute}"
        )
    if what == "attempt to update an unchangeable attribute. ":
        return UnsupportedError(
            f"{name} does not allow changes of the attribute {attribute} of an"
            f" existing {kind}",
            hint=f"delete the {kind} and create it again, or create another one",
        )
    refusals = ("value is not in", "attribute format", "For input string")
    if any(each in remark for each in refusals):
        given = ", ".join(f"{k}={v}" for k, v in sorted(attributes.items()))
        return UnsupportedError(f"{name} does not accept {given}: {remark}")
    return answer


def _no_master(name: str, info: ClusterInfo) -> NotFoundError:
    if name not in info.brokers:
        return not_found("broker", name, hint=use_one_of(info.brokers))
    return no_master(name)
