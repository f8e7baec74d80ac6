"""Brokers that deny every request, or those about one group and its topics.

Exit code 4 says that the rights do not suffice, and 6 that only a part is known.
"""

from __future__ import annotations

import pytest

from rmqcli.broker import faults
from rmqcli.testing import EmbeddedCluster
from tests.cli.test_one_cause import ASKING, CHECKS, GOING_ON, say

__all__ = ["say"]  # the fixture

#: What no denial decides: the name, what is asked of name servers, and what goes on.
_NOT_DECIDED = {
    "acl config": "it is of brokers before 5.3",
    "broker config diff": "it compares two servers",
    "broker clean-unused-topics": "it asks for a confirmation before it asks brokers",
    "consume T --group G": "it goes on trying until a broker accepts its heartbeat",
    "lag --watch 1s": "it goes on",
    "doctor": "its exit code is that of its worst finding",
    "sql 'select * from T'": "it starts Spark",
    "bench produce T --count 1": "it goes on after errors",
    "bench consume T --group G --count 1": "it goes on as consume does",
    "bench latency T --count 1": "it goes on as consume does",
}
DENIED = [command for command in (*ASKING, *GOING_ON) if command not in _NOT_DECIDED]
#: What is asked of group G and topic T alone.
OF_ONE = (
    "lag G",
    "topic show T",
    "group members G",
    "group stack G",
    "group delete G --remove-offsets --yes",
    "tail T --from earliest --to latest",
    "copy T U",
    "copy T U --execute",
    "message show T@broker-a:0:0",
    "message find T --key k",
    "message find T --grep a",
    "producers T",
    "reset-offset G T --to earliest",
    "dlq show G",
    "dlq redrive G",
    "dlq redrive G --execute --yes",
    "dlq export G --to-jsonl letters.jsonl",
    "retry show G",
    "retry flush G",
    "retry flush G --execute --yes",
    "export T --to-parquet out --from earliest --to latest",
)
#: What brokers tell of other groups is shown, and this one is missing.
PARTLY = ("groups", "cluster", "lag", "group show G", "dlq list")


@pytest.fixture(scope="module", params=[1, 2], ids=["one broker", "two brokers"])
def closed(request):
    """Brokers that answer each request with NO_PERMISSION."""
    with EmbeddedCluster(brokers=request.param) as cluster:
        for topic in ("T", "U", "%DLQ%G", "%RETRY%G", "RMQ_SYS_TRACE_TOPIC"):
            cluster.create_topic(topic)
        cluster.create_group("G")
        for number in range(request.param):
            name = f"broker-{'ab'[number]}"
            cluster.faults.add(faults.answer(16, "no rights"), broker=name)
        yield cluster


@pytest.fixture(scope="module")
def half_open():
    """A broker that denies all that is about group G and topic T."""
    with EmbeddedCluster() as cluster:
        for topic in ("T", "U", "%DLQ%G", "%RETRY%G"):
            cluster.create_topic(topic)
        for group in ("G", "H"):
            cluster.create_group(group)
        denied = faults.answer(16, "no rights")
        for topic in ("T", "%DLQ%G", "%RETRY%G"):
            cluster.faults.add(denied, topic=topic, broker="broker-a")
        cluster.faults.add(denied, group="G", broker="broker-a")
        yield cluster


@pytest.mark.parametrize("command", DENIED)
def test_what_all_brokers_deny_is_denied_and_not_partial(closed, say, command):
    errors, code, _ = say(command, closed.namesrv)
    assert (len(errors), "no rights" in errors[0], code) == (1, True, 4)


@pytest.mark.parametrize("command", CHECKS)
def test_a_check_that_all_brokers_deny_is_not_ok(closed, say, command):
    errors, code, out = say(command, closed.namesrv)
    assert errors == []
    # A broker that does not say how full its disk is may have none left.
    assert code == (2 if command.startswith("check broker") else 3)
    assert "no rights" in out


@pytest.mark.parametrize("command", OF_ONE)
def test_what_all_brokers_deny_of_one_name_is_denied(half_open, say, command):
    errors, code, _ = say(command, half_open.namesrv)
    assert (len(errors), "no rights" in errors[0], code) == (1, True, 4)


@pytest.mark.parametrize("command", PARTLY)
def test_what_is_denied_of_one_name_among_others_is_partial(half_open, say, command):
    errors, code, out = say(command, half_open.namesrv)
    assert (code, out != "") == (6, True)
    assert errors or command == "lag"  # which warns
