"""The thread that owns the engine: while listeners are quick, the one that runs them.

How quick a listener is, and therefore when the engine is handed off, depends on the
machine. So the tests send messages until a hand-off happens.
"""

from __future__ import annotations

import threading

import pytest

from rmqcli.clock import SystemClock
from rmqcli.consumer.consume_threads import ConsumeThreads
from rmqcli.engine.listener import Listener
from rmqcli.testing import ManualClock
from tests.consumer.collecting import Seen, committed, consumer
from tests.consumer.test_consumer import names
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.engine_threads("leasing")

ORDERLY = pytest.mark.parametrize("orderly", [False, True])


class Gated(Seen):
    """A listener that returns at once, but waits for `gate` at the body "stay"."""

    def __init__(self):
        super().__init__()
        self.gate = threading.Event()
        self.is_waiting = threading.Event()
        self.running_now = 0
        self.running_max = 0
        self.ask = lambda: None

    def __call__(self, message):
        self.running_now += 1
        self.running_max = max(self.running_max, self.running_now)
        self.bodies.append(message.body.decode())
        self.ask()
        if message.body == b"stay":
            self.is_waiting.set()
            assert self.gate.wait(60)
        self.running_now -= 1


def test_threads_without_a_job_end_however_little_time_there_is(caplog):
    """On a busy machine threads may wake up late, but no listener holds them."""
    threads = ConsumeThreads(64, Listener(call=lambda *_: None), SystemClock())
    before = set(threading.enumerate())
    threads.start()
    threads.stop(0)
    assert set(threading.enumerate()) <= before
    assert not caplog.records


def test_a_job_runs_as_often_as_it_was_put_and_in_one_of_the_threads():
    threads = ConsumeThreads(3, Listener(call=lambda *_: None), SystemClock())
    assert threads.count == 3
    found: list[tuple[str, bool, bool]] = []

    async def job():
        thread = threading.current_thread()
        found.append((thread.name, thread.daemon, threads.is_current()))

    threads.start()
    threads.put(job, job, job, job)
    threads.put(job)
    threads.let_end()
    threads.stop(60_000)
    assert len(found) == 5
    names = {"rmq-consume-1", "rmq-consume-2", "rmq-consume-3"}
    assert {name for name, _, _ in found} <= names
    assert {(daemon, current) for _, daemon, current in found} == {(True, True)}
    assert not threads.is_current()


@pytest.mark.injects_exceptions
@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_a_thread_goes_on_after_a_job_that_raised(caplog, error):
    threads = ConsumeThreads(1, Listener(call=lambda *_: None), SystemClock())
    done = threading.Event()

    async def fail():
        raise error

    async def succeed():
        done.set()

    threads.start()
    threads.put(fail)
    threads.put(succeed)
    assert done.wait(60)
    threads.stop(60_000)
    assert caplog.messages == ["exception in a consume thread; it continues"]


def test_a_listener_that_does_not_return_in_time_is_reported(caplog):
    threads = ConsumeThreads(3, Listener(call=lambda *_: None), ManualClock())
    begun, go_on = threading.Event(), threading.Event()

    async def job():
        begun.set()
        go_on.wait(400)

    threads.start()
    threads.put(job)
    assert begun.wait(400)
    threads.stop(0)
    (record,) = caplog.records
    assert "listeners did not return" in record.getMessage()
    assert "count=1" in record.getMessage()
    go_on.set()
    threads.stop(400_000)
    assert caplog.records == [record]


def hand_off(running, cluster, topic, seen):
    """Send messages until the engine is handed off; return how many were sent."""
    for turn in range(1, 200):
        cluster.send(topic, names(40, prefix=f"{turn}-"))
        seen.wait_for(40 * turn)
        if running._backend.engine_thread.is_handed_off:
            return 40 * turn
    raise AssertionError("the engine was never handed off")


@ORDERLY
def test_the_thread_of_a_quick_listener_owns_the_engine_until_no_message_comes(
    rmq_cluster, rmq_topic, orderly
):
    seen = Gated()
    with consumer(rmq_cluster, "g", rmq_topic, seen, orderly=orderly) as running:
        sent = hand_off(running, rmq_cluster, rmq_topic, seen)
        wait_until(lambda: not running._backend.engine_thread.is_handed_off)
        rmq_cluster.send(rmq_topic, ["last"])
        seen.wait_for(sent + 1)
    assert len(set(seen.bodies)) == len(seen.bodies) == sent + 1
    assert sum(committed(rmq_cluster, "g", rmq_topic).values()) == sent + 1


@ORDERLY
def test_a_listener_that_does_not_return_holds_up_no_other_queue(
    rmq_cluster, rmq_topic, orderly
):
    """The engine's own thread takes the event loop back, and other consume threads get
    the messages that this listener call has not begun."""
    seen = Gated()
    with consumer(rmq_cluster, "g", rmq_topic, seen, orderly=orderly) as running:
        sent = hand_off(running, rmq_cluster, rmq_topic, seen)
        rmq_cluster.send(rmq_topic, ["stay"], queue_id=3)
        assert seen.is_waiting.wait(10)
        for queue_id in range(3):
            rmq_cluster.send(rmq_topic, names(50, f"q{queue_id}-"), queue_id=queue_id)
        seen.wait_for(sent + 151)
        assert len(running.queues()) == 5
        assert seen.running_now == 1
        seen.gate.set()
    assert len(set(seen.bodies)) == len(seen.bodies) == sent + 151
    assert sum(committed(rmq_cluster, "g", rmq_topic).values()) == sent + 151


def waiting(running):
    """Return how many cached messages have not been consumed."""
    infos = running.running_info().process_queues.values()
    return sum(each.cached_msg_count + each.transaction_msg_count for each in infos)


@ORDERLY
def test_no_more_listeners_run_at_once_than_there_are_consume_threads(
    rmq_cluster, rmq_topic, orderly
):
    """While the only thread's listener does not return, nothing else is consumed."""
    seen = Gated()
    with consumer(
        rmq_cluster, "g", rmq_topic, seen, orderly=orderly, consume_threads=1
    ) as running:
        sent = hand_off(running, rmq_cluster, rmq_topic, seen)
        rmq_cluster.send(rmq_topic, ["stay"], queue_id=3)
        assert seen.is_waiting.wait(10)
        for queue_id in range(3):
            rmq_cluster.send(rmq_topic, names(50, f"q{queue_id}-"), queue_id=queue_id)
        wait_until(lambda: waiting(running) == 151)
        seen.gate.set()
        seen.wait_for(sent + 151)
    assert seen.running_max == 1
    assert len(set(seen.bodies)) == sent + 151


def test_a_listener_may_query_its_consumer_while_its_thread_owns_the_engine(
    rmq_cluster, rmq_topic
):
    answers = []
    seen = Gated()
    with consumer(rmq_cluster, "g", rmq_topic, seen) as running:
        hand_off(running, rmq_cluster, rmq_topic, seen)
        seen.ask = lambda: answers.append(len(running.queues()))
        rmq_cluster.send(rmq_topic, ["ask"])
        wait_until(lambda: answers == [5])


def test_the_thread_of_a_slow_listener_never_owns_the_engine(rmq_cluster, rmq_topic):
    was_handed_off = []
    gate = threading.Event()

    def act(*_):
        gate.wait(0.003)
        was_handed_off.append(running._backend.engine_thread.is_handed_off)

    rmq_cluster.send(rmq_topic, names(400))
    seen = Seen(act)
    running = consumer(rmq_cluster, "g", rmq_topic, seen, pull_batch_size=4)
    with running:
        seen.wait_for(400)
        wait_until(lambda: len(was_handed_off) == 400)
    assert not any(was_handed_off)


def test_a_close_does_not_wait_longer_than_asked_for_the_listener_of_a_lease(
    rmq_cluster, rmq_topic
):
    seen = Gated()
    running = consumer(rmq_cluster, "g", rmq_topic, seen)
    running.start()
    sent = hand_off(running, rmq_cluster, rmq_topic, seen)
    rmq_cluster.send(rmq_topic, ["stay"], queue_id=3)
    assert seen.is_waiting.wait(10)
    running.close(timeout_ms=100)
    assert not [t for t in threading.enumerate() if t.name == "rmq-engine"]
    assert sum(committed(rmq_cluster, "g", rmq_topic).values()) == sent
    seen.gate.set()
    wait_until(
        lambda: not [t for t in threading.enumerate() if "rmq-consume" in t.name]
    )


def test_a_message_that_a_broker_sends_is_consumed_although_the_only_thread_has_a_lease(
    rmq_cluster, rmq_topic
):
    """`call`, which serves CONSUME_MESSAGE_DIRECTLY, ends the lease, and so the thread
    becomes free."""
    called = threading.Event()

    async def job():
        called.set()

    seen = Gated()
    with consumer(rmq_cluster, "g", rmq_topic, seen, consume_threads=1) as running:
        hand_off(running, rmq_cluster, rmq_topic, seen)
        running._backend.engine_thread.post(
            lambda: running._backend.engine_thread.call(job)
        )
        assert called.wait(10)


def test_a_listener_may_close_its_consumer(rmq_cluster, rmq_topic):
    """The close returns at once, and the listener's message is committed when the
    listener has returned."""
    before = set(threading.enumerate())

    def act(*_):
        running.close()

    running = consumer(rmq_cluster, "g", rmq_topic, Seen(act), consume_threads=1)
    running.start()
    rmq_cluster.send(rmq_topic, ["one"], queue_id=2)
    assert running.wait(10_000)
    wait_until(lambda: set(threading.enumerate()) <= before)
    assert committed(rmq_cluster, "g", rmq_topic) == {2: 1}


@pytest.mark.injects_exceptions
@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit])
def test_an_exception_in_the_engine_ends_no_thread(
    rmq_cluster, rmq_topic, caplog, error
):
    seen = Gated()

    def fail():
        raise error

    with consumer(rmq_cluster, "g", rmq_topic, seen) as running:
        sent = hand_off(running, rmq_cluster, rmq_topic, seen)
        running._backend.engine_thread.post(fail)
        rmq_cluster.send(rmq_topic, ["after"])
        seen.wait_for(sent + 1)
        wait_until(lambda: not running._backend.engine_thread.is_handed_off)
        running._backend.engine_thread.post(fail)
        rmq_cluster.send(rmq_topic, ["more"])
        seen.wait_for(sent + 2)
    logged = [each.message for each in caplog.records if each.exc_info]
    assert len(logged) == 2
    assert all("continues" in each for each in logged)
