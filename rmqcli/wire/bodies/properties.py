"""Settings as the text of requests that change them: Java's properties, with escapes.

Answers have another form, without escapes: see `config.parse_properties_text`.

Source: MixAll.string2Properties in apache/rocketmq, Properties.load in Java.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE: Final = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_LINE_END: Final = re.compile(r"\r\n|\n|\r")
#: What ends a name: the first of these that is not escaped, with blanks around it.
_SEPARATOR: Final = re.compile(r"[ \t\f]*[=:][ \t\f]*|[ \t\f]+")


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """Return the body of 25 and 318, as Java reads it; ASCII, one setting a line.

    Java decodes such a body as Latin-1 and understands escapes, so every character that
    is not plain is escaped. Source: MixAll.string2Properties, Properties.load.
    """
    lines = (f"{_escaped(k)}={_escaped(v)}\n" for k, v in properties.items())
    return "".join(lines).encode("ascii")


def _escaped(text: str) -> str:
    return "".join(
        char
        if char.isascii() and (char.isalnum() or char in "_-./,;@%$")
        else "".join(f"\\u{unit:04x}" for unit in _utf16_units(char))
        for char in text
    )


def _utf16_units(char: str) -> Iterator[int]:
    data = char.encode("utf-16-be", "surrogatepass")
    return (int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2))


def decode_properties(body: bytes) -> dict[str, str]:
    """Read the body of 25 and 318 as Java does. Source: Properties.load.

    A later line with the same name counts; comments and empty lines are skipped.
    """
    properties: dict[str, str] = {}
    whole = ""
    for line in [*_LINE_END.split(body.decode("latin-1")), ""]:
        text = line.lstrip(" \t\f")
        if not whole and text[:1] in ("#", "!", ""):
            continue
        whole += text
        if (len(whole) - len(whole.rstrip("\\"))) % 2:  # the value goes on
            whole = whole[:-1]
            continue
        name, value = _cut(whole)
        properties[_unescaped(name)] = _unescaped(value)
        whole = ""
    return properties


def _cut(line: str) -> tuple[str, str]:
    at = 0
    while at < len(line):
        found = _SEPARATOR.match(line, at)
        if found:
            return line[:at], line[found.end() :]
        at += 2 if line[at] == "\\" else 1
    return line, ""


def _unescaped(text: str) -> str:
    def meant(found: re.Match[str]) -> str:
        what = found[1]
        is_code = len(what) == 5
        return chr(int(what[1:], 16)) if is_code else _ESCAPES.get(what, what)

    joined = _ESCAPE.sub(meant, text)
    return joined.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
