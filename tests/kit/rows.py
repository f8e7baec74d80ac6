"""Tests of many rows, such as answers that were recorded from Java.

pytest needs more time to collect a test, to set it up and to report on it, in each of
its workers, than the code under test needs for most rows. Where rows need nothing that
a test has to itself, such as a folder or what was printed, one test checks all of them.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.mark import ParameterSet

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: What makes one test of a function and a table.
EachRow = Callable[[Callable[..., None]], Callable[..., None]]
#: So many failed rows are shown whole; of the others only the names.
SHOWN_MAX = 5
_NAME_MAX = 200


def each_row(
    names: str | Sequence[str],
    rows: Iterable[Any],
    *,
    ids: Callable[[Any], object] | Iterable[object] | None = None,
) -> EachRow:
    """Run a test function for every row, as one test.

    The arguments are those of `pytest.mark.parametrize`. All rows are run, whatever
    becomes of those before; the error names the rows that failed.
    """
    argument_names = (
        [name.strip() for name in names.split(",")]
        if isinstance(names, str)
        else [*names]
    )
    named_rows = [*_named(argument_names, rows, ids)]
    if not named_rows:
        raise ValueError(f"no rows for {', '.join(argument_names)}")

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)
        if unknown := {*argument_names} - {*signature.parameters}:
            raise TypeError(f"{test.__name__} does not take {', '.join(unknown)}")

        @functools.wraps(test)
        def of_all_rows(**fixtures: Any) -> None:
            failures = []
            for name, values in named_rows:
                row = dict(zip(argument_names, values, strict=True))
                try:
                    test(**fixtures, **row)
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  # raised again
                    error.add_note(f"in row {name}")
                    failures.append((name, error))
            _report(failures, len(named_rows))

        rest = [p for n, p in signature.parameters.items() if n not in argument_names]
        of_all_rows.__signature__ = signature.replace(  # type: ignore[attr-defined]  # functions have it
            parameters=[p.replace(kind=p.KEYWORD_ONLY) for p in rest]
        )
        return of_all_rows

    return decorate


def _named(
    argument_names: Sequence[str],
    rows: Iterable[Any],
    ids: Callable[[Any], object] | Iterable[object] | None,
) -> Iterable[tuple[str, Sequence[Any]]]:
    """Yield each row with its name: its id, or else its values."""
    given = None if ids is None or callable(ids) else iter(ids)
    for row in rows:
        single = len(argument_names) == 1 and not isinstance(row, ParameterSet)
        values = (
            (row,)
            if single
            else ParameterSet.extract_from(row, force_tuple=False).values
        )
        if given is not None:
            name = str(next(given))
        elif isinstance(row, ParameterSet) and row.id is not None:
            name = str(row.id)
        else:
            texts = [ids(value) if callable(ids) else None for value in values]
            pairs = zip(texts, values, strict=True)
            name = "-".join(repr(v) if t is None else str(t) for t, v in pairs)
        yield name[:_NAME_MAX], values


def _report(failures: Sequence[tuple[str, BaseException]], rows: int) -> None:
    if len(failures) == 1:
        raise failures[0][1]
    if failures:
        names = "\n".join(name for name, _ in failures)
        raise BaseExceptionGroup(
            f"{len(failures)} of {rows} rows failed:\n{names}\nThe first are",
            [error for _, error in failures[:SHOWN_MAX]],
        )
