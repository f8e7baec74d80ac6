"""Creating, changing and deleting a consumer group, broker by broker, with a result for
each.

There is no transaction over several brokers: what was done stays done, and running the
same again does the rest.

Source: UpdateSubGroupSubCommand and DeleteSubscriptionGroupCommand in apache/rocketmq.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING

from rmqcli.admin.brokers_ask import ask_each, ask_many
from rmqcli.admin.groups import group_kind
from rmqcli.admin.groups_show import show_group
from rmqcli.admin.topics_change import delete_topic
from rmqcli.api.calls_config import (
    delete_subscription_group,
    get_all_subscription_group_config,
    update_and_create_subscription_group,
)
from rmqcli.errors import NotFoundError, RefusedError, RmqError, UnsupportedError
from rmqcli.model import dlq_topic, retry_topic
from rmqcli.wire.bodies_config import SubscriptionGroupConfig
from rmqcli.wire.codes import ResponseCode
from rmqcli.wire.version import V4_9_0, V5_0_0, version_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqcli.api.client import Client

#: More members than this are not listed in a message.
_MEMBERS_LISTED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupChange:
    """What to set; None keeps what is, or takes the default of a new group."""

    consume_enable: bool | None = None
    consume_from_min_enable: bool | None = None
    consume_broadcast_enable: bool | None = None
    consume_message_orderly: bool | None = None
    retry_queue_nums: int | None = None
    retry_max_times: int | None = None
    broker_id: int | None = None
    which_broker_when_consume_slowly: int | None = None
    notify_consumer_ids_changed_enable: bool | None = None

    def given(self) -> dict[str, bool | int]:
        """The settings that are to be written, by their names."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupResult:
    """What one server did: `created`, `changed`, `unchanged`, `deleted` or `failed`.

    `name` is the group, or one of its topics that was deleted with it. `config` is what
    the broker has now, None for a group that is not there or not known.
    """

    name: str
    server: str
    address: str
    result: str
    config: SubscriptionGroupConfig | None = field(default=None, hash=False)
    error: RmqError | None = None


def create_group(
    client: Client, group: str, masters: Mapping[str, str], change: GroupChange
) -> list[GroupResult]:
    """Create `group` on `masters`; one result for each.

    Where it exists with the settings of `change` nothing is done, so that a creation
    that failed on one broker can be repeated; with others it fails there. Raises
    UnsupportedError, with nothing done, for a setting that a broker does not know.
    """
    config = replace(SubscriptionGroupConfig(group_name=group), **change.given())  # type: ignore[arg-type]  # by name
    results: dict[str, GroupResult] = {}
    wanted: dict[str, SubscriptionGroupConfig] = {}
    for name, known in _configs(client, group, masters, change).items():
        if isinstance(known, RmqError):
            results[name] = _failed(group, name, masters, known)
        elif known is None:
            wanted[name] = config
        elif replace(known, **change.given()) == known:  # type: ignore[arg-type]  # by name
            results[name] = _result(group, name, masters, "unchanged", known)
        else:
            error = RefusedError(
                f"group {group} exists on {name} with other settings",
                hint=f"change them with: rmq group update {group}",
            )
            results[name] = _failed(group, name, masters, error)
    results |= _write(client, group, masters, wanted, done="created")
    return [results[name] for name in masters]


def update_group(
    client: Client, group: str, masters: Mapping[str, str], change: GroupChange
) -> list[GroupResult]:
    """Change settings of `group` on those of `masters` that have it; other settings
    stay as they are. One result for each master, a failure where the group is missing.

    Raises NotFoundError when all answer and none has it, and UnsupportedError as
    `create_group` does.
    """
    results: dict[str, GroupResult] = {}
    wanted: dict[str, SubscriptionGroupConfig] = {}
    configs = _configs(client, group, masters, change)
    if all(known is None for known in configs.values()):
        raise _no_group(group, ", ".join(masters))
    for name, known in configs.items():
        if known is None:
            results[name] = _failed(group, name, masters, _no_group(group, name))
        elif isinstance(known, RmqError):
            results[name] = _failed(group, name, masters, known)
        else:
            config = replace(known, **change.given())  # type: ignore[arg-type]  # by name
            if config == known:
                results[name] = _result(group, name, masters, "unchanged", known)
            else:
                wanted[name] = config
    results |= _write(client, group, masters, wanted, done="changed")
    return [results[name] for name in masters]


def check_may_delete(
    client: Client,
    group: str,
    masters: Mapping[str, str],
    *,
    remove_offsets: bool,
    is_forced: bool,
) -> list[str]:
    """Raise unless `group` may be deleted on `masters`; what a person should know.

    Raises NotFoundError for an unknown group, RefusedError for one of RocketMQ's own,
    for one with members online unless `is_forced`, and where a broker would create it
    again.
    """
    if group_kind(group) == "system":
        raise RefusedError(f"group {group} is RocketMQ's own: nothing was deleted")
    detail = show_group(client, group)
    online = [
        member.connection.client_id
        for member in detail.members
        if masters.keys() & set(member.brokers)
    ]
    if online and not is_forced:
        shown = online[:_MEMBERS_LISTED]
        more = len(online) - len(shown)
        names = ", ".join([*shown, *([f"{more} more"] if more else [])])
        raise RefusedError(
            f"group {group} has members online: {names}; nothing was deleted",
            hint="stop them first, or add --force; a broker may then create the group"
            " again at their next heartbeat",
        )
    warnings = []
    for name in sorted(masters.keys() & detail.configs.keys()):
        version = client.broker_version(masters[name])
        shown_version = f"{name} runs RocketMQ {version_name(version)}"
        if version >= V5_0_0 and not remove_offsets:
            raise RefusedError(
                f"{shown_version}, which creates a deleted group again, with default"
                " settings, unless its offsets are removed; nothing was deleted",
                hint="add --remove-offsets",
            )
        if version < V4_9_0 and remove_offsets:
            warnings.append(f"{shown_version}, which keeps the offsets of the group")
    return warnings


def delete_group(
    client: Client, group: str, masters: Mapping[str, str], *, remove_offsets: bool
) -> list[GroupResult]:
    """Delete `group` on `masters`; `unchanged` where it was not known."""
    configs = _configs(client, group, masters, GroupChange())
    call = delete_subscription_group(group, clean_offset=remove_offsets)
    answers = ask_each(client, masters, call)
    results = []
    for name, error in answers.items():
        if error is not None:
            results.append(_failed(group, name, masters, error))
        else:
            word = "unchanged" if configs[name] is None else "deleted"
            results.append(_result(group, name, masters, word, None))
    return results


def delete_topics_of(client: Client, group: str) -> list[GroupResult]:
    """Delete the group's retry topic and dead letter topic, with their messages, where
    they exist."""
    results = []
    for topic in (retry_topic(group), dlq_topic(group)):
        try:
            route = client.route(topic, refresh=True)
        except NotFoundError:
            continue
        results += [
            GroupResult(
                name=topic,
                server=step.server,
                address=step.address,
                result=step.result,
                error=step.error,
            )
            for step in delete_topic(client, route)
        ]
    return results


def _configs(
    client: Client, group: str, masters: Mapping[str, str], change: GroupChange
) -> dict[str, SubscriptionGroupConfig | RmqError | None]:
    """The group's settings on each master, None where it is not known."""
    tables = ask_each(client, masters, get_all_subscription_group_config())
    found: dict[str, SubscriptionGroupConfig | RmqError | None] = {}
    for name, table in tables.items():
        if isinstance(table, RmqError):
            found[name] = table
            continue
        found[name] = table.get(group)
        version = client.broker_version(masters[name])
        if change.consume_message_orderly is not None and version < V5_0_0:
            raise UnsupportedError(
                f"--consume-message-orderly: {name} runs RocketMQ"
                f" {version_name(version)}, and that needs {version_name(V5_0_0)}"
            )
    return found


def _write(
    client: Client,
    group: str,
    masters: Mapping[str, str],
    wanted: Mapping[str, SubscriptionGroupConfig],
    *,
    done: str,
) -> dict[str, GroupResult]:
    answers = ask_many(
        client,
        {
            name: (masters[name], update_and_create_subscription_group(config))
            for name, config in wanted.items()
        },
    )
    return {
        name: _result(group, name, masters, done, wanted[name])
        if error is None
        else _failed(group, name, masters, error)
        for name, error in answers.items()
    }


def _result(
    group: str,
    server: str,
    masters: Mapping[str, str],
    result: str,
    config: SubscriptionGroupConfig | None,
) -> GroupResult:
    return GroupResult(
        name=group,
        server=server,
        address=masters[server],
        result=result,
        config=config,
    )


def _failed(
    group: str, server: str, masters: Mapping[str, str], error: RmqError
) -> GroupResult:
    return GroupResult(
        name=group,
        server=server,
        address=masters[server],
        result="failed",
        error=error,
    )


def _no_group(group: str, where: str) -> NotFoundError:
    return NotFoundError(
        f"group {group} does not exist on {where}",
        code=int(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        name=ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST.name,
        hint=f"create it with: rmq group create {group}",
    )
