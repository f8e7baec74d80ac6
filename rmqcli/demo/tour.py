"""The steps of `rmq demo`, and how one is shown: the command, then its real output.

Every step is a process of its own, started as the user would: nothing is faked, and
what it prints goes straight to this terminal or pipe.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rmqcli.errors import ExitCode, RmqError

if TYPE_CHECKING:
    from collections.abc import Mapping

_STEP_TIMEOUT_S: Final = 120


@dataclass(frozen=True, slots=True)
class Step:
    """One command of the tour. `words` come after `rmq`; `exits` are fine to see."""

    title: str
    words: tuple[str, ...]
    exits: tuple[int, ...] = (int(ExitCode.OK),)


#: Before the export, which needs Java.
READING: Final = (
    Step("What is there?", ("topics",)),
    Step(
        "The last messages, merged over all queues",
        (
            *("tail", "orders", "--last", "5", "--no-follow"),
            *("--format", "%q %o %d{iso} %g %k %v\\n"),
        ),
    ),
    Step(
        "The first refund, whole, as JSON",
        (
            *("tail", "orders", "--tag", "Refunded", "--from", "earliest"),
            *("--count", "1", "-o", "jsonl"),
        ),
    ),
    Step("Is the group billing behind?", ("lag", "billing")),
    Step("Does it catch up?", ("lag", "billing", "--sample", "10s", "--explain")),
    Step(
        "Skip to now: first as a plan",
        ("reset-offset", "billing", "orders", "--to", "latest"),
    ),
    Step(
        "Do it: backup, reset, read back",
        (
            *("reset-offset", "billing", "orders", "--to", "latest"),
            *("--execute", "--yes"),
        ),
    ),
    Step("The backlog is gone", ("lag", "billing")),
    Step(
        "It was a mistake: undo",
        ("reset-offset", "billing", "orders", "--undo", "--execute", "--yes"),
    ),
    Step("Back where it was", ("lag", "billing")),
)


def export_step(folder: str) -> Step:
    """The export to Parquet, through a local Spark."""
    return Step(
        "Everything to Parquet, through Spark",
        ("export", "orders", "--to-parquet", folder, "--to", "now", "-o", "table"),
    )


class Tour:
    """Shows steps one after the other."""

    def __init__(self, *, namesrv: str, state_home: str, color: bool) -> None:
        self._environ = {
            **os.environ,
            "NAMESRV_ADDR": namesrv,
            # What the tour backs up goes away with it.
            "XDG_STATE_HOME": state_home,
        }
        self._color = color

    @property
    def environ(self) -> Mapping[str, str]:
        """What every command of the tour runs with."""
        return self._environ

    def heading(self, text: str) -> None:
        """A line that opens a step."""
        self.write(f"\n{self._styled('1;36', '## ' + text)}")

    def write(self, text: str) -> None:
        """A line on stdout, before whatever a child prints next."""
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def show(self, step: Step) -> None:
        """Run a step. Raises RmqError when it ended as it should not."""
        self.heading(step.title)
        self.command(f"rmq {shlex.join(step.words)}")
        done = subprocess.run(  # noqa: S603  # ourselves
            [sys.executable, "-m", "rmqcli", *step.words],
            stdin=subprocess.DEVNULL,
            env=self._environ,
            timeout=_STEP_TIMEOUT_S,
            check=False,
        )
        if done.returncode not in step.exits:
            raise RmqError(
                f"rmq {step.words[0]} exited {done.returncode}: the tour stops here"
            )

    def command(self, text: str) -> None:
        """A command, as one would type it."""
        self.write(f"{self._styled('2', '$')} {self._styled('1', text)}")

    def _styled(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._color else text
