"""The file of definitions: what it may contain, how it is read and written.

The file is JSON whose order does not depend on the cluster, and it has no time in it,
so that it can be kept under version control. It has a version of its own; a file of a
newer one is refused, and so is a key that is not known, because a setting with a
mistyped name would silently not be applied. Pure.
"""

from __future__ import annotations

import json
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from rmqcli.admin.definitions.settings import (
    ACTIONS,
    GROUP_SETTINGS,
    RULE_SETTINGS,
    TOPIC_SETTINGS,
    USER_SETTINGS,
)
from rmqcli.dataclass import dataclass
from rmqcli.errors import ConfigError, RmqError
from rmqcli.hint import Hint, LibraryCall
from rmqcli.model import is_system_group
from rmqcli.names import check_group, check_topic, similar

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from rmqcli.admin.definitions.settings import Settings, SettingSpec, Value

FORMAT: Final = "rmq-definitions"
FORMAT_VERSION: Final = 1
#: A file with more is not read; 2,000 topics take 0.5 MB.
FILE_BYTES_MAX: Final = 64 * 1024 * 1024

Kind = Literal["topic", "group", "user", "rule"]
#: The kinds, with the name of their section in the file.
SECTIONS: Final[dict[Kind, str]] = {
    "topic": "topics",
    "group": "groups",
    "user": "users",
    "rule": "rules",
}
SETTINGS: Final[dict[Kind, Mapping[str, SettingSpec]]] = {
    "topic": TOPIC_SETTINGS,
    "group": GROUP_SETTINGS,
    "user": USER_SETTINGS,
    "rule": RULE_SETTINGS,
}
#: What the name of a rule begins with; no other subjects exist.
USER_PREFIX: Final = "User:"
#: Policy types: the rules of Default decide only where no Custom rule matches.
CUSTOM: Final = "Custom"
DEFAULT: Final = "Default"
_RESOURCE_TYPES: Final = ("Cluster", "Namespace", "Topic", "Group")
_USERNAME_MAX: Final = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A topic, group, user or rule on `brokers`; None for all masters of a cluster.

    The name of a rule is that of `rule_name`. A setting that is not named keeps its
    value, and has RocketMQ's default in a new entry.
    """

    kind: Kind
    name: str
    settings: Settings = field(hash=False)
    brokers: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Definitions:
    """The contents of a file: sorted definitions, and where they come from.

    `kinds` are the kinds of which the file has a section, even an empty one; nothing is
    known of the others. `cluster` and `versions`, by broker name, are those of the
    source, and `left_out` says what of it the file does not contain.
    """

    definitions: tuple[Definition, ...]
    kinds: tuple[Kind, ...]
    cluster: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict, hash=False)
    left_out: tuple[str, ...] = ()

    def only(self, kinds: Collection[Kind]) -> Definitions:
        """Return the definitions of these kinds."""
        return replace(
            self,
            definitions=tuple(each for each in self.definitions if each.kind in kinds),
            kinds=tuple(kind for kind in self.kinds if kind in kinds),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the file as a JSON value."""
        source = {
            "cluster": self.cluster,
            "brokers": dict(sorted(self.versions.items())),
        }
        found: dict[str, Any] = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "source": source,
            "left_out": list(self.left_out),
        }
        for kind in self.kinds:
            found[SECTIONS[kind]] = [
                _entry_json(each) for each in self.definitions if each.kind == kind
            ]
        return found

    def to_text(self) -> str:
        """Return the file as text, one setting on a line."""
        return json.dumps(self.to_json(), indent=2) + "\n"


def rule_name(user: str, resource: str, policy_type: str = CUSTOM) -> str:
    """Return the name of a rule, such as `User:alice Topic:orders`."""
    end = "" if policy_type == CUSTOM else f" {policy_type}"
    return f"{USER_PREFIX}{user} {resource}{end}"


def parts_of_rule(name: str) -> tuple[str, str, str]:
    """Return the subject, the resource and the policy type of a rule."""
    subject, resource, *rest = name.split(" ")
    return subject, resource, rest[0] if rest else CUSTOM


def user_fault(name: str) -> str | None:
    """Return why a user cannot have this name, or None."""
    if not name or len(name) > _USERNAME_MAX or not name.isprintable() or " " in name:
        return (
            f"must have 1 to {_USERNAME_MAX} characters, and no blanks and control"
            " characters"
        )
    return None


def resource_fault(resource: str) -> str | None:
    """Return why a rule cannot have this resource, or None.

    RocketMQ reads `Topic:a*b` as `Topic:a*`, so an asterisk is only allowed at the end.
    """
    kind, colon, name = resource.partition(":")
    if resource == "*":
        return None
    if kind not in _RESOURCE_TYPES or not colon or not name:
        return f"must be * or {', '.join(_RESOURCE_TYPES)} with a name, as Topic:orders"
    if not name.isprintable() or " " in name or "*" in name[:-1]:
        return "must have no blanks, and an asterisk at its end only"
    return None


def _entry_json(definition: Definition) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": definition.name}
    if definition.kind == "rule":
        subject, resource, policy_type = parts_of_rule(definition.name)
        entry = {"user": subject.removeprefix(USER_PREFIX), "resource": resource}
        if policy_type != CUSTOM:
            entry["policy_type"] = policy_type
    if definition.brokers is not None:
        entry["brokers"] = list(definition.brokers)
    return entry | dict(definition.settings)


def parse_definitions(text: str) -> Definitions:
    """Read a file of definitions. Raises ConfigError, which names the place."""
    if len(text) > FILE_BYTES_MAX:
        raise ConfigError("the file is too large for definitions")
    if not text.strip("\ufeff \t\r\n"):
        raise ConfigError(
            "the file is empty",
            hint=Hint("write one with: ", LibraryCall("Admin.definitions")),
        )
    try:
        data = json.loads(
            text.removeprefix("\ufeff"),
            object_pairs_hook=_without_duplicates,
            parse_constant=_no_constant,
        )
    except (ValueError, RecursionError) as error:
        if isinstance(error, RmqError):
            raise
        reason = "too deep" if isinstance(error, RecursionError) else str(error)
        raise ConfigError(f"not JSON: {reason}") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ConfigError(
            "not a file of definitions",
            hint=Hint("write one with: ", LibraryCall("Admin.definitions")),
        )
    version = data.get("format_version")
    if type(version) is not int or version < 1:
        raise ConfigError("format_version must be a number from 1")
    if version > FORMAT_VERSION:
        raise ConfigError(
            f"the file has format version {version}, and only versions up to"
            f" {FORMAT_VERSION} can be read",
            hint="use the version that wrote it, or a newer one",
        )
    known = {"format", "format_version", "source", "left_out", *SECTIONS.values()}
    for key in data:
        if key not in known:
            raise _unknown_key("", key, known)
    kinds = tuple(kind for kind in SECTIONS if SECTIONS[kind] in data)
    if not kinds:
        raise ConfigError(f"the file has no section: {', '.join(SECTIONS.values())}")
    definitions = [
        each for kind in kinds for each in _section(kind, data[SECTIONS[kind]])
    ]
    _check_unique(definitions)
    source = data.get("source")
    source = source if isinstance(source, dict) else {}
    cluster, brokers = source.get("cluster"), source.get("brokers")
    return Definitions(
        definitions=sorted_definitions(definitions),
        kinds=kinds,
        cluster=cluster if isinstance(cluster, str) else None,
        versions={str(k): str(v) for k, v in brokers.items()}
        if isinstance(brokers, dict)
        else {},
    )


def sorted_definitions(definitions: Iterable[Definition]) -> tuple[Definition, ...]:
    """Return definitions in the order of a file."""
    order = list(SECTIONS)
    return tuple(
        sorted(
            definitions,
            key=lambda each: (order.index(each.kind), each.name, each.brokers or ()),
        )
    )


def _section(kind: Kind, entries: Value) -> Iterable[Definition]:
    section = SECTIONS[kind]
    if not isinstance(entries, list):
        raise ConfigError(f"{section} must be a list")
    specs = SETTINGS[kind]
    for number, entry in enumerate(entries):
        place = f"{section}[{number}]"
        keys = ("user", "resource") if kind == "rule" else ("name",)
        if not isinstance(entry, dict) or not all(
            isinstance(entry.get(key), str) for key in keys
        ):
            raise ConfigError(
                f"{place} must be an object with a {' and a '.join(keys)}"
            )
        if kind == "rule":
            name = _rule_of(entry, place)
            keys = (*keys, "policy_type")
        else:
            name = str(entry["name"])
        place = f"{place} ({name!r})"
        _check_name(kind, name, place)
        brokers = _brokers(entry.get("brokers"), place)
        settings = {
            key: value for key, value in entry.items() if key not in (*keys, "brokers")
        }
        for key, value in settings.items():
            if key not in specs:
                raise _unknown_key(f"{place}: ", key, {*keys, "brokers", *specs})
            fault = specs[key].fault(value)
            if fault is not None:
                raise ConfigError(f"{place}: {key} {fault}")
        if kind == "rule":
            if "actions" not in settings:
                raise ConfigError(f"{place}: actions are missing")
            settings = normal_rule(settings)
        yield Definition(kind=kind, name=name, settings=settings, brokers=brokers)


def normal_rule(settings: Settings) -> dict[str, Value]:
    """Return the settings of a rule in the order that brokers are compared in."""
    values = dict(settings)
    actions, sources = values.get("actions"), values.get("source_ips")
    if isinstance(actions, list):
        values["actions"] = [each for each in ACTIONS if each in actions]
    if isinstance(sources, list):
        values["source_ips"] = sorted(map(str, sources))  # type: ignore[assignment]
    return values


def _rule_of(entry: dict[str, Value], place: str) -> str:
    """Return the name of the rule that an entry of a file describes."""
    user, resource = str(entry["user"]), str(entry["resource"])
    policy_type = entry.get("policy_type", CUSTOM)
    for key, fault in (
        ("user", user_fault(user)),
        ("resource", resource_fault(resource)),
        (
            "policy_type",
            None if policy_type in (CUSTOM, DEFAULT) else "must be Custom or Default",
        ),
    ):
        if fault is not None:
            raise ConfigError(f"{place}: {key} {fault}")
    return rule_name(user, resource, str(policy_type))


def _check_name(kind: Kind, name: str, place: str) -> None:
    """Raise ConfigError for a name that is invalid, or that no file has."""
    try:
        if kind == "topic":
            check_topic(name)
        elif kind == "group":
            check_group(name)
    except RmqError as error:
        raise ConfigError(f"{place}: {error.message}") from error
    fault = user_fault(name) if kind == "user" else None
    if fault is not None:
        raise ConfigError(f"{place}: name {fault}")
    if is_left_out(kind, name):
        raise ConfigError(
            f"{place}: definitions have no system {SECTIONS[kind]}, and no retry and"
            " dead letter topics",
            hint="remove it from the file",
        )


def is_left_out(kind: Kind, name: str) -> bool:
    """Whether no file has this topic or group on any cluster; users and rules never.

    RocketMQ makes system topics, retry topics and dead letter topics by itself.
    """
    if kind != "topic":
        return kind == "group" and is_system_group(name)
    from rmqcli.admin.topics import topic_kind  # it needs the whole client
    from rmqcli.wire.bodies.route import ClusterInfo

    return topic_kind(name, ClusterInfo({}, {})) != "normal"


def _brokers(value: Value, place: str) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not (
        isinstance(value, list)
        and value
        and all(isinstance(each, str) and each for each in value)
    ):
        raise ConfigError(f"{place}: brokers must be a list of names")
    return tuple(sorted({str(each) for each in value}))


def _check_unique(definitions: Iterable[Definition]) -> None:
    """Raise ConfigError for two definitions of the same thing on the same broker."""
    seen: dict[tuple[Kind, str], set[str] | None] = {}
    for each in definitions:
        key = (each.kind, each.name)
        before = seen.get(key)
        if key in seen and (
            before is None or each.brokers is None or before & set(each.brokers)
        ):
            raise ConfigError(f"the file defines {each.kind} {each.name!r} twice")
        seen[key] = None if each.brokers is None else {*(before or ()), *each.brokers}


def _unknown_key(place: str, key: str, known: Iterable[str]) -> ConfigError:
    close = similar(key, list(known))
    hint = f"did you mean {close[0]}?" if close else ""
    return ConfigError(f"{place}unknown key {key!r}", hint=hint)


def _without_duplicates(pairs: list[tuple[str, Value]]) -> dict[str, Value]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(f"the key {twice!r} appears twice in an object")
    return found


def _no_constant(name: str) -> None:
    raise ConfigError(f"{name} is not JSON")
