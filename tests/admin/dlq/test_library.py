"""`Admin` lists and reads dead letters and retries, as values with types."""

from __future__ import annotations

import json

import pytest

from rmqcli import Admin, PulledMessage
from rmqcli.cli.main import run
from rmqcli.errors import DeniedError, NotFoundError
from rmqcli.testing import faults
from rmqcli.wire.codes import RequestCode
from tests.admin.dlq.letters import kill, make_letters


@pytest.fixture(params=[6, 2], ids=["readable", "write-only"])
def cluster(rmq_cluster_factory, request):
    cluster = rmq_cluster_factory(queues=1)
    cluster.create_topic("orders")
    cluster.create_group("billing")
    cluster.create_topic("%DLQ%billing", queues=1, perm=request.param)
    return cluster


def test_letters_are_counted_and_read_with_their_origin(cluster):
    sent = make_letters(cluster, "billing", "orders", "abc", keys="k")
    with Admin(namesrv=cluster.namesrv) as admin:
        (row,) = admin.dead_letters().groups
        assert (row.group, row.count, row.reason) == ("billing", 3, None)
        found = admin.read_dead_letters("billing")
        assert (found.is_cut, found.undecodable, found.missing) == (False, 0, 0)
        assert found.errors == {}
        first = found.letters[0]
        assert isinstance(first.message, PulledMessage)
        assert (first.message.body, first.message.keys) == (b"a", "k")
        assert first.message.topic == "%DLQ%billing"
        assert str(first.message.message_queue) == "%DLQ%billing@broker-a:0"
        assert (first.origin_topic, first.origin_msg_id, first.deliveries) == (
            "orders",
            sent[0].offset_msg_id,
            1,
        )
        assert (first.redriven_times, first.redriven_from) == (0, None)
        assert [e.queue_offset for e in found.letters] == [0, 1, 2]
        some = admin.read_dead_letters("billing", limit=2)
        assert (len(some.letters), some.is_cut) == (2, True)
        last = admin.read_dead_letters("billing", last=1)
        assert [e.message.body for e in last.letters] == [b"c"]
        assert not last.is_cut
        with pytest.raises(NotFoundError):
            admin.read_dead_letters("nobody")


def test_letters_are_chosen_by_a_condition_as_by_the_command(cluster, capfd):
    bodies = ['{"code": 7}', '{"code": 8}', "no JSON", '{"code": 7, "n": 2}']
    make_letters(cluster, "billing", "orders", bodies, tags="Paid")
    where = "value.code = 7 AND tags = 'Paid'"
    with Admin(namesrv=cluster.namesrv) as admin:
        found = admin.read_dead_letters("billing", where=where, decode="json")
        assert [e.message.body for e in found.letters] == [
            b'{"code": 7}',
            b'{"code": 7, "n": 2}',
        ]
        assert [e.queue_offset for e in found.letters] == [0, 3]
        assert (found.without_value, found.undecodable, found.is_cut) == (1, 0, False)
        some = admin.read_dead_letters("billing", where=where, decode="json", limit=1)
        assert ([e.queue_offset for e in some.letters], some.is_cut) == ([0], True)
        every = admin.read_dead_letters("billing")
        assert (len(every.letters), every.without_value) == (4, 0)
    command = ["dlq", "show", "billing", "--decode", "json", "--where", where]
    assert run([*command, "-o", "jsonl", "-n", cluster.namesrv]) == 0
    out, err = capfd.readouterr()
    shown = [json.loads(line) for line in out.splitlines()]
    assert [each["queue_offset"] for each in shown] == [0, 3]
    assert "2 shown, 4 read, 1 without a value" in err


def test_a_queue_that_is_not_read_to_its_end_has_its_error(cluster):
    make_letters(cluster, "billing", "orders", "abc")
    refused = faults.answer(16, "no permission")
    for code in (RequestCode.PULL_MESSAGE, RequestCode.QUERY_CONSUME_QUEUE):
        cluster.faults.add(refused, code=code)
    with Admin(namesrv=cluster.namesrv) as admin:
        found = admin.read_dead_letters("billing")
    ((queue, error),) = found.errors.items()
    assert (str(queue), found.letters) == ("%DLQ%billing@broker-a:0", ())
    assert "no permission" in error.message


def test_what_waits_for_a_group_is_found(cluster):
    cluster.send("orders", ["a"])
    with Admin(namesrv=cluster.namesrv) as admin:
        assert admin.retries("billing").messages == []
        sent = make_letters(cluster, "other", "orders", "b")
        kill(cluster, "billing", "orders", sent, delay_level=9)
        found = admin.retries("billing")
        assert (found.counts["delay"], found.errors) == (1, {})
        (waiting,) = found.messages
        assert isinstance(waiting.message, PulledMessage)
        assert (waiting.place, waiting.topic, waiting.attempt) == ("delay", "orders", 2)
        with pytest.raises(NotFoundError):
            admin.retries("nobody")


def test_a_group_whose_settings_are_refused_is_not_unknown(cluster):
    refused = faults.answer(16, "no permission")
    code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
    cluster.faults.add(refused, code=code)
    with Admin(namesrv=cluster.namesrv) as admin, pytest.raises(DeniedError):
        admin.retries("billing")
