"""Creating, changing and deleting a topic, broker by broker, with a result for each.

There is no transaction over several servers: what was done stays done, and running
the same again does the rest.

Source: UpdateTopicSubCommand, DeleteTopicSubCommand and
DefaultMQAdminExtImpl.createOrUpdateOrderConf in apache/rocketmq.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rmqcli.admin.brokers_ask import ask_each, ask_many
from rmqcli.admin.topics import topic_kind
from rmqcli.admin.topics_show import topic_configs
from rmqcli.api.calls_config import (
    delete_topic_in_broker,
    get_broker_runtime_info,
    update_and_create_topic,
)
from rmqcli.api.calls_namesrv import (
    delete_kv_config,
    delete_topic_in_namesrv,
    put_kv_config,
)
from rmqcli.clock import Deadline
from rmqcli.errors import (
    NotFoundError,
    RefusedError,
    RmqError,
    UnsupportedError,
    UsageError,
)
from rmqcli.wire.bodies_config import TopicConfig
from rmqcli.wire.codes import ResponseCode
from rmqcli.wire.version import V5_0_0, version_name

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from rmqcli.api.client import Client
    from rmqcli.model import TopicRoute

QUEUE_NUMS_DEFAULT = 8
PERM_DEFAULT = 6
QUEUE_NUMS_MAX = 65_535

NAMESPACE_ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"  # NamesrvUtil

_ROUTE_POLL_MS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicChange:
    """What to set; None keeps what is, or takes the default of a new topic."""

    queue_nums: int | None = None
    perm: int | None = None
    order: bool | None = None
    attributes: dict[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What one server did: `created`, `changed`, `unchanged`, `deleted`, `failed`."""

    server: str
    address: str
    result: str
    config: TopicConfig | None = field(default=None, hash=False)
    error: RmqError | None = None


def choose_masters(
    client: Client, *, cluster: str | None, brokers: Collection[str]
) -> dict[str, str]:
    """Broker name to address of the masters to create a topic on.

    Without a choice: those of the only cluster. Raises UsageError when there are
    several, NotFoundError for a name that does not exist.
    """
    info = client.cluster_info()
    masters = client.masters()
    if brokers:
        for name in brokers:
            if name not in masters:
                raise _not_found(f"no master of broker {name!r}", sorted(masters))
        return {name: masters[name] for name in sorted(brokers)}
    clusters = sorted(info.clusters)
    if cluster is None:
        if len(clusters) > 1:
            raise UsageError(
                f"there are {len(clusters)} clusters: {', '.join(clusters)}",
                hint=f"name one: --cluster {clusters[0]}",
            )
        names = set(masters)
    elif cluster in info.clusters:
        names = set(info.clusters[cluster])
    else:
        raise _not_found(f"no cluster {cluster!r}", clusters)
    chosen = {name: masters[name] for name in sorted(names & masters.keys())}
    if not chosen:
        raise _not_found("no broker has a master now", [])
    return chosen


def create_topic(
    client: Client, topic: str, masters: Mapping[str, str], change: TopicChange
) -> list[StepResult]:
    """Create `topic` on `masters`, or change what is there; one result for each.

    Raises UnsupportedError, with nothing done, when attributes are asked of a 4.x.
    """
    # Any answer tells the version, which decides how the rest is asked.
    versions = ask_each(client, masters, get_broker_runtime_info())
    failed = {n: a for n, a in versions.items() if isinstance(a, RmqError)}
    answering = {n: a for n, a in masters.items() if n not in failed}
    if change.attributes:
        _check_attributes(client, answering)
    existing = topic_configs(client, topic, answering)
    wanted: dict[str, TopicConfig] = {}
    results: dict[str, StepResult] = {}
    for name, address in answering.items():
        known = existing[name]
        if isinstance(known, RmqError):
            failed[name] = known
            continue
        config = _changed(topic, known, change)
        if known is not None and _is_same(config, known, change):
            results[name] = StepResult(
                server=name, address=address, result="unchanged", config=known
            )
            continue
        wanted[name] = config
    answers = ask_many(
        client,
        {n: (masters[n], update_and_create_topic(c)) for n, c in wanted.items()},
    )
    for name, answer in answers.items():
        if isinstance(answer, RmqError):
            failed[name] = answer
            continue
        results[name] = StepResult(
            server=name,
            address=masters[name],
            result="created" if existing[name] is None else "changed",
            config=wanted[name],
        )
    for name, error in failed.items():
        results[name] = StepResult(
            server=name, address=masters[name], result="failed", error=error
        )
    return [results[name] for name in masters]


def set_order_conf(
    client: Client, topic: str, results: Collection[StepResult]
) -> list[StepResult]:
    """Tell every name server the topic's fixed queues, as ordered topics need it."""
    parts = [
        f"{step.server}:{step.config.write_queue_nums}"
        for step in results
        if step.config is not None
    ]
    call = put_kv_config(NAMESPACE_ORDER_TOPIC_CONFIG, topic, ";".join(parts))
    servers = {address: address for address in client.config.namesrv}
    answers = ask_each(client, servers, call)
    return _steps(servers, answers, done="changed")


def await_route(
    client: Client, topic: str, brokers: Collection[str], *, timeout_ms: int
) -> bool:
    """Wait until the name server shows the topic on all `brokers`; return whether."""
    deadline = Deadline(client.clock, timeout_ms)
    never = threading.Event()
    while True:
        try:
            queues = client.route(topic, refresh=True).queues
        except NotFoundError:
            queues = ()
        if {queue.broker_name for queue in queues} >= set(brokers):
            return True
        if deadline.is_over():
            return False
        client.clock.wait_ms(never, min(_ROUTE_POLL_MS, deadline.left_ms()))


def check_may_delete(client: Client, topic: str) -> TopicRoute:
    """The route of a topic that may be deleted.

    Raises NotFoundError for an unknown one, RefusedError for one of RocketMQ's own.
    """
    route = client.route(topic)
    if topic_kind(topic, client.cluster_info()) == "system":
        raise RefusedError(f"topic {topic} is RocketMQ's own: nothing was deleted")
    return route


def delete_topic(client: Client, route: TopicRoute) -> list[StepResult]:
    """Delete the topic on every master of its route, then in every name server.

    Brokers first: one that still has the topic would announce it again.
    """
    topic = route.topic
    masters = {
        broker.broker_name: broker.master_address
        for broker in sorted(route.brokers, key=lambda b: b.broker_name)
        if broker.master_address is not None
    }
    deleted = ask_each(client, masters, delete_topic_in_broker(topic))
    results = _steps(masters, deleted, done="deleted")
    servers = {address: address for address in client.config.namesrv}
    # Most topics have none, and name servers tell routes without it by default.
    ask_each(client, servers, delete_kv_config(NAMESPACE_ORDER_TOPIC_CONFIG, topic))
    answers = ask_each(client, servers, delete_topic_in_namesrv(topic))
    return results + _steps(servers, answers, done="deleted")


def _steps(
    addresses: Mapping[str, str],
    answers: Mapping[str, RmqError | None],
    *,
    done: str,
) -> list[StepResult]:
    return [
        StepResult(
            server=name,
            address=address,
            result=done if answers[name] is None else "failed",
            error=answers[name],
        )
        for name, address in addresses.items()
    ]


def _changed(topic: str, known: TopicConfig | None, change: TopicChange) -> TopicConfig:
    """The settings to write: all of them, because a broker replaces all."""
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
    # Attributes are written as changes: those not named stay.
    return replace(config, attributes=change.attributes)


def _is_same(config: TopicConfig, known: TopicConfig, change: TopicChange) -> bool:
    has_attributes = change.attributes.items() <= known.attributes.items()
    return has_attributes and replace(config, attributes={}) == replace(
        known, attributes={}
    )


def _check_attributes(client: Client, masters: Mapping[str, str]) -> None:
    for name, address in masters.items():
        version = client.broker_version(address)
        if version < V5_0_0:
            raise UnsupportedError(
                f"--attribute: {name} runs RocketMQ {version_name(version)}, and"
                f" attributes need {version_name(V5_0_0)}"
            )


def _not_found(what: str, known: list[str]) -> NotFoundError:
    return NotFoundError(
        what,
        code=int(ResponseCode.BROKER_NOT_EXIST),
        name=ResponseCode.BROKER_NOT_EXIST.name,
        hint=f"there are: {', '.join(known)}" if known else "see: rmq brokers",
    )
