"""Delay levels and timer messages: where they wait, and when they are delivered."""

from __future__ import annotations

import pytest

from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.broker.message.delayed import parse_levels
from rmqcli.clock import Now
from rmqcli.errors import ConfigError
from rmqcli.store.memory import MemoryStore
from tests.broker.driving import EPOCH_MS, Driver
from tests.broker.sending import UNIQ_KEY, like, send

SCHEDULE = "SCHEDULE_TOPIC_XXXX"
TIMER = "rmq_sys_wheel_timer"


@pytest.mark.parametrize("version", ["4.6.0", "4.9.7", "5.5.0"])
def test_a_delayed_message_is_delivered_at_its_millisecond(version: str) -> None:
    driver = Driver(like(version))
    send(driver, queue_id=3)
    send(driver, properties={"DELAY": "2"})

    answer = send(driver, properties={"DELAY": "2", "TAGS": "a"}, queue_id=3)

    assert answer.ext_fields["queueId"] == "3"
    assert answer.ext_fields["queueOffset"] == "1"  # the schedule queue's
    waiting = driver.messages(SCHEDULE, 1)[1]
    assert waiting.properties["REAL_TOPIC"] == "T"
    assert waiting.properties["REAL_QID"] == "3"
    codes = [each.tags_code for each in driver.store.units(SCHEDULE, 1, 0, 9)]
    assert codes == [EPOCH_MS + 5_000] * 2
    driver.wait(4_999)
    assert len(driver.messages("T", 3)) == 1
    driver.wait(1)
    delivered = driver.messages("T", 3)[1]
    assert delivered.properties == waiting.properties
    assert delivered.properties["DELAY"] == "2"
    assert delivered.store_timestamp_ms == EPOCH_MS + 5_000
    assert driver.store.units("T", 3, 1, 1)[0].tags_code == ord("a")
    assert driver.broker.schedule.offsets == {2: 2}


@pytest.mark.parametrize(
    ("level", "topic", "queue_id"),
    [
        ("0", "T", 0),
        ("-1", "T", 0),
        ("1", SCHEDULE, 0),
        ("18", SCHEDULE, 17),
        ("19", SCHEDULE, 17),
    ],
)
def test_levels(level: str, topic: str, queue_id: int) -> None:
    driver = Driver()

    send(driver, properties={"DELAY": level})

    assert list(driver.store.queues()) == [(topic, queue_id)]


def test_a_level_that_is_not_a_number_is_code_1() -> None:
    assert send(Driver(), properties={"DELAY": "soon"}).code == 1


def test_levels_are_read_as_rocketmq_writes_them() -> None:
    assert parse_levels("1s 5m 2h 1d") == [1_000, 300_000, 7_200_000, 86_400_000]


@pytest.mark.parametrize("text", ["1ms", "1x", "s", "-1s", "1.5s", "\u0661s", "1s 5"])
def test_a_level_that_is_not_a_delay_is_named_with_what_to_write(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_levels(text)
    assert str(caught.value) == (
        f"message_delay_level: {text.split()[-1]!r} is not a whole number of seconds"
        " (s), minutes (m), hours (h) or days (d), such as 10s"
    )


def test_a_broker_has_at_least_one_level() -> None:
    with pytest.raises(ConfigError, match="must have at least one delay"):
        parse_levels(" ")


def test_a_cluster_with_such_levels_does_not_start() -> None:
    with pytest.raises(ConfigError, match="'1ms' is not a whole number"):
        EmbeddedCluster(settings={"message_delay_level": "1ms"})


def test_delivery_goes_on_after_a_restart() -> None:
    store = MemoryStore()
    first = Driver(store=store)
    send(first, properties={"DELAY": "1"}, body=b"one")
    first.wait(1_000)
    send(first, properties={"DELAY": "1"}, body=b"two")
    send(first, properties={"DELAY": "3"}, body=b"three")

    second = Driver(store=store, now=Now(77, EPOCH_MS + 5_000))
    second.broker.schedule.load(first.broker.schedule.offsets)
    second.wait(0)
    assert [each.body for each in second.messages("T")] == [b"one", b"two"]
    second.wait(6_000)

    assert [each.body for each in second.messages("T")] == [b"one", b"two", b"three"]
    assert second.messages("T")[2].store_timestamp_ms == EPOCH_MS + 11_000
    assert second.broker.schedule.offsets == {1: 2, 3: 1}


def test_lost_progress_delivers_messages_again() -> None:
    store = MemoryStore()
    first = Driver(store=store)
    send(first, properties={"DELAY": "1"})
    first.wait(1_000)

    second = Driver(store=store, now=Now(0, EPOCH_MS + 9_000))
    second.wait(0)

    assert len(second.messages("T")) == 2


def test_thousands_of_messages_due_together_come_in_order() -> None:
    driver = Driver()
    for number in range(1_000):
        send(driver, properties={"DELAY": "1"}, body=b"%d" % number)

    driver.wait(1_000)

    bodies = [each.body for each in driver.messages("T")]
    assert bodies == [b"%d" % number for number in range(1_000)]


def test_full_store_delays_the_delivery() -> None:
    store = MemoryStore(capacity_bytes=700)
    driver = Driver(store=store)
    send(driver, properties={"DELAY": "1", "UNIQ_KEY": UNIQ_KEY})
    store.capacity_bytes = store.log_bounds()[1]
    driver.wait(5_000)
    assert driver.messages("T") == []

    store.capacity_bytes = None
    driver.wait(6_000)

    assert len(driver.messages("T")) == 1


@pytest.mark.parametrize(
    ("properties", "due_ms"),
    [
        ({"TIMER_DELAY_SEC": "3"}, 3_000),
        ({"TIMER_DELAY_MS": "2500"}, 3_000),
        ({"TIMER_DELIVER_MS": str(EPOCH_MS + 2_001)}, 3_000),
        ({"TIMER_DELIVER_MS": str(EPOCH_MS + 2_000)}, 2_000),
        ({"TIMER_DELAY_SEC": "259200"}, 259_200_000),
    ],
)
def test_timer_messages_come_at_the_next_second(
    properties: dict[str, str | None], due_ms: int
) -> None:
    driver = Driver()

    send(driver, properties=properties, queue_id=1)

    assert list(driver.store.queues()) == [(TIMER, 0)]
    driver.wait(due_ms - 1)
    assert driver.messages("T", 1) == []
    driver.wait(1)
    (message,) = driver.messages("T", 1)
    assert message.properties["TIMER_OUT_MS"] == str(EPOCH_MS + due_ms - 1_000)
    assert message.properties["TIMER_ENQUEUE_MS"] == str(EPOCH_MS)
    assert message.properties["TIMER_DEQUEUE_MS"] == str(EPOCH_MS + due_ms)


@pytest.mark.parametrize(
    ("properties", "code"),
    [
        ({"TIMER_DELAY_SEC": "259201"}, 13),
        ({"TIMER_DELAY_SEC": "soon"}, 13),
        ({"TIMER_DELIVER_MS": "1" * 19}, 13),
        ({"TIMER_DELIVER_MS": "5"}, 0),
        ({"TIMER_DELIVER_MS": "5", "TIMER_DEL_UNIQKEY": "k"}, 13),
    ],
)
def test_illegal_timer_values_are_refused(
    properties: dict[str, str | None], code: int
) -> None:
    driver = Driver()

    assert send(driver, properties=properties).code == code
    assert len(driver.messages("T")) == (code == 0)


@pytest.mark.parametrize("version", ["4.6.0", "4.9.7"])
def test_4_x_ignores_timers(version: str) -> None:
    driver = Driver(like(version))

    send(driver, properties={"TIMER_DELAY_SEC": "3"})

    assert len(driver.messages("T")) == 1


def test_level_wins_over_a_timer() -> None:
    driver = Driver()

    send(driver, properties={"TIMER_DELAY_SEC": "3", "DELAY": "1"})

    assert list(driver.store.queues()) == [(SCHEDULE, 0)]


def test_timers_go_on_after_a_restart() -> None:
    store = MemoryStore()
    first = Driver(store=store)
    send(first, properties={"TIMER_DELAY_SEC": "2"}, body=b"one")
    send(first, properties={"TIMER_DELAY_SEC": "60"}, body=b"two")
    send(first, properties={"TIMER_DELAY_SEC": "20"}, body=b"three")
    first.wait(10_000)
    send(first, topic="Other")

    second = Driver(store=store, now=Now(5, EPOCH_MS + 30_000))
    second.broker.timer_messages.recover(second.now)
    second.wait(0)
    assert [each.body for each in second.messages("T")] == [b"one", b"three"]
    second.wait(30_000)

    assert [each.body for each in second.messages("T")] == [b"one", b"three", b"two"]
