"""A member of a group behind a proxy, in its own process: ours or an official one.

All programs use one protocol. Each prints lines with an event, the machine's monotonic
clock in nanoseconds and a body, separated by tabs:

    started       it is a member
    begin, done   a message came; it was consumed (by a simple consumer: acknowledged)
    held          it has read `hold`
    holding       it will never finish this message
    stopped       it has left the group

and obeys the lines `hold` (never finish a message that begins from now on) and `stop`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.kit.artefacts import KIT
from tests.kit.clients.official import java_program, python_environment
from tests.kit.guard import GUARD
from tests.kit.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

_STOP_S = 120


@dataclass(frozen=True)
class Event:
    """An event that a member printed."""

    name: str
    #: of CLOCK_MONOTONIC, which all processes of a machine share
    time_ns: int
    body: str
    member: str


class GrpcMember:
    """A member of a group in its own process; the constructor waits until it is one.

    `who` is "ours", "java" or "python", and `kind` "simple", "push" or "orderly";
    official clients get the consume order from the group. They may also be "lite", with
    the lite topics to subscribe. `lease_s` is the invisible duration of the messages
    that a simple consumer receives. Raises UnavailableError if an official client
    cannot be fetched.
    """

    def __init__(
        self,
        who: str,
        kind: str,
        *,
        endpoints: str,
        group: str,
        topic: str,
        directory: Path,
        lease_s: int = 30,
        lite_topics: Sequence[str] = (),
    ) -> None:
        self.who = who
        self.events: list[Event] = []
        environment = {**os.environ, "HOME": str(directory)}
        if who == "java":
            command = java_program("GrpcMember", directory)
        elif who == "python":
            program = Path(__file__).with_name("python_member.py")
            command = [sys.executable, str(program)]
            environment |= python_environment()
        else:
            command = [sys.executable, "-m", "tests.kit.clients.our_member"]
        if kind == "orderly" and who != "ours":
            kind = "push"
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115  # until _end
        self._process = subprocess.Popen(
            [*command, kind, endpoints, group, topic, str(lease_s), *lite_topics],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
            cwd=KIT.parents[1] if who == "ours" else directory,
            env=environment,
            start_new_session=True,
        )
        GUARD.watch(self._process.pid)
        self._is_over = False
        self._reader = threading.Thread(target=self._read, name="grpc-member")
        self._reader.start()
        try:
            self.wait_for("started")
        except BaseException:
            self.kill()
            raise

    def bodies(self, name: str) -> list[str]:
        """The bodies of all events of this name so far."""
        return [each.body for each in self.events if each.name == name]

    def wait_for(self, name: str) -> None:
        """Wait for the first event of this name; a member that ends fails the test."""

        def is_there() -> bool:
            # Checked first: all that was printed before the end is read by then.
            has_ended = not self._reader.is_alive()
            if self.bodies(name):
                return True
            assert not has_ended, f"{self.who} ended\n{self._complaint()}"
            return False

        wait_until(is_there, f"{name} of {self.who}")

    def hold(self) -> None:
        """Make it never finish a message that begins from now on."""
        self._say("hold")
        self.wait_for("held")

    def stop(self) -> None:
        """Make it leave the group, and wait for its process to end. Idempotent."""
        if not self._is_over:
            self._say("stop")
            self.wait_for("stopped")
            self._end(_STOP_S)

    def kill(self) -> None:
        """Kill it with SIGKILL, so that it does not unregister. Idempotent."""
        if not self._is_over:
            self._process.kill()
            self._end(_STOP_S)

    def _say(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            name, tab, rest = line.rstrip("\n").partition("\t")
            if tab:  # otherwise a library printed the line
                time_ns, _, body = rest.partition("\t")
                self.events.append(Event(name, int(time_ns), body, self.who))

    def _complaint(self) -> str:
        self._complaints.seek(0)
        return self._complaints.read()[-3000:].decode(errors="replace")

    def _end(self, timeout_s: int) -> None:
        self._is_over = True
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._complaints.close()
        GUARD.forget(self._process.pid)
