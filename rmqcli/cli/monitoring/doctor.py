"""`rmq doctor`: runs the checks of `rmqcli.admin.doctor` and shows what they found.

The exit code is that of the worst finding: 0 if all is well, 1 for warnings and for
what could not be checked, 2 for problems. Errors have exit codes of their own, from 3
on, and a wrong option has 2, without a result on stdout.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

from rmqcli.cli.options import Common, command_options, option, switch
from rmqcli.cli.ui.escape import safe
from rmqcli.cli.ui.messages import is_screen, screen_size, wrap_words
from rmqcli.cli.ui.output import Column, emit_json, empty_row, row_of
from rmqcli.units import counted, format_rfc3339

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rmqcli.admin.doctor.model import CheckResult, Diagnosis, Finding

#: A line of the report for people begins here.
INDENT = " " * 9
_STATUS_COLORS = {
    "problem": "\x1b[31m",
    "warning": "\x1b[33m",
    "unknown": "\x1b[35m",
    "ok": "\x1b[32m",
}
_RESET = "\x1b[0m"

FINDING_COLUMNS = (
    Column("status", "ok, unknown, warning or problem"),
    Column("subject", "broker, topic, group or server; null if all is well"),
    Column("evidence", "what was seen, or why it could not be checked"),
    Column("meaning", "what follows from it"),
    Column("command", "one command to try"),
)
COLUMNS = (Column("check", "name of the check"), *FINDING_COLUMNS)
LIST_COLUMNS = (
    Column("name", title="CHECK"),
    Column("title", title="ALL IS WELL IF"),
)


@command_options(fields=COLUMNS, changes=False)
def doctor(
    common: Common,
    only: list[str] | None = option(
        metavar="NAME", help="Only this check; repeatable."
    ),
    skip: list[str] | None = option(
        metavar="NAME", help="Without this check; repeatable."
    ),
    list_: bool = switch(help="List the checks, and ask no server."),
) -> int | None:
    """Check a cluster: what is wrong, and what to do.

    Example: rmq doctor
             rmq doctor --only disk --only slaves -o json

    Exit code 0: all is well; 1: warnings, or something could not be checked; 2:
    problems. -o jsonl and -o csv have a row for each finding, and one for each check
    without any.
    """
    from rmqcli.admin.doctor.diagnose import choose_checks, diagnose

    checks = choose_checks(only or (), skip or ())  # raises for an unknown name
    if list_:
        rows = [row_of(LIST_COLUMNS, each) for each in checks]
        common.write_rows(rows, LIST_COLUMNS)
        return None
    with common.open_client() as client:
        found = diagnose(client, only=only or (), skip=skip or ())
    if common.output == "json":
        emit_json(diagnosis_json(found))
    elif common.output == "table":
        _write_report(common, found)
    else:
        common.write_rows(_rows(found), COLUMNS)
    return {"ok": 0, "unknown": 1, "warning": 1, "problem": 2}[found.status]


def diagnosis_json(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return a diagnosis for JSON."""
    return {
        "status": str(diagnosis.status),
        "at": format_rfc3339(diagnosis.at_ms),
        "brokers": list(diagnosis.brokers),
        "checks": [
            {
                "name": result.name,
                "title": result.title,
                "status": str(result.status),
                "findings": [finding_json(each) for each in result.findings],
            }
            for result in diagnosis.results
        ],
    }


def finding_json(finding: Finding) -> dict[str, str | None]:
    """Return a finding for JSON; what it does not have is null."""
    return {
        "status": str(finding.status),
        "subject": finding.subject,
        "evidence": finding.evidence,
        "meaning": finding.meaning or None,
        "command": finding.command or None,
    }


def _rows(diagnosis: Diagnosis) -> Iterable[dict[str, str | None]]:
    for result in diagnosis.results:
        for finding in result.findings:
            yield {"check": result.name, **finding_json(finding)}
        if not result.findings:
            yield empty_row(COLUMNS, check=result.name, status="ok")


def _write_report(common: Common, diagnosis: Diagnosis) -> None:
    told = [pair for pair in diagnosis.findings if pair[1].status != "unknown"]
    lines = finding_lines(told, color=common.use_color)
    lines += _unknown_lines(diagnosis, color=common.use_color)
    results = Counter(str(result.status) for result in diagnosis.results)
    checks = [f"{results[each]} {each}" for each in ("ok", "unknown") if results[each]]
    findings = Counter(str(finding.status) for _, finding in told)
    shown = [
        counted(findings[each], each)
        for each in ("warning", "problem")
        if findings[each]
    ]
    total = counted(len(diagnosis.results), "check")
    parts = "; ".join(", ".join(each) for each in (checks, shown) if each)
    lines.append(f"{total}: {parts}")
    sys.stdout.write("\n".join(lines) + "\n")


def finding_lines(
    found: Sequence[tuple[CheckResult, Finding]], *, color: bool
) -> list[str]:
    """Return the findings for people: evidence, what it means, and what to try."""
    lines: list[str] = []
    for result, finding in found:
        mark = label(finding.status, color=color)
        lines.append(f"{mark}{safe(finding.subject)} ({result.name})")
        lines += _wrapped(finding.evidence)
        if finding.meaning:
            lines += _wrapped(finding.meaning)
        if finding.command:
            lines.append(f"{INDENT}try: {safe(finding.command)}")
    return lines


def _unknown_lines(diagnosis: Diagnosis, *, color: bool) -> list[str]:
    """Return what could not be checked, once for each reason."""
    checks: dict[tuple[str, str], list[str]] = {}
    for result, finding in diagnosis.findings:
        if finding.status == "unknown":
            place = finding.subject, finding.evidence
            checks.setdefault(place, []).append(result.name)
    lines: list[str] = []
    for (subject, reason), names in checks.items():
        lines.append(f"{label('unknown', color=color)}{safe(subject)}")
        lines += _wrapped(reason)
        lines += _wrapped(f"not checked: {', '.join(names)}")
    return lines


def label(status: str, *, color: bool) -> str:
    """Return a status as the first word of a line."""
    text = status.ljust(len(INDENT))
    return f"{_STATUS_COLORS[status]}{text}{_RESET}" if color else text


def _wrapped(text: str) -> list[str]:
    """Return lines that fit a screen, indented; elsewhere one line."""
    line = safe(text)
    if not is_screen(sys.stdout):
        return [INDENT + line]
    width = max(20, screen_size(sys.stdout).columns - 1)
    return wrap_words(line, width, first=INDENT, rest=INDENT)
