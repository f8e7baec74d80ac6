"""The simulation is repeatable, finds no violation, and would find one."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from rmqcli.aio.listening import ListenerTasks
from rmqcli.engine.listener import LeaveRest
from rmqcli.engine.offset_store import OffsetTable
from rmqcli.engine.process_queue import ProcessQueue
from rmqcli.engine.queue_locks import QueueLocks
from tests.simulation.__main__ import main, simulate
from tests.simulation.cluster import Plan, SimCluster
from tests.simulation.schedule import Schedule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqcli.engine.message import Pulled
    from rmqcli.model import MessageQueue

MODES = pytest.mark.parametrize("is_orderly", [False, True], ids=["any", "orderly"])


@MODES
def test_a_seed_is_one_history(is_orderly: bool):
    plan = Plan(seed=7, is_orderly=is_orderly)
    first, second = (simulate(plan, hours=0.05) for _ in range(2))
    assert first.history == second.history
    assert first.events == second.events > 1_000


@MODES
@pytest.mark.parametrize("hung", ["broker 0", "broker 1"])
def test_members_that_join_while_a_broker_hangs_share_the_other_one(is_orderly, hung):
    """Queues of the healthy broker have an owner again within a second."""
    plan = Plan(seed=3, is_orderly=is_orderly, queues=16, brokers=2)
    schedule = Schedule("hung")
    cluster = SimCluster(plan, schedule)
    sick, healthy = cluster.brokers
    if hung == "broker 1":
        sick, healthy = healthy, sick
    sick.hang()
    cluster.join()
    owned_after_ms = []
    for _ in range(3):
        began_ms = schedule.now_ms
        while (
            len(owned_at(cluster, healthy)) != 8 and schedule.now_ms < began_ms + 9_000
        ):
            schedule.run_until(schedule.now_ms + 50)
        owned_after_ms.append(schedule.now_ms - began_ms)
        cluster.join()
        schedule.run_until(schedule.now_ms + 200)
    assert max(owned_after_ms) <= 1_000
    assert not cluster.checker.violations


@MODES
def test_after_a_broker_restarts_its_queues_have_owners_in_time(
    is_orderly,
):
    """Within 40 s of any restart, with the default rebalance period of 20 s."""
    for down_ms in (1_000, 35_000, 70_000):
        schedule = Schedule(f"restart {down_ms}")
        cluster = SimCluster(Plan(seed=5, is_orderly=is_orderly, brokers=2), schedule)
        for _ in range(3):
            cluster.join()
        schedule.run_until(30_000)
        broker = cluster.brokers[1]
        broker.crash()
        schedule.run_until(schedule.now_ms + down_ms)
        broker.restart()
        schedule.run_until(schedule.now_ms + 40_000)
        owned = owned_at(cluster, broker)
        assert len(owned) == len(set(owned)) == 8
        assert not cluster.checker.violations


def owned_at(cluster, broker):
    """The topic's queues of a broker that have an owner, once for each owner."""
    return [
        queue
        for member in cluster.live()
        for queue in member.owned()
        if queue.broker_name == broker.name and not queue.topic.startswith("%")
    ]


def test_seeds_are_different_histories():
    histories = {
        simulate(Plan(seed=seed, is_orderly=False), hours=0.02).history
        for seed in (1, 2, 3)
    }
    assert len(histories) == 3


@MODES
def test_nothing_comes_twice_when_nothing_goes_wrong(is_orderly: bool):
    plan = Plan(seed=1, is_orderly=is_orderly)
    result = simulate(plan, hours=0.1, with_faults=False)
    assert result.violations == []
    assert result.produced > 100
    assert (result.duplicates, result.dead, result.faults) == (0, 0, 0)
    assert result.settled_ms_max <= 2_000


@MODES
def test_a_member_that_was_asked_to_leave_while_frozen_leaves_once_thawed(
    is_orderly: bool,
):
    """Seed 22, orderly: after the last healing, a member left a minute too late."""
    schedule = Schedule("1")
    cluster = SimCluster(Plan(seed=1, is_orderly=is_orderly), schedule)
    member = cluster.join()
    schedule.run_until(5_000)
    member.freeze(600_000)
    member.close()
    schedule.run_until(20_000)
    assert member.is_alive
    cluster.heal()
    schedule.run_until(25_000)
    assert not member.is_alive


@pytest.mark.slow
@MODES
@pytest.mark.parametrize("seed", [11, 12, 13])
def test_a_seed_with_faults_is_green(seed: int, is_orderly: bool):
    result = simulate(Plan(seed=seed, is_orderly=is_orderly), hours=0.25)
    assert result.violations == []
    assert result.faults > 0


@pytest.mark.slow
@MODES
@pytest.mark.parametrize("seed", [21, 22])
def test_a_seed_with_resets_is_green(seed: int, is_orderly: bool):
    plan = Plan(seed=seed, is_orderly=is_orderly, has_resets=True)
    result = simulate(plan, hours=0.25)
    assert result.violations == []
    assert result.faults > 0


@pytest.mark.slow
@MODES
@pytest.mark.parametrize("seed", [31, 32, 33])
def test_a_seed_with_coroutines_as_listeners_is_green(seed: int, is_orderly: bool):
    plan = Plan(seed=seed, is_orderly=is_orderly, is_async=True)
    result = simulate(plan, hours=0.25)
    assert result.violations == []
    assert result.faults > 0


def _violations(
    *,
    is_orderly: bool,
    with_faults: bool = True,
    has_resets: bool = False,
    first_seed: int = 1,
) -> str:
    for seed in (first_seed, *range(1, 6)):
        plan = Plan(
            seed=seed,
            is_orderly=is_orderly,
            messages_per_s=20,
            has_resets=has_resets,
        )
        result = simulate(plan, hours=0.1, with_faults=with_faults)
        if result.violations:
            return " ".join(result.violations)
    return ""


def test_a_commit_ahead_of_what_was_consumed_is_seen(monkeypatch: pytest.MonkeyPatch):
    remove = ProcessQueue.remove_message

    def remove_and_commit_all(
        queue: ProcessQueue[Pulled], messages: Sequence[Pulled], now_ms: int
    ) -> int | None:
        offset = remove(queue, messages, now_ms)
        return None if offset is None else queue.queue_offset_max + 1

    monkeypatch.setattr(ProcessQueue, "remove_message", remove_and_commit_all)
    assert "is not consumed" in _violations(is_orderly=False, first_seed=2)


def test_an_order_that_is_not_kept_is_seen(monkeypatch: pytest.MonkeyPatch):
    take = ProcessQueue.take_messages

    def take_backwards(
        queue: ProcessQueue[Pulled], count: int, now_ms: int
    ) -> list[Pulled]:
        return take(queue, count, now_ms)[::-1]

    monkeypatch.setattr(ProcessQueue, "take_messages", take_backwards)
    assert re.search("comes after|was left out", _violations(is_orderly=True))


@pytest.mark.slow
@pytest.mark.injects_exceptions
def test_consuming_without_a_broker_s_lock_is_a_violation(
    monkeypatch: pytest.MonkeyPatch,
):
    def lock(locks: QueueLocks, queues: Sequence[MessageQueue]):
        del locks
        yield from ()
        return set(queues)

    monkeypatch.setattr(QueueLocks, "lock", lock)
    assert "both have calls" in _violations(is_orderly=True, first_seed=2)


@pytest.mark.slow
def test_offsets_that_are_never_committed_are_seen(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(OffsetTable, "increase", lambda *_: None)
    assert "after all members left" in _violations(is_orderly=False, with_faults=False)


def test_resets_that_go_elsewhere_are_seen(monkeypatch: pytest.MonkeyPatch):
    freeze = OffsetTable.freeze

    def freeze_behind(table: OffsetTable, queue: MessageQueue, offset: int) -> None:
        freeze(table, queue, offset + 1)

    monkeypatch.setattr(OffsetTable, "freeze", freeze_behind)
    assert " instead of " in _violations(is_orderly=False, has_resets=True)


def test_the_command_says_how_to_see_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(OffsetTable, "increase", lambda *_: None)
    argv = ["--seeds", "3-4", "--hours", "0.02", "--concurrent", "--resets", "--calm"]
    assert main(argv) == 1
    out = capsys.readouterr().out
    assert "seed 3 concurrent FAILED" in out
    assert (
        "repeat with: python -m tests.simulation --seeds 3 --concurrent"
        " --hours 0.02 --members 4 --queues 16 --brokers 2 --rate 0.5 --resets --calm"
        in out
    )


def test_seeds_side_by_side_are_the_same_histories(capsys: pytest.CaptureFixture[str]):
    argv = ["--seeds", "3-4", "--hours", "0.02", "--both", "-o", "json"]
    histories = []
    for jobs in ("1", "2"):
        assert main([*argv, "--jobs", jobs]) == 0
        results = json.loads(capsys.readouterr().out)["results"]
        histories.append([(each["seed"], each["history"]) for each in results])
    assert histories[0] == histories[1]
    assert [seed for seed, _ in histories[0]] == [3, 3, 4, 4]


def test_the_summary_as_json(capsys: pytest.CaptureFixture[str]):
    argv = ["--seeds", "3", "--hours", "0.02", "--calm", "--both", "-o", "json"]
    assert main(argv) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["seeds"], summary["failed"]) == (2, [])
    assert [each["mode"] for each in summary["results"]] == ["concurrent", "orderly"]


@MODES
@pytest.mark.parametrize("is_broken", [False, True], ids=["", "broken"])
def test_messages_of_a_cancelled_coroutine_are_consumed_later_or_missed(
    monkeypatch: pytest.MonkeyPatch, is_orderly: bool, is_broken: bool
):
    """A close cancels listeners that take twenty minutes, as an AsyncConsumer does."""
    call = ListenerTasks.call

    async def swallow(tasks: ListenerTasks, *args: object) -> object:
        try:
            return await call(tasks, *args)
        except LeaveRest:
            return None

    if is_broken:
        monkeypatch.setattr(ListenerTasks, "call", swallow)
    schedule = Schedule("cancelled")
    plan = Plan(seed=1, is_orderly=is_orderly, is_async=True, messages_per_s=1)
    cluster = SimCluster(plan, schedule)
    member = cluster.join()
    cluster.behaviour.stuck_rate = 1
    schedule.run_until(5_000)
    cluster.produce()
    schedule.run_until(35_000)
    assert cluster.checker.pending
    member.close()
    schedule.run_until(60_000)
    assert not member.is_alive
    cluster.heal()
    cluster.settle()
    assert bool(cluster.checker.violations) is is_broken
