"""What checks find, as values.

| status | meaning |
|---|---|
| ok | the check looked at everything, and found nothing |
| unknown | something that the check needs was not told; the reason is in `evidence` |
| warning | a person should look |
| problem | a person must act |

A check has the status of the worst of its findings, a diagnosis that of its worst
check. Unknown is worse than ok: what a broker does not tell is never assumed to be
good.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from rmqcli.dataclass import dataclass
from rmqcli.units import listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

#: What a check yields.
Findings: TypeAlias = "Iterator[Finding]"


class CheckStatus(StrEnum):
    """The status of a finding, a check or a diagnosis, the worst last."""

    OK = "ok"
    UNKNOWN = "unknown"
    WARNING = "warning"
    PROBLEM = "problem"


_RANK = {status: rank for rank, status in enumerate(CheckStatus)}


def worst_status(statuses: Iterable[CheckStatus]) -> CheckStatus:
    """Return the worst of some statuses, or OK without any."""
    return max(statuses, key=_RANK.__getitem__, default=CheckStatus.OK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that a check found.

    `subject` names what it is about: a broker, a topic, a group or a server. `evidence`
    is what was seen, `meaning` what follows from it, and `command` one command line to
    try. An unknown finding has neither of the two.
    """

    status: CheckStatus
    subject: str
    evidence: str
    meaning: str = ""
    command: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of one check: its findings, the worst first; none if all is well."""

    name: str
    title: str
    findings: tuple[Finding, ...] = ()

    @property
    def status(self) -> CheckStatus:
        """The worst status of its findings, or ok."""
        return worst_status(finding.status for finding in self.findings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The results of all checks, in their order. `at_ms` is epoch ms, of this machine.

    `brokers` are the names of the brokers, as a name server knows them.
    """

    at_ms: int
    brokers: tuple[str, ...]
    results: tuple[CheckResult, ...]

    @property
    def status(self) -> CheckStatus:
        """The worst status of its checks."""
        return worst_status(result.status for result in self.results)

    @property
    def findings(self) -> list[tuple[CheckResult, Finding]]:
        """All findings with their checks, the worst first."""
        found = [(result, each) for result in self.results for each in result.findings]
        return sorted(found, key=lambda pair: -_RANK[pair[1].status])


def problem(evidence: str, meaning: str, command: str, *, of: str = "") -> Finding:
    """Return a finding about `of` that a person must act on."""
    found = warning(evidence, meaning, command, of=of)
    return replace(found, status=CheckStatus.PROBLEM)


def warning(evidence: str, meaning: str, command: str, *, of: str = "") -> Finding:
    """Return a finding about `of` that a person should look at."""
    return Finding(
        status=CheckStatus.WARNING,
        subject=of,
        evidence=evidence,
        meaning=meaning,
        command=command,
    )


def unknown(reason: str, *, of: str = "") -> Finding:
    """Return a finding about `of` that says why something could not be checked."""
    return Finding(status=CheckStatus.UNKNOWN, subject=of, evidence=reason)


def about(subject: str, findings: Findings) -> Findings:
    """Yield the findings, those without a subject as findings about this one."""
    for each in findings:
        yield each if each.subject else replace(each, subject=subject)


def named(names: Iterable[str], *, limit: int = 5) -> str:
    """Return the first names in order, and how many more there are."""
    return listed(sorted(set(names)), limit)


def listed_by_value(brokers: Mapping[str, Iterable[str]]) -> str:
    """Return the values of a setting, each with the brokers that have it."""
    pairs = sorted(brokers.items())
    return "; ".join(f"{value} on {named(names)}" for value, names in pairs)
