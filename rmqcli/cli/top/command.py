"""`rmq top`: the command, its options, and what it needs of a terminal."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING

from rmqcli.cli.lag.view import QUEUE_COLUMNS
from rmqcli.cli.options import (
    Common,
    argument,
    command_options,
    duration_option,
    refuse_together,
    require_extra,
    switch,
)
from rmqcli.cli.ui.messages import is_screen, is_terminal
from rmqcli.dataclass import dataclass
from rmqcli.errors import ExitCode, UsageError
from rmqcli.hint import command_line, placed, with_options

if TYPE_CHECKING:
    from rmqcli.cli.top.app import TopApp

_INTERVAL_MIN_MS = 200
#: Python's own. Commands collect rarely, because they end soon; this one runs for days.
_GC_THRESHOLDS = (700, 10, 10)
#: How long threads that wait for a server may take to end.
_JOIN_MS = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TopOptions:
    """The options of `rmq top` as they were typed."""

    group: str | None = argument(
        default=None,
        metavar="[GROUP]",
        help="Group to show first (default: all groups).",
    )
    interval: int = duration_option(
        default=2_000, show_default=False, help="Refresh every DURATION.  [default: 2s]"
    )
    allow_changes: bool = switch(help="Offer to reset the offsets of groups, too.")
    serve: bool = switch(help="Show the screen in a browser of this machine instead.")


@command_options(
    TopOptions,
    formats=("table",),
    fields=QUEUE_COLUMNS,
    changes=lambda options: options.allow_changes,
)
def top(common: Common, options: TopOptions) -> int:
    """Watch groups, topics, brokers and clusters on a full screen.

    Example: rmq top

    Enter opens what a row is about: a group, its queues and members, messages as they
    arrive, dead letters, what became of one message, or the cluster of a profile. ?
    lists the keys, and the line above the keys is the command that prints the same. It
    only reads; with
    --allow-changes, r plans a reset of a group's offsets, which is applied once you
    type the group's name. It needs a terminal, and pip install 'rmqcli[tui]'; --serve
    prints an address for a browser instead, and needs 'rmqcli[web]'.
    """
    if options.interval < _INTERVAL_MIN_MS:
        raise UsageError(f"--interval must be at least {_INTERVAL_MIN_MS}ms")
    if options.serve:
        _serve(common, options)
        return ExitCode.OK
    # Textual draws on stderr; a screen in a browser has no terminal.
    is_served = "TEXTUAL_DRIVER" in os.environ
    if not is_served and not (
        is_screen(sys.stdout) and is_terminal(sys.stdin) and is_terminal(sys.stderr)
    ):
        names = [] if options.group is None else [options.group]
        watch = ["--watch", "2s", "-o", "jsonl"]
        raise UsageError(
            "rmq top needs a terminal that can move its cursor",
            hint=f"elsewhere run: {command_line('rmq lag', *names, options=watch)}",
        )
    require_extra("rmq top", "tui", "textual", "Textual")
    if not is_served and not common.use_color:
        os.environ["NO_COLOR"] = "1"  # which Textual follows
    elif common.color == "always":
        os.environ.pop("NO_COLOR", None)
    from rmqcli.cli.top.app import TopApp
    from rmqcli.cli.top.profiles import cluster_in_use, clusters_of_profiles

    # Without any locale it is not one of UTF-8.
    locales = map(os.environ.get, ("LC_ALL", "LC_CTYPE", "LANG"))
    locale = next(filter(None, locales), "")
    app = TopApp(
        cluster_in_use(common, allow_changes=options.allow_changes),
        others=lambda: clusters_of_profiles(
            common, os.environ, allow_changes=options.allow_changes
        ),
        interval_ms=options.interval,
        group=options.group,
        is_ascii=not is_served and "utf8" not in locale.lower().replace("-", ""),
    )
    code = _run(app)
    for line in app.done:
        common.messages.info(line)
    return code


def _serve(common: Common, options: TopOptions) -> None:
    """Print the address of the screen, and serve it until the user ends it."""
    refuse_together(
        {"--serve": True, "--allow-changes": options.allow_changes},
        [("--serve", "--allow-changes")],
    )
    if common.acl_file == "-":
        raise UsageError(
            "--serve cannot use --acl-file -, because each page reads the credentials",
            hint="name a file, or use a profile",
        )
    require_extra("rmq top --serve", "web", "textual_serve", "textual-serve")
    from rmqcli.cli.top.serve import serve

    cluster_flags = common.flags_to_repeat()
    names = [] if options.group is None else placed(options.group)
    more = [
        "--interval",
        f"{options.interval}ms",
        "--timeout",
        f"{common.timeout_ms}ms",
    ]
    common.client_config()  # what is wrong with it is said here, not in a browser

    def say(address: str) -> None:
        sys.stdout.write(f"{address}\n")
        sys.stdout.flush()
        common.messages.info("open it in a browser of this machine; Ctrl-C ends it")

    serve(with_options(["top", *names], [*more, *cluster_flags]), say)


def _run(app: TopApp) -> int:
    """Show the screen until the user, or SIGTERM, ends it."""
    before = signal.signal(signal.SIGTERM, lambda *_: app.call_later(app.action_leave))
    thresholds = gc.get_threshold()
    gc.set_threshold(*_GC_THRESHOLDS)
    logging.disable()  # a line on stderr would be drawn over the screen
    try:
        code = app.run()
    finally:
        logging.disable(logging.NOTSET)
        gc.set_threshold(*thresholds)
        signal.signal(signal.SIGTERM, before)
        app.join(_JOIN_MS)
    return ExitCode.FAILED if code is None else code
