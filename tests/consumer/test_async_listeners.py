"""A listener that returns unfinished work ends its consumer and consumes nothing."""

from __future__ import annotations

import gc
import logging
import warnings
from concurrent.futures import Future

import pytest

from rmqcli import ClientConfig, Consumer, ConsumerConfig, MessageModel
from tests.consumer.collecting import committed, consumer
from tests.kit.waiting import wait_until
from tests.producer.stored import bodies

KINDS = {
    "concurrent": {},
    "orderly": {"orderly": True},
    "batches": {"batch": True, "consume_message_batch_max_size": 4},
    "orderly batches": {
        "batch": True,
        "orderly": True,
        "consume_message_batch_max_size": 4,
    },
    "broadcasting": {"message_model": MessageModel.BROADCASTING},
}
TEXTS = [f"{n}" for n in range(40)]


async def work(*_args):
    raise AssertionError("never run")


def returning(*args):
    """A plain function, of which only a call shows that it does not do its work."""
    return work(*args)


def handing_over(*_args):
    """As one that returns what a thread pool or `Producer.submit` returned."""
    return Future()


LISTENERS = {returning: "a coroutine", handing_over: "a future"}


@pytest.fixture(autouse=True)
def never_awaited():
    """Fail for a coroutine that is dropped without having been closed."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        yield
        gc.collect()
    assert [str(each.message) for each in seen if "awaited" in str(each.message)] == []


@pytest.mark.slow
@pytest.mark.parametrize("listener", LISTENERS)
@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_unfinished_work_ends_the_consumer_and_its_messages_stay_with_the_group(
    rmq_cluster, monkeypatch, tmp_path, caplog, options, listener
):
    what = f"the listener returned {LISTENERS[listener]}"
    monkeypatch.setenv("HOME", str(tmp_path))
    topic = rmq_cluster.create_topic("orders", queues=2)
    rmq_cluster.send(topic, TEXTS)
    made = consumer(rmq_cluster, "g", topic, listener, **options)
    with pytest.raises(TypeError, match=what), made:
        made.wait()
    with pytest.raises(TypeError, match=what):
        made.wait(0)
    assert {*committed(rmq_cluster, "g", topic).values()} <= {0}
    assert bodies(rmq_cluster, "%RETRY%g") == bodies(rmq_cluster, "%DLQ%g") == []
    (told,) = [r.message for r in caplog.records if r.levelno >= logging.ERROR]
    assert told.startswith(f"consumer of group g closes: {what}")
    seen: list[str] = []
    if "message_model" not in options:
        options = {**options, "batch": False}
        with consumer(
            rmq_cluster, "g", topic, lambda m: seen.append(m.body.decode()), **options
        ):
            wait_until(lambda: sorted(seen, key=int) == TEXTS)


def test_the_end_of_the_with_block_raises_when_the_program_did_not_wait(rmq_cluster):
    topic = rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.send(topic, ["a"])
    made = consumer(rmq_cluster, "g", topic, returning)
    with pytest.raises(TypeError, match="the listener returned a coroutine"), made:
        wait_until(lambda: made._closed.is_set)
    made = consumer(rmq_cluster, "g", topic, returning)

    def fail():
        wait_until(lambda: made._closed.is_set)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), made:
        fail()


def test_the_messages_before_the_first_coroutine_are_consumed(rmq_cluster):
    topic = rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.send(topic, ["a", "b", "c", "d"])

    def listener(message):
        return work() if message.body == b"c" else None

    made = consumer(rmq_cluster, "g", topic, listener, orderly=True)
    with pytest.raises(TypeError, match="the listener returned a coroutine"), made:
        made.wait()
    assert committed(rmq_cluster, "g", topic) == {0: 2}


def by_proxy(cluster, listener, **options):
    batch = options.pop("batch", False)
    size = options.pop("consume_message_batch_max_size", 1)
    named = {"on_batch" if batch else "on_message": listener}
    return Consumer(
        "g",
        "orders",
        client=ClientConfig(endpoints=(cluster.endpoints,), plaintext=True),
        config=ConsumerConfig(consume_message_batch_max_size=size),
        **named,
        **options,
    )


@pytest.mark.slow
@pytest.mark.parametrize("listener", LISTENERS)
@pytest.mark.parametrize(
    "options",
    [KINDS["concurrent"], KINDS["orderly"], KINDS["batches"]],
    ids=["concurrent", "orderly", "batches"],
)
def test_unfinished_work_ends_a_consumer_through_a_proxy_and_nothing_is_acknowledged(
    rmq_cluster_factory, caplog, options, listener
):
    what = f"the listener returned {LISTENERS[listener]}"
    cluster = rmq_cluster_factory(proxy=True)
    cluster.create_topic("orders", queues=1)
    cluster.create_group("g", consume_message_orderly=options.get("orderly", False))
    seen: list[str] = []
    with by_proxy(cluster, lambda m: seen.append(m.body.decode())):
        cluster.send("orders", ["first"])  # the group has begun
        wait_until(lambda: seen == ["first"])
    made = by_proxy(cluster, listener, **options)
    cluster.send("orders", ["a", "b", "c"])
    with pytest.raises(TypeError, match=what), made:
        made.wait()
    (told,) = [r.message for r in caplog.records if r.levelno >= logging.ERROR]
    assert told.startswith(f"consumer of group g closes: {what}")
    assert bodies(cluster, "%DLQ%g") == []
    with by_proxy(cluster, lambda m: seen.append(m.body.decode())):
        wait_until(lambda: sorted(seen) == ["a", "b", "c", "first"])


@pytest.mark.injects_exceptions
@pytest.mark.parametrize("name", ["on_failed", "on_start", "on_assigned"])
def test_a_callback_that_returns_a_coroutine_is_logged_as_failed(
    rmq_cluster, caplog, name
):
    topic = rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.send(topic, ["a"])
    made = consumer(
        rmq_cluster, "g", topic, lambda _: False, **{name: lambda *_: work()}
    )
    with made:
        wait_until(lambda: f"{name} failed" in caplog.text)
    assert "pass a plain function" in caplog.text
