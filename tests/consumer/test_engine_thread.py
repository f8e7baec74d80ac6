"""Who drives the engine: while listeners are quick, the thread that runs them."""

from __future__ import annotations

import threading

import pytest

from tests.consumer.collecting import Seen, committed, consumer
from tests.consumer.test_consumer import names
from tests.kit.waiting import wait_until

ORDERLY = pytest.mark.parametrize("orderly", [False, True])


class Gated(Seen):
    """A listener that is quick, but stays away with a body of "stay" until `gate`."""

    def __init__(self):
        super().__init__()
        self.gate = threading.Event()
        self.stays = threading.Event()
        self.running_now = 0
        self.running_max = 0
        self.ask = lambda: None

    def __call__(self, message):
        self.running_now += 1
        self.running_max = max(self.running_max, self.running_now)
        self.bodies.append(message.body.decode())
        self.ask()
        if message.body == b"stay":
            self.stays.set()
            assert self.gate.wait(60)
        self.running_now -= 1


def lend(running, cluster, topic, seen):
    """Send until a listener's thread drives; how many messages that took."""
    for turn in range(1, 200):
        cluster.send(topic, names(40, prefix=f"{turn}-"))
        seen.wait_for(40 * turn)
        if running._driver.is_handed_off:
            return 40 * turn
    raise AssertionError("the engine was never lent")


@ORDERLY
def test_a_quick_listener_s_thread_drives_until_nothing_comes(
    rmq_cluster, rmq_topic, orderly
):
    seen = Gated()
    with consumer(rmq_cluster, "g", rmq_topic, seen, orderly=orderly) as running:
        sent = lend(running, rmq_cluster, rmq_topic, seen)
        wait_until(lambda: not running._driver.is_handed_off)
        rmq_cluster.send(rmq_topic, ["last"])
        seen.wait_for(sent + 1)
    assert len(set(seen.bodies)) == len(seen.bodies) == sent + 1
    assert sum(committed(rmq_cluster, "g", rmq_topic).values()) == sent + 1


@ORDERLY
def test_a_listener_that_stays_away_holds_up_no_other_queue(
    rmq_cluster, rmq_topic, orderly
):
    """Its engine is taken back, what was not begun goes to other threads."""
    seen = Gated()
    with consumer(rmq_cluster, "g", rmq_topic, seen, orderly=orderly) as running:
        sent = lend(running, rmq_cluster, rmq_topic, seen)
        rmq_cluster.send(rmq_topic, ["stay"], queue_id=3)
        assert seen.stays.wait(10)
        for queue_id in range(3):
            rmq_cluster.send(rmq_topic, names(50, f"q{queue_id}-"), queue_id=queue_id)
        seen.wait_for(sent + 151)
        assert len(running.queues()) == 5
        assert seen.running_now == 1
        seen.gate.set()
    assert len(set(seen.bodies)) == len(seen.bodies) == sent + 151
    assert sum(committed(rmq_cluster, "g", rmq_topic).values()) == sent + 151


def waiting(running):
    """How many messages have not been consumed."""
    infos = running.running_info().process_queues.values()
    return sum(each.cached_msg_count + each.transaction_msg_count for each in infos)


@ORDERLY
def test_never_more_listeners_than_threads(rmq_cluster, rmq_topic, orderly):
    """The one that stays away counts: with one thread nothing else is consumed."""
    seen = Gated()
    with consumer(
        rmq_cluster, "g", rmq_topic, seen, orderly=orderly, consume_threads=1
    ) as running:
        sent = lend(running, rmq_cluster, rmq_topic, seen)
        rmq_cluster.send(rmq_topic, ["stay"], queue_id=3)
        assert seen.stays.wait(10)
        for queue_id in range(3):
            rmq_cluster.send(rmq_topic, names(50, f"q{queue_id}-"), queue_id=queue_id)
        wait_until(lambda: waiting(running) == 151)
        seen.gate.set()
        seen.wait_for(sent + 151)
    assert seen.running_max == 1
    assert len(set(seen.bodies)) == sent + 151


def test_a_listener_may_ask_while_its_thread_drives(rmq_cluster, rmq_topic):
    answers = []
    seen = Gated()
    with consumer(rmq_cluster, "g", rmq_topic, seen) as running:
        lend(running, rmq_cluster, rmq_topic, seen)
        seen.ask = lambda: answers.append(len(running.queues()))
        rmq_cluster.send(rmq_topic, ["ask"])
        wait_until(lambda: answers == [5])


def test_a_slow_listener_s_thread_never_drives(rmq_cluster, rmq_topic):
    was_handed_off = []
    gate = threading.Event()

    def act(*_):
        gate.wait(0.003)
        was_handed_off.append(running._driver.is_handed_off)

    rmq_cluster.send(rmq_topic, names(400))
    seen = Seen(act)
    running = consumer(rmq_cluster, "g", rmq_topic, seen, pull_batch_size=4)
    with running:
        seen.wait_for(400)
        wait_until(lambda: len(was_handed_off) == 400)
    assert not any(was_handed_off)


def test_a_close_while_a_borrower_s_listener_stays_away(rmq_cluster, rmq_topic):
    seen = Gated()
    running = consumer(rmq_cluster, "g", rmq_topic, seen)
    running.start()
    sent = lend(running, rmq_cluster, rmq_topic, seen)
    rmq_cluster.send(rmq_topic, ["stay"], queue_id=3)
    assert seen.stays.wait(10)
    running.close(timeout_ms=100)
    assert not [t for t in threading.enumerate() if t.name == "rmq-engine"]
    assert sum(committed(rmq_cluster, "g", rmq_topic).values()) == sent
    seen.gate.set()
    wait_until(
        lambda: not [t for t in threading.enumerate() if "rmq-consume" in t.name]
    )


def test_a_recalled_engine_is_driven_by_its_own_thread(rmq_cluster, rmq_topic):
    """As when a broker asks to consume one message: the only thread may be at it."""
    called = threading.Event()
    seen = Gated()
    with consumer(rmq_cluster, "g", rmq_topic, seen, consume_threads=1) as running:
        lend(running, rmq_cluster, rmq_topic, seen)
        running._driver.post(lambda: running._threads.call(called.set))
        assert called.wait(10)


def test_a_listener_may_close_its_consumer(rmq_cluster, rmq_topic):
    """It returns at once; what the listener has is committed when that has ended."""
    before = set(threading.enumerate())

    def act(*_):
        running.close()

    running = consumer(rmq_cluster, "g", rmq_topic, Seen(act), consume_threads=1)
    running.start()
    rmq_cluster.send(rmq_topic, ["one"], queue_id=2)
    assert running.wait(10_000)
    wait_until(lambda: set(threading.enumerate()) <= before)
    assert committed(rmq_cluster, "g", rmq_topic) == {2: 1}


@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit])
def test_an_exception_in_the_engine_ends_no_thread(
    rmq_cluster, rmq_topic, caplog, error
):
    seen = Gated()

    def fail():
        raise error

    with consumer(rmq_cluster, "g", rmq_topic, seen) as running:
        sent = lend(running, rmq_cluster, rmq_topic, seen)
        running._driver.post(fail)
        rmq_cluster.send(rmq_topic, ["after"])
        seen.wait_for(sent + 1)
        wait_until(lambda: not running._driver.is_handed_off)
        running._driver.post(fail)
        rmq_cluster.send(rmq_topic, ["more"])
        seen.wait_for(sent + 2)
    told = [each.message for each in caplog.records if each.exc_info]
    assert len(told) == 2
    assert all("continues" in each for each in told)
