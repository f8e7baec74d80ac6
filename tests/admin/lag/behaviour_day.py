"""A day of a group with queues, producers, members and faults, in steps of 5 s.

Faults are planted with the times between which a check has to find them. What else
happens is what healthy groups do: bursts, nights without traffic, rebalances, lost
commits, slow messages, and a check that misses runs or has a clock that jumps.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from rmqcli.admin.lag.behaviour import History, observe
from rmqcli.admin.lag.members import Members
from rmqcli.admin.lag.model import BrokerFailure, GroupReading, compute_lag
from rmqcli.engine.queue_lag import QueueReading
from rmqcli.wire.bodies.consumer import Connection, ConsumerConnection

STEP_MS = 5_000
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
WINDOW_MS = 10 * MINUTE_MS
START_MS = 1_767_322_800_000
QUEUES = 6


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

    def delay_ms(self, fault):
        """How long the check looked until it found the fault.

        A time without runs counts as half a window, as in the check itself.
        """
        assert fault.found_ms is not None, f"seed {self.seed}: {fault} was missed"
        runs = [t for t in self.runs if fault.begin_ms <= t <= fault.found_ms]
        gaps = zip([fault.begin_ms, *runs], runs, strict=False)
        return sum(min(after - before, WINDOW_MS // 2) for before, after in gaps)

    def run(self):
        rng = random.Random(self.seed)
        queues = [Queue() for _ in range(QUEUES)]
        rates = [rng.choice([0.02, 0.3, 5, 80]) for _ in queues]
        history = History()
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
            history = self._check(queues, history, active, alarms, now_ms)
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

    def _check(self, queues, history, active, alarms, now_ms):
        is_stopped = any(fault.verdict == "STOPPED" for fault in active)
        silent = {n for n, begin, end in self.silent if begin <= now_ms < end}
        reading = GroupReading(group="G", members=None if is_stopped else members())
        for queue_id, queue in enumerate(queues):
            broker = "broker-a" if queue_id % 2 else "broker-b"
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
        clock_ms = START_MS + now_ms + sum(by for at, by in self.jumps if at <= now_ms)
        history, behaviour = observe(
            history, compute_lag(reading), at_ms=clock_ms, window_ms=WINDOW_MS
        )
        verdict = behaviour.verdict.value
        self.runs.append(now_ms)
        for fault in active:
            if verdict == fault.verdict and fault.found_ms is None:
                fault.found_ms = now_ms
        if verdict == "UNKNOWN":
            # An unknown verdict has its cause: a silent broker, or the first window.
            assert silent or now_ms < 2 * WINDOW_MS, behaviour
        if silent:
            assert verdict not in ("OK", "BEHIND", "GROWING"), behaviour
        is_late = any(queue.committed < queue.late for queue in queues)
        recent = any(f.begin_ms <= now_ms <= f.end_ms + WINDOW_MS for f in self.faults)
        if verdict in BAD and not is_late and not recent:
            alarms.append((now_ms, behaviour))
        return history


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
