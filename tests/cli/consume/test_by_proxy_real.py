"""`rmq consume --endpoints` through a real proxy: same records and same text."""

from __future__ import annotations

import json
import uuid

import pytest

from rmqcli import Admin
from rmqcli.cli.main import run
from tests.kit.waiting import PATIENCE_S

pytestmark = [
    pytest.mark.java,
    pytest.mark.rmq_versions("5.3.3", "5.5.0"),
    pytest.mark.real_only,
]


@pytest.fixture
def proxy(local_proxy):
    return local_proxy


@pytest.fixture
def group(proxy):
    """A group whose messages are delivered at most twice."""
    name = f"g-{uuid.uuid4().hex[:12]}"
    with Admin(namesrv=proxy.namesrv) as admin:
        admin.create_group(name, retry_max_times=1)
    return name


@pytest.fixture
def rmq(proxy, capfd):
    """Runs a command through the proxy; returns stdout and stderr."""

    def run_it(*arguments, code=0):
        capfd.readouterr()
        flags = ["--endpoints", proxy.endpoints, "--plaintext"]
        assert run([*arguments, *flags]) == code
        return capfd.readouterr()

    return run_it


def test_what_was_sent_is_printed_once(proxy, group, rmq):
    topic = proxy.create_topic()
    rmq("send", topic, "hello", "--tag", "A", "--key", "k", "--count", "20")
    seen = []
    for count in ("7", "13"):
        out, _ = rmq("consume", topic, "-g", group, "--count", count, "-o", "jsonl")
        seen += [json.loads(line) for line in out.splitlines()]
    assert len({each["msg_id"] for each in seen}) == 20
    record = seen[0]
    assert (record["topic"], record["body"]) == (topic, "hello")
    assert (record["tags"], record["keys"]) == ("A", "k")
    assert record["queue_offset"] is not None
    assert record["store_timestamp"] is not None
    assert record["properties"]["TAGS"] == "A"
    for name in ("commit_log_offset", "offset_msg_id", "flag", "store_bytes"):
        assert record[name] is None


def test_failures_are_retries_and_then_dead_letters(proxy, group, rmq):
    topic = proxy.create_topic()
    rmq("send", topic, "bad")
    flags = ["-g", group, "--exec", "false", "--max-failures", "2"]
    _, err = rmq("consume", topic, *flags, code=1)
    assert "the command ended with exit status 1; retry 1 of 1 follows" in err
    assert f"dead letter in %DLQ%{group}" in err
    assert "0 consumed; 2 failed: 1 retry, 1 dead letter" in err


def test_no_more_are_received_than_are_consumed(proxy, rmq):
    """A message that is given back has failed once: these became dead letters."""
    topic, group = proxy.create_topic(), f"g-{uuid.uuid4().hex[:12]}"
    with Admin(namesrv=proxy.namesrv) as admin:
        admin.create_group(group, retry_max_times=0)
    rmq("send", topic, "hello", "--count", "10")
    for count in (1, 9):
        limits = ["--count", str(count), "--for", f"{PATIENCE_S}s"]
        out, _ = rmq("consume", topic, "-g", group, *limits, "-o", "raw")
        assert out == "hello\n" * count


@pytest.mark.rmq_versions("5.5.0")
def test_a_group_that_is_not_there(proxy, rmq):
    """Behind a proxy of 5.3.3 the broker creates it."""
    topic = proxy.create_topic()
    _, err = rmq("consume", topic, "-g", "no-such-group", code=3)
    assert "group no-such-group does not exist" in err
    assert "hint: create it with rmq group create" in err


def test_sql_that_cannot_be_read_is_a_usage_error(proxy, group, rmq):
    topic = proxy.create_topic()
    _, err = rmq("consume", topic, "-g", group, "--sql", "amount >", code=2)
    assert "parse the consumer's subscription failed" in err
    assert "joined" not in err
