"""Whether the group that `group:G` names exists at all: a mistyped name is an error.

A group exists when a broker of the queues has its settings, an offset of it for any
topic, or a member of it online. One that exists may still have committed nothing in a
queue; what is done then is `position_search`'s and `positions`'.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.admin.lag.group_names import get_group_names
from rmqcli.api.calls.consumer import get_consumer_connection_list
from rmqcli.api.calls.offset import get_all_consumer_offset
from rmqcli.errors import BrokerError, NotFoundError, RmqError
from rmqcli.position import AtGroup
from rmqcli.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqcli.api.client import Client
    from rmqcli.model import MessageQueue
    from rmqcli.position import Position

_NOT_SUPPORTED = ResponseCode.REQUEST_CODE_NOT_SUPPORTED


def check_groups(
    client: Client,
    queues: Iterable[MessageQueue],
    positions: Iterable[Position | None],
) -> None:
    """Raise NotFoundError when a position names a group that no broker knows.

    Asks only when there is such a position. A broker that does not answer may know
    the group, so then nothing is raised: its queues cannot be read either.
    """
    groups = {p.group: None for p in positions if isinstance(p, AtGroup)}
    if not groups:
        return
    addresses: dict[str, str] = {}
    is_all = True
    for queue in sorted(queues):
        if queue.broker_name in addresses:
            continue
        try:
            addresses[queue.broker_name] = client.reader_of(queue)
        except RmqError:
            is_all = False
    for group in groups:
        _check_group(client, group, addresses, is_all=is_all)


def _check_group(
    client: Client, group: str, addresses: dict[str, str], *, is_all: bool
) -> None:
    targets = list(dict.fromkeys(addresses.values()))
    known: set[str] = set()
    for names in client.gather([client.submit(a, get_group_names()) for a in targets]):
        if isinstance(names, RmqError):
            is_all = False
        else:
            known.update(names)
    if group in known or not is_all:
        return
    members = [client.submit(a, get_consumer_connection_list(group)) for a in targets]
    tables = [client.submit(a, get_all_consumer_offset()) for a in targets]
    for connection in client.gather(members):
        if isinstance(connection, BrokerError) and connection.code == _NOT_SUPPORTED:
            continue  # a folder that is read without its broker has no members
        if connection is not None:  # it is online, or the broker did not say
            return
    for table in client.gather(tables):
        if isinstance(table, RmqError):
            return
        if any(name == group for name, _ in table):
            return
        known.update(name for name, _ in table)
    raise _no_group(group, sorted(addresses), known)


def _no_group(group: str, brokers: list[str], known: set[str]) -> NotFoundError:
    import difflib  # only when a name was mistyped

    near = difflib.get_close_matches(group, sorted(known), n=1)
    return NotFoundError(
        f"group {group} does not exist on {', '.join(brokers)}",
        code=int(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        name=ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST.name,
        hint=f"did you mean {near[0]}?" if near else "list groups with: rmq groups",
    )
