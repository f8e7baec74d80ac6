"""What a wrong name or address was meant to be. It is found out after an error.

A name may be mistyped, or be that of another kind of thing: `rmq topic show billing`,
where billing is a group. An address may be that of another kind of server: a name
server and a broker speak the remoting protocol, and a proxy gRPC, so that such an
address only breaks connections.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rmqcli.admin.brokers import reader_addresses
from rmqcli.admin.lag.memory import check_departed, slave_errors
from rmqcli.api.broker_errors import not_found
from rmqcli.api.calls.config import (
    get_all_subscription_group_config,
    get_broker_runtime_info,
)
from rmqcli.api.calls.namesrv import get_all_topic_list, get_broker_cluster_info
from rmqcli.api.client import Client
from rmqcli.errors import (
    ConfigError,
    NotFoundError,
    PartialError,
    RmqError,
    TransportError,
)
from rmqcli.names import similar

if TYPE_CHECKING:
    from rmqcli.api.call import Call
    from rmqcli.config import ClientConfig
    from rmqcli.errors import NameKind

#: The error must not come much later because of this.
_TIMEOUT_MS = 1_000


def explain_missing(client: Client, error: NotFoundError) -> NotFoundError:
    """Return an error that also says which name was probably meant.

    Returns `error` itself if it is not about a name, if no name is similar, or if the
    names that exist cannot be read. Raises PartialError if the name was on a broker
    that has left the route.
    """
    if error.missing is None:
        return error
    kind, name = error.missing
    try:
        known = _names(client)
    except RmqError:
        return error
    check_departed(client, kind, name)
    if kind in ("topic", "group") and name not in known[kind]:
        for each in slave_errors(client.cluster_info().brokers.values()).values():
            raise PartialError(
                f"{kind} {name} is not known: {each.message}", hint=each.hint
            )
    hint = error.hint
    near = similar(name, known[kind])
    others = [other for other in known if other != kind and name in known[other]]
    if name in known[kind]:
        if not error.address:
            return error
        return not_found(
            kind,
            name,
            remark=error.remark,
            address=error.address,
            hint="a broker that was started or became master lately may not know it",
            is_elsewhere=True,
        )
    if others:
        meant = f"{name} is a {others[0]}"
    elif near:
        meant = f"did you mean {' or '.join(near)}?"
        hint = "" if hint == not_found(kind, name).hint else hint
    else:
        return error
    found = not_found(
        kind,
        name,
        meant=meant,
        remark=error.remark,
        address=error.address,
        hint=hint,
    )
    found.hint = hint
    return found


def _names(client: Client) -> dict[NameKind, set[str]]:
    """Return all names of the cluster; those of a broker that does not answer lack."""
    info = client.cluster_info()
    try:
        topics = client.namesrv(get_all_topic_list(), timeout_ms=_TIMEOUT_MS)
    except RmqError:  # 5.x can be configured to refuse this request
        topics = []
    call = get_all_subscription_group_config()
    answers = client.ask_many(
        {n: (a, call) for n, a in reader_addresses(info.brokers.values()).items()},
        timeout_ms=_TIMEOUT_MS,
    )
    groups = {
        group
        for answer in answers.values()
        if not isinstance(answer, RmqError)
        for group in answer
    }
    # RocketMQ has topics that are named after brokers and clusters.
    own = info.brokers.keys() | info.clusters.keys()
    return {
        "topic": set(topics) - own,
        "group": groups,
        "broker": set(info.brokers),
        "cluster": set(info.clusters),
    }


def not_a_proxy(address: str, config: ClientConfig) -> ConfigError | None:
    """Return the error for a name server or a broker at `address`; None for others.

    `config` has the TLS settings.
    """
    config = replace(config, namesrv=(address,), endpoints=(), timeout_ms=_TIMEOUT_MS)
    calls: tuple[Call[Any], ...] = (
        get_broker_cluster_info(),
        get_broker_runtime_info(),
    )
    with Client(config) as client:
        outcomes = client.gather([client.submit(address, call) for call in calls])
    if all(isinstance(each, TransportError) for each in outcomes):
        return None  # before 5.0 a server does not answer a request unknown to it
    is_namesrv, is_broker = (not isinstance(each, RmqError) for each in outcomes)
    kind = "a name server" if is_namesrv else "a broker" if is_broker else "a server"
    what = f"{kind} that speaks remoting" if kind == "a server" else kind
    return ConfigError(
        f"{address} is {what}, not a proxy",
        hint=f"give the address of a proxy, not of {kind}; its port for gRPC is 8081 by"
        " default",
    )
