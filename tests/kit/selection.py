"""Which tests a run has: the folders of a marker, and the versions of RocketMQ.

`-m quick` and `-m java` read only the folders that have such tests; `-m java`,
`-m slow` and `-m spark` only files that name the marker. Reading all tests takes each
worker of pytest as long as running thousands of them.
"""

from __future__ import annotations

import functools
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
#: A file has tests with a marker only if one of these words is in its text. A test that
#: takes `rmq_version`, perhaps through a fixture, is marked when it is collected.
SIGNS = {
    "java": ("mark.java", "rmq_version", "real_cluster", "fresh_cluster"),
    "slow": ("mark.slow", "mark.spark"),
    "spark": ("mark.spark",),
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


def only_marker(expression: str) -> str | None:
    """Return the marker that all tests selected by an expression of -m have, if any.

    `java and not slow` selects tests with the marker java.
    """
    marker, *more = expression.split() or [""]
    if more and (more[0] != "and" or "or" in more):
        return None
    return marker


@functools.cache  # asked for each test with a marker
def may_have(path: Path, expression: str) -> bool:
    """Whether a file or folder can have tests that an expression of -m selects."""
    marker = only_marker(expression)
    if marker is None or not path.is_relative_to(TESTS):
        return True
    if marker in SIGNS and path.suffix == ".py" and not _has_sign(path, marker):
        return False
    home = HOMES.get(marker)
    return home is None or any(
        path.is_relative_to(TESTS / name) or (TESTS / name).is_relative_to(path)
        for name in home
    )


@functools.cache
def _has_sign(path: Path, marker: str) -> bool:
    text = path.read_text()
    return any(sign in text for sign in SIGNS[marker])


@functools.cache
def is_at_home(path: Path, marker: str) -> bool:
    """Whether a file lies where the tests with a marker are."""
    return any(path.is_relative_to(TESTS / name) for name in HOMES[marker])
