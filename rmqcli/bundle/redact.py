"""Removes secrets from values that leave the house. Pure.

A `Redactor` works in two steps. `learn` looks for secrets: values whose name says that
they are one, passwords in URLs, keys in PEM, tokens. `clean` returns a copy of a value
without any secret that was learnt or given, wherever it is. A text may hide a secret
behind escapes of JSON, percent signs, base64 or hexadecimal digits, also one inside the
other. Such a text is decoded, and if what it means holds a secret, all of it is
removed. When in doubt, a text is removed: a support case can do without it.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote

#: What stands in the place of a secret.
REMOVED: Final = "<removed>"

#: Secrets that are shorter are removed only where a name says what they are.
SECRET_CHARS_MIN: Final = 4
#: The same for what looks like a secret, which may be an ordinary word.
LEARNT_CHARS_MIN: Final = 6
#: A text that is longer is removed without a look at it.
TEXT_CHARS_MAX: Final = 1 << 20
_DEPTH_MAX: Final = 5
_VIEWS_MAX: Final = 200
#: Names and words that are in every cluster, also where they are someone's account.
_ORDINARY: Final = frozenset(("rocketmq", "default", "unknown", "broker", "localhost"))
_HARMLESS: Final = frozenset(("", "true", "false", "null", "none", REMOVED))

_NAME: Final = (
    r"pass[_.\- ]{0,2}(?:word|wd|phrase|code)|(?<!by)(?<!com)pass(?![a-z])|pwd"
    r"|(?<![a-z])(?:pw|ak|sk)(?![a-z])|secret|token|credential|(?:private|access|api"
    r"|encrypt(?:ion)?|shared|master|account|signing|sas)[_.\- ]{0,2}key|authorization"
    r"|auth(?:entication)?[_.\- ]?(?:user|header|info)|exporter[_.\- ]?header|cookie"
    r"|signature|jaas|connection[_.\- ]?string"
)
_IS_NAME: Final = re.compile(_NAME, re.IGNORECASE)
_QUOTES: Final = r"""[\\"']{0,8}"""
_VALUE: Final = (
    r"""(?P<value>(?:(?:Bearer|Basic|Digest|Token)\s+)?"""
    r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s"']+))"""
)
#: Names and values before an end that may be missing have a limit: a search from each
#: place in a long text to its end would take hours.
_REST: Final = r"[\w.\-]{0,100}"
_WORDS: Final = r"[\w\-]{0,100}"
_SETTING: Final = rf"{_REST}(?:{_NAME}){_REST}"
_LINE: Final = r"""(?P<value>[^\s"'{\[](?:[^\r\n]*\S)?)"""
_OPENED: Final = r"""(?:\[(?!\s*\])|\{(?!\s*\})|[|>][+\-\d]*[ \t]*\r?\n|"{3}|'{3})"""
_NAME_OF_ROW: Final = (
    rf"(?<![a-z])(?:name|key|setting){_QUOTES}\s*[=:]\s*{_QUOTES}{_REST}(?:{_NAME})"
)
_VALUE_OF_ROW: Final = rf"(?<![a-z])value{_QUOTES}\s*[=:]"
#: What looks like a secret in a text; the group `value` is the secret.
_PATTERNS: Final = tuple(
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?P<value>.*?)(?:-----END|\Z)",
        # The user and password of a URL, up to the last @ of the word.
        r"""[a-z0-9+.\-]:(?:\\?/){2}(?P<value>[^\s"'<>]{0,2048})@(?=[\w\[])""",
        # A line of YAML or of properties, whose value may have blanks.
        rf"(?m:^[ \t\-]*+{_SETTING}[ \t]*[=:][ \t]*(?!(?:null|none)\b){_LINE}[ \t]*$)",
        rf"(?m:^[ \t]*(?=[\w\-]*\.){_SETTING}[ \t]+(?P<value>[^\s=:]+)$)",
        rf"(?:{_NAME}){_REST}{_QUOTES}\s*[=:]\s*\\?{_VALUE}",
        (
            rf"(?<![\w\-])--?{_WORDS}(?:{_NAME}){_WORDS}\s+"
            rf"(?P<value>[^\s\"'<>\-][^\s\"'<>]*)"
        ),
        rf"<[\w.:\-]*(?:{_NAME})[\w.:\-]*>(?P<value>[^<]+)<",
        r"\b(?:Bearer|Basic)\s+(?P<value>[\w.~+/=\-]{6,})",
        r"(?-i:\b(?P<value>eyJ[\w\-]{8,}\.[\w\-]+\.[\w\-]*))",
        r"(?-i:\b(?P<value>(?:AKIA|ASIA|LTAI)[A-Za-z0-9]{12,})\b)",
    )
)
#: What looks like a secret whose end is not known: a list, an object or several lines,
#: or a row with a name and a value.
_UNBOUNDED: Final = tuple(
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        rf"(?:{_NAME}){_REST}{_QUOTES}\s*[=:]\s*{_OPENED}",
        rf"(?:{_NAME}){_REST}{_QUOTES}[ \t]*:[ \t]*\r?\n",
        rf"{_NAME_OF_ROW}.{{0,400}}?{_VALUE_OF_ROW}",
        rf"{_VALUE_OF_ROW}.{{0,400}}?{_NAME_OF_ROW}",
    )
)
#: Only a text with one of these can match a pattern.
_HINT: Final = re.compile(
    rf"{_NAME}|://|:\\/|PRIVATE KEY|bearer|basic|eyJ|AKIA|ASIA|LTAI", re.IGNORECASE
)
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_\-]{6,}={0,2}")
#: A decoded text without this can hold no secret that is looked for.
_READABLE: Final = re.compile("[^\x00-\x1f\x7f\ufffd]{4}")
#: A time, or an address of IPv4, says nothing else; most texts of a cluster are these.
_PLAIN: Final = re.compile(
    r"[12]\d{3}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{3})?Z|(?:\d{1,3}\.){3}\d{1,3}:\d{1,5}"
)
_HEX: Final = re.compile(r"[0-9a-fA-F]{8,}")
_WORD: Final = re.compile(r"[a-z]{1,9}")
_BLANKS: Final = re.compile(r"\s+")
_CONTROLS: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "0": "\0"}


class Redactor:
    """Removes the secrets that it was given, and those that it learns.

    `count` is how many texts were removed or changed, and `short` how many of the given
    secrets are too short to be looked for.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: set[str] = set()
        self.count = 0
        self.short = 0
        self._find: re.Pattern[str] | None = None
        self._cleaned: dict[str, str] = {}
        #: texts that were looked through for secrets
        self._learnt: set[str] = set()
        for secret in secrets:
            if len(secret.strip()) < SECRET_CHARS_MIN:
                self.short += bool(secret.strip())
            else:
                self._add(secret, SECRET_CHARS_MIN)

    # --- learning ---

    def learn(self, value: object) -> None:
        """Note what looks like a secret in a value, as JSON has them."""
        if isinstance(value, Mapping):
            for key, each in value.items():
                self._learn_text(str(key))
                if _is_named(value, key):
                    self._learn_all(each)
                else:
                    self.learn(each)
        elif isinstance(value, list | tuple):
            for each in value:
                self.learn(each)
        elif isinstance(value, str):
            self._learn_text(value)

    def _learn_all(self, value: object) -> None:
        """Note all texts in a value whose name says that it is a secret."""
        if isinstance(value, Mapping):
            for each in value.values():
                self._learn_all(each)
        elif isinstance(value, list | tuple):
            for each in value:
                self._learn_all(each)
        else:
            self._add(str(value), LEARNT_CHARS_MIN)
            self._learn_text(str(value))

    def _learn_text(self, text: str) -> None:
        if len(text) > TEXT_CHARS_MAX or text in self._learnt:
            return
        self._learnt.add(text)
        for view in _views(text)[0]:
            if _HINT.search(view) is None:
                continue
            if view.lstrip()[:1] in ("{", "["):
                with contextlib.suppress(ValueError, RecursionError):
                    self.learn(json.loads(view))
            for pattern in _PATTERNS:
                for match in pattern.finditer(view):
                    found = match["value"].strip("\"'\\")
                    if _WORD.fullmatch(found) is not None:
                        continue  # removed here only, because it is in other texts, too
                    self._add(found, LEARNT_CHARS_MIN)
                    if ":" in found:  # a user and a password
                        self._add(found.partition(":")[2], LEARNT_CHARS_MIN)

    def _add(self, secret: str, chars_min: int) -> None:
        for form in (secret, secret.strip().strip("\"'"), _unescaped(secret)):
            text = form.strip()
            is_ordinary = text.lower() in _ORDINARY or text.lower() in _HARMLESS
            if len(text) >= chars_min and not is_ordinary:
                self._secrets.add(text)
                self._find = None
                self._cleaned.clear()

    # --- cleaning ---

    def clean(self, value: object) -> object:
        """Return a copy of a value without secrets, with REMOVED in their places."""
        if isinstance(value, Mapping):
            return self.clean_mapping(value)
        if isinstance(value, list | tuple):
            return [self.clean(each) for each in value]
        if isinstance(value, str):
            return self.clean_text(value)
        if str(value) in self._secrets:  # of digits
            self.count += 1
            return REMOVED
        return value

    def clean_mapping(self, value: Mapping[Any, Any]) -> dict[str, Any]:
        """Do what `clean` does, for a mapping."""
        found: dict[str, Any] = {}
        for key, each in value.items():
            name = shown = self.clean_text(str(key))
            number = 1
            while shown in found:
                number += 1
                shown = f"{name} ({number})"
            found[shown] = (
                self._remove(each) if _is_named(value, key) else self.clean(each)
            )
        return found

    def _remove(self, value: object) -> object:
        """Return what stands for a value whose name says that it is a secret."""
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str) and value.strip().lower() in _HARMLESS:
            return value
        self.count += 1
        return REMOVED

    def clean_text(self, text: str) -> str:
        """Return a text without secrets; all of it is removed if they are hidden."""
        found = self._cleaned.get(text)
        if found is None:
            found = self._clean_text(text)
            self._cleaned[text] = found
        self.count += found != text
        return found

    def _clean_text(self, text: str) -> str:
        if len(text) > TEXT_CHARS_MAX:
            return REMOVED
        cleaned = text
        if _HINT.search(cleaned) is not None:
            if any(pattern.search(text) is not None for pattern in _UNBOUNDED):
                return REMOVED
            for pattern in _PATTERNS:
                cleaned = pattern.sub(_without_value, cleaned)
        find = self._pattern()
        if find is not None:
            cleaned = find.sub(REMOVED, cleaned)
        return REMOVED if self._hides_secret(cleaned) else cleaned

    def _hides_secret(self, text: str) -> bool:
        views, are_all = _views(text)
        if not are_all:
            return True
        find = self._pattern()
        for view in views:
            if find is not None and find.search(view) is not None:
                return True
            if _HINT.search(view) is None:
                continue
            for pattern in _PATTERNS:
                for match in pattern.finditer(view):
                    if not _is_harmless(match["value"]):
                        return True
        return False

    def holds_secret(self, text: str) -> bool:
        """Whether a known secret is in a text as it stands, or behind its escapes."""
        find = self._pattern()
        return find is not None and any(
            find.search(each) is not None for each in (text, _unescaped(text))
        )

    def _pattern(self) -> re.Pattern[str] | None:
        """Return the pattern that finds all known secrets; None without any."""
        if self._find is None and self._secrets:
            ordered = sorted(self._secrets, key=len, reverse=True)
            self._find = re.compile("|".join(map(re.escape, ordered)))
        return self._find


def _is_named(table: Mapping[Any, Any], key: object) -> bool:
    """Whether the name of an entry says that it is a secret.

    The entry `value` has the name that its neighbour `name` or `key` tells.
    """
    if _IS_NAME.search(_unescaped(str(key))) is not None:
        return True
    if str(key).lower() != "value":
        return False
    names = (table.get("name"), table.get("key"), table.get("setting"))
    return any(each is not None and _IS_NAME.search(str(each)) for each in names)


def _is_harmless(value: str) -> bool:
    text = value.strip().strip("\"'\\").lower()
    return text in _HARMLESS or REMOVED in text


def _without_value(match: re.Match[str]) -> str:
    if _is_harmless(match["value"]):
        return match[0]
    start, end = match.span("value")
    offset = match.start()
    return match[0][: start - offset] + REMOVED + match[0][end - offset :]


def _views(text: str) -> tuple[list[str], bool]:
    """Return a text and what it says once its encodings are undone, and if that is all.

    It is not if the text is encoded too often, one way in the other. Nothing is
    returned of a text that can be read in too many ways.
    """
    if _PLAIN.fullmatch(text) is not None:
        return [text], True
    found = {text: None}
    new = [text]
    for _ in range(_DEPTH_MAX):
        new = [
            view
            for each in new
            for view in dict.fromkeys(_decoded(each))
            if view not in found
        ]
        found.update(dict.fromkeys(new))
        if not new:
            return list(found), True
        if len(found) > _VIEWS_MAX:
            return [], False
    return list(found), False


def _decoded(text: str) -> Iterator[str]:
    """Yield what a text says if it is encoded in one way or another."""
    if "\\" in text:
        yield _unescaped(text)
    if "%" in text:
        yield unquote(text)
    if "&" in text:
        import html

        yield html.unescape(text)
    if "\n" in text or "\r" in text:  # base64 in lines
        yield _BLANKS.sub("", text)
    # All words of one text are one view, so that a text with many is not too deep.
    for shift in range(4):
        parts = []
        for match in _BASE64.finditer(text):
            part = _from_base64(match[0][shift:])
            if part is not None:
                parts.append(part)
        if parts:
            yield "\n".join(parts)
    for shift in range(2):
        parts = [
            bytes.fromhex(digits[: len(digits) // 2 * 2]).decode("utf-8", "replace")
            for match in _HEX.finditer(text)
            if (digits := match[0][shift:])
        ]
        if parts:
            yield "\n".join(parts)


def _from_base64(word: str) -> str | None:
    """Decode a word; None if that is not possible, or gives no text."""
    digits = word.rstrip("=").replace("-", "+").replace("_", "/")
    digits = digits[: len(digits) - (len(digits) % 4 == 1)]
    try:
        data = base64.b64decode(digits + "=" * (-len(digits) % 4))
    except (binascii.Error, ValueError):
        return None
    text = data.decode("utf-8", "replace")
    return text if _READABLE.search(text) is not None else None


def _unescaped(text: str) -> str:
    r"""Undo the escapes of JSON and of programs: `\u0041`, `\x41`, `\/`."""
    if "\\" not in text:
        return text

    def replaced(match: re.Match[str]) -> str:
        digits = match[1] or match[2]
        if digits:
            return chr(int(digits, 16))
        if match[3] in "ux":  # whole once the escapes in it are undone
            return match[0]
        return _CONTROLS.get(match[3], match[3])

    found = _ESCAPE.sub(replaced, text)
    # Two escapes of UTF-16 are one character.
    return found.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
