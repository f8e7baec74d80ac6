"""Options that choose among a group's dead letters; most are those of `rmq tail`.

Also the option `--log`, and what is said after letters were read.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from rmqcli.cli import selection
from rmqcli.cli.options import (
    argument,
    given_options,
    option,
    position_option,
    queue_option,
    refuse_together,
)
from rmqcli.dataclass import dataclass
from rmqcli.errors import PartialError
from rmqcli.units import counted

if TYPE_CHECKING:
    from rmqcli.admin.dlq.read import LetterRanges, LetterReader
    from rmqcli.admin.tail.filter import TailFilter
    from rmqcli.api.client import Client
    from rmqcli.cli.options import Common

#: The section of the options that choose letters.
WHICH = "Which letters"


#: `--log`: the log of redrives.
log_option = partial(
    option, help="Log of what was redriven (default: one for each group and cluster)."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterOptions:
    """The group, and the options that choose among its letters."""

    group: str = argument(parser=selection.parse_group_of_topic, help="The group.")
    from_: Any = position_option(
        section=WHICH, help="First position among the letters."
    )
    last: int | None = option(
        min=1, section=WHICH, help="Only among the last N letters of each broker."
    )
    queue: list[Any] | None = queue_option(section=WHICH)
    tag: str | None = selection.tag_option(section=WHICH)
    sql: str | None = selection.sql_option(section=WHICH)
    key: str | None = option(
        section=WHICH, help="Only messages with this key or message ID."
    )
    property_: list[Any] | None = selection.property_option(section=WHICH)
    grep: Any = selection.grep_option(section=WHICH)
    not_: bool = selection.not_option(section=WHICH)
    where: str | None = selection.where_option(section=WHICH)
    decode: Any = selection.decode_option()

    def check(self) -> None:
        """Raise UsageError for invalid, empty or contradictory options."""
        from rmqcli.names import check_group

        check_group(self.group, "group")
        selection.refuse_empty(
            tag=self.tag, sql=self.sql, key=self.key, where=self.where
        )
        refuse_together(given_options(self), [("--last", "--from"), ("--tag", "--sql")])
        selection.check_not(self)

    @property
    def end(self) -> Any:
        """The end position; None for the end of each queue."""
        return None

    @property
    def is_plain(self) -> bool:
        """Whether no option but `--queue` narrows the letters."""
        chosen = (self.from_, self.end, self.last, self.tag, self.key, self.grep)
        is_plain = all(each is None for each in (*chosen, self.sql, self.where))
        return is_plain and not self.property_

    def filter(self) -> TailFilter:
        """The filter that chooses among the letters. Raises UsageError."""
        return selection.filter_of(self)

    def find(self, client: Client, *, last: int | None = None) -> LetterRanges:
        """Resolve the ranges of the letters; `last`, if given, replaces `--last`."""
        from rmqcli.admin.dlq.read import find_letters

        return find_letters(
            client,
            self.group,
            start=self.from_,
            end=self.end,
            last=self.last if last is None else last,
            selectors=self.queue or (),
            sql=self.sql,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterReadOptions(LetterOptions):
    """The options of commands that only read letters, which adds `--to`."""

    to: Any = position_option(
        section=WHICH, help="End position, resolved at the start."
    )

    @property
    def end(self) -> Any:
        """The end position; None for the end of each queue."""
        return self.to


def say_read(common: Common, reader: LetterReader, *, shown: str) -> None:
    """Say on stderr what was read.

    Raises PartialError if some letters could not be read, and the error of a queue if
    none could.
    """
    missing = sum(b - a for spans in reader.missing.values() for a, b in spans)
    words = [shown, f"{reader.scanned:,} read"]
    where = reader.filter.where
    if where is not None and where.undecodable:
        words.append(f"{where.undecodable:,} without a value")
    if missing:
        words.append(f"{missing:,} missing")
    common.messages.info(", ".join(words))
    for queue, error in sorted(reader.abandoned.items()):
        if not reader.scanned:
            raise error
        raise PartialError(
            f"{queue} was not read to its end: {error.message}", hint=error.hint
        )
    if missing:
        letters = counted(missing, "letter of the range is", "letters of the range are")
        raise PartialError(f"{letters} not stored any more")
