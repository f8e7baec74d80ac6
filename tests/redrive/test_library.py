"""`Cluster.redrive`: dead letters are sent again by a program."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rmqcli import (
    Admin,
    ConfigError,
    LetterPlace,
    NoBrokerError,
    NotFoundError,
    RedriveReport,
    RefusedError,
    TextError,
    UsageError,
    connect,
)
from rmqcli.admin.dlq.log import LetterResult
from rmqcli.broker import faults
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.wire.codes import RequestCode
from tests.admin.dlq.letters import make_letters


@pytest.fixture
def cluster(rmq_cluster_factory):
    """Four letters of the group billing on one broker."""
    cluster = rmq_cluster_factory(queues=1)
    cluster.create_topic("orders")
    cluster.create_group("billing")
    bodies = ['{"a":1}', "{", '{"a":2}', '{"a":1,"b":3}']
    make_letters(cluster, "billing", "orders", bodies)
    return cluster


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log.jsonl"


def redriven(cluster):
    with Admin(namesrv=cluster.namesrv) as admin:
        return [
            message.body
            for message in admin.read("orders")
            if "RMQ_REDRIVEN_FROM" in message.properties
        ]


def test_a_plan_changes_nothing_and_execute_sends_each_letter_once(cluster, log):
    redrive = connect(cluster.namesrv).redrive("billing", log=log)
    plan = redrive.plan()
    assert (plan.count, plan.targets, plan.left_out) == (4, {"orders": 4}, {})
    assert not log.exists()
    assert redriven(cluster) == []
    batches: list[Any] = []
    report = redrive.execute(on_batch=batches.append)
    assert isinstance(report, RedriveReport)
    assert (report.stored, report.unknown, report.failures) == (4, 0, [])
    assert (report.is_complete, report.given_up, report.unread) == (True, None, {})
    assert (report.by_topic, report.by_error) == ({"orders": 4}, {})
    assert log.exists()
    (results,) = batches
    assert [(each.place.queue_offset, each.status) for each in results] == [
        (0, "SEND_OK"),
        (1, "SEND_OK"),
        (2, "SEND_OK"),
        (3, "SEND_OK"),
    ]
    assert isinstance(results[0].place, LetterPlace)
    assert len(redriven(cluster)) == 4
    again = redrive.execute()
    assert (again.stored, again.is_complete) == (0, True)
    assert again.plan.left_out["redriven before"].count == 4
    assert len(redriven(cluster)) == 4


def test_without_a_log_that_of_the_command_is_used(cluster, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    before_ms = SYSTEM_CLOCK.epoch_ms()
    connect(cluster.namesrv).redrive("billing", where="body <> '{'").execute()
    path = tmp_path / "rmqcli" / "redrive" / "billing@DefaultCluster.jsonl"
    head, chosen, *batch = map(json.loads, path.read_text().splitlines())
    assert (head["group"], chosen["chosen_by"]) == ("billing", "body <> '{'")
    times = [each["at_ms"] for each in (head, chosen, *batch)]
    assert before_ms <= times[0] <= times[1] <= times[2] <= times[3]


def test_letters_are_chosen_as_by_the_command(cluster, log):
    with connect(cluster.namesrv) as connected:
        redrive = connected.redrive(
            "billing",
            where="value.a = 1",
            decode="json",
            pattern="a|{$",
            from_="earliest",
            log=log,
        )
        report = redrive.execute()
    assert (report.stored, report.is_complete) == (2, False)
    assert report.plan.undecoded == ("broker-a:0:1",)
    assert redriven(cluster) == [b'{"a":1}', b'{"a":1,"b":3}']


def test_an_error_of_the_program_ends_the_redrive_after_a_whole_batch(cluster, log):
    redrive = connect(cluster.namesrv).redrive("billing", log=log)

    def fail(results):
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        redrive.execute(rate_per_s=1, on_batch=fail)
    assert len(redriven(cluster)) == 1
    assert redrive.plan().doubtful == ()
    assert redrive.execute().stored == 3


def test_a_report_says_why_sending_stopped(cluster, log):
    for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
        cluster.faults.add(faults.drop_answer(), code=code)
    report = connect(cluster.namesrv, timeout_ms=300).redrive("billing", log=log)
    done = report.execute()
    assert (done.stored, done.unknown, done.is_complete) == (0, 4, False)
    assert done.unknown_letters[0] == "broker-a:0:0"
    assert done.given_up is not None


def test_a_report_counts_what_was_not_sent_and_names_the_first(
    cluster, log, monkeypatch
):
    monkeypatch.setattr("rmqcli.redrive.library.NAMED_MAX", 1)
    places = [LetterPlace("broker-a", 0, n, n) for n in range(6)]
    results = [
        LetterResult(places[0], "UNKNOWN", "orders", error="no answer"),
        LetterResult(places[1], "UNKNOWN", "orders", error="no answer"),
        LetterResult(places[2], "NO_PERMISSION", "orders", error="no"),
        LetterResult(places[3], "NOT_SENT", "orders"),
        LetterResult(places[4], "SEND_OK", "orders"),
        LetterResult(places[5], "FLUSH_DISK_TIMEOUT", "orders"),
    ]
    report = RedriveReport(
        plan=connect(cluster.namesrv).redrive("billing", log=log).plan()
    )
    report.add(results[:3])
    report.add(results[3:])
    assert (report.stored, report.by_topic) == (2, {"orders": 2})
    assert (report.unknown, report.unknown_letters) == (2, ["broker-a:0:0"])
    assert report.by_error == {
        "UNKNOWN: no answer": 2,
        "NO_PERMISSION: no": 1,
        "NOT_SENT: not sent": 1,
    }
    assert report.failures == results[:1]


def test_a_report_names_the_queues_that_could_not_be_read_any_more(
    rmq_cluster_factory, log
):
    """Letters of write-only queues are read one queue after the other."""
    cluster = rmq_cluster_factory(brokers=2, queues=1)
    cluster.create_topic("orders")
    cluster.create_group("billing")
    cluster.create_topic("%DLQ%billing", queues=1, perm=2)
    make_letters(cluster, "billing", "orders", "abcd")

    def refuse(results):
        cluster.faults.add(
            faults.answer(1, "the disk is broken"),
            code=RequestCode.QUERY_CONSUME_QUEUE,
            broker="broker-b",
        )

    redrive = connect(cluster.namesrv).redrive("billing", log=log)
    report = redrive.execute(rate_per_s=1, on_batch=refuse)
    assert (report.stored, report.given_up, report.is_complete) == (2, None, False)
    ((queue, error),) = report.unread.items()
    assert str(queue) == "%DLQ%billing@broker-b:0"
    assert "the disk is broken" in error.message


def test_what_cannot_be_done_is_refused_before_anything_is_sent(cluster, log):
    connected = connect(cluster.namesrv, timeout_ms=300)
    with pytest.raises(NotFoundError) as caught:
        connected.redrive("nobody", log=log).plan()
    assert caught.value.message == "group nobody does not exist"
    cluster.create_group("idle")
    with pytest.raises(NotFoundError) as caught:
        connected.redrive("idle", log=log).plan()
    assert "group idle has no dead letters" in caught.value.message
    with pytest.raises(UsageError, match="decode needs where"):
        connected.redrive("billing", decode="json")
    with pytest.raises(TextError):
        connected.redrive("billing", where="valu = 1")
    with pytest.raises(TypeError, match="again"):
        connected.redrive("billing", again=1)  # type: ignore[arg-type]  # what is tested
    with pytest.raises(UsageError, match="Redrive needs name servers"):
        connect(endpoints="127.0.0.1:1").redrive("billing")
    cluster.broker().hang()
    with pytest.raises(NoBrokerError):
        connected.redrive("billing", log=log).execute()
    cluster.broker().resume()
    assert redriven(cluster) == []


def test_a_plan_that_the_program_refuses_is_not_sent(cluster, log):
    redrive = connect(cluster.namesrv).redrive("billing", log=log)

    def refuse(plan):
        raise RefusedError(f"{plan.count} letters are too many")

    with pytest.raises(RefusedError, match="4 letters are too many"):
        redrive.execute(on_plan=refuse)
    assert redriven(cluster) == []
    assert redrive.execute().stored == 4


async def confirm(_plan):
    raise RefusedError("no")


@pytest.mark.parametrize("name", ["on_plan", "on_batch"])
@pytest.mark.parametrize("function", [confirm, lambda plan: confirm(plan)])
def test_a_coroutine_function_is_refused_in_place_of_one_that_confirms(
    cluster, log, name, function
):
    """It was called and never ran, and the letters that it refuses were sent."""
    redrive = connect(cluster.namesrv).redrive("billing", log=log)
    with pytest.raises(TypeError, match=f"{name} .*; pass a plain function"):
        redrive.execute(rate_per_s=1, **dict[str, Any]({name: function}))
    is_late = name == "on_batch" and function is not confirm
    assert len(redriven(cluster)) == is_late


@pytest.mark.parametrize("rate", [0, -1, -0.5, float("nan"), float("inf")])
def test_a_rate_that_is_not_greater_than_zero_is_refused(cluster, log, rate):
    """A negative one counted as none, and 0 failed after the first letter."""
    redrive = connect(cluster.namesrv).redrive("billing", log=log)
    with pytest.raises(ConfigError, match=r"rate_per_s is .*; it must be greater"):
        redrive.execute(rate_per_s=rate)
    with pytest.raises(TypeError, match="rate_per_s"):
        redrive.execute(rate_per_s="100")  # type: ignore[arg-type]  # wrong on purpose
    assert redriven(cluster) == []


@pytest.mark.parametrize("last", [0, -1])
def test_a_number_of_letters_below_one_is_refused(cluster, log, last):
    """There seemed to be no letters."""
    with pytest.raises(ConfigError, match="last is"):
        connect(cluster.namesrv).redrive("billing", log=log, last=last).plan()
