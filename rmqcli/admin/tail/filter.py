"""Chooses which messages from a broker are shown: by tag, key, text, and conditions.

A broker filters tags by their hash, and "Aa" and "BB" share one, so tags are compared
again here. A message that cannot be decoded is never filtered out, because its content
is unknown.
"""

from __future__ import annotations

import fnmatch
import re
from dataclasses import field
from typing import TYPE_CHECKING, Final, TypedDict

from rmqcli.dataclass import dataclass
from rmqcli.errors import DecodeError, TextError, UsageError
from rmqcli.wire.message.record import has_key
from rmqcli.wire.subscription import SQL92, TAG, parse_tags, tag_matches

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Unpack

    from rmqcli.admin.tail.where import Where
    from rmqcli.wire.message.record import PartialMessage, StoredMessage
    from rmqcli.wire.subscription import SubscriptionData


#: A tag that stands for nothing else in an expression.
_PLAIN_TAG: Final = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)


def parse_property_glob(text: str) -> tuple[str, str]:
    """Read `NAME=GLOB`. Raises TextError."""
    name, equals, glob = text.partition("=")
    if not equals or not name:
        what = "no '=' in it" if name else "no name before '='"
        hint = "write NAME=GLOB, for example region=eu-*"
        raise TextError(text, what, start=0, end=max(1, len(text)), hint=hint)
    return name, glob


def parse_pattern(text: str) -> re.Pattern[str]:
    """Compile a regular expression. Raises TextError."""
    try:
        return re.compile(text)
    except re.error as error:
        at = min(error.pos or 0, max(0, len(text) - 1))
        raise TextError(
            text, f"not a regular expression: {error.msg}", start=at, end=at + 1
        ) from None
    except (RecursionError, OverflowError):
        what = "not a regular expression: too large"
        raise TextError(text, what, start=0, end=len(text)) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class TailFilter:
    """Which messages are wanted.

    `invert` inverts the conditions on key, properties and pattern, but not on tags, nor
    `where`. Raises ConfigError for an invalid tag expression.
    """

    tag: str | None = None
    sql: str | None = None
    key: str | None = None
    properties: tuple[tuple[str, str], ...] = ()
    pattern: re.Pattern[str] | None = None
    invert: bool = False
    where: Where | None = None
    #: what `tag` stands for
    subscription: SubscriptionData | None = field(init=False)
    #: tags that `where` asks for, so that the broker can leave the others out
    where_tags: str | None = field(init=False)
    #: whether the broker filters by tag, too; see `topics_without_tag_filter`
    tags_at_broker: bool = True
    #: whether it filters by the SQL92 expression of `where`; see `can_ask_sql`
    where_at_broker: bool = False

    def __post_init__(self) -> None:
        subscription = None if self.tag is None else parse_tags("", self.tag)
        object.__setattr__(self, "subscription", subscription)
        object.__setattr__(self, "where_tags", _tags_of(self.where))

    def __str__(self) -> str:
        """The conditions as options of the command line; empty for none."""
        conditions = {
            "tag": self.tag,
            "sql": self.sql,
            "key": self.key,
            "property": [f"{name}={glob}" for name, glob in self.properties] or None,
            "grep": None if self.pattern is None else self.pattern.pattern,
            "not": self.invert or None,
            "where": None if self.where is None else self.where.text,
            "decode": None if self.where is None else self.where.decode,
        }
        return ", ".join(
            f"--{name} {value}"
            for name, value in conditions.items()
            if value is not None
        )

    @property
    def expression(self) -> str:
        """The expression that the broker filters by."""
        if self._asked_sql is not None:
            return self._asked_sql
        tags = self.tag or self.where_tags
        return (tags if self.tags_at_broker else None) or "*"

    @property
    def expression_type(self) -> str:
        return TAG if self._asked_sql is None else SQL92

    @property
    def _asked_sql(self) -> str | None:
        return self.where_sql if self.where_at_broker else self.sql

    @property
    def where_sql(self) -> str | None:
        """The expression of `where` for brokers, if no other one is for them."""
        has_other = self.sql or self.tag or self.where_tags
        return None if has_other or self.where is None else self.where.sql

    @property
    def is_everything(self) -> bool:
        """Whether every message from the broker is shown."""
        return not (self._checks_tags or self._checks_here or self.where)

    @property
    def _checks_tags(self) -> bool:
        return self.subscription is not None and bool(self.subscription.tags_set)

    @property
    def _checks_here(self) -> bool:
        return self.key is not None or bool(self.properties) or self.pattern is not None

    def matches(
        self, message: StoredMessage | PartialMessage, broker_name: str | None = None
    ) -> bool:
        """Whether `message`, which this broker holds, is to be shown."""
        if self.subscription is not None and not tag_matches(
            self.subscription, message.tags
        ):
            return False
        try:
            if self._checks_here and self._matches_here(message) == self.invert:
                return False
        except DecodeError:
            pass  # shown, with its error: its content is unknown
        return self.where is None or self.where.matches(message, broker_name)

    def _matches_here(self, message: StoredMessage | PartialMessage) -> bool:
        """Raises DecodeError for a body that decides and cannot be read."""
        if self.key is not None and not has_key(message, self.key):
            return False
        for name, glob in self.properties:
            value = message.properties.get(name)
            if value is None or not fnmatch.fnmatchcase(value, glob):
                return False
        if self.pattern is None:
            return True
        text = message.body.decode("utf-8", "replace")
        return self.pattern.search(text) is not None


def _tags_of(where: Where | None) -> str | None:
    """Return an expression for the tags that a condition asks for, if one can."""
    tags = None if where is None else where.tags
    if not tags or not all(map(_PLAIN_TAG.fullmatch, tags)):
        return None
    return " || ".join(sorted(tags))


class FilterArguments(TypedDict, total=False):
    """Which messages are meant: arguments of `Cluster.redrive` and `Cluster.copy`.

    Each that is given must be fulfilled. `sql` is evaluated by brokers, and cannot be
    used with `tag`; `properties` maps names to globs; `pattern` is a regular expression
    that bodies match; `decode` is the format of bodies for `where`, such as "json".
    """

    tag: str | None
    sql: str | None
    key: str | None
    properties: Mapping[str, str] | None
    pattern: str | None
    where: str | None
    decode: str | None


def parse_filter(**given: Unpack[FilterArguments]) -> TailFilter:
    """Make a filter from the arguments of the library, which are texts.

    Raises UsageError for a contradiction, TextError for a text that is wrong, and as
    `parse_decode` does.
    """
    from rmqcli.admin.tail.where import parse_where
    from rmqcli.decode import parse_decode

    tag, sql, pattern = given.get("tag"), given.get("sql"), given.get("pattern")
    where, decode = given.get("where"), given.get("decode")
    if tag is not None and sql is not None:
        raise UsageError("tag and sql cannot be used together")
    if decode is not None and where is None:
        raise UsageError("decode needs where")
    format_ = None if decode is None else parse_decode(decode)
    return TailFilter(
        tag=tag,
        sql=sql,
        key=given.get("key"),
        properties=tuple((given.get("properties") or {}).items()),
        pattern=None if pattern is None else parse_pattern(pattern),
        where=None if where is None else parse_where(where, decode=format_),
    )
