"""The numbers in a pull answer are parsed by a fast path, or by the header class."""

from __future__ import annotations

import pytest

from rmqcli.errors import HeaderError
from rmqcli.wire.command import RemotingCommand
from rmqcli.wire.pull_answer import PullStatus, lower_end, parse_pull_answer
from tests.kit.rows import each_row

FIELDS = {
    "nextBeginOffset": "4",
    "minOffset": "1",
    "maxOffset": "9",
    "suggestWhichBrokerId": "2",
}


def answer(code=0, **fields):
    return RemotingCommand(code, ext_fields={**FIELDS, **fields}, body=b"body")


def numbers(parsed):
    return (
        parsed.next_begin_offset,
        parsed.min_offset,
        parsed.max_offset,
        parsed.suggest_which_broker_id,
    )


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (0, PullStatus.FOUND),
        (19, PullStatus.NO_NEW_MSG),
        (20, PullStatus.NO_MATCHED_MSG),
        (21, PullStatus.OFFSET_ILLEGAL),
    ],
)
@pytest.mark.parametrize("next_offset", ["4", "-4"])
def test_codes_and_numbers(code, status, next_offset):
    parsed = parse_pull_answer(answer(code, nextBeginOffset=next_offset))
    assert parsed.status is status
    assert numbers(parsed) == (int(next_offset), 1, 9, 2)
    assert parsed.body == b"body"


@each_row(
    "text",
    ["9" * 18, "1" + "0" * 18, str(2**63 - 1), str(-(2**63)), "0" * 18 + "7", "-1"],
)
@each_row("place", range(4))
def test_any_number_of_64_bits_is_read_in_any_place(text, place):
    name = list(FIELDS)[place]
    expected = [4, 1, 9, 2]
    expected[place] = int(text)
    assert numbers(parse_pull_answer(answer(**{name: text}))) == tuple(expected)


@each_row("text", [str(2**63), "", "x", "1.5", "\u0664", "²"])
@each_row("place", range(4))
def test_what_is_no_number_of_64_bits_is_an_error(text, place):
    with pytest.raises(HeaderError):
        parse_pull_answer(answer(**{list(FIELDS)[place]: text}))


@pytest.mark.parametrize("name", FIELDS)
def test_a_missing_number_is_an_error(name):
    fields = {each: text for each, text in FIELDS.items() if each != name}
    with pytest.raises(HeaderError, match="is missing"):
        parse_pull_answer(RemotingCommand(0, ext_fields=fields))


@pytest.mark.parametrize(
    ("min_offset", "found"), [(-2, -2), (-1, 0), (0, 0), (1, 1), (7, 7)]
)
def test_a_queue_without_messages_begins_at_zero(min_offset, found):
    assert lower_end(min_offset) == found
