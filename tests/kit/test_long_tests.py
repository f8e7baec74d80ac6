"""Long tests begin first on each worker, and the table names tests that exist."""

from __future__ import annotations

import pytest

from tests.kit import long_tests
from tests.kit.selection import TESTS

#: The first letter of a test's name is its version: old or new.
SECONDS = {"n-90": 90, "o-80": 80, "n-60": 60, "o-50": 50}


@pytest.mark.parametrize(
    ("workers", "tests", "expected"),
    [
        # Each worker has an equal part of the list, or the last ones one test more.
        (2, "o1 o2 n1 n2 n-90", "o1 o2 n-90 n1 n2"),
        (2, "o1 o-50 o2 n-60 n1 n2", "o-50 o1 o2 n-60 n1 n2"),
        (2, "o-50 o1 o2 o-80 n1 n-90 n-60 n2", "o-80 o-50 o1 o2 n-90 n-60 n1 n2"),
        (4, "o-50 n-90 o-80 o1 n1", "o1 o-50 o-80 n-90 n1"),
        (4, "n-90", "n-90"),
        # The old ones follow the new ones, because the others begin with old ones.
        (1, "o1 n-60 n1 o-80 n-90 o-50", "n-90 n-60 o-80 o-50 o1 n1"),
        (2, "o1 o2 n1", "o1 o2 n1"),
        (4, "", ""),
    ],
)
def test_each_worker_begins_with_its_share_of_the_long_tests(workers, tests, expected):
    arranged = long_tests.longest_first(
        tests.split(),
        workers=workers,
        seconds_of=lambda test: SECONDS.get(test, 0),
        version_of=lambda test: test[0],
    )
    assert arranged == expected.split()


def test_a_run_replaces_what_was_noted_of_its_tests_and_keeps_the_rest():
    before = "50 tests/test_a.py::test_a\n40 tests/test_b.py::test_b\n"
    took = {
        "tests/test_a.py::test_a": 19.9,
        "tests/test_c.py::test_c[a b]": 60.4,
        "tests/test_d.py::test_d": 0.1,
    }
    after = "60 tests/test_c.py::test_c[a b]\n40 tests/test_b.py::test_b\n"
    assert long_tests.noted(before, took) == after
    assert long_tests.read(after) == {
        "tests/test_c.py::test_c[a b]": 60,
        "tests/test_b.py::test_b": 40,
    }


def test_each_test_of_the_table_is_there():
    names = long_tests.read(long_tests.TABLE.read_text())
    assert names
    for name in names:
        file, _, function = name.partition("[")[0].partition("::")
        assert f"def {function}(" in (TESTS.parent / file).read_text(), name
