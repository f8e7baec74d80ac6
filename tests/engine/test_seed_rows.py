"""Every statement, trap and case has a test that exists, or a reason."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.engine.rows import REASONS, ROWS

TESTS = Path(__file__).parents[1]
#: How many statements each seed has.
STATEMENTS = {"S0": 34, "S1": 25, "S2": 45, "S3": 28, "S4": 29}
TRAPS = 35
CASES = 46


@cache
def docs_of(file):
    """Name to docstring, of `folder/file`."""
    folder, _, name = file.rpartition("/")
    folder = folder or "engine"
    tree = ast.parse((TESTS / folder / f"test_{name}.py").read_text())
    return {
        each.name: ast.get_docstring(each) or ""
        for each in ast.walk(tree)
        if isinstance(each, ast.FunctionDef)
    }


def test_all_rows_are_there():
    wanted = {
        f"{seed}-{number:02}"
        for seed, count in STATEMENTS.items()
        for number in range(1, count + 1)
    }
    assert len(wanted) == 161
    wanted |= {f"T{number}" for number in range(1, TRAPS + 1)}
    wanted |= {f"A{number:02}" for number in range(1, CASES + 1)}
    assert wanted == ROWS.keys() | REASONS.keys()
    assert not ROWS.keys() & REASONS.keys()


@pytest.mark.parametrize("row", ROWS)
def test_a_row_is_held_by_tests_that_exist(row):
    assert ROWS[row]
    for test in ROWS[row]:
        file, name = test.split("::")
        assert f"test_{name}" in docs_of(file), test


@pytest.mark.parametrize("row", REASONS)
def test_a_reason_is_one(row):
    assert len(REASONS[row]) > 15
