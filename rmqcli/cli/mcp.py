"""`rmq mcp`: tools for assistants, over the Model Context Protocol on stdin and stdout.

The cluster is that of the command line or the profile: no tool takes a server. The
server itself is in `rmqcli.mcp`.
"""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from rmqcli.cli.options import (
    Common,
    command_options,
    duration_option,
    option,
    require_extra,
    size_option,
)
from rmqcli.cli.ui.messages import is_terminal
from rmqcli.cli.ui.wording import with_flags
from rmqcli.errors import ConfigError, UsageError
from rmqcli.files import state_folder
from rmqcli.hint import command_line
from rmqcli.units import SECOND_MS

if TYPE_CHECKING:
    from rmqcli.admin.reset.plan import ResetPlan
    from rmqcli.config import ClientConfig

_PLANS_MAX = 100
_HIDING = "What is hidden"
_BOUNDS = "Bounds"


@command_options(formats=(), changes=False)
def mcp(
    common: Common,
    redact: Annotated[
        Path | None,
        option(
            help="TOML file with lists of properties and patterns to hide.",
            section=_HIDING,
        ),
    ] = None,
    redact_property: Annotated[
        list[str] | None,
        option(
            metavar="GLOB", help="Hide the values of these properties.", section=_HIDING
        ),
    ] = None,
    redact_pattern: Annotated[
        list[str] | None,
        option(
            metavar="REGEX",
            help="Hide what matches in bodies, keys and properties.",
            section=_HIDING,
        ),
    ] = None,
    log: Annotated[
        Path | None,
        option(
            help="Append a line for each call to FILE instead of stderr.",
            section=_BOUNDS,
        ),
    ] = None,
    deadline: Annotated[
        Any,
        duration_option(help="Longest time of a call. Default: 30s.", section=_BOUNDS),
    ] = None,
    max_result: Annotated[
        Any,
        size_option(help="Largest result of a call. Default: 64KiB.", section=_BOUNDS),
    ] = None,
) -> None:
    """Give assistants tools that only read this cluster.

    Example: rmq mcp --profile production --redact-property '*token*'

    An assistant starts this command and speaks the Model Context Protocol with it. The
    tools read; a change is a plan, which a person applies. Needs the extra mcp.
    """
    from rmqcli.mcp.redact import make_rules, read_rules

    sdk = "the Python SDK of the Model Context Protocol"
    require_extra("rmq mcp", "mcp", "mcp", sdk)
    deadline_ms = 30 * SECOND_MS if deadline is None else deadline
    result_bytes = 64 << 10 if max_result is None else max_result
    if deadline_ms < SECOND_MS:
        raise UsageError("--deadline must be at least 1s")
    if not 4 << 10 <= result_bytes <= 16 << 20:
        raise UsageError("--max-result must be between 4KiB and 16MiB")
    rules = make_rules(redact_property or [], redact_pattern or [])
    if redact is not None:
        rules = rules.with_more(read_rules(redact))
    config = common.client_config()
    # A client's error says which broker is silent, so it should come first; and a
    # thread whose call has been answered must not go on for long.
    config = replace(config, timeout_ms=min(config.timeout_ms, deadline_ms * 9 // 10))

    import rmqcli
    from rmqcli.mcp.server import Limits, serve
    from rmqcli.mcp.tools import Toolbox

    if is_terminal(sys.stdin):
        common.messages.info(
            "waiting for an assistant, which starts this command and writes to its"
            " stdin: rmq help assistants"
        )
    with _Log(log) as lines:
        serve(
            Toolbox(
                config=config,
                redaction=rules,
                save_plan=lambda plan: _save_plan(common, config, plan),
                words=with_flags,
            ),
            limits=Limits(deadline_ms=deadline_ms, result_bytes_max=result_bytes),
            version=rmqcli.__version__,
            log=lines.write,
        )


class _Log:
    """Writes the lines of the log to a file that only its owner can read, or stderr."""

    def __init__(self, path: Path | None) -> None:
        self._stream = sys.stderr
        self._is_own = path is not None
        if path is not None:
            flags = (
                os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            )
            try:
                handle = os.open(path, flags, 0o600)
            except OSError as error:
                raise ConfigError(f"{path}: {error.strerror or error}") from error
            self._stream = os.fdopen(handle, "a", encoding="utf-8")
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._is_own:
            self._stream.close()

    def write(self, line: str) -> None:
        with self._lock:
            self._stream.write(line + "\n")
            self._stream.flush()


def _save_plan(
    common: Common, config: ClientConfig, plan: ResetPlan
) -> tuple[str, str]:
    """Write a plan for `rmq reset-offset`; return its path and the command to run."""
    from rmqcli.admin.reset.plan_file import write_plan
    from rmqcli.api.client import Client
    from rmqcli.cli.reset_offset.view import document, noted_ends

    folder = state_folder(os.environ, "plans")
    if folder is None:
        raise ConfigError("the plan cannot be kept: there is no home directory")
    path = Path(folder, f"reset-{os.urandom(8).hex()}.json")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with Client(config) as client:
            noted = noted_ends(common, client, plan)
        write_plan(path, plan, document(plan, None, backup_id=None), noted)
        plans = sorted(
            path.parent.glob("reset-*.json"), key=lambda each: each.stat().st_mtime_ns
        )
        for old in plans[:-_PLANS_MAX]:
            old.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    options = ["--apply", str(path), "--execute", *common.flags_to_repeat()]
    names = plan.group, plan.topic
    return str(path), command_line("rmq reset-offset", *names, options=options)
