"""The order of a run on several workers: the longest tests come first.

`--dist worksteal` gives each worker an equal part of the list of tests. A test that
takes minutes and comes last keeps one worker busy after the others have ended.
`long_tests.txt` has the tests that took `LONG_S` or more, and how many seconds each
took; `pytest --note-long-tests` notes those of a run, and forgets those that have
become shorter. What it says of a test only decides when the test begins.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pytest

TABLE = Path(__file__).with_name("long_tests.txt")
LONG_S = 20

Test = TypeVar("Test")


def arrange(items: list[pytest.Item]) -> None:
    """Put the tests of a worker of pytest-xdist in order; elsewhere do nothing."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers == 1:
        return
    seconds = read(TABLE.read_text())
    items[:] = longest_first(
        items,
        workers=workers,
        seconds_of=lambda item: seconds.get(item.nodeid, 0),
        version_of=_version_of,
    )


def _version_of(item: pytest.Item) -> str | None:
    callspec = getattr(item, "callspec", None)
    return None if callspec is None else callspec.params.get("rmq_version")


def longest_first(
    tests: Sequence[Test],
    *,
    workers: int,
    seconds_of: Callable[[Test], int],
    version_of: Callable[[Test], str | None],
) -> list[Test]:
    """Return the tests so that each worker begins with its share of the long ones.

    Their share of the others follows, in its old order. A worker has one cluster of one
    version at a time: the long tests of a version stay together, and last come those of
    the version with which the others begin.
    """
    long = sorted((t for t in tests if seconds_of(t)), key=lambda t: -seconds_of(t))
    others = iter([test for test in tests if not seconds_of(test)])
    arranged: list[Test] = []
    for worker in range(workers):
        # What pytest-xdist gives each: the last ones get one more if any do.
        size = (len(tests) + worker) // workers
        own = long[workers - 1 - worker :: workers]
        rest = [next(others) for _ in range(size - len(own))]
        versions = [version_of(test) for test in own]
        next_version = version_of(rest[0]) if rest else None
        own.sort(
            key=lambda test: (
                version_of(test) == next_version,
                versions.index(version_of(test)),
            )
        )
        arranged += own + rest
    return arranged


def read(text: str) -> dict[str, int]:
    """Return the seconds of each test in a text such as that of `long_tests.txt`."""
    lines = [line.partition(" ") for line in text.splitlines()]
    return {name: int(seconds) for seconds, _, name in lines}


def noted(text: str, took: Mapping[str, float]) -> str:
    """Bring the text up to date with the seconds that each test of a run took.

    A test that took less than LONG_S is left out.
    """
    kept = {name: s for name, s in read(text).items() if name not in took}
    kept |= {name: round(s) for name, s in took.items() if s >= LONG_S}
    ranked = sorted(kept.items(), key=lambda each: (-each[1], each[0]))
    return "".join(f"{seconds} {name}\n" for name, seconds in ranked)


class Notes:
    """A plug-in that writes how long the tests of a run took to `long_tests.txt`."""

    def __init__(self) -> None:
        self._took: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the time of the test itself, which may start clusters of its own."""
        if report.when == "call" and report.passed:
            self._took[report.nodeid] = report.duration

    def pytest_sessionfinish(self) -> None:
        """Write the table. Workers have no reports of other workers and do not."""
        TABLE.write_text(noted(TABLE.read_text(), self._took))
