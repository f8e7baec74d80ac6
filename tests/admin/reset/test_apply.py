"""The requests of a reset and the results that it reports.

The brokers are of each version, and the members obey, do not obey, or commit over it.
"""

from __future__ import annotations

import threading

import pytest

from rmqcli.admin.reset.apply import ResetRun
from rmqcli.admin.reset.gather import gather_plan
from rmqcli.admin.reset.target import ResetRequest, Shift, ToPosition
from rmqcli.api.calls.offset import update_consumer_offset
from rmqcli.api.client import Client
from rmqcli.clock import SystemClock
from rmqcli.config import ClientConfig
from rmqcli.errors import BrokerError
from rmqcli.model import MessageQueue
from rmqcli.position import AtOffset, Earliest, Latest
from rmqcli.testing import faults
from rmqcli.wire.bodies.offset import ResetOffsetBody
from rmqcli.wire.body import encode_body
from rmqcli.wire.codes import RequestCode
from tests.admin.reset.member import FakeMember, obey
from tests.consumer.collecting import committed
from tests.kit.waiting import wait_until

UPDATE = RequestCode.UPDATE_CONSUMER_OFFSET
QUERY = RequestCode.QUERY_CONSUMER_OFFSET
RESET = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET

FIRST, SECOND = (MessageQueue("T", "broker-a", each) for each in (0, 1))
OTHER = MessageQueue("T", "broker-b", 0)


class PassingClock(SystemClock):
    """The system's clock, `speed` times as fast, on which waits pass at once."""

    def __init__(self, speed):
        self._speed = speed
        self._skipped_ms = 0

    def monotonic_ms(self):
        return super().monotonic_ms() * self._speed + self._skipped_ms

    def wait_ms(self, event, timeout_ms):
        self._skipped_ms += timeout_ms
        return event.is_set()


@pytest.fixture
def start(rmq_cluster_factory):
    """Starts clusters with 100 messages in each queue of T, and a group G."""

    def start(like="5.5.0", *, queues=2, **options):
        cluster = rmq_cluster_factory(queues=queues, like=like, **options)
        cluster.create_topic("T")
        cluster.create_group("G")
        cluster.send("T", ["x"] * 100 * queues * len(cluster.brokers))
        return cluster

    return start


@pytest.fixture
def connect():
    """Makes clients; they are closed after the test.

    With `speed`, a fixed waiting time passes sooner; requests keep their timeouts.
    """
    clients = []

    def connect(cluster, timeout_ms=60_000, speed=1):
        config = ClientConfig(namesrv=(cluster.namesrv,), timeout_ms=timeout_ms * speed)
        clients.append(Client(config, clock=PassingClock(speed)))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


def commit(cluster, client, *offsets, broker="broker-a"):
    for queue_id, offset in enumerate(offsets):
        call = update_consumer_offset("G", "T", queue_id, commit_offset=offset)
        client.invoke(cluster.broker(broker).address, call)


def plan_for(client, target, **request):
    return gather_plan(
        client, ResetRequest(group="G", topic="T", target=target, **request)
    )


def to(offset):
    return ToPosition(AtOffset(offset))


def told(run):
    """Return each queue's result, the offset that was read back, and the note."""
    return {
        queue: (each.result.value, each.read_back, each.note)
        for queue, each in run.outcomes().items()
    }


def fields_of(rule, *names):
    """Return these fields of each request that the rule matched."""
    return [
        tuple(each.command.ext_fields.get(name) for name in names)
        for each in rule.requests
    ]


@pytest.mark.parametrize("like", ["4.6.0", "4.9.7", "5.5.0"])
def test_a_group_that_is_away_gets_a_commit_in_each_queue_that_changes(
    start, connect, like
):
    cluster = start(like, queues=3)
    client = connect(cluster)
    commit(cluster, client, 30, 7, 50)
    plan = plan_for(client, to(7))
    commits = cluster.faults.observe(code=UPDATE)
    resets = cluster.faults.observe(code=RESET)
    run = ResetRun(client, plan)
    run.execute()
    sent = fields_of(commits, "consumerGroup", "topic", "queueId", "commitOffset")
    assert sorted(sent) == [("G", "T", "0", "7"), ("G", "T", "2", "7")]
    assert not resets.requests
    assert told(run) == {
        FIRST: ("CONFIRMED", 7, ""),
        SECOND: ("UNCHANGED", 7, ""),
        MessageQueue("T", "broker-a", 2): ("CONFIRMED", 7, ""),
    }
    assert all(each.is_good for each in run.outcomes().values())
    assert (run.errors, committed(cluster, "G", "T")) == ((), {0: 7, 1: 7, 2: 7})


def test_what_has_nowhere_to_go_is_left_and_said(start, connect):
    cluster = start()
    client = connect(cluster)
    commit(cluster, client, 30)
    plan = plan_for(client, Shift(5))
    reads = cluster.faults.observe(code=QUERY)
    run = ResetRun(client, plan)
    run.execute()
    assert told(run) == {
        FIRST: ("CONFIRMED", 35, ""),
        SECOND: ("NOT_ATTEMPTED", None, "no target offset"),
    }
    assert not run.outcomes()[SECOND].is_good
    assert fields_of(reads, "queueId") == [("0",)]  # the other queue is not read back


def test_before_it_begins_nothing_was_attempted(start, connect):
    cluster = start()
    client = connect(cluster)
    commit(cluster, client, 30, 7)
    run = ResetRun(client, plan_for(client, to(7)))
    assert told(run) == {
        FIRST: ("NOT_ATTEMPTED", None, ""),
        SECOND: ("UNCHANGED", 7, ""),
    }


def test_what_is_under_way_when_it_is_interrupted_is_not_called_untouched(
    start, connect
):
    """A request is marked as attempted before it is sent, in case of an interrupt."""
    cluster = start(queues=1)
    client = connect(cluster)
    commit(cluster, client, 30)
    run = ResetRun(client, plan_for(client, to(7)))

    class Interrupted(Client):
        def submit(self, *_args, **_options):
            raise KeyboardInterrupt

    run._client = Interrupted(client.config)
    with pytest.raises(KeyboardInterrupt):
        run.execute()
    assert told(run) == {FIRST: ("UNKNOWN", None, "could not be read back")}
    run._client = client
    run.read_back()
    still = "still 30: the broker accepted the request, but the offset did not change"
    assert told(run) == {FIRST: ("UNCHANGED", 30, still)}


def test_a_new_broker_resets_its_members_queue_by_queue(start, connect):
    cluster = start("5.5.0")
    client = connect(cluster)
    commit(cluster, client, 30, 40)
    with FakeMember(cluster):
        plan = plan_for(client, to(7))
        commits = cluster.faults.observe(code=UPDATE)
        resets = cluster.faults.observe(code=RESET)
        run = ResetRun(client, plan)
        run.execute()
    assert not commits.requests
    names = ("group", "topic", "queueId", "offset", "timestamp", "isForce")
    # A time in the year 9999 without force moves nothing if a broker ignores offsets.
    harmless = ("253402300799999", "false")
    assert sorted(fields_of(resets, *names)) == [
        ("G", "T", "0", "7", *harmless),
        ("G", "T", "1", "7", *harmless),
    ]
    assert told(run) == {FIRST: ("CONFIRMED", 7, ""), SECOND: ("CONFIRMED", 7, "")}
    assert cluster.call(
        lambda: cluster.broker().state.offsets.has_pending_reset("G", "T", 0)
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "then", "result", "note"),
    [
        (7, 7, "CONFIRMED", ""),
        (7, 12, "CONFIRMED", "was 7; a live consumer has since committed 12"),
        (90, 90, "CONFIRMED", ""),
        (90, 95, "CONFIRMED", "was 90; a live consumer has since committed 95"),
        (
            7,
            30,
            "UNCHANGED",
            "still 30: the broker accepted the request, but the offset did not change",
        ),
        (
            90,
            31,
            "OVERWRITTEN",
            "set to 90, but a live consumer has overwritten it with 31",
        ),
    ],
)
def test_a_commit_that_was_under_way_is_waited_out(
    start, connect, target, then, result, note
):
    """A member's pull receives the reset, then a commit that it sent before arrives.

    The broker has the old offset until the member has stopped and commits the new one.
    """
    cluster = start("5.5.0", queues=1)
    client = connect(cluster, speed=1 if result == "CONFIRMED" else 10)
    commit(cluster, client, 30)
    offsets = cluster.broker().state.offsets
    looks = iter(range(1_000_000))

    def before_a_look(_request):
        look = next(looks)
        if look == 0:
            offsets.take_pending_reset("G", "T", 0)
            offsets.commit("G", "T", 0, 30)
        elif look == 5:
            offsets.commit("G", "T", 0, then)

    with FakeMember(cluster):
        run = ResetRun(client, plan_for(client, to(target)))
        cluster.faults.observe(code=QUERY, on_request=before_a_look)
        begun_ms = client.clock.monotonic_ms()
        run.execute()
        took_ms = client.clock.monotonic_ms() - begun_ms
    assert told(run) == {FIRST: (result, then, note)}
    assert (took_ms >= 20_000) == (result != "CONFIRMED")


def test_a_reset_that_still_waits_is_replaced(start, connect):
    """A broker with a pending reset answers a commit with success and ignores it."""
    cluster = start("5.5.0")
    client = connect(cluster)
    commit(cluster, client, 30, 40)
    cluster.call(lambda: cluster.broker().state.offsets.reset("G", "T", 0, 90))
    plan = plan_for(client, to(7))
    assert [each.committed for each in plan.queues] == [90, 40]
    resets = cluster.faults.observe(code=RESET)
    run = ResetRun(client, plan)
    run.execute()
    assert fields_of(resets, "queueId", "offset") == [("0", "7")]
    assert told(run) == {FIRST: ("CONFIRMED", 7, ""), SECOND: ("CONFIRMED", 7, "")}
    assert committed(cluster, "G", "T") == {0: 7, 1: 7}


@pytest.mark.parametrize("like", ["4.6.0", "4.9.7"])
def test_members_of_an_old_broker_get_one_push_and_are_waited_for(start, connect, like):
    cluster = start(like)
    client = connect(cluster)
    commit(cluster, client, 30, 40)
    with FakeMember(cluster, on_push=obey) as member:
        plan = plan_for(client, ToPosition(Earliest()))
        commits = cluster.faults.observe(code=UPDATE)
        resets = cluster.faults.observe(code=RESET)
        run = ResetRun(client, plan)
        run.execute()
        assert member.pushes == [{FIRST: 0, SECOND: 0}]
    names = ("group", "topic", "timestamp", "isForce", "queueId", "offset")
    assert fields_of(resets, *names) == [("G", "T", "0", "true", None, None)]
    assert len(commits.requests) == 2  # both by the member
    assert told(run) == {FIRST: ("CONFIRMED", 0, ""), SECOND: ("CONFIRMED", 0, "")}


@pytest.mark.slow
def test_a_member_that_read_on_after_a_push_has_obeyed(start, connect):
    cluster = start("4.9.7")
    client = connect(cluster)
    commit(cluster, client, 30, 40)
    reads = threading.Semaphore(0)
    cluster.faults.observe(code=QUERY, on_request=lambda _: reads.release())

    def read_on(offsets):
        """Commit the targets; once they were read back, commit further progress."""
        yield FIRST, offsets[FIRST]
        yield SECOND, offsets[SECOND]
        wait_until(lambda: committed(cluster, "G", "T") == {0: 0, 1: 0})
        while reads.acquire(blocking=False):
            pass
        for _ in range(4):  # two reads of each queue after the commit
            reads.acquire(timeout=20)
        yield FIRST, 30  # it has consumed them a second time

    with FakeMember(cluster, on_push=read_on):
        run = ResetRun(client, plan_for(client, ToPosition(Earliest())))
        run.execute()
        run.watch()
        wait_until(lambda: committed(cluster, "G", "T") == {0: 30, 1: 0})
        run.read_back()
    note = "was 0; a live consumer has since committed 30"
    assert told(run) == {FIRST: ("CONFIRMED", 30, note), SECOND: ("CONFIRMED", 0, "")}


@pytest.mark.slow
def test_a_member_that_ignores_a_push_is_waited_for_and_reported(start, connect):
    cluster = start("4.9.7")
    client = connect(cluster, speed=10)
    commit(cluster, client, 30, 40)
    with FakeMember(cluster, on_push=lambda offsets: [(FIRST, offsets[FIRST])]):
        plan = plan_for(client, ToPosition(Earliest()))
        reads = cluster.faults.observe(code=QUERY)
        begun_ms = client.clock.monotonic_ms()
        run = ResetRun(client, plan)
        run.execute()
        took_ms = client.clock.monotonic_ms() - begun_ms
    still = "still 40: the broker accepted the request, but the offset did not change"
    assert told(run) == {FIRST: ("CONFIRMED", 0, ""), SECOND: ("UNCHANGED", 40, still)}
    assert took_ms >= 20_000
    # The confirmed queue is not read for the rest of the time.
    asked = [queue_id for (queue_id,) in fields_of(reads, "queueId")]
    assert asked.count("0") < asked.count("1") / 2
    # At most every 10 ms for 2 s of the system's clock.
    assert 10 <= asked.count("1") <= 210


def test_a_push_that_came_out_elsewhere_is_judged_by_where_it_went(start, connect):
    """The broker resolves the time itself, and the queue may have changed since."""
    cluster = start("4.9.7")
    client = connect(cluster)
    commit(cluster, client, 30, 40)
    with FakeMember(cluster) as member:
        plan = plan_for(client, ToPosition(Earliest()))
        cluster.faults.next(
            faults.answer(
                0, body=encode_body(ResetOffsetBody(offset_table={FIRST: 3, SECOND: 0}))
            ),
            code=RESET,
        )
        member.commit(FIRST, 3)
        member.commit(SECOND, 0)
        run = ResetRun(client, plan)
        run.execute()
    assert told(run) == {FIRST: ("CONFIRMED", 3, ""), SECOND: ("CONFIRMED", 0, "")}


def test_a_push_that_one_broker_refuses_is_not_the_others(start, connect):
    cluster = start("4.9.7", queues=1, brokers=2)
    client = connect(cluster)
    commit(cluster, client, 30)
    commit(cluster, client, 40, broker="broker-b")
    with (
        FakeMember(cluster, on_push=obey),
        FakeMember(cluster, broker="broker-b", on_push=obey),
    ):
        plan = plan_for(client, ToPosition(Earliest()))
        cluster.faults.next(faults.answer(1, "not now"), code=RESET, broker="broker-a")
        run = ResetRun(client, plan)
        run.execute()
    (error,) = run.errors
    assert isinstance(error, BrokerError)
    assert told(run) == {
        FIRST: ("NOT_ATTEMPTED", 30, error.message),
        OTHER: ("CONFIRMED", 0, ""),
    }


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        (faults.drop_request(), "no answer from "),
        (faults.answer(0, body=b"not JSON"), "ResetOffsetBody: "),
    ],
)
def test_a_push_without_an_answer_may_have_been_obeyed(start, connect, action, reason):
    cluster = start("4.9.7", queues=1)
    client = connect(cluster, timeout_ms=300)
    commit(cluster, client, 30)
    with FakeMember(cluster):
        plan = plan_for(client, ToPosition(Earliest()))
        cluster.faults.next(action, code=RESET)
        run = ResetRun(client, plan)
        run.execute()
    ((result, read_back, note),) = told(run).values()
    assert (result, read_back) == ("UNKNOWN", 30)
    assert note.startswith(reason)
    assert not run.outcomes()[FIRST].is_good


def test_a_commit_without_an_answer_is_judged_by_what_is_there(start, connect):
    cluster = start(queues=1)
    client = connect(cluster, timeout_ms=300)
    commit(cluster, client, 30)
    plan = plan_for(client, to(7))
    cluster.faults.next(faults.drop_answer(), code=UPDATE)
    run = ResetRun(client, plan)
    run.execute()
    assert told(run) == {FIRST: ("CONFIRMED", 7, "")}
    assert len(run.errors) == 1


def test_a_commit_that_never_left_was_not_attempted(start, connect):
    cluster = start(queues=1)
    client = connect(cluster, timeout_ms=1_000)
    commit(cluster, client, 30)
    plan = plan_for(client, to(7))
    cluster.broker().kill()
    run = ResetRun(connect(cluster), plan)
    run.execute()
    ((result, read_back, note),) = told(run).values()
    assert (result, read_back) == ("NOT_ATTEMPTED", None)
    assert cluster.broker().address in note


def test_a_silent_broker_does_not_stop_another(start, connect):
    """The first request to each broker is sent alone; if it fails, the rest is not."""
    cluster = start(brokers=2)
    client = connect(cluster, timeout_ms=300)
    commit(cluster, client, 30, 40)
    commit(cluster, client, 50, 60, broker="broker-b")
    plan = plan_for(client, to(7))
    commits = cluster.faults.observe(code=UPDATE)
    cluster.faults.next(faults.drop_request(), code=UPDATE, broker="broker-a")
    run = ResetRun(client, plan)
    run.execute()
    results = {queue: result for queue, (result, _, _) in told(run).items()}
    assert results == {
        FIRST: "UNKNOWN",
        SECOND: "NOT_ATTEMPTED",
        OTHER: "CONFIRMED",
        MessageQueue("T", "broker-b", 1): "CONFIRMED",
    }
    sent = [
        (each.broker, each.command.ext_fields["queueId"]) for each in commits.requests
    ]
    assert sorted(sent[:2]) == [("broker-a", "0"), ("broker-b", "0")]
    assert sent[2:] == [("broker-b", "1")]


@pytest.mark.parametrize("action", [faults.answer(1, "busy"), faults.disconnect()])
def test_what_was_set_and_cannot_be_read_back_is_unknown(start, connect, action):
    """The commit was attempted, and a read-back that fails does not revert it."""
    cluster = start(queues=1)
    client = connect(cluster)
    commit(cluster, client, 30)
    plan = plan_for(client, to(7))
    cluster.faults.add(action, code=QUERY)
    run = ResetRun(client, plan)
    run.execute()
    (error,) = run.errors
    note = f"could not be read back: {error.message}"
    assert told(run) == {FIRST: ("UNKNOWN", None, note)}
    assert not run.outcomes()[FIRST].is_good
    assert committed(cluster, "G", "T") == {0: 7}


def test_a_broker_that_dies_after_the_commit_leaves_it_unknown(start, connect):
    cluster = start(queues=1)
    client = connect(cluster)
    commit(cluster, client, 30)
    run = ResetRun(client, plan_for(client, to(7)))
    run._run([run._set_offsets(key, queues) for key, queues in run._by_key()])
    cluster.broker().kill()
    run.read_back()
    ((result, _, note),) = told(run).values()
    assert result == "UNKNOWN"
    assert note.startswith("could not be read back: ")


def test_a_read_back_that_works_the_second_time_counts(start, connect):
    cluster = start(queues=1)
    client = connect(cluster)
    commit(cluster, client, 30)
    plan = plan_for(client, to(7))
    cluster.faults.next(faults.answer(1, "busy"), code=QUERY)
    run = ResetRun(client, plan)
    run.execute()
    assert told(run)[FIRST][0] == "UNKNOWN"
    assert len(run.errors) == 1
    run.read_back()
    assert told(run) == {FIRST: ("CONFIRMED", 7, "")}
    assert list(run.errors) == []


def test_a_queue_left_alone_may_move_on(start, connect):
    cluster = start()
    client = connect(cluster)
    commit(cluster, client, 30, 7)
    run = ResetRun(client, plan_for(client, to(7)))
    run.execute()
    commit(cluster, client, 7, 9)
    run.read_back()
    note = "a live consumer has since committed 9"
    assert told(run) == {FIRST: ("CONFIRMED", 7, ""), SECOND: ("UNCHANGED", 9, note)}


@pytest.mark.slow
def test_watching_finds_a_member_that_commits_over_it(start, connect):
    """An old broker cannot hold members back, so only a later read can show it."""
    cluster = start("4.9.7")
    client = connect(cluster)
    commit(cluster, client, 30, 40)
    with FakeMember(cluster) as member:
        plan = plan_for(client, to(7), wants_proof=True)
        run = ResetRun(client, plan)
        run.execute()
        assert {result for result, _, _ in told(run).values()} == {"CONFIRMED"}
        reads = cluster.faults.observe(
            code=QUERY, on_request=lambda _: member.commit(SECOND, 41)
        )
        begun_ms = client.clock.monotonic_ms()
        run.watch()
        assert client.clock.monotonic_ms() - begun_ms >= 7_000
    # Both queues are read every 100 ms, and less often on a busy machine.
    assert 6 <= len(reads.requests) <= 140
    note = "set to 7, but a live consumer has overwritten it with 41"
    assert told(run) == {FIRST: ("CONFIRMED", 7, ""), SECOND: ("OVERWRITTEN", 41, note)}


def test_the_end_is_reached_through_the_members_of_an_old_broker(start, connect):
    cluster = start("4.6.0")
    client = connect(cluster)
    commit(cluster, client, 30, 40)
    with FakeMember(cluster, on_push=obey) as member:
        run = ResetRun(client, plan_for(client, ToPosition(Latest())))
        run.execute()
        assert member.pushes == [{FIRST: 100, SECOND: 100}]
    assert told(run) == {FIRST: ("CONFIRMED", 100, ""), SECOND: ("CONFIRMED", 100, "")}
