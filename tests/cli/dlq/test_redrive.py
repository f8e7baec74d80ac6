"""`rmq dlq redrive` sends letters again, once, and keeps account of each."""

from __future__ import annotations

import json

import pytest

from rmqcli import Admin
from rmqcli.api.calls.offset import update_consumer_offset
from rmqcli.broker import faults
from rmqcli.cli.main import run
from rmqcli.wire.codes import RequestCode
from tests.admin.dlq.letters import client_of, kill, make_letters
from tests.kit.terminal import typed
from tests.kit.wiped import wiped

DO = ("--execute", "--yes")


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    """The folder in which `rmq dlq redrive` keeps its logs."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "rmqcli" / "redrive"


@pytest.fixture(params=[6, 2], ids=["readable", "write-only"])
def cluster(rmq_cluster_factory, request):
    """Two brokers; letters are read by pulls, or one by one."""
    cluster = rmq_cluster_factory(brokers=2, queues=1)
    cluster.create_topic("orders")
    cluster.create_group("billing")
    cluster.create_topic("%DLQ%billing", queues=1, perm=request.param)
    return cluster


def rmq(cluster, capsys, *words):
    """Run `rmq dlq`; return exit code, JSON of stdout or None, and stderr."""
    capsys.readouterr()
    code = run(["dlq", *words, "-n", cluster.namesrv, "-o", "json"])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else None, err


def stored(cluster, topic):
    """All messages of a topic, in no particular order."""
    with Admin(namesrv=cluster.namesrv) as admin:
        return list(admin.read(topic))


def redriven(cluster, topic="orders"):
    """The messages of a topic that a redrive sent, by body."""
    found = [m for m in stored(cluster, topic) if "RMQ_REDRIVEN_FROM" in m.properties]
    return sorted(found, key=lambda m: m.body)


def test_a_plan_says_what_would_be_sent_and_sends_nothing(cluster, capsys):
    make_letters(cluster, "billing", "orders", "abc")
    code, plan, err = rmq(cluster, capsys, "redrive", "billing")
    assert code == 0, err
    assert (plan["mode"], plan["to"], plan["read"]) == ("plan", "origin", 3)
    assert plan["targets"] == [{"topic": "orders", "count": 3}]
    assert (plan["skipped"], plan["doubtful"], plan["sent"]) == ([], [], None)
    assert "nothing was sent; add --execute to send the letters" in err
    assert len(stored(cluster, "orders")) == 3


def test_a_plan_and_its_result_are_tables(rmq_cluster, capsys, state):
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.create_group("billing")
    rmq_cluster.create_topic("%DLQ%billing", queues=1)
    make_letters(rmq_cluster, "billing", "orders", "ab")
    words = ["dlq", "redrive", "billing", "-n", rmq_cluster.namesrv]
    plan = """\
ACTION  COUNT  TOPIC   REASON  EXAMPLE
send        2  orders  -       -
"""
    capsys.readouterr()
    assert run(words) == 0
    end = "nothing was sent; add --execute to send the letters\n"
    assert capsys.readouterr() == (plan, end)
    with typed("no\n"):
        assert run([*words, "--execute"]) == 7
    asked = (
        "This sends 2 dead letters of group billing again: 2 to orders.\n"
        "Type billing to confirm: "
    )
    said = "error: not confirmed: 'billing' was not typed, nothing was changed\n"
    assert capsys.readouterr() == ("", f"{plan}{asked}{said}")
    log = state / "billing@DefaultCluster.jsonl"
    assert run([*words, *DO]) == 0
    sent = """\
RESULT  COUNT  TOPIC   REASON
sent        2  orders  -
"""
    assert capsys.readouterr() == (sent, f"2 of 2 sent; log: {log}\n")
    assert run(words) == 0
    out, err = capsys.readouterr()
    assert (out.splitlines()[1].split()[:3], err) == (
        ["skip", "2", "-"],
        "there is nothing to send\n",
    )


@pytest.mark.parametrize(
    ("gone", "said"),
    [
        ("a", "1 letter of the range is not stored any more"),
        ("ab", "2 letters of the range are not stored any more"),
    ],
)
def test_letters_that_expire_meanwhile_are_counted(rmq_cluster, capsys, gone, said):
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.create_group("billing")
    rmq_cluster.create_topic("%DLQ%billing", queues=1)
    make_letters(rmq_cluster, "billing", "orders", gone)
    store = rmq_cluster.broker().state.store
    end = store.log_bounds()[1]
    make_letters(rmq_cluster, "billing", "orders", "z")
    store.trim(None, end)
    first = faults.answer(0, ext_fields={"offset": "0"})
    rmq_cluster.faults.add(first, code=RequestCode.GET_MIN_OFFSET)
    code, plan, err = rmq(rmq_cluster, capsys, "redrive", "billing")
    assert (code, plan["read"], plan["missing"]) == (0, 1, len(gone))
    assert err.splitlines()[0] == f"warning: {said}"


def test_a_group_that_consumes_its_own_letters_is_told_so(cluster, capsys):
    """Those that it has consumed are still there, and would be processed twice."""
    make_letters(cluster, "billing", "orders", "abcd")  # two on each broker
    _, plan, err = rmq(cluster, capsys, "redrive", "billing")
    assert plan["consumed_by_group"] == 0
    assert "consumes its own dead letters" not in err
    with client_of(cluster) as client:
        for name, offset in (("broker-a", 2), ("broker-b", 1)):
            call = update_consumer_offset(
                "billing", "%DLQ%billing", 0, commit_offset=offset
            )
            client.invoke(cluster.broker(name).address, call)
    code, plan, err = rmq(cluster, capsys, "redrive", "billing")
    assert (code, plan["consumed_by_group"]) == (0, 3)
    assert "group billing consumes its own dead letters: by its" in err
    cluster.faults.next(
        faults.answer(16, "no permission"), code=RequestCode.QUERY_CONSUMER_OFFSET
    )
    code, plan, err = rmq(cluster, capsys, "redrive", "billing")
    assert (code, plan["consumed_by_group"]) == (0, None)
    assert "whether group billing consumes its own dead letters is not known" in err


def test_a_message_keeps_what_its_producer_gave_it_and_nothing_else(cluster, capsys):
    make_letters(
        cluster,
        "billing",
        "orders",
        ["a"],
        tags="Paid",
        keys=["k1", "k2"],
        properties={"region": "eu"},
        flag=7,
    )
    code, done, err = rmq(cluster, capsys, "redrive", "billing", *DO)
    assert (code, done["sent"], done["failed"]) == (0, 1, []), err
    (message,) = redriven(cluster)
    assert (message.body, message.tags, message.keys) == (b"a", "Paid", "k1 k2")
    assert (message.flag, message.reconsume_times) == (7, 0)
    assert message.properties["region"] == "eu"
    assert message.properties["RMQ_REDRIVEN_FROM"] == "broker-a:0:0"
    assert message.properties["RMQ_REDRIVEN_TIMES"] == "1"
    assert not {"RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "DELAY"} & message.properties.keys()


def test_letters_are_sent_once_unless_asked_for_again(cluster, capsys):
    make_letters(cluster, "billing", "orders", "abc")
    code, done, err = rmq(cluster, capsys, "redrive", "billing", *DO)
    assert (code, done["mode"], done["sent"]) == (0, "applied", 3), err
    assert [m.body for m in redriven(cluster)] == [b"a", b"b", b"c"]
    code, done, err = rmq(cluster, capsys, "redrive", "billing", *DO)
    assert (code, done["sent"]) == (0, 0)
    assert "there is nothing to send" in err
    (skipped,) = done["skipped"]
    assert (skipped["reason"], skipped["count"]) == ("redriven before", 3)
    assert skipped["example"] in ("broker-a:0:0", "broker-b:0:0")
    assert len(redriven(cluster)) == 3
    code, done, _ = rmq(cluster, capsys, "redrive", "billing", "--again", *DO)
    assert (code, done["sent"], len(redriven(cluster))) == (0, 3, 6)


def test_a_message_that_died_again_needs_again_and_tells_its_history(cluster, capsys):
    make_letters(cluster, "billing", "orders", "a")
    rmq(cluster, capsys, "redrive", "billing", *DO)
    (message,) = redriven(cluster)
    kill(cluster, "billing", "orders", [message])
    place = "broker-a:0:0"
    code, plan, _ = rmq(cluster, capsys, "redrive", "billing")
    assert {each["reason"]: each["count"] for each in plan["skipped"]} == {
        "redriven before": 1,
        "died again after a redrive": 1,
    }
    code, rows, err = rmq(cluster, capsys, "show", "billing")
    assert code == 0, err
    by_history = {row["redriven_times"]: row for row in rows}
    assert by_history[0]["redriven"] == "yes"
    assert (by_history[1]["redriven"], by_history[1]["redriven_from"]) == ("no", place)
    died_again = ["--property", "RMQ_REDRIVEN_TIMES=1", "--again"]
    code, done, _ = rmq(cluster, capsys, "redrive", "billing", *died_again, *DO)
    assert (code, done["sent"]) == (0, 1)
    times = [m.properties["RMQ_REDRIVEN_TIMES"] for m in redriven(cluster)]
    assert sorted(times) == ["1", "2"]


def test_only_chosen_letters_are_sent(cluster, capsys):
    make_letters(cluster, "billing", "orders", ["slow 1", "bad", "slow 2"])
    do = ["redrive", "billing", "--grep", "slow", *DO]
    code, done, err = rmq(cluster, capsys, *do)
    assert (code, done["sent"]) == (0, 2), err
    assert [m.body for m in redriven(cluster)] == [b"slow 1", b"slow 2"]


def test_a_letter_keeps_properties_in_any_writing(cluster, capsys):
    fields = {"tags": "größe", "keys": ("鍵",), "properties": {"città": "Cefalù"}}
    make_letters(cluster, "billing", "orders", "a", **fields)
    code, done, err = rmq(cluster, capsys, "redrive", "billing", *DO)
    assert (code, done["sent"]) == (0, 1), err
    (message,) = redriven(cluster)
    kept = (message.tags, message.keys, message.properties["città"])
    assert kept == ("größe", "鍵", "Cefalù")


def test_where_chooses_by_values_and_letters_without_one_stay(cluster, capsys):
    """That a value is missing would be true of a body that cannot be decoded, too."""
    bodies = ['{"a":1}', "{", '{"a":2}', '{"b":1}', "x"]
    make_letters(cluster, "billing", "orders", bodies)
    where = ["--decode", "json", "--where", "value.a = 1 OR value.a IS NULL"]
    code, plan, err = rmq(cluster, capsys, "redrive", "billing", *where)
    assert (code, plan["read"]) == (6, 5), err
    assert plan["targets"] == [{"topic": "orders", "count": 2}]
    assert plan["undecoded_count"] == 2
    assert sorted(plan["undecoded"]) == ["broker-a:0:2", "broker-b:0:0"]
    assert "2 letters could not be decoded for --where and will not be sent" in err
    assert [(each["reason"], each["count"]) for each in plan["skipped"]] == [
        ("its body could not be decoded", 2)
    ]
    code, done, err = rmq(cluster, capsys, "redrive", "billing", *where, *DO)
    assert (code, done["sent"], done["failed"]) == (6, 2, []), err
    assert [m.body for m in redriven(cluster)] == [b'{"a":1}', b'{"b":1}']
    code, done, err = rmq(cluster, capsys, "redrive", "billing", *where, *DO)
    assert (code, done["sent"]) == (6, 0)
    assert len(redriven(cluster)) == 2


def test_a_redrive_that_goes_on_with_another_expression_says_so(cluster, capsys):
    make_letters(cluster, "billing", "orders", "abc")
    one = ["redrive", "billing", "--where", "body = 'a'"]
    code, done, err = rmq(cluster, capsys, *one, *DO)
    assert (code, done["sent"]) == (0, 1), err
    assert "the last redrive of this log" not in err
    _, _, err = rmq(cluster, capsys, *one)
    assert "the last redrive of this log" not in err
    code, done, err = rmq(cluster, capsys, "redrive", "billing", *DO)
    assert (code, done["sent"]) == (0, 2), err
    assert (
        """the last redrive of this log chose letters with --where "body = 'a'","""
        " this one with no --where" in err
    )
    _, _, err = rmq(cluster, capsys, *one)
    assert "chose letters with no --where, this one with --where" in err


def test_where_chooses_by_the_broker_and_by_what_cannot_be_decoded(cluster, capsys):
    make_letters(cluster, "billing", "orders", ["1", "no JSON"])
    for where, count in (
        ("broker_name = 'broker-a'", 1),
        ("broker_name <> 'broker-a'", 1),
        ("broker_name = 'broker-c'", 0),
        ("decode_error IS NOT NULL", 1),
        ("decode_error IS NULL", 1),
    ):
        do = ["redrive", "billing", "--decode", "json", "--where", where]
        code, plan, err = rmq(cluster, capsys, *do)
        assert code == 0, err
        assert sum(each["count"] for each in plan["targets"]) == count


def test_decode_without_where_chooses_nothing_and_is_refused(cluster, capsys):
    code, _, err = rmq(cluster, capsys, "redrive", "billing", "--decode", "json")
    assert (code, "--decode needs --where" in err) == (2, True)


def test_letters_whose_topic_is_gone_stay_and_are_counted(cluster, capsys):
    cluster.create_topic("old")
    make_letters(cluster, "billing", "orders", ["a"])
    make_letters(cluster, "billing", "old", ["b", "c"])
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.delete_topic("old")
    code, done, err = rmq(cluster, capsys, "redrive", "billing", *DO)
    assert (code, done["sent"]) == (0, 1), err
    (skipped,) = done["skipped"]
    assert (skipped["reason"], skipped["count"]) == ("topic old does not exist", 2)


def test_a_topic_can_be_named(cluster, capsys):
    cluster.create_topic("repair")
    make_letters(cluster, "billing", "orders", "ab")
    do = ["redrive", "billing", "--to", "repair", *DO]
    code, done, err = rmq(cluster, capsys, *do)
    assert (code, done["sent"]) == (0, 2), err
    assert [m.body for m in redriven(cluster, "repair")] == [b"a", b"b"]
    assert redriven(cluster) == []


@pytest.mark.parametrize("topic", ["%DLQ%billing", "%RETRY%billing"])
def test_topics_of_retries_and_dead_letters_cannot_be_named(cluster, capsys, topic):
    make_letters(cluster, "billing", "orders", "a")
    code, _, err = rmq(cluster, capsys, "redrive", "billing", "--to", topic, *DO)
    assert code == 2
    assert "a topic of retries or dead letters" in err


def test_a_retry_reaches_only_this_group_and_names_its_topic(cluster, capsys):
    make_letters(cluster, "billing", "orders", "ab")
    commit(cluster, "%RETRY%billing")
    do = ["redrive", "billing", "--to", "retry", *DO]
    code, done, err = rmq(cluster, capsys, *do)
    assert (code, done["sent"]) == (0, 2), err
    assert redriven(cluster) == []
    retries = redriven(cluster, "%RETRY%billing")
    assert [m.body for m in retries] == [b"a", b"b"]
    assert {m.properties["RETRY_TOPIC"] for m in retries} == {"orders"}


def test_no_retry_is_sent_where_nothing_shows_that_it_is_read(cluster, capsys):
    make_letters(cluster, "billing", "orders", "a")
    do = ["redrive", "billing", "--to", "retry", *DO]
    code, _, err = rmq(cluster, capsys, *do)
    assert code == 7
    assert "has committed nothing in %RETRY%billing" in err


def cluster_of_a_group_with_locks(rmq_cluster_factory):
    """Three letters of billing, which has the lock of a queue and reads retries."""
    from rmqcli.api.calls.client import lock_batch_mq
    from rmqcli.model import MessageQueue

    cluster = rmq_cluster_factory(queues=1)
    cluster.create_topic("orders")
    cluster.create_group("billing")
    make_letters(cluster, "billing", "orders", "abc")
    commit(cluster, "%RETRY%billing")
    with client_of(cluster) as client:
        call = lock_batch_mq("billing", "c", [MessageQueue("orders", "broker-a", 0)])
        client.invoke(cluster.broker().address, call)
    return cluster


def test_a_retry_that_is_made_a_letter_again_stops_the_redrive(
    rmq_cluster_factory, capsys
):
    """From 5.1.1 on brokers do that while the group holds locks of queues."""
    cluster = cluster_of_a_group_with_locks(rmq_cluster_factory)
    do = ["redrive", "billing", "--to", "retry", *DO]
    code, done, err = rmq(cluster, capsys, *do)
    assert code == 7
    assert [each["status"] for each in done["failed"]] == ["DEAD_AGAIN"]
    assert "broker-a stored a letter in %DLQ%billing again" in err
    assert len(stored(cluster, "%DLQ%billing")) == 4


@pytest.mark.parametrize("looked_at", [faults.answer(1, "busy"), faults.answer(0)])
def test_a_retry_that_cannot_be_looked_at_does_not_hide_the_next_one(
    rmq_cluster_factory, capsys, looked_at
):
    """The first retry goes alone, the others together."""
    cluster = cluster_of_a_group_with_locks(rmq_cluster_factory)
    cluster.faults.add(looked_at, code=RequestCode.VIEW_MESSAGE_BY_ID, times=2)
    do = ["redrive", "billing", "--to", "retry", *DO]
    code, done, err = rmq(cluster, capsys, *do)
    assert (code, done["sent"]) == (6, 2)  # not as when nothing was sent
    assert "stopped: broker-a stored a letter in %DLQ%billing again" in err
    assert "use --to origin, or stop the group's consumers" in err
    assert [each["status"] for each in done["failed"]] == ["DEAD_AGAIN"]


def test_a_letter_without_an_answer_is_named_and_sent_by_the_next_run(cluster, capsys):
    make_letters(cluster, "billing", "orders", "a")
    for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
        cluster.faults.add(faults.disconnect(is_handled=True), code=code)
    code, done, err = rmq(cluster, capsys, "redrive", "billing", *DO)
    assert (code, done["sent"]) == (6, 0)
    assert [each["status"] for each in done["failed"]] == ["UNKNOWN"]
    assert "may or may not have been sent" in err
    assert "broker-a:0:0" in err
    cluster.faults.clear()
    code, plan, err = rmq(cluster, capsys, "redrive", "billing")
    assert plan["doubtful"] == ["broker-a:0:0"]
    assert "will be sent again: broker-a:0:0" in err
    code, done, _ = rmq(cluster, capsys, "redrive", "billing", *DO)
    assert (code, done["sent"], done["doubtful_count"]) == (0, 1, 1)
    assert len(redriven(cluster)) == 2


def test_without_a_confirmation_nothing_is_sent(cluster, capsys):
    make_letters(cluster, "billing", "orders", "a")
    code, _, err = rmq(cluster, capsys, "redrive", "billing", "--execute")
    assert code == 7
    assert "not confirmed: nothing was changed" in err
    assert redriven(cluster) == []


def test_two_redrives_at_once_are_refused(cluster, capsys, state):
    from rmqcli.admin.dlq.log import LockedFile

    make_letters(cluster, "billing", "orders", "a")
    rmq(cluster, capsys, "redrive", "billing", *DO)
    (path,) = state.iterdir()
    other = LockedFile(path)
    code, _, err = rmq(cluster, capsys, "redrive", "billing", "--again", *DO)
    other.close()
    assert code == 7
    assert "another redrive is running" in err


def test_a_log_of_another_group_is_refused(cluster, capsys, tmp_path):
    log = tmp_path / "log.jsonl"
    make_letters(cluster, "billing", "orders", "a")
    make_letters(cluster, "audit", "orders", "a")
    rmq(cluster, capsys, "redrive", "billing", "--log", str(log), *DO)
    do = ["redrive", "audit", "--log", str(log), *DO]
    code, _, err = rmq(cluster, capsys, *do)
    assert code == 7
    assert "is the log of group billing, not of audit" in err


def test_letters_are_shown_with_what_another_log_says_of_them(
    cluster, capsys, tmp_path
):
    """Letters that were redriven with --log were shown as never redriven."""
    log = str(tmp_path / "log.jsonl")
    make_letters(cluster, "billing", "orders", "a")
    rmq(cluster, capsys, "redrive", "billing", "--log", log, *DO)
    show = ["show", "billing"]
    code, (row,), err = rmq(cluster, capsys, *show, "--log", log)
    assert (code, row["redriven"]) == (0, "yes"), err
    assert rmq(cluster, capsys, *show)[1][0]["redriven"] is None
    missing = str(tmp_path / "other.jsonl")
    code, _, err = rmq(cluster, capsys, *show, "--log", missing)
    assert code == 2
    assert f"{missing} does not exist" in err
    for more in (["--by", "tag"], ["-o", "raw"]):
        code = run(["dlq", *show, "-n", cluster.namesrv, "--log", log, *more])
        assert (code, "--log" in capsys.readouterr().err) == (2, True)


@pytest.mark.parametrize("like", ["4.6.0", "5.5.0"])
def test_letters_that_cannot_be_pulled_are_not_exported_as_none(
    rmq_cluster_factory, capsys, tmp_path, like
):
    cluster = rmq_cluster_factory(queues=1, like=like)
    cluster.create_topic("orders")
    cluster.create_group("billing")
    make_letters(cluster, "billing", "orders", "ab")
    update = ["topic", "update", "%DLQ%billing", "--perm", "w", "--yes"]
    assert run([*update, "-n", cluster.namesrv]) == 0
    capsys.readouterr()
    folder = tmp_path / "letters"
    do = ["export", "billing", "--to-parquet", str(folder)]
    code, _, err = rmq(cluster, capsys, *do)
    assert code == 1, err
    assert "%DLQ%billing is write-only on broker-a" in err
    assert "make it readable: rmq topic update %DLQ%billing --perm rw" in err
    assert not folder.exists()


def test_where_letters_cannot_be_read_the_error_says_what_helps(
    rmq_cluster_factory, capsys, tmp_path
):
    """A broker of 4.6.0 refuses pulls of dead letters, and hides where they are.

    The command that the hint named failed with 6 on brokers that have no letters.
    """
    cluster = rmq_cluster_factory(brokers=2, queues=1, like="4.6.0")
    cluster.create_topic("orders")
    cluster.create_group("billing")
    make_letters(cluster, "billing", "orders", "a")
    export = ["export", "billing", "--to-jsonl", str(tmp_path / "letters.jsonl")]
    redrive = ["redrive", "billing"]
    for do in (["show", "billing"], export, redrive, [*redrive, *DO]):
        code, _, err = rmq(cluster, capsys, *do)
        assert code == 4, err
        assert "%DLQ%billing is write-only" in err
        assert "make it readable: rmq topic update %DLQ%billing --perm rw" in err
        assert "credentials" not in err
    assert not (tmp_path / "letters.jsonl").exists()
    _, _, err = rmq(cluster, capsys, "show", "billing")
    hint = json.loads(err.splitlines()[-1])["error"]["hint"]
    command = hint.removeprefix("make it readable: rmq ")
    assert command == "topic update %DLQ%billing --perm rw --broker broker-a"
    assert run([*command.split(), "-n", cluster.namesrv]) == 0
    code, done, err = rmq(cluster, capsys, "redrive", "billing", *DO)
    assert (code, done["sent"]) == (0, 1), err


def test_a_group_without_letters_is_not_found(cluster, capsys):
    cluster.create_group("idle")
    code, _, err = rmq(cluster, capsys, "redrive", "idle")
    assert code == 3
    assert "group idle has no dead letters: there is no %DLQ%idle" in err


def test_a_silent_broker_refuses_the_redrive(cluster, capsys):
    make_letters(cluster, "billing", "orders", "abcd")
    cluster.faults.add(faults.disconnect(), broker="broker-b")
    code, _, err = rmq(cluster, capsys, "redrive", "billing", *DO)
    assert code == 7
    assert "1 queue could not be read to the end: nothing was sent" in err
    cluster.faults.clear()
    assert redriven(cluster) == []


def commit(cluster, topic):
    """Commit an offset, as consumers that read the topic do."""
    from rmqcli.api.calls.offset import update_consumer_offset

    with client_of(cluster) as client:
        for broker in cluster.brokers:
            call = update_consumer_offset("billing", topic, 0, commit_offset=0)
            client.invoke(broker.address, call)


def test_a_named_topic_that_does_not_exist_is_not_found(cluster, capsys):
    make_letters(cluster, "billing", "orders", "a")
    code, _, err = rmq(cluster, capsys, "redrive", "billing", "--to", "nowhere", *DO)
    assert code == 3
    assert "topic nowhere does not exist" in err


def test_letters_whose_origin_is_not_recorded_stay(cluster, capsys):
    """Programs can send to the topic, too; such messages have no origin."""
    from rmqcli.testing import Seed

    seed = Seed(body=b"a", properties={"RETRY_TOPIC": "orders"})
    bare = Seed(body=b"b", properties={"region": "eu"})
    cluster.send("%DLQ%billing", [seed, bare])
    code, plan, err = rmq(cluster, capsys, "redrive", "billing")
    assert code == 0, err
    assert plan["targets"] == [{"topic": "orders", "count": 1}]
    assert [each["reason"] for each in plan["skipped"]] == [
        "its origin is not recorded in it"
    ]


def test_letters_of_a_cluster_that_was_wiped_are_not_called_sent(
    rmq_cluster_factory, capsys
):
    """Letters of the same sizes have the same offsets, and places in the log."""

    def filled(cluster):
        cluster.create_topic("orders")
        cluster.create_group("billing")
        make_letters(cluster, "billing", "orders", "abc")
        return cluster

    cluster = filled(rmq_cluster_factory(queues=1))
    code, done, err = rmq(cluster, capsys, "redrive", "billing", *DO)
    assert (code, done["sent"]) == (0, 3), err
    cluster = filled(wiped(cluster, rmq_cluster_factory, queues=1))
    code, done, err = rmq(cluster, capsys, "redrive", "billing", *DO)
    assert (code, done["sent"]) == (0, 3), err
    code, done, err = rmq(cluster, capsys, "redrive", "billing", *DO)
    assert (code, done["sent"]) == (0, 0), err
