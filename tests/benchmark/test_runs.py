"""Benchmarks send and consume as their loads say, and end when they should."""

from __future__ import annotations

import threading

import pytest

from rmqcli import Admin, ClientConfig
from rmqcli.benchmark import runs
from rmqcli.benchmark.runs import (
    ConsumeBench,
    ConsumeLoad,
    LatencyBench,
    LatencyLoad,
    ProduceBench,
    ProduceLoad,
)
from rmqcli.broker.cluster.seeding import Seed
from rmqcli.clock import SystemClock, monotonic_us
from rmqcli.errors import (
    ConfigError,
    DeniedError,
    NotFoundError,
    RmqError,
    TransportError,
)
from rmqcli.producer.lane import ALONE_BYTES
from rmqcli.testing import faults
from rmqcli.wire.codes import RequestCode
from tests.kit.waiting import wait_until

SEND = RequestCode.SEND_MESSAGE_V2
#: The ways to send for which brokers answer.
WAYS = {
    "submit": {"in_flight": 1},
    "wait": {"threads": 1},
    "batch": {"threads": 1, "batch": 5},
}


@pytest.fixture
def measured(rmq_cluster, rmq_topic):
    """`measured(kind, load, ...)` runs a benchmark, and returns it."""

    def call(kind, load, on_progress=lambda _: None, **fields):
        bench = kind(
            ClientConfig(namesrv=rmq_cluster.namesrv),
            load(**{"topic": rmq_topic, **fields}),
        )
        bench.run(on_progress)
        return bench

    return call


def stored(cluster, topic):
    with Admin(namesrv=cluster.namesrv) as admin:
        return list(admin.read(topic, from_="earliest", to="latest"))


# --- produce ---


@pytest.mark.parametrize("way", [*WAYS.values(), {"threads": 1, "acks": "none"}])
def test_bodies_are_random_and_are_not_compressed(
    measured, rmq_cluster, rmq_topic, way
):
    measured(ProduceBench, ProduceLoad, count=5, size_bytes=8_192, **way)
    bodies = [message.body for message in stored(rmq_cluster, rmq_topic)]
    assert [len(body) for body in bodies] == [8_192] * 5
    assert len(set(bodies)) == 1
    assert len(set(bodies[0])) > 200
    assert bodies[0] == stored(rmq_cluster, rmq_topic)[0].raw_body


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("code", "error"), [(16, DeniedError), (17, NotFoundError)])
def test_what_will_not_get_better_ends_it(measured, rmq_cluster, way, code, error):
    for each in (SEND, RequestCode.SEND_BATCH_MESSAGE):
        rmq_cluster.faults.add(faults.answer(code, "no"), code=each)
    bench = measured(ProduceBench, ProduceLoad, count=1_000, **WAYS[way])
    assert isinstance(bench.error, error)
    found = bench.result()
    assert (found.ended_by, found.messages, found.unknown) == ("error", 0, 0)
    # The next message may be on its way when the answer to the first one comes.
    assert found.failed in {"submit": (1, 2), "wait": (1,), "batch": (5,)}[way]


@pytest.mark.parametrize("way", WAYS)
def test_a_broker_that_is_busy_does_not_end_it(measured, rmq_cluster, way):
    for each in (SEND, RequestCode.SEND_BATCH_MESSAGE):
        rmq_cluster.faults.add(faults.answer(2, "busy"), code=each, times=110)
    bench = measured(ProduceBench, ProduceLoad, count=600, **WAYS[way])
    found = bench.result()
    failed = 550 if way == "batch" else 110
    assert (found.ended_by, bench.error) == ("count", None)
    assert (found.messages, found.failed) == (600 - failed, failed)
    assert found.failures == {"SYSTEM_BUSY": failed}


@pytest.mark.parametrize("way", [*WAYS.values(), {"threads": 1, "acks": "none"}])
def test_a_message_that_cannot_be_sent_ends_it(measured, way):
    bench = measured(ProduceBench, ProduceLoad, size_bytes=17 << 20, **way)
    assert isinstance(bench.error, ConfigError)
    assert bench.result().ended_by == "error"


@pytest.mark.parametrize(
    ("limit", "messages", "failures"),
    [(8 << 20, 1, {}), (4 << 20, 0, {"MESSAGE_ILLEGAL": 1})],
)
def test_brokers_decide_how_large_a_message_may_be(
    rmq_cluster_factory, limit, messages, failures
):
    cluster = rmq_cluster_factory(settings={"max_message_size": limit})
    topic = cluster.create_topic("T")
    load = ProduceLoad(topic=topic, count=1, size_bytes=5 << 20)
    bench = ProduceBench(ClientConfig(namesrv=cluster.namesrv), load)
    bench.run()
    found = bench.result()
    assert (found.messages, found.failures) == (messages, failures)


@pytest.mark.parametrize("way", WAYS)
def test_an_attempt_without_an_answer_is_not_repeated(
    measured, rmq_cluster, rmq_topic, way
):
    code = RequestCode.SEND_BATCH_MESSAGE if way == "batch" else SEND
    rmq_cluster.faults.next(faults.disconnect(is_handled=True), code=code)
    bench = measured(ProduceBench, ProduceLoad, count=10, **WAYS[way])
    lost = 5 if way == "batch" else 1
    found = bench.result()
    assert (found.messages, found.failed, found.unknown) == (10 - lost, lost, lost)
    assert len(stored(rmq_cluster, rmq_topic)) == 10


@pytest.mark.parametrize("way", ["submit", "wait"])
def test_one_success_shows_that_brokers_can_be_reached(measured, rmq_cluster, way):
    """The connection is lost at every second of 220 messages."""

    def lose_next(_):
        if observer.seen % 2:
            rmq_cluster.faults.next(faults.disconnect(), code=SEND)

    observer = rmq_cluster.faults.observe(code=SEND, on_request=lose_next)
    bench = measured(ProduceBench, ProduceLoad, count=220, **WAYS[way])
    found = bench.result()
    assert (found.ended_by, bench.error) == ("count", None)
    assert (found.messages, found.failed) == (110, 110)


def test_no_topic_is_created(measured, rmq_cluster):
    load = {"topic": "unknown", "count": 1_000, "threads": 1}
    bench = measured(ProduceBench, ProduceLoad, **load)
    assert isinstance(bench.error, NotFoundError)
    assert (bench.result().failed, bench.result().unknown) == (1, 0)
    with pytest.raises(NotFoundError):
        measured(ProduceBench, ProduceLoad, acks="none", **load)
    with Admin(namesrv=rmq_cluster.namesrv) as admin:
        assert "unknown" not in [each.topic for each in admin.topics().topics]


def test_messages_without_answers_are_counted_where_they_are_stored(
    measured, rmq_cluster, monkeypatch
):
    """The broker drops 3 of 10 requests, of which a sender learns nothing."""
    monkeypatch.setattr(runs, "GRACE_MS", 300)
    rmq_cluster.faults.add(faults.drop_request(), code=SEND, times=3)
    bench = measured(ProduceBench, ProduceLoad, count=10, threads=1, acks="none")
    found = bench.result()
    assert (found.statuses, found.more) == ({"ONEWAY": 10}, {"not_stored": 3})


def test_a_count_that_a_broker_no_longer_confirms_is_not_given(measured, rmq_cluster):
    """It tells its ends at the start and once more, and then hangs up."""
    stats = RequestCode.GET_TOPIC_STATS_INFO
    rmq_cluster.faults.add(faults.drop_request(), code=SEND, times=3)

    def break_off(_):
        if asked.seen == 3:
            rmq_cluster.faults.add(faults.disconnect(), code=stats)

    asked = rmq_cluster.faults.observe(code=stats, on_request=break_off)
    bench = measured(ProduceBench, ProduceLoad, count=10, threads=1, acks="none")
    assert isinstance(bench.error, TransportError)
    assert bench.result().more == {}


def test_messages_that_others_send_do_not_make_up_for_lost_ones_twice(
    measured, rmq_cluster, rmq_topic
):
    """More messages than were sent are stored meanwhile: none counts as not stored."""

    def send_more(_):
        rmq_cluster.send(rmq_topic, ["x"] * 8)

    load = {"duration_ms": 300, "threads": 1, "acks": "none", "rate_per_s": 20}
    found = measured(ProduceBench, ProduceLoad, send_more, **load).result()
    assert found.more == {"not_stored": 0}


def test_that_it_is_not_known_what_is_stored_is_an_error(measured, rmq_cluster):
    broker = rmq_cluster.broker()

    def stop(done):
        if done and broker.is_running:
            broker.kill()

    bench = measured(
        ProduceBench,
        ProduceLoad,
        on_progress=stop,
        duration_ms=1_000,
        rate_per_s=1_000,
        threads=1,
        acks="none",
    )
    assert isinstance(bench.error, TransportError)
    assert bench.result().more == {}


def test_messages_of_two_threads_share_one_rate(measured):
    """Of 10 messages a thread, the last is due after 9 of its intervals of 10 ms."""
    begin_us = monotonic_us()
    bench = measured(ProduceBench, ProduceLoad, count=20, threads=2, rate_per_s=200)
    assert bench.result().messages == 20
    assert monotonic_us() - begin_us >= 90_000


def test_a_batch_is_due_when_the_ones_before_it_have_had_their_time(measured):
    begin_us = monotonic_us()
    load = {"count": 20, "threads": 1, "batch": 5, "rate_per_s": 200}
    assert measured(ProduceBench, ProduceLoad, **load).result().messages == 20
    assert monotonic_us() - begin_us >= 75_000


@pytest.mark.parametrize("way", ["submit", "wait"])
def test_a_pause_of_a_broker_counts_for_all_messages_that_it_holds_up(
    measured, rmq_cluster, way
):
    """They were due 0, 10, 20, 30 and 40 ms after the start, and waited for 200 ms."""
    rmq_cluster.faults.next(faults.delay(200), code=SEND)
    bench = measured(ProduceBench, ProduceLoad, count=5, rate_per_s=100, **WAYS[way])
    assert bench.result().latency_us["min"] >= 160_000
    assert bench.latency_of == "the moment it was due to the broker's answer"


def test_without_a_rate_a_latency_begins_with_the_call(measured, rmq_cluster):
    rmq_cluster.faults.next(faults.delay(200), code=SEND)
    bench = measured(ProduceBench, ProduceLoad, count=5, threads=1)
    latency = bench.result().latency_us
    assert latency["min"] < latency["max"]
    assert latency["max"] >= 200_000
    assert bench.latency_of == "the call to the broker's answer"


def test_at_most_so_many_messages_wait_for_their_answers(measured, rmq_cluster):
    """Six messages, two at a time, and each answer takes 50 ms."""
    rmq_cluster.faults.add(faults.delay(50), code=SEND)
    rmq_cluster.faults.add(faults.delay(50), code=RequestCode.SEND_BATCH_MESSAGE)
    bench = measured(ProduceBench, ProduceLoad, count=6, in_flight=2)
    found = bench.result()
    assert found.messages == 6
    assert found.elapsed_ms >= 150


# --- the end, and the time before it ---


def test_the_time_is_that_after_the_warm_up(measured):
    begin_us = monotonic_us()
    load = {"duration_ms": 500, "warm_up_ms": 300, "rate_per_s": 100}
    found = measured(ProduceBench, ProduceLoad, **load).result()
    spent_ms = (monotonic_us() - begin_us) // 1000
    assert found.ended_by == "time"
    assert spent_ms >= 800
    assert found.elapsed_ms <= spent_ms - 300


def test_what_is_over_in_the_warm_up_is_not_measured(measured):
    load = {"count": 50, "warm_up_ms": 600_000}
    found = measured(ProduceBench, ProduceLoad, **load).result()
    assert (found.warm_up_messages, found.messages) == (50, 0)
    assert (found.elapsed_ms, found.quiet_ms, found.cpu) == (0, 0, None)
    assert (found.statuses, found.latency_us["count"]) == ({}, 0)


def test_an_interrupt_keeps_what_was_measured(rmq_cluster, rmq_topic):
    seen = []

    def stop(done):
        seen.append(done)
        if done >= 5:
            raise KeyboardInterrupt

    load = ProduceLoad(topic=rmq_topic, count=1_000, rate_per_s=100)
    bench = ProduceBench(ClientConfig(namesrv=rmq_cluster.namesrv), load)
    with pytest.raises(KeyboardInterrupt):
        bench.run(stop)
    found = bench.result()
    assert (found.ended_by, bench.error) == ("interrupt", None)
    assert seen == sorted(seen)
    # An answer may come after the end.
    assert 5 <= found.messages <= len(stored(rmq_cluster, rmq_topic))


@pytest.mark.parametrize(
    ("kind", "load", "fields"),
    [
        (ProduceBench, ProduceLoad, {"threads": 2}),
        (LatencyBench, LatencyLoad, {"group": "g"}),
    ],
)
def test_threads_of_a_benchmark_do_not_keep_a_program_alive(
    measured, kind, load, fields
):
    found = {}

    def look(_):
        for each in threading.enumerate():
            if each.name.startswith("rmq-bench-"):
                found[each.name] = each.daemon

    measured(kind, load, look, duration_ms=300, rate_per_s=10, **fields)
    names = [f"rmq-bench-{n + 1}" for n in range(fields.get("threads", 1))]
    assert found == dict.fromkeys(names, True)


# --- consume ---


def test_a_group_consumes_as_its_load_says(measured, rmq_cluster, rmq_topic):
    rmq_cluster.send(rmq_topic, [b"12345"] * 40)
    pulls = rmq_cluster.faults.observe(code=RequestCode.PULL_MESSAGE)
    locks = rmq_cluster.faults.observe(code=RequestCode.LOCK_BATCH_MQ)
    returns = rmq_cluster.faults.observe(code=RequestCode.CONSUMER_SEND_MSG_BACK)
    threads = set()

    class Watched(ConsumeBench):
        def _on_batch(self, messages, context):
            sizes.append(len(messages))
            names = [each.name for each in threading.enumerate()]
            threads.add(sum(name.startswith("rmq-consume-") for name in names))
            return super()._on_batch(messages, context)

    sizes: list[int] = []
    load = {"group": "g", "count": 40, "threads": 3, "batch": 2, "pull_batch": 4}
    found = measured(Watched, ConsumeLoad, **load).result()
    assert (found.messages, found.body_bytes, found.ended_by) == (40, 200, "count")
    assert max(sizes) == 2
    assert threads == {3}
    fields = [each.command.ext_fields for each in pulls.requests]
    assert {each["maxMsgNums"] for each in fields} == {"4"}
    assert (locks.seen, returns.seen) == (0, 0)
    assert found.settings == {
        "group": "g",
        "from": "earliest",
        "threads": 3,
        "batch": 2,
        "pull_batch": 4,
        "orderly": False,
        "count": 40,
        "duration_ms": None,
        "warm_up_ms": 0,
    }
    assert found.latency_of == (
        "the store time, by the broker's clock, to the listener, by this machine's"
    )
    assert found.more == {}


def test_an_orderly_group_locks_its_queues(measured, rmq_cluster, rmq_topic):
    locks = rmq_cluster.faults.observe(code=RequestCode.LOCK_BATCH_MQ)
    rmq_cluster.send(rmq_topic, ["a"])
    load = {"group": "g", "count": 1, "orderly": True}
    assert measured(ConsumeBench, ConsumeLoad, **load).result().messages == 1
    assert locks.seen


def test_a_group_that_begins_at_the_end_leaves_what_was_there(
    measured, rmq_cluster, rmq_topic
):
    """Nothing is measured while no message has come."""
    rmq_cluster.send(rmq_topic, ["a"] * 8)
    # While all messages of a queue are there, brokers let a new group begin with them.
    rmq_cluster.broker().trim(rmq_topic, 1)
    load = {"group": "g", "from_": "latest", "duration_ms": 300}
    found = measured(ConsumeBench, ConsumeLoad, **load).result()
    assert (found.ended_by, found.warm_up_messages) == ("time", 0)
    assert (found.messages, found.elapsed_ms) == (0, 0)


@pytest.mark.parametrize(
    ("age_ms", "latency_us", "more"),
    [(0, 0, {}), (1, 1_000, {}), (-1, None, {"before_store_time": 2})],
)
def test_the_age_of_a_message_is_its_latency(
    rmq_cluster_factory, rmq_clock, monkeypatch, age_ms, latency_us, more
):
    class Clock(SystemClock):
        def epoch_ms(self):
            return rmq_clock.now_ms + age_ms

    monkeypatch.setattr(runs, "SYSTEM_CLOCK", Clock())
    cluster = rmq_cluster_factory(clock=rmq_clock)
    topic = cluster.create_topic("T")
    cluster.send(topic, ["a", "b"])
    client = ClientConfig(namesrv=cluster.namesrv)
    bench = ConsumeBench(client, ConsumeLoad(topic=topic, group="g", count=2))
    bench.run()
    found = bench.result()
    assert (found.messages, found.more) == (2, more)
    assert found.latency_us["min"] == found.latency_us["max"] == latency_us


# --- latency ---


def test_only_messages_of_the_same_run_count_and_each_of_them_once(
    measured, rmq_cluster, rmq_topic
):
    rmq_cluster.faults.next(faults.delay(500), code=SEND)
    sent: list[str] = []

    def send_more(_):
        found = stored(rmq_cluster, rmq_topic)
        if found and not sent:
            own = found[0].properties[runs.RUN_PROPERTY]
            sent.append(own)
            for run in (own, "other-0"):
                seed = Seed(body=b"x", properties={runs.RUN_PROPERTY: run})
                rmq_cluster.send(rmq_topic, [seed])

    bench = measured(
        LatencyBench, LatencyLoad, send_more, group="g", duration_ms=1_500, size_bytes=9
    )
    found = bench.result()
    wait_until(lambda: bench.result().more["received_twice"] == 1)
    assert found.more["not_received"] == 0
    assert found.messages <= found.more["sent"]
    assert {len(message.body) for message in stored(rmq_cluster, rmq_topic)} == {1, 9}


def test_messages_that_do_not_arrive_are_counted(measured, rmq_cluster, monkeypatch):
    """Messages that a busy machine sends late share a request, unless they are large.

    Such a request has another code, so that all of its messages were stored. None of
    these is, so that none can arrive after the time for which they are waited for.
    """
    monkeypatch.setattr(runs, "GRACE_MS", 500)
    fields = {"msgId": "0" * 32, "queueId": "0", "queueOffset": "0"}
    lie = faults.answer(0, ext_fields=fields)
    rmq_cluster.faults.add(lie, code=SEND, times=2)
    load = {"group": "g", "count": 2, "size_bytes": ALONE_BYTES}
    found = measured(LatencyBench, LatencyLoad, **load).result()
    assert found.more == {"sent": 2, "not_received": 2, "received_twice": 0}
    assert (found.messages, found.failed, found.ended_by) == (0, 0, "count")


def test_a_message_that_was_refused_is_not_waited_for(
    measured, rmq_cluster, monkeypatch
):
    monkeypatch.setattr(runs, "GRACE_MS", 60_000)
    for each in (SEND, RequestCode.SEND_BATCH_MESSAGE):  # on a busy machine
        rmq_cluster.faults.add(faults.answer(2, "busy"), code=each)
    found = measured(LatencyBench, LatencyLoad, group="g", count=10).result()
    assert found.more == {"sent": 10, "not_received": 0, "received_twice": 0}
    assert (found.failures, found.ended_by) == ({"SYSTEM_BUSY": 10}, "count")
    assert found.elapsed_ms < 30_000


def test_a_latency_benchmark_ends_when_messages_are_denied(measured, rmq_cluster):
    for each in (SEND, RequestCode.SEND_BATCH_MESSAGE):
        rmq_cluster.faults.add(faults.answer(16, "no"), code=each)
    bench = measured(LatencyBench, LatencyLoad, group="g", count=1_000)
    assert isinstance(bench.error, DeniedError)
    assert bench.result().ended_by == "error"
    assert bench.result().more["not_received"] == 0


def test_a_latency_benchmark_ends_when_its_messages_cannot_be_sent(measured):
    bench = measured(LatencyBench, LatencyLoad, group="g", size_bytes=17 << 20)
    assert isinstance(bench.error, ConfigError)
    found = bench.result()
    assert found.ended_by == "error"
    assert found.more == {"sent": 0, "not_received": 0, "received_twice": 0}


def test_a_latency_benchmark_goes_on_after_one_success(
    measured, rmq_cluster, monkeypatch
):
    """Two messages fail, the third is stored, and at the fourth the connection ends."""
    monkeypatch.setattr(runs, "FAILURES_IN_A_ROW_MAX", 3)
    rmq_cluster.faults.add(faults.answer(2, "busy"), code=SEND, times=2)
    rmq_cluster.faults.add(
        faults.disconnect(is_handled=True), code=SEND, nth=2, times=1
    )
    bench = measured(LatencyBench, LatencyLoad, group="g", count=5, rate_per_s=20)
    found = bench.result()
    assert (found.ended_by, bench.error) == ("count", None)
    assert found.more["sent"] == 5


def test_a_latency_benchmark_ends_when_no_broker_can_be_reached(
    measured, rmq_cluster, monkeypatch
):
    monkeypatch.setattr(runs, "FAILURES_IN_A_ROW_MAX", 3)
    monkeypatch.setattr(runs, "GRACE_MS", 100)
    for each in (SEND, RequestCode.SEND_BATCH_MESSAGE):
        rmq_cluster.faults.add(faults.disconnect(), code=each)
    bench = measured(LatencyBench, LatencyLoad, group="g", count=1_000, rate_per_s=20)
    assert isinstance(bench.error, TransportError)
    found = bench.result()
    assert (found.ended_by, found.messages) == ("error", 0)
    assert 3 <= found.failed == found.unknown == found.more["not_received"]


def test_a_message_without_an_answer_may_arrive(measured, rmq_cluster):
    """It is the only one: those behind it on the connection may be lost with it."""
    rmq_cluster.faults.next(faults.disconnect(is_handled=True), code=SEND)
    found = measured(LatencyBench, LatencyLoad, group="g", count=1).result()
    assert found.more == {"sent": 1, "not_received": 0, "received_twice": 0}
    assert (found.messages, found.failed, found.unknown) == (1, 1, 1)


def test_a_message_without_an_answer_that_does_not_arrive_is_counted(
    measured, rmq_cluster, monkeypatch
):
    monkeypatch.setattr(runs, "GRACE_MS", 500)
    rmq_cluster.faults.next(faults.disconnect(), code=SEND)
    found = measured(LatencyBench, LatencyLoad, group="g", count=1).result()
    assert found.more == {"sent": 1, "not_received": 1, "received_twice": 0}
    assert (found.messages, found.failed, found.unknown) == (0, 1, 1)


def test_an_interrupt_does_not_wait_for_messages_that_do_not_arrive(
    rmq_cluster, rmq_topic, monkeypatch
):
    """Ctrl-C took up to 10 s: the sender waited for them, and then the benchmark."""
    monkeypatch.setattr(runs, "GRACE_MS", 24 * 60 * 60 * 1_000)
    rmq_cluster.faults.next(faults.disconnect(), code=SEND)
    load = LatencyLoad(
        topic=rmq_topic, group="g", count=3, rate_per_s=20, size_bytes=ALONE_BYTES
    )
    bench = LatencyBench(ClientConfig(namesrv=rmq_cluster.namesrv), load)

    def stop(_):
        if bench.result().more["sent"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bench.run(stop)
    assert bench.result().ended_by == "interrupt"
    assert bench.result().more["not_received"] >= 1


def test_messages_that_were_there_before_are_not_read(measured, rmq_cluster, rmq_topic):
    rmq_cluster.send(rmq_topic, ["a"] * 8)
    # While all messages of a queue are there, brokers let a new group begin with them.
    rmq_cluster.broker().trim(rmq_topic, 1)
    pulls = rmq_cluster.faults.observe(code=RequestCode.PULL_MESSAGE, topic=rmq_topic)
    measured(LatencyBench, LatencyLoad, group="g", count=5)
    offsets = [int(each.command.ext_fields["queueOffset"]) for each in pulls.requests]
    assert min(offsets) == 2


def test_messages_are_sent_when_they_are_due(measured, rmq_cluster, rmq_topic):
    """The last of five is due 4 intervals of 20 ms after the first."""
    begin_us = monotonic_us()
    found = measured(LatencyBench, LatencyLoad, group="g", count=5, rate_per_s=50)
    assert monotonic_us() - begin_us >= 80_000
    assert len(stored(rmq_cluster, rmq_topic)) == 5
    assert found.result().settings == {
        "group": "g",
        "size_bytes": 1024,
        "rate_per_s": 50,
        "count": 5,
        "duration_ms": None,
        "warm_up_ms": 0,
    }


def test_nothing_is_sent_before_the_group_has_every_queue_of_the_topic(
    measured, rmq_cluster, rmq_topic, monkeypatch
):
    """That it has the queue of its retry topic, too, does not count."""
    monkeypatch.setattr(runs, "_JOIN_MS", 1_000)
    rmq_cluster.faults.add(
        faults.answer(2, "busy"),
        code=RequestCode.QUERY_CONSUMER_OFFSET,
        topic=rmq_topic,
        queue_id=3,
    )
    with pytest.raises(RmqError, match="does not have all 4 queues of topic") as caught:
        measured(LatencyBench, LatencyLoad, group="g", count=5)
    assert caught.value.hint == "name another group"
    assert stored(rmq_cluster, rmq_topic) == []
