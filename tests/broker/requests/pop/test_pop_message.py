"""POP: what is delivered, what comes back and when, what waits, what is bounded."""

from __future__ import annotations

import pytest

from rmqcli.broker.effects import Peer
from rmqcli.broker.settings import BrokerSettings
from rmqcli.broker.state import check_points, pop_holds
from rmqcli.store.memory import MemoryStore
from rmqcli.wire.bodies.pop import (
    AckMsg,
    BatchAck,
    BatchAckMessageRequestBody,
    ConsumerOrderInfo,
    PopCheckPoint,
)
from rmqcli.wire.body import decode_body, encode_body
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.headers.pop import PollingInfoRequestHeader
from rmqcli.wire.message.encode import MessageFields
from tests.broker.driving import CLIENT, Driver, need
from tests.broker.popping import ack, bodies, change, handles, messages, pop, pop_header
from tests.broker.pulling import driver_with_topic, put
from tests.broker.sending import like
from tests.kit.rows import each_row

POP_CODES = (400, 401, 200050, 200051, 200053, 200054, 200055, 200151)


@each_row("version", ["4.6.0", "4.9.7"])
@each_row("code", POP_CODES)
def test_before_5_0_pop_is_not_supported(version, code):
    answer = need(Driver(like(version)).ask(code))

    assert (answer.code, answer.remark) == (3, f" request type {code} not supported")


def test_a_message_comes_back_when_its_time_is_over():
    """Under its own topic, with one attempt more and the time of its first receive."""
    driver = driver_with_topic()
    put(driver, "A", "B")
    first = handles(pop(driver, invisible_time=10_000))
    ack(driver, first[1])

    driver.wait(9_999)
    assert bodies(pop(driver)) == []
    driver.wait(1)
    answer = pop(driver, queue_id=-1)

    assert bodies(answer) == ["A1"]
    (message,) = messages(answer)
    assert message.topic == "T"
    assert message.properties["1ST_POP_TIME"] == "1700000000000"
    assert message.properties["ORIGIN_GROUP"] == "g"
    assert message.properties["POP_CK"] == "0 1700000010000 60000 2 1 broker-a 0 0"
    assert answer.ext_fields["startOffsetInfo"] == "1 0 0"
    assert [each.topic for each in driver.messages("%RETRY%g_T")] == ["%RETRY%g_T"]


def test_messages_come_back_in_the_newer_retry_topic_and_the_older_is_read_too():
    driver = driver_with_topic(BrokerSettings(enable_retry_topic_v2=True))
    put(driver, "A")
    pop(driver, invisible_time=1_000)
    driver.wait(1_000)

    found = [bodies(pop(driver)) for _ in range(2)]

    assert sorted(found) == [[], ["A1"]]
    assert len(driver.messages("%RETRY%g+T")) == 1
    assert driver.messages("%RETRY%g_T") == []


def test_what_is_acknowledged_in_time_does_not_come_back():
    driver = driver_with_topic()
    put(driver, "A")
    (handle,) = handles(pop(driver, invisible_time=1_000))
    driver.wait(999)

    assert ack(driver, handle) == 0
    driver.wait(60_000)

    assert bodies(pop(driver)) == []
    assert len(driver.broker.check_points) == 0


def test_an_acknowledgement_that_comes_too_late_has_no_effect():
    driver = driver_with_topic()
    put(driver, "A")
    (handle,) = handles(pop(driver, invisible_time=1_000))
    driver.wait(1_000)

    assert ack(driver, handle) == 0

    assert bodies(pop(driver)) == ["A1"]


def test_a_change_counts_from_now_and_voids_the_old_handle():
    driver = driver_with_topic()
    put(driver, "A")
    (handle,) = handles(pop(driver, invisible_time=1_000))
    driver.wait(500)

    answer = change(driver, handle, 2_000)

    assert answer.ext_fields == {
        "popTime": "1700000000500",
        "invisibleTime": "2000",
        "reviveQid": "0",
    }
    ack(driver, handle)
    driver.wait(1_999)
    assert bodies(pop(driver)) == []
    driver.wait(1)
    assert bodies(pop(driver)) == ["A1"]


def test_two_changes_within_a_millisecond_lose_nothing():
    driver = driver_with_topic()
    put(driver, "A")
    (handle,) = handles(pop(driver, invisible_time=1_000))

    answer = change(driver, handle, 3_000)

    assert answer.ext_fields["popTime"] == "1700000000001"
    driver.wait(3_001)
    assert bodies(pop(driver)) == ["A1"]


@pytest.mark.parametrize("invisible_ms", [-1, 0])
def test_a_time_that_is_over_at_once_does_not_lose_the_message(invisible_ms):
    driver = driver_with_topic()
    put(driver, "A")

    assert bodies(pop(driver, invisible_time=invisible_ms)) == ["A"]
    driver.wait(0)

    assert bodies(pop(driver)) == ["A1"]


def restarted(driver: Driver, *, offsets: bool = False) -> Driver:
    """Return a new broker with the same store, as after SIGKILL.

    With `offsets`, the offsets had been stored. The time stands still while the broker
    is down.
    """
    before = driver.broker
    after = Driver(store=driver.store, now=driver.now)
    after.broker.topics.load(before.topics.all().values())
    after.broker.groups.load(before.groups.all().values())
    if offsets:
        copy_offsets(before, after.broker)
    after.broker.check_points.recover(after.now)
    return after


def copy_offsets(before, after):
    after.offsets.load(before.offsets.table())
    for (topic, group), queues in before.offsets.pull_table().items():
        for queue_id, offset in queues.items():
            after.offsets.commit_pull(group, topic, queue_id, offset)


@pytest.mark.parametrize("offsets", [False, True])
def test_after_a_kill_nothing_is_lost_and_nothing_acknowledged_comes_back(offsets):
    """Whether or not the offsets had been stored."""
    driver = driver_with_topic()
    put(driver, "A", "B", "C", "D")
    given = handles(pop(driver, invisible_time=10_000, max_msg_nums=3))
    ack(driver, given[1])
    change(driver, given[2], 20_000)

    driver = restarted(driver, offsets=offsets)

    assert bodies(pop(driver)) == ["D"]
    driver.wait(10_000)
    assert bodies(pop(driver)) == ["A1"]
    driver.wait(10_000)
    assert bodies(pop(driver)) == ["C1"]
    driver.wait(30_000)
    assert bodies(pop(driver)) == []


def test_after_a_kill_what_came_back_does_not_come_back_twice():
    driver = driver_with_topic()
    put(driver, "A")
    pop(driver, invisible_time=1_000)
    driver.wait(1_000)

    driver = restarted(driver)
    driver.wait(5_000)

    assert len(driver.messages("%RETRY%g_T")) == 1
    assert bodies(pop(driver)) == ["A1"]


def test_a_reset_that_was_stored_is_not_undone_by_a_restart():
    driver = driver_with_topic()
    put(driver, "A", "B")
    for handle in handles(pop(driver)):
        ack(driver, handle)
    driver.broker.offsets.commit("g", "T", 0, 0)

    driver = restarted(driver, offsets=True)

    assert bodies(pop(driver)) == ["A", "B"]


def test_the_revive_topic_holds_what_a_real_broker_writes():
    """The bodies are those of Java's PopCheckPoint, AckMsg and BatchAckMsg."""
    driver = driver_with_topic()
    put(driver, "A", "B", "C")
    given = handles(pop(driver, invisible_time=15_000))
    ack(driver, given[0])
    acks = BatchAck(
        consumer_group="g",
        topic="T",
        retry="0",
        start_offset=0,
        queue_id=0,
        revive_queue_id=0,
        pop_time=1_700_000_000_000,
        invisible_time=15_000,
        bit_set=frozenset({1, 2}),
    )
    body = BatchAckMessageRequestBody(broker_name="broker-a", acks=[acks])
    driver.ask(RequestCode.BATCH_ACK_MESSAGE, body=encode_body(body))

    log = driver.messages("rmq_sys_REVIVE_LOG_DefaultCluster")

    assert [(each.properties["TAGS"], each.body.decode()) for each in log] == [
        (
            "ck",
            (
                '{"bm":0,"bn":"broker-a","c":"g","d":[0,1,2],"it":15000,"n":3,'
                '"pt":1700000000000,"q":0,"reviveTime":1700000015000,"ro":0,"so":0,'
                '"sp":false,"t":"T"}'
            ),
        ),
        (
            "ack",
            '{"ao":0,"bn":"broker-a","c":"g","pt":1700000000000,"q":0,"so":0,"t":"T"}',
        ),
        (
            "bAck",
            (
                '{"ao":-1,"aol":[1,2],"bn":"broker-a","c":"g","pt":1700000000000,'
                '"q":0,"so":0,"t":"T"}'
            ),
        ),
    ]
    offsets = driver.broker.offsets
    topic, group = log[0].topic, "CID_RMQ_SYS_REVIVE_GROUP"
    assert offsets.query(group, topic, 0) == 2


def test_a_message_wakes_one_request_and_the_rest_wakes_the_next():
    driver = driver_with_topic()
    for number in (1, 2):
        header = pop_header(driver, poll_time=20_000, max_msg_nums=1, queue_id=-1)
        peer = Peer(number, f"127.0.0.1:4000{number}")
        assert driver.ask(RequestCode.POP_MESSAGE, header, peer=peer) is None
    waiting = PollingInfoRequestHeader(consumer_group="g", topic="T", queue_id=-1)

    count = need(driver.ask(RequestCode.POLLING_INFO, waiting, peer=Peer(9, "x:1")))
    put(driver, "A")

    assert count.ext_fields == {"pollingNum": "2"}
    assert [bodies(each) for each in driver.sent[1]] == [["A"]]
    assert driver.sent[2] == []
    driver.wait(19_949)
    assert driver.sent[2] == []
    driver.wait(2)
    (answer,) = driver.sent[2]
    assert (answer.code, answer.remark) == (210, "NO_MESSAGE_IN_QUEUE")


def test_a_request_that_waits_gets_what_comes_back():
    driver = driver_with_topic()
    put(driver, "A")
    pop(driver, invisible_time=1_000)
    header = pop_header(driver, poll_time=20_000)
    assert driver.ask(RequestCode.POP_MESSAGE, header, peer=Peer(5, "x:1")) is None

    driver.wait(1_000)

    assert [bodies(each) for each in driver.sent[5]] == [["A1"]]


def test_a_message_of_another_tag_leaves_a_request_waiting():
    driver = driver_with_topic()
    header = pop_header(driver, poll_time=20_000, exp="B", exp_type="TAG")
    assert driver.ask(RequestCode.POP_MESSAGE, header) is None

    put(driver, "A")
    assert driver.sent[CLIENT.number] == []
    put(driver, "B")

    assert [bodies(each) for each in driver.sent[CLIENT.number]] == [["B"]]


def test_requests_of_closed_connections_are_dropped():
    driver = driver_with_topic()
    peer = Peer(5, "x:1")
    header = pop_header(driver, poll_time=20_000)
    driver.ask(RequestCode.POP_MESSAGE, header, peer=peer)

    driver.disconnect(peer)
    put(driver, "A")

    assert len(driver.broker.pop_holds) == 0
    assert bodies(pop(driver)) == ["A"]


def test_a_thousand_requests_that_wait_share_a_thousand_messages():
    """A message wakes the first; what a request leaves wakes the next one."""
    driver = driver_with_topic()
    numbers = range(1_001, 2_001)
    for number in numbers:
        header = pop_header(driver, poll_time=20_000, max_msg_nums=1)
        driver.ask(RequestCode.POP_MESSAGE, header, peer=Peer(number, "x:1"))
    unseen = [MessageFields(topic="T", body=b"x")] * 999
    driver.store.append(unseen, tags_codes=[0] * 999)

    put(driver, "A")
    driver.wait(0)

    assert [len(driver.sent[number]) for number in numbers] == [1] * 1_000


def test_too_many_requests_of_a_queue_are_refused(monkeypatch):
    monkeypatch.setattr(pop_holds, "HELD_OF_QUEUE_MAX", 2)
    driver = driver_with_topic()
    for _ in range(3):
        header = pop_header(driver, poll_time=20_000)
        assert driver.ask(RequestCode.POP_MESSAGE, header) is None

    assert pop(driver, poll_time=20_000).code == 209


def test_too_many_check_points_keep_messages_back(monkeypatch):
    monkeypatch.setattr(check_points, "CHECK_POINTS_MAX", 1)
    driver = driver_with_topic()
    put(driver, "A", "B")
    (handle,) = handles(pop(driver, max_msg_nums=1))

    assert pop(driver).code == 210
    assert change(driver, handle, 1_000).code == 1
    ack(driver, handle)

    assert bodies(pop(driver)) == ["B"]


def test_a_slave_gives_out_nothing():
    driver = Driver(BrokerSettings(broker_id=1))

    assert pop(driver).code == 14


def test_choices_that_are_passed_in_decide_what_is_looked_at_first():
    """Below 20 the retry topic comes first; the number chooses the first queue, too."""
    choices = iter([0, 51, 19, 50])
    driver = driver_with_topic()
    driver.broker._pop_choice = lambda: next(choices)
    put(driver, "A")
    pop(driver, invisible_time=0)  # 0
    driver.wait(0)
    put(driver, "B")
    put(driver, "C", queue_id=1)

    assert bodies(pop(driver, max_msg_nums=1, queue_id=-1)) == ["B"]  # 51
    assert bodies(pop(driver, max_msg_nums=1, queue_id=-1)) == ["A1"]  # 19
    assert bodies(pop(driver, max_msg_nums=1, queue_id=-1)) == ["C"]  # 50


FOR_EVER_MS = (1 << 63) - 1


def test_the_longest_time_survives_a_restart():
    """Its end is beyond the numbers of 64 bits, which JSON bodies are limited to."""
    driver = driver_with_topic()
    put(driver, "A")
    (handle,) = handles(pop(driver, invisible_time=FOR_EVER_MS))

    driver = restarted(driver)
    driver.wait(60_000)

    assert bodies(pop(driver)) == []
    assert len(driver.broker.check_points) == 1
    ack(driver, handle)
    assert len(driver.broker.check_points) == 0


def test_the_longest_time_in_order_can_be_stored():
    driver = driver_with_topic()
    put(driver, "A")
    (handle,) = handles(pop(driver, order=True))

    assert change(driver, handle, FOR_EVER_MS).code == 0

    written = encode_body(driver.broker.order_infos.body())
    read = decode_body(ConsumerOrderInfo, written)
    assert read.table["T@g"][0].offset_next_visible_time == {0: FOR_EVER_MS}


def test_an_attempt_id_of_absurd_length_is_refused():
    assert pop(driver_with_topic(), order=True, attempt_id="x" * 256).code == 29


def test_a_suspended_attempt_is_not_counted_after_a_restart_either():
    driver = driver_with_topic()
    put(driver, "A")
    (handle,) = handles(pop(driver))
    driver.wait(1)
    change(driver, handle, 1_000, suspend=True)

    driver = restarted(driver)
    driver.wait(1_000)

    assert bodies(pop(driver)) == ["A"]


def test_a_group_without_offset_begins_at_the_last_message_of_an_old_queue():
    """Old: the first message is not in memory any more, or is deleted."""
    driver = driver_with_topic(BrokerSettings(in_memory_bytes_max=0))
    put(driver, "A", "B", "C")

    assert bodies(pop(driver)) == ["C"]
    assert bodies(pop(driver, consumer_group="h", init_mode=0)) == ["A", "B", "C"]
    driver.store.trim("T", 1)
    assert bodies(pop(driver, consumer_group="i")) == ["C"]
    assert bodies(pop(driver, consumer_group="j", init_mode=0)) == ["B", "C"]


def test_an_offset_that_the_queue_does_not_have_is_corrected():
    driver = driver_with_topic()
    put(driver, "A", "B", "C")
    driver.store.trim("T", 1)
    driver.broker.offsets.commit("g", "T", 0, 0)
    driver.broker.offsets.commit("h", "T", 0, 99)

    assert bodies(pop(driver)) == ["B", "C"]
    assert bodies(pop(driver, consumer_group="h")) == []
    put(driver, "D")
    assert bodies(pop(driver, consumer_group="h")) == ["D"]


def test_what_the_log_no_longer_has_is_done():
    driver = driver_with_topic()
    put(driver, "A", "B")
    pop(driver, invisible_time=1_000)
    driver.store.trim("T", 1)

    driver.wait(1_000)

    assert bodies(pop(driver)) == ["B1"]
    assert len(driver.broker.check_points) == 1


def test_a_full_store_neither_gives_out_nor_loses():
    """A message whose check point cannot be stored stays in its queue."""
    store = MemoryStore()
    driver = driver_with_topic(store=store)
    put(driver, "A", "B")
    pop(driver, invisible_time=1_000, max_msg_nums=1)
    store.capacity_bytes = store.log_bounds()[1]

    assert pop(driver).code == 210
    driver.wait(1_000)
    store.capacity_bytes = None
    assert bodies(pop(driver)) == ["B"]
    driver.wait(10_000)

    assert bodies(pop(driver)) == ["A1"]


def test_a_real_brokers_check_point_that_comes_out_of_the_timers_is_taken_over():
    """It arrives in the revive topic a second before its time, and its acks later."""
    driver = driver_with_topic()
    put(driver, "A", "B")
    driver.broker.offsets.commit("g", "T", 0, 2)
    point = PopCheckPoint(
        start_offset=0,
        pop_time=1_700_000_000_000 - 60_000,
        invisible_time=61_000,
        num=2,
        topic="T",
        consumer_group="g",
        queue_offset_diff=[0, 1],
        broker_name="broker-a",
    )
    acked = AckMsg(
        ack_offset=1,
        start_offset=0,
        consumer_group="g",
        topic="T",
        pop_time=point.pop_time,
        broker_name="broker-a",
    )
    for tag, body in (("ck", point), ("ack", acked)):
        fields = MessageFields(
            topic="rmq_sys_REVIVE_LOG_DefaultCluster",
            body=encode_body(body),
            properties={"TAGS": tag},
        )
        driver.broker.writer.put([fields], driver.now)
        driver.wait(1_000)

    assert bodies(pop(driver)) == []
    driver.wait(1_000)
    assert bodies(pop(driver)) == ["A1"]


def write_check_point(driver, *, queue_id=0, **changes):
    """Store a check point of another broker, whose messages are due at once."""
    fields = {
        "start_offset": 0,
        "pop_time": 1_700_000_000_000,
        "invisible_time": 0,
        "num": 0,
        "topic": "T",
        "consumer_group": "g",
        "queue_offset_diff": [],
        "broker_name": "broker-a",
    }
    message = MessageFields(
        topic="rmq_sys_REVIVE_LOG_DefaultCluster",
        body=encode_body(PopCheckPoint(**{**fields, **changes})),
        queue_id=queue_id,
        properties={"TAGS": "ck"},
    )
    driver.broker.writer.put([message], driver.now)


@pytest.mark.parametrize(
    ("changes", "revived"),
    [
        ({"num": 0}, 0),
        ({"num": -1}, 0),
        ({"num": 1}, 1),
        ({"num": 2, "start_offset": 1}, 2),
        ({"num": 3, "queue_offset_diff": [0, 2]}, 2),
        # What only a made-up check point can have.
        ({"num": 1_025}, 1_024),
        ({"num": 1_025, "queue_offset_diff": list(range(1_025))}, 1_024),
        ({"num": 1, "queue_id": 8}, 0),
    ],
)
def test_a_check_point_names_its_messages_or_counts_them(changes, revived):
    """Without a list of offsets, they are as many as it says from its first one on."""
    driver = driver_with_topic()
    put(driver, *["A"] * 1_026)

    write_check_point(driver, **changes)
    driver.wait(2_000)

    assert len(driver.messages("%RETRY%g_T")) == revived
    assert len(driver.broker.check_points) == 0


def test_a_restart_moves_a_group_behind_what_was_delivered():
    """Also where its stored offset is that of the last message that was delivered."""
    driver = driver_with_topic()
    put(driver, "A", "B")
    pop(driver, max_msg_nums=1)
    after = Driver(store=driver.store, now=driver.now)
    after.broker.topics.load(driver.broker.topics.all().values())
    after.broker.offsets.commit("g", "T", 0, 0)

    after.broker.check_points.recover(after.now)

    assert after.broker.offsets.query("g", "T", 0) == 1
    assert bodies(pop(after)) == ["B"]


def test_rubbish_in_the_revive_topic_is_left_out():
    driver = driver_with_topic()
    for tag, body in (("ck", b"{"), ("ck", b"{}"), ("ack", b"[]"), ("x", b"")):
        fields = MessageFields(
            topic="rmq_sys_REVIVE_LOG_DefaultCluster",
            body=body,
            properties={"TAGS": tag},
        )
        driver.broker.writer.put([fields], driver.now)

    driver = restarted(driver)
    put(driver, "A")

    assert len(driver.broker.check_points) == 0
    assert bodies(pop(driver)) == ["A"]


def test_an_answer_is_not_longer_than_clients_read():
    """Large messages of many queues: what does not fit is left for the next answer."""
    driver = driver_with_topic(queues=5)
    for queue_id in range(5):
        put(driver, "A", queue_id=queue_id, body_bytes=4_000_000)

    answers = [pop(driver, queue_id=-1) for _ in range(3)]

    assert [len(messages(each)) for each in answers] == [3, 2, 0]
    assert answers[0].ext_fields["restNum"] == "2"


def test_messages_beside_one_that_cannot_be_read_come_back():
    """The client gets the bytes as they are; only it knows which it can read."""
    driver = driver_with_topic()
    put(driver, "A", "B", "C")
    records = driver.store._records  # type: ignore[attr-defined]
    (at,) = [unit.commit_log_offset for unit in driver.store.units("T", 0, 1, 1)]
    records[at] = records[at][:4] + bytes(4) + records[at][8:]  # no magic code

    answer = pop(driver, invisible_time=1_000)
    driver.wait(1_000)

    assert answer.ext_fields["msgOffsetInfo"] == "0 0 0,1,2"
    assert bodies(pop(driver)) == ["A1", "C1"]
