"""What went wrong in Spark, in words: from its exceptions, and from its log.

An exception of Py4J asks the JVM for its text, and has none when the JVM has ended.
"""

from __future__ import annotations

import re
from typing import Final

_REASON_MAX: Final = 300
_LOG_TAIL_BYTES: Final = 40_000

#: As Java prints the causes of an exception; Py4J's text begins with the outermost.
_CAUSE: Final = re.compile(r"^(?:Caused by)?: [\w.$]+: (\S.*)$", re.MULTILINE)
#: What ends spark-submit, and what ends an application: Spark's own reasons.
_FATAL: Final = re.compile(
    r'^(?:Exception in thread "[^"]*" [\w.$]+: |.* ERROR .*\bReason: )(\S.*)$',
    re.MULTILINE,
)


def text_of(error: BaseException) -> str:
    """Return the text of an exception; empty when its JVM is no longer there to ask."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001  # py4j raises whatever its socket raised
        return ""


def java_reason(text: str) -> str:
    """Return the message of the innermost Java exception in a text; empty without."""
    return _last(_CAUSE, text)


def start_reason(error: BaseException, log_path: str) -> str:
    """Say in one line why Spark did not start, or stopped while it started.

    Spark logs the reason when it ends by itself. The exception then only says that the
    JVM is gone, or that its SparkContext is stopped.
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
    """Return the last line that names an error and is not a frame of a stack."""
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
