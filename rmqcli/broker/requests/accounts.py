"""Users and rules of access control for mqadmin: 3001 to 3006 and 3008 to 3010 (5.3).

Imitated: the answers, those of a broker without access control among them, and that a
broker drops actions that it does not know.
Not imitated: nothing is kept on the disk, and nothing is enforced: every request is
answered, signed or not. A proxy has accounts of its own.

Source: `AdminBrokerProcessor`, `AuthenticationMetadataManagerImpl`,
`AuthorizationMetadataManagerImpl` in apache/rocketmq.
"""

from __future__ import annotations

import dataclasses
import ipaddress
from typing import TYPE_CHECKING, Final

from rmqcli.broker.dispatch import handles
from rmqcli.broker.request import BrokerRequest, Reply, no_permission, system_error
from rmqcli.broker.state.accounts import CUSTOM, DEFAULT, RULES_MAX, USERS_MAX
from rmqcli.wire import fastjson
from rmqcli.wire.bodies.acl import (
    AclInfo,
    PolicyEntryInfo,
    PolicyInfo,
    UserWithPassword,
)
from rmqcli.wire.body import to_json
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.headers import acl
from rmqcli.wire.version import V5_3_0

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqcli.broker.state.accounts import AccountTable
    from rmqcli.broker.state.broker import BrokerState

_ACTIONS: Final = ("All", "Pub", "Sub", "Create", "Update", "Delete", "Get", "List")
_RESOURCES: Final = ("Cluster", "Namespace", "Topic", "Group")
_REMARK: Final = "not set any response code"


@handles(RequestCode.AUTH_CREATE_USER, since=V5_3_0)
def create_user(broker: BrokerState, request: BrokerRequest) -> Reply:
    """AUTH_CREATE_USER (3001)."""
    table = _users(broker)
    name = request.header(acl.CreateUserRequestHeader).username
    user = dataclasses.replace(request.body(UserWithPassword), username=name)
    if not user.password:
        raise no_permission("password can not be blank")
    if name in table.users:
        raise no_permission("The user is existed")
    if len(table.users) >= USERS_MAX:
        raise no_permission(f"the broker already has {USERS_MAX} users")
    table.users[name] = dataclasses.replace(
        user,
        user_type=_word(user.user_type, ("Super", "Normal")) or "Normal",
        user_status=_word(user.user_status, ("enable", "disable")) or "enable",
    )
    return Reply(remark=_REMARK)


@handles(RequestCode.AUTH_UPDATE_USER, since=V5_3_0)
def update_user(broker: BrokerState, request: BrokerRequest) -> Reply:
    """AUTH_UPDATE_USER (3002): what the body does not name keeps its value."""
    table = _users(broker)
    name = request.header(acl.UpdateUserRequestHeader).username
    asked = request.body(UserWithPassword)
    known = table.users.get(name)
    if known is None:
        raise no_permission("The user is not exist")
    table.users[name] = UserWithPassword(
        username=name,
        password=asked.password or known.password,
        user_type=_word(asked.user_type, ("Super", "Normal")) or known.user_type,
        user_status=_word(asked.user_status, ("enable", "disable"))
        or known.user_status,
    )
    return Reply(remark=_REMARK)


@handles(RequestCode.AUTH_DELETE_USER, since=V5_3_0)
def delete_user(broker: BrokerState, request: BrokerRequest) -> Reply:
    """AUTH_DELETE_USER (3003): its rules, too; succeeds for an unknown user."""
    table = _users(broker)
    name = request.header(acl.DeleteUserRequestHeader).username
    table.users.pop(name, None)
    table.rules.pop(f"User:{name}", None)
    return Reply(remark=_REMARK)


@handles(RequestCode.AUTH_GET_USER, since=V5_3_0)
def get_user(broker: BrokerState, request: BrokerRequest) -> Reply:
    """AUTH_GET_USER (3004): no body for an unknown user."""
    user = _users(broker).users.get(request.header(acl.GetUserRequestHeader).username)
    return Reply(remark=_REMARK, body=b"" if user is None else _json(user))


@handles(RequestCode.AUTH_LIST_USER, since=V5_3_0)
def list_users(broker: BrokerState, request: BrokerRequest) -> Reply:
    """AUTH_LIST_USER (3005)."""
    wanted = request.header(acl.ListUsersRequestHeader).filter or ""
    users = _users(broker).users
    found = [users[name] for name in sorted(users) if wanted in name]
    return Reply(remark=_REMARK, body=_json(found) if found else b"")


@handles(RequestCode.AUTH_CREATE_ACL, since=V5_3_0)
def create_acl(broker: BrokerState, request: BrokerRequest) -> Reply:
    """AUTH_CREATE_ACL (3006): adds rules, or replaces those of the same resources."""
    table = _rules(broker)
    subject = request.header(acl.CreateAclRequestHeader).subject
    entries = {
        (_word(policy.policy_type, (CUSTOM, DEFAULT)) or CUSTOM, entry.resource): (
            _checked(entry)
        )
        for policy in request.body(AclInfo).policies
        for entry in policy.entries
    }
    if not entries:
        raise no_permission("The policy entries is empty.")
    if subject.removeprefix("User:") not in table.users:
        raise no_permission(f"The subject of {subject} is not exist.")
    rules = table.rules.setdefault(subject, {})
    if len(rules) + len(entries) > RULES_MAX:
        raise no_permission(f"{subject} would have more than {RULES_MAX} rules")
    rules.update(entries)
    return Reply(remark=_REMARK)


@handles(RequestCode.AUTH_DELETE_ACL, since=V5_3_0)
def delete_acl(broker: BrokerState, request: BrokerRequest) -> Reply:
    """AUTH_DELETE_ACL (3008): of one resource, or all without one."""
    table = _rules(broker)
    header = request.header(acl.DeleteAclRequestHeader)
    if header.subject.removeprefix("User:") not in table.users:
        raise no_permission("The subject is not exist.")
    rules = table.rules.get(header.subject)
    if not rules:
        raise no_permission("The acl is not exist.")
    if header.resource:
        rules.pop((header.policy_type or CUSTOM, header.resource), None)
    if not header.resource or not rules:
        del table.rules[header.subject]
    return Reply(remark=_REMARK)


@handles(RequestCode.AUTH_GET_ACL, since=V5_3_0)
def get_acl(broker: BrokerState, request: BrokerRequest) -> Reply:
    """AUTH_GET_ACL (3009): no body for a user without rules."""
    table = _rules(broker)
    subject = request.header(acl.GetAclRequestHeader).subject
    if subject.removeprefix("User:") not in table.users:
        raise no_permission("The subject is not exist.")
    rules = table.rules.get(subject)
    return Reply(remark=_REMARK, body=_json(_acl(table, subject)) if rules else b"")


@handles(RequestCode.AUTH_LIST_ACL, since=V5_3_0)
def list_acls(broker: BrokerState, request: BrokerRequest) -> Reply:
    """AUTH_LIST_ACL (3010), without the filter of resources."""
    table = _rules(broker)
    wanted = request.header(acl.ListAclsRequestHeader).subject_filter or ""
    found = [_acl(table, name) for name in sorted(table.rules) if wanted in name]
    return Reply(remark=_REMARK, body=_json(found) if found else b"")


def _users(broker: BrokerState) -> AccountTable:
    if not broker.settings.authentication_enabled:
        raise system_error("An system error occurred, please try again later.")
    return broker.accounts


def _rules(broker: BrokerState) -> AccountTable:
    if not broker.settings.authentication_enabled:
        raise system_error(
            "java.lang.IllegalStateException: The authorizationMetadataProvider is not"
            " configured."
        )
    return broker.accounts


def _checked(entry: PolicyEntryInfo) -> PolicyEntryInfo:
    kind, colon, _ = entry.resource.partition(":")
    if entry.resource != "*" and not (colon and _word(kind, _RESOURCES)):
        raise no_permission("The resource is null.")
    words = (_word(action, _ACTIONS) for action in entry.actions)
    actions = [word for word in words if word is not None]
    if not actions:
        raise no_permission("The actions is empty.")
    for source in entry.source_ips or ():
        try:
            ipaddress.ip_network(source, strict=False)
        except ValueError:
            raise no_permission("The source ip is invalid.") from None
    decision = _word(entry.decision, ("Allow", "Deny"))
    if decision is None:
        raise no_permission("The decision is null or illegal.")
    return dataclasses.replace(
        entry,
        actions=actions,
        source_ips=entry.source_ips or None,
        decision=decision,
    )


def _acl(table: AccountTable, subject: str) -> AclInfo:
    rules = table.rules[subject]
    return AclInfo(
        subject=subject,
        policies=[
            PolicyInfo(policy_type=kind, entries=entries)
            for kind in (CUSTOM, DEFAULT)
            if (entries := [each for key, each in rules.items() if key[0] == kind])
        ],
    )


def _word(text: str | None, words: Iterable[str]) -> str | None:
    """Return the one of `words` that `text` is, in whatever case."""
    return next((each for each in words if each.lower() == (text or "").lower()), None)


def _json(value: object) -> bytes:
    return fastjson.dumps(to_json(value)).encode()
