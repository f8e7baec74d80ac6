"""Messages received with `auto_renew`: how long they stay with a living client."""

from __future__ import annotations

import pytest

from rmqcli.broker.faults import Answer, DelayAnswer, drop_request
from rmqcli.broker.proxy import handles
from rmqcli.testing import ManualClock
from rmqcli.wire.protobuf import service_pb2 as s
from tests.kit.proxy.raw_client import (
    code_of,
    consumer_settings,
    message,
    resource,
)
from tests.kit.waiting import wait_until

CHANGE = 200053


class Scene:
    """One consumer of a topic of one queue, in a time that stands still.

    `sent` are the invisible times of the proxy's requests, and the offsets they are of.
    """

    def __init__(self, cluster, client):
        self.cluster, self.client = cluster, client
        cluster.create_topic("T", queues=1)
        client.telemetry(consumer_settings("G", "T"))
        self._rule = cluster.faults.observe(code=CHANGE)

    def receive(self, *bodies, **fields):
        for body in bodies:
            self.client.send(message("T", body))
        return self.client.receive("G", "T", **{"auto_renew": True, **fields})

    def pass_to(self, at_ms):
        """Move the time in strides after which the client still lives."""
        clock = self.cluster.options.clock
        while clock.now_ms < at_ms:
            self.cluster.advance(min(100_000, at_ms - clock.now_ms))
            self.client.heartbeat("G")

    def sent(self, count):
        wait_until(lambda: len(self._rule.requests) >= count)
        return [
            (int(fields["offset"]), int(fields["invisibleTime"]))
            for fields in (each.command.ext_fields for each in self._rule.requests)
        ]

    def during_a_renewal(self, do):
        """Do something after the broker has renewed a message, and before it answers.

        Returns what `do` returns.
        """
        self.cluster.faults.next(DelayAnswer(1_000), code=CHANGE)
        self.pass_to(50_000)
        self.sent(1)
        done = do()
        self.client.heartbeat()  # calls are begun in their order
        self.cluster.advance(1_000)
        return done

    def leave(self):
        request = s.NotifyClientTerminationRequest(group=resource("G"))
        assert code_of(self.client.call("NotifyClientTermination", request)) == "OK"


@pytest.fixture
def scene(start, connect):
    cluster = start(clock=ManualClock(now_ms=0))
    return Scene(cluster, connect(cluster))


def test_each_renewal_is_for_longer_and_after_three_hours_the_message_is_free(scene):
    """Each comes 10 s before the end of the one before it."""
    scene.receive(b"1", auto_renew=False, invisible_ms=10_000)
    scene.cluster.advance(15_000)
    (found,) = scene.receive().messages
    assert found.system_properties.delivery_attempt == 2
    wanted = [
        *((50, 60_000), (100, 180_000), (270, 300_000), (560, 600_000)),
        *((1_150, 1_800_000), (2_940, 3_600_000), (6_530, 3_600_000)),
        # The delay of a message that was received once before: 3 h are over.
        *((10_120, 3_600_000), (13_710, 5_000)),
    ]
    for count, (at_s, _) in enumerate(wanted, start=1):
        scene.pass_to(15_000 + at_s * 1_000)
        scene.sent(count)
    assert scene.sent(9) == [(0, invisible_ms) for _, invisible_ms in wanted]
    scene.cluster.advance(6_000)
    assert scene.receive(auto_renew=False).bodies == [b"1"]


def test_three_failures_in_a_row_end_the_renewals(scene):
    """The first one is not in that row, and the last message is given back alone."""
    scene.receive(b"1")
    faults = scene.cluster.faults
    faults.add(Answer(code=1), code=CHANGE, times=1)
    for count, at_ms in enumerate((50_000, 55_000), start=1):
        scene.pass_to(at_ms)
        scene.sent(count)
    faults.add(Answer(code=1), code=CHANGE, times=3)
    for count, at_ms in enumerate((105_000, 110_000, 115_000), start=3):
        scene.pass_to(at_ms)
        scene.sent(count)
    for at_ms in (120_000, 125_000):
        scene.pass_to(at_ms)
    scene.client.ack("G", "T", *scene.receive(auto_renew=False).handles)
    assert scene.receive(b"2").bodies == [b"2"]
    scene.leave()
    assert scene.sent(6) == [(0, 60_000)] * 2 + [(0, 180_000)] * 3 + [(1, 1_000)]


def test_answers_without_a_handle_are_failures_like_others(scene, caplog):
    """Neither end the periodic work of the proxy for all clients."""
    scene.receive(b"1")
    scene.cluster.faults.add(Answer(code=0), code=CHANGE)
    for count, at_ms in enumerate((50_000, 55_000, 60_000), start=1):
        scene.pass_to(at_ms)
        scene.sent(count)
    for at_ms in (65_000, 70_000):
        scene.pass_to(at_ms)
    scene.client.ack("G", "T", *scene.receive(auto_renew=False).handles)
    scene.leave()
    assert scene.sent(3) == [(0, 60_000)] * 3
    assert "periodic task of the proxy failed" not in caplog.text
    assert "ChangeInvisibleTimeResponseHeader: popTime is missing" in caplog.text


def test_a_renewal_that_becomes_due_during_another_follows_it(scene):
    scene.receive(b"1")
    scene.cluster.faults.next(DelayAnswer(50_000), code=CHANGE)
    scene.pass_to(50_000)
    scene.sent(1)
    scene.pass_to(100_000)
    assert scene.sent(2) == [(0, 60_000), (0, 180_000)]


def test_an_acknowledgement_during_a_renewal_uses_the_new_handle(scene):
    """The broker has another check point for the message before its answer arrives.

    An acknowledgement with the old handle would succeed without effect, and the message
    would be received again.
    """
    (handle,) = scene.receive(b"1").handles
    acked = scene.during_a_renewal(lambda: scene.client.start_ack("G", "T", handle))
    assert code_of(acked.result()) == "OK"
    scene.pass_to(200_000)
    assert scene.receive(b"2").bodies == [b"2"]
    assert scene.sent(1) == [(0, 60_000)]


@pytest.mark.slow
def test_an_acknowledgement_does_not_wait_longer_than_a_renewal_without_answer(scene):
    """The proxy waits for 3 s. The old handle is still that of the message."""
    (handle,) = scene.receive(b"1").handles
    scene.cluster.faults.next(drop_request(), code=CHANGE)
    scene.pass_to(50_000)
    scene.sent(1)
    assert code_of(scene.client.ack("G", "T", handle)) == "OK"
    scene.pass_to(200_000)
    assert scene.receive(b"2").bodies == [b"2"]


def test_a_client_that_leaves_during_a_renewal_returns_the_new_handle(scene):
    """With the old one the message would be received a second time."""
    scene.receive(b"1")
    scene.during_a_renewal(scene.leave)
    assert scene.sent(2) == [(0, 60_000), (0, 1_000)]
    scene.cluster.advance(2_000)
    scene.client.telemetry(consumer_settings("G", "T"))
    again = scene.receive()
    assert again.bodies == [b"1"]
    assert code_of(scene.client.ack("G", "T", *again.handles)) == "OK"
    scene.pass_to(200_000)
    assert scene.receive(b"2").bodies == [b"2"]


def test_a_message_that_is_acknowledged_while_others_are_renewed_is_not_renewed(
    scene, monkeypatch
):
    monkeypatch.setattr(handles, "_ENTRIES_AT_ONCE", 1)
    first = scene.receive(b"0", b"1")
    acked = scene.during_a_renewal(lambda: scene.client.ack("G", "T", first.handles[1]))
    assert code_of(acked) == "OK"
    scene.pass_to(100_000)
    assert scene.sent(2) == [(0, 60_000), (0, 180_000)]


def test_a_message_whose_broker_has_gone_is_not_renewed_any_more(scene, caplog):
    scene.receive(b"1")
    scene.cluster.broker().kill()
    scene.pass_to(50_000)
    wait_until(lambda: "cannot find broker broker-a" in caplog.text)
    scene.cluster.broker().restart()
    scene.pass_to(55_000)
    assert scene.receive(b"2").bodies[-1:] == [b"2"]
    scene.leave()
    assert (1, 1_000) in scene.sent(1)
    assert (0, 1_000) not in scene.sent(1)


def test_messages_beyond_a_limit_are_not_renewed(scene, monkeypatch):
    """One that is acknowledged makes room for another, as does a client that leaves."""
    monkeypatch.setattr(handles, "RENEWED_MAX", 2)
    first = scene.receive(b"0", b"1", b"2")
    scene.client.ack("G", "T", first.handles[0])
    scene.receive(b"3", b"4")
    scene.leave()
    assert sorted(scene.sent(2)) == [(1, 1_000), (3, 1_000)]
    scene.client.telemetry(consumer_settings("G", "T"))
    scene.receive(b"5", b"6", b"7")
    scene.leave()
    assert sorted(scene.sent(4)) == [(1, 1_000), (3, 1_000), (5, 1_000), (6, 1_000)]


def test_messages_for_a_member_of_another_group_are_given_back(scene):
    scene.client.send(message("T", b"1"))
    answer = scene.client.receive("other", "T", auto_renew=True)
    assert (answer.code, answer.bodies) == ("MESSAGE_NOT_FOUND", [])
    assert answer.text == f"The client [{scene.client.client_id}] is disconnected."
    assert scene.sent(1) == [(0, 1_000)]


def test_messages_of_which_one_was_acknowledged_are_renewed_without_it(scene):
    first = scene.receive(b"0", b"1")
    assert code_of(scene.client.ack("G", "T", first.handles[0])) == "OK"
    scene.pass_to(50_000)
    assert scene.sent(1) == [(1, 60_000)]
