"""Static topics are refused by name, and their numbers are never shown.

Measured on brokers of 5.5.0: the route of a static topic counts the queues that each
broker has, and `topicQueueMappingByBroker` says which of the topic's own queues they
are. The brokers take the topic's numbers in pulls, sends and requests for offsets, and
answer NOT_LEADER_FOR_QUEUE for others; topic statistics, consume stats and the table
of offsets have the broker's numbers. A moved queue continues at offset 10,000 of the
topic when it had 10 messages, its old queue stays in the statistics of its old broker,
and consume stats have -1 where nothing was committed.
"""

from __future__ import annotations

import json

import pytest

from rmqcli.cli.main import run
from tests.kit import raw
from tests.kit.waiting import wait_until

pytestmark = [
    pytest.mark.java,
    pytest.mark.real_only,
    pytest.mark.rmq_versions("5.5.0"),
]

REFUSED = (
    "topic ledger is a static topic, and those are not supported: its queues are mapped"
    " to queues of several brokers"
)
UPDATE_AND_CREATE_STATIC_TOPIC = 513
UPDATE_CONSUMER_OFFSET = 15
SEND_MESSAGE = 10
SENT = {
    "producerGroup": "P",
    "topic": "ledger",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "queueId": "0",
    "sysFlag": "0",
    "bornTimestamp": "1767322800000",
    "flag": "0",
    "properties": "",
}


@pytest.fixture(scope="module")
def cluster(rmq_version, start_shared):
    """Two brokers: queue 0 of the topic is on broker-a, and queue 1 on broker-b.

    Group G has committed 3 of 5 messages of queue 0.
    """
    cluster = start_shared(rmq_version, brokers=2)
    settings = {
        "topic": "ledger",
        "defaultTopic": "TBW102",
        "readQueueNums": "1",
        "writeQueueNums": "1",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
        "force": "true",
    }
    for index in range(2):
        name = cluster.broker_name(index)
        item = {"bname": name, "gen": 0, "queueId": 0, "logicOffset": 0}
        item |= {"startOffset": 0, "endOffset": -1, "timeOfStart": -1, "timeOfEnd": -1}
        mapping = {
            "topic": "ledger",
            "scope": "__global__",
            "totalQueues": 2,
            "bname": name,
            "epoch": 1,
            "hostedQueues": {str(index): [item]},
        }
        code, body = UPDATE_AND_CREATE_STATIC_TOPIC, json.dumps(mapping).encode()
        assert cluster.ask(code, settings, body=body, broker=index).code == 0
    for _ in range(5):
        assert cluster.ask(SEND_MESSAGE, SENT, body=b"paid").code == 0
    assert run(["group", "create", "G", "-n", cluster.namesrv]) == 0
    committed = {"consumerGroup": "G", "topic": "ledger", "queueId": "0"}
    committed["commitOffset"] = "3"
    assert cluster.ask(UPDATE_CONSUMER_OFFSET, committed).code == 0
    route = raw.GET_ROUTEINFO_BY_TOPIC, {"topic": "ledger"}
    wait_until(lambda: b'"currIdMap":{"1"' in raw.ask(cluster.namesrv, *route).body)
    return cluster


@pytest.fixture
def rmq(cluster, capsys):
    """Run `rmq`; return its exit code, its rows, and what it says on stderr."""

    def run_it(*words):
        capsys.readouterr()
        code = run([*words, "-n", cluster.namesrv, "-o", "json"])
        out, err = capsys.readouterr()
        return code, json.loads(out) if out.strip() else None, err

    return run_it


@pytest.mark.parametrize(
    "words",
    [
        "topic show ledger",
        "tail ledger --from earliest --no-follow",
        "consume ledger --group C --for 5s",
        "message find ledger --key k",
        "message show ledger@broker-a:0:0",
        "reset-offset G ledger --to earliest",
        "send ledger hello",
        "topic delete ledger --yes",
    ],
    ids=lambda words: " ".join(words.split()[:2]),
)
def test_a_static_topic_is_refused_in_one_sentence(words, rmq):
    """The commands used the broker's numbers of queues, and left the others out.

    A tail showed half of the messages; a message that the broker had was said not to
    exist, or sent to a queue that its broker did not have.
    """
    code, _, err = rmq(*words.split())

    assert code == 1
    assert REFUSED in err


def test_the_lag_of_a_static_topic_is_unknown(rmq):
    """It was shown by queues that the topic does not have: EXPIRED where one moved."""
    code, groups, _ = rmq("lag", "G")

    assert code == 6
    assert groups[0]["state"] == "UNKNOWN"
    assert groups[0]["total_lag"] is None
    assert groups[0]["queues"][0]["reason"] == REFUSED


def test_the_list_of_topics_says_which_are_static(rmq):
    """The list added up the queues of each broker, also those that had moved away."""
    _, topics, _ = rmq("topics")

    (ledger,) = [row for row in topics if row["topic"] == "ledger"]
    assert ledger["kind"] == "static"
    assert ledger["read_queue_nums"] is None


def test_a_static_topic_keeps_its_queues(cluster, rmq):
    """`topic update --queues` gave each broker queues that the mapping lacks."""
    code, _, err = rmq("topic", "update", "ledger", "--queues", "4")

    assert code == 1
    assert REFUSED in err
    assert b'"writeQueueNums":1' in cluster.ask(351, {"topic": "ledger"}).body


def test_definitions_name_the_static_topics_that_they_leave_out(rmq):
    """They had them as ordinary topics, with the number of queues of one broker."""
    _, file, _ = rmq("definitions", "export", "--only", "topics")

    assert "ledger" not in [topic["name"] for topic in file["topics"]]
    assert file["left_out"] == [
        "on broker-a, static topic ledger",
        "on broker-b, static topic ledger",
    ]


def test_definitions_do_not_overwrite_a_static_topic(cluster, rmq, tmp_path):
    """`definitions apply` gave each broker the queues that the file has."""
    file = tmp_path / "definitions.json"
    topics = [{"name": "ledger", "write_queue_nums": 4, "read_queue_nums": 4}]
    data = {"format": "rmq-definitions", "format_version": 1, "topics": topics}
    file.write_text(json.dumps(data))
    code, (row,), _ = rmq("definitions", "apply", str(file), "--yes")

    assert (code, row["result"], row["error"]) == (6, "skipped", REFUSED)
    assert b'"writeQueueNums":1' in cluster.ask(351, {"topic": "ledger"}).body


def test_an_id_that_is_not_found_may_be_that_of_a_message_in_a_static_topic(rmq):
    """It was said that no broker has such a message."""
    code, _, err = rmq("message", "show", "7F0000010000" + "0" * 20)

    assert code == 6
    assert "static topics are not supported, and not searched: ledger" in err
