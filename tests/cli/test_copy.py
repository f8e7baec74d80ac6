"""`rmq copy`: the plan, the confirmation, resuming, groups, and refused targets."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rmqcli import Admin
from rmqcli.api.calls.config import update_broker_config
from rmqcli.api.calls.offset import update_consumer_offset
from rmqcli.cli.copy import _left_out, _others
from rmqcli.cli.main import run
from rmqcli.copy.copy import CopyReport
from rmqcli.testing import faults
from rmqcli.wire.codes import RequestCode
from tests.admin.dlq.letters import client_of
from tests.copy.copying import stored
from tests.kit.terminal import typed
from tests.kit.waiting import wait_until
from tests.kit.wiped import wiped


@pytest.fixture(autouse=True)
def _logs_of_this_test(tmp_path, monkeypatch):
    """All clusters here have the same name, by which logs are called."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def target(rmq_cluster_factory):
    cluster = rmq_cluster_factory()
    cluster.create_topic("dst", queues=2)
    return cluster


@pytest.fixture
def source(rmq_cluster):
    rmq_cluster.create_topic("src", queues=2)
    rmq_cluster.send("src", [b"%02d" % number for number in range(10)])
    return rmq_cluster


@pytest.fixture
def copy(source, target, capsys):
    """`copy(...)` runs the command; returns exit code, the JSON, and stderr."""

    def call(*arguments, to=("--to-namesrv", target.namesrv)):
        words = ["copy", "src", "dst", "-n", source.namesrv, *to, "-o", "json"]
        code = run([*words, *arguments])
        out, err = capsys.readouterr()
        return code, json.loads(out) if out else None, err

    return call


def test_a_plan_copies_nothing_and_says_where_messages_go(copy, target):
    code, found, err = copy()
    assert (code, found["mode"], found["copied"]) == (0, "plan", None)
    assert (found["mapping"], found["count"]) == ("index", 10)
    assert [
        (each["queue_id"], each["start"], each["count"], each["target"])
        for each in found["queues"]
    ] == [(0, 0, 5, "broker-a:0"), (1, 0, 5, "broker-a:1")]
    assert "each to the one with the same index, in order" in err
    assert "wait for their time or for a transaction are not copied" in err
    assert "nothing was copied; add --execute" in err
    assert stored(target, "dst") == {}
    assert not Path(found["log"]).exists()


def test_without_a_confirmation_nothing_is_copied(copy, target):
    code, _, err = copy("--execute")
    assert code == 7
    assert "--yes" in err
    assert stored(target, "dst") == {}


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ((), "10 messages of topic src to topic dst in cluster DefaultCluster"),
        (
            ("--follow",),
            "10 messages of topic src, and new ones until Ctrl-C, to topic",
        ),
    ],
)
def test_the_question_names_the_cluster_of_the_target(copy, target, words, asked):
    """It showed `namesrv='...'`, as Python would write it."""
    with typed("no\n"):
        code, _, err = copy("--execute", *words)
    assert code == 7
    assert f"This copies up to {asked}" in err
    assert f" in cluster DefaultCluster (namesrv {target.namesrv}).\nType dst to" in err
    assert stored(target, "dst") == {}


def test_a_copy_goes_on_where_the_last_one_ended(copy, source, target):
    code, found, err = copy("--execute", "--yes")
    assert (code, found["mode"], found["copied"]) == (0, "applied", 10)
    assert found["log"] in err
    assert stored(target, "dst") == stored(source, "src")
    source.send("src", [b"new"])
    code, found, _ = copy("--execute", "--yes")
    assert (code, found["copied"], found["copied_before"]) == (0, 1, 10)
    assert stored(target, "dst") == stored(source, "src")


def test_messages_in_the_target_that_the_log_does_not_know_are_counted(
    copy, target, tmp_path
):
    """A copy with another log stored all of them a second time, and said nothing."""
    code, found, err = copy("--execute", "--yes")
    assert (code, found["present"], found["others"]) == (0, 0, 0)
    assert "come twice" not in err
    said = "topic dst has 10 messages that the log does not know: if they were copied"
    code, found, err = copy("--log", str(tmp_path / "other"))
    assert (code, found["present"], said in err) == (0, 10, True)
    code, found, err = copy()  # of its own copies nothing is said
    assert (code, found["present"], "come twice" in err) == (0, None, False)


def test_messages_that_come_to_the_target_between_the_copies_are_counted():
    """As those of a copy that runs at the same time with another log."""
    assert _others(3, "dst") == (
        "at least 3 messages that are not of this copy came to dst meanwhile: if"
        " another copy with another log is running, messages come twice"
    )


@pytest.mark.slow
def test_messages_that_may_be_stored_are_named_before_they_are_sent_again(copy, target):
    target.faults.add(
        faults.drop_answer(), code=RequestCode.SEND_BATCH_MESSAGE, times=2
    )
    code, found, err = copy("--execute", "--yes", "--timeout", "1s")
    assert code == 6
    assert sorted(found["unknown"]) == ["broker-a:0:0-4", "broker-a:1:0-4"]
    assert "run the same command again" in err
    code, found, err = copy()
    assert sorted(found["doubtful"]) == ["broker-a:0:0-4", "broker-a:1:0-4"]
    assert "may be stored already and are sent again" in err
    assert copy("--execute", "--yes")[0] == 0


def test_a_message_that_is_too_large_is_named_with_what_to_do(copy, source, target):
    """The hint was to run the same command again, which ended there again."""
    with client_of(target) as client:
        setting = update_broker_config({"maxMessageSize": "1000"})
        client.invoke(target.broker().address, setting)
    source.send("src", [b"x" * 2_000], queue_id=1)
    code, _, err = copy("--execute", "--yes")
    assert code == 6
    assert "stopped: broker-a:1:5: the body has 2,000 bytes; the limit of the" in err
    assert "raise maxMessageSize on the broker, or send a smaller body" in err
    assert "run the same command again" not in err


def test_copies_that_were_not_flushed_in_time_are_counted(copy, target):
    """Nothing told that a crash of the broker may lose them."""
    stored_at = {"msgId": "0" * 32, "queueId": "0", "queueOffset": "0"}
    target.faults.add(
        faults.answer(10, ext_fields=stored_at), code=RequestCode.SEND_BATCH_MESSAGE
    )
    code, found, err = copy("--execute", "--yes")
    assert (code, found["copied"], found["weak"]) == (0, 10, 10)
    assert (
        "warning: 10 messages are stored, but the broker could not flush or replicate"
        " them in time"
    ) in err


def test_groups_go_on_at_the_copies_of_what_they_have_not_consumed(
    copy, source, target
):
    with Admin(namesrv=source.namesrv) as admin:
        admin.create_group("g")
    with client_of(source) as client:
        for queue_id, offset in ((0, 2), (1, 5)):
            call = update_consumer_offset("g", "src", queue_id, commit_offset=offset)
            client.invoke(source.broker().address, call)
    target.send("dst", [b"before"] * 4)  # so the offsets of copies are others
    code, _, err = copy("--groups", "g")
    assert code == 3
    assert "create it in that of the target" in err
    with Admin(namesrv=target.namesrv) as admin:
        admin.create_group("g")
    code, found, err = copy("--groups", "g", "--execute", "--yes")
    assert code == 0, err
    assert "moved and read back" in err
    with Admin(namesrv=target.namesrv) as admin:
        queues = {each.queue_id: each.committed for each in admin.lag("g").queues}
        assert admin.lag("g").total_lag == 3
    assert queues == {0: 4, 1: 7}
    (moved,) = found["groups"]
    assert {q["queue_id"]: q["target"] for q in moved["queues"]} == {0: 4, 1: 7}
    assert moved["mode"] == "applied"
    assert moved["backup"] is not None
    assert [q["result"] for q in moved["queues"]] == ["CONFIRMED", "CONFIRMED"]


@pytest.mark.parametrize(
    ("code", "result", "are"),
    [
        (RequestCode.UPDATE_CONSUMER_OFFSET, "NOT_ATTEMPTED", "are not"),
        (RequestCode.QUERY_CONSUMER_OFFSET, "UNKNOWN", "may not be"),
    ],
)
def test_a_copy_whose_group_cannot_be_moved_is_shown_with_what_became_of_it(
    copy, source, target, code, result, are
):
    """Nothing was written to stdout, although all messages were copied."""
    for cluster in (source, target):
        with Admin(namesrv=cluster.namesrv) as admin:
            admin.create_group("g")
    with client_of(source) as client:
        call = update_consumer_offset("g", "src", 0, commit_offset=2)
        client.invoke(source.broker().address, call)

    def refuse(_):
        target.faults.add(faults.answer(16, "not allowed"), code=code)

    commit = RequestCode.UPDATE_CONSUMER_OFFSET
    if code == commit:
        refuse(None)
    target.faults.observe(code=commit, on_request=refuse)
    exit_code, found, err = copy("--groups", "g", "--execute", "--yes")
    assert (exit_code, found["copied"]) == (6, 10)
    (moved,) = found["groups"]
    assert [q["result"] for q in moved["queues"]] == [result, result]
    assert f"group g: the positions of 2 queues {are} as planned" in err
    target.faults.clear()
    exit_code, found, err = copy("--groups", "g", "--execute", "--yes")
    assert (exit_code, found["copied"]) == (0, 0), err


@pytest.mark.parametrize(
    ("conditions", "sent_later", "said"),
    [
        ([], 0, None),
        (["--to", "+4"], 0, "2 messages are unread"),
        (["--grep", "0[0-7]"], 0, "2 messages are unread"),
        ([], 1, "1 message is unread"),
    ],
)
def test_unread_messages_that_were_not_copied_are_counted(
    copy, source, target, conditions, sent_later, said
):
    """The group went on in the copy, and never got what had been left out."""
    for cluster in (source, target):
        with Admin(namesrv=cluster.namesrv) as admin:
            admin.create_group("g")
    with client_of(source) as client:
        for queue_id, offset in ((0, 2), (1, 4)):
            call = update_consumer_offset("g", "src", queue_id, commit_offset=offset)
            client.invoke(source.broker().address, call)
    if sent_later:
        assert copy("--execute", "--yes")[0] == 0
        source.send("src", [b"late"] * sent_later)
        conditions = ["--to", "5"]
    code, _, err = copy(*conditions, "--groups", "g", "--execute", "--yes")
    assert code == 0, err
    warnings = [line for line in err.splitlines() if "group g: " in line]
    if said is None:
        assert not any("not copied" in each for each in warnings)
    else:
        assert (
            f"warning: group g: {said} in src, but not copied to dst: the conditions or"
            " the range left them out, or they came later"
        ) in warnings


def test_a_topic_that_is_missing_is_named_with_what_to_do(copy, target, capsys):
    with Admin(namesrv=target.namesrv) as admin:
        admin.delete_topic("dst")
    code, _, err = copy()
    assert code == 3
    assert "in the target's cluster, rmq topic create dst" in err


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (
            ["--to-profile", "p"],
            "--to-namesrv and --to-profile cannot be used together",
        ),
        (["--follow", "--to", "now"], "--follow and --to cannot be used together"),
        (
            ["--follow", "--groups", "g"],
            "--follow and --groups cannot be used together",
        ),
        (["--tag", "A", "--sql", "a > 1"], "--tag and --sql cannot be used together"),
        (["--tag", " "], "--tag is empty"),
        (["--sql", ""], "--sql is empty"),
        (["--key", ""], "--key is empty"),
        (["--where", ""], "--where is empty"),
        (["--not"], "--not needs --key, --property or --grep"),
        (["--decode", "json"], "--decode needs --where"),
    ],
)
def test_options_that_contradict_each_other_are_refused(capsys, arguments, error):
    words = ["copy", "a", "b", "-n", "127.0.0.1:1", "--to-namesrv", "127.0.0.1:1"]
    assert run([*words, *arguments]) == 2
    assert capsys.readouterr().err.splitlines()[0] == f"error: {error}"


def test_a_plan_is_a_table_and_the_copy_says_where_its_log_is(source, capsys):
    source.create_topic("dst", queues=2)
    words = ["copy", "src", "dst", "-n", source.namesrv]
    table = """\
BROKER    QUEUE  FROM  TO  COUNT  EXPIRED  TARGET
broker-a      0     0   5      5        0  broker-a:0
broker-a      1     0   5      5        0  broker-a:1
"""
    plan = (
        "2 queues to 2 queues: each to the one with the same index, in order\n"
        "copies are new messages with the producer's properties; messages that still"
        " wait for their time or for a transaction are not copied\n"
    )
    assert run(words) == 0
    end = "nothing was copied; add --execute to copy\n"
    assert capsys.readouterr() == (table, f"{plan}{end}")
    with typed("no\n"):
        assert run([*words, "--execute"]) == 7
    asked = (
        "This copies up to 10 messages of topic src to topic dst in cluster"
        f" DefaultCluster (namesrv {source.namesrv}).\nType dst to confirm: "
    )
    said = "error: not confirmed: 'dst' was not typed, nothing was changed\n"
    assert capsys.readouterr() == ("", f"{table}{plan}{asked}{said}")
    for before, copied in (
        ("", 10),
        ("10 messages are copied already, by the log\n", 0),
    ):
        assert run([*words, "--execute", "--yes"]) == 0
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith(f"{plan}{before}{copied} messages copied; log: ")


@pytest.mark.parametrize(
    ("gone", "said"),
    [
        (1, "1 message of the range is not stored any more"),
        (2, "2 messages of the range are not stored any more"),
    ],
)
def test_messages_that_expire_meanwhile_are_counted(rmq_cluster, capsys, gone, said):
    rmq_cluster.create_topic("old", queues=1)
    rmq_cluster.create_topic("dst", queues=1)
    rmq_cluster.send("old", ["x"] * gone)
    store = rmq_cluster.broker().state.store
    end = store.log_bounds()[1]
    rmq_cluster.send("old", ["y"])
    store.trim(None, end)
    first = faults.answer(0, ext_fields={"offset": "0"})
    rmq_cluster.faults.add(first, code=RequestCode.GET_MIN_OFFSET)
    words = ["copy", "old", "dst", "-n", rmq_cluster.namesrv, "--execute", "--yes"]
    assert run(words) == 6
    assert capsys.readouterr().err.splitlines()[-1] == f"warning: {said}"


def test_a_source_that_is_down_is_an_error(capsys):
    assert run(["copy", "a", "b", "-n", "127.0.0.1:1"]) == 5


def write_profiles(text):
    folder = Path(os.environ["XDG_CONFIG_HOME"], "rmq")
    folder.mkdir(parents=True)
    path = folder / "config.toml"
    path.write_text(text)
    path.chmod(0o600)


@pytest.mark.parametrize("setting", ["read_only", "protected"])
def test_a_profile_of_the_target_guards_it(copy, target, setting):
    write_profiles(f'[profiles.new]\nnamesrv = "{target.namesrv}"\n{setting} = true\n')
    for to in (("--to-namesrv", target.namesrv), ("--to-profile", "new")):
        assert copy(to=to)[0] == 0  # a plan changes nothing
        code, _, err = copy("--execute", "--yes", to=to)
        assert code == 7
        wanted = "is read-only" if setting == "read_only" else "--to-confirm new"
        assert wanted in err
        assert stored(target, "dst") == {}
    confirmed = copy(
        "--execute", "--yes", "--to-confirm", "new", to=("--to-profile", "new")
    )
    assert confirmed[0] == (0 if setting == "protected" else 7)


def test_each_cluster_gets_the_credentials_of_its_own_profile(source, target, capsys):
    write_profiles(
        f'''
        [profiles.old]
        namesrv = "{source.namesrv}"
        access_key = "old-key"
        secret_key = "old-secret-1"
        [profiles.new]
        namesrv = "{target.namesrv}"
        access_key = "new-key"
        secret_key = "new-secret-1"
        '''
    )
    with Admin(namesrv=target.namesrv) as admin:
        admin.create_group("g")
    with Admin(namesrv=source.namesrv) as admin:
        admin.create_group("g")
    rules = [each.faults.add(faults.delay(0)) for each in (source, target)]
    words = ["copy", "src", "dst", "--profile", "old", "--to-profile", "new"]
    assert run([*words, "--groups", "g", "--execute", "--yes"]) == 0
    keys = [
        {each.command.ext_fields.get("AccessKey") for each in rule.requests}
        for rule in rules
    ]
    assert keys == [{"old-key"}, {"new-key"}]
    assert "secret-1" not in "".join(capsys.readouterr())
    assert stored(target, "dst") == stored(source, "src")


def test_a_read_only_profile_of_the_source_may_be_copied_from(copy, source, target):
    write_profiles(f'[profiles.old]\nnamesrv = "{source.namesrv}"\nread_only = true\n')
    assert copy("--execute", "--yes")[0] == 0
    assert stored(target, "dst") == stored(source, "src")


@pytest.mark.slow
def test_following_copies_new_messages_until_an_interrupt(source, target):
    words = [sys.executable, "-m", "rmqcli", "copy", "src", "dst", "--follow"]
    words += ["-n", source.namesrv, "--to-namesrv", target.namesrv]
    words += ["--execute", "--yes", "-o", "json"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        wait_until(lambda: stored(target, "dst") == stored(source, "src"))
        source.send("src", [b"new"])
        wait_until(lambda: stored(target, "dst") == stored(source, "src"))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert process.returncode == 130, err
    assert json.loads(out)["copied"] == 11


@pytest.mark.slow
def test_following_names_the_queues_that_are_not_copied(rmq_cluster_factory, target):
    """A broker of the source was down, queues were added: nothing told of either."""
    source = rmq_cluster_factory(brokers=2)
    source.create_topic("src", queues=1)
    source.send("src", [b"a", b"b"])
    words = [sys.executable, "-m", "rmqcli", "copy", "src", "dst", "--follow"]
    words += ["-n", source.namesrv, "--to-namesrv", target.namesrv]
    words += ["--execute", "--yes", "-o", "json"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        warnings = (each for each in process.stderr if each.startswith("warning: "))
        wait_until(lambda: sum(map(len, stored(target, "dst").values())) == 2)
        rule = source.faults.add(
            faults.answer(1, "disk is gone"),
            code=RequestCode.GET_MAX_OFFSET,
            broker="broker-b",
        )
        silent = next(warnings)
        source.faults.remove(rule)
        source.create_topic("src", queues=2)
        added = next(warnings)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert process.returncode == 130, err
    assert silent.startswith("warning: src@broker-b:0: ")
    assert "disk is gone" in silent
    told = (
        "warning: queues were added after the copy began, and are not copied yet:"
        " src@broker-a:1, src@broker-b:1; run the same command again: it copies them,"
        " or says what to do first"
    )
    assert added == f"{told}\n"
    assert told in err
    assert json.loads(out)["added"] == ["src@broker-a:1", "src@broker-b:1"]
    words.remove("--follow")
    again = subprocess.run(words, capture_output=True, text=True, check=False)
    assert again.returncode == 7
    assert "add as many queues to topic dst, and the copy goes on" in again.stderr


def test_each_reason_names_its_own_messages():
    """Each named the messages of all reasons."""
    report = CopyReport(
        left_out={"its body is damaged": 1, "unreadable: cut": 2},
        named={"its body is damaged": ["a:0:7"], "unreadable: cut": ["a:0:8", "b:1:0"]},
    )
    assert _left_out(report) == [
        "1 message not copied: its body is damaged (a:0:7)",
        "2 messages not copied: unreadable: cut (a:0:8, b:1:0)",
    ]


@pytest.mark.parametrize(("words", "code"), [([], 6), (["--execute", "--yes"], 7)])
def test_a_broker_that_hangs_is_waited_for_once(
    rmq_cluster_factory, target, capsys, words, code
):
    """Each of the questions to it took the whole --timeout."""
    source = rmq_cluster_factory(brokers=2)
    source.create_topic("src", queues=1)
    source.send("src", [b"a", b"b"])
    rule = source.faults.add(faults.drop_request(), broker="broker-b")
    to = ["--to-namesrv", target.namesrv, "--timeout", "1s"]
    assert run(["copy", "src", "dst", "-n", source.namesrv, *to, *words]) == code
    err = capsys.readouterr().err
    assert "warning: src@broker-b:0: no answer from " in err
    codes = [each.command.code for each in rule.requests]
    assert codes == [RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET]
    assert stored(target, "dst") == {}


@pytest.mark.slow
def test_a_target_that_hangs_is_waited_for_once(copy, target):
    assert copy("--execute", "--yes")[0] == 0
    rule = target.faults.add(faults.drop_request(), broker="broker-a")
    for words in ([], ["--execute", "--yes"]):
        code, _, err = copy("--timeout", "1s", *words)
        assert code == 5
        assert "no broker answers: broker-a" in err
    # Two commands, each with two questions about each of two queues.
    assert len(rule.requests) == 8


def test_a_cluster_that_was_wiped_is_refused(copy, source, rmq_cluster_factory):
    assert copy("--execute", "--yes")[0] == 0
    again = wiped(source, rmq_cluster_factory)
    again.create_topic("src", queues=2)
    again.send("src", [b"new"] * 12)
    for words in ([], ["--execute", "--yes"]):
        code, found, err = copy(*words)
        assert (code, found) == (7, None)
        assert "has another message at offset 4 than the log has read" in err
        assert "name another file for the log to begin anew" in err


def test_queues_whose_copied_messages_are_deleted_are_named(copy, source):
    assert copy("--execute", "--yes")[0] == 0
    source.broker().trim("src", 5)
    code, found, err = copy()
    assert code == 0
    assert found["unproven"] == ["src@broker-a:0", "src@broker-a:1"]
    assert "warning: the messages by which the log could recognize these queues" in err


def test_messages_that_were_deleted_before_they_were_copied_are_a_loss(copy, source):
    """It was a warning, and the exit code was 0."""
    assert copy("--execute", "--yes")[0] == 0
    source.send("src", [b"%02d" % number for number in range(10, 20)])
    source.broker().trim("src", 7)
    code, found, err = copy("--execute", "--yes")
    assert (code, found["expired"], found["copied"]) == (6, 4, 6)
    assert "warning: 4 messages were deleted before they were copied" in err
    code, found, _ = copy("--execute", "--yes")
    assert (code, found["expired"], found["copied"]) == (0, 0, 0)


SQL = ("--sql", "a >>> 5")


@pytest.mark.parametrize("execute", [(), ("--execute", "--yes")])
def test_sql_that_brokers_cannot_read_copies_nothing(copy, target, execute):
    """A pull with such an expression returns every message."""
    code, found, err = copy(*SQL, *execute)
    assert (code, found) == (2, None)
    assert "the expression is not valid SQL92: invalid SQL92 expression" in err
    assert stored(target, "dst") == {}
    assert copy("--sql", "a > 5", *execute)[0] == 0  # the log did not note the other


def test_sql_that_one_broker_has_switched_off_copies_nothing(
    rmq_cluster_factory, target, capsys
):
    source = rmq_cluster_factory(brokers=2)
    source.create_topic("src", queues=1)
    source.send("src", [b"a"] * 4)
    off = update_broker_config({"enablePropertyFilter": "false"})
    with client_of(source) as client:
        client.invoke(source.broker("broker-b").address, off)
    words = ["copy", "src", "dst", "-n", source.namesrv, "--to-namesrv", target.namesrv]
    code = run([*words, "--sql", "a > 5", "--execute", "--yes"])
    err = capsys.readouterr().err
    assert code == 1
    assert "does not filter by SQL92" in err
    assert "hint: set enablePropertyFilter=true on the broker, or use --tag EXPR" in err
    assert stored(target, "dst") == {}


def test_sql_is_not_copied_by_while_a_broker_does_not_answer_the_check(
    rmq_cluster_factory, target, capsys
):
    """That another broker accepts the expression does not show that this one does."""
    source = rmq_cluster_factory(brokers=2)
    source.create_topic("src", queues=1)
    source.send("src", [b"a"] * 4)
    source.faults.add(
        faults.disconnect(), code=RequestCode.CHECK_CLIENT_CONFIG, broker="broker-b"
    )
    words = ["copy", "src", "dst", "-n", source.namesrv, "--to-namesrv", target.namesrv]
    code = run([*words, "--sql", "a IS NULL", "--execute", "--yes"])
    err = capsys.readouterr().err
    assert code == 7
    assert "1 queue could not be read: nothing was copied" in err
    assert stored(target, "dst") == {}
