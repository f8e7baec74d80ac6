"""Starts one consumer, Java's or ours, in a process, and reports what it used.

The benchmarks of consumers compare the results. Both programs, BenchConsumer.java and
ours.py, count in the same way.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from tests.kit import configuration
from tests.kit.artefacts import class_path
from tests.kit.cluster import RealCluster
from tests.kit.java_program import fill
from tests.kit.process import java_command, java_environment

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

JAVA = "java"
OURS = "ours"
#: A B B A: drift (heat, page cache, the broker's compiler) affects both alike.
ORDER = (JAVA, OURS, OURS, JAVA)

MODES: dict[str, dict[str, Any]] = {
    "concurrent": {"orderly": False, "batch": 1},
    "batch32": {"orderly": False, "batch": 32},
    "orderly": {"orderly": True, "batch": 1},
}


class Took(NamedTuple):
    """What a consumer used for `seen` messages; `done` is its last event.

    `start_s` is the time from the start of the process to the first message, and
    `cpu_s` the user and system time of the process, including its start and end.
    """

    seen: int
    span_s: float
    start_s: float
    cpu_s: float
    peak_mib: float
    done: dict[str, Any]


class Place(NamedTuple):
    """The cluster and topic to consume, and the version of the Java client."""

    namesrv: str
    topic: str
    version: str


class MemberProcess:
    """A consumer in its own process and in a new group. A context manager."""

    def __init__(self, who: str, at: Place, options: dict[str, Any]) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="rmq-bench-")
        values = {
            "namesrv": at.namesrv,
            "topic": at.topic,
            "group": f"bench-{who}-{uuid.uuid4().hex[:12]}",
            **options,
        }
        self.group = values["group"]
        command = [sys.executable, "-m", "tests.bench.consume.ours", json.dumps(values)]
        environment = {**os.environ}
        if who == JAVA:
            home = Path(self._home.name)
            command = _java(at.version, home, json.dumps(values))
            environment = java_environment(home)
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        self._events: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._began_us = time.time_ns() // 1_000
        self._start_s = 0.0
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.pid = self._process.pid
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.returncode is None:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._home.cleanup()

    def event(self, name: str, *, timeout_s: float) -> dict[str, Any]:
        """Wait for an event; raise RuntimeError if it does not come."""
        deadline = time.monotonic() + timeout_s
        while True:
            left_s = max(0, deadline - time.monotonic())
            try:
                found = self._events.get(timeout=left_s)
            except queue.Empty:
                raise RuntimeError(f"no event {name} in {timeout_s} s") from None
            if found is None:
                raise RuntimeError(f"the consumer ended before event {name}")
            if found["event"] == "first":
                self._start_s = (found["epochUs"] - self._began_us) / 1e6
            if found["event"] == name:
                return found

    def until_done(self, *, timeout_s: float = 180) -> Took:
        """Wait until the consumer has counted all messages and has ended."""
        return self._took(self.event("done", timeout_s=timeout_s))

    def stop(self) -> Took:
        """End a consumer that does not end by itself."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._took({"seen": 0, "spanS": 0.0})

    def _took(self, done: dict[str, Any]) -> Took:
        _, status, usage = os.wait4(self.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        if self._process.returncode != 0:
            raise RuntimeError(f"a consumer exited {self._process.returncode}")
        return Took(
            seen=done["seen"],
            span_s=done["spanS"],
            start_s=self._start_s,
            cpu_s=usage.ru_utime + usage.ru_stime,
            peak_mib=usage.ru_maxrss / 1024,
            done=done,
        )

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                self._events.put(json.loads(line))
        self._events.put(None)


def figures(took: Took) -> dict[str, float]:
    """Return the figures of a run that are compared."""
    return {
        "messages_per_s": round(took.seen / took.span_s),
        "messages_per_cpu_s": round(took.seen / took.cpu_s),
        "span_s": round(took.span_s, 3),
        "start_s": round(took.start_s, 3),
        "cpu_s": round(took.cpu_s, 2),
        "peak_mib": round(took.peak_mib),
    }


def measured(who: str, at: Place, *, mode: str, messages: int) -> dict[str, float]:
    """Run one consumer, and return its figures."""
    with MemberProcess(who, at, {**MODES[mode], "messages": messages}) as member:
        return figures(member.until_done())


def cpu_s(pid: int) -> float:
    """Return the CPU time that a running process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mib(pid: int) -> float:
    """Return the resident memory of a running process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@contextlib.contextmanager
def cluster_of(version: str, *, brokers: int = 1) -> Iterator[RealCluster]:
    """Yield a new real cluster with RocketMQ's own file sizes."""
    with (
        tempfile.TemporaryDirectory(prefix="rmq-bench-") as folder,
        RealCluster(
            version,
            Path(folder),
            brokers=brokers,
            conf=configuration.LARGE_STORE,
            heap_mb=1024,
        ) as cluster,
    ):
        yield cluster


@contextlib.contextmanager
def filled(options: argparse.Namespace) -> Iterator[Place]:
    """Yield the topic that the options name, or a filled one of a new cluster."""
    if options.namesrv:
        yield Place(options.namesrv, options.topic, options.version)
        return
    with cluster_of(options.version) as cluster:
        topic = cluster.create_topic(queues=options.queues)
        fill(cluster, topic, messages=options.messages, body_bytes=128)
        yield Place(cluster.namesrv, topic, options.version)


def _java(version: str, home: Path, argument: str) -> list[str]:
    conf = home / "conf"
    conf.mkdir()
    logback = conf / "logback_tools.xml"
    logback.write_text(configuration.logback(version, level="ERROR"))
    flags = [
        "-Xmx1g",
        f"-Duser.home={home}",
        f"-Drmq.logback.configurationFile={logback}",
        f"-Drocketmq.client.logRoot={home}/logs",
    ]
    return java_command(
        class_path(version), "BenchConsumer", flags=flags, arguments=[argument]
    )
