"""Which way offsets can be set at a broker, by what is known of it and of the group."""

from __future__ import annotations

import pytest

from rmqcli.admin.reset.method import (
    Mechanism,
    PushRequest,
    choose_method,
    find_push,
)
from rmqcli.admin.reset.plan import QueuePlan
from rmqcli.model import MessageQueue
from tests.kit.rows import each_row

COMMIT, REFUSED = Mechanism.COMMIT, Mechanism.REFUSED
RESET, PUSH = Mechanism.SERVER_RESET, Mechanism.CLIENT_PUSH
PUSHED = PushRequest(timestamp_ms=5, is_force=True)


def method(*known, push=None, wants_proof=False):
    """Choose a method; `known` names what is true."""
    return choose_method(
        address="b:1",
        version="4.9.7",
        is_live="live" in known,
        is_server_side="server" in known,
        uses_pop="pop" in known,
        keeps_positions="positions" in known,
        push=push,
        wants_proof=wants_proof,
    )


@pytest.mark.parametrize(
    ("known", "mechanism", "warning"),
    [
        ((), COMMIT, ""),
        (("server",), COMMIT, ""),
        (("pop",), COMMIT, ""),
        (("positions",), COMMIT, "if the group uses POP, a commit has no effect"),
        (("server", "live"), RESET, ""),
        (("server", "pop"), RESET, ""),
        (("server", "positions"), RESET, ""),
        (("pop", "positions"), REFUSED, "the broker keeps positions of POP"),
        (("pop", "positions", "live"), REFUSED, "the broker keeps positions of POP"),
        (("live",), REFUSED, "RocketMQ 4.9.7 can only reset online clients"),
    ],
)
def test_the_method_follows_from_members_and_from_what_the_broker_can(
    known, mechanism, warning
):
    found = method(*known)
    assert (found.mechanism, found.address, found.push) == (mechanism, "b:1", None)
    assert found.is_live == ("live" in known)
    assert found.warning[: len(warning) or None] == warning


def test_a_push_comes_before_a_commit_that_would_be_overwritten():
    pushed = method("live", push=PUSHED, wants_proof=True)
    assert (pushed.mechanism, pushed.push, pushed.is_live) == (PUSH, PUSHED, True)
    assert pushed.warning.startswith("RocketMQ 4.9.7 resets through its clients")
    tried = method("live", wants_proof=True)
    assert (tried.mechanism, tried.is_live) == (COMMIT, True)
    assert tried.warning.endswith("a plain commit will probably be overwritten")


def test_where_no_member_is_online_nothing_is_pushed():
    assert method(push=PUSHED).mechanism is COMMIT


def queue(committed, target, *, queue_id=0):
    return QueuePlan(
        queue=MessageQueue("T", "broker-a", queue_id),
        committed=committed,
        target=target,
        min_offset=0,
        max_offset=100,
    )


@each_row(
    ("queues", "found", "push"),
    [
        ([queue(50, 20)], {0: 20}, True),
        ([queue(50, 60)], {0: 60}, True),  # forward needs force
        ([queue(50, 20)], {0: 21}, None),
        ([queue(50, 0)], {0: -1}, True),  # nothing found: clients begin at 0
        ([queue(50, 20)], {}, None),  # the search failed
        ([queue(None, 20)], {0: 20}, None),  # the broker refuses the push
        ([queue(50, None)], {0: 50}, False),  # a queue that stays
        ([queue(50, None)], {0: 60}, False),
        ([queue(50, None)], {0: 49}, None),
        ([queue(50, 50)], {0: 50}, True),
        ([queue(50, 50)], {0: 51}, False),
        ([queue(50, 20), queue(9, None, queue_id=1)], {0: 20, 1: 9}, False),
        ([queue(50, 20), queue(9, None, queue_id=1)], {0: 20, 1: 8}, None),
        ([queue(50, 60), queue(9, None, queue_id=1)], {0: 60, 1: 9}, None),
    ],
)
def test_a_push_is_found_only_if_it_moves_every_queue_as_wanted(queues, found, push):
    expected = push if push is None else PushRequest(timestamp_ms=5, is_force=push)
    assert find_push(queues, {5: found}) == expected


def test_the_first_time_that_fits_is_taken():
    searches = {1: {0: 19}, 2: {0: 20}, 3: {0: 20}}
    assert find_push([queue(50, 20)], searches) == PushRequest(
        timestamp_ms=2, is_force=True
    )
