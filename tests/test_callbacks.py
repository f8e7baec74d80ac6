"""Whatever a function of the program raises, the client that calls it goes on.

`sys.exit`, `pytest.fail` and `pytest.skip` raise exceptions that are not an Exception.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest

from rmqcli import ClientConfig, Consumer, Producer, ProducerMessage, SendStatus
from rmqcli.callbacks import call_back
from tests.kit.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.injects_exceptions

ERRORS = [ValueError, SystemExit, KeyboardInterrupt, pytest.fail.Exception]


@pytest.fixture
def cluster(rmq_cluster_factory):
    made = rmq_cluster_factory(
        proxy=True, settings={"message_delay_level": "1s 1s 1s 1s 1s 1s"}
    )
    made.create_topic("orders")
    made.create_group("g")
    return made


@pytest.fixture(params=["remoting", "proxy"])
def client(cluster, request):
    if request.param == "proxy":
        return ClientConfig(endpoints=(cluster.endpoints,), plaintext=True)
    return ClientConfig(namesrv=(cluster.namesrv,))


def test_what_a_function_raises_is_logged_with_what_it_was_called_for(caplog):
    def fail(_):
        raise ZeroDivisionError("injected")

    assert call_back(len, "abc", "on_a", queue=1) == 3
    assert call_back(fail, None, "on_b", queue=1, topic="t") is None
    (record,) = caplog.records
    assert record.getMessage() == "on_b failed queue=1 topic=t"


@pytest.mark.parametrize("error", ERRORS)
def test_a_producer_goes_on_after_a_callback_of_a_send_has_raised(
    cluster, client, error, caplog
):
    called: list[Any] = []
    both = threading.Event()

    def fail(future):
        called.append(future)
        raise error("injected")

    with Producer(client=client) as producer:
        broker = cluster.broker()
        broker.hang()  # once answered, the callbacks would run in this thread
        sent = producer.submit(ProducerMessage("orders", b"a"), timeout_ms=60_000)
        sent.add_done_callback(fail)
        sent.add_done_callback(lambda _: both.set())
        broker.resume()
        assert both.wait(PATIENCE_S)
        later = producer.submit(ProducerMessage("orders", b"b"))
        assert later.result(PATIENCE_S).status is SendStatus.SEND_OK
        producer.send(ProducerMessage("orders", b"c"))
        with Producer(client=client) as other:
            other.send(ProducerMessage("orders", b"d"))
    assert called == [sent]
    what = "failed" if error is ValueError else f"raised {error.__name__}, which ends"
    assert f"the callback of a send's future {what}" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("error", [SystemExit, pytest.fail.Exception])
@pytest.mark.parametrize("name", ["on_start", "on_assigned", "on_revoked", "on_failed"])
def test_a_consumer_goes_on_after_a_callback_has_raised(
    cluster, client, name, error, caplog
):
    if name == "on_start" and client.endpoints:
        pytest.skip("a proxy does not report where queues begin")
    bodies: list[bytes] = []

    def handle(message):
        bodies.append(message.body)
        if len(bodies) == 1:
            raise ValueError("injected")

    def fail(_):
        raise error("injected")

    callbacks: dict[str, Any] = {name: fail}
    if not client.endpoints:
        callbacks["consume_from"] = "earliest"
    with Consumer("g", "orders", handle, client=client, **callbacks):
        cluster.send("orders", ["a"])
        wait_until(lambda: bodies == [b"a", b"a"])
        cluster.send("orders", ["b"])
        wait_until(lambda: bodies == [b"a", b"a", b"b"])
    assert f"{name} raised {error.__name__}, which ends neither" in caplog.text
