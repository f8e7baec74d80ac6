"""Which settings topics, groups, users and rules have, and which values are valid.

Also converts topics, groups, users and rules as brokers send them to settings, and the
settings of topics and groups back. Topic and group settings that a broker's version
does not know are left out. Pure.

Source: TopicConfig, SubscriptionGroupConfig, UserInfo, AclInfo in apache/rocketmq.
"""

from __future__ import annotations

import ipaddress
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from rmqcli.dataclass import dataclass
from rmqcli.wire.bodies.config import RETRY_POLICY, SubscriptionGroupConfig, TopicConfig
from rmqcli.wire.version import V4_0_0, V5_0_0, V5_1_3, V5_3_0

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rmqcli.wire.bodies.acl import PolicyEntryInfo, UserInfo

#: JSON values; of numbers only ints.
Value: TypeAlias = "str | int | bool | list[Value] | dict[str, Value] | None"
Settings: TypeAlias = "Mapping[str, Value]"
ConfigT = TypeVar("ConfigT", TopicConfig, SubscriptionGroupConfig)

#: RocketMQ's Action, without those that a rule cannot have.
ACTIONS: Final = ("All", "Pub", "Sub", "Create", "Update", "Delete", "Get", "List")
_INT32_MAX: Final = 2**31 - 1
#: RocketMQ's numbers of permissions, and their names.
_PERMS: Final = {0: "none", 2: "w", 4: "r", 6: "rw"}
_PERM_MAX: Final = 15
_ATTRIBUTES_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class SettingSpec:
    """The default of a new entry, the check of a value, and the first broker version.

    `fault` returns an error such as "must be true or false", or None for a valid value.
    `since` is the number of the version on the wire.
    """

    default: Value
    fault: Callable[[object], str | None]
    since: int = V4_0_0


def _bool_fault(value: object) -> str | None:
    return None if isinstance(value, bool) else "must be true or false"


def _range(low: int, high: int) -> Callable[[object], str | None]:
    def fault(value: object) -> str | None:
        if type(value) is int and low <= value <= high:
            return None
        return f"must be a number from {low} to {high}"

    return fault


def _perm_fault(value: object) -> str | None:
    if value in _PERMS.values() or (type(value) is int and 0 <= value <= _PERM_MAX):
        return None
    return "must be rw, r, w or none"


def _attributes_fault(value: object) -> str | None:
    if not isinstance(value, dict):
        return "must be an object whose values are strings"
    if len(value) > _ATTRIBUTES_MAX:
        return f"must have at most {_ATTRIBUTES_MAX} entries"
    for name, text in value.items():
        if not isinstance(text, str) or not name or not text:
            return "must be an object whose names and values are non-empty strings"
        if any(sign in f"{name}{text}" for sign in ",=+") or name.startswith("-"):
            return (
                "must have no comma, = or + in a name or value, and no name that starts"
                " with -"
            )
    return None


def _one_of(*words: str) -> Callable[[object], str | None]:
    def fault(value: object) -> str | None:
        return None if value in words else f"must be {' or '.join(words)}"

    return fault


def _actions_fault(value: object) -> str | None:
    if isinstance(value, list) and value and all(each in ACTIONS for each in value):
        return None if len(set(value)) == len(value) else "must not repeat an action"
    return f"must be a non-empty list of {', '.join(ACTIONS)}"


def _source_ips_fault(value: object) -> str | None:
    if not isinstance(value, list):
        return "must be a list of addresses, or of networks such as 10.0.0.0/8"
    for each in value:
        try:
            ipaddress.ip_network(each, strict=False)
        except (ValueError, TypeError):
            return f"has {each!r}, which is neither an IP address nor a network"
    return None


def _object_fault(value: object) -> str | None:
    return None if isinstance(value, dict) else "must be an object"


TOPIC_SETTINGS: Final[dict[str, SettingSpec]] = {
    "read_queue_nums": SettingSpec(8, _range(1, 65_535)),
    "write_queue_nums": SettingSpec(8, _range(1, 65_535)),
    "perm": SettingSpec("rw", _perm_fault),
    "order": SettingSpec(False, _bool_fault),
    "topic_filter_type": SettingSpec("SINGLE_TAG", _one_of("SINGLE_TAG", "MULTI_TAG")),
    "topic_sys_flag": SettingSpec(0, _range(0, _INT32_MAX)),
    "attributes": SettingSpec({}, _attributes_fault, V5_0_0),
}
GROUP_SETTINGS: Final[dict[str, SettingSpec]] = {
    "consume_enable": SettingSpec(True, _bool_fault),
    "consume_from_min_enable": SettingSpec(True, _bool_fault),
    "consume_broadcast_enable": SettingSpec(True, _bool_fault),
    "consume_message_orderly": SettingSpec(False, _bool_fault, V5_0_0),
    "retry_queue_nums": SettingSpec(1, _range(1, 65_535)),
    "retry_max_times": SettingSpec(16, _range(-1, _INT32_MAX)),
    "broker_id": SettingSpec(0, _range(0, _INT32_MAX)),
    "which_broker_when_consume_slowly": SettingSpec(1, _range(0, _INT32_MAX)),
    "notify_consumer_ids_changed_enable": SettingSpec(True, _bool_fault),
    "group_sys_flag": SettingSpec(0, _range(0, _INT32_MAX), V5_0_0),
    "consume_timeout_minute": SettingSpec(15, _range(0, _INT32_MAX), V5_0_0),
    "retry_policy": SettingSpec({"type": "CUSTOMIZED"}, _object_fault, V5_0_0),
    "attributes": SettingSpec({}, _attributes_fault, V5_1_3),
}


USER_SETTINGS: Final[dict[str, SettingSpec]] = {
    "user_type": SettingSpec("Normal", _one_of("Normal", "Super"), V5_3_0),
    "user_status": SettingSpec("enable", _one_of("enable", "disable"), V5_3_0),
}
RULE_SETTINGS: Final[dict[str, SettingSpec]] = {
    "actions": SettingSpec(None, _actions_fault, V5_3_0),
    "source_ips": SettingSpec([], _source_ips_fault, V5_3_0),
    "decision": SettingSpec("Allow", _one_of("Allow", "Deny"), V5_3_0),
}


def user_settings(user: UserInfo) -> dict[str, Value]:
    """Return the settings of a user."""
    return {
        "user_type": user.user_type or "Normal",
        "user_status": user.user_status or "enable",
    }


def rule_settings(entry: PolicyEntryInfo) -> dict[str, Value]:
    """Return the settings of a rule; the order of its actions means nothing."""
    actions: list[Value] = [each for each in ACTIONS if each in entry.actions]
    actions += [each for each in entry.actions if each not in ACTIONS]
    sources: list[Value] = [*sorted(entry.source_ips or ())]
    # A rule that a broker shows without a decision is not said to allow anything.
    return {
        "actions": actions,
        "source_ips": sources,
        "decision": entry.decision or "Deny",
    }


def topic_settings(config: TopicConfig, version: int) -> dict[str, Value]:
    """Return the settings of a topic on a broker of this version."""
    perm = _PERMS.get(config.perm, config.perm)
    return _known(config, TOPIC_SETTINGS, version, {"perm": perm})


def group_settings(config: SubscriptionGroupConfig, version: int) -> dict[str, Value]:
    """Return the settings of a group on a broker of this version."""
    default = GROUP_SETTINGS["retry_policy"].default
    policy: Value = config.raw.get(RETRY_POLICY, default)  # type: ignore[assignment]  # it was JSON
    return _known(config, GROUP_SETTINGS, version, {"retry_policy": policy})


def _known(
    config: TopicConfig | SubscriptionGroupConfig,
    specs: Mapping[str, SettingSpec],
    version: int,
    others: dict[str, Value],
) -> dict[str, Value]:
    """Return the settings that a version has; `others` are not those of `config`."""
    others["attributes"] = dict(sorted(config.attributes.items()))
    return {
        name: others[name] if name in others else getattr(config, name)
        for name, spec in specs.items()
        if version >= spec.since
    }


def changed_topic(
    name: str, known: TopicConfig | None, settings: Settings
) -> TopicConfig:
    """Return a topic's settings to write: a broker replaces all of them.

    Its attributes are changes: `+name` sets one and `-name` removes it.
    """
    config = known or TopicConfig(
        topic_name=name, read_queue_nums=8, write_queue_nums=8
    )
    values = dict(settings)
    if "perm" in values:
        numbers = {name: number for number, name in _PERMS.items()}
        values["perm"] = numbers.get(str(values["perm"]), values["perm"])
    return _changed(config, values)


def changed_group(
    name: str, known: SubscriptionGroupConfig | None, settings: Settings
) -> SubscriptionGroupConfig:
    """Return a group's settings to write, as `changed_topic` does."""
    config = known or SubscriptionGroupConfig(group_name=name)
    values = dict(settings)
    if "retry_policy" in values:
        policy = values.pop("retry_policy")
        config = replace(config, raw={**config.raw, RETRY_POLICY: policy})
    return _changed(config, values)


def _changed(config: ConfigT, values: dict[str, Value]) -> ConfigT:
    known, wanted = config.attributes, values.pop("attributes", None)
    changes: dict[str, str] = {}
    if isinstance(wanted, dict):
        changes = {f"+{n}": str(v) for n, v in wanted.items() if known.get(n) != v}
        changes |= {f"-{name}": "" for name in known if name not in wanted}
    # The values were checked when the file was read.
    return replace(config, **values, attributes=changes)  # type: ignore[arg-type]
