"""Which tests a run has: the folders of a marker, and the versions of RocketMQ.

`-m quick` and `-m java` read only the folders that have such tests. Reading all tests
takes each worker of pytest as long as running thousands of them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from tests.kit import artefacts
from tests.kit.embedded import CLIENT_VERSION, EMBEDDED

if TYPE_CHECKING:
    import pytest

TESTS = Path(__file__).parents[1]

#: Where the tests with a marker are, under `tests`.
HOMES = {
    # What is exact and needs no network: formats, the engine, what brokers decide.
    "quick": (
        "api",
        "broker/filter",
        "broker/message",
        "broker/namesrv",
        "broker/requests",
        "broker/state",
        "engine",
        "test_layers.py",
        "trace",
        "wire",
    ),
    "java": (
        "acceptance",
        "admin",
        "aio",
        "broker/java",
        "broker/proxy/java",
        "cli",
        "consumer",
        "exporter",
        "kit",
        "mcp",
        "producer",
        "proxy",
        "redrive",
        "spark",
        "store",
        "trace",
    ),
}
#: The versions of a test that names none: what both ends do, those between do, too.
ENDS = (artefacts.VERSIONS[0], artefacts.VERSIONS[-1])
ALL = "all"


def add_option(parser: pytest.Parser) -> None:
    """Add --rmq-versions, whose default is the variable RMQ_TEST_VERSIONS."""
    parser.addoption(
        "--rmq-versions",
        default=os.environ.get("RMQ_TEST_VERSIONS"),
        help="versions of RocketMQ to test against, comma separated; `all`;"
        f" `{EMBEDDED}` is our own cluster. Without it, a test runs with the versions"
        f" of its marker `rmq_versions`, or else with {' and '.join(ENDS)}",
    )


def versions(option: str | None, only: tuple[str, ...] | None) -> list[str]:
    """Return the versions of a test whose marker `rmq_versions` names `only`.

    `option` is --rmq-versions. None means that there is no such option or marker.
    """
    if option is None:
        return [v for v in artefacts.VERSIONS if v in (only or ENDS)]
    asked = [*artefacts.VERSIONS] if option == ALL else option.split(",")
    chosen = [v for v in asked if only is None or v in only]
    if only is not None and EMBEDDED in asked and CLIENT_VERSION in only:
        chosen.append(EMBEDDED)
    return chosen


def home_of(expression: str) -> tuple[str, ...] | None:
    """Return the folders of the only marker that an expression of -m can select.

    `java and not slow` selects tests with the marker java. None means any folder.
    """
    marker, *more = expression.split() or [""]
    if more and (more[0] != "and" or "or" in more):
        return None
    return HOMES.get(marker)


def may_have(path: Path, expression: str) -> bool:
    """Whether a file or folder can have tests that an expression of -m selects."""
    home = home_of(expression)
    if home is None or not path.is_relative_to(TESTS):
        return True
    return any(
        path.is_relative_to(TESTS / name) or (TESTS / name).is_relative_to(path)
        for name in home
    )


def is_at_home(path: Path, marker: str) -> bool:
    """Whether a file lies where the tests with a marker are."""
    return any(path.is_relative_to(TESTS / name) for name in HOMES[marker])
