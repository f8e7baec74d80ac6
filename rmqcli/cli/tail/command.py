"""`rmq tail`: flags in, messages out, and what happened on stderr.

Decides what the flags mean together. `run` carries it out; what is read is
`rmqcli.admin.tail`'s, and `rmqcli.cli.ui.records` writes the messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmqcli.cli.offline import read_from
from rmqcli.cli.options import (
    Common,
    Queues,
    Store,
    command_options,
    duration_option,
    option_parser,
    position_option,
)
from rmqcli.cli.ui.records.output import FIELDS, FORMATS
from rmqcli.errors import TextError, UsageError

if TYPE_CHECKING:
    from rmqcli.admin.tail.filter import TailFilter

#: Without --from and --last: so many messages, then what arrives.
LAST_DEFAULT = 10
#: And for those not more offsets of a queue are searched than this.
LOOK_BACK = 10_000

_PER_SECOND_MAX = 10_000_000


def _parse_rate(text: str) -> float:
    """Read `100/s` or `0.5/s`. Raises TextError."""
    number = text.removesuffix("/s")
    try:
        rate = float(number)
    except ValueError:
        rate = 0.0
    if not 0 < rate <= _PER_SECOND_MAX:
        hint = "write messages per second, for example 100/s or 0.5/s"
        raise TextError(text, "not a rate", start=0, end=len(text), hint=hint)
    return rate


def _parse_property(text: str) -> tuple[str, str]:
    from rmqcli.admin.tail.filter import parse_property_glob

    return parse_property_glob(text)


def _parse_grep(text: str) -> Any:  # re.Pattern, which Typer would read
    from rmqcli.admin.tail.filter import parse_pattern

    return parse_pattern(text)


def _parse_queue_position(text: str) -> Any:
    """Read `TOPIC@BROKER:ID=POS`. Raises TextError."""
    from rmqcli.position import parse_position
    from rmqcli.queue_selector import parse_queue

    queue, equals, position = text.rpartition("=")
    if not equals:
        hint = "write TOPIC@BROKER:ID=POS, for example orders@broker-a:3=1200"
        raise TextError(text, "no '=' in it", start=0, end=len(text), hint=hint)
    return parse_queue(queue), parse_position(position, tz=None)


def _parse_template(text: str) -> str:
    from rmqcli.cli.ui.records.format import RecordFormat

    RecordFormat(text)
    return text


@command_options(formats=FORMATS, fields=FIELDS)
def tail(
    common: Common,
    topics: Annotated[
        list[str], typer.Argument(metavar="TOPIC...", help="Topics to read.")
    ],
    from_: Annotated[Any, position_option("--from", help="Start position.")] = None,
    from_queue: Annotated[
        list[Any] | None,
        typer.Option(
            "--from-queue",
            parser=option_parser(_parse_queue_position),
            metavar="TOPIC@BROKER:ID=POSITION",
            help="Start position of one queue; repeatable.",
        ),
    ] = None,
    to: Annotated[
        Any, position_option("--to", help="End position, resolved at the start.")
    ] = None,
    last: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="N", help="Only the last N messages over all queues."
        ),
    ] = None,
    follow: Annotated[
        bool | None,
        typer.Option(
            "--follow/--no-follow",
            help="Wait for new messages (default without --to).",
        ),
    ] = None,
    count: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Exit after N messages.")
    ] = None,
    timeout: Annotated[
        Any, duration_option("--timeout", help="Exit after this long.")
    ] = None,
    idle_timeout: Annotated[
        Any,
        duration_option(
            "--idle-timeout", help="Exit after this long without a message."
        ),
    ] = None,
    queue: Queues = None,
    tag: Annotated[
        str | None,
        typer.Option(
            metavar="EXPR", help="Only messages with these tags, e.g. 'A || B'."
        ),
    ] = None,
    sql: Annotated[
        str | None,
        typer.Option(
            metavar="EXPR",
            help="Only messages that an SQL92 expression selects, e.g. 'a > 5'.",
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Only messages with this key or message ID."),
    ] = None,
    property_: Annotated[
        list[Any] | None,
        typer.Option(
            "--property",
            parser=option_parser(_parse_property),
            metavar="NAME=GLOB",
            help="Only messages whose property matches; repeatable, all must match.",
        ),
    ] = None,
    grep: Annotated[
        Any,
        typer.Option(
            parser=option_parser(_parse_grep),
            metavar="REGEX",
            help="Only messages whose body matches.",
        ),
    ] = None,
    not_: Annotated[
        bool,
        typer.Option("--not", help="Invert --key, --property and --grep."),
    ] = False,
    around_group: Annotated[
        str | None,
        typer.Option(
            metavar="GROUP", help="Messages around the group's committed offset."
        ),
    ] = None,
    before: Annotated[
        int | None,
        typer.Option(
            "-B", min=0, metavar="N", help="Messages to show before it.  [default: 2]"
        ),
    ] = None,
    after: Annotated[
        int | None,
        typer.Option(
            "-A", min=0, metavar="N", help="Messages to show from it on.  [default: 5]"
        ),
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            parser=option_parser(_parse_template),
            metavar="TEMPLATE",
            help="Output template, e.g. '%t %q %o %d{iso} %k %g %p{id} %v\\n'.",
        ),
    ] = None,
    fail_if_empty: Annotated[
        bool,
        typer.Option("--fail-if-empty", help="Exit with code 8 if no message matched."),
    ] = False,
    rate: Annotated[
        Any,
        typer.Option(
            parser=option_parser(_parse_rate),
            metavar="RATE",
            help="Limit the output, e.g. to 100/s.",
        ),
    ] = None,
    store: Store = None,
) -> None:
    """Read messages of topics without affecting any group.

    Example: rmq tail orders --from -15m --to now -o jsonl
    """
    _check(
        {
            "--from": from_ is not None,
            "--from-queue": bool(from_queue),
            "--to": to is not None,
            "--last": last is not None,
            "--around-group": around_group is not None,
            "--follow": follow is True,
        }
    )
    if around_group is None and (before is not None or after is not None):
        raise UsageError("-B and -A need --around-group")
    if format_ is not None and common.output != "auto":
        raise UsageError("--format and --output cannot be used together")
    if tag is not None and sql is not None:
        raise UsageError("--tag and --sql cannot be used together: a broker takes one")
    if not_ and key is None and not property_ and grep is None:
        raise UsageError("--not needs --key, --property or --grep")
    tail_filter = _filter(
        tag=tag, sql=sql, key=key, properties=property_, pattern=grep, invert=not_
    )
    from rmqcli.cli.tail.run import TailRequest, run_tail
    from rmqcli.position import Earliest

    if from_queue and from_ is None:
        from_ = Earliest()
    is_plain = from_ is None and to is None and last is None and around_group is None
    ends = to is not None or around_group is not None
    request = TailRequest(
        topics=tuple(dict.fromkeys(topics)),
        selectors=tuple(queue or ()),
        from_position=from_,
        queue_positions=dict(from_queue or ()),
        to_position=to,
        around_group=around_group,
        before=2 if before is None else before,
        after=5 if after is None else after,
        filter=tail_filter,
        last=LAST_DEFAULT if is_plain else last,
        look_back=LOOK_BACK if is_plain else None,
        follow=not ends and follow is not False,
        count=count,
        timeout_ms=timeout,
        idle_timeout_ms=idle_timeout,
        rate_per_s=rate,
        template=format_,
        fail_if_empty=fail_if_empty,
    )
    with read_from(common, store) as source:
        run_tail(source, request)


def _check(given: dict[str, bool]) -> None:
    """Refuse flags that mean different things."""
    for one, other in (
        ("--to", "--follow"),
        ("--from-queue", "--last"),
        ("--around-group", "--from"),
        ("--around-group", "--from-queue"),
        ("--around-group", "--to"),
        ("--around-group", "--last"),
        ("--around-group", "--follow"),
    ):
        if given[one] and given[other]:
            raise UsageError(f"{one} and {other} cannot be used together")


def _filter(*, properties: list[Any] | None, **conditions: Any) -> TailFilter:
    from rmqcli.admin.tail.filter import make_filter

    return make_filter(properties=tuple(properties or ()), **conditions)
