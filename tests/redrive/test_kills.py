"""A redrive that is killed anywhere and started again loses no letter.

At most one batch is sent twice, and its letters are named before.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqcli import Admin
from rmqcli.admin.dlq.log import LetterPlace, LockedFile, RedriveLog, open_log, read_log
from rmqcli.admin.dlq.read import LetterReader, find_letters
from rmqcli.admin.reset.cluster_identity import identity_of
from rmqcli.admin.tail.filter import TailFilter
from rmqcli.redrive.redrive import RedriveRequest, RedriveRun, plan_redrive
from rmqcli.wire.message.decode import StoredMessage
from tests.admin.dlq.letters import client_of, make_letters

LETTERS = 9
BATCH = 3


class Killed(BaseException):
    """The process ends here."""


class DyingFile(LockedFile):
    """A log on the disk whose process is killed once `left` bytes are written."""

    left: int

    def append(self, data: bytes) -> None:
        super().append(data[: self.left])
        self.left -= len(data)
        if self.left <= 0:
            raise Killed


@pytest.fixture(scope="module")
def letters():
    """An embedded cluster with LETTERS letters of the group billing on two brokers."""
    from rmqcli.broker.cluster.embedded import EmbeddedCluster

    with EmbeddedCluster(brokers=2, queues=1) as cluster:
        cluster.create_topic("orders")
        cluster.create_group("billing")
        make_letters(cluster, "billing", "orders", [f"{n}" for n in range(LETTERS)])
        yield cluster


def sent_to(cluster, topic):
    """How often the letter of each body is in a topic."""
    with Admin(namesrv=cluster.namesrv) as admin:
        return Counter(message.body.decode() for message in admin.read(topic))


def run_until_killed(cluster, path, topic, left, named):
    """One process: plan, and send until `left` bytes of the log are written.

    Add to `named` the letters that the plan says may be sent twice.
    """
    with client_of(cluster) as client:
        identity = identity_of(client.route("%DLQ%billing"))
        request = RedriveRequest(group="billing", filter=TailFilter(), to=topic)
        file = DyingFile(path)
        try:
            file.left = left
            states, batch, length = read_log(path, "billing", identity)
            file.cut(length)
            log = RedriveLog(file, states, batch)
            if not length:
                log.begin("billing", identity, at_ms=0)
            plan = plan_redrive(client, request, log.states)
            named.update(plan.doubtful)
            for _ in RedriveRun(client, plan, log, batch_max=BATCH).batches():
                pass
        finally:
            file.close()


def finish(cluster, path, topic):
    """The process that is not killed; return the letters that may be sent twice."""
    with client_of(cluster) as client:
        identity = identity_of(client.route("%DLQ%billing"))
        request = RedriveRequest(group="billing", filter=TailFilter(), to=topic)
        log = open_log(path, "billing", identity, at_ms=0)
        try:
            plan = plan_redrive(client, request, log.states)
            for _ in RedriveRun(client, plan, log, batch_max=BATCH).batches():
                pass
        finally:
            log.close()
    return plan.doubtful


@pytest.mark.slow
@settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    max_examples=60,
)
@given(left=st.integers(1, 4_000))
def test_nothing_is_lost_and_at_most_one_batch_is_doubled(
    letters, tmp_path_factory, left
):
    path = tmp_path_factory.mktemp("log") / "log.jsonl"
    topic = letters.create_topic(f"T-{path.parent.name}", queues=1)
    with suppress(Killed):
        run_until_killed(letters, path, topic, left, set())
    doubtful = finish(letters, path, topic)
    counts = sent_to(letters, topic)
    assert sorted(counts) == [f"{n}" for n in range(LETTERS)]
    doubled = [body for body, count in counts.items() if count > 1]
    assert len(doubled) <= len(doubtful) <= BATCH
    names = {_name(int(body)) for body in doubled}
    assert names <= set(doubtful)
    assert max(counts.values()) <= 2
    assert finish(letters, path, topic) == ()
    assert sent_to(letters, topic) == counts


def test_the_letters_of_several_kills_are_all_named(letters, tmp_path):
    """Only the first 1,000 were, but each kill can leave another 1,000 in doubt."""
    topic = letters.create_topic("%DLQ%killed", queues=1)
    letters.send(topic, [f"{n}" for n in range(1_100)], broker="broker-a")
    with client_of(letters) as client:
        identity = identity_of(client.route("%DLQ%killed"))
        log = open_log(tmp_path / "log", "killed", identity, at_ms=0)
        request = RedriveRequest(group="killed", filter=TailFilter(), to="orders")
        ranges = find_letters(client, "killed")
        places = [
            LetterPlace("broker-a", 0, each.queue_offset, each.commit_log_offset)
            for _, some in LetterReader(client, ranges, TailFilter())
            for each in some
            if isinstance(each, StoredMessage)
        ]
        log.intend(places[:1_000], at_ms=0)
        log.intend(places[1_000:], at_ms=0)
        log.close()
        plan = plan_redrive(client, request, log.states)
    assert plan.doubtful == tuple(f"broker-a:0:{n}" for n in range(1_100))


def _name(number):
    """The letter of a body: brokers take turns."""
    return f"broker-{'ab'[number % 2]}:0:{number // 2}"


@pytest.mark.slow
@settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    max_examples=20,
)
@given(lefts=st.lists(st.integers(1, 900), min_size=2, max_size=6))
def test_however_often_it_is_killed_each_kill_doubles_one_batch_at_most(
    letters, tmp_path_factory, lefts
):
    path = tmp_path_factory.mktemp("log") / "log.jsonl"
    topic = letters.create_topic(f"T-{path.parent.name}", queues=1)
    named: set[str] = set()
    for left in lefts:
        with suppress(Killed):
            run_until_killed(letters, path, topic, left, named)
    named.update(finish(letters, path, topic))
    counts = sent_to(letters, topic)
    assert sorted(counts) == [f"{n}" for n in range(LETTERS)]
    assert sum(counts.values()) - LETTERS <= BATCH * len(lefts)
    doubled = {_name(int(body)) for body, count in counts.items() if count > 1}
    assert doubled <= named
