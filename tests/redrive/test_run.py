"""Plan and run of a redrive: what stays, what is sent where, how often and how fast."""

from __future__ import annotations

import gc
import json
import re
import tracemalloc
import zlib
from collections import Counter
from dataclasses import replace

import pytest

from rmqcli import Admin, connect
from rmqcli.admin.dlq.log import (
    DOUBTFUL,
    LetterPlace,
    LetterResult,
    LetterStates,
    open_log,
)
from rmqcli.admin.reset.cluster_identity import identity_of
from rmqcli.admin.tail.filter import TailFilter
from rmqcli.api.calls.offset import update_consumer_offset
from rmqcli.api.calls.send import send_batch_message, send_message
from rmqcli.api.client import Client
from rmqcli.broker import faults
from rmqcli.clock import SystemClock
from rmqcli.config import ClientConfig
from rmqcli.errors import (
    BrokerError,
    ConnectError,
    DeadlineError,
    DecodeError,
    DisconnectedError,
    RefusedError,
    RmqError,
    TransportError,
)
from rmqcli.redrive import redrive as redrive_module
from rmqcli.redrive import requests
from rmqcli.redrive.letter import Letter
from rmqcli.redrive.redrive import RedriveRequest, RedriveRun, plan_redrive
from rmqcli.testing import Seed
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.headers.send import SendMessageRequestHeaderV2
from rmqcli.wire.message.batch import encode_items
from tests.admin.dlq.letters import client_of, make_letters
from tests.consumer.collecting import Seen, consumer
from tests.kit.waiting import wait_until

SENDS = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)


class SkippingClock(SystemClock):
    """The machine's clock, ahead by all waits: they take no time."""

    def __init__(self):
        self.skipped_ms = 0

    def monotonic_ms(self):
        return super().monotonic_ms() + self.skipped_ms

    def epoch_ms(self):
        return super().epoch_ms() + self.skipped_ms

    def wait_ms(self, event, timeout_ms):
        self.skipped_ms += timeout_ms
        return event.is_set()


@pytest.fixture
def cluster(rmq_cluster_factory):
    """Nine letters of the group billing on one broker."""
    cluster = rmq_cluster_factory(queues=1)
    cluster.create_topic("orders")
    cluster.create_group("billing")
    make_letters(cluster, "billing", "orders", [f"{n}" for n in range(9)])
    return cluster


@pytest.fixture
def redrive(cluster, tmp_path):
    """Run a redrive to its end; return it, its batches and the entries of its log."""

    def run(
        *,
        clock=None,
        timeout_ms=5_000,
        to="origin",
        begin=lambda _client: None,
        planned=lambda _run: None,
        **options,
    ):
        config = ClientConfig(namesrv=(cluster.namesrv,), timeout_ms=timeout_ms)
        path = tmp_path / "log.jsonl"
        with Client(config, clock=clock or SystemClock()) as client:
            identity = identity_of(client.route("%DLQ%billing"))
            log = open_log(path, "billing", identity, at_ms=client.clock.epoch_ms())
            begin(client)
            request = RedriveRequest(group="billing", filter=TailFilter(), to=to)
            plan = plan_redrive(client, request, log.states)
            made = RedriveRun(client, plan, log, **options)
            planned(made)
            batches = list(made.batches())
            log.close()
        return (
            made,
            batches,
            [json.loads(line) for line in path.read_text().splitlines()],
        )

    return run


def test_a_rate_spreads_the_batches(redrive):
    clock = SkippingClock()
    begun_ms = clock.monotonic_ms()
    run, batches, entries = redrive(clock=clock, rate_per_s=3)
    assert [len(each) for each in batches] == [3, 3, 3]
    assert clock.monotonic_ms() - begun_ms >= 2_000
    assert clock.skipped_ms <= 2_000
    assert run.given_up is None
    times = [each["at_ms"] for each in entries]
    assert times == sorted(times)
    begun, _, _, second, _, third, ended = times
    assert third - begun >= 1_999
    assert second - begun >= 999
    assert ended <= clock.epoch_ms()
    assert begun > 1_700_000_000_000


def test_a_rate_below_one_a_second_sends_one_letter_at_a_time(redrive):
    clock = SkippingClock()
    begun_ms = clock.monotonic_ms()
    _, batches, _ = redrive(clock=clock, rate_per_s=0.5)
    assert [len(each) for each in batches] == [1] * 9
    assert clock.monotonic_ms() - begun_ms >= 16_000


def test_a_batch_ends_when_its_bodies_have_the_size_of_a_batch(redrive, monkeypatch):
    """Each body has one byte."""
    monkeypatch.setattr(redrive_module, "BATCH_BYTES_MAX", 2)
    _, batches, _ = redrive()
    assert [len(each) for each in batches] == [2, 2, 2, 2, 1]


def test_no_batch_begins_after_a_stop_and_what_was_begun_is_noted(redrive):
    """An interrupt waited until the letters of the next batch were found."""
    asked = []

    def is_stopped():
        asked.append(1)
        return len(asked) > 6

    run, batches, _ = redrive(batch_max=2, is_stopped=is_stopped)
    sent = sum(map(len, batches))
    assert 0 < sent < 9
    assert run.given_up is None
    _, again, _ = redrive(batch_max=2)
    assert sum(map(len, again)) == 9 - sent


def test_a_stop_ends_the_wait_for_the_next_batch(redrive):
    clock = SkippingClock()
    _, batches, _ = redrive(
        clock=clock, rate_per_s=0.001, is_stopped=lambda: clock.skipped_ms > 0
    )
    assert [len(each) for each in batches] == [1]
    assert clock.skipped_ms < 1_000


def test_without_a_rate_nothing_waits(redrive):
    clock = SkippingClock()
    _, batches, _ = redrive(clock=clock)
    assert [len(each) for each in batches] == [9]
    assert clock.skipped_ms == 0


#: What a redrive holds; the broker's store, in the same process, grows elsewhere.
_HELD_BY = ("*/rmqcli/redrive/*", "*/rmqcli/api/*", "*/rmqcli/wire/message/batch.py")


def held_bytes():
    gc.collect()
    held = [tracemalloc.Filter(True, pattern) for pattern in _HELD_BY]
    found = tracemalloc.take_snapshot().filter_traces(held)
    return sum(each.size for each in found.statistics("filename"))


def test_memory_does_not_grow_with_the_number_of_batches(rmq_cluster_factory, tmp_path):
    """Each request was kept with its body: 263 MB at two million letters."""
    cluster = rmq_cluster_factory(queues=1)
    cluster.create_topic("orders")
    cluster.create_group("billing")
    make_letters(cluster, "billing", "orders", ["x" * 2_000] * 250)
    with client_of(cluster) as client:
        identity = identity_of(client.route("%DLQ%billing"))
        log = open_log(tmp_path / "log.jsonl", "billing", identity, at_ms=0)
        request = RedriveRequest(group="billing", filter=TailFilter())
        plan = plan_redrive(client, request, log.states)
        run = RedriveRun(client, plan, log, batch_max=10)
        held = []
        tracemalloc.start()
        try:
            for number, _ in enumerate(run.batches(), 1):
                if number in (5, 25):
                    held.append(held_bytes())
        finally:
            tracemalloc.stop()
            log.close()
    early, late = held
    assert early > 20_000  # a batch is 20,000 bytes: they are counted
    assert late - early < 100_000  # of 400,000 that were sent in between


@pytest.mark.parametrize(
    ("action", "status", "error"),
    [
        (faults.drop_answer(), "UNKNOWN", DeadlineError),
        (faults.disconnect(), "UNKNOWN", TransportError),
    ],
)
def test_a_redrive_stops_at_a_batch_to_which_no_broker_answers(
    cluster, redrive, action, status, error
):
    """Further batches would only make more letters doubtful."""
    rules = [cluster.faults.add(action, code=code) for code in SENDS]
    run, batches, _ = redrive(timeout_ms=300, batch_max=3)
    assert isinstance(run.given_up, error)
    assert [[each.status for each in batch] for batch in batches] == [[status] * 3]
    for rule in rules:
        cluster.faults.remove(rule)
    run, batches, _ = redrive(batch_max=3)
    assert run.given_up is None
    assert [each.status for batch in batches for each in batch] == ["SEND_OK"] * 9
    with Admin(namesrv=cluster.namesrv) as admin:
        found = {message.body for message in admin.read("orders")}
    assert found == {b"%d" % n for n in range(9)}


def test_a_redrive_goes_on_at_the_new_address_of_a_master(redrive):
    """Each batch went to the address of the plan first, and after some it stopped."""

    def know_another_address(client):
        route = client.route("orders")
        (broker,) = route.brokers
        moved = replace(broker, addresses={0: "127.0.0.1:1"})
        client.remember("orders", replace(route, brokers=(moved,)))

    run, batches, _ = redrive(batch_max=1, begin=know_another_address)
    assert run.given_up is None
    assert [each.status for batch in batches for each in batch] == ["SEND_OK"] * 9


def test_a_redrive_to_the_retry_topic_goes_on_at_the_new_address_of_a_master(
    cluster, redrive
):
    """It stopped, although the name server had its new address."""
    cluster.create_topic("%RETRY%billing", queues=1)
    commit(cluster, "%RETRY%billing", 0)

    def know_another_address(run):
        client = run._client
        route = client.route("%RETRY%billing")
        (broker,) = route.brokers
        moved = replace(broker, addresses={0: "127.0.0.1:1"})
        client.remember("%RETRY%billing", replace(route, brokers=(moved,)))

    run, batches, _ = redrive(to="retry", batch_max=1, planned=know_another_address)
    assert run.given_up is None
    (first, *others) = [each.status for batch in batches for each in batch]
    assert (first, others) == ("NOT_SENT", ["SEND_OK"] * 8)


def test_letters_whose_connection_was_lost_are_not_sent_twice_by_one_run(
    cluster, redrive
):
    """The run sent them again, and called them sent without saying that it did."""
    cluster.create_topic("repair", queues=4)
    for code in SENDS:
        lost = faults.disconnect(is_handled=True)
        cluster.faults.next(lost, code=code, topic="repair")
    _, batches, _ = redrive(to="repair")
    assert "UNKNOWN" in {each.status for batch in batches for each in batch}
    with Admin(namesrv=cluster.namesrv) as admin:
        stored = Counter(message.body for message in admin.read("repair"))
    assert set(stored.values()) == {1}


OK, LOST = "SEND_OK", "UNKNOWN"


@pytest.mark.parametrize(
    ("action", "answered", "statuses"),
    [
        (faults.drop_request(), 0, [[LOST]]),
        (faults.disconnect(), 1, [[OK], [LOST] * 3]),
        # A broker that answers one of a batch may answer the next batch.
        (faults.drop_request(), 2, [[OK], [OK, LOST, LOST], [LOST] * 3]),
    ],
)
def test_a_redrive_to_the_retry_topic_stops_at_a_batch_to_which_no_broker_answers(
    cluster, redrive, action, answered, statuses
):
    """It went on, and all letters became doubtful: the next run sent them again."""
    cluster.create_topic("%RETRY%billing", queues=1)
    commit(cluster, "%RETRY%billing", 0)
    send = RequestCode.SEND_MESSAGE_V2
    cluster.faults.add(action, code=send, nth=answered + 1)
    run, batches, _ = redrive(to="retry", timeout_ms=300, batch_max=3)
    assert isinstance(run.given_up, TransportError)
    assert [[each.status for each in batch] for batch in batches] == statuses


def test_a_redrive_goes_on_after_a_batch_that_a_broker_refuses(cluster, redrive):
    for code in SENDS:
        cluster.faults.next(faults.answer(16, "not now"), code=code)
    run, batches, _ = redrive(batch_max=1)
    assert run.given_up is None
    statuses = [each.status for (each,) in batches]
    assert statuses == ["NO_PERMISSION", *["SEND_OK"] * 8]


@pytest.mark.parametrize("dead_after", [1, 2])
def test_what_was_not_tried_any_more_is_not_sent_and_says_why(
    cluster, redrive, monkeypatch, dead_after
):
    """Letters of 256 KiB have a request each, the others are sent together."""
    # Not 5, which take half a minute.
    monkeypatch.setattr(requests, "DEAD_AFTER", dead_after)
    make_letters(cluster, "billing", "orders", ["x" * (256 << 10)] * 3)
    for code in SENDS:
        cluster.faults.add(faults.disconnect(), code=code)
    run, (results,), _ = redrive(batch_max=11)
    assert run.given_up is not None
    tried = 8 + dead_after
    assert [each.status for each in results] == [
        *["UNKNOWN"] * tried,
        *["NOT_SENT"] * (11 - tried),
    ]
    ended = f"{cluster.broker().address} closed the connection"
    for each in (run.given_up.message, *(each.error for each in results)):
        assert ended in each


def test_a_plan_names_the_first_letters_that_may_be_sent_twice(cluster, monkeypatch):
    monkeypatch.setattr(redrive_module, "DOUBTFUL_NAMED_MAX", 2)
    with Admin(namesrv=cluster.namesrv) as admin:
        letters = {one.queue_offset: one for one in admin.read("%DLQ%billing")}
    states = LetterStates()
    for offset in (0, 1, 2):
        place = offset, letters[offset].commit_log_offset
        states.set(LetterPlace("broker-a", 0, *place), DOUBTFUL)
    request = RedriveRequest(group="billing", filter=TailFilter())
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        plan = plan_redrive(client, request, states)
        none = plan_redrive(client, request, LetterStates())
    assert plan.doubtful == ("broker-a:0:0", "broker-a:0:1")
    assert plan.doubtful_count == 3
    assert plan.targets == {"orders": 9}
    assert (none.doubtful, none.doubtful_count) == ((), 0)


def plan_of(cluster, states=None, **request):
    """Plan a redrive of billing's letters."""
    request = {"group": "billing", "filter": TailFilter(), **request}
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        return plan_redrive(client, RedriveRequest(**request), states or LetterStates())


@pytest.mark.parametrize(
    ("committed", "consumed"), [(None, 0), (3, 0), (5, 0), (7, 2), (9, 4), (12, 4)]
)
def test_only_letters_of_the_range_count_as_consumed_by_the_group(
    cluster, committed, consumed
):
    if committed is not None:
        commit(cluster, "%DLQ%billing", committed)
    plan = plan_of(cluster, last=4)
    assert (plan.count, plan.consumed_count) == (4, consumed)


def commit(cluster, topic, offset, *, group="billing"):
    """Commit an offset, as a consumer does."""
    with client_of(cluster) as client:
        call = update_consumer_offset(group, topic, 0, commit_offset=offset)
        client.invoke(cluster.broker().address, call)


def store(cluster, topic, body, properties, *, sys_flag=0):
    """Send a message as no producer would; return the broker's answer."""
    header = SendMessageRequestHeaderV2(
        producer_group="p",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=sys_flag,
        born_timestamp=1,
        flag=0,
        properties=properties,
        reconsume_times=0,
        unit_mode=False,
        max_reconsume_times=16,
        batch=False,
    )
    with client_of(cluster) as client:
        return client.invoke(cluster.broker().address, send_message(header, body))


def test_letters_that_cannot_be_sent_stay_and_the_others_are_sent(cluster, redrive):
    cluster.create_topic("closed", perm=4)
    from_closed, from_dead = (
        Seed(body=b"y", properties={"RETRY_TOPIC": topic})
        for topic in ("closed", "%DLQ%other")
    )
    cluster.send("%DLQ%billing", [from_closed, from_dead])
    letter = "RETRY_TOPIC\x01orders\x02"
    store(cluster, "%DLQ%billing", b"no zlib data", letter, sys_flag=1)
    whole = zlib.compress(b"whole")
    store(cluster, "%DLQ%billing", whole, letter, sys_flag=1)
    plan = plan_of(cluster)
    assert plan.targets == {"orders": 10}
    assert {reason[:31]: each.example for reason, each in plan.left_out.items()} == {
        "topic closed has no writable qu": "broker-a:0:9",
        "its origin %DLQ%other is a topi": "broker-a:0:10",
        "its body is damaged: body is no": "broker-a:0:11",
    }
    _, (results,), _ = redrive()
    assert [each.place.queue_offset for each in results] == [*range(9), 12]
    with Admin(namesrv=cluster.namesrv) as admin:
        sent = [m.body for m in admin.read("orders")][9:]
    assert sent == [*(b"%d" % n for n in range(9)), b"whole"]


def test_a_letter_with_a_damaged_body_is_named_also_with_not(cluster):
    """It counted as one that matches what is not wanted, and nothing named it."""
    letter = "RETRY_TOPIC\x01orders\x02"
    store(cluster, "%DLQ%billing", b"no zlib data", letter, sys_flag=1)
    wanted = TailFilter(pattern=re.compile("^[0-7]$"), invert=True)
    plan = plan_of(cluster, filter=wanted)
    assert plan.targets == {"orders": 1}
    (left,) = plan.left_out.values()
    assert (left.count, left.example) == (1, "broker-a:0:9")


def test_letters_with_long_properties_are_sent(cluster, redrive):
    for length in (29_000, 31_000):
        properties = {"RETRY_TOPIC": "orders", "a": "x" * length}
        cluster.send("%DLQ%billing", [Seed(body=b"z", properties=properties)])
    plan = plan_of(cluster)
    assert (plan.targets, plan.left_out) == ({"orders": 11}, {})
    _, (results,), _ = redrive()
    assert [each.status for each in results] == ["SEND_OK"] * 11


def test_letters_whose_properties_are_not_utf_8_stay(cluster):
    raw = b"RETRY_TOPIC\x01orders\x02city\x01K\xf6ln\x02"
    header = SendMessageRequestHeaderV2(
        producer_group="p",
        topic="%DLQ%billing",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=1,
        flag=0,
        properties="",
        reconsume_times=0,
        unit_mode=False,
        max_reconsume_times=16,
        batch=True,
    )
    with client_of(cluster) as client:
        call = send_batch_message(header, encode_items([(b"z", raw, 0)]))
        client.invoke(cluster.broker().address, call)
    plan = plan_of(cluster)
    assert (plan.count, {k: v.example for k, v in plan.left_out.items()}) == (
        9,
        {"its properties are not UTF-8, and would be changed": "broker-a:0:9"},
    )


def test_a_plan_names_the_first_letters_that_could_not_be_decoded(
    cluster, monkeypatch, tmp_path
):
    monkeypatch.setattr(redrive_module, "NAMED_MAX", 2)
    make_letters(cluster, "billing", "orders", ["x", "y", "z"])
    redrive = connect(cluster.namesrv).redrive(
        "billing", where="value >= 0", decode="json", log=tmp_path / "log"
    )
    plan = redrive.plan()
    assert plan.undecoded == ("broker-a:0:9", "broker-a:0:10")
    assert (plan.undecoded_count, plan.count) == (3, 9)


def test_the_results_say_where_each_copy_is(cluster, redrive):
    """The letters of a batch are spread over the queues of the topic."""
    cluster.create_topic("repair", queues=4)
    _, batches, _ = redrive(to="repair", batch_max=8)
    results = [each for batch in batches for each in batch]
    assert [each.place.queue_offset for each in results] == [*range(9)]
    with Admin(namesrv=cluster.namesrv) as admin:
        found = {m.properties["RMQ_REDRIVEN_FROM"]: m for m in admin.read("repair")}
    for each in results:
        copy = found[str(each.place)]
        assert (each.broker_name, each.topic) == ("broker-a", "repair")
        assert (each.msg_id, each.queue_id, each.queue_offset) == (
            copy.msg_id,
            copy.queue_id,
            copy.queue_offset,
        )
    counts = Counter(each.queue_id for each in results)
    assert sorted(counts.values()) == [2, 2, 2, 3]


def add_keyed_letters(cluster, *names):
    """Add letters whose bodies are their message group and a number, as in `b 1`."""
    cluster.send(
        "%DLQ%billing",
        [
            Seed(
                body=name.encode(),
                properties={
                    "RETRY_TOPIC": "repair",
                    "__SHARDINGKEY": name.split()[0],
                },
            )
            for name in names
        ],
    )


def stored_in(cluster, topic):
    """The bodies in each queue that has messages, in their order."""
    found: dict[int, list[str]] = {}
    with Admin(namesrv=cluster.namesrv) as admin:
        messages = list(admin.read(topic))
    for each in sorted(messages, key=lambda m: m.queue_offset):
        found.setdefault(each.queue_id, []).append(each.body.decode())
    return found


def test_letters_of_a_message_group_keep_their_order_in_the_queue_of_their_group(
    cluster, redrive
):
    """They were spread over the queues, where consumers got them in any order."""
    cluster.create_topic("repair", queues=4)
    names = [f"{group} {n}" for n in range(3) for group in ("a", "group-1", "订单")]
    add_keyed_letters(cluster, *names, "zzzzzzzz 0")
    _, batches, _ = redrive(batch_max=4)
    results = [each for batch in batches for each in batch]
    assert [each.status for each in results] == ["SEND_OK"] * 19
    assert stored_in(cluster, "repair") == {
        0: ["a 0", "a 1", "a 2"],
        1: ["group-1 0", "订单 0", "group-1 1", "订单 1", "group-1 2", "订单 2"],
        2: ["zzzzzzzz 0"],
    }


def test_after_a_letter_without_an_answer_its_queue_gets_no_more_of_message_groups(
    cluster, redrive
):
    """Those behind it would be before it, and the next redrive sends them in order."""
    cluster.create_topic("repair", queues=4)
    add_keyed_letters(cluster, "a 0", "group-1 0", "a 1", "group-1 1", "a 2")
    code = RequestCode.SEND_MESSAGE_V2
    cluster.faults.next(faults.disconnect(), code=code, topic="repair")
    run, batches, _ = redrive(batch_max=2)
    results = {str(r.place): r.status for batch in batches for r in batch}
    assert run.given_up is None
    assert [results[f"broker-a:0:{n}"] for n in range(9, 14)] == [
        "UNKNOWN",
        "SEND_OK",
        "NOT_SENT",
        "SEND_OK",
        "NOT_SENT",
    ]
    redrive()
    assert stored_in(cluster, "repair") == {
        0: ["a 0", "a 1", "a 2"],
        1: ["group-1 0", "group-1 1"],
    }


def test_letters_with_a_priority_go_back_to_the_queue_of_their_priority(
    cluster, redrive
):
    """A broker stores a batch in the queue of the request, whatever the priorities."""
    cluster.create_topic("repair", queues=4)
    cluster.send(
        "%DLQ%billing",
        [
            Seed(
                body=b"%d" % (n % 4),
                properties={
                    "RETRY_TOPIC": "repair",
                    "_SYS_MSG_PRIORITY_": str(n % 4),
                },
            )
            for n in range(40)
        ],
    )
    redrive()
    assert stored_in(cluster, "repair") == {n: [str(n)] * 10 for n in range(4)}


def test_letters_of_a_lite_topic_go_back_to_it(cluster, redrive):
    """Of a batch a broker does not note the lite topics: no consumer got them."""
    cluster.create_topic("repair", queues=1)
    origin = {"RETRY_TOPIC": "repair", "__LITE_TOPIC": "a"}
    cluster.send("%DLQ%billing", [Seed(body=b"x", properties=origin)] * 3)
    redrive()
    with Admin(namesrv=cluster.namesrv) as admin:
        found = [m.properties["INNER_MULTI_DISPATCH"] for m in admin.read("repair")]
    assert found == ["%LMQ%$repair$a"] * 3


def test_a_letter_that_is_refused_does_not_stop_its_message_group(cluster, redrive):
    cluster.create_topic("repair", queues=4)
    add_keyed_letters(cluster, "a 0", "a 1", "a 2")
    refused = faults.answer(13, "the message is illegal")
    code = RequestCode.SEND_MESSAGE_V2
    cluster.faults.add(refused, code=code, topic="repair", nth=2, times=1)
    redrive(batch_max=1)
    assert stored_in(cluster, "repair") == {0: ["a 0", "a 2"]}


def test_letters_of_one_batch_go_to_the_topics_where_each_was_first(cluster, redrive):
    cluster.create_topic("payments", queues=1)
    origin = {"RETRY_TOPIC": "payments"}
    empty = Seed(body=b"", keys="k", properties=origin)
    cluster.send("%DLQ%billing", [Seed(body=b"p", properties=origin), empty])
    _, (results,), _ = redrive()
    assert [each.topic for each in results] == ["orders"] * 9 + ["payments"] * 2
    with Admin(namesrv=cluster.namesrv) as admin:
        sent = [(m.body, m.keys) for m in admin.read("payments")]
    assert sent == [(b"p", None), (b"", "k")]


def test_one_letter_that_a_broker_refuses_does_not_hold_the_others_back(
    cluster, redrive
):
    """It refuses the batch; then each letter is sent alone."""
    refused = faults.answer(13, "the message is illegal")
    cluster.faults.next(refused, code=RequestCode.SEND_BATCH_MESSAGE)
    cluster.faults.add(refused, code=RequestCode.SEND_MESSAGE_V2, nth=3, times=1)
    run, (results,), _ = redrive()
    assert run.given_up is None
    assert [each.status for each in results] == [
        *["SEND_OK"] * 2,
        "MESSAGE_ILLEGAL",
        *["SEND_OK"] * 6,
    ]


def test_requests_without_an_answer_end_a_redrive_only_in_a_row(
    cluster, redrive, monkeypatch
):
    """Letters of 256 KiB have a request each."""
    monkeypatch.setattr(requests, "DEAD_AFTER", 2)
    make_letters(cluster, "billing", "orders", ["x" * (256 << 10)] * 4)
    for nth in (1, 2):
        cluster.faults.add(
            faults.disconnect(), code=RequestCode.SEND_MESSAGE_V2, nth=nth, times=1
        )
    run, (results,), _ = redrive(batch_max=13)
    assert run.given_up is None
    assert [each.status for each in results[9:]] == [
        *("UNKNOWN", "SEND_OK"),
        *("UNKNOWN", "SEND_OK"),
    ]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (BrokerError("b", code=16, name="NO_PERMISSION"), "NO_PERMISSION"),
        (ConnectError("c", address="a:1"), "NOT_SENT"),
        (DisconnectedError("d", address="a:1"), "UNKNOWN"),
        (DeadlineError("e", address="a:1"), "UNKNOWN"),
        (DecodeError("f"), "UNKNOWN"),
        (RmqError("g"), "NOT_SENT"),
    ],
)
def test_a_letter_is_unknown_only_if_it_may_be_stored(error, status):
    place = LetterPlace("broker-a", 0, 7, 4_096)
    result = requests.failed(Letter(place, "orders", b"", b"", 0), error)
    assert result == LetterResult(place, status, "orders", error=error.message)
    assert not result.is_stored


def test_a_retry_is_sent_as_a_consumer_would_send_it_back(cluster, redrive):
    cluster.create_topic("%RETRY%billing", queues=2)
    commit(cluster, "%RETRY%billing", 0)
    make_letters(cluster, "billing", "orders", ["flagged"], flag=7)
    seen = cluster.faults.observe(code=RequestCode.SEND_MESSAGE_V2)
    _, batches, _ = redrive(to="retry")
    assert [len(batch) for batch in batches] == [1, 9]
    results = [each for batch in batches for each in batch]
    sent = [each.command.ext_fields for each in seen.requests]
    fields = {
        "a": "CLIENT_INNER_PRODUCER",
        "b": "%RETRY%billing",
        "c": "TBW102",
        "d": "4",
        "f": "0",
        "j": "0",
        "k": "false",
        "l": "16",
        "m": "false",
    }
    assert [{**each, **fields} for each in sent] == sent
    assert [each["h"] for each in sent] == ["0"] * 9 + ["7"]
    assert [each["e"] for each in sent] == ["0", *"010101010"]
    with Admin(namesrv=cluster.namesrv) as admin:
        letters = {m.queue_offset: m for m in admin.read("%DLQ%billing")}
        found = {
            m.properties["RMQ_REDRIVEN_FROM"]: m for m in admin.read("%RETRY%billing")
        }
    for each in results:
        copy, letter = found[str(each.place)], letters[each.place.queue_offset]
        assert (each.msg_id, each.queue_id, each.queue_offset) == (
            copy.msg_id,
            copy.queue_id,
            copy.queue_offset,
        )
        assert (copy.body, copy.properties["RETRY_TOPIC"]) == (letter.body, "orders")
        origin = copy.properties["ORIGIN_MESSAGE_ID"]
        assert origin == letter.properties["ORIGIN_MESSAGE_ID"]
        assert copy.born_timestamp_ms > letter.born_timestamp_ms


def test_a_retry_stays_on_the_broker_of_its_letter(rmq_cluster_factory):
    cluster = rmq_cluster_factory(brokers=2, queues=1)
    cluster.create_topic("orders")
    cluster.create_group("billing")
    make_letters(cluster, "billing", "orders", "abcd")
    commit(cluster, "%RETRY%billing", 0)
    report = connect(cluster.namesrv).redrive("billing", to="retry").execute()
    assert report.stored == 4
    with Admin(namesrv=cluster.namesrv) as admin:
        for m in admin.read("%RETRY%billing"):
            name = m.properties["RMQ_REDRIVEN_FROM"].partition(":")[0]
            assert name == m.message_queue.broker_name


def test_a_letter_with_an_empty_body_is_sent_to_the_retry_topic(rmq_cluster_factory):
    """Brokers from 5.0 on take an empty body neither in a request nor as a copy."""
    cluster = rmq_cluster_factory(queues=1)
    cluster.create_topic("orders")
    cluster.send("orders", [""])
    with Admin(namesrv=cluster.namesrv) as admin:
        with consumer(
            cluster, "audit", "orders", Seen(lambda *_: False), max_reconsume_times=0
        ):
            wait_until(
                lambda: any(
                    each.topic == "%DLQ%audit" for each in admin.topics().topics
                )
            )
        commit(cluster, "%RETRY%audit", 0, group="audit")
        report = connect(cluster.namesrv).redrive("audit", to="retry").execute()
        assert report.stored == 1
        (retry,) = admin.read("%RETRY%audit")
        assert (retry.body, retry.properties["RETRY_TOPIC"]) == (b"", "orders")


def test_a_letter_after_retries_by_pop_goes_to_the_topic_behind_its_retry_topic(
    cluster,
):
    cluster.create_topic("%RETRY%billing_orders", queues=1)
    make_letters(cluster, "billing", "%RETRY%billing_orders", ["popped"])
    plan = plan_of(cluster)
    assert (plan.targets, plan.left_out) == ({"orders": 10}, {})


def test_messages_that_the_group_consumes_by_pop_are_not_sent_to_its_retry_topic(
    cluster,
):
    cluster.create_topic("payments", queues=1)
    make_letters(cluster, "billing", "payments", ["p"])
    for topic in ("%RETRY%billing_payments", "%RETRY%billing_refunds"):
        cluster.create_topic(topic, queues=1)
        commit(cluster, topic, 0)
    cluster.create_group("audit")
    cluster.create_topic("%RETRY%audit_orders", queues=1)
    commit(cluster, "%RETRY%audit_orders", 0, group="audit")
    with pytest.raises(RefusedError, match="has committed nothing in %RETRY%billing"):
        plan_of(cluster, to="retry")
    commit(cluster, "%RETRY%billing", 0)
    plan = plan_of(cluster, to="retry")
    assert plan.targets == {"%RETRY%billing": 9}
    ((reason, left),) = plan.left_out.items()
    assert reason.startswith("the group consumes payments by POP")
    assert (left.count, left.example) == (1, "broker-a:0:9")
