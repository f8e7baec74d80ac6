"""Users and rules of access control: plans of changes, and which rule decides.

A broker keeps its own users and rules, so a change goes to each master. Plans are those
of definitions, and are applied and read back in the same way. `decide` is pure.

Source: AclAuthorizationHandler, UserAuthorizationHandler, PolicyEntry, Resource,
Environment and IPAddressUtils in apache/rocketmq.
"""

from __future__ import annotations

import ipaddress
from dataclasses import field, replace
from typing import TYPE_CHECKING, Final

from rmqcli.admin.brokers import ask_each, no_master, with_address
from rmqcli.admin.definitions.model import (
    CUSTOM,
    DEFAULT,
    SETTINGS,
    USER_PREFIX,
    Definition,
    Definitions,
    normal_rule,
    parts_of_rule,
    resource_fault,
    rule_name,
    user_fault,
)
from rmqcli.admin.definitions.plan import DefinitionsPlan, complete_plan
from rmqcli.admin.definitions.read import read_cluster
from rmqcli.admin.definitions.settings import ACTIONS
from rmqcli.admin.lag.memory import departed_errors
from rmqcli.admin.topics import choose_masters
from rmqcli.api.calls.acl import get_acl_config, get_user_with_password
from rmqcli.api.calls.config import get_broker_config, get_broker_runtime_info
from rmqcli.dataclass import dataclass
from rmqcli.errors import (
    BrokerError,
    ConfigError,
    NotFoundError,
    RmqError,
    UnsupportedError,
)
from rmqcli.hint import Hint, LibraryCall
from rmqcli.wire.codes import ResponseCode
from rmqcli.wire.version import V5_3_0, version_name

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from rmqcli.admin.definitions.entries import ClusterEntries
    from rmqcli.admin.definitions.model import Kind
    from rmqcli.admin.definitions.settings import Settings
    from rmqcli.api.client import Client
    from rmqcli.wire.bodies.acl import AclConfig

_KINDS: Final[tuple[Kind, ...]] = ("user", "rule")


@dataclass(frozen=True, slots=True, kw_only=True)
class AclDecision:
    """Whether a user may do something, and what decides.

    `is_allowed` is None if that depends on the client's address. `rule` is the name of
    the rule that decides, None without one.
    """

    is_allowed: bool | None
    rule: str | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AclEntry:
    """A user or a rule, with its settings, and the brokers that have it so."""

    kind: Kind
    name: str
    settings: Settings = field(hash=False)
    brokers: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AclEntries:
    """Users and rules sorted by name, and the errors of brokers that told none."""

    entries: tuple[AclEntry, ...]
    errors: Mapping[str, RmqError] = field(hash=False)


def list_accounts(
    client: Client, *, cluster: str | None = None, brokers: Collection[str] = ()
) -> AclEntries:
    """Return the users and rules of the masters of a cluster, or of some brokers.

    Raises the error of a broker when none of them tells its users.
    """
    found = _read(client, cluster, brokers)
    entries = []
    for kind in _KINDS:
        same: dict[tuple[str, str], tuple[Settings, list[str]]] = {}
        for name, has in sorted(found.brokers.items()):
            for entry, settings in has.entries[kind].items():
                key = (entry, repr(settings))
                same.setdefault(key, (settings, []))[1].append(name)
        entries += [
            AclEntry(kind=kind, name=entry, settings=settings, brokers=tuple(names))
            for (entry, _), (settings, names) in sorted(same.items())
        ]
    return AclEntries(entries=tuple(entries), errors=_errors(found))


def _errors(found: ClusterEntries) -> dict[str, RmqError]:
    unknown = {
        n: has.unknown["user"] for n, has in found.brokers.items() if has.unknown
    }
    return {**found.errors, **unknown}


def explain_access(
    client: Client,
    user: str,
    resource: str,
    action: str,
    *,
    source_ip: str | None = None,
    cluster: str | None = None,
    brokers: Collection[str] = (),
) -> dict[str, AclDecision | RmqError]:
    """Return by broker whether `user` may do `action` with `resource`, and why.

    Raises ConfigError for a resource or action that no request has, and NotFoundError
    when every broker answers and none has the user.
    """
    check_access(resource, action, source_ip)
    found = _read(client, cluster, brokers)
    decisions: dict[str, AclDecision | RmqError] = {**_errors(found)}
    for name, has in found.brokers.items():
        if name not in decisions:
            subject = f"{USER_PREFIX}{user}"
            rules = {
                rule: settings
                for rule, settings in has.entries["rule"].items()
                if parts_of_rule(rule)[0] == subject
            }
            known = has.entries["user"].get(user)
            decisions[name] = decide(known, rules, resource, action, source_ip)
    _check_known(found, "user", user)
    return dict(sorted(decisions.items()))


def check_access(resource: str, action: str, source_ip: str | None) -> None:
    """Raise ConfigError for what no request of a client can be."""
    fault = resource_fault(resource)
    if fault is not None or resource.endswith("*"):
        fault = fault or "must be a single one, without an asterisk"
        raise ConfigError(f"the resource {resource!r} {fault}")
    if action not in ACTIONS or action == "All":
        raise ConfigError(
            f"the action {action!r} is not one of {', '.join(ACTIONS[1:])}"
        )
    try:
        if source_ip is not None:
            ipaddress.ip_address(source_ip)
    except ValueError:
        raise ConfigError(f"{source_ip!r} is not an IP address") from None


def decide(
    user: Settings | None,
    rules: Mapping[str, Settings],
    resource: str,
    action: str,
    source_ip: str | None,
) -> AclDecision:
    """Return what a broker decides about a user, None for an unknown one. Pure.

    `rules` are those of the user. Of the Custom rules that match, the one with the most
    specific resource decides: the name itself, then the longest prefix, then all of the
    type, then `*`. Only where none matches, the Default rules decide, and without any
    rule the request is denied. A denial counts no more than another rule. Without
    `source_ip`, a rule for some addresses may match or not.
    """
    if user is None:
        return AclDecision(is_allowed=False, rule=None, reason="there is no such user")
    if user["user_status"] == "disable":
        return AclDecision(is_allowed=False, rule=None, reason="the user is disabled")
    if user["user_type"] == "Super":
        reason = "super users may do everything"
        return AclDecision(is_allowed=True, rule=None, reason=reason)
    matching = {
        name: settings
        for name, settings in rules.items()
        if _covers(parts_of_rule(name)[1], resource)
        and _has_action(settings, action)
        and (source_ip is None or _is_from(settings, source_ip))
    }
    limited = [name for name, each in matching.items() if each["source_ips"]]
    if source_ip is not None:
        return _decision(matching)
    unlimited = {n: each for n, each in matching.items() if n not in limited}
    plain = _decision(unlimited)
    for name in limited:
        other = _decision({**unlimited, name: matching[name]})
        if other.is_allowed != plain.is_allowed:
            return AclDecision(
                is_allowed=None,
                rule=other.rule,
                reason="it depends on the client's address: the rule is for some only",
            )
    return plain


def _decision(matching: Mapping[str, Settings]) -> AclDecision:
    for policy_type in (CUSTOM, DEFAULT):
        found = [each for each in matching if parts_of_rule(each)[2] == policy_type]
        if found:
            rule = min(found, key=lambda each: _rank(parts_of_rule(each)[1]))
            is_allowed = matching[rule]["decision"] != "Deny"
            reason = f"the rule {'allows' if is_allowed else 'denies'} it"
            return AclDecision(is_allowed=is_allowed, rule=rule, reason=reason)
    return AclDecision(is_allowed=False, rule=None, reason="no rule matches")


def _rank(resource: str) -> tuple[int, int]:
    """Return the order of resources that match: the most specific one is first."""
    if resource == "*":
        return (3, 0)
    if resource.endswith(":*"):
        return (2, 0)
    if resource.endswith("*"):
        return (1, -len(resource))
    return (0, 0)


def _covers(pattern: str, resource: str) -> bool:
    if pattern.endswith("*"):
        return resource.startswith(pattern[:-1])
    return pattern == resource


def _has_action(settings: Settings, action: str) -> bool:
    actions = settings["actions"]
    return isinstance(actions, list) and (action in actions or "All" in actions)


def _is_from(settings: Settings, source_ip: str) -> bool:
    sources = settings["source_ips"]
    if not isinstance(sources, list) or not sources:
        return True
    address = ipaddress.ip_address(source_ip)
    for each in map(str, sources):
        if "/" not in each:
            if each == source_ip:  # RocketMQ compares the texts
                return True
            continue
        try:
            if address in ipaddress.ip_network(each, strict=False):
                return True
        except ValueError:
            continue
    return False


def plan_user(
    client: Client,
    user: str,
    settings: Settings,
    *,
    is_new: bool,
    password: str | None = None,
    cluster: str | None = None,
    brokers: Collection[str] = (),
) -> DefinitionsPlan:
    """Plan to create a user, or to change the given settings of one.

    Raises ConfigError for a name or password that is not possible, and NotFoundError
    when no broker has a user that is to be changed.
    """
    _check_name("user", user_fault(user))
    if password is not None:
        check_password(password)
    passwords = {} if password is None else {user: password}
    wanted = Definition(kind="user", name=user, settings=settings)
    return _planned(client, wanted, is_new, cluster, brokers, passwords)


def check_password(password: str) -> None:
    """Raise ConfigError for a password that cannot be used. It is not quoted."""
    if not password.strip() or not password.isprintable() or len(password) > 1_000:
        raise ConfigError(
            "the password must have 1 to 1,000 characters, and no control characters"
        )


def plan_rule(
    client: Client,
    user: str,
    resource: str,
    settings: Settings,
    *,
    is_new: bool,
    policy_type: str = CUSTOM,
    cluster: str | None = None,
    brokers: Collection[str] = (),
) -> DefinitionsPlan:
    """Plan to create a rule of a user, or to change the given settings of one.

    Raises ConfigError for what is not possible, and NotFoundError when no broker has a
    rule that is to be changed.
    """
    _check_name("user", user_fault(user))
    _check_name("resource", resource_fault(resource))
    for key, value in settings.items():
        _check_name(key, SETTINGS["rule"][key].fault(value))
    name = rule_name(user, resource, policy_type)
    wanted = Definition(kind="rule", name=name, settings=normal_rule(settings))
    return _planned(client, wanted, is_new, cluster, brokers, {})


def _planned(
    client: Client,
    wanted: Definition,
    is_new: bool,  # private
    cluster: str | None,
    brokers: Collection[str],
    passwords: Mapping[str, str],
) -> DefinitionsPlan:
    found = _read(client, cluster, brokers)
    if wanted.kind == "rule":
        subject = parts_of_rule(wanted.name)[0]
        _check_known(found, "user", subject.removeprefix(USER_PREFIX))
    if not is_new:
        _check_known(found, wanted.kind, wanted.name)
    return complete_plan(
        client,
        DefinitionsPlan(
            definitions=Definitions(definitions=(wanted,), kinds=_KINDS),
            cluster=cluster or "",
            brokers=tuple(sorted(brokers)),
            mode="create" if is_new else "change",
            leaves_out_extra=True,
            passwords=passwords,
        ),
    )


def plan_acl_deletion(
    client: Client,
    kind: Kind,
    name: str,
    *,
    cluster: str | None = None,
    brokers: Collection[str] = (),
) -> DefinitionsPlan:
    """Plan to delete a user with its rules, or a rule.

    Raises NotFoundError when every broker answers and none has it.
    """
    _check_known(_read(client, cluster, brokers), kind, name)
    return complete_plan(
        client,
        DefinitionsPlan(
            definitions=Definitions(definitions=(), kinds=_KINDS),
            cluster=cluster or "",
            brokers=tuple(sorted(brokers)),
            deletions=((kind, name),),
            leaves_out_extra=True,
        ),
    )


def plan_acl_copy(
    client: Client,
    kind: Kind,
    user: str,
    *,
    source: str,
    to: Collection[str] = (),
) -> DefinitionsPlan:
    """Plan to copy a user with its password, or the rules of a user, between brokers.

    Without `to`, the targets are the other masters of the cluster of `source`; brokers
    without a master, and those that have left the route, are among the errors of the
    plan then. Raises NotFoundError when `source` has no such user, or no rules of it,
    and ConfigError when there is no other broker.
    """
    chosen = choose_masters(client, cluster=None, brokers=[source])
    info = client.cluster_info()
    cluster = info.brokers[source].cluster
    targets = set(to)
    untold: dict[str, RmqError] = {}
    if not to:
        others = set(info.clusters[cluster]) - {source}
        targets = others & client.masters().keys()
        untold = {name: no_master(name) for name in sorted(others - targets)}
        untold |= departed_errors(client)
        if not others and not untold:
            raise ConfigError(f"{source} is the only broker of cluster {cluster}")
    has = _read(client, None, [source]).brokers[source].entries
    passwords: dict[str, str] = {}
    if kind == "user":
        names = [user] if user in has["user"] else []
        known = client.invoke(
            with_address(chosen)[source], get_user_with_password(user)
        )
        if known is not None and known.password:
            passwords[user] = known.password
    else:
        subject = f"{USER_PREFIX}{user}"
        names = [name for name in has["rule"] if parts_of_rule(name)[0] == subject]
    if not names:
        raise _not_found(kind, user)
    definitions = tuple(
        Definition(kind=kind, name=name, settings=has[kind][name])
        for name in sorted(names)
    )
    plan = DefinitionsPlan(
        definitions=Definitions(definitions=definitions, kinds=_KINDS),
        cluster=cluster,
        brokers=tuple(sorted(targets)),
        leaves_out_extra=True,
        passwords=passwords,
    )
    if targets:
        plan = complete_plan(client, plan)
    return replace(plan, errors={**plan.errors, **untold})


def read_acl_config(client: Client) -> dict[str, AclConfig | RmqError]:
    """Return the accounts of access control 1.0 by broker, without secret keys.

    Brokers have them before 5.3, if access control is on; the others have an error.
    Raises NoBrokerError when no broker answers.
    """
    masters = client.masters()
    versions = ask_each(client, masters, get_broker_runtime_info())
    client.raise_if_none_answers(versions.values())
    found: dict[str, AclConfig | RmqError] = {
        name: answer
        for name, answer in versions.items()
        if isinstance(answer, RmqError) and not isinstance(answer, BrokerError)
    }
    for name in masters.keys() - found.keys():
        version = client.broker_version(masters[name])
        if version >= V5_3_0:
            found[name] = UnsupportedError(
                f"{name} runs RocketMQ {version_name(version)}, and access control 1.0"
                f" ended with {version_name(V5_3_0)}",
                hint=Hint("list users with: ", LibraryCall("Admin.accounts")),
            )
    asked = {name: at for name, at in masters.items() if name not in found}
    # Brokers without access control do not answer the next request.
    for name, settings in ask_each(client, asked, get_broker_config()).items():
        if isinstance(settings, dict) and settings.get("aclEnable") == "false":
            del asked[name]
            found[name] = UnsupportedError(
                f"access control of {name} is off: aclEnable is false"
            )
    answers = ask_each(client, asked, get_acl_config())
    found.update(answers)
    return dict(sorted(found.items()))


def _read(
    client: Client, cluster: str | None, brokers: Collection[str]
) -> ClusterEntries:
    """Read users and rules. Raises the error of a broker when none tells them."""
    found = read_cluster(client, cluster or None, _KINDS, brokers=brokers)
    errors = _errors(found)
    if len(errors) == len(found.brokers.keys() | found.errors.keys()):
        for error in errors.values():
            raise error
    return found


def _check_known(found: ClusterEntries, kind: Kind, name: str) -> None:
    """Raise NotFoundError when every broker answers and none has it."""
    has_it = any(name in has.entries[kind] for has in found.brokers.values())
    if not has_it and not _errors(found):
        raise _not_found(kind, name)


def _check_name(what: str, fault: str | None) -> None:
    if fault is not None:
        raise ConfigError(f"the {what} {fault}")


def _not_found(kind: Kind, name: str) -> NotFoundError:
    is_user = kind == "user"
    code = ResponseCode.USER_NOT_EXIST if is_user else ResponseCode.POLICY_NOT_EXIST
    return NotFoundError(f"there is no {kind} {name}", code=code)
