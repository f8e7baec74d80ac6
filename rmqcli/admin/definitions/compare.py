"""Compares definitions with what a cluster has: what it lacks, has changed, or adds.

A difference that cannot be removed, for example because a broker's version does not
know a setting, says why. Pure.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Final, Literal

from rmqcli.admin.definitions.model import (
    SETTINGS,
    Definition,
    Definitions,
)
from rmqcli.dataclass import dataclass
from rmqcli.errors import StaticTopicError
from rmqcli.wire.version import version_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqcli.admin.definitions.entries import BrokerEntries, ClusterEntries
    from rmqcli.admin.definitions.model import Kind
    from rmqcli.admin.definitions.settings import Value

#: `create`: the cluster lacks it. `change`: it has other settings. `extra`: only the
#: cluster has it. `delete`: an extra one that is to be deleted. `skip`: the file asks
#: for something that this cluster cannot have, or that is not done.
Action = Literal["delete", "create", "change", "skip", "extra"]
_ACTIONS: Final[tuple[Action, ...]] = ("delete", "create", "change", "skip", "extra")


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingDifference:
    """A setting as it is, and as the file has it; None for what is not there."""

    setting: str
    now: Value = field(hash=False)
    wanted: Value = field(hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionChange:
    """One difference between the file and brokers, and what is done about it.

    `reason` says why it is skipped, or what else follows from the change.
    """

    action: Action
    kind: Kind
    name: str
    brokers: tuple[str, ...]
    settings: tuple[SettingDifference, ...] = field(default=(), hash=False)
    reason: str | None = None


def compare(
    definitions: Definitions, cluster: ClusterEntries
) -> list[DefinitionChange]:
    """Return all differences, sorted; those that brokers share are one.

    Brokers that did not answer are left out, and kinds of which the file has no
    section.
    """
    found: list[DefinitionChange] = []
    named: set[tuple[Kind, str]] = set()
    on: dict[tuple[Kind, str, str], Definition] = {}
    for each in definitions.definitions:
        named.add((each.kind, each.name))
        for broker_name in cluster.brokers if each.brokers is None else each.brokers:
            if broker_name in cluster.brokers:
                on[each.kind, each.name, broker_name] = each
            elif broker_name not in cluster.errors:
                why = f"cluster {cluster.cluster} has no broker {broker_name}"
                found.append(_kept("skip", each, broker_name, why))
    static = {name for broker in cluster.brokers.values() for name in broker.static}
    for (kind, name, broker_name), each in on.items():
        if kind == "topic" and name in static:
            why = StaticTopicError.of(name).message
            found.append(_kept("skip", each, broker_name, why))
        else:
            found += _differences(each, cluster.brokers[broker_name])
    for broker in cluster.brokers.values():
        for kind in definitions.kinds:
            for name in broker.entries.get(kind, ()):
                if (kind, name, broker.broker_name) in on:
                    continue
                reason = None
                if (kind, name) in named:
                    reason = "the file has it on other brokers only"
                extra = Definition(kind=kind, name=name, settings={})
                found.append(_kept("extra", extra, broker.broker_name, reason))
    return merged(found)


def _kept(
    action: Action, entry: Definition, broker_name: str, reason: str | None
) -> DefinitionChange:
    """Return a change that leaves an entry on a broker as it is."""
    return DefinitionChange(
        action=action,
        kind=entry.kind,
        name=entry.name,
        brokers=(broker_name,),
        reason=reason,
    )


def _differences(
    wanted: Definition, broker: BrokerEntries
) -> Iterable[DefinitionChange]:
    """Yield what to change on a broker, and what its version cannot have."""
    specs = SETTINGS[wanted.kind]
    if wanted.kind in broker.unknown:
        reason = broker.unknown[wanted.kind].message
        yield _kept("skip", wanted, broker.broker_name, reason)
        return
    known = broker.entries[wanted.kind].get(wanted.name)
    possible: list[SettingDifference] = []
    skipped: dict[int, list[SettingDifference]] = {}
    for name, value in wanted.settings.items():
        spec = specs[name]
        if broker.version < spec.since:
            if value != spec.default:
                skipped.setdefault(spec.since, []).append(
                    SettingDifference(setting=name, now=None, wanted=value)
                )
        elif known is None or known.get(name) != value:
            now = None if known is None else known.get(name)
            possible.append(SettingDifference(setting=name, now=now, wanted=value))
    change = DefinitionChange(
        action="create" if known is None else "change",
        kind=wanted.kind,
        name=wanted.name,
        brokers=(broker.broker_name,),
        settings=tuple(possible),
    )
    if known is None or possible:
        yield change
    for since, settings in skipped.items():
        yield replace(
            change,
            action="skip",
            settings=tuple(settings),
            reason=f"{', '.join(each.setting for each in settings)}: needs RocketMQ"
            f" {version_name(since)}, and the broker has"
            f" {version_name(broker.version)}",
        )


def merged(changes: Iterable[DefinitionChange]) -> list[DefinitionChange]:
    """Join changes that differ only in their brokers, and sort all."""
    joined: dict[tuple[object, ...], list[DefinitionChange]] = {}
    for each in changes:
        key = (each.action, each.kind, each.name, repr(each.settings), each.reason)
        joined.setdefault(key, []).append(each)
    found = [
        replace(
            same[0], brokers=tuple(sorted(n for each in same for n in each.brokers))
        )
        for same in joined.values()
    ]
    return sorted(
        found,
        key=lambda each: (
            _ACTIONS.index(each.action),
            list(SETTINGS).index(each.kind),
            each.name,
            each.brokers,
        ),
    )
