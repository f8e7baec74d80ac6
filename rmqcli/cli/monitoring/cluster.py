"""`rmq cluster`: a cluster on one screen, what is wrong first."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from rmqcli.cli.broker import COLUMNS as BROKER_COLUMNS
from rmqcli.cli.by_broker import errors_json, raise_if_silent
from rmqcli.cli.monitoring.doctor import INDENT, finding_json, label
from rmqcli.cli.options import Common, command_options
from rmqcli.cli.ui.escape import safe
from rmqcli.cli.ui.messages import is_screen, screen_size
from rmqcli.cli.ui.output import Column, emit_json, number_column, row_of
from rmqcli.errors import PartialError
from rmqcli.units import counted, format_rfc3339

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqcli.admin.cluster import ClusterSummary
    from rmqcli.admin.doctor.model import CheckResult, Finding

#: More brokers than this are not shown in the table, and more findings.
_BROKERS_SHOWN = 10
_FINDINGS_SHOWN = 5


def _percent(key: str, title: str) -> Column:
    return number_column(
        key, title=title, priority=25, shown=lambda row: _full(row, key)
    )


def _full(row: Mapping[str, Any], key: str) -> str | None:
    queue = row[key]
    return None if queue is None else f"{queue['size'] / queue['capacity']:.0%}"


_SHOWN = {column.name: column for column in BROKER_COLUMNS}
#: The columns of the table, of those of `rmq brokers`.
TABLE_COLUMNS = (
    Column(
        "broker_name",
        title="BROKER",
        shown=lambda row: (
            row["broker_name"]
            if not row["broker_id"]
            else f"{row['broker_name']}:{row['broker_id']}"
        ),
    ),
    Column("role", title="ROLE", priority=40),
    _SHOWN["version"],
    _SHOWN["in_sync"],
    _SHOWN["disk"]._replace(align="right", priority=0),
    _percent("send_queue", "SEND"),
    _percent("pull_queue", "PULL"),
    number_column(
        "page_cache_lock_ms",
        title="CACHE",
        priority=45,
        shown=lambda row: (
            None
            if row["page_cache_lock_ms"] is None
            else f"{row['page_cache_lock_ms']}ms"
        ),
    ),
    _SHOWN["in_tps"]._replace(title="IN/S"),
    _SHOWN["out_tps"]._replace(title="OUT/S"),
    _SHOWN["uptime"]._replace(title="UP", align="right"),
    _SHOWN["error"],
)


@command_options(fields=BROKER_COLUMNS, changes=False)
def cluster(common: Common) -> None:
    """Show what is wrong, then brokers, topics and groups.

    Example: rmq cluster
             rmq cluster -o json | jq .groups

    It shows the findings of rmq doctor, the worst first. SEND and PULL are how full the
    queues of a broker's threads are; CACHE is how long a message is being written. -o
    jsonl and -o csv list only the brokers.
    """
    from rmqcli.admin.cluster import read_cluster

    with common.open_client() as client:
        found = read_cluster(client)
    rows = [row_of(BROKER_COLUMNS, each) for each in found.brokers]
    if common.output == "json":
        emit_json(summary_json(found, rows))
    elif common.output == "table":
        _write(common, found, rows)
    else:
        common.write_rows(rows, BROKER_COLUMNS)
    raise_if_silent(found.errors, found.denial)
    if found.refused:
        more = f" (and {len(found.refused) - 1} more)" if found.refused[1:] else ""
        raise PartialError(
            f"not everything is known: {found.refused[0]}{more}",
            hint="see what could not be checked with: rmq doctor",
        )


def summary_json(found: ClusterSummary, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a cluster for JSON; `rows` are those of its brokers."""
    return {
        "status": str(found.diagnosis.status),
        "at": format_rfc3339(found.at_ms),
        "findings": [
            {"check": result.name, **finding_json(finding)}
            for result, finding in found.diagnosis.findings
        ],
        "brokers": rows,
        "topics": found.topics,
        "groups": found.groups,
        "lag": found.lag,
        "known_lag": found.known_lag,
        "dead_letters": found.dead_letters,
        "new_dead_letters": found.new_dead_letters,
        "groups_with_letters": found.groups_with_letters,
        "reasons": found.reasons,
        "refused": list(found.refused),
        "errors": errors_json(found.errors),
    }


def _write(common: Common, found: ClusterSummary, rows: list[dict[str, Any]]) -> None:
    told = [p for p in found.diagnosis.findings if p[1].status != "unknown"]
    unknown = sum(result.status == "unknown" for result in found.diagnosis.results)
    lines = []
    for result, finding in told[:_FINDINGS_SHOWN]:
        text = finding_line(result, finding)
        lines.append(_line(common, str(finding.status), text))
    more = len(told) - _FINDINGS_SHOWN
    notes = [f"{more} more"] if more > 0 else []
    if unknown:
        notes.append(f"{counted(unknown, 'check')} could not be made")
    if notes:
        lines.append(f"{INDENT}{', '.join(notes)}: rmq doctor")
    elif told:
        lines.append(f"{INDENT}what to do: rmq doctor")
    else:
        lines.append(_line(common, "ok", "all checks of rmq doctor found nothing"))
    sys.stdout.write("\n".join(lines) + "\n\n")
    shown = sorted(rows, key=lambda row: row["error"] is None)[:_BROKERS_SHOWN]
    left = len(rows) - len(shown)
    left_out = f"{counted(left, 'broker')} not shown: rmq brokers" if left else ""
    common.write_table(shown, TABLE_COLUMNS, left_out=left_out)
    sys.stdout.write("\n" + "\n".join(count_lines(found)) + "\n")


def finding_line(result: CheckResult, finding: Finding) -> str:
    """Return what a check found, on one line."""
    return f"{finding.subject} ({result.name}): {finding.evidence}"


def _line(common: Common, status: str, text: str) -> str:
    """Return a line that fits the screen, with the status in front."""
    line = safe(text)
    if is_screen(sys.stdout):
        room = max(20, screen_size(sys.stdout).columns - 10)
        if len(line) > room:
            line = line[: room - 1] + "…"
    return label(status, color=common.use_color) + line


def count_lines(found: ClusterSummary) -> list[str]:
    """Return a line about topics, one about groups, and one about dead letters."""
    reasons = {name: safe(why) for name, why in found.reasons.items()}
    topics = f"not known: {reasons.get('topics')}"
    if found.topics is not None:
        parts = ", ".join(f"{n} {kind}" for kind, n in found.topics.items() if n)
        topics = f"{sum(found.topics.values())}: {parts}"
    groups = f"not known: {reasons.get('groups')}"
    if found.groups is not None:
        parts = ", ".join(f"{n} {state}" for state, n in found.groups.items())
        groups = f"{sum(found.groups.values())}" + (f": {parts}" if parts else "")
        if "groups" in reasons:
            groups = f"at least {groups}"
    known = found.known_lag if found.lag is None else found.lag
    lag = counted(known, "message waits", "messages wait")
    lag = f"at least {lag}" if found.lag is None else lag
    letters = f"not known: {reasons.get('dead_letters')}"
    if found.dead_letters is not None:
        new = "not known how many"
        if found.new_dead_letters is not None:
            new = f"{found.new_dead_letters:,}"
        letters = (
            f"{found.dead_letters:,} in"
            f" {counted(found.groups_with_letters or 0, 'group')},"
            f" {new} in the last hour"
        )
    return [
        f"topics        {topics}",
        f"groups        {groups}; {lag}",
        f"dead letters  {letters}",
    ]
