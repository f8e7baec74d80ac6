"""Turns an exception into at most three lines on stderr and an exit code.

    error: what happened, with values
           ^ under the part of a text that is wrong
    hint: one thing to try

With `-o json` or `-o jsonl`, or a profile with such an output, one JSON object is
written instead. A closed pipe is not
reported, and a traceback is written only with `-vv`.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from rmqcli.cli.ui.escape import safe, safe_json
from rmqcli.cli.ui.messages import Messages
from rmqcli.cli.ui.wording import with_flags
from rmqcli.errors import (
    BrokerError,
    ExitCode,
    RmqError,
    TextError,
    UsageError,
    interrupt_behind,
)
from rmqcli.names import similar


class Failure(NamedTuple):
    """What to report about an error, and the exit code."""

    kind: str
    message: str
    exit_code: int
    hint: str = ""
    detail: str = ""
    code: int | None = None
    code_name: str | None = None
    #: what the peer answered, in its own words; shown with `-v`
    answer: str = ""


class _Flags(NamedTuple):
    """How the arguments ask to report errors, even if they cannot be parsed."""

    #: the output format; empty if none was typed
    output: str
    verbose: int
    color: str


def unknown_name(
    what: str, name: str, known: Iterable[str], *, help_command: str = ""
) -> UsageError:
    """The error for a word that is not one of `known`; it names the nearest ones."""
    near = similar(name, list(known))
    message = f"{what} {name} does not exist"
    if near:
        return UsageError(f"{message}; did you mean {' or '.join(near)}?")
    hint = f"one of: {', '.join(known)}"
    if help_command:
        hint = f"see: {help_command} --help"
    return UsageError(message, hint=hint)


def report(
    error: BaseException,
    arguments: Sequence[str],
    default_output: Callable[[Sequence[str]], str | None] = lambda _: None,
) -> int:
    """Report an error on stderr; return the exit code. Never raises.

    `default_output` returns the output format if none was typed.
    """
    flags = _read_flags(arguments)
    error = interrupt_behind(error)
    if isinstance(error, BrokenPipeError):
        discard_output()
        return ExitCode.OK
    if isinstance(error, MemoryError):
        error = RmqError("out of memory")
    failure = describe(error)
    output = flags.output or default_output(arguments)
    as_json = output in ("json", "jsonl")
    _discard_output_if_broken()
    messages = Messages(color=flags.color)
    if flags.verbose >= 2 and not isinstance(error, KeyboardInterrupt):
        import traceback

        messages.traceback("".join(traceback.format_exception(error)).rstrip())
    if as_json:
        _write_json(failure)
    elif isinstance(error, KeyboardInterrupt):
        messages.info(failure.message)
    else:
        messages.error(failure.message, hint=failure.hint, detail=failure.detail)
    if flags.verbose and failure.answer and not as_json:
        messages.info(failure.answer)
    return failure.exit_code


def describe(error: BaseException) -> Failure:
    """Return what to report about `error`, and its exit code."""
    match error:
        case KeyboardInterrupt() | EOFError():
            return Failure(
                kind="Interrupted",
                message="interrupted",
                exit_code=ExitCode.INTERRUPTED,
            )
        case TextError():
            return _describe_text_error(error)
        case RmqError():
            return _describe_rmq_error(error)
        case OSError():
            return _describe_os_error(error)
    return Failure(
        kind="InternalError",
        message=f"internal error: {type(error).__name__}: {_text_of(error)}",
        hint="run again with -vv for the traceback",
        exit_code=ExitCode.FAILED,
    )


def _describe_rmq_error(error: RmqError) -> Failure:
    answer = ""
    if isinstance(error, BrokerError) and error.remark not in error.message:
        answer = f"{error.address} answered {error.name}: {error.remark}"
    return Failure(
        kind=type(error).__name__,
        message=error.message,
        hint=with_flags(error.hint),
        exit_code=error.exit_code,
        code=error.code if isinstance(error, BrokerError) else None,
        code_name=error.name if isinstance(error, BrokerError) else None,
        answer=answer,
    )


def _describe_text_error(error: TextError) -> Failure:
    """Show the text as it was typed, with carets under the part that is wrong."""
    before = f"{error.option}: '" if error.option else "'"
    shown = safe(error.text)
    indent = len("error: ") + len(before) + len(safe(error.text[: error.start]))
    width = max(1, len(safe(error.text[error.start : error.end])))
    return Failure(
        kind="UsageError",
        message=f"{before}{shown}': {error.what}",
        detail=" " * indent + "^" * width,
        hint=with_flags(error.hint),
        exit_code=error.exit_code,
    )


def _describe_os_error(error: OSError) -> Failure:
    """Describe an error with a file; `transport` has translated those of sockets."""
    reason = error.strerror or str(error)
    message = reason[:1].lower() + reason[1:] or type(error).__name__
    if error.filename is not None:
        message = f"{os.fsdecode(error.filename)}: {message}"
    elif error.errno in (errno.ENOSPC, errno.EIO, errno.EFBIG):
        message = f"cannot write the output: {message}"
    return Failure(kind="OSError", message=message, exit_code=ExitCode.FAILED)


def _text_of(error: BaseException) -> str:
    """Return the text of an exception, even if its `__str__` raises."""
    try:
        return str(error)
    except Exception as failure:  # noqa: BLE001  # a report must never raise
        return f"(its text could not be read: {type(failure).__name__})"


def _discard_output_if_broken() -> None:
    """Discard output that cannot be flushed, so that Python's exit does not fail."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, ValueError):
        discard_output()


def discard_output() -> None:
    """Redirect stdout to the null device, because buffered output has no reader."""
    try:
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, sys.stdout.fileno())
        os.close(devnull)
    except (OSError, ValueError, AttributeError):
        sys.stdout = None  # no file behind it


def _write_json(failure: Failure) -> None:
    import json

    body: dict[str, object] = {
        "kind": failure.kind,
        "message": failure.message,
        "hint": failure.hint or None,
        "exit_code": int(failure.exit_code),
    }
    if failure.code is not None:
        body["code"] = failure.code
        body["code_name"] = failure.code_name
    text = safe_json(json.dumps({"error": body}, ensure_ascii=False))
    Messages().write_line(text)


def _read_flags(arguments: Sequence[str]) -> _Flags:
    output = color = ""
    verbose = 0
    previous = ""
    for argument in arguments:
        if argument == "--":
            break
        if previous in ("-o", "--output"):
            output = argument
        elif previous == "--color":
            color = argument
        elif argument.startswith("--output="):
            output = argument.removeprefix("--output=")
        elif argument.startswith("--color="):
            color = argument.removeprefix("--color=")
        elif argument.startswith("-o") and len(argument) > 2:
            output = argument[2:]
        elif argument == "--verbose":
            verbose += 1
        elif argument.startswith("-v") and set(argument[1:]) == {"v"}:
            verbose += len(argument) - 1
        previous = argument
    return _Flags(
        output=output,
        verbose=verbose,
        color=color if color in ("always", "never") else "auto",
    )
