"""Offsets of queues: the table, commits, and corrections."""

from __future__ import annotations

from rmqcli.engine.offset_store import LocalFileOffsetStore, OffsetTable
from rmqcli.tasks import start
from rmqcli.wire.pull_answer import PullStatus
from tests.engine.world import (
    BROADCASTING,
    ME,
    OTHER,
    TOPIC,
    MemoryFile,
    World,
    no_answer,
    queue_of,
    started,
)

NO_NEW = PullStatus.NO_NEW_MSG


def commits(world):
    """Return time, queue id and offset of every commit."""
    return [
        (call.at_ms - 1_000_000, call.args["queue"].queue_id, call.args["offset"])
        for call in world.network.of("update_offset")
    ]


def test_an_offset_is_set_or_only_moved_forward():
    """The offset 1024 can be set to 1023, but 1022 does not move it forward. Source:
    RemoteBrokerOffsetStoreTest.testUpdateOffset, LocalFileOffsetStoreTest
    .testUpdateOffset."""
    table = OffsetTable()
    table.put(queue_of(), 1_024)
    assert table.get(queue_of()) == 1_024
    table.put(queue_of(), 1_023)
    assert table.get(queue_of()) == 1_023
    table.increase(queue_of(), 1_022)
    assert table.get(queue_of()) == 1_023


def test_a_removed_offset_is_unknown():
    """Source: testRemoveOffset."""
    table = OffsetTable()
    table.put(queue_of(), 1_024)
    table.remove(queue_of())
    assert table.get(queue_of()) is None


def test_a_frozen_offset_moves_no_more_until_it_is_removed():
    """Source: ControllableOffsetTest, testUpdateAndFreezeOffset, ...WithRemove."""
    table = OffsetTable()
    table.freeze(queue_of(), 1_024)
    table.put(queue_of(), 1_023)
    table.increase(queue_of(), 1_025)
    assert table.get(queue_of()) == 1_024
    table.remove(queue_of())
    table.put(queue_of(), 1_023)
    assert table.get(queue_of()) == 1_023


def test_all_returns_a_copy():
    """Source: testCloneOffset."""
    table = OffsetTable()
    table.put(queue_of(), 1)
    table.all()[queue_of()] = 2
    assert table.get(queue_of()) == 1


def test_offsets_are_committed_after_10_s_and_then_every_5_s():
    """Commits are one-way, and are sent even if no offset changed. Source:
    testPersist."""
    world = started()
    world.found([0, 1])
    world.answer(NO_NEW, 2)
    world.run(9_999)
    assert commits(world) == []
    world.run(10_001)
    assert commits(world) == [(10_000, 0, 2), (15_000, 0, 2), (20_000, 0, 2)]


def test_an_offset_whose_commit_was_lost_is_committed_again():
    """So periodic commits need no answer. Source: testReadOffset_Success."""
    world = started()
    world.network.fail["update_offset"] = no_answer()
    world.found([0, 1])
    world.run(10_000)
    assert world.committed() is None
    world.network.fail.clear()
    world.run(5_000)
    assert world.committed() == 2


def test_offsets_of_queues_of_other_members_are_forgotten_and_not_committed():
    """Source: testPersistAll."""
    world = started()
    world.member.offsets.table.put(queue_of(7), 5)
    world.run(10_000)
    assert commits(world) == []
    assert world.offset(7) is None


def test_the_offset_of_a_concurrent_consumer_only_grows():
    """A broker accepts a smaller offset, so the member must not send one."""
    world = started(consume_message_batch_max_size=1)
    world.holds_work = True
    world.found([0])
    world.found([1])
    world.consume()
    late, early = world.outcomes
    world.outcomes = [early]
    world.settle()
    assert world.offset() == 0
    world.outcomes = [late]
    world.settle()
    assert world.offset() == 2
    world.member.offsets.table.increase(queue_of(), 1)
    assert world.offset() == 2


def test_a_member_that_loses_a_queue_commits_once_no_pull_can_undo_that():
    """The pull under way commits 2, which a broker may store after a commit of 4."""
    world = started(queues=2)
    world.found([0, 1], call=world.pull(1))
    world.found([2, 3], call=world.pull(1))
    waiting = world.pull(1)
    assert waiting.args["ask"].commit_offset == 2
    world.network.members = [ME, OTHER]
    world.engine.rebalances.members_changed()
    world.run(100)
    assert queue_of(1) in world.member.process_queues
    world.answer(NO_NEW, 4, call=waiting)
    world.run(10)
    assert queue_of(1) not in world.member.process_queues
    assert world.committed(1) == 4


# Broadcasting


def test_a_broadcasting_member_reads_and_writes_its_file():
    """At first no offset is stored, and after the write 1024. Source:
    testReadOffset_FromStore."""
    world = World()
    file = MemoryFile()
    store = LocalFileOffsetStore(file)
    store.table.put(queue_of(), 1_024)
    assert start(store.read(queue_of()), world.member).result() is None
    store.persist([queue_of()])
    assert start(store.read(queue_of()), world.member).result() == 1_024


def test_offsets_of_other_queues_in_the_file_are_kept():
    """Java keeps them since 5.2. Source: testPersistAll, testPersist."""
    file = MemoryFile()
    file.offsets[queue_of(1)] = 7
    store = LocalFileOffsetStore(file)
    store.load()
    store.table.put(queue_of(0), 5)
    store.persist([queue_of(0)])
    assert file.offsets == {queue_of(0): 5, queue_of(1): 7}


def test_a_broadcasting_member_stores_offsets_in_its_file():
    world = started(message_model=BROADCASTING)
    world.found([0, 1])
    world.run(10_000)
    assert world.file.offsets == {queue_of(): 2}
    assert commits(world) == []


def test_a_broadcasting_member_goes_on_at_its_file_when_a_route_comes_back():
    world = started(message_model=BROADCASTING, queues=2)
    world.found([0, 1], call=world.pull(1))
    world.network.queues[TOPIC] = [queue_of(0)]
    world.run(30_000)
    assert world.file.offsets[queue_of(1)] == 2
    world.network.queues[TOPIC] = [queue_of(0), queue_of(1)]
    world.run(30_000)
    assert world.asked(1)[-1].queue_offset == 2


def test_a_broadcasting_member_stores_an_offset_that_a_broker_corrected():
    """Otherwise the broker would correct it again and again."""
    world = World(message_model=BROADCASTING)
    world.file.offsets[queue_of()] = 3
    world.start()
    world.answer(PullStatus.OFFSET_ILLEGAL, 70, min_offset=70, max_offset=90)
    assert world.file.offsets == {queue_of(): 70}
    world.next_pull_after_ms()
    assert world.asked()[-1].queue_offset == 70
