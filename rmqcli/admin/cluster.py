"""A cluster at a glance: brokers, topics, groups, dead letters, and what is wrong.

`read_cluster` reads what the checks of `rmqcli.admin.doctor` need, once, and sums it
up. What a broker did not tell is None, and `reasons` says why.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import field
from typing import TYPE_CHECKING, Final

from rmqcli.admin.brokers import denial_of
from rmqcli.admin.doctor.diagnose import CHECKS, judge
from rmqcli.admin.doctor.facts import NO_MASTER, Facts, gather_facts
from rmqcli.dataclass import dataclass
from rmqcli.errors import RmqError
from rmqcli.model import is_system_group

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqcli.admin.brokers import BrokerRow
    from rmqcli.admin.doctor.model import Diagnosis
    from rmqcli.api.client import Client
    from rmqcli.errors import DeniedError


#: What the numbers of a summary count.
_WORDS: Final = {
    "topics": "topics",
    "groups": "groups",
    "dead_letters": "dead letters",
    "new_dead_letters": "new dead letters",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSummary:
    """What is in a cluster, summed up. `at_ms` is epoch ms, of this machine.

    `topics` counts topics by kind: normal, retry, dlq and system. `groups` counts
    users' groups by the state of their lag, and `lag` is the number of messages that
    wait for them. `dead_letters` are those of all groups, `new_dead_letters` those of
    the last hour, in `groups_with_letters` groups. A number that is not known is None;
    `reasons` says why, by the name of the number, and for `groups` why there may be
    more. `diagnosis` has the findings of all checks, and `errors` the brokers that did
    not answer or have left the route. `refused` says what is not known beside that,
    such as the offsets of one group, and why. `denial` is the error if all brokers
    denied access.
    """

    at_ms: int
    brokers: tuple[BrokerRow, ...]
    topics: dict[str, int] | None = field(hash=False)
    groups: dict[str, int] | None = field(hash=False)
    lag: int | None
    known_lag: int
    dead_letters: int | None
    new_dead_letters: int | None
    groups_with_letters: int | None
    reasons: dict[str, str] = field(hash=False)
    errors: dict[str, RmqError] = field(hash=False)
    refused: tuple[str, ...]
    denial: DeniedError | None
    diagnosis: Diagnosis


def read_cluster(client: Client) -> ClusterSummary:
    """Read a cluster and sum it up.

    Raises TransportError when no name server answers, and NoBrokerError when none knows
    a broker or no broker answers.
    """
    facts = gather_facts(client)
    errors = facts.silent()
    if len(errors) == len(facts.brokers):
        client.raise_if_none_answers(errors.values())
    return summarize(facts)


def summarize(facts: Facts) -> ClusterSummary:
    """Sum the facts up. Pure."""
    reasons: dict[str, str] = {}
    groups, lag, known_lag = _groups(facts, reasons)
    letters = _letters(facts, reasons)
    return ClusterSummary(
        at_ms=facts.at_ms,
        brokers=tuple(detail.row for detail in facts.brokers),
        topics=_topics(facts, reasons),
        groups=groups,
        lag=lag,
        known_lag=known_lag,
        dead_letters=letters[0],
        new_dead_letters=letters[1],
        groups_with_letters=letters[2],
        reasons=reasons,
        errors={
            **facts.silent(),
            **{name: seen.as_error(name) for name, seen in facts.departed.items()},
        },
        refused=tuple(_refused(facts, reasons)),
        denial=denial_of(
            [*(each.row.error for each in facts.brokers), *facts.topics.values()]
        ),
        diagnosis=judge(CHECKS, facts),
    )


def _refused(facts: Facts, reasons: dict[str, str]) -> Iterator[str]:
    """Yield what is not known, apart from the lag of groups that have no offset."""
    for name, reason in reasons.items():
        if name != "lag":
            yield f"{_WORDS[name]}: {reason}"
    for lag in facts.lags:
        if lag.is_partial and not is_system_group(lag.group):
            yield f"group {lag.group}: {lag.reason}"


def _topics(facts: Facts, reasons: dict[str, str]) -> dict[str, int] | None:
    names: set[str] = set()
    for name, error in facts.silent().items():
        if ":" not in name:  # slaves have the topics of their master
            reasons["topics"] = f"{name}: {error.message}"
    for name, seen in facts.departed.items():
        reasons["topics"] = f"{name}: {seen.as_error(name).message}"
    for name in facts.without_master():
        reasons["topics"] = f"{name}: {NO_MASTER}"
    for name, table in facts.topics.items():
        if isinstance(table, RmqError):
            reasons["topics"] = f"{name}: {table.message}"
        else:
            names.update(table)
    if "topics" in reasons:
        return None
    counts = Counter(map(facts.kind, names))
    return {kind: counts[kind] for kind in ("normal", "retry", "dlq", "system")}


def _groups(
    facts: Facts, reasons: dict[str, str]
) -> tuple[dict[str, int] | None, int | None, int]:
    if facts.lag_error is not None:
        reasons["groups"] = reasons["lag"] = facts.lag_error.message
        return None, None, 0
    for failure in facts.lag_failures:
        reason = f"{failure.broker_name}: {failure.message}"
        reasons["groups"] = reasons["lag"] = reason
    lags = [lag for lag in facts.lags if not is_system_group(lag.group)]
    known = sum(lag.known_lag for lag in lags)
    total: int | None = None if facts.lag_failures else 0
    for lag in lags:
        if lag.total_lag is None:
            reasons.setdefault("lag", f"{lag.group}: {lag.reason}")
            total = None
        elif total is not None:
            total += lag.total_lag
    counts = Counter(str(lag.state) for lag in lags)
    return dict(sorted(counts.items())), total, known


def _letters(
    facts: Facts, reasons: dict[str, str]
) -> tuple[int | None, int | None, int | None]:
    if facts.letters is None:
        error = facts.letters_error
        reasons["dead_letters"] = "not read" if error is None else error.message
        return None, None, None
    total = new = 0
    for name, error in facts.letters.errors.items():
        reasons["dead_letters"] = f"{name}: {error.message}"
    for group in facts.letters.groups:
        if group.count is None:
            reasons.setdefault("dead_letters", group.reason or "a broker did not tell")
            continue
        total += group.count
        of_group = facts.new_letters.get(group.group)
        least = facts.new_letters_min.get(group.group)
        if of_group is not None:
            new += of_group
        elif least is None:
            reasons["new_dead_letters"] = "a broker did not report how many are new"
        else:
            reasons.setdefault(
                "new_dead_letters",
                f"{group.topic} is write-only: at least {least:,} of its letters"
                f" {'is' if least == 1 else 'are'} new",
            )
    if "dead_letters" in reasons:
        reasons["new_dead_letters"] = reasons["dead_letters"]
        return None, None, None
    return (
        total,
        None if "new_dead_letters" in reasons else new,
        sum(bool(group.count) for group in facts.letters.groups),
    )
