"""`rmq acl`: the users and rules of access control, and which rule decides.

Changes are plans of definitions: shown, confirmed, applied and read back in the same
way. A password comes from a private file, from stdin or from a question, and is shown
nowhere.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from rmqcli.cli.by_broker import raise_if_silent, rows_of_silent, show_list
from rmqcli.cli.definitions import RESULT_COLUMNS, carry_out
from rmqcli.cli.options import (
    MISSING,
    Common,
    argument,
    brokers_option,
    cluster_option,
    command_options,
    option,
    switch,
)
from rmqcli.cli.ui.escape import safe
from rmqcli.cli.ui.messages import is_terminal
from rmqcli.cli.ui.output import Column, empty_row, row_of
from rmqcli.errors import ConfigError, NotFoundError, RefusedError, RmqError, UsageError

if TYPE_CHECKING:
    from rmqcli.admin.acl import AclEntry
    from rmqcli.admin.definitions.model import Kind
    from rmqcli.admin.definitions.settings import Value

_PASSWORD_CHARACTERS_MAX = 64 * 1024


def _setting(name: str, help_text: str, **more: Any) -> Column:
    return Column(name, help_text, value=lambda each: each.settings[name], **more)


def _part(index: int) -> Any:
    def value(entry: AclEntry) -> str:
        from rmqcli.admin.definitions.model import USER_PREFIX, parts_of_rule

        return parts_of_rule(entry.name)[index].removeprefix(USER_PREFIX)

    return value


_BROKERS = Column("brokers", "brokers that have it so")
_ERROR = Column("error", "why nothing is known", value=lambda each: None, priority=1)
USER_COLUMNS = (
    Column("user", "name of the user", value=lambda each: each.name),
    _setting("user_type", "Super, who may do everything, or Normal", title="TYPE"),
    _setting(
        "user_status", "enable or disable", title="STATUS", states={"disable": "warn"}
    ),
    _BROKERS,
    _ERROR,
)
RULE_COLUMNS = (
    Column("user", "name of the user", value=_part(0)),
    Column("resource", "what the rule is for", value=_part(1)),
    _setting(
        "actions",
        "Pub, Sub, Create, Update, Delete, Get, List or All",
        shown=lambda row: row["actions"] and ",".join(row["actions"]),
    ),
    _setting("decision", "Allow or Deny", states={"Deny": "warn"}),
    _setting(
        "source_ips",
        "addresses and networks of clients; none: all",
        title="FROM",
        shown=lambda row: row["source_ips"] and ",".join(row["source_ips"]),
    ),
    Column(
        "policy_type", "Custom or Default", title="POLICY", value=_part(2), priority=5
    ),
    _BROKERS,
    _ERROR,
)
DECISION_COLUMNS = (
    Column("broker_name", "broker that decides", title="BROKER"),
    Column(
        "decision",
        "allow, deny, depends or unknown",
        states={"allow": "good", "deny": "bad", "depends": "warn"},
    ),
    Column("rule", "rule that decides"),
    Column("reason", "why"),
)
ACCOUNT_COLUMNS = (
    Column("broker_name", title="BROKER"),
    Column("access_key", title="ACCESS KEY"),
    Column("admin", "whether it may do everything"),
    Column("default_topic_perm", title="TOPICS"),
    Column("default_group_perm", title="GROUPS"),
    Column("topic_perms", "permissions of single topics"),
    Column("group_perms", "permissions of single groups"),
    Column("white_remote_address", "addresses that need no key", title="WITHOUT KEY"),
    Column("error", "why nothing is known", priority=1),
)


def _parse_actions(text: str) -> list[str]:
    """Return actions by RocketMQ's names, which it reads in whatever case."""
    from rmqcli.admin.definitions.settings import ACTIONS

    known = {each.lower(): each for each in ACTIONS}
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if word.lower() not in known:
            # A broker drops what it does not know, without an error.
            raise UsageError(f"{word!r} is not one of {', '.join(ACTIONS)}")
    return list(dict.fromkeys(known[word.lower()] for word in words))


_USER = argument(metavar="USER", help="Name of the user.")
_RESOURCE = argument(
    metavar="RESOURCE",
    help="Topic:NAME, Group:NAME or Cluster:NAME; a prefix with *, or *.",
)
_ACTIONS = partial(
    argument,
    metavar="ACTIONS",
    parser=_parse_actions,
    help="Pub, Sub, Create, Update, Delete, Get, List or All, with commas.",
)
_PASSWORD_FILE = option(
    "--password-file",
    metavar="FILE",
    help="Read the password from this private file; - is stdin.",
)
_SOURCE_IP = option(
    "--source-ip",
    metavar="ADDRESS",
    help="Only for clients with this address or network; repeatable.",
)
_FROM = option("--from", default=MISSING, metavar="BROKER", help="Broker that has it.")
_TO = option(
    "--to",
    metavar="BROKER",
    help="Only to this broker; repeatable. (default: all others of its cluster)",
)


@command_options(fields=USER_COLUMNS, changes=False)
def user_list(
    common: Common,
    cluster: str | None = cluster_option(),
    broker: list[str] | None = brokers_option(),
) -> None:
    """List the users of access control 2.0.

    Example: rmq acl user list

    Each broker (5.3 and later) has its own; where brokers differ, a user has several
    rows. Passwords are never shown.
    """
    _list(common, "user", None, cluster, broker, is_found=True)


@command_options(fields=USER_COLUMNS, changes=False)
def user_show(
    common: Common,
    user: str = _USER,
    cluster: str | None = cluster_option(),
    broker: list[str] | None = brokers_option(),
) -> None:
    """Show a user on each broker.

    Example: rmq acl user show alice
    """
    _list(common, "user", user, cluster, broker)


@command_options(fields=RULE_COLUMNS, changes=False)
def rule_list(
    common: Common,
    user: str | None = argument(default=None, help="Only the rules of this user."),
    cluster: str | None = cluster_option(),
    broker: list[str] | None = brokers_option(),
) -> None:
    """List the rules of users.

    Example: rmq acl rule list alice
    """
    _list(common, "rule", user, cluster, broker, is_found=user is None)


@command_options(fields=RULE_COLUMNS, changes=False)
def rule_show(
    common: Common,
    user: str = _USER,
    resource: str = _RESOURCE,
    cluster: str | None = cluster_option(),
    broker: list[str] | None = brokers_option(),
) -> None:
    """Show a rule on each broker.

    Example: rmq acl rule show alice Topic:orders
    """
    _list(common, "rule", user, cluster, broker, resource=resource)


def _list(
    common: Common,
    kind: str,
    user: str | None,
    cluster: str | None,
    broker: list[str] | None,
    *,
    resource: str | None = None,
    is_found: bool = False,
) -> None:
    from rmqcli.admin.acl import list_accounts

    columns = USER_COLUMNS if kind == "user" else RULE_COLUMNS
    with common.open_client() as client:
        found = list_accounts(client, cluster=cluster, brokers=broker or ())
    rows = [row_of(columns, each) for each in found.entries if each.kind == kind]
    rows = [
        row
        for row in rows
        if (user is None or row["user"] == user)
        and (resource is None or row["resource"] == resource)
    ]
    users = {each.name for each in found.entries if each.kind == "user"}
    if not rows and not found.errors and not is_found:
        if resource is not None:
            what = f"there is no rule {user} {resource}"
            raise NotFoundError(what, code=3002, name="POLICY_NOT_EXIST")
        if user not in users:
            what = f"there is no user {user}"
            raise NotFoundError(what, code=3001, name="USER_NOT_EXIST")
    rows += rows_of_silent(found.errors, columns)
    show_list(common, rows, columns, none=f"no {kind}s", is_complete=not found.errors)
    raise_if_silent(found.errors)


@command_options(fields=RESULT_COLUMNS, asks=True)
def user_create(
    common: Common,
    user: str = _USER,
    password_file: str | None = _PASSWORD_FILE,
    is_super: bool = switch("--super", help="The user may do everything."),
    cluster: str | None = cluster_option(),
    broker: list[str] | None = brokers_option(),
) -> None:
    """Create a user on each broker.

    Example: rmq acl user create alice --password-file alice.password

    The password comes from a file that only you can read, from stdin, or is asked for.
    A user has no rights before it has rules.
    """
    password = _password(common, user, password_file)
    settings: dict[str, Value] = {"user_type": "Super" if is_super else "Normal"}
    _write_user(common, user, settings, password, cluster, broker, is_new=True)


@command_options(fields=RESULT_COLUMNS, asks=True)
def user_update(
    common: Common,
    user: str = _USER,
    new_password: bool = switch("--password", help="Ask for a new password."),
    password_file: str | None = _PASSWORD_FILE,
    is_super: bool | None = option(
        "--super/--normal", help="Whether the user may do everything."
    ),
    is_enabled: bool | None = option(
        "--enable/--disable", help="Whether the user may connect."
    ),
    cluster: str | None = cluster_option(),
    broker: list[str] | None = brokers_option(),
) -> None:
    """Change the password, type or status of a user.

    Example: rmq acl user update alice --disable

    Only what is given is changed.
    """
    settings: dict[str, Value] = {}
    if is_super is not None:
        settings["user_type"] = "Super" if is_super else "Normal"
    if is_enabled is not None:
        settings["user_status"] = "enable" if is_enabled else "disable"
    password = None
    if new_password or password_file is not None:
        password = _password(common, user, password_file)
    elif not settings:
        raise UsageError("nothing to change", hint="see: rmq acl user update --help")
    _write_user(common, user, settings, password, cluster, broker, is_new=False)


def _write_user(
    common: Common,
    user: str,
    settings: dict[str, Value],
    password: str | None,
    cluster: str | None,
    broker: list[str] | None,
    *,
    is_new: bool,
) -> None:
    from rmqcli.admin.acl import plan_user

    with common.open_client() as client:
        plan = plan_user(
            client,
            user,
            settings,
            is_new=is_new,
            password=password,
            cluster=cluster,
            brokers=broker or (),
        )
        none = "exists already" if is_new else "is so already"
        carry_out(common, client, plan, none=f"user {user} {none}")


@command_options(fields=RESULT_COLUMNS, asks=True)
def user_delete(
    common: Common,
    user: str = _USER,
    cluster: str | None = cluster_option(),
    broker: list[str] | None = brokers_option(),
) -> None:
    """Delete a user and its rules.

    Example: rmq acl user delete alice --yes

    To confirm, type the user's name. The user whose credentials are used is not
    deleted.
    """
    _delete(common, "user", user, cluster, broker)


@command_options(fields=RESULT_COLUMNS, asks=True)
def user_copy(
    common: Common,
    user: str = _USER,
    source: str = _FROM,
    to: list[str] | None = _TO,
) -> None:
    """Copy a user with its password from one broker to others.

    Example: rmq acl user copy alice --from broker-a

    A broker that is new in a cluster has no users.
    """
    _copy(common, "user", user, source, to, none=f"user {user} is the same there")


@command_options(fields=RESULT_COLUMNS, asks=True)
def rule_copy(
    common: Common,
    user: str = _USER,
    source: str = _FROM,
    to: list[str] | None = _TO,
) -> None:
    """Copy the rules of a user from one broker to others.

    Example: rmq acl rule copy alice --from broker-a

    Rules that only the others have stay.
    """
    _copy(common, "rule", user, source, to, none="the rules are the same there")


def _copy(
    common: Common,
    kind: Kind,
    user: str,
    source: str,
    to: list[str] | None,
    *,
    none: str,
) -> None:
    from rmqcli.admin.acl import plan_acl_copy

    with common.open_client() as client:
        plan = plan_acl_copy(client, kind, user, source=source, to=to or ())
        carry_out(common, client, plan, none=none)


@command_options(fields=RESULT_COLUMNS, asks=True)
def rule_create(
    common: Common,
    user: str = _USER,
    resource: str = _RESOURCE,
    actions: Any = _ACTIONS(),
    deny: bool = switch(help="Deny the actions."),
    source_ip: list[str] | None = _SOURCE_IP,
    is_default: bool = switch(
        "--default", help="Decide only where no other rule matches."
    ),
    cluster: str | None = cluster_option(),
    broker: list[str] | None = brokers_option(),
) -> None:
    """Allow or deny a user actions with a resource.

    Example: rmq acl rule create alice Topic:orders Pub,Sub

    A user has one rule for each resource, with all its actions. A topic is consumed
    with Sub for the topic and for the group.
    """
    settings: dict[str, Value] = {
        "actions": actions,
        "decision": "Deny" if deny else "Allow",
        "source_ips": list(source_ip or ()),
    }
    _write_rule(common, user, resource, settings, True, is_default, cluster, broker)


@command_options(fields=RESULT_COLUMNS, asks=True)
def rule_update(
    common: Common,
    user: str = _USER,
    resource: str = _RESOURCE,
    actions: Any = _ACTIONS(default=None),
    allow: bool | None = option(
        "--allow/--deny", help="Whether the actions are allowed."
    ),
    source_ip: list[str] | None = _SOURCE_IP,
    is_default: bool = switch(
        "--default", help="Change the rule of the policy Default."
    ),
    cluster: str | None = cluster_option(),
    broker: list[str] | None = brokers_option(),
) -> None:
    """Change a rule of a user.

    Example: rmq acl rule update alice Topic:orders Pub

    Only what is given is changed.
    """
    settings: dict[str, Value] = {}
    if actions is not None:
        settings["actions"] = actions
    if allow is not None:
        settings["decision"] = "Allow" if allow else "Deny"
    if source_ip:
        settings["source_ips"] = list(source_ip)
    if not settings:
        raise UsageError("nothing to change", hint="see: rmq acl rule update --help")
    _write_rule(common, user, resource, settings, False, is_default, cluster, broker)


def _write_rule(
    common: Common,
    user: str,
    resource: str,
    settings: dict[str, Value],
    is_new: bool,  # private
    is_default: bool,  # private
    cluster: str | None,
    broker: list[str] | None,
) -> None:
    from rmqcli.admin.acl import plan_rule
    from rmqcli.admin.definitions.model import CUSTOM, DEFAULT

    with common.open_client() as client:
        plan = plan_rule(
            client,
            user,
            resource,
            settings,
            is_new=is_new,
            policy_type=DEFAULT if is_default else CUSTOM,
            cluster=cluster,
            brokers=broker or (),
        )
        carry_out(common, client, plan, none="the rule is so already")


@command_options(fields=RESULT_COLUMNS, asks=True)
def rule_delete(
    common: Common,
    user: str = _USER,
    resource: str = _RESOURCE,
    is_default: bool = switch(
        "--default", help="Delete the rule of the policy Default."
    ),
    cluster: str | None = cluster_option(),
    broker: list[str] | None = brokers_option(),
) -> None:
    """Delete a rule of a user.

    Example: rmq acl rule delete alice Topic:orders
    """
    from rmqcli.admin.definitions.model import CUSTOM, DEFAULT, rule_name

    name = rule_name(user, resource, DEFAULT if is_default else CUSTOM)
    _delete(common, "rule", name, cluster, broker)


def _delete(
    common: Common,
    kind: Kind,
    name: str,
    cluster: str | None,
    broker: list[str] | None,
) -> None:
    from rmqcli.admin.acl import plan_acl_deletion

    with common.open_client() as client:
        plan = plan_acl_deletion(
            client, kind, name, cluster=cluster, brokers=broker or ()
        )
        carry_out(common, client, plan, none=f"no {kind} {name}")


@command_options(fields=DECISION_COLUMNS, changes=False)
def explain(
    common: Common,
    user: str = _USER,
    resource: str = argument(help="Resource, such as Topic:orders."),
    action: Any = argument(
        parser=_parse_actions, help="Pub, Sub, Create, Update, Delete, Get or List."
    ),
    source_ip: str | None = option(metavar="ADDRESS", help="Address of the client."),
    cluster: str | None = cluster_option(),
    broker: list[str] | None = brokers_option(),
) -> None:
    """Show whether a user may do something, and which rule decides.

    Example: rmq acl explain alice Topic:orders Pub

    The rules of each broker are read, and compared as the broker does: the name itself
    before a prefix, the longest prefix first, then Topic:*, then *. Nothing is tried.
    """
    from rmqcli.admin.acl import AclDecision, explain_access

    if len(action) != 1:
        raise UsageError("give one action")
    with common.open_client() as client:
        found = explain_access(
            client,
            user,
            resource,
            action[0],
            source_ip=source_ip,
            cluster=cluster,
            brokers=broker or (),
        )
    words = {True: "allow", False: "deny", None: "depends"}
    rows = []
    for name, each in found.items():
        row = {"broker_name": name, "decision": "unknown", "rule": None}
        if isinstance(each, AclDecision):
            row |= {"decision": words[each.is_allowed], "rule": each.rule}
            row["reason"] = each.reason
        else:
            row["reason"] = each.message
        rows.append(row)
    show_list(common, rows, DECISION_COLUMNS, none="no broker")
    raise_if_silent({n: e for n, e in found.items() if isinstance(e, RmqError)})


@command_options(fields=ACCOUNT_COLUMNS, changes=False)
def config(common: Common) -> None:
    """List the accounts of access control 1.0, of brokers before 5.3.

    Example: rmq acl config

    Secret keys are never shown. They are changed in the file plain_acl.yml of each
    broker.
    """
    from rmqcli.admin.acl import read_acl_config

    with common.open_client() as client:
        found = read_acl_config(client)
    errors = {n: each for n, each in found.items() if isinstance(each, RmqError)}
    rows: list[dict[str, Any]] = []
    for name, each in found.items():
        if isinstance(each, RmqError):
            known = {"broker_name": name, "error": each.message}
            rows.append(empty_row(ACCOUNT_COLUMNS, **known))
            continue
        if each.global_white_addrs:
            common.messages.info(
                f"{name} asks for no key from {', '.join(each.global_white_addrs)}"
            )
        for account in each.plain_access_configs or ():
            own = row_of(ACCOUNT_COLUMNS[1:-1], account)
            rows.append({**own, "broker_name": name, "error": None})
    if errors and len(errors) == len(found):
        raise next(iter(errors.values()))
    show_list(common, rows, ACCOUNT_COLUMNS, none="no accounts", is_complete=not errors)
    raise_if_silent(errors)


def _password(common: Common, user: str, name: str | None) -> str:
    """Return a password from a file, stdin, or typed twice on a terminal."""
    from rmqcli.admin.acl import check_password
    from rmqcli.credentials import read_private_file

    if name == "-":
        text = sys.stdin.read(_PASSWORD_CHARACTERS_MAX)
    elif name is not None:
        text = read_private_file(name)
    else:
        text = _ask_for_password(common, user)
    password = text.removesuffix("\n").removesuffix("\r")
    check_password(password)
    return password


def _ask_for_password(common: Common, user: str) -> str:
    import getpass  # loads termios

    if common.no_input or not is_terminal(sys.stdin):
        raise RefusedError(
            "the password cannot be asked for: nothing was changed",
            hint="add --password-file FILE",
        )
    password = getpass.getpass(f"Password of {safe(user)}: ", stream=sys.stderr)
    if getpass.getpass("The same again: ", stream=sys.stderr) != password:
        raise ConfigError("the two passwords are not the same")
    return password
