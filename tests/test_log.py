"""A record of the log is one line, whatever the names in it contain."""

from __future__ import annotations

import pytest

from rmqcli.log import get_logger
from rmqcli.model import MessageQueue

logger = get_logger("rmqcli.test_one_line_log")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("g", "g"),
        ("Gruppe-ä €", "Gruppe-ä €"),
        ("g\n2026-01-01 ERROR forged", r"g\n2026-01-01 ERROR forged"),
        ("a\r\x1b[2J\x9b\u2028\u202e", r"a\r\x1b[2J\x9b\u2028\u202e"),
    ],
)
def test_control_characters_in_arguments_are_shown_and_not_obeyed(caplog, name, shown):
    logger.warning("members of group %s changed", name)
    assert caplog.messages == [f"members of group {shown} changed"]


def test_arguments_that_are_no_text_are_formatted_as_ever(caplog):
    queue = MessageQueue("T", "b\n", 1)
    logger.warning("%s %d %5.1f %s %.3r", queue, 7, 2.5, None, "abcdef")
    assert caplog.messages == [r"T@b\n:1 7   2.5 None 'ab"]


def test_a_message_without_arguments_and_one_with_a_mapping_pass(caplog):
    logger.warning("one\ntwo")
    logger.warning("%(name)s", {"name": "g"})
    assert caplog.messages == ["one\ntwo", "g"]


def test_a_logger_is_filtered_once():
    before = list(logger.filters)
    assert get_logger(logger.name) is logger
    assert logger.filters == before
