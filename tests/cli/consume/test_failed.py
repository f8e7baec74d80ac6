"""What `rmq consume --exec` reports about failed messages, and how it exits."""

from __future__ import annotations

import json
import sys

import pytest

from rmqcli import Admin
from rmqcli.broker import faults
from rmqcli.broker.cluster.seeding import Seed
from rmqcli.cli.consume.counts import Counts
from rmqcli.cli.consume.failed import FailedDeliveries
from rmqcli.cli.consume.status import Status
from rmqcli.cli.main import run
from rmqcli.cli.ui.messages import Messages
from rmqcli.config import ClientConfig
from rmqcli.engine.reports import FailedDelivery, Fate
from rmqcli.errors import RmqError
from rmqcli.wire.codes import RequestCode

#: Every delay is a second, so that retries come soon.
DELAYS = " ".join(["1s"] * 18)
SEND_BACK = int(RequestCode.CONSUMER_SEND_MSG_BACK)


@pytest.fixture
def cluster(rmq_cluster_factory):
    return rmq_cluster_factory(settings={"message_delay_level": DELAYS})


@pytest.fixture
def consume(cluster, capfdbinary):
    """Runs `rmq consume T -g g` on the cluster; returns stdout and stderr as text."""

    def run_it(*arguments, code=0):
        flags = ["-g", "g", "--from", "first", "-n", cluster.namesrv]
        returned = run(["consume", "T", *flags, *arguments])
        out, err = capfdbinary.readouterr()
        assert returned == code, err.decode()
        return out.decode("utf-8", "surrogateescape"), err.decode()

    return run_it


@pytest.fixture
def dead_letters(cluster, capfdbinary):
    """Reads the bodies of the group's dead letters."""

    def read():
        whole = ["--from", "earliest", "--to", "latest", "-o", "jsonl"]
        assert run(["tail", "%DLQ%g", "-n", cluster.namesrv, *whole]) == 0
        lines = capfdbinary.readouterr().out.splitlines()
        return [json.loads(line)["body"] for line in lines]

    return read


def lines_of(err, word):
    return [line for line in err.splitlines() if word in line]


def seed(number):
    return Seed(body=b"m%d" % number, properties={"UNIQ_KEY": f"ID{number}"})


def test_without_retries_each_failure_is_told_as_a_dead_letter(
    cluster, consume, dead_letters
):
    cluster.create_topic("T", queues=1)
    cluster.send("T", [seed(n) for n in range(5)])
    flags = ["--max-retries", "0", "--max-failures", "5", "--threads", "1"]
    _, err = consume("--exec", "false", *flags, code=1)
    assert lines_of(err, "warning") == [
        f"warning: T@broker-a:0 offset {n}, id ID{n}: the command ended with exit"
        " status 1; dead letter in %DLQ%g"
        for n in range(5)
    ]
    assert "0 consumed; 5 failed: 5 dead letters; " in err
    assert "error: all 5 deliveries failed: 5 dead letters; stopped" in err
    assert "consumed again" not in err
    assert dead_letters() == [f"m{n}" for n in range(5)]


@pytest.mark.slow
def test_a_retry_is_numbered_and_named_by_the_first_copy_s_offset_and_id(
    cluster, consume
):
    cluster.create_topic("T", queues=1)
    cluster.send("T", ["x", "x", "x", seed(7)])
    command = "test $RMQ_OFFSET != 3 && test $RMQ_RECONSUME_TIMES = 0"
    flags = ["--shell", "--max-retries", "2", "--max-failures", "3", "--threads", "1"]
    _, err = consume("--exec", command, *flags, code=6)
    assert [line.split(": ", 1)[1] for line in lines_of(err, "offset 3, id ID7")] == [
        "the command ended with exit status 1; retry 1 of 2 follows",
        "the command ended with exit status 1; retry 2 of 2 follows",
        (
            "T@broker-a:0 offset 3, id ID7: the command ended with exit status 1;"
            " dead letter in %DLQ%g"
        ),
    ]
    assert "3 consumed; 3 failed: 2 retries, 1 dead letter; " in err
    assert "error: 3 of 6 deliveries failed: 2 retries, 1 dead letter" in err


def test_the_first_copy_is_looked_up_when_another_run_failed_on_it(cluster, consume):
    cluster.create_topic("T", queues=1)
    cluster.send("T", ["x", "x", seed(7)])
    consume("--count", "2", "-o", "raw")
    consume("--exec", "false", "--max-failures", "1", code=1)
    _, err = consume("--exec", "false", "--max-failures", "1", code=1)
    assert lines_of(err, "offset 2, id ID7") == [
        (
            "T@broker-a:0 offset 2, id ID7: the command ended with exit status 1;"
            " retry 2 of 16 follows"
        )
    ]


def test_in_order_retries_are_local_and_then_it_is_a_dead_letter(
    cluster, consume, dead_letters
):
    cluster.create_topic("T", queues=1)
    cluster.send("T", [seed(0), seed(1)])
    command = "test $RMQ_OFFSET = 1"
    flags = ["--shell", "--orderly", "--max-retries", "1", "--count", "1"]
    _, err = consume("--exec", command, *flags, code=6)
    assert lines_of(err, "id ID0") == [
        (
            "T@broker-a:0 offset 0, id ID0: the command ended with exit status 1;"
            " retry 1 of 1 follows, its queue is paused until then"
        ),
        (
            "warning: T@broker-a:0 offset 0, id ID0: the command ended with exit status"
            " 1; dead letter in %DLQ%g"
        ),
    ]
    assert "1 consumed; 2 failed: 1 retry, 1 dead letter; " in err
    assert "hint: read the dead letters with: rmq tail %DLQ%g" in err
    assert dead_letters() == ["m0"]


@pytest.mark.slow
def test_a_message_that_no_broker_took_back_is_told_to_stay_here(cluster, consume):
    cluster.create_topic("T", queues=1)
    cluster.send("T", [seed(0)])
    refuse = faults.answer(1, "no room")
    cluster.faults.next(refuse, code=SEND_BACK)
    for code in (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2):
        cluster.faults.add(refuse, code=int(code))
    command = "test $RMQ_RECONSUME_TIMES = 1"
    _, err = consume("--exec", command, "--shell", "--count", "1", code=6)
    (line,) = lines_of(err, "id ID0")
    assert line.startswith(
        "T@broker-a:0 offset 0, id ID0: the command ended with exit status 1; no broker"
        " accepted it for a retry ("
    )
    assert line.endswith("no room): this member retries it")
    assert "1 consumed; 1 failed: 1 retry; " in err


def test_broadcasting_says_that_a_failure_is_for_good(
    cluster, consume, tmp_path, monkeypatch
):
    monkeypatch.setenv("HOME", str(tmp_path))
    cluster.create_topic("T", queues=1)
    cluster.send("T", [seed(0)])
    _, err = consume("--exec", "false", "--broadcast", "--max-failures", "1", code=1)
    assert "given up: there are no retries with --broadcast" in err
    assert "0 consumed; 1 failed: 1 given up; " in err


def test_it_stops_after_so_many_failures_in_a_row_and_leaves_the_rest(cluster, consume):
    cluster.create_topic("T", queues=1)
    cluster.send("T", [str(n) for n in range(100)])
    sent_back = cluster.faults.observe(code=SEND_BACK)
    _, err = consume("--exec", "false", "--threads", "1", code=1)
    assert sent_back.seen == 20
    assert "stopped after 20 failures in a row" in err
    assert "or use --max-failures 0 for no limit" in err


def test_a_success_in_between_begins_the_count_anew(cluster, consume):
    cluster.create_topic("T", queues=1)
    cluster.send("T", [str(n) for n in range(40)])
    command = "test $((RMQ_OFFSET % 4)) = 3"
    flags = ["--shell", "--threads", "1", "--max-failures", "4", "--count", "10"]
    _, err = consume("--exec", command, *flags, code=6)
    assert "10 consumed; 30 failed: 30 retries" in err


def test_with_zero_it_never_stops_for_failures(cluster, consume):
    cluster.create_topic("T", queues=1)
    cluster.send("T", [str(n) for n in range(30)])
    command = "test $RMQ_OFFSET = 29"
    flags = ["--shell", "--threads", "1", "--max-failures", "0", "--count", "1"]
    _, err = consume("--exec", command, *flags, code=6)
    assert "29 failed: 29 retries" in err


@pytest.mark.parametrize(
    ("command", "operator"),
    [
        ("cat >/dev/null", ">"),
        ("cat >> f", ">>"),
        ("cat 2>f", ">"),
        ("cat <f", "<"),
        ("a | b", "|"),
        ("a|b", "|"),
        ("a || b", "||"),
        ("a && b", "&&"),
        ("a & b", "&"),
        ("a ; b", ";"),
        ("(a)", "("),
        ("a `b`", "`"),
        ("a $(b)", "$("),
        ("a $RMQ_KEYS", "$RMQ_KEYS"),
        ('a "${RMQ_KEYS}"', "${"),
    ],
)
def test_what_only_a_shell_obeys_is_refused_by_name(
    cluster, consume, command, operator
):
    sent = cluster.faults.observe()
    cluster.create_topic("T")
    _, err = consume("--exec", command, code=2)
    assert f"'{operator}' is shell syntax, but the command runs without a shell" in err
    assert "hint: add --shell to run it with /bin/sh" in err
    assert sent.seen == 0


@pytest.mark.parametrize("words", ["'>' '$X' '`' ';'", r"\> \$X \;", '"a;b" "x$" $1'])
def test_quoted_signs_are_words(cluster, consume, words):
    cluster.send("T", ["x"])
    command = f"{sys.executable} -c 'import sys; print(len(sys.argv))' {words}"
    out, _ = consume("--exec", command, "--count", "1")
    assert out in ("5\n", "4\n")


def test_the_cluster_s_keys_are_not_in_its_environment(cluster, consume, monkeypatch):
    cluster.send("T", ["x"])
    for name in ("RMQ_ACCESS_KEY", "RMQ_SECRET_KEY", "RMQ_SECURITY_TOKEN"):
        monkeypatch.setenv(name, "hunter2")
    for name in ("RMQ_REGISTRY_USER", "RMQ_REGISTRY_PASSWORD"):
        monkeypatch.setenv(name, "hunter2")
    monkeypatch.setenv("OF_THE_USER", "kept")
    out, _ = consume("--exec", "env", "--count", "1")
    assert "hunter2" not in out
    assert "RMQ_TOPIC=T" in out
    assert "OF_THE_USER=kept" in out


@pytest.mark.slow
def test_a_command_that_takes_too_long_is_ended_with_its_children(
    cluster, consume, tmp_path
):
    """The command and its children hold a lock; it is free once all have ended."""
    cluster.send("T", ["x"])
    lock = tmp_path / "lock"
    command = (
        f"exec 9>{lock}; flock -n 9 || exit 9; trap '' TERM; (trap '' TERM; sleep 600)"
        " & sleep 600"
    )
    flags = ["--shell", "--exec-timeout", "2s", "--max-failures", "1"]
    _, err = consume("--exec", command, *flags, code=1)
    assert (
        "the command ran longer than 2s (--exec-timeout) and was terminated; retry 1 of"
        " 16"
    ) in err
    import fcntl

    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.slow
def test_a_command_that_ends_on_sigterm_has_failed_all_the_same(cluster, consume):
    cluster.send("T", ["x"])
    command = "trap 'echo bye; exit 0' TERM; while :; do sleep 0.05; done"
    flags = ["--shell", "--exec-timeout", "2s", "--max-failures", "1"]
    out, err = consume("--exec", command, *flags, code=1)
    assert out == "bye\n"
    assert "0 consumed; 1 failed: 1 retry" in err


NOT_STORED = RmqError("no room")


@pytest.mark.parametrize(
    ("fate", "more", "by_proxy", "words"),
    [
        (Fate.RETRY_TOPIC, {"retry": 1}, False, "retry 1 follows"),
        (
            Fate.DELIVERED_AGAIN,
            {"retry": 2, "retries_max": 16},
            True,
            "retry 2 of 16 follows",
        ),
        (
            Fate.RETRY_HERE,
            {"retry": 1, "error": NOT_STORED},
            False,
            "no broker accepted it for a retry (no room): this member retries it",
        ),
        (
            Fate.RETRY_HERE,
            {"retry": 1},
            False,
            "retry 1 follows, its queue is paused until then",
        ),
        (
            Fate.RETRY_HERE,
            {"retry": 1},
            True,
            "retry 1 follows, its message group is paused until then",
        ),
        (Fate.DEAD_LETTER, {}, False, "dead letter in %DLQ%g"),
        (Fate.GIVEN_UP, {}, False, "given up: there are no retries with --broadcast"),
        (
            Fate.QUEUE_LOST,
            {},
            True,
            "not acknowledged in time: it will be delivered again",
        ),
        (
            Fate.QUEUE_LOST,
            {},
            False,
            "not committed: the next owner of its queue receives it",
        ),
        (
            Fate.SENT_BACK_BEFORE,
            {},
            False,
            "already sent back, because it took too long",
        ),
    ],
)
def test_each_fate_has_its_words(cluster, capsys, fate, more, by_proxy, words):
    failed, status, message = failures(cluster, by_proxy=by_proxy)
    failed.explain(message, "x")
    failed.on_failed(FailedDelivery(message=message, fate=fate, **more))
    failed.say(status)
    mark = "warning: " if fate in (Fate.DEAD_LETTER, Fate.GIVEN_UP) else ""
    assert (
        capsys.readouterr().err == f"{mark}T@broker-a:0 offset 0, id ID7: x; {words}\n"
    )


@pytest.mark.parametrize(
    ("by_proxy", "fate"),
    [
        (
            False,
            (
                "no broker confirmed that it stored the message for a retry: it may be"
                " delivered again, or be in the retry topic"
            ),
        ),
        (True, "its outcome is unknown: it may be delivered again"),
    ],
)
def test_a_failure_without_a_known_fate_is_warned_of(cluster, capsys, by_proxy, fate):
    failed, status, message = failures(cluster, by_proxy=by_proxy)
    failed.explain(message, "x")
    failed.close(status)
    assert capsys.readouterr().err == f"warning: T@broker-a:0 offset 0: x; {fate}\n"


def test_failures_beyond_the_limit_are_counted(cluster, capsys, monkeypatch):
    monkeypatch.setattr("rmqcli.cli.consume.failed._WAITING_MAX", 1)
    failed, status, message = failures(cluster, by_proxy=False)
    for _ in range(3):
        failed.on_failed(FailedDelivery(message=message, fate=Fate.QUEUE_LOST))
    failed.say(status)
    assert capsys.readouterr().err.splitlines() == [
        (
            "T@broker-a:0 offset 0, id ID7: failed; not committed: the next owner of"
            " its queue receives it"
        ),
        "warning: 2 more failed deliveries are not listed",
    ]


def failures(cluster, *, by_proxy):
    """What writes about failures, where it writes to, and a message with ID7."""
    cluster.create_topic("T", queues=1)
    cluster.send("T", [seed(7)])
    with Admin(namesrv=cluster.namesrv) as admin:
        (message,) = admin.read("T")
    counts = Counts(None)
    config = ClientConfig(namesrv=(cluster.namesrv,))
    if by_proxy:
        config = ClientConfig(endpoints=("127.0.0.1:1",))
    failed = FailedDeliveries("g", counts, config)
    status = Status(Messages(), counts, pull_threshold_for_queue=1, in_place=False)
    return failed, status, message
