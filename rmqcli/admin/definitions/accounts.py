"""Which changes of users and rules are possible, how they are made, and passwords.

A broker replaces a rule as a whole, so a changed rule is sent with all its settings. A
listing of users has no passwords: these are read one by one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rmqcli.admin.brokers import split_answers
from rmqcli.admin.definitions.compare import (
    DefinitionChange,
    SettingDifference,
)
from rmqcli.admin.definitions.model import USER_PREFIX, parts_of_rule
from rmqcli.admin.definitions.requests import BATCH, send
from rmqcli.admin.definitions.settings import RULE_SETTINGS
from rmqcli.api.calls.acl import (
    create_user,
    get_user_with_password,
    put_acl,
    update_user,
)
from rmqcli.wire.bodies.acl import (
    AclInfo,
    PolicyEntryInfo,
    PolicyInfo,
    UserWithPassword,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rmqcli.admin.definitions.entries import ClusterEntries
    from rmqcli.admin.definitions.plan import DefinitionsPlan
    from rmqcli.admin.definitions.requests import EntryKey
    from rmqcli.admin.definitions.settings import Settings, Value
    from rmqcli.api.call import Call
    from rmqcli.api.client import Client
    from rmqcli.errors import RmqError


def possible_accounts(
    client: Client,
    plan: DefinitionsPlan,
    entries: ClusterEntries,
    changes: Iterable[DefinitionChange],
) -> Iterable[DefinitionChange]:
    """Yield the changes, with passwords, and what cannot be done as skipped."""
    changes = list(changes)
    for change in changes:
        for broker in change.brokers:
            reason = None
            if change.kind in ("user", "rule") and change.action != "skip":
                reason = _account_fault(client, plan, entries, change, broker)
            if reason is not None and change.action != "extra":
                yield replace(change, action="skip", brokers=(broker,), reason=reason)
            else:
                yield replace(change, brokers=(broker,))
    new_password = SettingDifference(setting="password", now=None, wanted="(new)")
    for name, broker in _other_passwords(client, entries, plan.passwords):
        yield DefinitionChange(
            action="skip" if plan.mode == "create" else "change",
            kind="user",
            name=name,
            brokers=(broker,),
            settings=(new_password,),
            reason="it exists with another password" if plan.mode == "create" else None,
        )


def _account_fault(
    client: Client,
    plan: DefinitionsPlan,
    entries: ClusterEntries,
    change: DefinitionChange,
    broker: str,
) -> str | None:
    """Return why a change of a user or a rule is not possible on a broker, or None."""
    if plan.mode == "create" and change.action == "change":
        return "it exists with other settings"
    if plan.mode == "change" and change.action == "create":
        return f"there is no {change.kind} {change.name}"
    users = entries.brokers[broker].entries["user"]
    wanted = {each.setting: each.wanted for each in change.settings}
    credentials = client.config.credentials
    if change.kind == "rule":
        name = parts_of_rule(change.name)[0].removeprefix(USER_PREFIX)
        created = {
            each.name
            for each in plan.definitions.definitions
            if each.kind == "user" and each.name in plan.passwords
        }
        if change.action != "delete" and name not in users and name not in created:
            return f"there is no user {name}"
        return None
    if change.action == "create" and change.name not in plan.passwords:
        return "a new user needs a password, and a definitions file cannot contain one"
    is_super = users.get(change.name, {}).get("user_type") == "Super"
    if change.action == "delete" and is_super and plan.prune:
        return "pruning does not delete super users"
    is_weaker = (
        change.action == "delete"
        or wanted.get("user_status") == "disable"
        or wanted.get("user_type") == "Normal"
    )
    is_own = credentials is not None and credentials.access_key == change.name
    if is_weaker and is_own and change.action != "create":
        return "this command uses its credentials"
    return None


def _other_passwords(
    client: Client, entries: ClusterEntries, passwords: Mapping[str, str]
) -> list[tuple[str, str]]:
    """Return the users, and brokers, that have another password than is wanted.

    Raises the error of a broker that does not tell.
    """
    asked = {
        (name, broker): (has.address, get_user_with_password(name))
        for name in passwords
        for broker, has in entries.brokers.items()
        if name in has.entries.get("user", {})
    }
    answers = client.ask_many(asked)
    told, errors = split_answers(answers)
    for error in errors.values():
        raise error
    return [
        (name, broker)
        for (name, broker), user in told.items()
        if user is None or user.password != passwords[name]
    ]


def write_accounts(
    client: Client,
    entries: ClusterEntries,
    work: Iterable[DefinitionChange],
    passwords: Mapping[str, str],
) -> dict[EntryKey, RmqError]:
    """Create and change users, and then rules; return the errors of what failed."""
    users: dict[str, list[tuple[str, Call[None]]]] = {}
    rules: dict[tuple[str, str], dict[str, DefinitionChange]] = {}
    for change in work:
        if change.action not in ("create", "change"):
            continue
        for broker in change.brokers:
            if change.kind == "user":
                call = _user_call(change, passwords)
                users.setdefault(broker, []).append((change.name, call))
            elif change.kind == "rule":
                key = (broker, parts_of_rule(change.name)[0])
                rules.setdefault(key, {})[change.name] = change
    addresses = {name: broker.address for name, broker in entries.brokers.items()}
    failed = send(client, addresses, users, batch=BATCH)
    errors: dict[EntryKey, RmqError] = {
        ("user", name, broker): error for (name, broker), error in failed.items()
    }
    calls: dict[str, list[tuple[tuple[str, ...], Call[None]]]] = {}
    for (broker, subject), changes in rules.items():
        known = entries.brokers[broker].entries["rule"]
        call = put_acl(_acl_of(subject, changes, known))
        calls.setdefault(broker, []).append((tuple(changes), call))
    for (names, broker), error in send(client, addresses, calls, batch=BATCH).items():
        errors |= {("rule", name, broker): error for name in names}
    return errors


def _user_call(change: DefinitionChange, passwords: Mapping[str, str]) -> Call[None]:
    wanted = {each.setting: each.wanted for each in change.settings}
    user = UserWithPassword(
        username=change.name,
        password=passwords.get(change.name)
        if change.action == "create" or "password" in wanted
        else None,
        user_type=_text(wanted.get("user_type")),
        user_status=_text(wanted.get("user_status")),
    )
    return create_user(user) if change.action == "create" else update_user(user)


def _text(value: Value) -> str | None:
    return value if isinstance(value, str) else None


def _acl_of(
    subject: str,
    changes: Mapping[str, DefinitionChange],
    known: Mapping[str, Settings],
) -> AclInfo:
    """Return the rules to write: whole ones, because a broker replaces each."""
    entries: dict[str, list[PolicyEntryInfo]] = {}
    for name, change in changes.items():
        _, resource, policy_type = parts_of_rule(name)
        values = {setting: each.default for setting, each in RULE_SETTINGS.items()}
        values |= dict(known.get(name, {}))
        values |= {each.setting: each.wanted for each in change.settings}
        actions, sources = values["actions"], values["source_ips"]
        entry = PolicyEntryInfo(
            resource=resource,
            actions=list(map(str, actions)) if isinstance(actions, list) else [],
            source_ips=list(map(str, sources))
            if isinstance(sources, list) and sources
            else None,
            decision=str(values["decision"]),
        )
        entries.setdefault(policy_type, []).append(entry)
    return AclInfo(
        subject=subject,
        policies=[
            PolicyInfo(policy_type=policy_type, entries=found)
            for policy_type, found in entries.items()
        ],
    )


def wrong_passwords(
    client: Client,
    after: ClusterEntries,
    work: Iterable[DefinitionChange],
    passwords: Mapping[str, str],
) -> tuple[dict[EntryKey, DefinitionChange], dict[EntryKey, RmqError]]:
    """Return changes of users whose new password was not set, and brokers' errors.

    The errors are those of brokers that do not show whether it was set.
    """
    asked = {
        (change.name, broker): (change, after.brokers[broker].address)
        for change in work
        if change.kind == "user" and change.name in passwords
        for broker in change.brokers
        if broker in after.brokers and change.action in ("create", "change")
    }
    answers = client.ask_many(
        {
            key: (address, get_user_with_password(key[0]))
            for key, (_, address) in asked.items()
        },
    )
    told, errors = split_answers(answers)
    wrong: dict[EntryKey, DefinitionChange] = {
        ("user", *key): asked[key][0]
        for key, user in told.items()
        if user is None or user.password != passwords[key[0]]
    }
    return wrong, {("user", *key): error for key, error in errors.items()}
