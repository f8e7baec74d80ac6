"""`rmq definitions`: the topics and groups of a cluster as one file.

The plan of an apply is for people and goes to stderr; its results go to stdout.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqcli.cli.by_broker import raise_if_silent, show_list, unknown_first
from rmqcli.cli.confirm import confirm, confirm_by_name
from rmqcli.cli.options import (
    Common,
    argument,
    choice_option,
    cluster_option,
    command_options,
    option,
    switch,
)
from rmqcli.cli.ui.escape import safe
from rmqcli.cli.ui.output import Column, json_line, row_of, write_whole
from rmqcli.errors import ConfigError, ExitCode, PartialError, RefusedError, RmqError
from rmqcli.files import input_title, replace_file
from rmqcli.units import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rmqcli.admin.definitions.apply import DefinitionResult
    from rmqcli.admin.definitions.compare import DefinitionChange
    from rmqcli.admin.definitions.model import Definitions, Kind
    from rmqcli.admin.definitions.plan import DefinitionsPlan
    from rmqcli.api.client import Client

#: Lines of a plan that are shown before the question; deletions are always shown.
_LINES_MAX = 50


def _shown_settings(row: Any) -> object:
    """Return the settings of a row as text; of new entries, those with no default."""
    from rmqcli.admin.definitions.model import SETTINGS

    rules = SETTINGS[row["kind"]]
    texts = [
        f"{each['setting']} {json_line(each['now'])} -> {json_line(each['wanted'])}"
        if row["change"] == "change"
        else f"{each['setting']} {json_line(each['wanted'])}"
        for each in row["settings"]
        if row["change"] != "create" or each["wanted"] != rules[each["setting"]].default
    ]
    return "; ".join(texts) or None


COLUMNS = (
    Column(
        "change",
        "create, change, skip (not possible here) or extra (not in the file)",
        value=lambda change: change.action,
    ),
    Column("kind", "topic, group, user or rule"),
    Column("name"),
    Column("brokers", "brokers on which it differs", priority=3),
    Column(
        "settings",
        "settings that differ: setting, now and wanted",
        value=lambda change: [
            {"setting": each.setting, "now": each.now, "wanted": each.wanted}
            for each in change.settings
        ],
        shown=_shown_settings,
        priority=2,
    ),
    Column("reason", "why it is skipped, or what is lost", priority=1),
)
RESULT_COLUMNS = (
    Column(
        "result",
        "created, changed, deleted, skipped, failed, or unknown: it may have been done",
        states={"failed": "bad", "unknown": "bad", "skipped": "warn"},
    ),
    Column("kind", "topic, group, user or rule"),
    Column("name"),
    Column("brokers", "brokers with this result"),
    Column("error", "why it failed or was skipped"),
)


_FILE = argument(metavar="FILE", help="File of definitions; - is stdin.")
_KINDS = choice_option(
    "--only",
    choices=("topics", "groups", "users", "rules"),
    help="Only these definitions; repeatable.",
)


@command_options(formats=("json",), changes=False)
def export(
    common: Common,
    cluster: str | None = option(help="Cluster to export."),
    only: list[str] | None = _KINDS,
    out: Path | None = option(help="Write this file; replaces an old one."),
) -> None:
    """Write the topics and groups of a cluster as one JSON file.

    Example: rmq definitions export --out orders.json

    The order of the file is stable, so that it can be kept in git. System topics, retry
    and dead letter topics and system groups are left out. If a broker does not answer,
    or does not tell its users, nothing is written, and the exit code is 6.
    """
    from rmqcli.admin.definitions.read import export_definitions

    with common.open_client() as client:
        found = export_definitions(client, cluster, _kinds(only) if only else ())
    for each in found.left_out:
        common.messages.warn(f"not in the file: {each}")
    text = found.to_text()
    if out is None:
        write_whole(text)
        return
    try:
        replace_file(out.resolve(), text.encode())
    except OSError as error:
        raise RmqError(f"cannot write {out}: {error.strerror or error}") from error
    counts = Counter(each.kind for each in found.definitions)
    common.messages.info(
        f"wrote {out}: {_counted(counts) or 'no definitions'} of cluster"
        f" {found.cluster}"
    )


@command_options(fields=COLUMNS, changes=False)
def diff(
    common: Common,
    file: str = _FILE,
    cluster: str | None = option(help="Cluster to compare with."),
    only: list[str] | None = _KINDS,
) -> int:
    """Compare a file of definitions with a cluster.

    Example: rmq definitions diff orders.json

    Exit code 0: the cluster is as the file says; 1: it differs. Errors have exit codes
    of their own, from 2 on; with 6 a broker did not answer.
    """
    from rmqcli.admin.definitions.plan import plan_definitions

    wanted = _read(file, only)
    with common.open_client() as client:
        plan = plan_definitions(client, wanted, cluster=cluster)
    rows = [row_of(COLUMNS, each) for each in plan.changes]
    show_list(
        common,
        rows,
        COLUMNS,
        none=f"cluster {plan.cluster} is as {input_title(file)} says",
        is_complete=not plan.errors,
    )
    raise_if_silent(plan.errors, plan.denial)
    return ExitCode.FAILED if plan.changes else ExitCode.OK


@command_options(fields=RESULT_COLUMNS, asks=True)
def apply(
    common: Common,
    file: str = _FILE,
    cluster: str | None = cluster_option(),
    only: list[str] | None = _KINDS,
    prune: bool = switch(help="Delete what the cluster has and the file has not."),
) -> int:
    """Create and change topics and groups as a file of definitions says.

    Example: rmq definitions apply orders.json

    The plan is shown on stderr first, and must be confirmed. Afterwards each broker is
    read again. Nothing is deleted without --prune. The exit code is 0 only if the
    cluster then is as the file says, except for what only the cluster has.
    """
    from rmqcli.admin.definitions.plan import plan_definitions

    wanted = _read(file, only)
    with common.open_client() as client:
        plan = plan_definitions(client, wanted, cluster=cluster, prune=prune)
        is_same = f"cluster {plan.cluster} is as {input_title(file)} says"
        carry_out(common, client, plan, none=f"nothing to do: {is_same}")
    return ExitCode.OK


def carry_out(
    common: Common, client: Client, plan: DefinitionsPlan, *, none: str
) -> None:
    """Show a plan, ask, apply it and show the results; `none` if nothing is to be done.

    Raises RefusedError unless it is confirmed, and the error of what was not done.
    """
    from rmqcli.admin.definitions.apply import apply_definitions

    skipped = [each for each in plan.changes if each.action == "skip"]
    is_of_one = plan.mode is not None or plan.deletions
    if is_of_one and skipped and not plan.work and not plan.errors:
        first = skipped[0]
        raise RefusedError(
            f"{first.kind} {first.name} on {', '.join(first.brokers)}: {first.reason};"
            " nothing was changed"
        )
    _show_plan(common, plan)
    if plan.work:
        _confirm(common, plan)
    done = apply_definitions(client, plan)
    rows = [row_of(RESULT_COLUMNS, each) for each in done.results]
    common.write_result(
        lambda: show_list(
            common, rows, RESULT_COLUMNS, none=none, is_complete=not done.errors
        )
    )
    if done.unlisted:
        common.messages.warn(
            f"no name server lists {counted(len(done.unlisted), 'new topic')} yet:"
            f" {', '.join(done.unlisted[:3])}"
        )
    _raise_if_incomplete(done.results)
    raise_if_silent(done.errors, plan.denial)


def _kinds(only: Iterable[str] | None) -> list[Kind]:
    from rmqcli.admin.definitions.model import SECTIONS

    return [kind for kind, name in SECTIONS.items() if not only or name in only]


def _read(name: str, only: Sequence[str] | None) -> Definitions:
    from rmqcli.admin.definitions.model import FILE_BYTES_MAX, parse_definitions

    title = input_title(name)
    try:
        if name == "-":
            data = sys.stdin.buffer.read(FILE_BYTES_MAX + 1)
        else:
            with open(name, "rb") as file:
                data = file.read(FILE_BYTES_MAX + 1)
        found = parse_definitions(data.decode("utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {title}: {error.strerror or error}") from error
    except UnicodeDecodeError:
        raise ConfigError(f"{title}: not UTF-8 text") from None
    except ConfigError as error:
        raise ConfigError(f"{title}: {error.message}", hint=error.hint) from error
    chosen = found.only(_kinds(only))
    if not chosen.kinds:
        raise ConfigError(f"{title}: the file has no {' and no '.join(only or ())}")
    return chosen


def _show_plan(common: Common, plan: DefinitionsPlan) -> None:
    shown = [each for each in plan.changes if each.action != "extra"]
    deleted = sum(each.action == "delete" for each in shown)
    lines = max(_LINES_MAX, deleted)
    for each in shown[:lines]:
        common.messages.info(_line(each))
    if len(shown) > lines:
        common.messages.info(
            f"and {len(shown) - lines:,} more; rmq definitions diff shows all"
        )
    extra = Counter(each.kind for each in plan.changes if each.action == "extra")
    if extra:
        common.messages.info(
            f"not in the file: {_counted(extra)}; --prune deletes what is not in it"
        )
    for name, error in plan.errors.items():
        common.messages.warn(f"nothing is changed on {name}: {error.message}")


def _line(change: DefinitionChange) -> str:
    """Return one line of a plan."""
    settings = _shown_settings(row_of(COLUMNS, change))
    brokers = ", ".join(change.brokers)
    line = f"{change.action} {change.kind} {change.name} on {brokers}"
    line += f": {settings}" if settings else ""
    return line + (f" ({change.reason})" if change.reason else "")


def _confirm(common: Common, plan: DefinitionsPlan) -> None:
    parts = []
    for action in ("delete", "create", "change"):
        counts = Counter(each.kind for each in plan.work if each.action == action)
        if counts:
            parts.append(f"{action}s {_counted(counts)}")
    question = f"This {', '.join(parts)} in cluster {safe(plan.cluster)}."
    if any(each.action == "delete" for each in plan.work):
        names = [name for _, name in plan.deletions]
        confirm_by_name(common, question, name=names[0] if names else plan.cluster)
    else:
        confirm(common, question)


def _counted(counts: Counter[Kind]) -> str:
    from rmqcli.admin.definitions.model import SECTIONS

    parts = [counted(counts[kind], kind) for kind in SECTIONS if counts[kind]]
    last = parts.pop() if parts else ""
    return f"{', '.join(parts)} and {last}" if parts else last


def _raise_if_incomplete(results: Sequence[DefinitionResult]) -> None:
    """Raise the error of changes that failed, or PartialError if some was not done."""
    failed = [each for each in results if each.result in ("failed", "unknown")]
    skipped = [each for each in results if each.result == "skipped"]
    causes = unknown_first(each.cause for each in failed)
    if causes and len(failed) == len(results):
        raise causes[0]
    if failed:
        first = failed[0]
        unknown = {each.result == "unknown" for each in failed}
        what = "may have been done" if unknown == {True} else "failed"
        what = "failed, or may have been done" if len(unknown) > 1 else what
        raise PartialError(
            f"{len(failed)} of {counted(len(results), 'change')} {what}:"
            f" {first.kind} {first.name}: {first.error}",
            hint="run the same command again to finish",
        )
    if skipped:
        first = skipped[0]
        raise PartialError(
            f"{counted(len(skipped), 'change')} not possible:"
            f" {first.kind} {first.name}: {first.error}"
        )
