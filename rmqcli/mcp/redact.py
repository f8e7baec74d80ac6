"""Removes what must not leave from the texts of messages.

Two kinds of rules: the names of properties whose values are hidden, as globs, and
regular expressions, of which every match in a body, a key, a tag or another property is
hidden. A body that is not text cannot be searched: as soon as there is a regular
expression, it is withheld, as is a text in which the search takes too long.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from rmqcli.dataclass import dataclass
from rmqcli.errors import ConfigError
from rmqcli.files import read_regular
from rmqcli.mcp.matcher import REDACTED, Matcher

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_FILE_BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Redaction:
    """Which values are hidden: those of properties, and matches of patterns.

    The names of properties are compared without regard to case. Whoever makes rules
    with patterns closes them: their process runs from the first text on.
    """

    properties: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    _matcher: Matcher = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_matcher", Matcher(self.patterns))

    def close(self) -> None:
        """End the process that searches. Idempotent; a later text starts another."""
        self._matcher.close()

    def with_more(self, other: Redaction) -> Redaction:
        """Return the rules of both."""
        return Redaction(
            self.properties + other.properties, self.patterns + other.patterns
        )

    def text(self, text: str) -> str:
        """Return a text in which every match of a pattern is hidden."""
        return self._matcher.hide(text) if self.patterns and text else text

    def property_value(self, name: str, value: str) -> str:
        """Return the value of a property, as far as it may be shown."""
        lower = name.lower()
        if any(fnmatchcase(lower, glob.lower()) for glob in self.properties):
            return REDACTED
        return self.text(value)


def make_rules(properties: Iterable[str], patterns: Iterable[str]) -> Redaction:
    """Compile rules. Raises ConfigError for one that is not a regular expression."""
    checked = []
    for text in patterns:
        try:
            pattern = re.compile(text)
        except (re.error, OverflowError, RecursionError) as error:
            raise ConfigError(
                f"{text!r} is not a regular expression: {error}"
            ) from error
        if pattern.search("") is not None:
            raise ConfigError(f"{text!r} matches the empty text, so it hides nothing")
        checked.append(text)
    return Redaction(tuple(properties), tuple(checked))


def read_rules(path: str | Path) -> Redaction:
    """Read a TOML file with `properties` and `patterns`, two lists of texts.

    Raises ConfigError for a file that cannot be read or has anything else: a rule that
    is ignored would show what it was to hide.
    """
    try:
        data = read_regular(path, _FILE_BYTES_MAX + 1)
        if len(data) > _FILE_BYTES_MAX:
            raise ConfigError(f"{path} is larger than {_FILE_BYTES_MAX} bytes")
        found = tomllib.loads(data.decode())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    rules: dict[str, list[str]] = {"properties": [], "patterns": []}
    for name, value in found.items():
        if name not in rules:
            raise ConfigError(
                f"{path}: {name!r} is not known; rules are in properties and patterns"
            )
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise ConfigError(f"{path}: {name} must be a list of texts")
        rules[name] = value
    return make_rules(rules["properties"], rules["patterns"])
