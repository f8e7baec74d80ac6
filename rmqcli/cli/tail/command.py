"""`rmq tail`: the command, its options, and the checks of their combinations.

`run` carries the command out: `rmqcli.admin.tail` reads the messages, and
`rmqcli.cli.ui.records` writes them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from rmqcli.cli import selection
from rmqcli.cli.offline import read_from
from rmqcli.cli.options import (
    PROXY_SECTION,
    Common,
    argument,
    command_options,
    duration_option,
    endpoints_option,
    given_options,
    option,
    plaintext_option,
    position_option,
    queue_option,
    refuse_together,
    store_option,
    switch,
)
from rmqcli.cli.ui.records.output import FORMATS, HELP_FIELDS, record_schema
from rmqcli.dataclass import dataclass
from rmqcli.errors import TextError, UsageError

if TYPE_CHECKING:
    from rmqcli.admin.tail.filter import TailFilter
    from rmqcli.model import MessageQueue
    from rmqcli.position import Position
    from rmqcli.queue_selector import QueueSelector

#: Messages that are shown before new ones, when no option says where to begin.
LAST_DEFAULT = 10
#: Most offsets of a queue that are searched for these messages.
LOOK_BACK = 10_000

#: Messages that `--around-group` shows without -B and -A.
BEFORE_DEFAULT = 2
AFTER_DEFAULT = 5

#: Titles of the help's sections.
_WHERE = "Where to read"
_WHICH = "Which messages"
_STOP = "When to stop"

_PER_SECOND_MAX = 10_000_000
#: Pairs of options that contradict each other.
_CONTRADICTIONS = (
    ("--to", "--follow"),
    ("--from-queue", "--last"),
    ("--around-group", "--from"),
    ("--around-group", "--from-queue"),
    ("--around-group", "--to"),
    ("--around-group", "--last"),
    ("--around-group", "--follow"),
    ("--format", "--output"),
)
#: Options that cannot be used with --group: a member receives the messages that the
#: proxy chooses, and it must not acknowledge messages that it does not show.
_NOT_WITH_GROUP = (
    "--from",
    "--from-queue",
    "--to",
    "--last",
    "--queue",
    "--around-group",
    "--no-follow",
    "--key",
    "--property",
    "--grep",
    "--where",
    "--rate",
)


_RATE_CHARACTERS = frozenset("0123456789.e+-")
_RATE_LENGTH_MAX = 40


def parse_rate(text: str) -> float:
    """Read `100/s` or `0.5/s`. Raises TextError."""
    number = text.removesuffix("/s")
    # float() would also take `1_0`, blanks, and digits of other scripts.
    is_number = len(number) <= _RATE_LENGTH_MAX and not set(number) - _RATE_CHARACTERS
    try:
        rate = float(number) if is_number else 0.0
    except ValueError:
        rate = 0.0
    if not 0 < rate <= _PER_SECOND_MAX:
        hint = "write messages per second, for example 100/s or 0.5/s"
        raise TextError(text, "not a rate", hint=hint)
    return rate


def _parse_queue_position(text: str) -> Any:
    """Read `TOPIC@BROKER:ID=POS`. Raises TextError."""
    from rmqcli.position import parse_position
    from rmqcli.queue_selector import parse_queue

    queue, equals, position = text.rpartition("=")
    if not equals:
        hint = "write TOPIC@BROKER:ID=POS, for example orders@broker-a:3=1200"
        raise TextError(text, "'=' is missing", hint=hint)
    return parse_queue(queue), parse_position(position)


#: `--from-queue`, with which a command that was interrupted goes on.
from_queue_option = partial(
    option,
    parser=_parse_queue_position,
    metavar="TOPIC@BROKER:ID=POSITION",
    help="Start position of one queue; repeatable.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TailOptions:
    """The options of `rmq tail` as they were typed, and checks of combinations."""

    topics: list[str] = argument(metavar="TOPIC...", help="Topics to read.")
    from_: Any = position_option(section=_WHERE, help="Start position.")
    from_queue: list[Any] | None = from_queue_option(section=_WHERE)
    to: Any = position_option(
        section=_WHERE, help="End position, resolved at the start."
    )
    last: int | None = option(
        min=0, section=_WHERE, help="Only the last N messages over all queues."
    )
    follow: bool | None = option(
        "--follow/--no-follow",
        section=_STOP,
        help="Wait for new messages (default without --to).",
    )
    count: int | None = option(min=1, section=_STOP, help="Exit after N messages.")
    for_: Any = duration_option(section=_STOP, help="Exit after DURATION.")
    idle_timeout: Any = duration_option(
        section=_STOP, help="Exit after DURATION without a message."
    )
    queue: list[Any] | None = queue_option(section=_WHERE)
    tag: str | None = selection.tag_option(section=_WHICH)
    sql: str | None = selection.sql_option(section=_WHICH)
    key: str | None = option(
        section=_WHICH,
        help="Only messages with this key or ID; faster: rmq message find.",
    )
    property_: list[Any] | None = selection.property_option(section=_WHICH)
    grep: Any = selection.grep_option(section=_WHICH)
    not_: bool = selection.not_option(section=_WHICH)
    where: str | None = selection.where_option(section=_WHICH)
    around_group: str | None = option(
        section=_WHERE,
        metavar="GROUP",
        help="Messages around the group's committed offset.",
    )
    before: int | None = option(
        "-B",
        section=_WHERE,
        min=0,
        help="Messages to show before that offset.  [default: 2]",
    )
    after: int | None = option(
        "-A",
        section=_WHERE,
        min=0,
        help="Messages to show from that offset on.  [default: 5]",
    )
    format_: str | None = selection.format_option()
    decode: Any = selection.decode_option()
    fail_if_empty: bool = switch(
        section=_STOP, help="Exit with code 8 if no message matched."
    )
    rate: Any = option(
        section=selection.SHOW_SECTION,
        parser=parse_rate,
        help="Limit the output, e.g. to 100/s.",
    )
    store: str | None = store_option(section=_WHERE)
    group: str | None = option(
        "--group",
        "-g",
        section=PROXY_SECTION,
        help="Join this group, and consume for it.",
    )
    endpoints: Any = endpoints_option()
    plaintext: bool = plaintext_option()

    def choose(self, common: Common) -> Common:
        """Return `common` with the proxy to read from, if any. Raises UsageError."""
        if self.store is not None:
            if "endpoints" in common.typed or self.plaintext:
                raise UsageError(
                    "--store and --endpoints cannot be used together",
                    hint="leave out --endpoints: --store reads a folder, not a cluster",
                )
            return common
        if self.group is None:
            return common.with_endpoints_or_namesrv(
                self.endpoints, plaintext=self.plaintext
            )
        return common.with_endpoints(self.endpoints, plaintext=self.plaintext)

    def check(self, output: str, *, by_proxy: bool) -> None:
        """Raise UsageError for options that contradict each other or the proxy."""
        selection.refuse_empty(
            tag=self.tag, sql=self.sql, key=self.key, where=self.where
        )
        given = given_options(self) | {
            "--follow": self.follow is True,
            "--no-follow": self.follow is False,
            "--output": output != "auto",
        }
        refuse_together(given, _CONTRADICTIONS)
        selection.check_range(self.from_, self.to)
        if self.decode is not None:
            selection.check_decode(output)
        if self.around_group is None and not (self.before is self.after is None):
            raise UsageError("-B and -A need --around-group")
        if self.tag is not None and self.sql is not None:
            raise UsageError(
                "--tag and --sql cannot be used together: a broker accepts only one"
            )
        selection.check_not(self)
        self._check_group(given, by_proxy=by_proxy)

    def _check_group(self, given: dict[str, bool], *, by_proxy: bool) -> None:
        if self.group is None and by_proxy:
            raise UsageError(
                "through a proxy tail needs --group: a proxy gives messages only to"
                " members of groups",
                hint="read without a group with --namesrv HOST:PORT; or add --group G,"
                " an existing group, which then consumes the messages that tail shows:"
                " other members do not receive them, and messages that tail received"
                " but did not show are delivered again with a higher retry count",
            )
        if self.group is None:
            return
        if not by_proxy:
            raise UsageError(
                "--group needs --endpoints",
                hint="leave out --group: with name servers, tail needs no group",
            )
        for flag in _NOT_WITH_GROUP:
            if given[flag]:
                hint = (
                    "leave it out: a member receives the messages that its group has"
                    " not consumed"
                )
                if flag == "--no-follow":
                    hint = "use --count, --for or --idle-timeout to end tail"
                elif flag in ("--key", "--property", "--grep", "--where"):
                    hint = (
                        "use --tag or --sql: otherwise the group would consume"
                        " messages that are not shown"
                    )
                raise UsageError(
                    f"{flag} and --group cannot be used together", hint=hint
                )

    def filter(self) -> TailFilter:
        """The filter that decides which messages are shown. Raises UsageError."""
        return selection.filter_of(self)

    @property
    def is_plain(self) -> bool:
        """Whether no option says where to begin or end."""
        ends = (self.from_, self.to, self.last, self.around_group)
        return all(end is None for end in ends) and not self.from_queue

    @property
    def follows(self) -> bool:
        """Whether to wait for new messages."""
        has_end = self.to is not None or self.around_group is not None
        return not has_end and self.follow is not False

    @property
    def start(self) -> Position | None:
        """The start of queues that `--from-queue` does not name; None without one."""
        from rmqcli.position import Earliest

        return Earliest() if self.from_queue and self.from_ is None else self.from_

    @property
    def shown_last(self) -> int | None:
        """How many of the last messages are shown; None for a start position."""
        return LAST_DEFAULT if self.is_plain else self.last

    @property
    def selectors(self) -> tuple[QueueSelector, ...]:
        """The queues of `--queue`."""
        return tuple(self.queue or ())

    def selects(self, queue: MessageQueue) -> bool:
        """Whether `--queue`, if it was given, names this queue."""
        return not self.queue or any(each.matches(queue) for each in self.queue)

    @property
    def queue_starts(self) -> dict[MessageQueue, Position]:
        """The starts of `--from-queue`."""
        return dict(self.from_queue or ())


@command_options(
    TailOptions,
    formats=FORMATS,
    fields=HELP_FIELDS,
    schema=record_schema,
    # With --group it consumes for the group.
    changes=lambda options: options.group is not None,
)
def tail(common: Common, options: TailOptions) -> int:
    """Read messages of topics without affecting any group.

    Example: rmq tail orders --from -15m --to now -o jsonl

    With a proxy (--endpoints), which gives messages only to members of groups, tail
    needs --group G and becomes a member of G, which must exist. The group then consumes
    the messages that tail shows: each is acknowledged once it is written, and other
    members of G do not receive it. Messages that were received but not written are
    delivered again after 30 s, with a higher retry count. --tag and --sql select
    messages; --count, --for and --idle-timeout end tail. Without --group, NAMESRV_ADDR
    takes precedence over ROCKETMQ_ENDPOINTS.
    """
    selection.warn_about_timeout(common, for_ms=options.for_)
    common = options.choose(common)
    options.check(common.output, by_proxy=bool(common.endpoints))
    options.filter()  # raises UsageError before anything is opened
    if common.endpoints:
        return _tail_in_group(common, options)
    from rmqcli.cli.tail.run import run_tail

    with read_from(common, options.store) as source:
        return run_tail(source, options)


def _tail_in_group(common: Common, options: TailOptions) -> int:
    from rmqcli.cli.tail.by_proxy import GroupTailPlan, run_group_tail

    plan = GroupTailPlan(
        group=options.group or "",
        subscriptions=selection.subscriptions_of(options),
        count=options.count,
        timeout_ms=options.for_,
        idle_timeout_ms=options.idle_timeout,
    )
    writer = selection.writer_of(common, options)
    return run_group_tail(common, plan, writer, fail_if_empty=options.fail_if_empty)
