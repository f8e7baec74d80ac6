"""`rmq consume`: flags in, a member of a group, and what they mean together.

What becomes of the messages is `consume_print`'s or `consume_exec`'s, the run itself
`consume_run`'s. The engine is not imported here: help does without it.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmqcli.cli.options import (
    Common,
    choice_option,
    command_options,
    duration_option,
    option_parser,
)
from rmqcli.cli.tail_output import FIELDS, FORMATS
from rmqcli.errors import TextError, UsageError

if TYPE_CHECKING:
    from rmqcli.cli.consume_run import StartAt

#: At once, if --threads does not say: lines have an order, commands wait.
THREADS_TO_EXEC = 4


def _parse_start(text: str) -> StartAt:
    """Read `first`, `last`, or a time as everywhere: `@...` or `-15m`."""
    from rmqcli.cli.consume_run import StartAt
    from rmqcli.position import Ago, AtTime, parse_position

    if text in ("first", "last"):
        return StartAt(text)
    try:
        position = parse_position(text, tz=None)
    except TextError:
        position = None
        if text[:1] in ("@", "-"):
            raise
    if isinstance(position, AtTime):
        return StartAt("time", epoch_ms=position.epoch_ms)
    if isinstance(position, Ago):
        return StartAt("time", ago_ms=position.ago_ms)
    hint = "write first, last, @2026-01-02T03:04:05Z or -15m"
    raise TextError(text, "not a start", start=0, end=max(1, len(text)), hint=hint)


def _parse_command(text: str) -> str:
    try:
        words = shlex.split(text)
    except ValueError as error:
        what = str(error)[:1].lower() + str(error)[1:]
        raise TextError(text, what, start=0, end=max(1, len(text))) from None
    if not words:
        raise TextError(text, "no command in it", start=0, end=max(1, len(text)))
    return text


def _parse_template(text: str) -> str:
    from rmqcli.cli.record_format import RecordFormat

    RecordFormat(text)
    return text


@command_options(formats=FORMATS, fields=FIELDS)
def consume(
    common: Common,
    topics: Annotated[
        list[str], typer.Argument(metavar="TOPIC...", help="What to consume.")
    ],
    group: Annotated[
        str, typer.Option("--group", "-g", metavar="G", help="The group to join.")
    ],
    orderly: Annotated[
        bool,
        typer.Option(
            "--orderly", help="Each queue in its order, locked at the broker."
        ),
    ] = False,
    broadcast: Annotated[
        bool,
        typer.Option(
            "--broadcast", help="Every member gets all; offsets in a file of ours."
        ),
    ] = False,
    from_: Annotated[
        Any,
        typer.Option(
            "--from",
            parser=option_parser(_parse_start),
            metavar="first|last|TIME",
            show_default=False,
            help="Where the group begins in a queue that is new to it."
            "  [default: last]",
        ),
    ] = None,
    tag: Annotated[
        str | None, typer.Option(metavar="EXPR", help="Only tags, e.g. 'A || B'.")
    ] = None,
    sql: Annotated[
        str | None,
        typer.Option(metavar="EXPR", help="Only what SQL92 selects, e.g. 'a > 5'."),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1000,
            metavar="N",
            show_default=False,
            help="So many at once.  [default: 1; 4 with --exec and no --count]",
        ),
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1024,
            metavar="N",
            show_default=False,
            help="Up to N messages of a queue for each command.  [default: 1]",
        ),
    ] = None,
    pull_batch: Annotated[
        int, typer.Option(min=1, max=1024, metavar="N", help="Pull up to N at once.")
    ] = 32,
    max_reconsume: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=2**31 - 1,
            metavar="N",
            show_default=False,
            help="Failures until a message is a dead letter."
            "  [default: 16; --orderly: no limit]",
        ),
    ] = None,
    exec_: Annotated[
        str | None,
        typer.Option(
            "--exec",
            parser=option_parser(_parse_command),
            metavar="CMD",
            help="Run this with the message on stdin; exit status 0 is consumed.",
        ),
    ] = None,
    exec_input: Annotated[
        str,
        choice_option(
            choices=("jsonl", "raw"), help="On its stdin: the record, or the body."
        ),
    ] = "jsonl",
    shell: Annotated[
        bool, typer.Option("--shell", help="Let /bin/sh read the command.")
    ] = False,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            parser=option_parser(_parse_template),
            metavar="F",
            help="Print this of each, e.g. '%t %q %o %d{iso} %k %g %p{id} %v\\n'.",
        ),
    ] = None,
    count: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Leave after N consumed messages."),
    ] = None,
    timeout: Annotated[
        Any, duration_option("--timeout", help="Leave after this time.")
    ] = None,
) -> None:
    """Consume in a group: print messages, or run a command for each.

    Example: rmq consume orders --group billing --exec ./charge.sh --threads 8

    A message is consumed once its line is written, or its command ended with 0. The
    command finds RMQ_TOPIC, RMQ_BROKER_NAME, RMQ_QUEUE_ID, RMQ_OFFSET, RMQ_KEYS,
    RMQ_TAGS, RMQ_RECONSUME_TIMES and RMQ_COUNT in its environment. Ctrl-C and SIGTERM
    end what was begun, commit and leave the group; a second one kills the commands.
    """
    _check(
        {
            "--tag": tag is not None,
            "--sql": sql is not None,
            "--exec": exec_ is not None,
            "--shell": shell,
            "--exec-input": exec_input != "jsonl",
            "--format": format_ is not None,
            "--output": common.output != "auto",
            "--broadcast": broadcast,
            "--max-reconsume": max_reconsume is not None,
        }
    )
    if exec_input == "raw" and batch is not None and batch > 1:
        raise UsageError(
            "--exec-input raw and --batch contradict each other",
            hint="bodies have no end of their own: take one at a time, or jsonl",
        )
    from rmqcli.cli.consume_run import ConsumeRequest, run_consume

    if threads is None:
        threads = THREADS_TO_EXEC if exec_ is not None and count is None else 1
    run_consume(
        common,
        ConsumeRequest(
            topics=tuple(dict.fromkeys(topics)),
            group=group,
            orderly=orderly,
            broadcast=broadcast,
            start=from_,
            tag=tag,
            sql=sql,
            threads=threads,
            batch=batch,
            pull_batch=pull_batch,
            max_reconsume=max_reconsume,
            command=exec_,
            exec_input=exec_input,
            shell=shell,
            template=format_,
            count=count,
            timeout_ms=timeout,
        ),
    )


def _check(given: dict[str, bool]) -> None:
    """Refuse flags that mean different things, or nothing."""
    for one, other in (
        ("--tag", "--sql"),
        ("--format", "--output"),
        ("--exec", "--format"),
        ("--exec", "--output"),
        ("--broadcast", "--max-reconsume"),
    ):
        if given[one] and given[other]:
            raise UsageError(f"{one} and {other} contradict each other")
    for flag in ("--shell", "--exec-input"):
        if given[flag] and not given["--exec"]:
            raise UsageError(f"{flag} needs --exec")
