"""From which member of a broker's group a queue is pulled, and when routes are read."""

from __future__ import annotations

import pytest

from rmqcli.admin.read.address import AddressBook
from rmqcli.errors import ConnectError, NotFoundError
from rmqcli.model import BrokerData, MessageQueue, TopicRoute
from rmqcli.testing import ManualClock

QUEUE = MessageQueue("orders", "broker-a", 0)
OTHER = MessageQueue("orders", "broker-a", 1)


class Fake:
    """A client whose routes are given; `reads` lists those read again."""

    def __init__(self):
        self.clock = ManualClock()
        self.addresses = {0: "master", 1: "slave-1", 2: "slave-2"}
        self.reads = []
        self.error = None

    def route(self, topic, *, refresh=False):
        if refresh:
            self.reads.append(topic)
            if self.error is not None:
                raise self.error
        broker = BrokerData(
            cluster="c", broker_name="broker-a", addresses=self.addresses
        )
        return TopicRoute(topic=topic, brokers=(broker,), queues=())

    def reader_of(self, queue):
        raise NotFoundError(f"no reader of {queue}", code=1, name="X")


@pytest.fixture
def client():
    return Fake()


@pytest.fixture
def book(client):
    return AddressBook(client)


def test_a_queue_is_pulled_from_the_master_first(book, client):
    assert book.address(QUEUE) == "master"
    assert client.reads == []


def test_a_suggestion_is_followed_for_its_queue_only(book):
    assert book.address(QUEUE) == book.address(OTHER) == "master"
    book.suggested(QUEUE, 2)
    assert book.address(QUEUE) == "slave-2"
    assert book.address(OTHER) == "master"
    book.suggested(QUEUE, 2)
    assert book.address(QUEUE) == "slave-2"
    book.suggested(QUEUE, 0)
    assert book.address(QUEUE) == "master"


def test_a_suggested_slave_that_is_not_there_is_replaced_by_the_next(book):
    book.address(QUEUE)
    book.suggested(QUEUE, 9)
    assert book.address(QUEUE) == "master"
    book.suggested(QUEUE, 1)
    assert book.address(QUEUE) == "slave-1"


def test_members_that_failed_are_left_out_until_all_have(book, client):
    found = []
    for _ in range(4):
        address = book.address(QUEUE)
        found.append(address)
        book.failed(QUEUE, address)
    assert found == ["master", "slave-1", "slave-2", "master"]


def test_a_member_that_failed_is_not_gone_back_to_by_a_suggestion(book):
    """The broker that answers may suggest the one that is down."""
    book.failed(QUEUE, book.address(QUEUE))
    assert book.address(QUEUE) == "slave-1"
    book.suggested(QUEUE, 0)
    assert book.address(QUEUE) == "slave-1"
    book.suggested(QUEUE, 2)
    assert book.address(QUEUE) == "slave-1"
    book.failed(QUEUE, "slave-1")
    assert book.address(QUEUE) == "slave-2"


def test_a_late_failure_of_another_member_does_not_change_the_address(book):
    book.address(QUEUE)
    book.failed(QUEUE, "slave-1")
    assert book.address(QUEUE) == "master"
    book.failed(QUEUE, "master")
    assert book.address(QUEUE) == "slave-2"


@pytest.mark.parametrize(("later_ms", "reads"), [(1_999, 1), (2_000, 2)])
def test_after_failures_a_route_is_read_again_at_most_every_two_seconds(
    book, client, later_ms, reads
):
    book.failed(QUEUE, book.address(QUEUE))
    book.address(QUEUE)
    assert client.reads == ["orders"]
    client.clock.advance(later_ms)
    book.failed(OTHER, book.address(OTHER))
    client.addresses = {0: "new master"}
    assert book.address(OTHER) == "new master"
    assert client.reads == ["orders"] * reads


def test_a_route_that_cannot_be_read_again_stays(book, client):
    client.error = ConnectError("no", address="namesrv")
    book.failed(QUEUE, book.address(QUEUE))
    assert book.address(QUEUE) == "slave-1"
    assert client.reads == ["orders"]


@pytest.mark.parametrize(
    "queue",
    [MessageQueue("orders", "unknown", 0), MessageQueue("orders", "broker-a", 0)],
)
def test_a_queue_without_a_reader_is_an_error_that_is_returned(book, client, queue):
    client.addresses = {}
    error = book.address(queue)
    assert isinstance(error, NotFoundError)
    client.addresses = {0: "master"}
    if queue == QUEUE:
        assert book.address(queue) == "master"
