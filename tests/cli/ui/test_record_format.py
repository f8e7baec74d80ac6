"""`--format`: every field and escape, and errors that point at the faulty part."""

from __future__ import annotations

import pytest

from rmqcli.cli.main import run
from rmqcli.cli.ui.records.format import LETTERS, RecordFormat
from rmqcli.errors import TextError
from rmqcli.model import MessageQueue
from rmqcli.wire.message.decode import decode_messages
from rmqcli.wire.message.encode import MessageFields, encode_message
from tests.kit.documents import text_of

QUEUE = MessageQueue("orders", "broker-a", 3)
FIELDS = MessageFields(
    topic="orders",
    body=b"\x00\xffhi",
    queue_id=3,
    queue_offset=42,
    commit_log_offset=255,
    reconsume_times=2,
    born_timestamp_ms=1_700_000_000_001,
    store_timestamp_ms=1_700_000_000_002,
    born_host="10.0.0.1:5",
    store_host="127.0.0.1:10911",
    properties={"UNIQ_KEY": "ID1", "TAGS": "TagA", "KEYS": "k1 k2", "region": "eu"},
)


def formatted(template: str) -> bytes:
    return RecordFormat(template).write(QUEUE, decode_messages(encode_message(FIELDS)))[
        0
    ]


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("%t %b %q %o %c", b"orders broker-a 3 42 255"),
        ("%i %I", b"ID1 7F00000100002A9F00000000000000FF"),
        ("%g|%k|%r", b"TagA|k1 k2|2"),
        ("%d %D{ms}", b"2023-11-14T22:13:20.002Z 1700000000001"),
        ("%d{date} %d{time}", b"2023-11-14 22:13:20.002Z"),
        ("%h %H", b"10.0.0.1:5 127.0.0.1:10911"),
        ("%p{region}%p{none}.", b"eu."),
        ("%v", b"\x00\xffhi"),
        ("%x %y", b"00ff6869 AP9oaQ=="),
        (r"%%\n\t\0\\\x41", b"%\n\t\x00\\A"),
        ("naïve", "naïve".encode()),
    ],
)
def test_each_field_and_escape(template: str, expected: bytes) -> None:
    assert formatted(template) == expected


def test_all_properties_and_the_whole_record_are_json() -> None:
    assert b'"region":"eu"' in formatted("%p")
    assert formatted("%j").startswith(b'{"topic":"orders"')


_FIELD = "use one of %t %b %q %o %c %i %I %g %k %r %s %d %D %h %H %p %v %x %y %j %%"
_ESCAPE = r"use one of \n \t \r \0 \\ \xHH"


@pytest.mark.parametrize(
    ("template", "start", "end", "what", "hint"),
    [
        ("%t %z", 3, 5, "no field %z", _FIELD),
        ("%", 0, 1, "nothing after %", _FIELD),
        ("%p{a", 2, 4, "'{' without '}'", ""),
        (
            "%d{week}",
            2,
            8,
            "no time format 'week'",
            "use one of {iso}, {ms}, {date}, {time}",
        ),
        ("%t{x}", 2, 5, "%t takes no {...}", ""),
        (r"a\q", 1, 3, r"no escape \q", _ESCAPE),
        (r"\x4", 0, 3, r"\x takes two hexadecimal digits", ""),
        (r"\x4g", 0, 4, r"\x takes two hexadecimal digits", ""),
        ("\\", 0, 1, "nothing after \\", _ESCAPE),
    ],
)
def test_an_error_points_at_its_place(
    template: str, start: int, end: int, what: str, hint: str
) -> None:
    with pytest.raises(TextError) as caught:
        RecordFormat(template)
    error = caught.value
    assert (error.start, error.end) == (start, end)
    assert error.message.splitlines()[0].endswith(f": {what}")
    assert error.hint == hint


def test_every_field_is_in_help_in_o_help_and_in_the_guide(capfd):
    pages = [text_of("reading")]
    for command in ("tail", "consume"):
        for arguments in (["--help"], ["-o", "help"]):
            assert run([command, *arguments]) == 0
            pages.append(capfd.readouterr().out)
    for letter, meaning in LETTERS:
        RecordFormat(letter)
        for page in pages:
            assert letter in page
            assert meaning.split(";")[0] in " ".join(page.split())
