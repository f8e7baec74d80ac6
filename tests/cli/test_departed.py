"""A broker that has left the route is missed by each command, not only by `rmq lag`."""

from __future__ import annotations

import json

import pytest

from rmqcli import Admin
from rmqcli.api.calls.offset import update_consumer_offset
from rmqcli.api.client import Client
from rmqcli.cli.main import run
from rmqcli.cli.top.topics import TopicQueuesView
from rmqcli.config import ClientConfig
from rmqcli.errors import NotFoundError, PartialError

GONE = "it is no longer in the route"


@pytest.fixture
def cluster(rmq_cluster_factory, tmp_path, monkeypatch):
    """What is left of two brokers, of which an earlier `Admin.lag` knew both.

    Group billing had read topics orders, on both, and alone, on the broker that left.
    """
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    cluster = rmq_cluster_factory(brokers=2, queues=1)
    for topic in ("orders", "%RETRY%billing", "%DLQ%billing"):
        cluster.create_topic(topic, queues=1)
        for broker in cluster.brokers:
            cluster.send(topic, ["x"], broker=broker.name)
    cluster.send("alone", ["x"], broker="broker-b", queue_id=0)
    cluster.create_group("billing")
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        for name, topic in (
            ("broker-a", "orders"),
            ("broker-b", "orders"),
            ("broker-b", "alone"),
        ):
            call = update_consumer_offset("billing", topic, 0, commit_offset=0)
            client.invoke(cluster.broker(name).address, call)
    with Admin(namesrv=cluster.namesrv) as admin:
        assert admin.lag("billing").total_lag is not None
    cluster.broker("broker-b").kill()
    return cluster


@pytest.fixture
def rmq(cluster, capsys):
    def call(*words):
        capsys.readouterr()
        code = run([*words, "-n", cluster.namesrv])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_a_list_of_producers_does_not_have_those_of_the_broker(rmq):
    """It did not say so."""
    code, _, err = rmq("producers")
    assert code == 0
    assert "warning: broker-b is no longer in the route (last seen " in err
    assert "what was only there is not listed" in err


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (
            "topic show orders",
            "topic orders: normal, at least 1 queue, at least 1 message",
        ),
        ("group show billing", "topics: orders"),
        ("group members billing", ""),
        ("dlq show billing", "broker-a:0:0"),
        ("retry show billing", "%RETRY%billing@broker-a:0"),
        ("delayed orders", "orders: at least 0 delayed messages"),
        ("transactions orders", ""),
        ("producers orders", ""),
        ("bench produce orders --count 5", "ended by count"),
    ],
)
def test_it_is_named_and_the_rest_is_called_partial(rmq, words, shown):
    code, out, err = rmq(*words.split())
    assert code == 6
    assert shown in out
    assert "no open transactions" not in out
    assert "broker-b" in err
    assert GONE in err
    assert "hint: if it was removed for good: rmq lag --forget" in err
    assert rmq("lag", "--forget")[0] == 0
    if words == "group members billing":  # which never had a member
        return
    assert rmq(*words.split())[0] == 0


@pytest.mark.parametrize(
    ("words", "kind"), [("topic show alone", "topic"), ("tail alone --for 1s", "topic")]
)
def test_a_topic_that_only_it_had_is_not_said_not_to_exist(rmq, words, kind):
    code, _, err = rmq(*words.split())
    assert code == 6
    assert err.startswith(
        f"error: {kind} alone is on no broker that is left, and was on broker-b, which"
        " is no longer in the route (last seen "
    )
    code, _, err = rmq("topic", "show", "never")
    assert (code, err.splitlines()[0]) == (3, "error: topic never does not exist")


def test_a_sample_of_topics_has_no_number_of_those_that_it_had(rmq):
    code, out, err = rmq("topics", "--sample", "10ms", "-o", "jsonl")
    (orders,) = [json.loads(line) for line in out.splitlines()]
    assert (code, orders["rate_in"], orders["messages"]) == (6, None, None)
    assert orders["reason"] == f"broker-b: {GONE}"
    assert "warning: broker-b is no longer in the route (last seen " in err
    assert f"not all numbers of 1 topic are known: broker-b: {GONE}" in err


def test_a_program_sees_what_the_commands_say(cluster):
    """Lists were those of the brokers that are left, without a trace."""
    with Admin(namesrv=cluster.namesrv) as admin:
        for errors in (
            admin.topics().untold,
            admin.groups().untold,
            admin.producers().untold,
            admin.producers(group="shop").untold,
            admin.producers("orders").errors,
            admin.topic("orders").errors,
        ):
            assert {name: str(error) for name, error in errors.items()} == {
                "broker-b": GONE
            }


@pytest.mark.parametrize(
    ("call", "shown"),
    [
        (
            lambda admin: admin.topic("alone"),
            "topic alone is on no broker that is left",
        ),
        (
            lambda admin: list(admin.read("alone")),
            "topic alone is on no broker that is left",
        ),
        (lambda admin: admin.broker("broker-b"), "broker broker-b is no longer in"),
        (
            lambda admin: admin.find_messages("orders@broker-b:0:0"),
            "broker broker-b is no longer in",
        ),
    ],
)
def test_a_program_is_not_told_that_what_it_had_does_not_exist(cluster, call, shown):
    """It was told NotFoundError, as for a name that never was."""
    with Admin(namesrv=cluster.namesrv) as admin:
        with pytest.raises(PartialError, match=shown):
            call(admin)
        with pytest.raises(NotFoundError):
            admin.topic("never")


@pytest.mark.slow
def test_an_assistant_sees_it_beside_lists(cluster):
    pytest.importorskip("mcp")
    from rmqcli.mcp import tools
    from rmqcli.mcp.redact import Redaction

    config = ClientConfig(namesrv=(cluster.namesrv,))
    box = tools.Toolbox(config, Redaction(), lambda _: ("", ""))
    for tool in tools.TOOLS:
        if tool.name in ("topics", "groups"):
            assert tool.run(box, tool.arguments()).unanswered == {"broker-b": GONE}


def test_dead_letters_that_only_it_may_have_are_not_said_to_be_none(rmq, cluster):
    assert rmq("topic", "delete", "%DLQ%billing", "--yes")[0] == 6
    code, _, err = rmq("dlq", "show", "billing")
    assert code == 6
    assert err.startswith(
        "error: group billing has no dead letters on the brokers that are left:"
        " broker-b is no longer in the route, and may have some\n"
    )
    assert rmq("dlq", "show", "audit")[0] == 3


def test_the_plan_of_a_copy_counts_only_the_queues_that_are_left(
    rmq, rmq_cluster_factory, tmp_path
):
    target = rmq_cluster_factory()
    target.create_topic("dst", queues=1)
    words = ("copy", "orders", "dst", "--to-namesrv", target.namesrv)
    code, _, err = rmq(*words, "--log", str(tmp_path / "log"))
    assert code == 6
    assert f"warning: orders@broker-b:0: {GONE}\n" in err
    assert (
        "\n1 queue to 1 queue: each to the one with the same index, in order\n" in err
    )


def test_a_deleted_topic_comes_back_with_the_broker(cluster, rmq):
    code, out, _ = rmq("topic", "delete", "orders", "--yes", "-o", "json")
    assert code == 6
    steps = json.loads(out)
    assert [(each["server"], each["result"], each["error"]) for each in steps] == [
        ("broker-a", "deleted", None),
        (cluster.namesrv, "deleted", None),
        ("broker-b", "failed", GONE),
    ]


@pytest.mark.parametrize(
    "words",
    [
        "group create other",
        "group update billing --max-retries 3",
        "group pause billing --yes",
        "group resume billing",
        "group delete billing --remove-offsets --yes",
        "topic create other --queues 1",
        "topic update orders --queues 2",
        "topic permission orders r --yes",
        "topic attributes orders +message.type=NORMAL --yes",
    ],
)
def test_a_change_is_made_on_the_others_and_called_partial(rmq, words):
    code, out, err = rmq(*words.split(), "-o", "json")
    assert code == 6, err
    steps = [(s["server"], s["result"], s["error"]) for s in json.loads(out)]
    done = "unchanged" if "resume" in words else "changed"
    done = {"create": "created", "delete": "deleted"}.get(words.split()[1], done)
    assert steps == [("broker-a", done, None), ("broker-b", "failed", GONE)]
    assert "if it was removed for good: rmq lag --forget" in err


@pytest.mark.parametrize(
    "words",
    [
        "group update billing --max-retries 3",
        "group pause billing --yes",
        "topic update orders --queues 2",
        "topic permission orders r --yes",
    ],
)
def test_a_change_of_the_brokers_that_are_named_is_whole(rmq, words):
    code, out, err = rmq(*words.split(), "--broker", "broker-a", "-o", "json")
    assert code == 0, err
    assert [s["server"] for s in json.loads(out)] == ["broker-a"]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("group update nope --max-retries 3", "group nope does not exist"),
        ("group pause nope --yes", "group nope does not exist"),
        ("topic update nope --queues 2", "topic nope does not exist"),
        ("topic permission nope r --yes", "topic nope does not exist"),
    ],
)
def test_a_mistyped_name_is_not_found_on_what_is_left(rmq, words, error):
    code, _, err = rmq(*words.split())
    assert (code, err.splitlines()[0]) == (3, f"error: {error}")


def test_a_change_by_the_library_is_partial(cluster):
    with Admin(namesrv=cluster.namesrv) as admin:
        for change in (
            lambda: admin.create_group("other"),
            lambda: admin.pause_group("billing"),
            lambda: admin.update_topic("orders", queue_nums=2),
        ):
            with pytest.raises(PartialError, match=f"broker-b: {GONE}"):
                change()
        assert admin.group("other").configs.keys() == {"broker-a"}


def results(out):
    return [
        (f"{q['topic']}@{q['broker_name']}", q["target"], q["result"], q["warnings"])
        for q in json.loads(out)["queues"]
    ]


def test_a_reset_moves_the_others_and_names_the_queues_that_are_not_moved(rmq):
    words = ("reset-offset", "billing", "orders", "--to", "latest")
    code, out, err = rmq(*words, "-o", "json")
    assert code == 6
    assert results(out) == [
        ("orders@broker-a", 1, None, []),
        ("orders@broker-b", None, "UNKNOWN", [GONE]),
    ]
    said = (
        "warning: 1 queue is not moved on broker-b: it is no longer in the route; if it"
        " was removed for good: rmq lag --forget\n"
    )
    assert said in err
    code, out, err = rmq(*words, "--execute", "--yes", "-o", "json")
    assert code == 6
    assert results(out) == [
        ("orders@broker-a", 1, "CONFIRMED", []),
        ("orders@broker-b", None, "NOT_ATTEMPTED", [GONE]),
    ]
    assert said in err
    assert f"warning: {GONE}" not in err
    assert "2 queues: 1 CONFIRMED, 1 NOT_ATTEMPTED" in err
    code, _, err = rmq(*words, "--execute", "--yes")
    assert code == 6
    assert "nothing to do: every queue that is left is already at its target" in err
    code, _, err = rmq(*words, "--queue", "broker-a:0", "--execute", "--yes")
    assert (code, "broker-b" in err) == (0, False)


def test_a_reset_of_only_its_queues_does_not_suggest_another_queue(rmq):
    words = ("reset-offset", "billing", "orders", "--to", "latest")
    code, out, err = rmq(*words, "--queue", "broker-b:0")
    assert (code, out) == (6, "")
    assert err.startswith(
        "error: broker broker-b is no longer in the route (last seen "
    )
    assert "did you mean" not in err
    code, _, err = rmq(*words, "--queue", "broker-b:7")
    assert code == 3


def test_an_undo_restores_the_queues_that_are_left(rmq, cluster):
    cluster.broker("broker-b").restart()
    words = ("reset-offset", "billing", "orders")
    code, _, err = rmq(*words, "--to", "latest", "--execute", "--yes")
    assert code == 0, err
    cluster.broker("broker-b").kill()
    code, out, err = rmq(*words, "--undo", "--execute", "--yes", "-o", "json")
    assert code == 6, err
    assert results(out) == [
        ("orders@broker-a", 0, "CONFIRMED", []),
        ("orders@broker-b", None, "NOT_ATTEMPTED", [GONE]),
    ]


def test_a_plan_without_them_is_written_to_no_file(rmq, tmp_path):
    file = tmp_path / "plan.json"
    words = ("reset-offset", "billing", "orders", "--to", "latest", "--out", str(file))
    code, _, err = rmq(*words)
    assert code == 6
    assert f"warning: {file} was not written: the plan is incomplete" in err
    assert not file.exists()


def test_a_reset_by_the_library_is_not_complete(cluster, tmp_path):
    with Admin(namesrv=cluster.namesrv, backups=tmp_path) as admin:
        planned = admin.plan_reset("billing", "orders", to="latest")
        assert [(str(q), e.message) for q, e in planned.plan.departed.items()] == [
            ("orders@broker-b:0", GONE)
        ]
        result = admin.apply_reset(planned)
    assert not result.is_complete
    assert [each.message for each in result.errors] == [GONE]
    assert {str(q): o.result.value for q, o in result.outcomes.items()} == {
        "orders@broker-a:0": "CONFIRMED",
        "orders@broker-b:0": "NOT_ATTEMPTED",
    }


def test_on_the_screen_of_a_topic_the_lag_of_its_group_is_unknown(cluster):
    view = TopicQueuesView("orders")
    view.next_part()
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        view.take(view.read(client))
    assert view.notes() == [f"broker-b: {GONE}"]
    (row,) = view.rows()
    assert (row["group"], row["total_lag"], row["state"]) == (
        "billing",
        None,
        "UNKNOWN",
    )
    assert [(each["known_lag"], each["queues"]) for each in row["topics"]] == [(1, 2)]
