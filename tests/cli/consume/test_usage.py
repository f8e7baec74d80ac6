"""What `rmq consume` refuses before it sends a request or joins the group."""

from __future__ import annotations

import pytest

from rmqcli.cli.consume.command import ConsumeOptions
from rmqcli.cli.consume.run import config_of
from rmqcli.cli.main import run
from rmqcli.wire.codes import RequestCode
from tests.test_startup import modules_after


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "--group"),
        (["-g", ""], 2, "the group's name is empty"),
        (["-g", "a b"], 2, "characters that are not allowed"),
        (["-g", "x" * 256], 2, "256 characters, more than 255"),
        (["-g", "x" * 249], 2, "249 characters, more than 248"),
        (["-g", "DEFAULT_CONSUMER"], 2, "is reserved and cannot be a group name"),
        (["-g", "g", "--tag", "||"], 2, "contains no tag"),
        (["-g", "g", "--tag", ""], 2, "--tag is empty"),
        (["-g", "g", "--sql", ""], 2, "--sql is empty"),
        (
            ["-g", "g", "--tag", "A", "--sql", "a > 5"],
            2,
            "--tag and --sql cannot be used together",
        ),
        (["-g", "g", "--from", "17"], 2, "a group can begin only at"),
        (["-g", "g", "--from", "+5"], 2, "a group can begin only at"),
        (["-g", "g", "--from", "group:h"], 2, "a group can begin only at"),
        (["-g", "g", "--from", "earliets"], 2, "write earliest, latest, now"),
        (["-g", "g", "--from", "@2026-13-01"], 2, "no such time"),
        (["-g", "g", "--from", "-5"], 2, "rmq reset-offset moves a group"),
        (["-g", "g", "--count", "0"], 2, "--count"),
        (["-g", "g", "--threads", "1001"], 2, "--threads"),
        (["-g", "g", "--batch", "1025"], 2, "--batch"),
        (["-g", "g", "--pull-batch", "0"], 2, "--pull-batch"),
        (["-g", "g", "--max-retries", "-1"], 2, "--max-retries"),
        (
            ["-g", "g", "--broadcast", "--max-retries", "3"],
            2,
            "cannot be used together",
        ),
        (["-g", "g", "--exec", ""], 2, "the command is empty"),
        (["-g", "g", "--exec", "a 'b"], 2, "no closing quotation"),
        (
            ["-g", "g", "--exec", "/no/such/program x"],
            2,
            "program /no/such/program not found",
        ),
        (["-g", "g", "--exec", "cat", "-o", "csv"], 2, "cannot be used together"),
        (["-g", "g", "--exec", "cat", "--format", "%v"], 2, "cannot be used together"),
        (["-g", "g", "--shell"], 2, "--shell needs --exec"),
        (["-g", "g", "--exec-input", "raw"], 2, "--exec-input needs --exec"),
        (["-g", "g", "--exec-timeout", "1s"], 2, "--exec-timeout needs --exec"),
        (["-g", "g", "--exec", "cat", "--exec-timeout", "9"], 2, "a unit is missing"),
        (["-g", "g", "--max-failures", "3"], 2, "--max-failures needs --exec"),
        (["-g", "g", "--exec", "cat", "--max-failures", "-1"], 2, "--max-failures"),
        (
            ["-g", "g", "--exec", "cat", "--exec-input", "raw", "--batch", "2"],
            2,
            "cannot be used together",
        ),
        (["-g", "g", "-o", "csv", "--format", "%v"], 2, "cannot be used together"),
        (["-g", "g", "--format", "%Z"], 2, "no field %Z"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_sent(
    rmq_cluster, capsys, arguments, code, words
):
    sent = rmq_cluster.faults.observe()
    topic = rmq_cluster.create_topic("T")
    assert run(["consume", topic, "-n", rmq_cluster.namesrv, *arguments]) == code
    out, err = capsys.readouterr()
    assert words in err
    assert len(err.splitlines()) <= 3
    assert out == ""
    assert sent.seen == 0


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (
            ["--exec", "cat", "--exec-input", "raw", "--batch", "2"],
            (
                "--exec-input raw and --batch cannot be used together\n"
                "hint: raw bodies have no separator: leave out --batch, or use"
                " --exec-input jsonl"
            ),
        ),
        (
            ["--exec", "cat", "--exec-input", "raw", "--decode", "json"],
            (
                "--decode and --exec-input raw cannot be used together\n"
                "hint: use --exec-input jsonl: the record has the value"
            ),
        ),
        (
            ["--exec", "/no/such/program x"],
            (
                "--exec: program /no/such/program not found\n"
                "hint: check that it exists and is executable, or add --shell for shell"
                " syntax"
            ),
        ),
        (
            ["--exec", "cat > f"],
            (
                "'cat > f': '>' is shell syntax, but the command runs without a shell\n"
                "            ^\n"
                "hint: add --shell to run it with /bin/sh, or use single quotes"
            ),
        ),
        (
            ["--from", "17"],
            (
                "--from: '17': a group can begin only at earliest, latest or a time\n"
                "                ^^\n"
                "hint: write earliest, latest, now, @2026-01-02T03:04:05Z or -15m; rmq"
                " reset-offset moves a group to any position"
            ),
        ),
        (
            ["--endpoints", "127.0.0.1:1", "--from", "latest"],
            (
                "--from and --endpoints cannot be used together\n"
                "hint: through a proxy a new group begins near the end, and in a young"
                " topic at the first message; rmq reset-offset moves a group"
            ),
        ),
        (
            ["--endpoints", "127.0.0.1:1", "--broadcast"],
            (
                "--broadcast and --endpoints cannot be used together\n"
                "hint: a proxy shares the messages among the members of a group: give"
                " each program its own group"
            ),
        ),
        (
            ["--endpoints", "127.0.0.1:1", "--max-retries", "3"],
            (
                "--max-retries and --endpoints cannot be used together\n"
                "hint: the group's settings limit the retries: rmq group update GROUP"
                " --max-retries N"
            ),
        ),
        (
            ["--endpoints", "127.0.0.1:1", "--trace"],
            (
                "--trace and --endpoints cannot be used together\n"
                "hint: traces are written over name servers only"
            ),
        ),
    ],
)
def test_a_refused_option_says_what_to_do_instead(capsys, arguments, error):
    assert run(["consume", "T", "-g", "g", *arguments]) == 2
    assert capsys.readouterr() == ("", f"error: {error}\n")


def test_a_topic_that_is_not_there_ends_it_before_it_joins(rmq_cluster, capsys):
    heartbeats = rmq_cluster.faults.observe(code=int(RequestCode.HEART_BEAT))
    topic = rmq_cluster.create_topic("T")
    arguments = [topic, "Nope", "-g", "g", "-n", rmq_cluster.namesrv]
    assert run(["consume", *arguments]) == 3
    err = capsys.readouterr().err
    assert "Nope" in err
    assert "hint: list topics with: rmq topics" in err
    assert heartbeats.seen == 0


@pytest.mark.parametrize("like", ["5.5.0", "4.9.7"])
def test_a_group_that_no_client_may_create_ends_it_before_it_joins(
    rmq_cluster_factory, capsys, like
):
    """It waited in a group that does not exist, and ended with 0."""
    settings = {"auto_create_subscription_group": False}
    cluster = rmq_cluster_factory(settings=settings, like=like)
    heartbeats = cluster.faults.observe(code=int(RequestCode.HEART_BEAT))
    cluster.create_topic("T")
    cluster.send("T", ["a"])
    arguments = ["consume", "T", "-g", "g", "-n", cluster.namesrv]
    arguments += ["--from", "earliest", "--for", "30s"]
    assert run(arguments) == 3
    assert capsys.readouterr().err == (
        "error: group g does not exist; clients cannot create groups at broker-a\n"
        "hint: create it with: rmq group create g\n"
    )
    assert heartbeats.seen == 0

    assert run(["group", "create", "g", "--yes", "-n", cluster.namesrv]) == 0
    capsys.readouterr()
    assert run([*arguments, "--count", "1", "-o", "raw"]) == 0
    assert capsys.readouterr().out == "a\n"


@pytest.mark.parametrize("like", ["5.5.0", "4.9.7"])
def test_a_group_without_retry_queues_is_warned_of(rmq_cluster_factory, capsys, like):
    """The broker confirms a message that is sent back, and stores nothing."""
    cluster = rmq_cluster_factory(like=like)
    cluster.create_topic("T")
    cluster.create_group("g", retry_queue_nums=0)
    arguments = ["consume", "T", "-g", "g", "-n", cluster.namesrv, "--for", "1ms"]
    assert run(arguments) == 0
    assert (
        "warning: messages that fail are lost: group g has no retry queue at broker-a"
    ) in capsys.readouterr().err

    assert run([*arguments, "--orderly"]) == 0
    assert "are lost" not in capsys.readouterr().err


def test_a_topic_that_nobody_may_read_ends_it_and_the_remedy_works(rmq_cluster, capsys):
    """Brokers up to 4.9 create dead letter topics like this."""
    topic = rmq_cluster.create_topic("%DLQ%g", perm=2)
    where = ["-n", rmq_cluster.namesrv]
    assert run(["consume", topic, "-g", "g", *where]) == 1
    assert capsys.readouterr().err == (
        "error: topic %DLQ%g has no readable queue\n"
        "hint: make it readable: rmq topic update %DLQ%g --perm rw --broker broker-a\n"
    )
    assert run(["topic", "update", "%DLQ%g", "--perm", "rw", *where]) == 0
    assert run(["tail", topic, "--no-follow", *where]) == 0


@pytest.mark.slow
def test_nothing_received_because_the_group_is_paused_is_no_success(
    rmq_cluster, capsys
):
    """It ended with 0, as if the topic had nothing; warnings told of failures only."""
    rmq_cluster.create_topic("orders", queues=2)
    rmq_cluster.create_group("billing", consume_enable=False)
    rmq_cluster.send("orders", ["x"] * 4)
    words = ["consume", "orders", "-g", "billing", "--for", "2s"]
    assert run([*words, "-n", rmq_cluster.namesrv]) == 6
    err = capsys.readouterr().err
    assert "error: nothing could be received from broker-a: " in err


def test_a_name_server_that_is_away_is_told_of(capsys):
    assert run(["consume", "T", "-g", "g", "-n", "127.0.0.1:1"]) == 5
    assert "127.0.0.1:1" in capsys.readouterr().err


def test_sql_that_the_broker_has_off_names_the_setting(rmq_cluster_factory, capsys):
    cluster = rmq_cluster_factory(settings={"enable_property_filter": False})
    topic = cluster.create_topic("T")
    arguments = [topic, "-g", "g", "-n", cluster.namesrv, "--sql", "a > 5"]
    assert run(["consume", *arguments]) == 1
    assert "enablePropertyFilter=true" in capsys.readouterr().err


def test_help_imports_no_engine():
    code, modules = modules_after(["consume", "--help"])
    assert code == 0
    assert not {name for name in modules if name.startswith("rmqcli.engine")}
    assert not {name for name in modules if name.startswith("rmqcli.consumer")}


def options_of(**typed):
    return ConsumeOptions(topics=["T"], group="g", **typed)


@pytest.mark.parametrize(
    ("typed", "threads"),
    [
        ({}, 1),
        ({"exec_": "true"}, 4),
        ({"exec_": "true", "count": 5}, 1),
        ({"exec_": "true", "count": 5, "threads": 8}, 8),
        ({"threads": 2}, 2),
    ],
)
def test_commands_get_more_threads_unless_their_number_is_limited(typed, threads):
    assert config_of(options_of(**typed)).consume_threads == threads


@pytest.mark.parametrize(
    ("typed", "batch"),
    [
        ({}, 32),
        ({"orderly": True}, 1),
        ({"count": 5}, 1),
        ({"exec_": "true"}, 1),
        ({"exec_": "true", "batch": 7}, 7),
    ],
)
def test_lines_are_written_together_where_nothing_speaks_against_it(typed, batch):
    assert config_of(options_of(**typed)).consume_message_batch_max_size == batch


@pytest.mark.parametrize(
    ("typed", "timeout_ms"),
    [
        ({}, 900_000),
        ({"exec_": "true"}, 960_000),
        ({"exec_": "true", "exec_timeout": 1_000}, 900_000),
        ({"exec_": "true", "exec_timeout": None}, 86_400_000),
    ],
)
def test_a_message_is_not_sent_back_while_its_command_may_run(typed, timeout_ms):
    assert config_of(options_of(**typed)).consume_timeout_ms == timeout_ms


def test_a_topic_that_is_given_twice_is_consumed_once():
    options = ConsumeOptions(topics=["b", "a", "b"], group="g")
    assert options.topic_names == ("b", "a")


def test_no_failures_max_is_written_as_0():
    assert options_of().failures_max == 20
    assert options_of(max_failures=0).failures_max is None
