"""Rows and errors of commands that query or change several brokers.

The rows of all servers are written first. Then one error is raised: the first server's
own error if a change failed on all of them, or if all of them denied a query, and
PartialError (exit code 6) if only some failed, or did not answer a query.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from rmqcli.api.broker_errors import unanswered
from rmqcli.cli.ui.output import Column, emit_json, empty_row, row_of
from rmqcli.cli.ui.wording import with_flags
from rmqcli.errors import (
    ChangeUnknownError,
    DeniedError,
    NotFoundError,
    PartialError,
    RmqError,
    UnsupportedError,
    UsageError,
)
from rmqcli.hint import Hint
from rmqcli.units import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from rmqcli.api.client import Client
    from rmqcli.cli.options import Common


#: The outcome of a change on one server.
RESULT_COLUMN = Column(
    "result",
    "created, changed, unchanged, deleted, failed, or unknown: it may have been done",
    states={"failed": "bad", "unknown": "bad"},
)
#: Why a change failed on one server.
ERROR_COLUMN = Column(
    "error",
    "why it failed",
    value=lambda result: result.error and result.error.message,
    priority=1,
)
#: Why a broker did not answer: only the rows of `rows_of_silent` have it.
SILENT_COLUMN = Column(
    "error", "why a broker did not answer", value=lambda _: None, priority=1
)


class ServerResult(Protocol):
    """The outcome of a change on one server."""

    @property
    def server(self) -> str: ...

    @property
    def error(self) -> RmqError | None: ...


def masters_of(
    client: Client, cluster: str | None, brokers: Sequence[str] | None
) -> dict[str, str | None]:
    """Return the masters of `--cluster` or `--broker`, as `choose_masters` does.

    Raises UsageError for both options together.
    """
    from rmqcli.admin.topics import choose_masters

    if cluster and brokers:
        raise UsageError("--cluster and --broker cannot be used together")
    return choose_masters(client, cluster=cluster, brokers=brokers or ())


def show_list(
    common: Common,
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[Column],
    *,
    none: str,
    is_complete: bool = True,
) -> None:
    """Write the rows of a list; in the place of an empty table, `none` on stderr.

    A list that is not complete, and so may be empty for that reason, has no `none`.
    """
    if rows or common.output != "table":
        common.write_rows(rows, columns)
    elif is_complete:
        common.messages.info(none)


def show_results(
    common: Common,
    results: Sequence[ServerResult],
    columns: Sequence[Column],
    *,
    others: int = 0,
) -> None:
    """Write a row for each server; raise an error if the change failed on any.

    A change that failed on all of them has no table, which would repeat the errors.
    `others` counts servers that made the change, and of which there is nothing to show.
    """
    errors = unknown_first(each.error for each in results)
    has_failed = len(errors) == len(results) > 0 == others
    if has_failed and common.output == "table":
        for other in dict.fromkeys(each.message for each in errors):
            if other != errors[0].message:
                common.messages.warn(other)
        raise errors[0]
    rows = [row_of(columns, each) for each in results]
    common.write_result(lambda: common.write_rows(rows, columns))
    if not errors:
        return
    if has_failed:
        raise errors[0]
    first = next(each.server for each in results if each.error is errors[0])
    message = errors[0].message
    if first not in message.split():  # errors name addresses, and may name brokers
        message = f"{first}: {message}"
    raise PartialError(
        f"{len(errors)} of {counted(len(results) + others, 'server')}"
        f" {what_failed(errors)}: {message}",
        hint=errors[0].hint or "run the same command again to finish",
    )


def unknown_first(errors: Iterable[RmqError | None]) -> list[RmqError]:
    """Return errors of a change: first those where it may have been made all the same.

    To raise another one would say that nothing was changed.
    """
    found = [each for each in errors if each is not None]
    return sorted(found, key=lambda each: not isinstance(each, ChangeUnknownError))


def what_failed(errors: Sequence[RmqError]) -> str:
    """Return the predicate for servers with these errors, in that order."""
    if not isinstance(errors[0], ChangeUnknownError):
        return "failed"
    are_unknown = all(isinstance(each, ChangeUnknownError) for each in errors)
    unknown = "did not show whether it was done"
    return unknown if are_unknown else f"failed, or {unknown}"


def show_detail(
    common: Common,
    data: Mapping[str, Any],
    *,
    list_name: str,
    columns: Sequence[Column],
    write_tables: Callable[[], None],
) -> None:
    """Write the details of a topic or a group in the format of `--output`.

    JSON contains all of `data`; JSON lines and CSV contain only the list
    `data[list_name]`, which may be None. `write_tables` writes the tables.
    """
    if common.output == "json":
        emit_json(data)
    elif common.output == "table":
        write_tables()
    else:
        common.write_rows(data[list_name] or (), columns)


def rows_of_silent(
    errors: Mapping[str, RmqError], columns: Sequence[Column]
) -> list[dict[str, Any]]:
    """Return a row with the error of each broker that did not answer."""
    return [
        empty_row(columns, brokers=[name], error=error.message)
        for name, error in errors.items()
    ]


def errors_json(errors: Mapping[str, RmqError]) -> list[dict[str, str]]:
    """Return the brokers that did not answer, with their errors, for JSON."""
    return [
        {"broker_name": name, "error": error.message} for name, error in errors.items()
    ]


def warn_about_departed(common: Common, client: Client) -> None:
    """Warn of brokers that have left the route: a list does not have what was there."""
    for text in departed_texts(client):
        common.messages.warn(with_flags(text))


def departed_texts(client: Client) -> list[Hint]:
    """Return a sentence for each broker that has left the route."""
    from rmqcli.admin.lag.memory import departed_brokers

    now_ms = client.clock.epoch_ms()
    found = departed_brokers(client, client.cluster_info().brokers)
    return [
        Hint(
            f"{name} is no longer in the route ({seen.last_seen(now_ms)}): what was"
            " only there is not listed; ",
            seen.as_error(name).hint,
        )
        for name, seen in sorted(found.items())
    ]


def warn_about_slaves(common: Common, client: Client) -> None:
    """Warn of brokers without a master: a list has what their slaves have copied."""
    for text in slave_texts(client):
        common.messages.warn(text)


def slave_texts(client: Client) -> list[str]:
    """Return a sentence for each broker without a master."""
    from rmqcli.admin.lag.memory import slave_errors

    errors = slave_errors(client.cluster_info().brokers.values()).values()
    return [f"{error.message}: what it lacks is not listed" for error in errors]


def nothing_found(text: str, *, hint: str = "") -> NotFoundError:
    """Return the error for what no server has, of all those that were asked."""
    from rmqcli.wire.codes import ResponseCode

    return NotFoundError(text, code=ResponseCode.QUERY_NOT_FOUND, hint=hint)


def raise_if_undated(broker_names: Iterable[str]) -> None:
    """Raise PartialError if brokers do not tell when their delayed messages are due."""
    names = ", ".join(sorted(set(broker_names)))
    if names:
        raise PartialError(
            "when messages in delay levels are due is not known: their delays are among"
            f" the settings, which were not shown by {names}"
        )


def raise_if_silent(
    errors: Mapping[str, RmqError], denial: DeniedError | None = None
) -> None:
    """Raise PartialError if a broker did not answer: results may be missing.

    One whose version cannot say it, of which only a part is not known, or that does not
    have what it was asked for, has answered. Raises `denial`, if that is given: all
    brokers have denied all that they were asked.
    """
    if denial is not None:
        raise denial
    alike: dict[tuple[str, str], list[str]] = {}
    for name, error in errors.items():
        words, message = unanswered(error.message), ""
        if isinstance(error, DeniedError):
            words = f"denied access: {error.message}"
        elif isinstance(error, UnsupportedError | PartialError | NotFoundError):
            words, message = "", error.message
        alike.setdefault((words, message), []).append(name)
    reasons = []
    for (words, message), same in alike.items():
        names = ", ".join(same)
        if words:
            reasons.append(f"{names} {words}")
        else:
            is_named = message.startswith(f"{names} ")
            reasons.append(message if is_named else f"{names}: {message}")
    if reasons:
        hint = next((e.hint for e in errors.values() if e.hint), "")
        raise PartialError("; ".join(reasons), hint=hint)
