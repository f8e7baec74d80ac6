"""`rmq topic show` and `rmq tail` through a real proxy."""

from __future__ import annotations

import json
import uuid

import pytest

from rmqcli import Admin
from rmqcli.cli.main import run

pytestmark = [
    pytest.mark.java,
    pytest.mark.rmq_versions("5.5.0"),
    pytest.mark.real_only,
]


@pytest.fixture
def proxy(local_proxy):
    return local_proxy


@pytest.fixture
def rmq(proxy, capfd, monkeypatch):
    """Runs a command through the proxy; returns stdout and stderr."""
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)

    def run_it(*arguments, code=0):
        capfd.readouterr()
        flags = ["--endpoints", proxy.endpoints, "--plaintext"]
        assert run([*arguments, *flags]) == code
        return capfd.readouterr()

    return run_it


def test_a_topic_s_route(proxy, rmq):
    topic = proxy.create_topic(queues=3, attributes="+message.type=FIFO")
    found = json.loads(rmq("topic", "show", topic, "-o", "json").out)
    assert (found["message_type"], found["groups"]) == ("FIFO", None)
    (broker,) = found["brokers"]
    assert (broker["read_queue_nums"], broker["perm"]) == (3, "rw")
    assert [each["queue_id"] for each in found["queues"]] == [0, 1, 2]
    assert {each["max_offset"] for each in found["queues"]} == {None}


def test_tail_consumes_for_a_group_what_it_shows(proxy, rmq):
    topic, group = proxy.create_topic(), f"g-{uuid.uuid4().hex[:12]}"
    with Admin(namesrv=proxy.namesrv) as admin:
        admin.create_group(group)
    rmq("send", topic, "hello", "--count", "5")
    words = ["tail", topic, "-g", group, "-o", "raw"]
    out, err = rmq(*words, "--count", "3")
    assert out == "hello\n" * 3
    assert err.endswith("3 shown, 3 acknowledged\n")
    # The first tail gave back the messages that it received but did not show.
    assert rmq(*words, "--count", "2").out == "hello\n" * 2


def test_tail_without_a_group_is_refused(proxy, rmq):
    assert "tail needs --group" in rmq("tail", proxy.create_topic(), code=2).err


def test_tail_says_how_to_create_a_group_that_is_missing(proxy, rmq):
    _, err = rmq("tail", proxy.create_topic(), "-g", "no-such-group", code=3)
    assert "hint: create it with rmq group create" in err
