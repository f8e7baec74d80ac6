"""`rmq groups`, and `rmq group show`, `members`, `stack`, `create`, `update`, `delete`.

Each command calls `rmqcli.admin.groups` and shows the result as tables or JSON. This
module decides what the user must confirm, and the exit code if only some brokers
answered.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

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
from rmqcli.cli.confirm import confirm_by_name
from rmqcli.cli.options import (
    Common,
    argument,
    brokers_option,
    cluster_option,
    command_options,
    option,
    switch,
)
from rmqcli.cli.topics import parse_attribute
from rmqcli.cli.ui.escape import safe
from rmqcli.cli.ui.output import (
    Column,
    empty_row,
    json_column,
    number_column,
    pick,
    row_of,
    time_column,
)
from rmqcli.dataclass import dataclass
from rmqcli.errors import NotFoundError, PartialError, UsageError
from rmqcli.hint import command_line
from rmqcli.units import counted, listed

if TYPE_CHECKING:
    from rmqcli.admin.groups import GroupChange, GroupDetail, GroupResult
    from rmqcli.admin.stacks import MemberStacks
    from rmqcli.wire.bodies.config import SubscriptionGroupConfig


def _setting(name: str, help: str, title: str | None = None, **more: Any) -> Column:
    """Return a column for a broker's setting of a group; null if it has no settings."""
    return Column(
        name,
        help,
        title,
        value=lambda found: found.config and getattr(found.config, name),
        **more,
    )


COLUMNS = (
    Column(
        "group", "name of the group; null in the row of a broker that did not answer"
    ),
    json_column("kind", "normal or system"),
    number_column(
        "members",
        "number of active members, at least if there is a reason; null if unknown",
    ),
    Column(
        "consume_type",
        "CONSUME_PASSIVELY (push) or CONSUME_ACTIVELY (pull)",
        priority=40,
    ),
    Column("message_model", "CLUSTERING or BROADCASTING", priority=20),
    Column(
        "brokers", "brokers that have settings for the group", shorten=True, priority=60
    ),
    Column("reason", "why it may have more members", priority=2),
    SILENT_COLUMN,
)
#: Topics of a group that a line names; there may be thousands.
_TOPICS_SHOWN = 20

_SUBSCRIPTION_COLUMNS = (
    Column("topic"),
    Column("expression_type", title="TYPE", priority=10),
    Column("sub_string", title="EXPRESSION"),
    json_column("sub_version"),
)
MEMBER_COLUMNS = (
    Column(
        "client_id",
        "ID of the client",
        value=lambda member: member.connection.client_id,
        shorten=True,
    ),
    Column(
        "client_addr",
        "address of the client",
        title="ADDRESS",
        value=lambda member: member.connection.client_addr,
        priority=10,
    ),
    Column(
        "language",
        "language of its client library",
        value=lambda member: _language_name(member.connection.language),
        priority=30,
    ),
    Column(
        "version",
        "RocketMQ version of its client library",
        value=lambda member: _version_name(member.connection.version),
        priority=20,
    ),
    Column("brokers", "brokers that it is connected to", priority=40),
    Column("proxy", "address of its proxy, in cluster mode", priority=15),
    time_column(
        "since",
        "when its consumer started, by its own clock; null if unknown",
        of="started_ms",
        priority=35,
    ),
    json_column(
        "subscriptions",
        "its subscriptions; null if unknown",
        value=lambda member: (
            None
            if member.subscriptions is None
            else [
                row_of(_SUBSCRIPTION_COLUMNS[:3], each)
                for each in sorted(member.subscriptions, key=lambda s: s.topic)
            ]
        ),
    ),
    json_column("reason", "why something is not known"),
)
#: The same, with what members say about themselves in the table.
_OWN_COLUMNS = tuple(
    each._replace(title="SUBSCRIBES", shown=lambda row: _shown_subscriptions(row))
    if each.name == "subscriptions"
    else each._replace(title="REASON", priority=1)
    if each.name == "reason"
    else each
    for each in MEMBER_COLUMNS
)
STACK_COLUMNS = (
    Column("client_id", "ID of the client"),
    Column("listener", "frame of the listener that the threads run; null for none"),
    Column("threads", "names of the threads that have this stack"),
    Column("state", "Java's Thread.State; null for a client in another language"),
    Column("frames", "the calls, the innermost first"),
    Column("error", "why the stacks of the client are not known"),
)
#: Sections of the help of `group create` and `group update`.
_WHERE: Final = "Where"
_CONSUMING: Final = "Consuming"
_RETRIES: Final = "Retries"
_ATTRIBUTES: Final = "Attributes"
#: Settings of a group, under the same names as in `group show`.
_SETTINGS = (
    _setting("consume_enable", "whether the group may consume", "CONSUME", priority=5),
    _setting(
        "consume_broadcast_enable",
        "whether its members may consume in broadcast mode",
        "BROADCAST",
        priority=30,
    ),
    _setting(
        "retry_queue_nums",
        "number of queues of its retry topic",
        "RETRY QUEUES",
        align="right",
        priority=20,
    ),
    _setting(
        "retry_max_times",
        "retries before a message becomes a dead letter",
        "RETRY MAX",
        align="right",
        priority=10,
    ),
    _setting(
        "consume_from_min_enable", "whether a new group may start at the min offset"
    ),
    _setting(
        "consume_message_orderly", "whether gRPC clients receive messages in order"
    ),
    _setting("broker_id", "ID of the broker that members pull from"),
    _setting(
        "which_broker_when_consume_slowly",
        "ID of the broker that slow members pull from",
    ),
    _setting(
        "notify_consumer_ids_changed_enable",
        "whether members are notified when others join or leave",
    ),
)
#: A broker's settings in the order of JSON, which has `broker_name` before them.
_CONFIG_COLUMNS = (
    *pick(
        _SETTINGS,
        "consume_enable consume_from_min_enable consume_broadcast_enable"
        " consume_message_orderly retry_queue_nums retry_max_times broker_id"
        " which_broker_when_consume_slowly notify_consumer_ids_changed_enable",
    ),
    _setting("consume_timeout_minute", ""),
    _setting("attributes", ""),
    _setting("retry_policy", ""),
)
RESULT_COLUMNS = (
    Column("name", "the group, or one of its topics"),
    Column("server", "broker, or name server"),
    Column("address", "its address", priority=40),
    RESULT_COLUMN,
    *_SETTINGS,
    _setting("attributes", "its attributes (RocketMQ 5)"),
    ERROR_COLUMN,
)


def _toggle(name: str, help: str, *, alias: str) -> Any:
    """A switch of the section Consuming, which has an opposite; None without both."""
    aliases = (f"--{alias}/--no-{alias}",)
    names = f"--{name}/--no-{name}"
    return option(names, section=_CONSUMING, aliases=aliases, help=help)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettingsOptions:
    """The options of `rmq group create` and `rmq group update`."""

    group: str = argument(help="Name of the group.")
    cluster: str | None = cluster_option(section=_WHERE)
    broker: list[str] | None = brokers_option(section=_WHERE)
    consume_enable: bool | None = _toggle(
        "consume", "Whether members may consume.", alias="consume-enable"
    )
    consume_from_min_enable: bool | None = _toggle(
        "from-min-offset",
        "Whether a new group may start at the min offset.",
        alias="consume-from-min-enable",
    )
    consume_broadcast_enable: bool | None = _toggle(
        "broadcast",
        "Whether members may consume all messages (broadcast).",
        alias="consume-broadcast-enable",
    )
    consume_message_orderly: bool | None = _toggle(
        "orderly",
        "Whether gRPC clients get messages in order (RocketMQ 5).",
        alias="consume-message-orderly",
    )
    # With none, a broker drops what members send back, but answers that it is stored.
    retry_queue_nums: int | None = option(
        "--retry-queues",
        section=_RETRIES,
        aliases=("--retry-queue-nums",),
        min=1,
        max=65_535,
        help="Queues of the retry topic.",
    )
    retry_max_times: int | None = option(
        "--max-retries",
        section=_RETRIES,
        aliases=("--retry-max-times",),
        min=0,
        help="Retries before a message becomes a dead letter.",
    )
    broker_id: int | None = option(
        "--pull-from",
        section=_CONSUMING,
        aliases=("--broker-id",),
        min=0,
        metavar="ID",
        help="ID of the broker that members pull from; 0 is the master.",
    )
    which_broker_when_consume_slowly: int | None = option(
        "--pull-from-when-slow",
        section=_CONSUMING,
        aliases=("--which-broker-when-consume-slowly",),
        min=0,
        metavar="ID",
        help="ID of the broker that slow members pull from.",
    )
    notify_consumer_ids_changed: bool | None = _toggle(
        "notify-members",
        "Whether members are told when others join or leave.",
        alias="notify-consumer-ids-changed",
    )
    attribute: list[Any] | None = option(
        section=_ATTRIBUTES,
        parser=parse_attribute,
        metavar="+NAME=VALUE",
        help="Attribute (RocketMQ 5), e.g. +lite.bind.topic=chats; repeatable.",
    )

    def change(self) -> GroupChange:
        """The settings that were given."""
        from rmqcli.admin.groups import GroupChange

        return GroupChange(
            consume_enable=self.consume_enable,
            consume_from_min_enable=self.consume_from_min_enable,
            consume_broadcast_enable=self.consume_broadcast_enable,
            consume_message_orderly=self.consume_message_orderly,
            retry_queue_nums=self.retry_queue_nums,
            retry_max_times=self.retry_max_times,
            broker_id=self.broker_id,
            which_broker_when_consume_slowly=self.which_broker_when_consume_slowly,
            notify_consumer_ids_changed_enable=self.notify_consumer_ids_changed,
            attributes=dict(self.attribute) if self.attribute else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupUpdateOptions(GroupSettingsOptions):
    """The options of `rmq group update`."""

    remove_attribute: list[str] | None = option(
        section=_ATTRIBUTES, metavar="NAME", help="Attribute to remove; repeatable."
    )

    def change(self) -> GroupChange:
        """The settings that were given."""
        removed = tuple(self.remove_attribute or ())
        # Without arguments, super() does not work in a class with slots.
        return replace(GroupSettingsOptions.change(self), remove_attributes=removed)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDeleteOptions:
    """The options of `rmq group delete`, and checks of their combinations."""

    group: str = argument(help="Group to delete.")
    cluster: str | None = cluster_option()
    broker: list[str] | None = brokers_option()
    remove_offsets: bool = switch(
        "--remove-offsets", "-r", help="Delete its offsets too; required by RocketMQ 5."
    )
    remove_topics: bool = switch(
        help="Delete its retry and dead letter topics with their messages."
    )
    force: bool = switch(help="Delete the group even if it has active members.")

    def check(self) -> None:
        """Raise UsageError for options that cannot be used together."""
        if self.broker and self.remove_topics:
            raise UsageError("--remove-topics and --broker cannot be used together")

    def question(self, masters: Iterable[str]) -> str:
        """Return the text that says what is deleted, for the confirmation."""
        what = [f"group {safe(self.group)}"]
        what += ["its offsets"] if self.remove_offsets else []
        what += ["its retry and dead letter topics"] if self.remove_topics else []
        return f"This deletes {' and '.join(what)} on {safe(', '.join(masters))}."


@command_options(fields=COLUMNS, changes=False)
def groups(
    common: Common,
    show_all: bool = switch("--all", help="Include RocketMQ's own groups."),
) -> None:
    """List consumer groups.

    Example: rmq groups -o json | jq '.[] | select(.members == 0).group'
             rmq group list
    """
    from rmqcli.admin.groups import list_groups

    with common.open_client() as client:
        found = list_groups(client)
        warn_about_departed(common, client)
        warn_about_slaves(common, client)
    shown = [row for row in found.groups if show_all or row.kind == "normal"]
    rows = [row_of(COLUMNS, row) for row in shown]
    rows += rows_of_silent(found.errors, COLUMNS)
    show_list(common, rows, COLUMNS, none="no consumer groups")
    hidden = len(found.groups) - len(shown)
    if hidden:
        common.messages.info(
            f"not shown: {counted(hidden, 'system group')}; --all shows them"
        )
    raise_if_silent(found.errors, found.denial)


@command_options(fields=MEMBER_COLUMNS, changes=False)
def show(
    common: Common,
    group: str = argument(help="Group to show."),
) -> None:
    """Show a group's members, subscriptions and settings.

    Example: rmq group show billing -o json | jq '.members[].client_id'

    -o jsonl and -o csv list the members only. The exit code is 6 if a broker or a
    member did not answer.
    """
    from rmqcli.admin.groups import show_group
    from rmqcli.admin.lag.assemble import ORDERLY

    with common.open_client() as client:
        detail = show_group(client, group)
    data = _data(detail)
    show_detail(
        common,
        data,
        list_name="members",
        columns=MEMBER_COLUMNS,
        write_tables=lambda: _write_tables(common, detail, data),
    )
    _warn_of_mismatches(common, detail)
    raise_if_silent(detail.errors, detail.denial)
    _raise_if_members_are_silent(detail)
    # Nothing tells what is handed out to an orderly group, so no answer has it.
    if detail.pop is not None and detail.pop.reason not in (None, ORDERLY):
        raise PartialError(f"POP: {detail.pop.reason}")


@command_options(fields=_OWN_COLUMNS, changes=False)
def members(
    common: Common,
    group: str = argument(help="Group whose members to list."),
) -> None:
    """List the members of a group that are online.

    Example: rmq group members billing

    Each member is asked for its subscriptions and its start. Members that subscribe
    differently are named on stderr: such a group loses messages. The exit code is 6 if
    a broker or a member did not answer.
    """
    from rmqcli.admin.groups import show_group

    with common.open_client() as client:
        detail = show_group(client, group)
    rows = [row_of(_OWN_COLUMNS, each) for each in detail.members]
    none = f"no member of group {group} is online"
    is_complete = not detail.errors
    show_list(common, rows, _OWN_COLUMNS, none=none, is_complete=is_complete)
    if not rows and is_complete and common.output != "table":
        common.messages.info(none)  # the group exists: an empty list is no mistake
    _warn_of_mismatches(common, detail)
    raise_if_silent(detail.errors, detail.members_denial)
    _raise_if_members_are_silent(detail)


def _raise_if_members_are_silent(detail: GroupDetail) -> None:
    silent = [each for each in detail.members if each.is_silent]
    if silent:
        raise PartialError(
            f"the subscriptions of {len(silent)} of"
            f" {counted(len(detail.members), 'member')} are not known:"
            f" {silent[0].reason}"
        )


@command_options(fields=STACK_COLUMNS, changes=False)
def stack(
    common: Common,
    group: str = argument(help="Group whose members to ask."),
    client_id: str | None = argument(
        default=None, metavar="CLIENT", help="Only this member (default: all of them)."
    ),
    show_all: bool = switch(
        "--all", help="Include threads that do not call listeners."
    ),
) -> None:
    """Show what the threads of a group's members are doing.

    Example: rmq group stack billing

    Threads with the same stack are shown once, those in a listener first: where many of
    them are in the same call, the listener waits for it. rmq group members lists the
    IDs of clients. The exit code is 6 if a member or a broker did not answer.
    """
    from rmqcli.admin.stacks import member_stacks

    with common.open_client() as client:
        stacks_of = member_stacks(client, group, client_id)
    found = stacks_of.members
    rows = [
        {"client_id": member.client_id}
        | row_of(STACK_COLUMNS[1:5], stacks)
        | {"error": None}
        for member in found
        for stacks in member.stacks
        if show_all or stacks.is_consuming
    ]
    rows += [
        empty_row(STACK_COLUMNS, client_id=each.client_id, error=each.error.message)
        for each in found
        if each.error is not None
    ]
    if common.output == "table":
        sys.stdout.write("\n".join(map(_stack_text, rows)))
    else:
        common.write_rows(rows, STACK_COLUMNS)
    for member in found:
        if member.stacks and not show_all:
            _warn_of_hidden(common, member)
    silent = [each for each in found if each.error is not None]
    if silent and silent[0].error is not None:
        raise PartialError(
            f"the stacks of {len(silent)} of {counted(len(found), 'member')} are not"
            f" known: {silent[0].error.message}",
            hint=silent[0].error.hint,
        )
    raise_if_silent(stacks_of.errors)


def _stack_text(row: dict[str, Any]) -> str:
    """Return one stack as text, or the error of a client."""
    if row["error"] is not None:
        return f"{safe(row['client_id'])}: not known: {safe(row['error'])}\n"
    names = row["threads"]
    state = f" {row['state']}" if row["state"] else ""
    threads = f"{counted(len(names), 'thread')}{state} ({listed(names, 3)})"
    lines = [
        f"{row['client_id']}: {threads}",
        f"  listener: {row['listener']}" if row["listener"] else "  in no listener",
        *(f"    at {frame}" for frame in row["frames"]),
    ]
    return "".join(f"{safe(line)}\n" for line in lines)


def _warn_of_hidden(common: Common, member: MemberStacks) -> None:
    """Say which threads are left out, and when none is shown at all."""
    hidden = sum(len(each.threads) for each in member.stacks if not each.is_consuming)
    if all(not each.is_consuming for each in member.stacks):
        common.messages.info(f"{member.client_id} has no thread that calls listeners")
    if hidden:
        common.messages.info(
            f"{member.client_id}: {counted(hidden, 'other thread')} not shown; --all"
            " shows them"
        )


@command_options(GroupSettingsOptions, fields=RESULT_COLUMNS)
def create(common: Common, options: GroupSettingsOptions) -> None:
    """Create a consumer group.

    Example: rmq group create billing --max-retries 3

    Settings that are not given have RocketMQ's defaults. An existing group is not
    changed.
    """
    from rmqcli.admin.groups import create_group
    from rmqcli.names import check_member_group

    check_member_group(options.group)
    _write_settings(common, options, create_group)


@command_options(GroupUpdateOptions, fields=RESULT_COLUMNS)
def update(common: Common, options: GroupUpdateOptions) -> None:
    """Change settings of a consumer group.

    Example: rmq group update billing --no-consume

    Only the given settings are changed.
    """
    from rmqcli.admin.groups import update_group

    if not options.change():
        raise UsageError("nothing to change", hint="see: rmq group update --help")
    _write_settings(common, options, update_group)


def _write_settings(
    common: Common,
    options: GroupSettingsOptions,
    write: Callable[..., Sequence[GroupResult]],
) -> None:
    with common.open_client() as client:
        masters = masters_of(client, options.cluster, options.broker)
        results = write(client, options.group, masters, options.change())
    show_results(common, results, RESULT_COLUMNS)


@command_options(GroupDeleteOptions, fields=RESULT_COLUMNS, asks=True)
def delete(common: Common, options: GroupDeleteOptions) -> None:
    """Delete a consumer group.

    Example: rmq group delete billing-old --remove-offsets --yes

    To confirm, type the group's name. A group with active members is not deleted
    without --force (exit code 7), nor is one whose members are not known (6).
    """
    from rmqcli.admin import groups as groups_change
    from rmqcli.admin.brokers import with_address

    options.check()
    group = options.group
    with common.open_client() as client, client.ask_silent_once():
        masters = masters_of(client, options.cluster, options.broker)
        try:
            warnings = groups_change.check_may_delete(
                client,
                group,
                masters,
                remove_offsets=options.remove_offsets,
                is_forced=options.force,
            )
        except NotFoundError:
            # An earlier run may have deleted the group, and not all of its topics.
            if not (options.remove_topics and groups_change.topics_of(client, group)):
                raise
            warnings = []
        for warning in warnings:
            common.messages.warn(warning)
        confirm_by_name(common, options.question(with_address(masters)), name=group)
        results = groups_change.delete_group(
            client, group, masters, remove_offsets=options.remove_offsets
        )
        if options.remove_topics and any(each.error for each in results):
            common.messages.warn(
                f"the retry and dead-letter topics of {safe(group)} are kept, because"
                " the group is not known to be deleted everywhere"
            )
        elif options.remove_topics:
            results += groups_change.delete_topics_of(client, group)
        kept = (
            {}
            if options.remove_offsets
            else groups_change.brokers_with_offsets(client, group, masters)
        )
    show_results(common, results, RESULT_COLUMNS)
    option = ["--remove-offsets"]
    remove = command_line("rmq group delete", group, options=option)
    for name, can_remove in kept.items():
        way = (
            f"remove them with: {safe(remove)}"
            if can_remove
            else "brokers before 4.9.0 cannot remove them"
        )
        common.messages.info(
            f"{safe(name)} keeps the group's offsets, so that rmq lag and rmq groups"
            f" still list it; {way}"
        )


def _data(detail: GroupDetail) -> dict[str, Any]:
    """Return the details for JSON. A list is null where brokers may have more of it."""
    from rmqcli.cli.lag.view import POP_KEYS

    none: list[Any] | None = None if detail.errors else []
    return {
        "group": detail.group,
        "kind": detail.kind,
        "consume_type": detail.consume_type,
        "message_model": detail.message_model,
        "consume_from_where": detail.consume_from_where,
        "members": [row_of(MEMBER_COLUMNS, each) for each in detail.members] or none,
        "subscriptions": [
            row_of(_SUBSCRIPTION_COLUMNS, each) for each in detail.subscriptions
        ]
        or none,
        "topics": detail.topics or none,
        "mismatches": detail.mismatches,
        "pop": detail.pop and row_of(POP_KEYS, detail.pop),
        "configs": [
            {"broker_name": name, **row_of(_CONFIG_COLUMNS, _Configured(config))}
            for name, config in detail.configs.items()
        ],
        "errors": errors_json(detail.errors),
    }


class _Configured(NamedTuple):
    """The settings of a group in a form that the columns of `_setting` can read."""

    config: SubscriptionGroupConfig


def _warn_of_mismatches(common: Common, detail: GroupDetail) -> None:
    for mismatch in detail.mismatches:
        common.messages.warn(
            f"members have different subscriptions, so messages are lost: {mismatch}"
        )


def _shown_subscriptions(row: Any) -> object:
    """Return topics with their filters, unless they are not known."""
    found = row["subscriptions"]
    if found is None:
        return None
    return ", ".join(
        each["topic"]
        if each["sub_string"] in (None, "", "*")
        else f"{each['topic']} ({each['sub_string']})"
        for each in found
        if not each["topic"].startswith("%RETRY%")
    )


def _language_name(code: int | None) -> str:
    from rmqcli.wire.codes import language_name

    return language_name(code)


def _version_name(number: int) -> str:
    from rmqcli.wire.version import version_name

    return version_name(number)


def _write_tables(common: Common, detail: GroupDetail, data: dict[str, Any]) -> None:
    import json

    parts = [detail.consume_type, detail.message_model, detail.consume_from_where]
    no_type = "no active members" if data["members"] == [] else "members unknown"
    words = " ".join(part for part in parts if part) or no_type
    lines = [f"group {safe(detail.group)}: {safe(words)}\n"]
    if detail.topics:
        all_of_them = "" if len(detail.topics) <= _TOPICS_SHOWN else "; -o json has all"
        shown = listed(map(safe, detail.topics), _TOPICS_SHOWN)
        lines.append(f"topics: {shown}{all_of_them}\n")
    if detail.pop is not None and detail.pop.inflight is detail.pop.retry_lag is None:
        lines.append(f"POP: {safe(detail.pop.reason or '')}\n")
    elif detail.pop is not None:
        inflight, waiting = detail.pop.inflight, detail.pop.retry_lag
        lines.append(
            f"POP: {'?' if inflight is None else inflight} handed out and not"
            f" acknowledged, {'?' if waiting is None else waiting} in retry topics\n"
        )
    for name, config in detail.configs.items():
        if config.retry_policy not in (None, {"type": "CUSTOMIZED"}):  # the default
            policy = json.dumps(config.retry_policy)
            lines.append(f"retry policy on {safe(name)}: {safe(policy)}\n")
    sys.stdout.write("".join(lines))
    for columns, rows in (
        (MEMBER_COLUMNS, data["members"]),
        (_SUBSCRIPTION_COLUMNS, data["subscriptions"]),
        ((Column("broker_name", title="BROKER"), *_CONFIG_COLUMNS), data["configs"]),
    ):
        if rows:
            sys.stdout.write("\n")
            common.write_table(rows, columns)
