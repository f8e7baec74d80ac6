"""A day of a group with queues, producers, members and faults, in steps of 5 s.

    python -m tests.admin.lag.behaviour_day [--seeds 0-39] [--cluster]

prints for each day how many false alarms there were, and after how long each fault was
found. Faults are planted with the times between which a check has to find them. What
else happens is what healthy groups do: bursts, nights without traffic, rebalances, lost
commits, slow messages, and a check that misses runs or has a clock that jumps. With
`--cluster` the day happens on an embedded cluster, and each run of the check asks its
brokers and keeps its history in files, as `rmq check lag --behaviour` does.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import statistics
import tempfile
from collections import defaultdict
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import ClassVar

from rmqcli.admin.check import measure_behaviour
from rmqcli.admin.lag.behaviour import History, observe
from rmqcli.admin.lag.members import Members
from rmqcli.admin.lag.model import BrokerFailure, GroupReading, compute_lag
from rmqcli.api.client import Client
from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.config import ClientConfig
from rmqcli.engine.queue_lag import QueueReading
from rmqcli.errors import RmqError
from rmqcli.testing import ManualClock
from rmqcli.units import format_duration
from rmqcli.wire.bodies.consumer import Connection, ConsumerConnection
from tests.admin.doctor.planting import heartbeat, open_client
from tests.exporter.pages import ShiftedClock

STEP_MS = 5_000
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
WINDOW_MS = 10 * MINUTE_MS
START_MS = 1_767_322_800_000
QUEUES = 6
#: In a queue of a cluster when its day begins, so that the group can go back.
MESSAGES_BEFORE = 2_000


@dataclass
class Fault:
    """What a check has to call `verdict` between these times, or later."""

    verdict: str
    begin_ms: int
    end_ms: int
    queue_id: int | None = None
    found_ms: int | None = None


@dataclass
class Queue:
    stored: int = 100_000
    consumed: int = 100_000
    committed: int = 100_000
    #: messages before this offset have waited because of a fault
    late: int = 0
    #: until when the member works at one message
    busy_until_ms: int = 0
    due: float = 0.0


@dataclass
class Day:
    """One day by a seed; `run` returns false alarms, and notes what was found when."""

    seed: int
    faults: list[Fault] = field(default_factory=list)
    #: broker -> (from, to), in which it does not answer
    silent: list[tuple[str, int, int]] = field(default_factory=list)
    #: (at, by) of the clock of the machine that checks
    jumps: list[tuple[int, int]] = field(default_factory=list)
    #: when the check ran
    runs: list[int] = field(default_factory=list)
    history: History = field(default_factory=History)
    #: messages a second in a queue
    rates: ClassVar = [0.02, 0.3, 5, 80]

    def delay_ms(self, fault):
        """How long the check looked until it found the fault.

        A time without runs counts as half a window, as in the check itself.
        """
        assert fault.found_ms is not None, f"seed {self.seed}: {fault} was missed"
        runs = [t for t in self.runs if fault.begin_ms <= t <= fault.found_ms]
        gaps = zip([fault.begin_ms, *runs], runs, strict=False)
        return sum(min(after - before, WINDOW_MS // 2) for before, after in gaps)

    def is_watched(self, fault):
        """Whether the check ran each minute from the fault until it was found."""
        runs = [t for t in self.runs if t <= fault.found_ms]
        gaps = itertools.pairwise(runs)
        return all(b - a <= 75_000 for a, b in gaps if b >= fault.begin_ms)

    def is_made_up_for(self, fault):
        """Whether a rewind was over before a run of the check could see it."""
        return fault.verdict == "REWOUND" and not any(
            0 <= run_ms - fault.begin_ms <= 5 * MINUTE_MS for run_ms in self.runs
        )

    def run(self):
        rng = random.Random(self.seed)
        queues = [Queue() for _ in range(QUEUES)]
        rates = [rng.choice(self.rates) for _ in queues]
        alarms: list[tuple[int, object]] = []
        next_ms, rebalance_until_ms, burst = 0, 0, (0, 1.0)
        for now_ms in range(0, DAY_MS, STEP_MS):
            if rng.random() < 1 / 1440:
                burst = (now_ms + rng.randrange(10) * MINUTE_MS, rng.choice([5, 40]))
            if rng.random() < 1 / 2880:
                rebalance_until_ms = now_ms + rng.randrange(5, 120) * 1000
                for queue in queues:  # what was not committed is consumed again
                    queue.consumed = queue.committed
            active = [f for f in self.faults if f.begin_ms <= now_ms < f.end_ms]
            for queue_id, (queue, rate) in enumerate(zip(queues, rates, strict=True)):
                hit = next((f for f in active if f.queue_id in (None, queue_id)), None)
                night = now_ms % DAY_MS < 6 * HOUR_MS and not hit
                factor = burst[1] if now_ms < burst[0] else 1.0
                if hit:
                    # A stall without messages is none.
                    queue.due += max(rate, 0.3) * STEP_MS / 1000
                elif not night:
                    queue.due += rate * factor * rng.random() * 2 * STEP_MS / 1000
                queue.stored += int(queue.due)
                queue.due -= int(queue.due)
                self._consume(rng, queue, rate, hit, now_ms, rebalance_until_ms)
            if now_ms < next_ms:
                continue
            next_ms = (
                now_ms + rng.choice([12] * 200 + [11, 13, 14, 30] * 9 + [400]) * STEP_MS
            )
            self._check(queues, active, alarms, now_ms)
        return alarms

    def _consume(self, rng, queue, rate, hit, now_ms, rebalance_until_ms):
        ahead = queue.stored - queue.consumed
        stands = hit is not None and hit.verdict in ("STALLED", "STOPPED")
        if stands:
            queue.late = queue.stored
            return
        if hit is not None and hit.verdict == "REWOUND":
            if hit.begin_ms == now_ms:
                queue.committed -= int(1000 + rate * 600)
                queue.consumed = queue.committed
            queue.late = queue.stored
        if now_ms < rebalance_until_ms or now_ms < queue.busy_until_ms:
            return
        if rng.random() < 1 / 8_000:  # a slow message, or one that fails and waits
            queue.busy_until_ms = now_ms + rng.randrange(10, 300) * 1000
        quick = 60 if hit is None else 2
        most = int(max(rate, 1) * quick * STEP_MS / 1000)
        if hit is not None and hit.verdict == "GROWING":
            most = int(max(rate, 0.3) * 0.4 * STEP_MS / 1000 + rng.random())
            queue.late = queue.stored
        queue.consumed += min(ahead, most)
        queue.committed = queue.consumed - min(
            queue.consumed - queue.committed, rng.randrange(2)
        )

    def _check(self, queues, active, alarms, now_ms):
        is_stopped = any(fault.verdict == "STOPPED" for fault in active)
        silent = {n for n, begin, end in self.silent if begin <= now_ms < end}
        clock_ms = START_MS + now_ms + sum(by for at, by in self.jumps if at <= now_ms)
        verdict, reason = self._judge(queues, silent, is_stopped, clock_ms)
        self.runs.append(now_ms)
        for fault in active:
            if verdict == fault.verdict and fault.found_ms is None:
                fault.found_ms = now_ms
        if verdict == "UNKNOWN":
            # An unknown verdict has its cause: a silent broker, or the first window.
            assert silent or now_ms < 2 * WINDOW_MS, reason
        if silent:
            assert verdict not in ("OK", "BEHIND", "GROWING"), reason
        is_late = any(queue.committed < queue.late for queue in queues)
        recent = any(f.begin_ms <= now_ms <= f.end_ms + WINDOW_MS for f in self.faults)
        if verdict in BAD and not is_late and not recent:
            alarms.append((now_ms, verdict, reason))

    def _judge(self, queues, silent, is_stopped, clock_ms):
        """Return the verdict and its reason at this time of the check's machine."""
        reading = GroupReading(group="G", members=None if is_stopped else members())
        for queue_id, queue in enumerate(queues):
            broker = broker_of(queue_id)
            is_silent = broker in silent
            reading.queues.append(
                QueueReading(
                    topic="T",
                    broker_name=broker,
                    queue_id=queue_id,
                    committed=None if is_silent else queue.committed,
                    min_offset=None if is_silent else 0,
                    max_offset=None if is_silent else queue.stored,
                    failure="no answer" if is_silent else None,
                )
            )
        for broker in silent:
            reading.failures.append(
                BrokerFailure(broker_name=broker, address=None, message="no answer")
            )
        self.history, behaviour = observe(
            self.history, compute_lag(reading), at_ms=clock_ms, window_ms=WINDOW_MS
        )
        return behaviour.verdict.value, behaviour.reason


def broker_of(queue_id):
    return "broker-a" if queue_id % 2 else "broker-b"


class ClusterDay(Day):
    """A day of quiet queues of two embedded brokers; silent ones are killed.

    The state folder must be new.
    """

    rates: ClassVar = [0.02, 0.3]

    def run(self):
        with ExitStack() as self.stack:
            self.cluster = self.stack.enter_context(
                EmbeddedCluster(brokers=2, queues=QUEUES, clock=ManualClock())
            )
            self.cluster.create_topic("T")
            self.cluster.create_group("G")
            self.member = None
            self.sent = [Queue().stored] * QUEUES
            for queue_id in range(QUEUES):
                self._send(queue_id, MESSAGES_BEFORE)
            return super().run()

    def _send(self, queue_id, count):
        broker = broker_of(queue_id)
        self.cluster.send("T", ["x"] * count, queue_id=queue_id, broker=broker)

    def _judge(self, queues, silent, is_stopped, clock_ms):
        for broker in self.cluster.brokers:
            if broker.name in silent:
                broker.kill()
            elif not broker.is_running:
                broker.restart()
        for queue_id, queue in enumerate(queues):
            if broker_of(queue_id) not in silent:
                self._send(queue_id, queue.stored - self.sent[queue_id])
                self.sent[queue_id] = queue.stored
                self._commit(queue_id, queue.committed)
        self._join_or_leave(is_stopped)
        config = ClientConfig(namesrv=(self.cluster.namesrv,), timeout_ms=30_000)
        clock = ShiftedClock()
        clock.ahead_ms = clock_ms - clock.epoch_ms()
        with Client(config, clock=clock) as client:
            try:
                (found,) = measure_behaviour(client, ["*"], window_ms=WINDOW_MS)
            except RmqError as error:  # the command says UNKNOWN
                return "UNKNOWN", error.message
        return found.verdict, found.reason

    def _commit(self, queue_id, committed):
        offsets = self.cluster.broker(broker_of(queue_id)).state.offsets
        offset = committed - Queue().stored + MESSAGES_BEFORE
        self.cluster.call(lambda: offsets.commit("G", "T", queue_id, offset))

    def _join_or_leave(self, is_stopped):
        if is_stopped and self.member is not None:
            self.member.close()
            self.member = None
        elif not is_stopped:
            if self.member is None:
                self.member = self.stack.enter_context(
                    open_client(self.cluster.namesrv)
                )
            with suppress(RmqError):  # the broker may be away
                heartbeat(self.member, "G", "c1", topic="T")


BAD = ("GROWING", "STALLED", "STOPPED", "REWOUND", "AHEAD", "EXPIRED")


def members():
    online = Members()
    online.add(
        ConsumerConnection(
            connections=(
                Connection(
                    client_id="c1", client_addr="127.0.0.1:1", language=0, version=409
                ),
            ),
            subscriptions={},
            message_model="CLUSTERING",
        )
    )
    return online


def planted_day(seed, kind=Day):
    rng = random.Random(seed)
    at = [hour * HOUR_MS + rng.randrange(50) * MINUTE_MS for hour in range(24)]
    queue = [rng.randrange(6) for _ in range(24)]
    return kind(
        seed,
        faults=[
            Fault("STALLED", at[2], at[2] + 40 * MINUTE_MS, queue[2]),
            Fault("STOPPED", at[5], at[5] + HOUR_MS),
            Fault("REWOUND", at[8], at[8] + HOUR_MS, queue[8]),
            # An orderly listener that fails at one message again and again.
            Fault("STALLED", at[11], at[11] + HOUR_MS, queue[11]),
            Fault("GROWING", at[14], at[14] + 70 * MINUTE_MS, queue[14]),
            Fault("STALLED", at[20], at[20] + 2 * HOUR_MS, queue[20]),
        ],
        silent=[
            ("broker-a", at[17], at[17] + 20 * MINUTE_MS),
            ("broker-b", at[17] + 5 * MINUTE_MS, at[17] + 9 * MINUTE_MS),
        ],
        jumps=[(at[1], HOUR_MS), (at[10], -2 * HOUR_MS), (at[18], 5 * HOUR_MS)],
    )


def judge_days(seed, kind=Day):
    """Run a healthy day and one with faults; return the second one.

    Raises AssertionError for a false alarm, and for a fault that was found late.
    """
    quiet = kind(seed, jumps=planted_day(seed).jumps)
    assert quiet.run() == [], f"seed {seed}: false alarms on a healthy day"
    return judge_planted_day(seed, kind)


def judge_planted_day(seed, kind=Day):
    """Do as `judge_days` without the healthy day."""
    day = planted_day(seed, kind)
    assert day.run() == [], f"seed {seed}: false alarms"
    for fault in day.faults:
        if day.is_made_up_for(fault):
            continue
        limit_ms = {"REWOUND": 5, "GROWING": 40}.get(fault.verdict, 16) * MINUTE_MS
        assert day.delay_ms(fault) <= limit_ms, (seed, fault)
    return day


def main():
    """Print what happened on the days of some seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0-39")
    parser.add_argument("--cluster", action="store_true")
    arguments = parser.parse_args()
    first, _, last = arguments.seeds.partition("-")
    found = defaultdict(list)
    runs = missed = 0
    for seed in range(int(first), int(last or first) + 1):
        with tempfile.TemporaryDirectory() as folder:
            os.environ["XDG_STATE_HOME"] = folder
            day = judge_days(seed, ClusterDay if arguments.cluster else Day)
        runs += len(day.runs)
        told = []
        for fault in day.faults:
            if day.is_made_up_for(fault):
                missed += 1
                told.append(f"{fault.verdict} between two runs")
                continue
            after_ms = fault.found_ms - fault.begin_ms
            found[fault.verdict].append((after_ms, day.is_watched(fault)))
            told.append(f"{fault.verdict} after {format_duration(after_ms)}")
        print(f"seed {seed}: {len(day.runs)} runs, 0 false alarms; {', '.join(told)}")
    print(f"{runs} runs with faults, 0 false alarms, {missed} rewinds between two runs")
    for verdict, delays in found.items():
        line = f"{verdict}: {len(delays)} of {len(delays)} found, {summary(delays)}"
        if watched := [each for each in delays if each[1]]:
            line += f"; {len(watched)} without a missed run: {summary(watched)}"
        print(line)


def summary(delays):
    after = [after_ms / MINUTE_MS for after_ms, _ in delays]
    median = statistics.median(after)
    return f"after {min(after):.1f} to {max(after):.1f} minutes (median {median:.1f})"


if __name__ == "__main__":
    main()
