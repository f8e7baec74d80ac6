"""`rmq topic create` changes no topic; `topic update` does, and says what is lost."""

from __future__ import annotations

import json

import pytest

from rmqcli import Admin
from rmqcli.cli.main import run
from rmqcli.cli.topics import parse_attribute
from rmqcli.errors import RefusedError, UsageError
from rmqcli.testing import faults
from rmqcli.wire.codes import RequestCode
from tests.kit.terminal import typed


@pytest.fixture
def rmq(rmq_cluster, capsys):
    rmq_cluster.create_topic("T", queues=4)
    for queue_id in range(4):
        rmq_cluster.send("T", ["x"] * (queue_id + 1), queue_id=queue_id)
    capsys.readouterr()

    def run_it(*arguments):
        code = run([*arguments, "-n", rmq_cluster.namesrv, "-o", "json"])
        out, err = capsys.readouterr()
        rows = json.loads(out) if out else []
        return code, [(row["server"], row["result"]) for row in rows], err

    return run_it


def queues_of(cluster):
    config = cluster.broker().state.topics.get("T")
    return config.read_queue_nums, config.write_queue_nums


@pytest.mark.parametrize(
    ("words", "said", "other"),
    [
        (["--queues", "8"], "4 queues, not 8", "--queues 8"),
        (["--queues", "2"], "4 queues, not 2", "--queues 2"),
        (["--queues", "4", "--perm", "r"], "permissions rw, not r", "--perm r"),
        (["--order"], "not ordered", "--order"),
        (
            ["--queues", "2", "--attribute", "+message.type=FIFO"],
            "4 queues, not 2, message.type not set, not FIFO",
            "--queues 2 --attribute +message.type=FIFO",
        ),
    ],
)
def test_create_does_not_change_an_existing_topic(rmq, rmq_cluster, words, said, other):
    """The hint names every setting that differs; without one it changes nothing."""
    code, rows, err = rmq("topic", "create", "T", *words)
    assert (code, rows) == (7, [("broker-a", "failed")])
    assert f"topic T exists on broker-a with other settings: {said}" in err
    assert f'"change them with: rmq topic update T {other}"' in err
    assert queues_of(rmq_cluster) == (4, 4)


def test_a_topic_that_no_broker_creates_is_one_sentence_for_each(
    rmq_cluster_factory, capsys
):
    """It was in a table, and then once more as the error."""
    cluster = rmq_cluster_factory(brokers=2)
    cluster.create_topic("T", queues=4)
    code = run(["topic", "create", "T", "--queues", "8", "-n", cluster.namesrv])
    out, err = capsys.readouterr()
    assert (code, out) == (7, "")
    assert err == (
        "warning: topic T exists on broker-b with other settings: 4 queues, not 8\n"
        "error: topic T exists on broker-a with other settings: 4 queues, not 8\n"
        "hint: change them with: rmq topic update T --queues 8\n"
    )


@pytest.mark.parametrize("words", [[], ["--queues", "4"], ["--perm", "rw"]])
def test_create_of_an_equal_topic_is_a_success_that_says_so(rmq, words):
    code, rows, err = rmq("topic", "create", "T", *words)
    assert (code, rows) == (0, [("broker-a", "unchanged")])
    assert "topic T exists already" in err


@pytest.mark.slow
def test_create_says_when_name_servers_do_not_list_the_topic_in_time(rmq, rmq_cluster):
    rmq_cluster.faults.add(
        faults.answer(17, "No topic route info"), code=105, topic="fresh"
    )
    code, rows, err = rmq("topic", "create", "fresh", "--timeout", "3s")
    assert (code, rows) == (0, [("broker-a", "created")])
    assert "no name server lists the topic on all of these brokers yet" in err


def test_update_changes_what_is_given(rmq, rmq_cluster):
    assert rmq("topic", "update", "T", "--queues", "8")[:2] == (
        0,
        [("broker-a", "changed")],
    )
    assert queues_of(rmq_cluster) == (8, 8)
    assert rmq("topic", "update", "T", "--queues", "8")[1] == [
        ("broker-a", "unchanged")
    ]


def test_update_that_takes_a_permission_must_be_confirmed(rmq, rmq_cluster):
    code, rows, err = rmq("topic", "update", "T", "--perm", "r")
    assert (code, rows) == (7, [])
    assert "producers can no longer send to T" in err
    code, rows, _ = rmq("topic", "update", "T", "--perm", "r", "--yes")
    assert (code, rows) == (0, [("broker-a", "changed")])
    assert rmq("topic", "update", "T", "--perm", "rw")[0] == 0


def test_update_with_fewer_queues_says_which_messages_are_lost(rmq, rmq_cluster):
    code, rows, err = rmq("topic", "update", "T", "--queues", "2")
    assert (code, rows) == (7, [])
    said = "consumers can no longer read queues 2 to 3 of broker-a, with 7 messages"
    assert f"warning: {said}" in err
    assert "not confirmed: nothing was changed" in err
    assert queues_of(rmq_cluster) == (4, 4)
    code, rows, err = rmq("topic", "update", "T", "--queues", "3", "--yes")
    assert (code, rows) == (0, [("broker-a", "changed")])
    assert "queue 3 of broker-a, with 4 messages" in err
    assert queues_of(rmq_cluster) == (3, 3)


@pytest.mark.parametrize(
    ("words", "warnings", "what"),
    [
        (
            ["--queues", "3"],
            ["consumers can no longer read queue 3 of broker-a, with 4 messages"],
            "queues",
        ),
        (["--perm", "w"], ["consumers can no longer read T"], "permissions"),
        (
            ["--queues", "3", "--perm", "r"],
            [
                "consumers can no longer read queue 3 of broker-a, with 4 messages",
                "producers can no longer send to T",
            ],
            "queues and permissions",
        ),
    ],
)
def test_the_question_names_what_is_removed(rmq, words, warnings, what):
    with typed("no\n"):
        code, rows, err = rmq("topic", "update", "T", *words)
    assert (code, rows) == (7, [])
    asked = f"This removes {what} of topic T. [y/N] "
    start = "".join(f"warning: {warning}\n" for warning in warnings)
    assert err.startswith(f"{start}{asked}")
    assert '"not confirmed: nothing was changed"' in err
    with typed("y\n"):
        assert rmq("topic", "update", "T", *words)[0] == 0


def test_a_deletion_asks_for_the_name_of_the_topic(rmq, rmq_cluster):
    for answer, code in (("y", 7), ("T", 0)):
        with typed(f"{answer}\n"):
            found, _, err = rmq("topic", "delete", "T")
        assert found == code
        assert err.startswith(
            "This deletes topic T and its messages on broker-a.\nType T to confirm: "
        )
    assert rmq_cluster.broker().state.topics.get("T") is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["update", "T"],
            "error: nothing to change\nhint: see: rmq topic update --help\n",
        ),
        (
            ["create", "T", "--attribute", "FIFO"],
            (
                "error: --attribute: 'FIFO' is not +NAME=VALUE\n"
                "hint: for example +message.type=FIFO\n"
            ),
        ),
        (
            ["create", "T", "--perm", "x"],
            "error: --perm: 'x' is not one of rw, r, w\n",
        ),
    ],
)
def test_what_cannot_be_changed_is_said_before_any_broker_is_asked(capsys, words, said):
    assert run(["topic", *words, "-n", "127.0.0.1:1"]) == 2
    assert capsys.readouterr() == ("", said)


@pytest.mark.parametrize("text", ["name", "name=", "=value", "+", "a=b,c=d"])
def test_an_attribute_is_a_name_and_a_value(text):
    with pytest.raises(UsageError, match=r"is not \+NAME=VALUE"):
        parse_attribute(text)
    assert parse_attribute("+a=b=c") == parse_attribute("a=b=c") == ("a", "b=c")


@pytest.mark.parametrize(
    "words",
    [
        ["topic", "update", "orders", "--queues", "1"],
        ["topic", "update", "orders", "--perm", "r"],
        ["topic", "permission", "orders", "r", "--yes"],
    ],
)
def test_a_broker_whose_settings_were_not_read_is_left_alone(
    rmq_cluster_factory, capsys, words
):
    """It was asked again, and then lost what nothing had said it would lose."""
    cluster = rmq_cluster_factory(brokers=2)
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.create_topic("orders", queue_nums=1, perm=4, brokers=["broker-a"])
        admin.create_topic("orders", queue_nums=4, brokers=["broker-b"])
    cluster.send("orders", ["x"] * 8)
    code = RequestCode.GET_TOPIC_CONFIG
    cluster.faults.add(faults.answer(2, "busy"), code=code, broker="broker-b", times=1)
    run([*words, "-n", cluster.namesrv])
    out, err = capsys.readouterr()
    assert "busy" in out + err
    has = cluster.broker("broker-b").state.topics.get("orders")
    assert (has.read_queue_nums, has.perm) == (4, 6)


def test_update_that_loses_no_message_needs_no_confirmation(rmq, rmq_cluster):
    rmq("topic", "update", "T", "--queues", "6")
    code, rows, err = rmq("topic", "update", "T", "--queues", "4")
    assert (code, rows) == (0, [("broker-a", "changed")])
    assert "warning" not in err


def test_update_makes_a_topic_ordered_and_ends_that(rmq, rmq_cluster):
    """Only a program could end it: there was no --no-order."""
    for flag, is_ordered in (("--order", True), ("--no-order", False)):
        code, rows, _ = rmq("topic", "update", "T", flag)
        assert code == 0
        assert ("broker-a", "changed") in rows
        assert rmq_cluster.broker().state.topics.get("T").order is is_ordered


def test_update_of_a_missing_topic_creates_none(rmq):
    code, _, err = rmq("topic", "update", "nothing", "--queues", "4")
    assert code == 3
    assert "topic nothing does not exist" in err
    assert rmq("topic", "show", "nothing")[0] == 3


def test_the_library_refuses_to_lose_messages_without_force(rmq, rmq_cluster):
    with Admin(namesrv=rmq_cluster.namesrv) as admin:
        with pytest.raises(RefusedError, match="queues 2 to 3 of broker-a, with 7"):
            admin.update_topic("T", queue_nums=2)
        assert queues_of(rmq_cluster) == (4, 4)
        (step,) = admin.update_topic("T", queue_nums=2, force=True)
    assert step.result == "changed"
    assert queues_of(rmq_cluster) == (2, 2)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["update", "T", "--attribute", "+colour=red"],
            "broker-a, which runs RocketMQ 5.5.0, does not know the attribute colour",
        ),
        (
            ["create", "N", "--attribute", "+message.type=RED"],
            "broker-a does not accept message.type=RED: value is not in set: ",
        ),
        (
            ["update", "T", "--attribute", "+queue.type=BatchCQ"],
            "broker-a does not allow changes of the attribute queue.type",
        ),
    ],
)
def test_a_refused_attribute_is_named_with_the_broker(rmq, words, said):
    code, rows, err = rmq("topic", *words)
    assert (code, rows) == (1, [("broker-a", "failed")])
    assert said in err
    assert "SYSTEM_ERROR" not in err


def test_only_the_help_of_create_names_what_a_new_topic_has(rmq, capsys):
    for command, is_named in (("create", True), ("update", False)):
        run(["topic", command, "--help"])
        assert ("(default: 8)" in capsys.readouterr().out) == is_named
