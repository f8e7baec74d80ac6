"""Reads JSON that the standard library refuses and fastjson accepts.

Accepts object keys, bare keys, single quotes, comments, a BOM, doubled and trailing
commas. Refuses what fastjson refuses: missing commas, bare text as a value, junk after
the end. The time is linear in the length of the input, for every input.

Source: fastjson 1.2.51 to 2.0.59 as used by apache/rocketmq.
"""

from __future__ import annotations

import json.decoder
import re
from typing import TYPE_CHECKING, NoReturn

from rmqcli.errors import BodyError
from rmqcli.wire.fastjson import ObjectKey, scan_once, too_deep

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.wire.fastjson import JsonValue

#: Maximum nesting of containers. RocketMQ's own bodies nest 6 deep.
DEPTH_MAX = 256
_NUMBER_LENGTH_MAX = 400
_SHOWN_MAX = 20

_scan_string: Callable[[str, int, bool], tuple[str, int]] = vars(json.decoder)[
    "scanstring"
]
_BLANKS = re.compile(
    r"(?:[ \t\r\n\f\v\b\ufeff]++|/\*[^*]*+(?:\*(?!/)[^*]*+)*+\*/|//[^\n]*+)*+"
)
# Rare, so compiled when first used.
_SINGLE_QUOTED = r"'((?s:[^'\\]*+(?:\\.[^'\\]*+)*+))'"
_TO_REQUOTE = r'(?s:\\(.)|")'
_WORD = re.compile(r"[\w$.+\-]++")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
#: A key of digits with a plain number or text, up to the end of the entry.
_NUMBER_ENTRY = re.compile(r'([0-9]++):(?:(-?[0-9]{1,18}+)|"([^"\\]*+)")(?=[,}])')
_WORDS: dict[str, JsonValue] = {
    "true": True,
    "false": False,
    "null": None,
    "NaN": None,
    "undefined": None,
}

#: Marks a container that is itself a key; compared by identity.
_AS_KEY = ObjectKey()


class TolerantReader:
    """Reads one value as fastjson would, without recursion.

    Values under object keys, the bulk of a large answer, are given to the standard
    library's scanner first. Once that refuses one, it is not used again, so that the
    time spent on failed scans does not add up.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._is_fast = True
        self._root: JsonValue = None
        #: containers that are open, outermost first
        self._open: list[dict[str, JsonValue] | list[JsonValue]] = []
        #: the key of each of them: None in a list, _AS_KEY if it is itself a key
        self._keys: list[str | None] = []

    def read(self) -> JsonValue:
        """Read the single value in the text. Raises BodyError."""
        self._read_value(None)
        while self._open:
            top = self._open[-1]
            # An item must be followed by a comma. Before the first item fastjson
            # tolerates one.
            character = self._skip_commas(must=bool(top))
            if character == "}" if isinstance(top, dict) else character == "]":
                self._at += 1
                self._close()
            elif isinstance(top, list):
                self._read_value(None)
            elif character == "{":
                self._read_object_keys(top)
            elif character.isdigit() and self._read_number_keys(top):
                pass
            else:
                self._read_value(self._read_key(character))
        if self._peek():
            self._fail("nothing more")
        return self._root

    def _peek(self) -> str:
        """Skip blanks and comments; return the next character, empty at the end."""
        match = _BLANKS.match(self._text, self._at)
        if match:
            self._at = match.end()
        return self._text[self._at : self._at + 1]

    def _skip_commas(self, *, must: bool) -> str:
        character = self._peek()
        if must and character not in ",}]":
            self._fail("a comma")
        while character == ",":
            self._at += 1
            character = self._peek()
        return character

    def _read_key(self, character: str) -> str:
        """Read a key and its colon."""
        if character in ('"', "'"):
            key = self._read_string(character)
        else:
            key = self._read_word("a key")
        self._read_colon()
        return key

    def _read_colon(self) -> None:
        if self._peek() != ":":
            self._fail("a colon")
        self._at += 1

    def _read_value(self, key: str | None) -> None:
        """Read the value of `key` or a list's next item; only open a container."""
        character = self._peek()
        if character == "{":
            self._push({}, key)
        elif character == "[":
            self._push([], key)
        elif character in ('"', "'"):
            self._attach(self._read_string(character), key)
        else:
            self._attach(_word_value(self._read_word("a value")), key)

    def _push(
        self, container: dict[str, JsonValue] | list[JsonValue], key: str | None
    ) -> None:
        if len(self._open) >= DEPTH_MAX:
            raise too_deep()
        self._at += 1
        self._open.append(container)
        self._keys.append(key)

    def _close(self) -> None:
        value = self._open.pop()
        key = self._keys.pop()
        if key is _AS_KEY and isinstance(value, dict):
            self._read_colon()
            self._read_value(ObjectKey.of(" ", value))
        else:
            self._attach(value, key)

    def _attach(self, value: JsonValue, key: str | None) -> None:
        if not self._open:
            self._root = value
            return
        top = self._open[-1]
        if isinstance(top, list):
            top.append(value)
        elif key is not None:
            top[key] = value

    def _read_object_keys(self, top: dict[str, JsonValue]) -> None:
        """Read consecutive entries whose keys are objects."""
        text, at = self._text, self._at
        try:
            if self._is_fast:
                key, end = scan_once(text, at)
                if text.startswith(":", end) and isinstance(key, dict):
                    value, self._at = scan_once(text, end + 1)
                    top[ObjectKey.of(text[at:end], key)] = value
                    return
        except (ValueError, StopIteration):
            self._is_fast = False
        except RecursionError:
            raise too_deep() from None
        if self._skip_commas(must=False) == "{":
            if any(key is _AS_KEY for key in self._keys):
                raise BodyError("JSON has an object key inside an object key")
            self._push({}, _AS_KEY)

    def _read_number_keys(self, top: dict[str, JsonValue]) -> bool:
        """Read consecutive entries such as `0:5,1:6`; return whether there was one."""
        text, start = self._text, self._at
        match = _NUMBER_ENTRY.match(text, start)
        while match:
            key, number, word = match.groups()
            top[key] = word if number is None else int(number)
            self._at = end = match.end()
            match = _NUMBER_ENTRY.match(text, end + 1) if text[end] == "," else None
        return self._at > start

    def _read_string(self, quote: str) -> str:
        try:
            if quote == '"':
                value, self._at = _scan_string(self._text, self._at + 1, False)
                return value
            match = re.compile(_SINGLE_QUOTED).match(self._text, self._at)
            if match is None:
                self._fail("the end of a string")
            self._at = match.end()
            requoted = re.sub(_TO_REQUOTE, _requote, match[1]) + '"'
            return _scan_string(requoted, 0, False)[0]
        except ValueError:
            self._fail("a string")

    def _read_word(self, wanted: str) -> str:
        match = _WORD.match(self._text, self._at)
        if match is None:
            self._fail(wanted)
        self._at = match.end()
        return match[0]

    def _fail(self, wanted: str) -> NoReturn:
        found = self._text[self._at : self._at + _SHOWN_MAX]
        raise BodyError(
            f"expected {wanted} at character {self._at} of the JSON, found {found!r}"
            if found
            else f"JSON ends at character {self._at}, where {wanted} is expected"
        )


def _requote(match: re.Match[str]) -> str:
    if match[1] is None:
        return '\\"'
    return "'" if match[1] == "'" else match[0]


def _word_value(word: str) -> JsonValue:
    if word in _WORDS:
        return _WORDS[word]
    if len(word) <= _NUMBER_LENGTH_MAX:
        if _INTEGER.fullmatch(word):
            return int(word)
        if _NUMBER.fullmatch(word):
            return float(word)
    raise BodyError(f"{word[:_SHOWN_MAX]!r} is not a JSON value")
