"""Finds what a name that does not exist was probably meant to be.

A name may be mistyped, or be that of another kind of thing: `rmq topic show billing`,
where billing is a group. The names of a cluster are read only after such an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.admin.brokers import ask_many, reader_addresses
from rmqcli.api.broker_errors import not_found
from rmqcli.api.calls.config import get_all_subscription_group_config
from rmqcli.api.calls.namesrv import get_all_topic_list
from rmqcli.errors import NotFoundError, RmqError
from rmqcli.names import similar

if TYPE_CHECKING:
    from rmqcli.api.client import Client
    from rmqcli.errors import NameKind

#: A broker that does not answer must not delay the error.
_TIMEOUT_MS = 1_000


def explain_missing(client: Client, error: NotFoundError) -> NotFoundError:
    """Return an error that also says which name was probably meant.

    Returns `error` itself if it is not about a name, if no name is similar, or if the
    names that exist cannot be read.
    """
    if error.missing is None:
        return error
    kind, name = error.missing
    try:
        known = _names(client)
    except RmqError:
        return error
    hint = error.hint
    near = similar(name, known[kind])
    others = [other for other, names in known.items() if name in names]
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
    answers = ask_many(
        client,
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
