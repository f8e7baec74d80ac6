"""Commands for tests of the features that all commands share. They use no cluster."""

from __future__ import annotations

import sys
from typing import Any

from rmqcli.cli.commands import CommandEntry
from rmqcli.cli.confirm import confirm, confirm_by_name
from rmqcli.cli.options import (
    Common,
    argument,
    command_options,
    duration_option,
    position_option,
    queue_option,
    size_option,
)
from rmqcli.cli.ui.interrupts import deferred
from rmqcli.cli.ui.output import Column, write_rows
from rmqcli.errors import (
    BrokerError,
    ConnectError,
    DeadlineError,
    DeniedError,
    NotFoundError,
    PartialError,
    RefusedError,
    RmqError,
)
from rmqcli.position import Position  # noqa: TC001  # Typer evaluates it

HELP = "Do one of the things that tests ask for."
TABLE = (
    CommandEntry("sample", "tests.cli.sample_command", "sample", HELP),
    CommandEntry("nest echo", "tests.cli.sample_command", "echo", "Echo a word."),
)

COLUMNS = (
    Column("name", "name of the thing"),
    Column("count", "how many there are"),
    Column(
        "state", "OK or not", states={"OK": "good", "BAD": "bad", "UNKNOWN": "warn"}
    ),
    Column("note", "kept out of tables", title=None),
)
ROWS = (
    {"name": "orders", "count": 12, "state": "OK", "note": None},
    {"name": "=cmd()", "count": -3, "state": "BAD", "note": "a,b"},
    {"name": "x\x1b]52;c;aGk=\x07y\u202e", "count": None, "state": "UNKNOWN(z)"},
)

ERRORS: dict[str, BaseException] = {
    "failed": RmqError("it broke", hint="mend it"),
    "broker": BrokerError("broker says no", code=1, name="SYSTEM_ERROR"),
    "not-found": NotFoundError("no route", code=17, name="TOPIC_NOT_EXIST"),
    "denied": DeniedError("not for you", code=16, name="NO_PERMISSION"),
    "unreachable": ConnectError("nobody there", address="127.0.0.1:1"),
    "deadline": DeadlineError("no answer", address="127.0.0.1:1"),
    "partial": PartialError("half of it"),
    "refused": RefusedError("it moved"),
    "interrupt": KeyboardInterrupt(),
    "bug": ZeroDivisionError("a bug"),
    "file": FileNotFoundError(2, "No such file or directory", "no/such\x1bfile"),
    "full": OSError(28, "No space left on device"),
    "text": OSError("Not a gzipped file"),
    "textless": OSError(),
    "memory": MemoryError(),
    "hostile": RmqError("remark \x1b[2J\u202e", hint="do\r\x9bnot"),
}


@command_options(fields=COLUMNS)
def sample(
    common: Common,
    do: str = argument(help="What to do."),
    words: list[str] | None = argument(default=None, help="More."),
    idle_timeout: int | None = duration_option("--idle-timeout"),
    size: int | None = size_option("--size"),
    start: Position | None = position_option("--from"),
    queue: list[Any] | None = queue_option(),
) -> int | None:
    """Do one of the things that tests ask for.

    Example: rmq sample rows -o json | jq '.[].name'
    """
    if do in ERRORS:
        raise ERRORS[do]
    if do == "rows":
        write_rows(ROWS, columns=COLUMNS, fmt=common.output, color=common.use_color)
    elif do == "flood":
        while True:
            print("y" * 1000)
    elif do == "wait":
        try:
            print("waiting", flush=True)
            sys.stdin.read()
        finally:
            print("cleaned up", flush=True)
    elif do == "connect":
        common.open_client().close()
    elif do == "together":
        with deferred():
            print("begun", flush=True)
            sys.stdin.readline()
            print("whole", flush=True)
        print("never reached")
    elif do == "ask":
        confirm(common, "Really?")
        print("done")
    elif do == "ask-name":
        confirm_by_name(common, "Really?", name="orders")
        print("done")
    elif do == "common":
        common.messages.info("an info")
        common.messages.warn("a warning")
        print(common.namesrv, common.timeout_ms, common.verbose, common.tls)
        print(idle_timeout, size, start, queue, words)
    elif do == "exit":
        return 8
    return None


@command_options(formats=("raw", "hex"))
def echo(
    common: Common,
    word: str = argument(help="The word."),
    idle_timeout: int | None = duration_option("--idle-timeout"),
) -> None:
    """Echo a word.

    Example: rmq nest echo hello
    """
    print(common.output, common.timeout_ms, word, idle_timeout)
