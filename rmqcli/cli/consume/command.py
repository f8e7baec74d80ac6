"""`rmq consume`: the command, its options, and the checks of their combinations.

It also checks that the command of `--exec` needs no shell. `run` carries `rmq consume`
out; `listeners` prints messages or runs the command of `--exec`. The engine is not
imported here, because help does not need it.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any, Final

from rmqcli.cli import selection
from rmqcli.cli.options import (
    MISSING,
    Common,
    argument,
    choice_option,
    command_options,
    duration_option,
    endpoints_option,
    given_options,
    option,
    plaintext_option,
    refuse_together,
    switch,
)
from rmqcli.cli.ui.records.output import FORMATS, HELP_FIELDS, record_schema
from rmqcli.dataclass import dataclass
from rmqcli.errors import TextError, UsageError
from rmqcli.units import parse_duration_ms

if TYPE_CHECKING:
    from rmqcli.cli.consume.run import StartAt


_MEMBER = "Membership"
_WHICH = "Which messages"
_HOW = "How to consume"
_COMMAND = "A command for each message"
_STOP = "When to stop"


#: A shell's operators, the longest first, so that `>>` is not reported as `>`.
_OPERATOR: Final = re.compile(
    r"\|\||\|&|\||&&|&>>|&>|&|;;|;|<<<|<<|<|>>|>&|>\||>|\(|\)|\n"
)
#: A shell's expansions. `$1` has no value without a script, and `$` before a blank or a
#: quote is literal.
_EXPANSION: Final = re.compile(r"\$\(|\$\{|\$[A-Za-z_]\w*|`", re.ASCII)


def check_no_shell_needed(text: str) -> None:
    """Raise TextError for an operator or an expansion of a shell outside quotes.

    An expansion inside double quotes is refused, too, because a shell would expand it.
    """
    at, quote = 0, ""
    while at < len(text):
        char = text[at]
        if char == "\\" and quote != "'":
            at += 2
            continue
        if char in "'\"" and quote in ("", char):
            quote = "" if quote else char
        elif quote != "'":
            found = None if quote else _OPERATOR.match(text, at)
            found = found or _EXPANSION.match(text, at)
            if found is not None:
                raise TextError(
                    text,
                    f"{found.group()!r} is shell syntax, but the command runs without"
                    " a shell",
                    start=at,
                    end=found.end(),
                    hint="add --shell to run it with /bin/sh, or use single quotes",
                )
        at += 1


#: Default of --threads with --exec and no --count, because commands wait. Otherwise it
#: is 1, because lines have an order.
THREADS_TO_EXEC = 4
#: Default of --max-failures: failed commands in a row.
FAILURES_MAX = 20
#: Default of --exec-timeout: as long as Java's consumers wait for a listener
#: (consumeTimeout, 15 minutes).
EXEC_TIMEOUT_MS = 15 * 60 * 1_000


def _parse_start(text: str) -> StartAt:
    """Parse a position, or Java's words `first` and `last`.

    Raises TextError also for a position at which a group cannot begin.
    """
    from rmqcli.cli.consume.run import StartAt
    from rmqcli.consumer.begin import BEGINS, HINT, WHY_NOT
    from rmqcli.position import NO_AT_SIGN, parse_position

    words = {"first": "earliest", "last": "latest"}
    text = words.get(text, text)
    try:
        position = parse_position(text)
    except TextError as error:
        is_position = text.startswith(("@", "-", "+", "group:"))
        if is_position or error.what == NO_AT_SIGN:
            raise
        start, end = error.start, error.end
        what = "not a position"
        raise TextError(text, what, start=start, end=end, hint=HINT) from None
    if isinstance(position, BEGINS):
        return StartAt(position, text)
    raise TextError(
        text,
        WHY_NOT,
        hint=f"{HINT}; rmq reset-offset moves a group to any position",
    )


def _parse_command(text: str) -> str:
    """Check a command and return it unchanged. Raises TextError if it has no words."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise TextError(text, str(error)[:1].lower() + str(error)[1:]) from None
    if not words:
        raise TextError(text, "the command is empty")
    return text


def _parse_limit(text: str) -> int | None:
    """Parse a duration into milliseconds; None for 0, which means no limit."""
    if text == "0":
        return None
    return parse_duration_ms(text) or None


#: Pairs of options that contradict each other.
_CONTRADICTIONS: Final = (
    ("--tag", "--sql"),
    ("--format", "--output"),
    ("--exec", "--format"),
    ("--exec", "--output"),
    ("--broadcast", "--max-retries"),
)
#: Options that cannot be used with a proxy -> what to do instead.
_NOT_BY_PROXY: Final = {
    "--from": "through a proxy a new group begins near the end, and in a young topic at"
    " the first message; rmq reset-offset moves a group",
    "--broadcast": "a proxy shares the messages among the members of a group: give each"
    " program its own group",
    "--max-retries": "the group's settings limit the retries: rmq group update GROUP"
    " --max-retries N",
    "--trace": "traces are written over name servers only",
}
#: Options that need `--exec`.
_OF_EXEC: Final = ("--shell", "--exec-input", "--exec-timeout", "--max-failures")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeOptions:
    """The options of `rmq consume` as they were typed, and checks of combinations."""

    topics: list[str] = argument(metavar="TOPIC...", help="Topics to consume.")
    group: str = option(
        "--group",
        "-g",
        default=MISSING,
        help="Consumer group to join.",
        section=_MEMBER,
    )
    orderly: bool = switch(
        help="Consume each queue in order, with its lock held at the broker.",
        section=_MEMBER,
    )
    broadcast: bool = switch(
        help="Every member receives all messages; offsets are kept in a local file.",
        section=_MEMBER,
    )
    from_: Any = option(
        parser=_parse_start,
        metavar="POSITION",
        help="Where the group begins in a queue that is new to it: earliest,"
        " latest, now, -15m or @TIME.  [default: latest]",
        section=_MEMBER,
    )
    tag: str | None = selection.tag_option(section=_WHICH)
    sql: str | None = selection.sql_option(section=_WHICH)
    threads: int | None = option(
        min=1,
        max=1000,
        help="Number of consumer threads.  [default: 1; 4 with --exec and no --count]",
        section=_HOW,
    )
    batch: int | None = option(
        min=1,
        max=1024,
        help="Up to N messages of one queue per command.  [default: 1]",
        section=_HOW,
    )
    pull_batch: int = option(
        default=32, min=1, max=1024, help="Messages per pull request.", section=_HOW
    )
    max_retries: int | None = option(
        aliases=("--max-reconsume",),
        min=0,
        max=2**31 - 1,
        help="Retries before a message becomes a dead letter."
        "  [default: 16; --orderly: no limit]",
        section=_HOW,
    )
    max_failures: int = option(
        default=FAILURES_MAX,
        min=0,
        max=2**31 - 1,
        help="Stop after N failed commands in a row; 0 is never.",
        section=_HOW,
    )
    exec_: str | None = option(
        parser=_parse_command,
        metavar="COMMAND",
        help="Run this command with the message on stdin; exit status 0 means "
        "consumed.",
        section=_COMMAND,
    )
    exec_input: str = choice_option(
        default="jsonl",
        choices=("jsonl", "raw"),
        help="What the command reads: the record as JSON, or the body.",
        section=_COMMAND,
    )
    exec_timeout: Any = option(
        default=EXEC_TIMEOUT_MS,
        parser=_parse_limit,
        metavar="DURATION",
        show_default=False,
        help="Stop a command that runs longer; 0 is never.  [default: 15m]",
        section=_COMMAND,
    )
    shell: bool = switch(help="Run the command through /bin/sh.", section=_COMMAND)
    format_: str | None = selection.format_option()
    decode: Any = selection.decode_option()
    count: int | None = option(
        min=1, help="Exit after N consumed messages.", section=_STOP
    )
    for_: Any = duration_option(help="Exit after DURATION.", section=_STOP)
    trace: bool = switch(
        help="Write message traces, which rmq message trace shows.", section=_HOW
    )
    endpoints: Any = endpoints_option()
    plaintext: bool = plaintext_option()

    def check(self, output: str, *, by_proxy: bool) -> None:
        """Raise UsageError for options that contradict each other or the proxy."""
        selection.refuse_empty(tag=self.tag, sql=self.sql)
        given = given_options(self) | {"--output": output != "auto"}
        refuse_together(given, _CONTRADICTIONS)
        if self.decode is not None:
            selection.check_decode(output)
            if self.exec_input == "raw":
                raise UsageError(
                    "--decode and --exec-input raw cannot be used together",
                    hint="use --exec-input jsonl: the record has the value",
                )
        for flag, hint in _NOT_BY_PROXY.items():
            if by_proxy and given[flag]:
                raise UsageError(
                    f"{flag} and --endpoints cannot be used together", hint=hint
                )
        for flag in _OF_EXEC:
            if given[flag] and not given["--exec"]:
                raise UsageError(f"{flag} needs --exec")
        if self.exec_input == "raw" and self.batch is not None and self.batch > 1:
            raise UsageError(
                "--exec-input raw and --batch cannot be used together",
                hint="raw bodies have no separator: leave out --batch, or use"
                " --exec-input jsonl",
            )
        if self.exec_ is not None and not self.shell:
            check_no_shell_needed(self.exec_)

    @property
    def topic_names(self) -> tuple[str, ...]:
        """The topics without duplicates."""
        return tuple(dict.fromkeys(self.topics))

    @property
    def consume_threads(self) -> int:
        """The number of consumer threads."""
        if self.threads is not None:
            return self.threads
        if self.exec_ is not None and self.count is None:
            return THREADS_TO_EXEC
        return 1

    @property
    def failures_max(self) -> int | None:
        """How many failed commands in a row end the run; None for no limit."""
        return self.max_failures or None


@command_options(
    ConsumeOptions, formats=FORMATS, fields=HELP_FIELDS, schema=record_schema
)
def consume(common: Common, options: ConsumeOptions) -> None:
    """Consume in a group: print messages, or run a command for each.

    Example: rmq consume orders --group billing --exec ./charge.sh --threads 8

    A message is consumed once its line is written, or once its command exits with 0.
    The environment of the command has RMQ_TOPIC, RMQ_BROKER_NAME, RMQ_QUEUE_ID,
    RMQ_OFFSET, RMQ_KEYS, RMQ_TAGS, RMQ_RECONSUME_TIMES and RMQ_COUNT. For each message
    that failed, stderr shows whether it will be retried or became a dead letter. On
    Ctrl-C or SIGTERM, messages in progress are finished, offsets are committed, and the
    consumer leaves the group; a second signal kills the commands.

    Through a proxy (--endpoints), topic and group must exist, a new group begins near
    the end, --orderly needs a FIFO group, and fields of the record that the proxy does
    not report (commit_log_offset, offset_msg_id, flag, sys_flag, store_bytes) are null.

    The exit code is 1 if every delivery failed, 6 if some failed and others were
    consumed, and 130 if rmq was interrupted.
    """
    selection.warn_about_timeout(common, for_ms=options.for_)
    common = common.with_endpoints(options.endpoints, plaintext=options.plaintext)
    options.check(common.output, by_proxy=bool(common.endpoints))
    from rmqcli.cli.consume.run import run_consume

    run_consume(common, options)
