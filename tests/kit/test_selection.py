"""A run has the tests that its options ask for, and reads no folder in vain."""

from __future__ import annotations

import pytest

from tests.kit import selection
from tests.kit.rows import each_row

BETWEEN = ("4.9.7",)


@pytest.mark.parametrize(
    ("option", "only", "chosen"),
    [
        (None, None, ["4.6.0", "5.5.0"]),
        (None, BETWEEN, ["4.9.7"]),
        ("all", None, ["4.6.0", "4.9.7", "5.3.3", "5.5.0"]),
        ("all", BETWEEN, ["4.9.7"]),
        ("5.3.3", None, ["5.3.3"]),
        ("4.6.0,5.5.0", BETWEEN, []),
        ("embedded", None, ["embedded"]),
        ("embedded", ("5.5.0",), ["embedded"]),
        ("embedded", BETWEEN, []),
    ],
)
def test_a_test_runs_with_its_own_versions_or_the_oldest_and_the_newest(
    option, only, chosen
):
    assert selection.versions(option, only) == chosen


@each_row(
    ("expression", "path", "may_have"),
    [
        ("quick", "engine/test_pull.py", True),
        ("quick", "broker", True),
        ("quick", "broker/server", False),
        ("quick", "cli/test_send.py", False),
        ("quick and not slow", "cli", False),
        ("java", "wire", False),
        ("java", "cli/test_send.py", True),  # it uses fresh_cluster
        ("java", "cli/test_options.py", False),
        ("java or slow", "cli/test_options.py", True),
        ("slow and not java", "acceptance", True),
        ("slow and not java", "cli/test_options.py", False),
        ("slow and not java", "broker/java/test_expiry.py", True),
        ("slow and not java", "spark/sql/test_queries.py", True),  # it is of spark
        ("java or slow", "wire", True),
        ("java and quick or slow", "wire", True),
        ("not java", "wire", True),
        ("not java and not slow", "wire", True),
        ("", "wire", True),
    ],
)
def test_only_what_can_have_the_marker_that_is_asked_for_is_read(
    expression, path, may_have
):
    assert selection.may_have(selection.TESTS / path, expression) == may_have


def test_what_lies_outside_the_tests_is_always_read(tmp_path):
    assert selection.may_have(tmp_path, "quick")
