"""The deadlines of many requests each expire once, in order, and at low cost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rmqcli.errors import DeadlineError
from rmqcli.testing import ManualClock
from rmqcli.transport.loop import COMPACT_FROM, RequestDeadlines
from rmqcli.transport.remoting import RemotingClient
from rmqcli.wire.command import RemotingCommand
from tests.kit.waiting import wait_until
from tests.transport.peer import Peer, silent


class Owner:
    def __init__(self) -> None:
        self.waiters: set[int] = set()
        self.expired: list[int] = []

    def expire(self, opaque: int) -> None:
        self.waiters.remove(opaque)
        self.expired.append(opaque)


@given(st.lists(st.tuples(st.integers(0, 50), st.booleans()), max_size=60))
def test_exactly_the_unanswered_expire_and_in_order(requests):
    deadlines, owner = RequestDeadlines(), Owner()
    due: list[tuple[int, int]] = []
    for opaque, (deadline_ms, answered) in enumerate(requests):
        deadlines.add(deadline_ms, opaque, owner)
        if not answered:
            owner.waiters.add(opaque)
            due.append((deadline_ms, opaque))

    deadlines.expire(25)
    first = list(owner.expired)
    deadlines.expire(50)

    assert first == [opaque for at, opaque in sorted(due) if at <= 25]
    assert owner.expired == [opaque for _, opaque in sorted(due)]
    assert deadlines.next_ms() is None


def test_time_in_which_nothing_drives_the_client_does_not_count():
    """After a program was suspended, its requests would all have expired."""
    clock = ManualClock()
    with Peer(silent) as peer, RemotingClient(clock=clock) as client:
        reply = client.submit(peer.address, RemotingCommand(11), timeout_ms=1_000)

        def is_connected():
            client.poll(0)
            return client.counters.connections == 1

        wait_until(is_connected)
        for pause_ms in (3_600_000, 101, *[100] * 9):
            clock.now_ms += pause_ms
            client.poll(0)
            assert not reply.is_done
        clock.now_ms += 100
        client.poll(0)
        assert isinstance(reply.outcome(), DeadlineError)


def test_answered_requests_do_not_pile_up():
    """Otherwise 10,000 requests a second with deadlines of 30 s would make 300,000
    entries."""
    deadlines, owner = RequestDeadlines(), Owner()

    for opaque in range(100_000):
        owner.waiters.add(opaque)
        deadlines.add(30_000 + opaque // 10, opaque, owner)
        owner.waiters.discard(opaque - 64)

    assert len(deadlines) <= COMPACT_FROM + 64
    assert deadlines.next_ms() is not None
