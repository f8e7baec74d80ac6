"""`escape` lets nothing through that a terminal obeys, and keeps visible text."""

from __future__ import annotations

import json
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqcli.cli.ui.escape import safe, safe_bytes, safe_json
from tests.kit.rows import each_row

BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"

any_text = st.text(
    st.characters() | st.characters(categories=["Cc", "Cf", "Cs", "Zl", "Zp"])
)


@each_row(
    ("text", "shown"),
    [
        ("orders-1 ✓ 订单", "orders-1 ✓ 订单"),
        ("a\tb\nc\rd", r"a\tb\nc\rd"),
        ("\x1b[2J\x1b[H", r"\x1b[2J\x1b[H"),
        ("\x1b]52;c;aGk=\x07", r"\x1b]52;c;aGk=\x07"),  # OSC 52: sets the clipboard
        ("\x1b]8;;http://x\x1b\\y", r"\x1b]8;;http://x\x1b\y"),  # OSC 8: a hidden link
        ("\x1bP+q\x1b\\", r"\x1bP+q\x1b" + "\\"),  # DCS
        ("\x9b2J\x9d0;t\x9c", r"\x9b2J\x9d0;t\x9c"),  # C1: CSI, OSC, ST
        ("\x7f\x00", r"\x7f\x00"),
        ("a\u202eb", r"a\u202eb"),
        ("a\u2028b\u2029", r"a\u2028b\u2029"),
        ("a\u200bb\ufeff", r"a\u200bb\ufeff"),
        ("a\udc9bb", r"a\udc9bb"),  # an argument that was not UTF-8
        ("a\U000e0041", r"a\U000e0041"),  # a tag character: invisible
        (
            "\u0645\u06cc\u200c\u062e\u0648",
            "\u0645\u06cc\u200c\u062e\u0648",
        ),  # Persian needs the non-joiner
        ("👩\u200d💻", "👩\u200d💻"),
    ],
)
def test_safe_shows_what_a_terminal_would_obey(text, shown):
    assert safe(text) == shown


def test_safe_keeps_newlines_and_tabs_when_asked():
    assert safe("a\tb\n\x1bc\r", keep_newlines=True) == "a\tb\n\\x1bc\\r"


@pytest.mark.parametrize("keep_newlines", [False, True])
def test_all_256_bytes_come_out_visible(keep_newlines):
    allowed = "\n\t" if keep_newlines else ""
    for data in (bytes(range(256)), bytes(range(255, -1, -1))):
        shown = safe_bytes(data, keep_newlines=keep_newlines)
        assert re.sub(f"[ -~{allowed}]", "", shown) == ""


@each_row("byte", range(256))
def test_each_byte_alone(byte):
    shown = safe_bytes(bytes([byte]))
    assert shown == (chr(byte) if 0x20 <= byte < 0x7F else shown)
    assert shown.isprintable()


@given(any_text)
def test_nothing_but_visible_text_is_left(text):
    shown = safe(text)
    for char in shown:
        assert unicodedata.category(char) not in ("Cc", "Cs", "Zl", "Zp")
        assert char not in BIDI


@given(any_text)
def test_safe_json_keeps_the_value(text):
    encoded = safe_json(json.dumps({text: [text]}, ensure_ascii=False))
    assert json.loads(encoded) == {text: [text]}
    assert not re.search("[\x00-\x1f\x7f-\x9f\ud800-\udfff]", encoded)
    assert not set(encoded) & set(BIDI)


@given(st.binary())
def test_bytes_are_never_lost_from_sight(data):
    """Bytes that are not UTF-8 are shown by their hexadecimal values."""
    shown = safe_bytes(data)
    assert shown.isascii() or not data.isascii()
    assert bool(shown) == bool(data)
