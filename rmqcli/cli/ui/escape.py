r"""Makes text safe to print: a terminal shows it and obeys nothing in it.

All text from outside (bodies, names, remarks, arguments) is escaped here before it is
printed for people. Control characters, escape sequences, bidi overrides and invisible
characters become visible text: `\x1b`, `\u202e`, `\U000e0041`. A backslash is not
escaped: the result is for people, and is not parsed again.
"""

from __future__ import annotations

import functools
import re

# C0 without \t \n, DEL, C1, soft hyphen, and then by code point:
# 061c 200e 200f 202a-202e 2066-2069: bidirectional marks, embeddings, isolates
# 034f 115f 1160 17b4 17b5 180b-180e 200b 2060-2064 2065 206a-206f 3164 feff ffa0:
#   invisible, used to make two names look alike
# 2028 2029: line and paragraph separators; d800-dfff: lone surrogates (bytes that were
#   not UTF-8); fff0-fffb fffe ffff: specials and noncharacters; e0000-e0fff: tags
# Zero-width joiners (200c, 200d) stay: Persian, Indic scripts and emoji need them.
_UNSAFE_WITHOUT_LAYOUT = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb"
    "\ufffe\uffff\ud800-\udfff\U000e0000-\U000e0fff"
)
_SHORT = {"\t": r"\t", "\n": r"\n", "\r": r"\r"}


@functools.cache
def _unsafe(*, keep_newlines: bool) -> re.Pattern[str]:
    # Compiled on first use, which takes 2 ms: most runs print only plain ASCII.
    layout = "" if keep_newlines else "\t\n"
    return re.compile(f"[{layout}{_UNSAFE_WITHOUT_LAYOUT}]")


def is_safe(text: str) -> bool:
    """Whether `safe` and `safe_json` leave each character of `text` as it is."""
    if text.isascii() and text.isprintable():
        return True
    return _unsafe(keep_newlines=False).search(text) is None


def safe(text: str, *, keep_newlines: bool = False) -> str:
    """Return `text` with everything escaped except visible characters and spaces.

    `keep_newlines` also keeps newlines and tabs, for text of more than one line.
    """
    if text.isascii() and text.isprintable():
        return text
    return _unsafe(keep_newlines=keep_newlines).sub(_visible, text)


def safe_bytes(data: bytes, *, keep_newlines: bool = False) -> str:
    r"""Return `data` read as UTF-8; bytes that are not UTF-8 show as `\xff`."""
    return safe(data.decode("utf-8", "backslashreplace"), keep_newlines=keep_newlines)


def safe_json(text: str) -> str:
    r"""Return JSON `text` in which unsafe characters are `\u` escapes.

    `text` must be the output of a JSON encoder: there such characters occur inside
    strings only, so the result is still JSON of the same value. Newlines and tabs
    between values are kept.
    """
    if text.isascii() and "\x7f" not in text:
        return text
    return _unsafe(keep_newlines=True).sub(json_escape, text)


def _visible(match: re.Match[str]) -> str:
    char = match.group()
    if char in _SHORT:
        return _SHORT[char]
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def json_escape(match: re.Match[str]) -> str:
    """Return a character as JSON escapes it."""
    code = ord(match.group())
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
