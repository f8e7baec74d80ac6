"""A log is not continued with topics that are no longer those that it is about.

A cluster that was wiped and started again at the same addresses has the same brokers,
topics and queues; only the messages are others.
"""

from __future__ import annotations

import pytest

from rmqcli.copy.log import open_copy_log
from rmqcli.errors import ConfigError, RefusedError
from rmqcli.model import MessageQueue
from rmqcli.testing import faults
from rmqcli.wire.codes import RequestCode
from tests.copy.copying import copied, prepared, stored
from tests.kit.wiped import wiped

#: 10 messages go to 2 queues.
FIRST = [b"first-%02d" % number for number in range(10)]


@pytest.fixture
def log(tmp_path):
    return tmp_path / "copy.jsonl"


@pytest.fixture
def start(rmq_cluster_factory):
    """`start(topic)` starts a cluster; `start(topic, old)` in the place of another."""

    def call(topic, old=None):
        if old is None:
            cluster = rmq_cluster_factory()
        else:
            cluster = wiped(old, rmq_cluster_factory)
        cluster.create_topic(topic, queues=2)
        return cluster

    return call


@pytest.mark.parametrize(
    ("count", "error"),
    [
        (8, r"src@broker-a:0 ends at 4, but the log has read up to 5: the topic was"),
        (10, r"src@broker-a:0 has another message at offset 4 than the log has read"),
        (14, r"src@broker-a:0 has another message at offset 4 than the log has read"),
    ],
)
def test_a_source_that_was_wiped_is_not_taken_for_the_old_one(start, log, count, error):
    """The first ten messages of the new one counted as copied: they were lost."""
    source, target = start("src"), start("dst")
    source.send("src", FIRST)
    copied(source, target, log)
    source = start("src", source)
    source.send("src", [b"new-%02d" % number for number in range(count)])
    with pytest.raises(RefusedError, match=error) as raised:
        copied(source, target, log)
    assert raised.value.hint == "name another file for the log to begin anew"
    assert sum(map(len, stored(target, "dst").values())) == 10


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "error"),
    [
        (8, r"dst@broker-a:0 ends at 4, but the log has written up to 5: the topic"),
        (10, r"dst@broker-a:0 has another message at offset 4 than the log has writ"),
        (14, r"dst@broker-a:0 has another message at offset 4 than the log has writ"),
    ],
)
def test_a_target_that_was_wiped_is_not_called_complete(start, log, count, error):
    source, target = start("src"), start("dst")
    source.send("src", FIRST)
    copied(source, target, log)
    target = start("dst", target)
    target.send("dst", [b"new-%02d" % number for number in range(count)])
    with pytest.raises(RefusedError, match=error):
        copied(source, target, log)


def test_a_source_of_which_the_filter_chose_nothing_is_recognized_too(start, log):
    """Its broker sends none of the messages that the filter leaves out."""
    source, target = start("src"), start("dst")
    source.send("src", FIRST)
    assert copied(source, target, log, tag="wanted").copied == 0
    assert copied(source, target, log, tag="wanted").copied == 0
    source = start("src", source)
    source.send("src", FIRST, tags="wanted")
    with pytest.raises(RefusedError, match="another message at offset 4"):
        copied(source, target, log, tag="wanted")


def test_a_source_whose_first_batch_was_refused_is_recognized_too(start, log):
    """Nothing is copied of its second queue, and a part of the first one."""
    source, target = start("src"), start("dst")
    source.send("src", FIRST)
    target.faults.add(
        faults.answer(1, "disk is full"), code=RequestCode.SEND_BATCH_MESSAGE, times=1
    )
    assert copied(source, target, log).copied == 5
    source = start("src", source)
    source.send("src", FIRST)
    with pytest.raises(RefusedError, match="another message at offset 4"):
        copied(source, target, log)


def test_a_slave_that_is_behind_is_not_called_another_topic(start, log):
    source, target = start("src"), start("dst")
    source.send("src", FIRST)
    source.add_slave(behind=2)
    copied(source, target, log)
    source.broker().kill()
    with prepared(source, target, log) as run:
        error = run.plan.unread[MessageQueue("src", "broker-a", 1)]
    assert error.message == (
        "src@broker-a:1 ends at 3, but the log has read up to 5: it is read from a"
        " slave, which may be behind"
    )


@pytest.mark.parametrize("more", [0, 4])
def test_messages_that_were_deleted_after_they_were_copied_do_no_harm(start, log, more):
    """All that is still stored is copied, but nothing shows that none was missed."""
    source, target = start("src"), start("dst")
    source.send("src", FIRST)
    copied(source, target, log)
    source.send("src", [b"more-%02d" % number for number in range(more)])
    source.broker().trim("src", 5)
    with prepared(source, target, log) as run:
        assert [str(queue) for queue in run.plan.unproven] == [
            "src@broker-a:0",
            "src@broker-a:1",
        ]
        assert (run.plan.count, run.plan.expired) == (more, 0)
        assert sum(run.batches()) == more


def test_another_queue_of_the_broker_shows_that_it_is_the_same(start, log):
    source, target = start("src"), start("dst")
    source.send("src", FIRST)
    source.send("src", [b"longer"], queue_id=1)
    copied(source, target, log)
    source.broker().trim("src", 5)
    with prepared(source, target, log) as run:
        assert run.plan.unproven == ()


def test_a_source_that_is_wiped_while_it_is_followed_ends_the_copy(start, log):
    """It waited until the new one was as long as the old one, and went on there."""
    source, target = start("src"), start("dst")
    source.send("src", FIRST)
    with prepared(source, target, log) as run:
        batches = run.batches(follow=True)
        assert (next(batches), next(batches)) == (10, 0)
        source = start("src", source)
        source.send("src", [b"new-%02d" % number for number in range(14)])
        assert next(batches, None) is None
        assert isinstance(run.report.given_up, RefusedError)
        assert "has another message at offset 4" in run.report.given_up.message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "offset"),
    [(0, 0), (8, 4)],
)
def test_a_target_that_is_wiped_in_the_middle_ends_the_copy(start, log, count, offset):
    """The copies that were gone counted as copied, then and at the next run."""
    source, target = start("src"), start("dst")
    source.send("src", FIRST)
    with prepared(source, target, log) as run:
        batches = run.batches(follow=True)
        assert (next(batches), next(batches)) == (10, 0)
        target = start("dst", target)
        target.send("dst", [b"other-%02d" % number for number in range(count)])
        source.send("src", [b"more-%02d" % number for number in range(2)])
        assert (next(batches), next(batches, None)) == (2, None)
        assert isinstance(run.report.given_up, RefusedError)
        assert run.report.given_up.message == (
            f"dst@broker-a:0 stored a message at offset {offset}, but the log has"
            " written up to 5: the topic was deleted and created again, or its broker"
            " has lost messages"
        )
    with pytest.raises(RefusedError, match="dst@broker-a:0 "):
        copied(source, target, log)


def test_a_log_of_another_version_is_refused(start, log):
    source, target = start("src"), start("dst")
    log.write_text('{"version":1,"source_topic":"src"}\n')
    with pytest.raises(ConfigError, match="version 1 is not 2"):
        copied(source, target, log)


def test_what_the_log_notes_is_one_message_of_each_queue(start, log):
    source, target = start("src"), start("dst")
    source.send("src", FIRST)
    with prepared(source, target, log) as run:
        identity = run.plan.identity
        list(run.batches())
    again = open_copy_log(log, identity, at_ms=0)
    again.close()
    noted = again.state
    assert {key: each.queue_offset for key, each in noted.read.items()} == {
        ("broker-a", 0): 4,
        ("broker-a", 1): 4,
    }
    assert noted.read.keys() == noted.written.keys()
    assert all(each.store_timestamp_ms is None for each in noted.written.values())


def test_a_target_that_counts_late_is_waited_for(start, log):
    """A broker that was restarted has the messages, and counts them a moment later."""
    source, target = start("src"), start("dst")
    source.send("src", FIRST)
    copied(source, target, log)
    source.send("src", [b"more"])
    # For each of the two queues the first time.
    late = faults.answer(0, ext_fields={"offset": "4"})
    code = RequestCode.GET_MAX_OFFSET
    target.faults.add(late, code=code, topic="dst", times=2)
    assert copied(source, target, log).copied == 1
    assert sum(map(len, stored(target, "dst").values())) == 11
