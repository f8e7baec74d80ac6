"""Hides the matches of regular expressions, in a process of its own.

A regular expression can take exponential time on a text that a sender chose, and Python
holds its lock meanwhile: in a thread, one search would stop the whole server, whatever
deadline its call has. The process gives each text `LIMIT_MS` of CPU time; past that,
the system ends it, the text is withheld, and the next text gets a new process.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

LIMIT_MS: Final = 500
REDACTED: Final = "[redacted]"
#: What is shown of a text that could not be searched in time.
WITHHELD: Final = f"[redacted: a pattern takes more than {LIMIT_MS} ms to search this]"

#: A text and its answer are each a line of JSON. Nothing handles SIGVTALRM, so that it
#: ends the process even in the middle of a search.
_PROGRAM: Final = """
import json, re, signal, sys
limit_s, hidden, patterns = json.loads(sys.argv[1])
patterns = [re.compile(each) for each in patterns]
for line in sys.stdin.buffer:
    text = json.loads(line)
    signal.setitimer(signal.ITIMER_VIRTUAL, limit_s)
    for pattern in patterns:
        text = pattern.sub(lambda match: hidden, text)
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    sys.stdout.buffer.write(json.dumps(text).encode() + b"\\n")
    sys.stdout.buffer.flush()
"""


class Matcher:
    """Hides what patterns match. Safe to call from any thread, one text at a time."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._arguments = json.dumps([LIMIT_MS / 1000, REDACTED, list(patterns)])
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def hide(self, text: str) -> str:
        """Return `text` with each match replaced, or `WITHHELD`. Starts the process."""
        with self._lock:
            process = self._process or self._started()
            assert process.stdin is not None  # noqa: S101  # it is a pipe
            assert process.stdout is not None  # noqa: S101
            try:
                process.stdin.write(json.dumps(text).encode() + b"\n")
                process.stdin.flush()
                line = process.stdout.readline()
            except OSError:
                line = b""
            if line.endswith(b"\n"):
                found: str = json.loads(line)
                return found
            self._end(process)
            return WITHHELD

    def close(self) -> None:
        """End the process. Idempotent."""
        with self._lock:
            if self._process is not None:
                self._end(self._process)

    def _started(self) -> subprocess.Popen[bytes]:
        self._process = subprocess.Popen(  # noqa: S603  # this Python, and the program above
            [sys.executable, "-I", "-c", _PROGRAM, self._arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        return self._process

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        self._process = None
        process.kill()
        process.communicate()  # closes the pipes
