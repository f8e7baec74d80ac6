"""A message of a queue is known again by its place, its ID and its store time."""

from __future__ import annotations

import pytest

from rmqcli.admin.witness import Witness


@pytest.mark.parametrize(
    ("noted", "found", "expected"),
    [
        (Witness(4, "A1", 70), Witness(4, "A1", 70), True),
        (Witness(4, "A1", 70), Witness(4, "A2", 70), False),
        (Witness(4, "A1", 70), Witness(4, "A1", 71), False),
        (Witness(4, "A1", 70), Witness(5, "A1", 70), False),
        # It was sent: the answer has no store time.
        (Witness(4, "A1", None), Witness(4, "A1", 70), True),
        (Witness(4, "A1", None), Witness(4, "A2", 70), False),
        # A row of a file of which only the highest store time is known.
        (Witness(4, None, 70), Witness(4, "A1", 70), True),
        (Witness(4, None, 70), Witness(4, "A1", 69), True),
        (Witness(4, None, 70), Witness(4, "A1", 71), False),
        (Witness(4, None, 70), Witness(5, "A1", 70), False),
    ],
)
def test_a_message_is_the_one_that_was_noted(noted, found, expected):
    assert noted.is_same(found) is expected
