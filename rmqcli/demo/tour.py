"""The steps of `rmq demo`, and how a step is shown: the command, then its real output.

Every command runs in a separate process, as if the user had started it: nothing is
faked, and its output goes straight to this terminal or pipe. On a terminal each step
has a screen of 80 columns and 24 lines to itself, and the user turns the page; in a
pipe the steps follow each other without a pause.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import termios
from dataclasses import field
from typing import TYPE_CHECKING, Final

from rmqcli.dataclass import dataclass
from rmqcli.errors import ExitCode, RmqError

if TYPE_CHECKING:
    from collections.abc import Mapping

_STEP_TIMEOUT_S: Final = 120
_CLEAR_SCREEN: Final = "\x1b[H\x1b[2J"
#: The title of the page about gRPC, which is shown even if the step is left out.
PROXY_TITLE: Final = "The same over gRPC, through a proxy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One command of the tour. `command` is what the user types after `rmq`.

    `about` explains the step in a sentence or two, in lines of less than 80 cells. A
    command that does not end by itself has `seconds`, after which it is interrupted; it
    runs on terminals only. `then` is a second command on the same page. Both run with
    `environ` added to their environment.
    """

    title: str
    command: str
    about: str = ""
    seconds: int | None = None
    then: str = ""
    environ: Mapping[str, str] = field(default_factory=dict, hash=False)


#: The steps before the export, which needs Java.
STEPS: Final = (
    Step(
        title="What is there?",
        about="One topic. Topics of RocketMQ itself are listed with --all.",
        command="topics",
    ),
    Step(
        title="The last messages",
        about="tail merges all queues by time and touches no group.",
        command="tail orders --last 5 --no-follow"
        " --format '%d{iso} queue %q offset %o %k %g\\n'",
    ),
    Step(
        title="The first refund, in full",
        about="A filter, a start and a count. In a pipe it would be a line of JSON.",
        command="tail orders --tag Refunded --from earliest --count 1",
    ),
    Step(
        title="Send a message",
        about="Messages also come from lines, JSON lines or files.",
        command="""send orders '{"order":"A-1","event":"Created"}'"""
        " --tag Created --key A-1",
    ),
    Step(
        title="Consume in a new group",
        about="The group shipping joins, reads three paid orders, commits and leaves.",
        command="consume orders --group shipping --from earliest --tag Paid --count 3"
        " --format 'ship %k of queue %q\\n'",
    ),
    Step(
        title="Is the group billing behind?",
        about="Its consumer is too slow on purpose. Lag is what it has not committed.",
        command="lag billing",
    ),
    Step(
        title="Watch the lag",
        about="Rates appear after 10 s. Press Ctrl-C to continue at once, or wait.",
        command="lag billing --watch 1s",
        seconds=14,
    ),
    Step(
        title="Does it catch up?",
        about="Two samples, ten seconds apart, and the answer in words.",
        command="lag billing --sample 10s --explain",
    ),
    Step(
        title="Skip to now: first as a plan",
        about="Without --execute nothing is changed.",
        command="reset-offset billing orders --to latest",
    ),
    Step(
        title="Do it: backup, reset, read back",
        about="The consumer is online, so the broker moves it; each queue is verified.",
        command="reset-offset billing orders --to latest --execute --yes",
    ),
    Step(
        title="The backlog is gone",
        about="Orders keep coming: what it is behind now has arrived since the reset.",
        command="lag billing",
    ),
    Step(
        title="It was a mistake: undo",
        about="The backup that the reset saved is restored.",
        command="reset-offset billing orders --undo --execute --yes",
    ),
    Step(title="Back where it was", command="lag billing"),
)


def proxy_step(endpoints: str) -> Step:
    """The step that sends and consumes a message through the cluster's proxy."""
    return Step(
        title=PROXY_TITLE,
        about="A proxy of RocketMQ 5 needs no name server. This one has no TLS.",
        environ={"ROCKETMQ_ENDPOINTS": endpoints},
        command="send orders 'box 7' --tag Packed --plaintext",
        then="consume orders --group packing --tag Packed --count 1 -o raw --plaintext",
    )


def export_step(folder: str) -> Step:
    """The step that exports to Parquet, through a local Spark."""
    return Step(
        title="Everything to Parquet, through Spark",
        about="A local Spark starts first, which takes a few seconds.",
        command=f"export orders --to-parquet {shlex.quote(folder)} --to now -o table",
    )


class Tour:
    """Shows steps one after the other.

    With `is_paged` each step gets a new screen, and the user presses Enter in between.
    """

    def __init__(
        self,
        *,
        namesrv: str,
        state_home: str,
        color: bool,
        is_paged: bool,
        steps: int,
    ) -> None:
        self._environ = {
            **os.environ,
            "NAMESRV_ADDR": namesrv,
            # The user's profiles belong to other clusters.
            "RMQ_PROFILE": "none",
            # The backups of the tour are removed with it.
            "XDG_STATE_HOME": state_home,
        }
        # The user's own proxy belongs to another cluster.
        self._environ.pop("ROCKETMQ_ENDPOINTS", None)
        self._color = color
        self._is_paged = is_paged
        self._steps = steps
        self._number = 0

    @property
    def environ(self) -> Mapping[str, str]:
        """The environment in which every command of the tour runs."""
        return self._environ

    def page(self, title: str, *about: str) -> None:
        """Turn to a new page and write its heading. On a terminal Enter turns it."""
        self._turn()
        place = ""
        if self._is_paged and self._number:
            place = self._styled("2", f"{self._number} of {self._steps}  ")
        self._number += 1
        self.heading(title, place=place)
        for line in about:
            if line:
                self.write(line)

    def heading(self, text: str, *, place: str = "") -> None:
        """Write the heading of a step, or of a part of one."""
        self.write(f"\n{place}{self._styled('1;36', '## ' + text)}")

    def write(self, text: str) -> None:
        """Write a line to stdout, before the next output of a child process."""
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def show(self, step: Step) -> None:
        """Show a step and run it. Raises RmqError for an unexpected exit code."""
        self.page(step.title, step.about)
        for name, value in step.environ.items():
            self.command(f"export {name}={value}")
        for text in filter(None, (step.command, step.then)):
            if text is step.then:
                self.write("")
            self.command(f"rmq {text}")
            if step.seconds is not None and not self._is_paged:
                self.write("skipped: this command needs a terminal")
                return
            self.write("")
            code = self._run(step, text)
            if code not in (
                (ExitCode.INTERRUPTED,) if step.seconds is not None else (ExitCode.OK,)
            ):
                raise RmqError(
                    f"rmq {text.split()[0]} exited {code}: the tour stops here"
                )

    def _run(self, step: Step, command: str) -> int:
        """Run a command in a process of its own, and return its exit code."""
        process = subprocess.Popen(  # noqa: S603  # ourselves
            [sys.executable, "-m", "rmqcli", *shlex.split(command)],
            stdin=subprocess.DEVNULL,
            env={**self._environ, **step.environ},
        )
        with process:
            try:
                return process.wait(step.seconds or _STEP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                if step.seconds is None:
                    process.kill()
                    raise
                process.send_signal(signal.SIGINT)
            except KeyboardInterrupt:
                if step.seconds is None:
                    process.kill()
                    raise
                # The terminal has sent Ctrl-C to the command, too, which then ends.
            return process.wait(_STEP_TIMEOUT_S)

    def command(self, text: str) -> None:
        """Write a command as a user would type it."""
        self.write(f"{self._styled('2', '$')} {self._styled('1', text)}")

    def _turn(self) -> None:
        if not self._is_paged:
            return
        if self._number:
            sys.stdout.write(
                self._styled("2", "\nPress Enter to continue, Ctrl-C to quit ")
            )
            sys.stdout.flush()
            # Keys that were typed while the command ran must not turn the page.
            termios.tcflush(sys.stdin, termios.TCIFLUSH)
            sys.stdin.readline()
        sys.stdout.write(_CLEAR_SCREEN)

    def _styled(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._color else text
