"""Offsets that are set from outside: a broker's reset (220) and `seek`."""

from __future__ import annotations

import pytest

from rmqcli.engine.pull_message import CARRIED_MS
from rmqcli.wire.pull_answer import PullStatus
from tests.engine.world import (
    BROADCASTING,
    ME,
    OTHER,
    TOPIC,
    World,
    no_answer,
    queue_of,
    started,
)

NO_NEW = PullStatus.NO_NEW_MSG
both = pytest.mark.parametrize("orderly", [False, True])


@pytest.mark.parametrize("target", [0, 5, 900])
@pytest.mark.parametrize("orderly", [False, True])
def test_a_reset_takes_effect_whatever_is_being_consumed(target, orderly):
    """Consumption under way ends without effect, for resets in both directions. The
    member does not pause for 10 s as in Java. Source: testResetOffset,
    testResetOffsetByTimeStamp."""
    world = started(orderly=orderly)
    world.found(range(10))
    world.holds_work = True
    world.found(range(10, 20))
    world.consume()
    held = world.pulls()
    world.engine.move({queue_of(): target})
    world.settle()
    for call in held:
        world.found(range(20, 30), call=call)
    world.work()
    world.holds_work = False
    world.run(2_000)
    assert world.committed() == target
    assert world.asked()[-1].queue_offset == target
    world.run(30_000)
    assert (world.committed(), world.offset()) == (target, target)


def test_a_reset_of_a_queue_of_another_member_is_ignored():
    world = World(queues=2)
    world.network.members = [ME, OTHER]
    world.start()
    world.engine.move({queue_of(1): 50})
    world.run(10_000)
    assert world.committed(1) is None


def test_each_of_a_hundred_resets_while_consuming_takes_effect():
    world = started()
    for target in range(100):
        world.found(range(target, target + 32), call=world.pulls()[-1])
        world.engine.move({queue_of(): 3 * target})
        world.run(1_000)
        assert world.committed() == 3 * target
        assert world.asked()[-1].queue_offset == 3 * target


def moving_with_a_pull_that_commits_2(target, *, orderly=False, **options):
    """Return a world that moves a queue, and an open pull that commits 2.

    The queue was consumed up to 4.
    """
    world = started(orderly=orderly, **options)
    world.found([0, 1])
    world.found([2, 3])
    (waiting,) = world.pulls(queue_of())
    assert waiting.args["ask"].commit_offset == 2
    world.engine.move({queue_of(): target})
    return world, waiting


@both
@pytest.mark.parametrize("target", [0, 900])
def test_a_reset_waits_for_a_pull_that_could_undo_it(target, orderly):
    """The pull carries an older offset, which the broker's threads may store after the
    commit (observed with 4.6.0)."""
    world, _ = moving_with_a_pull_that_commits_2(target, orderly=orderly)
    world.run(CARRIED_MS - 10)
    world.network.committed[queue_of()] = 2
    asked = len(world.asked())
    world.run(20)
    assert world.committed() == target
    assert [each.queue_offset for each in world.asked()[asked:]] == [target]


def test_a_reset_does_not_wait_for_a_pull_that_is_answered():
    world, waiting = moving_with_a_pull_that_commits_2(900)
    world.answer(NO_NEW, 4, call=waiting)
    world.run(10)
    assert world.committed() == 900
    assert world.asked()[-1].queue_offset == 900


@pytest.mark.parametrize("target", [0, 900])
def test_a_reset_commits_again_when_a_pull_has_undone_it(target):
    world, _ = moving_with_a_pull_that_commits_2(target)
    world.network.hold.add("update_offset")
    world.run(CARRIED_MS)
    world.network.committed[queue_of()] = 2
    world.network.of("update_offset")[-1].answer(None)
    world.network.of("update_offset")[-1].answer(None)
    world.run(10)
    assert world.committed() == target
    assert world.asked()[-1].queue_offset == target


@both
def test_the_last_of_two_resets_counts(orderly):
    world, _ = moving_with_a_pull_that_commits_2(900, orderly=orderly)
    world.run(50)
    world.engine.move({queue_of(): 700})
    world.run(CARRIED_MS)
    assert world.committed() == 700
    assert world.asked()[-1].queue_offset == 700
    assert len(world.pulls(queue_of())) == 2  # the old pull, and one new pull


@both
def test_a_reset_of_a_queue_that_is_lost_meanwhile_is_stored_for_its_next_owner(
    orderly,
):
    world, waiting = moving_with_a_pull_that_commits_2(900, orderly=orderly)
    world.network.members = ["10.0.0.0@1", ME]  # the first member gets the only queue
    world.engine.rebalances.members_changed()
    world.run(CARRIED_MS + 100)
    assert world.committed() == 900
    assert queue_of() not in world.member.process_queues
    assert world.pulls(queue_of()) == [waiting]


def test_a_close_waits_until_a_reset_is_stored():
    world, _ = moving_with_a_pull_that_commits_2(900)
    world.close()
    world.run(CARRIED_MS - 10)
    world.network.committed[queue_of()] = 2
    assert world.closed == []
    world.run(20)
    assert world.closed == [None]
    assert world.committed() == 900


def test_a_reset_whose_commit_fails_is_committed_later():
    """Every later commit includes it."""
    world = started()
    world.found(range(4))
    world.network.fail["update_offset"] = no_answer()
    world.engine.move({queue_of(): 1})
    world.run(CARRIED_MS)
    assert world.asked()[-1].queue_offset == 1
    world.network.fail.clear()
    world.found([1, 2], call=world.pulls()[-1])
    world.run(10_000)
    assert world.committed() == 3


# Resets that a broker sends


@pytest.mark.parametrize("target", [0, 5, 10])
def test_a_broker_s_reset_moves_to_any_offset_that_the_queue_has(target):
    """The end of the queue is queried, because it may have moved since the last
    pull."""
    world = started()
    world.network.ends[queue_of()] = 10
    world.engine.reset({queue_of(): target})
    world.run(CARRIED_MS)
    assert [call.args["queue"] for call in world.network.of("max_offset")] == [
        queue_of()
    ]
    assert world.committed() == target
    assert world.asked()[-1].queue_offset == target


@pytest.mark.parametrize("target", [-1, 11])
def test_a_broker_s_reset_outside_the_queue_is_refused(target, caplog):
    world = started()
    world.found([0, 1])
    world.network.ends[queue_of()] = 10
    before = world.process_queue()
    world.engine.reset({queue_of(): target})
    world.run(CARRIED_MS)
    assert world.process_queue() is before
    assert not before.dropped
    assert world.offset() == 2
    (message,) = caplog.messages
    assert message == (
        "reset refused, offset outside the queue queue=orders@broker-a:0"
        f" offset={target} end=10"
    )


def test_a_broker_s_reset_is_not_done_while_the_end_of_the_queue_is_not_known(caplog):
    world = started()
    before = world.process_queue()
    world.network.fail["max_offset"] = no_answer()
    world.engine.reset({queue_of(): 0})
    world.run(CARRIED_MS)
    assert world.process_queue() is before
    assert not before.dropped
    assert caplog.messages == [
        "reset failed queue=orders@broker-a:0 offset=0: no answer in 3000 ms"
    ]


def test_a_broker_s_reset_is_checked_against_the_end_of_each_queue():
    world = started(queues=3)
    for number, end in enumerate([10, 20, 30]):
        world.network.ends[queue_of(number)] = end
    world.engine.reset({queue_of(0): 15, queue_of(1): 15, queue_of(2): 25})
    world.run(CARRIED_MS)
    assert [world.asked(n)[-1].queue_offset for n in range(3)] == [0, 15, 25]
    assert [world.committed(n) for n in range(3)] == [None, 15, 25]


def test_a_broker_s_reset_does_not_query_queues_of_other_members():
    world = started()
    world.engine.reset({queue_of(7): 5})
    world.run(CARRIED_MS)
    assert not world.network.of("max_offset")


def test_a_broker_s_reset_does_not_wait_for_other_brokers():
    world = World()
    far = queue_of(broker="broker-b")
    world.network.queues[TOPIC] = [queue_of(), far]
    world.start()
    world.network.ends |= {queue_of(): 10, far: 10}
    world.network.hung.add("broker-b")
    world.engine.reset({queue_of(): 4, far: 4})
    world.run(CARRIED_MS)
    assert world.asked()[-1].queue_offset == 4
    assert not world.member.process_queues[far].dropped


def test_a_broker_s_reset_moves_nothing_once_the_member_closes():
    world = started()
    world.found([0, 1])
    world.network.hold.add("max_offset")
    world.engine.reset({queue_of(): 0})
    world.network.ends[queue_of()] = 10
    world.close()
    world.network.of("max_offset")[0].answer(10)
    world.run(CARRIED_MS)
    assert world.closed == [None]
    assert world.committed() == 2


@pytest.mark.injects_exceptions
def test_a_moved_queue_is_consumed_although_its_commit_raised_an_unexpected_error(
    caplog,
):
    """The queue used to rest for ever, because it was not pulled again."""
    world = started(message_model=BROADCASTING)
    world.found(range(4))
    world.file.error = ZeroDivisionError("injected")
    world.engine.move({queue_of(): 1})
    world.run(CARRIED_MS)
    assert "injected" in caplog.text
    world.file.error = None
    world.found([1, 2, 3], call=world.pulls()[-1])
    assert world.offsets_seen() == [0, 1, 2, 3, 1, 2, 3]
    assert world.offset() == 4
