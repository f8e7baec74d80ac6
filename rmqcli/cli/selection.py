"""Options that select and format messages, and errors about topics and filters.

The commands that read messages share them, so that the same option has the same help
and the same mistake has the same error.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from rmqcli.cli.options import option, switch
from rmqcli.errors import RmqError, TextError, UsageError
from rmqcli.hint import command_line
from rmqcli.model import DLQ_GROUP_TOPIC_PREFIX, RETRY_GROUP_TOPIC_PREFIX
from rmqcli.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rmqcli.admin.tail.filter import TailFilter
    from rmqcli.admin.tail.where import Where
    from rmqcli.api.client import Client
    from rmqcli.cli.options import Common
    from rmqcli.cli.ui.records.output import Writer
    from rmqcli.decode import Decode
    from rmqcli.model import MessageQueue
    from rmqcli.position import Position
    from rmqcli.wire.subscription import SubscriptionData


tag_option = partial(
    option, metavar="EXPR", help="Only messages with these tags, e.g. 'A || B'."
)
sql_option = partial(
    option,
    metavar="EXPR",
    help="Only messages that an SQL92 expression selects, e.g. 'a > 5'.",
)
not_option = partial(switch, help="Invert --key, --property and --grep.")
#: Its value is a text, which `read_where` parses.
where_option = partial(
    option,
    metavar="EXPR",
    help="Only messages for which this is true, e.g. 'value.a > 5'.",
)


def property_option(*, section: str = "", which: str = "Only messages") -> Any:
    """`--property`."""
    return option(
        "--property",
        parser=_parse_property,
        section=section,
        metavar="NAME=GLOB",
        help=f"{which} whose property matches; repeatable, all must match.",
    )


def grep_option(*, section: str = "", which: str = "Only messages") -> Any:
    """`--grep`."""
    return option(
        "--grep",
        parser=_parse_grep,
        section=section,
        metavar="REGEX",
        help=f"{which} whose body matches.",
    )


def _parse_property(text: str) -> tuple[str, str]:
    """Read the value of `--property`. Raises TextError."""
    from rmqcli.admin.tail.filter import parse_property_glob

    return parse_property_glob(text)


def _parse_grep(text: str) -> Any:  # re.Pattern, which Typer would read
    """Read the value of `--grep`. Raises TextError."""
    from rmqcli.admin.tail.filter import parse_pattern

    return parse_pattern(text)


def parse_group_of_topic(text: str) -> str:
    """Return a group, also for the name of its topic of dead letters or of retries."""
    return text.removeprefix(DLQ_GROUP_TOPIC_PREFIX).removeprefix(
        RETRY_GROUP_TOPIC_PREFIX
    )


def refuse_empty(
    *, hint: str = "leave it out for all messages", **given: str | None
) -> None:
    """Raise UsageError for the first option with an empty text, named by its argument.

    A text of blanks is empty, too. It would select every message. Most often it comes
    from a variable of the shell that is not set. `hint` says what to do instead.
    """
    for name, text in given.items():
        if text is not None and not text.strip(" "):
            raise UsageError(f"--{name.replace('_', '-')} is empty", hint=hint)


def warn_about_timeout(common: Common, *, for_ms: int | None) -> None:
    """Warn if `--timeout` was typed to end the command, which is what `--for` does."""
    if "timeout" in common.typed and for_ms is None:
        common.messages.warn(
            "--timeout is the time limit for a broker's answer and does not end the"
            f" command; to exit after {format_duration(common.timeout_ms)}:"
            f" --for {format_duration(common.timeout_ms)}"
        )


#: The section of the options that say how messages are shown.
SHOW_SECTION: Final = "What to show"


def _format_help() -> str:
    from rmqcli.cli.ui.records.format import LETTERS

    letters = ", ".join(f"{letter} {meaning}" for letter, meaning in LETTERS)
    return f"Output template, e.g. '%t %q %o %d %k %v\\n': {letters}."


def parse_template(text: str) -> str:
    """Check a template and return it unchanged. Raises TextError if it is invalid."""
    from rmqcli.cli.ui.records.format import RecordFormat

    RecordFormat(text)
    return text


#: `--format`.
format_option = partial(
    option,
    section=SHOW_SECTION,
    parser=parse_template,
    metavar="TEMPLATE",
    help=_format_help,
)


def decode_option(
    *, section: str = SHOW_SECTION, what: str = "Add the value of each body"
) -> Any:
    """`--decode`: gives a `rmqcli.decode.Decode`. `what` it is for begins its help."""
    return option(
        section=section,
        parser=_parse_decode,
        metavar="FORMAT",
        help=partial(_decode_help, what),
    )


def _parse_decode(text: str) -> Decode:
    from rmqcli.cli.schema_registry import read_decode

    return read_decode(text)


def _decode_help(what: str) -> str:
    from rmqcli.decode import FORMATS

    return f"{what}: {', '.join(FORMATS)}, gzip+FORMAT."


def read_where(text: str | None, decode: Decode | None) -> Where | None:
    """Parse `--where`. Raises TextError, which names the option."""
    if text is None:
        return None
    from rmqcli.admin.tail.where import parse_where

    try:
        return parse_where(text, decode=decode)
    except TextError as error:
        error.option = "--where"
        raise


def check_not(options: Any) -> None:
    """Raise UsageError for `--not` without anything to invert."""
    has_any = options.key is not None or options.property_ or options.grep is not None
    if options.not_ and not has_any:
        raise UsageError("--not needs --key, --property or --grep")


def filter_of(options: Any) -> TailFilter:
    """Return the filter of the messages that are wanted. Raises UsageError.

    `options` has a field for each option above: `tag`, `sql`, `key`, `property_`,
    `grep`, `not_`, `where` and `decode`.
    """
    from rmqcli.admin.tail.filter import TailFilter

    return TailFilter(
        tag=options.tag,
        sql=options.sql,
        key=options.key,
        properties=tuple(options.property_ or ()),
        pattern=options.grep,
        invert=options.not_,
        where=read_where(options.where, options.decode),
    )


def writer_of(common: Common, options: Any) -> Writer:
    """Return the writer of a command with `--format` and `--decode`."""
    from rmqcli.cli.ui.records.output import make_writer

    return make_writer(
        common.output,
        template=options.format_,
        color=common.use_color,
        decode=options.decode,
    )


def subscriptions_of(options: Any) -> dict[str, str | SubscriptionData]:
    """Return the subscription of each topic; `options` has `topics`, `tag`, `sql`."""
    from rmqcli.consumer.subscriptions import sql

    if options.sql is not None:
        return {topic: sql(topic, options.sql) for topic in options.topics}
    return dict.fromkeys(options.topics, "*" if options.tag is None else options.tag)


def check_range(start: Position | None, end: Position | None) -> None:
    """Raise UsageError for a range that ends before it begins, whatever is stored."""
    from rmqcli.position import AtOffset, AtTime

    match start, end:
        case (AtTime(begin), AtTime(until)) | (AtOffset(begin), AtOffset(until)):
            if until < begin:
                raise UsageError("--to is before --from")


#: Formats of `--output` that show bodies as they are, without their values.
_WITHOUT_VALUES = ("raw", "hex", "table")


def check_decode(output: str) -> None:
    """Raise UsageError if `--decode` would not change what `output` shows."""
    if output in _WITHOUT_VALUES:
        raise UsageError(
            f"--decode and -o {output} cannot be used together",
            hint="use -o jsonl, json, csv or pretty, which show the values",
        )


def readable_queues(client: Client, topic: str) -> list[MessageQueue]:
    """Return the readable queues of a topic. Raises RmqError if there are none."""
    route = client.route(topic)
    queues = route.read_queues()
    if not queues:
        hint = f"see its permissions with: {command_line('rmq topic show', topic)}"
        if not any(each.is_readable for each in route.queues):  # as dead letters are
            from rmqcli.admin.lag.memory import how_to_read

            names = (each.broker_name for each in route.queues)
            hint = how_to_read(client, topic, names)
        raise RmqError(f"topic {topic} has no readable queue", hint=hint)
    return queues


def check_queue_starts(
    client: Client,
    starts: Iterable[MessageQueue],
    queues: Sequence[MessageQueue],
    *,
    topics: Mapping[str, Sequence[MessageQueue]],
) -> None:
    """Check the queues of --from-queue; `topics` has all queues of the topics.

    Raises NotFoundError for a topic that does not exist and for a queue that it does
    not have, and UsageError for one that is not read.
    """
    from rmqcli.queue_selector import QueueSelector, select_queues

    for queue in starts:
        there = topics.get(queue.topic) or client.route(queue.topic).read_queues()
        selector = QueueSelector(queue.broker_name, queue.queue_id)
        select_queues(there, [selector])
        if queue not in queues:
            raise UsageError(
                f"--from-queue {queue} is not one of the queues to read",
                hint="see the queues with:"
                f" {command_line('rmq topic show', queue.topic)}",
            )
