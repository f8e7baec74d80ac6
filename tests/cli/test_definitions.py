"""`rmq definitions` exports, compares and applies, and nothing is lost in silence."""

from __future__ import annotations

import json
import re
import sys
from contextlib import redirect_stdout

import pytest

from rmqcli import Admin, Consumer
from rmqcli.admin.definitions.model import parse_definitions
from rmqcli.cli.main import run
from rmqcli.errors import PartialError, RefusedError
from rmqcli.testing import faults
from rmqcli.wire.codes import RequestCode
from tests.kit import raw
from tests.kit.terminal import Terminal, typed

FIFO = {"message.type": "FIFO"}


@pytest.fixture
def clusters(rmq_cluster_factory):
    """A cluster with definitions, and an empty one."""
    source = rmq_cluster_factory(brokers=2)
    source.create_topic("orders", queues=4, order=True)
    source.create_topic("steps", queues=1, attributes=FIFO)
    source.create_group("billing", retry_max_times=3)
    source.create_topic("%RETRY%billing", queues=1)
    return source, rmq_cluster_factory(brokers=2)


@pytest.fixture
def rmq(capsys):
    def run_it(cluster, *words):
        code = run(["definitions", *map(str, words), "-n", cluster.namesrv])
        out, err = capsys.readouterr()
        return code, out, err

    return run_it


def write(path, topics=(), groups=()):
    data = {"format": "rmq-definitions", "format_version": 1}
    path.write_text(json.dumps({**data, "topics": topics, "groups": groups}))
    return path


def test_on_a_narrow_terminal_a_difference_shows_its_settings(
    rmq_cluster_factory, monkeypatch, tmp_path
):
    cluster = rmq_cluster_factory()
    cluster.create_topic("orders", queues=6)
    changed = {"name": "orders", "read_queue_nums": 4, "write_queue_nums": 4}
    file = write(tmp_path / "d.json", topics=[changed])
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    screen = Terminal()
    with redirect_stdout(screen):
        code = run(["definitions", "diff", str(file), "-n", cluster.namesrv])
    assert code == 1
    assert "SETTINGS" in screen.getvalue().splitlines()[0]
    assert "hidden" not in screen.getvalue()
    assert "read_queue_nums 6 -> 4" in screen.getvalue()


def test_what_was_exported_can_be_applied_to_another_cluster(rmq, clusters, tmp_path):
    source, target = clusters
    file = tmp_path / "d.json"
    assert rmq(source, "export", "--out", file) == (
        0,
        "",
        f"wrote {file}: 2 topics and 1 group of cluster DefaultCluster\n",
    )
    assert rmq(source, "diff", file)[0] == 0
    code, out, _ = rmq(target, "diff", file, "-o", "jsonl")
    assert code == 1
    assert [
        (row["change"], row["kind"], row["name"], row["brokers"])
        for row in map(json.loads, out.splitlines())
    ] == [
        ("create", "topic", "orders", ["broker-a", "broker-b"]),
        ("create", "topic", "steps", ["broker-a", "broker-b"]),
        ("create", "group", "billing", ["broker-a", "broker-b"]),
    ]
    code, out, err = rmq(target, "apply", file, "--yes", "-o", "jsonl")
    assert code == 0
    assert [json.loads(line)["result"] for line in out.splitlines()] == ["created"] * 3
    assert "create topic steps on broker-a, broker-b: read_queue_nums 1;" in err
    state = target.broker("broker-b").state
    assert state.topics.get("steps").attributes == FIFO
    assert state.topics.get("orders").order
    fields = {"namespace": "ORDER_TOPIC_CONFIG", "key": "orders"}
    fixed = raw.ask(target.namesrv, 101, fields).ext_fields["value"]
    assert fixed == "broker-a:4;broker-b:4"
    assert state.groups.get("billing").retry_max_times == 3
    code, out, err = rmq(target, "apply", file)
    assert (code, out) == (0, "")
    assert err == f"nothing to do: cluster DefaultCluster is as {file} says\n"
    assert rmq(target, "export")[1] == file.read_text()


def test_what_was_written_is_counted_by_kind(rmq, clusters, tmp_path):
    source, target = clusters
    out = tmp_path / "d.json"
    wrote = f"wrote {out}: %s of cluster DefaultCluster\n"
    topics = rmq(source, "export", "--out", out, "--only", "topics")
    assert topics == (0, "", wrote % "2 topics")
    assert rmq(target, "export", "--out", out) == (0, "", wrote % "no definitions")


def test_the_plan_must_be_confirmed(rmq, clusters, tmp_path):
    source, target = clusters
    file = tmp_path / "d.json"
    rmq(source, "export", "--out", file)
    code, out, err = rmq(target, "apply", file)
    assert (code, out) == (7, "")
    assert "create group billing on broker-a, broker-b: retry_max_times 3" in err
    assert "not confirmed: nothing was changed" in err
    assert target.broker().state.topics.get("orders") is None


def test_a_plan_is_a_table_and_its_question_counts_it(rmq, clusters, tmp_path):
    source, _ = clusters
    three = {"read_queue_nums": 3, "write_queue_nums": 3}
    file = write(
        tmp_path / "d.json",
        [{"name": "steps", **three}, {"name": "fresh", "attributes": FIFO}],
        [{"name": "audit", "retry_max_times": 5}],
    )
    table = """\
CHANGE  KIND   NAME     BROKERS            SETTINGS                            REASON
create  topic  fresh    broker-a,broker-b  attributes {"message.type":"FIFO"}  -
create  group  audit    broker-a,broker-b  retry_max_times 5                   -
change  topic  steps    broker-a,broker-b  read_queue_nums 1 -> 3; \
write_queue_nums 1 -> 3  -
extra   topic  orders   broker-a,broker-b  -                                   -
extra   group  billing  broker-a,broker-b  -                                   -
"""
    code, out, err = rmq(source, "diff", file)
    assert (code, err) == (1, "")
    assert [re.split(" {2,}", line) for line in out.splitlines()] == [
        re.split(" {2,}", line) for line in table.splitlines()
    ]
    plan = """\
create topic fresh on broker-a, broker-b: attributes {"message.type":"FIFO"}
create group audit on broker-a, broker-b: retry_max_times 5
change topic steps on broker-a, broker-b: read_queue_nums 1 -> 3; \
write_queue_nums 1 -> 3
not in the file: 1 topic and 1 group; --prune deletes what is not in it
"""
    question = (
        "This creates 1 topic and 1 group, changes 1 topic in cluster DefaultCluster."
    )
    with typed("no\n"):
        refused = rmq(source, "apply", file)
    said = "error: not confirmed: nothing was changed\n"
    assert refused == (7, "", f"{plan}{question} [y/N] {said}")
    with typed("y\n"):
        assert rmq(source, "apply", file) == (
            0,
            """\
RESULT   KIND   NAME   BROKERS            ERROR
created  topic  fresh  broker-a,broker-b  -
created  group  audit  broker-a,broker-b  -
changed  topic  steps  broker-a,broker-b  -
""",
            f"{plan}{question} [y/N] ",
        )


def test_a_plan_of_many_changes_shows_fifty_of_them(rmq, clusters, tmp_path):
    _, target = clusters
    file = write(tmp_path / "d.json", [{"name": f"t{n:02}"} for n in range(60)])
    code, _, err = rmq(target, "apply", file)
    lines = err.splitlines()
    assert code == 7
    assert lines[49:51] == [
        "create topic t49 on broker-a, broker-b",
        "and 10 more; rmq definitions diff shows all",
    ]
    file = write(tmp_path / "d.json", [{"name": f"t{n:02}"} for n in range(50)])
    _, _, err = rmq(target, "apply", file)
    assert "more; rmq definitions diff" not in err


def test_a_plan_shows_every_deletion(rmq, clusters, tmp_path):
    source, _ = clusters
    for number in range(53):
        source.create_topic(f"old{number:02}", queues=1)
    file = write(tmp_path / "d.json", [{"name": "steps"}, {"name": "orders"}])
    with typed("no\n"):
        code, _, err = rmq(source, "apply", file, "--prune")
    assert code == 7
    assert err.count("delete topic old") == 53
    assert "delete group billing on broker-a, broker-b (with its offsets)\n" in err
    assert err.endswith(
        "This deletes 53 topics and 1 group in cluster DefaultCluster.\n"
        "Type DefaultCluster to confirm: error: not confirmed: 'DefaultCluster' was"
        " not typed, nothing was changed\n"
    )


def test_changes_keep_what_the_file_does_not_name(rmq, clusters, tmp_path):
    source, _ = clusters
    file = write(tmp_path / "d.json", [{"name": "orders", "perm": "r"}])
    code, _, err = rmq(source, "apply", file, "--yes")
    assert code == 0
    assert 'change topic orders on broker-a, broker-b: perm "rw" -> "r"' in err
    assert "not in the file: 1 topic and 1 group; --prune deletes" in err
    config = source.broker().state.topics.get("orders")
    assert (config.perm, config.read_queue_nums, config.order) == (4, 4, True)
    assert source.broker().state.topics.get("steps") is not None
    write(file, [{"name": "orders", "perm": "rw"}])
    _, _, err = rmq(source, "apply", file, "--yes")
    assert 'change topic orders on broker-a, broker-b: perm "r" -> "rw"\n' in err


def test_an_attribute_that_the_file_no_longer_has_is_removed(rmq, clusters, tmp_path):
    source, _ = clusters
    file = write(tmp_path / "d.json", [{"name": "steps", "attributes": {}}])
    assert rmq(source, "apply", file, "--yes")[0] == 0
    assert source.broker().state.topics.get("steps").attributes == {}


def test_prune_says_what_is_lost_and_deletes_it(rmq, clusters, tmp_path):
    source, _ = clusters
    source.send("orders", ["x", "y"])
    file = write(tmp_path / "d.json", [{"name": "steps"}])
    code, _, err = rmq(source, "apply", file, "--prune")
    assert code == 7
    assert "delete topic orders on broker-a, broker-b (with 2 messages)\n" in err
    assert "delete group billing on broker-a, broker-b (with its offsets)\n" in err
    assert source.broker().state.topics.get("orders") is not None
    assert rmq(source, "apply", file, "--prune", "--yes")[0] == 0
    assert source.broker().state.topics.get("orders") is None
    assert source.broker().state.groups.get("billing") is None
    assert source.broker().state.topics.get("%RETRY%billing") is not None
    with Admin(namesrv=source.namesrv) as admin:
        assert [each.topic for each in admin.topics().topics if each.kind == "normal"]


def test_fewer_queues_say_which_messages_are_lost(rmq, clusters, tmp_path):
    source, _ = clusters
    source.send("orders", ["x", "y"], queue_id=3)
    file = write(
        tmp_path / "d.json",
        [{"name": "orders", "read_queue_nums": 3, "write_queue_nums": 3}],
    )
    _, _, err = rmq(source, "apply", file)
    said = "queue 3 of broker-a, with 1 message; queue 3 of broker-b, with 1 message"
    assert f"(consumers can no longer read {said})" in err


def test_one_refused_entry_of_a_list_does_not_stop_the_others(rmq, clusters, tmp_path):
    _, target = clusters
    file = write(
        tmp_path / "d.json",
        [
            {"name": "bad", "attributes": {"message.type": "NONE"}},
            {"name": "good"},
        ],
    )
    code, out, err = rmq(target, "apply", file, "--yes", "-o", "jsonl")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 6
    assert [(row["result"], row["name"]) for row in rows] == [
        ("failed", "bad"),
        ("failed", "bad"),
        ("created", "good"),
    ]
    assert "value is not in set: NONE" in rows[0]["error"]
    *_, error = err.splitlines()
    said = json.loads(error)["error"]
    assert said["message"].startswith("2 of 3 changes failed: topic bad: ")
    assert said["hint"] == "run the same command again to finish"


def test_what_an_older_version_cannot_have_is_named(rmq, clusters, tmp_path, capsys):
    source, _ = clusters
    from rmqcli.broker.cluster.embedded import EmbeddedCluster

    file = tmp_path / "d.json"
    rmq(source, "export", "--out", file)
    reason = "attributes: needs RocketMQ 5.0.0, and the broker has 4.6.0"
    with EmbeddedCluster(brokers=2, like="4.6.0") as old:
        code, out, err = rmq(old, "apply", file, "--yes", "-o", "jsonl")
        rows = [json.loads(line) for line in out.splitlines()]
        assert code == 6
        assert [(row["result"], row["name"], row["error"]) for row in rows] == [
            ("skipped", "steps", reason),
            ("created", "orders", None),
            ("created", "steps", None),
            ("created", "billing", None),
        ]
        error = json.loads(err.splitlines()[-1])["error"]
        assert error["message"] == f"1 change not possible: topic steps: {reason}"
        code, out, _ = rmq(old, "diff", file, "-o", "jsonl")
        assert (code, json.loads(out)["reason"]) == (1, reason)


def test_a_broker_that_refuses_is_a_failure_of_its_own(rmq, clusters, tmp_path):
    _, target = clusters
    target.faults.add(faults.answer(1, "no room"), code=17, broker="broker-b")
    file = write(tmp_path / "d.json", [{"name": "orders"}])
    code, out, err = rmq(target, "apply", file, "--yes", "-o", "jsonl")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 6
    assert [(row["result"], row["brokers"]) for row in rows] == [
        ("failed", ["broker-b"]),
        ("created", ["broker-a"]),
    ]
    assert "no room" in rows[0]["error"]
    assert "run the same command again to finish" in err


def test_an_answer_that_got_lost_does_not_hide_that_the_change_was_made(
    rmq, clusters, tmp_path
):
    _, target = clusters
    target.faults.add(faults.drop_answer(), code=17, broker="broker-b")
    file = write(tmp_path / "d.json", [{"name": "orders"}])
    code, out, _ = rmq(target, "apply", file, "--yes", "-o", "jsonl", "--timeout", "1s")
    assert (code, json.loads(out)["brokers"]) == (0, ["broker-a", "broker-b"])


def test_a_broker_that_keeps_other_settings_than_it_was_sent_is_a_failure(
    rmq, clusters, tmp_path
):
    _, target = clusters
    target.faults.add(faults.answer(0), code=17, broker="broker-b")
    file = write(tmp_path / "d.json", [{"name": "orders"}])
    code, out, _ = rmq(target, "apply", file, "--yes", "-o", "jsonl")
    assert code == 6
    assert json.loads(out.splitlines()[0])["error"] == "the broker does not have it"


def test_nothing_is_exported_or_pruned_while_a_broker_is_silent(
    rmq, clusters, tmp_path
):
    source, _ = clusters
    file = write(tmp_path / "d.json", [{"name": "orders"}])
    source.faults.add(faults.answer(2, "busy"), code=201, broker="broker-b")
    out = tmp_path / "out.json"
    code, _, err = rmq(source, "export", "--out", out)
    assert code == 6
    assert "broker-b did not answer, so nothing was exported" in err
    assert not out.exists()
    code, _, err = rmq(source, "apply", file, "--prune", "--yes")
    assert code == 7
    assert "broker-b did not answer, so nothing is deleted" in err
    code, _, err = rmq(source, "diff", file)
    assert code == 6
    assert "broker-b did not answer" in err
    write(file, [{"name": "orders"}, {"name": "steps"}], [{"name": "billing"}])
    code, out, err = rmq(source, "diff", file)
    assert (code, out) == (6, "")
    assert err.startswith("error: broker-b did not answer: ")  # and not that it is so


@pytest.mark.parametrize("command", ["export", "diff", "apply"])
def test_a_cluster_that_does_not_exist_is_named(rmq, clusters, tmp_path, command):
    file = [] if command == "export" else [write(tmp_path / "d.json")]
    code, out, err = rmq(clusters[0], command, *file, "--cluster", "nope")
    assert (code, out) == (3, "")
    assert err.splitlines()[0] == "error: cluster nope does not exist"


def test_a_broker_that_died_and_left_the_routes_is_missed(rmq, clusters, capsys):
    source, _ = clusters
    run(["lag", "billing", "-n", source.namesrv])
    capsys.readouterr()
    source.broker("broker-b").kill()
    code, out, err = rmq(source, "export")
    assert (code, out) == (6, "")
    assert (
        "broker-b did not answer, so nothing was exported: it is no longer in the route"
        in err
    )
    assert "if it was removed for good: rmq lag --forget" in err


def test_a_cluster_that_has_changed_since_the_plan_is_left_alone(clusters):
    source, target = clusters
    with Admin(namesrv=source.namesrv) as admin:
        wanted = admin.definitions()
    with Admin(namesrv=target.namesrv) as admin:
        planned = admin.plan_definitions(wanted)
        target.create_topic("orders", queues=2)
        with pytest.raises(RefusedError, match="has changed since the plan was made"):
            admin.apply_definitions(planned)
        assert target.broker().state.topics.get("steps") is None


def test_a_group_with_members_online_is_not_pruned(rmq, clusters, tmp_path):
    source, _ = clusters
    file = write(tmp_path / "d.json", [{"name": "orders"}, {"name": "steps"}])
    with Consumer("billing", "orders", print, namesrv=source.namesrv):
        code, out, _ = rmq(source, "apply", file, "--prune", "-o", "jsonl")
    assert (code, json.loads(out)["error"]) == (6, "1 member online")
    assert source.broker().state.groups.get("billing") is not None


def test_only_some_kinds_are_written_and_compared(rmq, clusters, tmp_path):
    source, target = clusters
    file = tmp_path / "d.json"
    rmq(source, "export", "--only", "groups", "--out", file)
    assert parse_definitions(file.read_text()).kinds == ("group",)
    rmq(source, "export", "--out", file)
    code, out, _ = rmq(target, "diff", file, "--only", "groups", "-o", "jsonl")
    assert (code, json.loads(out)["name"]) == (1, "billing")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot read d.json: No such file or directory"),
        (
            '{"format": "rmq-definitions", "format_version": 9}',
            (
                "d.json: the file has format version 9, and only versions up to 1 can"
                " be read"
            ),
        ),
        ("\x1b[31m", "d.json: not JSON.*"),
        (b"\xff", "d.json: not UTF-8 text"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(
    rmq, clusters, tmp_path, monkeypatch, text, said
):
    monkeypatch.chdir(tmp_path)
    if text is not None:
        data = text if isinstance(text, bytes) else text.encode()
        (tmp_path / "d.json").write_bytes(data)
    code, out, err = rmq(clusters[1], "apply", "d.json", "--yes")
    assert (code, out) == (2, "")
    assert re.fullmatch(f"error: {said}\n(hint: .*\n)?", err)
    assert "\x1b" not in err


def test_groups_that_may_not_read_a_topic_are_named_as_left_out(rmq, clusters):
    source, _ = clusters
    source.call(
        lambda: source.broker().state.groups.set_readable(
            "billing", "orders", readable=False
        )
    )
    code, out, err = rmq(source, "export")
    said = "on broker-a, group billing may not read topic orders"
    assert code == 0
    assert json.loads(out)["left_out"] == [said]
    assert f"warning: not in the file: {said}" in err


def test_a_file_that_has_none_of_the_kinds_asked_for_is_named(
    rmq, clusters, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "d.json")
    words = ("diff", "d.json", "--only", "users", "--only", "rules")
    said = "error: d.json: the file has no users and no rules\n"
    assert rmq(clusters[1], *words) == (2, "", said)


def test_a_file_that_cannot_be_written_is_named(rmq, clusters, tmp_path):
    out = tmp_path / "none" / "d.json"
    code, shown, err = rmq(clusters[0], "export", "--out", out)
    assert (code, shown) == (1, "")
    assert err == f"error: cannot write {out}: No such file or directory\n"


def test_definitions_are_read_from_stdin(rmq, clusters, tmp_path, monkeypatch):
    source, _ = clusters
    file = write(tmp_path / "d.json", [{"name": "steps"}])
    with open(file) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        code, out, err = rmq(source, "apply", "-", "--only", "topics")
    assert (code, out) == (0, "")
    assert err == (
        "not in the file: 1 topic; --prune deletes what is not in it\n"
        "nothing to do: cluster DefaultCluster is as stdin says\n"
    )


@pytest.mark.parametrize("kinds", [["users"], ["topics", "rules"]])
def test_kinds_that_are_asked_for_and_not_known_end_the_export(
    rmq, clusters, tmp_path, kinds
):
    """Else a file without them would replace the one of yesterday."""
    source, _ = clusters
    file = tmp_path / "d.json"
    file.write_text("yesterday")
    words = [word for kind in kinds for word in ("--only", kind)]
    code, out, err = rmq(source, "export", *words, "--out", file)
    assert (code, out, file.read_text()) == (1, "", "yesterday")
    assert "error: access control is off" in err
    assert rmq(source, "export", "--out", file)[0] == 0


def test_kinds_that_a_broker_denies_end_the_export(rmq, clusters, tmp_path):
    source, _ = clusters
    source.faults.add(faults.answer(16, "no"), code=RequestCode.AUTH_LIST_USER)
    file = tmp_path / "d.json"
    assert rmq(source, "export", "--only", "users", "--out", file)[0] == 4
    assert not file.exists()


def test_users_that_one_broker_denies_end_an_export_of_everything(
    rmq, clusters, tmp_path
):
    """The file had no users, and only a warning said so: the exit code was 0."""
    source, _ = clusters
    denied = faults.answer(16, "no")
    source.faults.add(denied, code=RequestCode.AUTH_LIST_USER, broker="broker-b")
    file = tmp_path / "d.json"
    file.write_text("yesterday")
    code, out, err = rmq(source, "export", "--out", file)
    assert (code, out, file.read_text()) == (6, "", "yesterday")
    assert "broker-b did not tell its users and rules, so nothing was exported" in err
    assert "to leave them out, name the others with --only" in err
    words = ["--only", "topics", "--only", "groups", "--out", file]
    assert rmq(source, "export", *words)[0] == 0


def test_the_library_refuses_an_export_that_would_not_be_complete(clusters):
    source, _ = clusters
    source.faults.add(faults.answer(2, "busy"), code=201, broker="broker-b")
    with (
        Admin(namesrv=source.namesrv) as admin,
        pytest.raises(PartialError, match="nothing was exported"),
    ):
        admin.definitions()
