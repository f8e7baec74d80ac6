"""Runs checks over the facts of a cluster.

What a check needs and a broker does not report is added here as an unknown finding, in
the same way for all checks, so that none of them mistakes silence for health.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.admin.doctor.check import checks_of
from rmqcli.admin.doctor.checks import groups, security, servers, storage, topics
from rmqcli.admin.doctor.facts import NO_MASTER, Fact, gather_facts
from rmqcli.admin.doctor.model import CheckResult, CheckStatus, Diagnosis, unknown
from rmqcli.api.broker_errors import unanswered
from rmqcli.errors import RmqError, UsageError
from rmqcli.names import similar

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from rmqcli.admin.doctor.check import Check
    from rmqcli.admin.doctor.facts import Facts
    from rmqcli.admin.doctor.model import Findings
    from rmqcli.api.client import Client

#: All checks, in the order in which they are shown.
CHECKS: tuple[Check, ...] = (
    *checks_of(servers),
    *checks_of(security),
    *checks_of(storage),
    *checks_of(topics),
    *checks_of(groups),
)


def choose_checks(
    only: Collection[str] = (), skip: Collection[str] = ()
) -> tuple[Check, ...]:
    """Return the checks with these names, or all, without those to skip.

    Raises UsageError for a name that no check has, and when no check is left.
    """
    names = [check.name for check in CHECKS]
    for name in (*only, *skip):
        if name not in names:
            near = similar(name, names)
            raise UsageError(
                f"there is no check {name!r}",
                hint=f"did you mean {near[0]}?" if near else "",
            )
    chosen = tuple(
        check
        for check in CHECKS
        if (not only or check.name in only) and check.name not in skip
    )
    if not chosen:
        raise UsageError("no check is left")
    return chosen


def diagnose(
    client: Client, *, only: Collection[str] = (), skip: Collection[str] = ()
) -> Diagnosis:
    """Run all checks, or some of them, and return what they found.

    Raises UsageError for a name that no check has, TransportError when no name server
    answers, and NoBrokerError when none knows a broker.
    """
    checks = choose_checks(only, skip)
    return judge(checks, gather_facts(client, needs_of(checks)))


def needs_of(checks: Collection[Check]) -> frozenset[str]:
    """Return the parts of the facts that these checks need."""
    return frozenset().union(*(check.needs for check in checks))


def judge(checks: Collection[Check], facts: Facts) -> Diagnosis:
    """Return what these checks find in the facts. Pure."""
    return Diagnosis(
        at_ms=facts.at_ms,
        brokers=tuple(sorted(facts.info.brokers)),
        results=tuple(_result(check, facts) for check in checks),
    )


def _result(check: Check, facts: Facts) -> CheckResult:
    found = [*check.judge(facts), *_not_reported(check, facts)]
    # Worst first; findings of one status stay in order.
    order = list(CheckStatus)
    found.sort(key=lambda finding: -order.index(finding.status))
    return CheckResult(
        name=check.name, title=check.title, findings=tuple(dict.fromkeys(found))
    )


def _not_reported(check: Check, facts: Facts) -> Findings:
    if check.judges_silence:
        return
    for name, error in facts.silent().items():
        yield unknown(f"it {unanswered(error.message)}", of=name)
    for name, seen in facts.departed.items():
        yield unknown(seen.as_error(name).message, of=name)
    if not check.works_without_master:
        for name in facts.without_master():
            yield unknown(NO_MASTER, of=name)
    if Fact.SETTINGS in check.needs:
        for detail in facts.brokers:
            if detail.settings is None and detail.row.error is None:
                reason = detail.settings_error and detail.settings_error.message
                why = f"it does not show its settings: {reason}"
                yield unknown(why, of=detail.row.process_name)
    if not check.needs.isdisjoint((Fact.TOPICS, Fact.ROUTES)):
        yield from _errors_of(facts.topics, "topics")
    if Fact.GROUPS in check.needs:
        yield from _errors_of(facts.groups, "groups")
    if Fact.LAGS in check.needs:
        if facts.lag_error is not None:
            yield unknown(facts.lag_error.message, of="groups")
        named = {name.partition(":")[0] for name in facts.silent()}
        named.update(facts.departed, facts.without_master())
        for failure in facts.lag_failures:
            if failure.broker_name not in named:
                yield unknown(failure.message, of=failure.broker_name)
        named.update(failure.broker_name for failure in facts.lag_failures)
        for lag in facts.lags:
            for broker_name, reason in lag.untold():
                if broker_name not in named:
                    yield unknown(f"{broker_name}: {reason}", of=lag.group)


def _errors_of(tables: Mapping[str, object], what: str) -> Findings:
    for name, table in tables.items():
        if isinstance(table, RmqError):
            yield unknown(f"it does not show its {what}: {table.message}", of=name)
