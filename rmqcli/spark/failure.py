"""Find the reason of a failure of Spark, in its exceptions and in its log.

An exception of Py4J asks the JVM for its text, so it has no text when the JVM has
ended.
"""

from __future__ import annotations

import re
from typing import Final

from rmqcli.errors import RmqError

_REASON_MAX: Final = 300
_TEXT_MAX: Final = 400
_LOG_TAIL_BYTES: Final = 40_000

#: Py4J's whole error text for a call during which the JVM ended.
_NO_ANSWER: Final = r"An error occurred while calling \S+"
#: A cause as Java prints it. The text of a Py4J exception begins with the outermost
#: exception.
_CAUSE: Final = re.compile(r"^(?:Caused by)?: [\w.$]+: (\S.*)$", re.MULTILINE)
#: Spark's own reasons for ending spark-submit, and for ending an application.
_FATAL: Final = re.compile(
    r'^(?:Exception in thread "[^"]*" [\w.$]+: |.* ERROR .*\bReason: )(\S.*)$',
    re.MULTILINE,
)


def text_of(error: BaseException) -> str:
    """Return the text of an exception; empty when it needs a JVM that has ended."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001  # Py4J passes on any error of its socket
        return ""


def one_line(text: str) -> str:
    """Return a message of Spark as one line, cut if it is long, without a full stop."""
    text = " ".join(text.split()).removesuffix(".")
    return f"{text[:_TEXT_MAX]}..." if len(text) > _TEXT_MAX else text


def says_that_java_ended(error: BaseException) -> bool:
    """Whether an exception of a call means that the JVM ended during or before it."""
    from py4j.protocol import Py4JNetworkError

    if isinstance(error, RmqError):
        return False  # errors of brokers are OSErrors, too
    text = text_of(error)
    return (
        isinstance(error, Py4JNetworkError | OSError | EOFError)
        or not text
        or re.fullmatch(_NO_ANSWER, text) is not None
    )


def java_reason(text: str) -> str:
    """Return the message of the innermost Java exception in a text, or ""."""
    return _last(_CAUSE, text)


def start_reason(error: BaseException, log_path: str) -> str:
    """Return in one line the reason why Spark did not start.

    When Spark ends by itself, only its log has the reason: the exception says that the
    JVM has ended, or that its SparkContext is stopped.
    """
    log = _tail(log_path)
    return (
        _last(_FATAL, log)
        or java_reason(text_of(error))
        or java_reason(log)
        or _last_error(log)
        or text_of(error)[:_REASON_MAX]
        or "its Java process has ended"
    )


def _last(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.findall(text)
    return found[-1].strip()[:_REASON_MAX] if found else ""


def _last_error(log: str) -> str:
    """Return the last line that names an error and is not a stack frame."""
    for line in reversed(log.splitlines()):
        text = line.strip()
        if re.search("[Ee]rror|[Ee]xception", text) and not text.startswith("at "):
            return text[:_REASON_MAX]
    return ""


def _tail(path: str) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, file.seek(0, 2) - _LOG_TAIL_BYTES))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""
