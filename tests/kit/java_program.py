"""Runs the kit's Java programs and mqadmin with a cluster and the cluster's jars."""

from __future__ import annotations

import json
import queue
import subprocess
import tempfile
import threading
import time
from typing import TYPE_CHECKING, Any, Self

from tests.kit.guard import GUARD
from tests.kit.process import java_command, java_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.kit.cluster import RealCluster

_PROGRAM_TIMEOUT_S = 120
MQADMIN_MAIN = "org.apache.rocketmq.tools.command.MQAdminStartup"


def run_java(
    cluster: RealCluster,
    main_class: str,
    arguments: Iterable[str],
    *,
    stdin: str = "",
    timeout_s: int = _PROGRAM_TIMEOUT_S,
) -> str:
    """Run a Java program to its end and return its stdout.

    Raises RuntimeError with the program's output when it fails.
    """
    done = subprocess.run(
        command_of(cluster, main_class, arguments),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        cwd=cluster.tools_home(),
        env=java_environment(cluster.tools_home()),
    )
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip()[-2000:]
        raise RuntimeError(f"{main_class} exited {done.returncode}: {said}")
    return done.stdout


def command_of(
    cluster: RealCluster, main_class: str, arguments: Iterable[str]
) -> list[str]:
    """The command line of a Java program of the cluster's version."""
    home = cluster.tools_home()
    flags = [
        "-Xmx256m",
        f"-Duser.home={home}",
        f"-Drmq.logback.configurationFile={home}/conf/logback_tools.xml",
        f"-Drocketmq.client.logRoot={home}/logs",
    ]
    return java_command(
        cluster.class_path(),
        main_class,
        flags=flags,
        arguments=list(arguments),
        is_brief=True,
    )


def mqadmin(cluster: RealCluster, *arguments: str) -> str:
    """Run `mqadmin ARGUMENTS -n NAMESRV`, and return what it prints."""
    return run_java(cluster, MQADMIN_MAIN, [*arguments, "-n", cluster.namesrv])


def java_producer(
    cluster: RealCluster,
    specs: Iterable[dict[str, Any]],
    *,
    compress_over_bytes: int = 4096,
    trace: bool = False,
) -> list[dict[str, Any]]:
    """Send `specs` (see Producer.java) in order; return an answer for each."""
    lines = "".join(json.dumps(spec) + "\n" for spec in specs)
    arguments = [cluster.namesrv, str(compress_over_bytes)]
    if trace:
        arguments.append("trace")
    output = run_java(cluster, "Producer", arguments, stdin=lines)
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def fill(
    cluster: RealCluster,
    topic: str,
    messages: int,
    *,
    body_bytes: int = 128,
    batch_size: int = 200,
    keys: bool = False,
) -> None:
    """Fill `topic` fast; Filler.java says what each message contains."""
    numbers = [str(messages), str(body_bytes), str(batch_size), "4"]
    arguments = [cluster.namesrv, topic, *numbers, "keys" if keys else "-"]
    run_java(cluster, "Filler", arguments, timeout_s=600)


class JavaConsumer:
    """A push consumer in its own process; `messages` grows as it consumes.

    Options are those of Consumer.java. Leaving the context shuts it down cleanly,
    which commits its offsets.
    """

    def __init__(
        self, cluster: RealCluster, group: str, topic: str, **options: object
    ) -> None:
        values = {
            "namesrv": cluster.namesrv,
            "group": group,
            "topic": topic,
            "subExpression": "*",
            "from": "FIRST",
            "slowMs": 0,
            "failTimes": 0,
            "stopAfter": 0,
            "persistMs": 500,
            "pullBatchSize": 32,
            "consumeThreads": 4,
            **options,
        }
        self.messages: list[dict[str, Any]] = []
        self.client_id = ""
        #: whether a listener call waits for `release`; updated by `wait_until`
        self.is_blocked = False
        #: Java's standard error, shown when the process ends unexpectedly
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115  # until _end
        self._events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._process = subprocess.Popen(
            command_of(cluster, "Consumer", [json.dumps(values)]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
            cwd=cluster.tools_home(),
            env=java_environment(cluster.tools_home()),
            start_new_session=True,
        )
        GUARD.watch(self._process.pid)
        self._reader = threading.Thread(target=self._read, name="java-consumer")
        self._reader.start()

    def __enter__(self) -> Self:
        try:
            self.wait_until(lambda: bool(self.client_id), what="start of the consumer")
        except AssertionError:
            self.kill()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def release(self) -> None:
        """Let a consumer that was started with `block` continue."""
        self._say("go")

    def wait_for(self, count: int, *, timeout_ms: int = 60_000) -> list[dict[str, Any]]:
        """Wait until it has consumed `count` messages; return all so far."""
        self.wait_until(
            lambda: len(self.messages) >= count,
            timeout_ms=timeout_ms,
            what=f"{count} messages",
        )
        return list(self.messages)

    def wait_until(
        self, claim: Callable[[], bool], *, what: str, timeout_ms: int = 60_000
    ) -> None:
        """Wait until `claim()` is true; it is called again after each event."""
        limit = time.monotonic() + timeout_ms / 1000
        while True:
            self._take_events()
            if claim():
                return
            if time.monotonic() > limit:
                raise AssertionError(f"no {what}; {len(self.messages)} consumed")
            self._wait_event()

    def stop(self) -> None:
        """Shut down cleanly and wait. Idempotent."""
        self._say("stop")
        self._end(timeout_s=120)

    def kill(self) -> None:
        """SIGKILL: nothing is committed or unregistered. Idempotent."""
        self._process.kill()
        self._end(timeout_s=60)

    def _end(self, *, timeout_s: int) -> None:
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        self._take_events()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None and not pipe.closed:
                pipe.close()
        self._complaints.close()
        if not self._ended:
            self._ended = True
            GUARD.forget(self._process.pid)

    _ended = False

    def _say(self, word: str) -> None:
        stdin = self._process.stdin
        if stdin is None or stdin.closed or self._process.poll() is not None:
            return
        try:
            stdin.write(word + "\n")
            stdin.flush()
        except BrokenPipeError:
            return  # it ended by itself in the meantime

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                self._events.put(json.loads(line))

    def _wait_event(self) -> None:
        try:
            self._handle(self._events.get(timeout=0.1))
        except queue.Empty:
            if self._process.poll() is not None and self._events.empty():
                code = self._process.returncode
                raise AssertionError(
                    f"the consumer ended: {code}\n{self._complaint()}"
                ) from None

    def _complaint(self) -> str:
        self._complaints.seek(0)
        return self._complaints.read()[-2000:].decode(errors="replace")

    def _take_events(self) -> None:
        while not self._events.empty():
            self._handle(self._events.get())

    def _handle(self, event: dict[str, Any]) -> None:
        if event["event"] == "message":
            self.messages.append(event)
        elif event["event"] == "started":
            self.client_id = event["clientId"]
        elif event["event"] == "blocked":
            self.is_blocked = True
