"""When a consume thread owns the engine: after how many quick jobs, and until when.

The test's thread runs what consume threads would run, and time passes only in jobs.
"""

from __future__ import annotations

import time
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

import pytest

from rmqcli.api.client import Client
from rmqcli.config import ClientConfig
from rmqcli.consumer import engine_lease
from rmqcli.consumer.engine_lease import LeasingEngineThread
from rmqcli.consumer.engine_thread import EngineThread
from rmqcli.engine.consume.request import run_at_once
from rmqcli.testing import ManualClock
from tests.engine.world import World
from tests.kit.waiting import PATIENCE_S

if TYPE_CHECKING:
    from rmqcli.consumer.backend import Job

MS = 1_000_000  # in ns


class Lease:
    """An engine's thread, and the jobs that it gives to consume threads."""

    def __init__(self):
        self.spent_ns = 0
        self.clock = ManualClock()
        self.client = Client(ClientConfig(namesrv=("127.0.0.1:1",)), clock=self.clock)
        self.world = World()
        self.put_jobs: SimpleQueue[Job] = SimpleQueue()
        #: what `take` gave to consume threads
        self.taken: list[Job] = []
        self.thread = LeasingEngineThread(
            self.client,
            self,  # type: ignore[arg-type]  # jobs are run by the test
            on_end=lambda: None,
        )
        self.thread.start(self.world.engine)
        #: names of the jobs that have run, in order
        self.ran: list[str] = []

    def put(self, *jobs):
        """See JobRunner."""
        for job in jobs:
            self.put_jobs.put(job)

    def run_one(self):
        """Run what was taken last, as a consume thread does."""
        run_at_once(self.taken.pop()())

    def run_rest(self):
        """Run what else was put, while the engine has nothing to give."""
        while True:
            try:
                run_at_once(self.put_jobs.get_nowait()())
            except Empty:
                return

    def job(self, name, spent_ns=0, then=()):
        """A job that takes a given time, and then posts actions to the engine."""

        async def run():
            self.ran.append(name)
            self.spent_ns += spent_ns
            for action in then:
                self.thread.post(action)

        return run

    def take(self, name, spent_ns=0):
        """Let the engine take a job, and wait until a consume thread may run it."""
        job = self.job(name, spent_ns)
        self.thread.post(lambda: self.thread.take(job))
        self.taken.append(self.put_jobs.get(timeout=PATIENCE_S))

    def quick_jobs(self):
        """Take quick jobs until one is under a lease; return how many came before."""
        for number in range(100):
            self.take("quick")
            if self.thread.is_handed_off:
                return number
            self.run_one()
        raise AssertionError("the engine was never handed off")

    def end(self):
        self.thread.end()
        while self.taken:
            self.run_one()
        self.run_rest()
        self.thread.join()
        self.client.close()


@pytest.fixture
def lease(monkeypatch):
    monkeypatch.setattr(engine_lease, "CHECK_MS", PATIENCE_S * 1_000)
    made = Lease()
    monkeypatch.setattr(time, "perf_counter_ns", lambda: made.spent_ns)
    yield made
    made.end()


@pytest.mark.parametrize(("third_ns", "count"), [(MS, 8), (MS + 1, 11)])
def test_eight_quick_jobs_in_a_row_hand_the_engine_off(lease, third_ns, count):
    """A job of up to 1 ms is quick."""
    for spent_ns in (0, 0, third_ns):
        lease.take("first", spent_ns)
        assert not lease.thread.is_handed_off
        lease.run_one()
    assert 3 + lease.quick_jobs() == count


def test_the_engine_is_not_handed_off_while_a_job_is_with_another_thread(lease):
    lease.take("slow")
    slow = lease.taken.pop()
    for _ in range(20):
        lease.take("quick")
        assert not lease.thread.is_handed_off
        lease.run_one()
    run_at_once(slow())
    assert lease.quick_jobs() == 0


def test_the_engine_of_a_member_that_closes_is_not_handed_off(lease):
    for _ in range(8):
        lease.take("quick")
        lease.run_one()
    lease.thread.post(lease.world.close)
    lease.take("last")
    assert not lease.thread.is_handed_off


def under_lease(lease, jobs):
    """Begin a lease, whose thread gets these jobs, too; return which of them ran."""
    if not lease.thread.is_handed_off:
        lease.quick_jobs()
    for job in jobs:
        lease.thread.leave(lambda job=job: lease.thread.take(job))
    lease.ran.clear()
    lease.run_one()
    ran = [name for name in lease.ran if name != "quick"]
    assert not lease.thread.is_handed_off
    lease.run_rest()
    return ran


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spent_ns", "count"),
    [
        ([MS, MS, 0], 3),
        ([16 * MS, 0, 0], 3),
        ([16 * MS + 16, 0, 0], 1),
        ([0, 9 * MS, 9 * MS, 0, 0], 3),
        ([8 * MS, 0, 8 * MS, 0, 8 * MS, 0], 5),
    ],
)
def test_a_lease_ends_when_jobs_take_more_than_a_millisecond_on_average(
    lease, spent_ns, count
):
    """The average is a moving one over 16 jobs; the rest goes to other threads."""
    *names, last = [f"job {number}" for number in range(len(spent_ns))]
    jobs = [lease.job(*each) for each in zip(names, spent_ns, strict=False)]
    jobs.append(lease.job(last, spent_ns[-1], [lambda: lease.clock.advance(100)]))
    assert under_lease(lease, jobs) == [*names, last][:count]
    assert lease.ran[1:] == [*names, last]


@pytest.mark.injects_exceptions
@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_a_job_that_raises_does_not_end_a_lease(lease, caplog, error):
    async def fail():
        lease.ran.append("fails")
        raise error

    jobs = [fail, lease.job("next", 0, [lambda: lease.clock.advance(100)])]
    assert under_lease(lease, jobs) == ["fails", "next"]
    assert caplog.messages == ["exception in a consume thread; it continues"]


def test_a_call_ends_a_lease_after_its_jobs(lease):
    """The call may need the thread that holds the lease."""
    jobs = [lease.job("job", 0, [lambda: lease.thread.call(lease.job("call"))])]
    assert under_lease(lease, jobs) == ["job"]
    assert lease.ran[-1] == "call"


def test_a_job_that_waits_for_the_engine_gives_it_back(lease):
    async def wait():
        lease.thread.give_way()
        assert not lease.thread.is_handed_off
        lease.ran.append("waits")

    assert under_lease(lease, [wait, lease.job("next")]) == ["waits"]
    assert lease.ran[-1] == "next"


def test_the_engine_s_own_thread_gives_no_way(lease):
    lease.quick_jobs()
    lease.thread.give_way()  # by a thread that does not hold the lease
    assert lease.thread.is_handed_off


@pytest.mark.slow
def test_after_a_slow_job_the_next_lease_needs_twice_as_many_quick_ones(
    lease, monkeypatch
):
    """A lease of many jobs was worth it, and halves the number again."""
    monkeypatch.setattr(engine_lease, "QUICK_TIMES_MAX", 16)
    monkeypatch.setattr(engine_lease, "_WORTH_TIMES", 3)
    needed = []
    for earlier in (0, 0, 1, 1, 0):
        needed.append(lease.quick_jobs())
        jobs = [lease.job("job")] * earlier + [lease.job("slow", 1_000 * MS)]
        assert under_lease(lease, jobs)[-1] == "slow"
    assert needed == [8, 16, 16, 8, 8]


class Turn:
    """A client and a runner of jobs: what one turn of the engine does with them."""

    def __init__(self):
        self.remoting = self
        self.did = []
        self.thread = EngineThread(
            self,  # type: ignore[arg-type]  # only what a turn uses of it
            self,  # type: ignore[arg-type]  # as above
            on_end=lambda: None,
        )

    def let_wake(self, has_more):
        """See Remoting."""

    def wake(self):
        """See Remoting."""

    def poll(self, timeout_ms):
        """See Client. Ends the thread after this turn."""
        self.did.append("wait")
        self.thread.end()

    def put(self, *jobs):
        """See JobRunner."""
        self.did.append("put")


def test_a_job_that_an_action_takes_is_put_before_the_engine_waits():
    """Each message of an orderly queue came a second after the one before it."""
    turn = Turn()

    async def job():
        """Nothing that this test would see."""

    turn.thread.post(lambda: turn.thread.take(job))
    turn.thread.start(World().engine)
    turn.thread.join()
    assert turn.did == ["put", "wait"]
