"""Members that are killed, stopped and started at random: is every message consumed?

    python -m tests.consumer.chaos --kills 200
    python -m tests.consumer.chaos --kills 40 --signals term --orderly --real 5.5.0

Members are `rmq consume` processes whose output goes to files, the broker is `rmq
broker` or a real one, and numbered messages are sent all the time. No message may be
lost, whatever happens. When members are only asked to end (`term`), no message may be
consumed twice. Then, unless `--orderly`, a member joins only when the group is calm,
that is, when each queue has an owner and no lag: as with Java, a queue that changes its
owner while it is consumed is consumed again from its last committed offset. Prints a
summary as JSON; the exit status is 1 when a check failed.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.kit.cluster import RealCluster
from tests.kit.guard import GUARD
from tests.kit.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]
TOPIC = "chaos"
GROUP = "chaos-group"
QUEUES = 8
#: A dead member keeps its locks for a minute, and other members try to lock every 20 s.
DRAIN_S = 150
SIGNALS = {
    "kill": signal.SIGKILL,
    "term": signal.SIGTERM,
    "stop": signal.SIGSTOP,
}
#: The exit code of `rmq consume` after a signal that it handles.
INTERRUPTED = 130


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The parameters of a run. `signals` are names in SIGNALS."""

    kills: int
    signals: tuple[str, ...] = tuple(SIGNALS)
    orderly: bool = False
    members: int = 3
    rate: int = 200
    seed: int = 1

    @property
    def is_gentle(self) -> bool:
        """Whether members end only by SIGTERM, so no message may be consumed twice."""
        return self.signals == ("term",)


def rmq(*words, **options):
    """Start `rmq` as a process that never outlives this one."""
    process = subprocess.Popen(
        [sys.executable, "-m", "rmqcli", *words],
        cwd=ROOT,
        start_new_session=True,
        **options,
    )
    GUARD.watch(process.pid)
    return process


def until(claim, what, *, timeout_s=60.0):
    """Wait until `claim()` is true."""
    end = time.monotonic() + timeout_s
    pause = threading.Event()
    while not claim():
        if time.monotonic() > end:
            raise AssertionError(f"not in {timeout_s:.0f} s: {what}")
        pause.wait(0.05)


class Producer:
    """Sends the messages 0, 1, 2, ... through one `rmq send`."""

    def __init__(self, namesrv, rate, folder):
        self.sent = 0
        self._rate = rate
        self._over = threading.Event()
        self._go = threading.Event()
        self._go.set()
        with (folder / "send.err").open("wb") as err:
            self._process = rmq(
                *("send", TOPIC, "--lines", "-", "-n", namesrv, "-q", "-o", "jsonl"),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=err,
            )
        self._thread = threading.Thread(target=self._run, name="producer")
        self._thread.start()

    def _run(self):
        stdin = self._process.stdin
        while not self._over.wait(0.02):
            if self._go.is_set():
                count = max(1, self._rate // 50)
                lines = "".join(f"{self.sent + n}\n" for n in range(count))
                stdin.write(lines.encode())
                stdin.flush()
                self.sent += count
        stdin.close()

    def pause(self):
        self._go.clear()

    def resume(self):
        self._go.set()

    def stop(self):
        """Stop sending; raise AssertionError unless `rmq send` ended successfully."""
        self._over.set()
        self._thread.join()
        code = self._process.wait(60)
        GUARD.forget(self._process.pid)
        assert code == 0, f"rmq send ended with {code}"


class Life:
    """The life of one member; each line of its output is `queue offset number`."""

    def __init__(self, namesrv, folder, *, orderly):
        self.out_path, self.err_path = folder / "out", folder / "err"
        self.is_stopped = False
        words = ["consume", TOPIC, "-g", GROUP, "-n", namesrv, "--from", "first"]
        words += ["--format", r"%q %o %v\n", "--threads", "2"]
        if orderly:
            words.append("--orderly")
        with self.out_path.open("wb") as out, self.err_path.open("wb") as err:
            self.process = rmq(*words, stdin=subprocess.DEVNULL, stdout=out, stderr=err)

    def records(self):
        """Return (queue, offset, number) of each whole line.

        The message of an incomplete line was not committed.
        """
        whole = self.out_path.read_bytes().rpartition(b"\n")[0]
        return [tuple(map(int, line.split())) for line in whole.splitlines()]

    def has_joined(self):
        assert self.process.poll() is None, self.err_path.read_text()[-2000:]
        return "joined group" in self.err_path.read_text()

    def send(self, signum):
        self.process.send_signal(signum)
        self.is_stopped = signum == signal.SIGSTOP

    def end(self, signum):
        """End the member by this signal; return its exit code."""
        if self.is_stopped:
            self.send(signal.SIGCONT)
        self.send(signum)
        code = self.process.wait(60)
        GUARD.forget(self.process.pid)
        return code


class Chaos:
    """One run of a plan."""

    def __init__(self, plan, namesrv, folder):
        self._plan, self._namesrv, self._folder = plan, namesrv, folder
        self._rng = random.Random(plan.seed)
        self._lives = []
        self._running = []
        self._counts = dict.fromkeys(plan.signals, 0)
        self._wrong = []

    def run(self):
        """Carry out the plan; return the summary."""
        started = time.monotonic()
        for _ in range(self._plan.members):
            self._start()
        until(self._is_calm, "a calm group", timeout_s=90)
        self._producer = Producer(self._namesrv, self._plan.rate, self._folder)
        try:
            for _ in range(self._plan.kills):
                self._hurt_one()
        finally:
            self._heal()
            self._producer.stop()
        chaos_s = time.monotonic() - started
        self._drain()
        summary = self._judge()
        summary["chaos_s"] = round(chaos_s, 1)
        summary["drain_s"] = round(time.monotonic() - started - chaos_s, 1)
        return summary

    def _start(self):
        folder = self._folder / f"life-{len(self._lives)}"
        folder.mkdir()
        life = Life(self._namesrv, folder, orderly=self._plan.orderly)
        self._lives.append(life)
        self._running.append(life)
        until(life.has_joined, f"{folder.name} joins")

    def _hurt_one(self):
        """After a moment, stop a member, or end it and start another one."""
        # The next owner of a locked queue gets its lock up to a second later.
        self._live(0, 2.5 if self._plan.orderly else 0.6)
        name = self._rng.choice(self._plan.signals)
        life = self._rng.choice(self._running)
        self._counts[name] += 1
        if name == "stop":
            life.send(signal.SIGSTOP)
            if self._rng.random() < 0.7:
                self._live(0, 2)
                life.send(signal.SIGCONT)
            # Otherwise it stays stopped until `_heal` or until it is ended.
            return
        self._running.remove(life)
        code = life.end(SIGNALS[name])
        if name == "term" and code != INTERRUPTED:
            said = life.err_path.read_text()[-500:]
            self._wrong.append(f"SIGTERM ended with {code}: {said}")
        self._live(0, 0.4)
        self._join_one()
        if self._rng.random() < 0.3:
            self._heal()

    def _join_one(self):
        if not self._plan.is_gentle or self._plan.orderly:
            self._start()
            return
        self._producer.pause()
        until(self._is_calm, "a calm group", timeout_s=90)
        self._start()
        until(self._is_calm, "a calm group", timeout_s=90)
        self._producer.resume()

    def _live(self, low_s, high_s):
        threading.Event().wait(self._rng.uniform(low_s, high_s))

    def _is_calm(self):
        group = self._lag()
        held = [
            [queue for queue in member["queues"] or () if queue.startswith(TOPIC)]
            for member in group.get("members") or ()
        ]
        each_once = sorted(queue for queues in held for queue in queues)
        return (
            len(held) == len(self._running)
            and all(held)
            and len(each_once) == len(set(each_once)) == QUEUES
            and all(q["lag"] == 0 for q in group["queues"] if q["topic"] == TOPIC)
        )

    def _lag(self):
        """Return the group as `rmq lag` shows it; empty while the group is unknown."""
        words = ["lag", GROUP, "-n", self._namesrv, "-o", "json"]
        done = subprocess.run(
            [sys.executable, "-m", "rmqcli", *words],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        return json.loads(done.stdout)[0] if done.returncode == 0 else {}

    def _heal(self):
        for life in self._running:
            if life.is_stopped:
                life.send(signal.SIGCONT)

    def _drain(self):
        """Wait up to DRAIN_S until all messages are consumed; then end all members."""
        end = time.monotonic() + DRAIN_S
        pause = threading.Event()
        while self._missing() and time.monotonic() < end:
            pause.wait(0.5)
        for life in self._running:
            code = life.end(signal.SIGTERM)
            if code != INTERRUPTED:
                self._wrong.append(f"the last SIGTERM ended with {code}")
        queues = [q for q in self._lag()["queues"] if q["topic"] == TOPIC]
        lags = {queue["queue_id"]: queue["lag"] for queue in queues}
        if any(lags.get(queue_id) != 0 for queue_id in range(QUEUES)):
            self._wrong.append(f"at the end the lags are {lags}")

    def _missing(self):
        seen = {number for life in self._lives for _, _, number in life.records()}
        return set(range(self._producer.sent)) - seen

    def _judge(self):
        numbers = [record[2] for life in self._lives for record in life.records()]
        lost = sorted(self._missing())
        twice = len(numbers) - len(set(numbers))
        back = sum(went_back(life.records()) for life in self._lives)
        if lost:
            self._wrong.append(f"{len(lost)} are lost, first {lost[:5]}")
        if self._plan.is_gentle and twice:
            self._wrong.append(f"{twice} came twice")
        if self._plan.is_gentle and self._plan.orderly and back:
            self._wrong.append(f"a queue went back {back} times")
        return {
            "seed": self._plan.seed,
            "orderly": self._plan.orderly,
            "signals": self._counts,
            "lives": len(self._lives),
            "sent": self._producer.sent,
            "consumed": len(set(numbers)),
            "lost": len(lost),
            "twice": twice,
            "wrong": self._wrong,
        }

    def abandon(self):
        """Kill the members that are still running."""
        for life in self._lives:
            if life.process.poll() is None:
                life.end(signal.SIGKILL)


def went_back(records):
    """Count how often a queue's next offset was not higher than the previous one."""
    last: dict[int, int] = {}
    count = 0
    for queue_id, offset, _ in records:
        count += offset <= last.get(queue_id, -1)
        last[queue_id] = offset
    return count


@contextmanager
def embedded(folder):
    """Run `rmq serve --store` as a process; yield its name server's address."""
    words = ["serve", "--listen", "127.0.0.1:0", "--store", str(folder / "store")]
    with (folder / "broker.err").open("wb") as err:
        broker = rmq(*words, "-o", "jsonl", stdout=subprocess.PIPE, stderr=err)
    try:
        yield json.loads(broker.stdout.readline())["address"]
    finally:
        broker.terminate()
        code = broker.wait(30)
        broker.stdout.close()
        GUARD.forget(broker.pid)
    assert code == 0, (folder / "broker.err").read_text()[-2000:]


@contextmanager
def real(version, folder):
    """Run a real cluster; yield its name server's address."""
    with RealCluster(version, folder / "real") as cluster:
        yield cluster.namesrv


def run(plan, folder, *, version=None):
    """Carry `plan` out in `folder`; return the summary."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        servers = embedded(folder) if version is None else real(version, folder)
        namesrv = stack.enter_context(servers)
        words = ["topic", "create", TOPIC, "--queues", str(QUEUES), "-n", namesrv]
        created = rmq(*words, "--yes", "-q", stdout=subprocess.DEVNULL)
        assert created.wait(60) == 0
        GUARD.forget(created.pid)
        chaos = Chaos(plan, namesrv, folder)
        stack.callback(chaos.abandon)
        return chaos.run()


def main():
    """Parse the options, run, print the summary."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--signals", default=",".join(SIGNALS))
    parser.add_argument("--orderly", action="store_true")
    parser.add_argument("--members", type=int)
    parser.add_argument("--rate", type=int, default=200, help="messages a second")
    parser.add_argument("--real", metavar="VERSION")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--keep", type=Path, help="folder for all output")
    options = parser.parse_args()
    signals = tuple(options.signals.split(","))
    if unknown := set(signals) - set(SIGNALS):
        parser.error(f"--signals {', '.join(sorted(unknown))}: not of {[*SIGNALS]}")
    # With two members, one takes over all queues of the other, so no other queue moves.
    members = 2 if signals == ("term",) and not options.orderly else 3
    plan = Plan(
        kills=options.kills,
        signals=signals,
        orderly=options.orderly,
        members=options.members or members,
        rate=options.rate,
        seed=options.seed,
    )
    with tempfile.TemporaryDirectory(prefix="rmq-chaos-") as directory:
        folder = options.keep or Path(directory)
        summary = run(plan, folder, version=options.real)
    print(json.dumps(summary, indent=2))
    sys.exit(1 if summary["wrong"] else 0)


if __name__ == "__main__":
    main()
