"""`rmq message find`: the messages of a topic with a key, a property or a text.

A key is looked up in the brokers' index. Everything else is found by reading the topic,
as `rmq tail` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqcli.cli import selection
from rmqcli.cli.by_broker import raise_if_silent
from rmqcli.cli.options import (
    Common,
    argument,
    command_options,
    option,
    position_option,
    queue_option,
    switch,
)
from rmqcli.cli.tail.command import TailOptions, from_queue_option
from rmqcli.cli.ui.escape import safe
from rmqcli.cli.ui.records.output import (
    FORMATS,
    HELP_FIELDS,
    record_schema,
    write_messages,
)
from rmqcli.cli.ui.wording import with_flags
from rmqcli.dataclass import dataclass
from rmqcli.errors import ExitCode, PartialError, UsageError
from rmqcli.units import counted

if TYPE_CHECKING:
    from rmqcli.admin.message.find import FoundMessages


@dataclass(frozen=True, slots=True, kw_only=True)
class FindOptions:
    """The options of `rmq message find` as they were typed."""

    topic: str = argument(help="Topic to search.")
    key: str | None = option(help="Messages with this key or message ID.")
    property_: list[Any] | None = selection.property_option(which="Messages")
    grep: Any = selection.grep_option(which="Messages")
    where: str | None = selection.where_option()
    from_: Any = position_option(help="Start (default: earliest).")
    to: Any = position_option(help="End (default: latest).")
    queue: list[Any] | None = queue_option()
    from_queue: list[Any] | None = from_queue_option()
    scan: bool = switch(help="Read the topic, also for a key, instead of the index.")
    format_: str | None = selection.format_option()
    decode: Any = selection.decode_option()
    fail_if_empty: bool = switch(help="Exit with code 8 if nothing was found.")

    def check(self, output: str) -> None:
        """Raise UsageError when nothing is searched for, or formats contradict."""
        selection.refuse_empty(
            hint="give what to search for", key=self.key, where=self.where
        )
        selection.read_where(self.where, self.decode)
        selection.check_range(self.from_, self.to)
        if self.key is None and not self._reads_messages:
            raise UsageError(
                "nothing to find: give --key, --property, --grep or --where"
            )
        if self.format_ is not None and output != "auto":
            raise UsageError("--format and --output cannot be used together")
        if self.decode is not None:
            selection.check_decode(output)

    @property
    def _reads_messages(self) -> bool:
        """Whether an option says what is in the messages."""
        others = (self.property_ or None, self.grep, self.where)
        return any(each is not None for each in others)

    @property
    def uses_index(self) -> bool:
        """Whether brokers can find the messages by their index."""
        is_key_only = self.key is not None and not self._reads_messages
        return is_key_only and not (self.scan or self.queue or self.from_queue)

    def as_tail(self) -> TailOptions:
        """The options of `rmq tail` that read what is to be searched."""
        from rmqcli.position import Earliest

        start = self.from_
        if start is None and not self.from_queue:
            start = Earliest()
        return TailOptions(
            topics=[self.topic],
            from_=start,
            from_queue=self.from_queue,
            to=self.to,
            follow=False,
            queue=self.queue,
            key=self.key,
            property_=self.property_,
            grep=self.grep,
            where=self.where,
            format_=self.format_,
            decode=self.decode,
            fail_if_empty=self.fail_if_empty,
        )


@command_options(
    FindOptions,
    formats=FORMATS,
    fields=HELP_FIELDS,
    schema=record_schema,
    changes=False,
)
def find(common: Common, options: FindOptions) -> int:
    """Find messages of a topic by key, property or text.

    Example: rmq message find orders --key order-4

    A key is looked up in the index of every broker. All else is found by reading the
    topic from --from to --to, which takes longer. So is a key with --scan
    or --queue, with a --from or --to other than earliest, latest, now or @TIME, and if
    a broker turns out to have no index.
    """
    options.check(common.output)
    if options.uses_index:
        bounds = _times(options)
        if bounds is not None:
            found = _look_up(common, options, *bounds)
            if not found.without_index:
                return _show(common, options, found)
            names = ", ".join(found.without_index)
            common.messages.warn(
                f"{names}: the index does not know every message of the topic; reading"
                " the topic instead"
            )
    from rmqcli.cli.tail.run import run_tail

    return run_tail(common, options.as_tail())


def _look_up(
    common: Common, options: FindOptions, begin_ms: int, end_ms: int | None
) -> FoundMessages:
    from rmqcli.admin.lag.memory import warnings_of_departed
    from rmqcli.admin.message.find import find_by_index
    from rmqcli.admin.message.place import set_removed_aside

    with common.open_client() as client:
        found = find_by_index(
            client,
            [options.topic],
            options.key or "",
            begin_ms=begin_ms,
            end_ms=end_ms,
        )
        if not found.without_index:
            # Those that may have the topic are errors already if nothing was found.
            for text in warnings_of_departed(
                client, [options.topic] if found.messages else [], done="searched"
            ):
                common.messages.warn(with_flags(text))
            set_removed_aside(client, found)
    return found


def _times(options: FindOptions) -> tuple[int, int | None] | None:
    """The bounds of store times, both inclusive; None if one is not a time.

    `-1h` is not one here: it is counted back from each broker's own clock.
    """
    from rmqcli.position import AtNow, AtTime, Earliest, Latest

    begin_ms, end_ms = 0, None
    match options.from_:
        case None | Earliest():
            pass
        case AtTime(epoch_ms):
            begin_ms = epoch_ms
        case _:
            return None
    match options.to:
        case None | Latest() | AtNow():
            pass
        case AtTime(epoch_ms):
            end_ms = epoch_ms - 1  # a range does not include its end
        case _:
            return None
    return begin_ms, end_ms


def _show(common: Common, options: FindOptions, found: FoundMessages) -> int:
    if found.denial is not None:
        raise found.denial
    write_messages(selection.writer_of(common, options), found.messages)
    words = f"{len(found.messages):,} found by the index"
    if found.more_on:
        verb = "has more than it tells"
        if len(found.more_on) > 1:
            verb = "have more than they tell"
        words += f"; {', '.join(found.more_on)} {verb}"
    common.messages.info(words)
    if found.removed:
        common.messages.warn(
            f"{counted(len(found.removed), 'more message')} of the key"
            f" {'is' if len(found.removed) == 1 else 'are'} not shown:"
            f" {safe(found.removed_because or '')}"
        )
    if found.unplaced is not None:
        common.messages.warn(safe(found.unplaced))
    raise_if_silent(found.errors)
    if found.damaged:
        raise PartialError(
            f"{found.damage}: each may be a message of the key",
            hint="read the topic with --scan, which shows damaged messages in place",
        )
    if found.more_on:
        raise PartialError(
            f"{counted(len(found.more_on), 'broker')} did not tell all messages of the"
            " key",
            hint="search a shorter time with --from and --to, or read the topic with"
            " --scan",
        )
    if options.fail_if_empty and not found.messages:
        return ExitCode.EMPTY
    return ExitCode.OK
