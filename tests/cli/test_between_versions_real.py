"""What `rmq` moves from a real 4.6.0 to a real 5.5.0: messages and definitions."""

from __future__ import annotations

import json
import uuid
from functools import partial

import pytest

from rmqcli import Admin, Producer, ProducerMessage
from rmqcli.api.calls.offset import update_consumer_offset
from rmqcli.cli.main import run
from tests.admin.dlq.letters import client_of
from tests.copy.copying import stored
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.java


@pytest.fixture(scope="module")
def old(start_shared):
    return start_shared("4.6.0")


@pytest.fixture(scope="module")
def new(start_shared):
    return start_shared("5.5.0")


@pytest.fixture
def rmq(capsys):
    """Run `rmq` on a cluster; return its exit code, its JSON, and stderr."""

    def run_it(cluster, *words):
        capsys.readouterr()
        code = run([*map(str, words), "-n", cluster.namesrv, "-o", "json"])
        out, err = capsys.readouterr()
        return code, json.loads(out) if out else None, err

    return run_it


def test_a_topic_is_copied_to_the_new_version_and_its_group_goes_on(
    old, new, rmq, tmp_path
):
    topic, group = (f"{kind}-{uuid.uuid4().hex[:12]}" for kind in "tg")
    for cluster in (old, new):
        cluster.create_topic(topic, queues=2)
        with Admin(namesrv=cluster.namesrv) as admin:
            admin.create_group(group)
    with Producer(namesrv=old.namesrv) as producer:
        for number in range(20):
            producer.send(
                ProducerMessage(
                    topic,
                    f"{number}".encode(),
                    tags="even" if number % 2 == 0 else "odd",
                    keys=[f"k{number}"],
                    properties={"n": str(number)},
                )
            )
    wait_until(lambda: sum(map(len, stored(old, topic).values())) == 20)
    with client_of(old, timeout_ms=30_000) as client:
        for queue_id, offset in ((0, 3), (1, 0)):
            call = update_consumer_offset(group, topic, queue_id, commit_offset=offset)
            client.invoke(old.broker_address(), call)
    words = ["copy", topic, topic, "--to-namesrv", new.namesrv, "--groups", group]
    words += ["--log", tmp_path / "log", "--execute", "--yes"]
    code, result, err = rmq(old, *words)
    assert (code, result["copied"], result["unread"]) == (0, 20, []), err
    wait_until(lambda: sum(map(len, stored(new, topic).values())) == 20)
    assert stored(new, topic) == stored(old, topic)
    with Admin(namesrv=new.namesrv) as admin:
        lag = admin.lag(group)
    assert {q.queue_id: q.committed for q in lag.queues} == {0: 3, 1: 0}
    assert lag.total_lag == 17
    with Admin(namesrv=new.namesrv) as admin:
        (found,) = wait_until(lambda: admin.messages_by_key(topic, "k7"))
    assert (found.body, found.tags, found.properties["n"]) == (b"7", "odd", "7")


def test_definitions_of_the_old_version_are_applied_to_the_new_one(
    old, new, rmq, tmp_path
):
    topic, group = (f"{kind}-{uuid.uuid4().hex[:12]}" for kind in "tg")
    old.create_topic(topic, queues=3, perm=4)
    words = ["group", "create", group, "--max-retries", "3", "--no-broadcast"]
    assert rmq(old, *words)[0] == 0
    file, back = tmp_path / "old.json", tmp_path / "new.json"
    definitions = partial(rmq, new, "definitions")
    assert rmq(old, "definitions", "export", "--out", file)[0] == 0
    code, rows, _ = definitions("diff", file)
    changes = {(row["change"], row["name"]) for row in rows}
    assert (code, {("create", topic), ("create", group)} <= changes) == (1, True)
    code, rows, err = definitions("apply", file, "--yes")
    assert (code, {row["result"] for row in rows}) == (0, {"created"}), err
    assert definitions("diff", file)[:2] == (0, [])
    assert definitions("export", "--out", back)[0] == 0
    data = json.loads(back.read_text())
    (found,) = (each for each in data["topics"] if each["name"] == topic)
    assert (found["read_queue_nums"], found["perm"]) == (3, "r")
    (found,) = (each for each in data["groups"] if each["name"] == group)
    assert (found["retry_max_times"], found["consume_broadcast_enable"]) == (3, False)
    # What only the new version has is at its default, and nothing differs back there.
    assert rmq(old, "definitions", "diff", back)[:2] == (0, [])
