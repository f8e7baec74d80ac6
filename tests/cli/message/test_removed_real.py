"""`rmq message` on real brokers: messages that are no longer in their topic."""

from __future__ import annotations

import json
import uuid

import pytest

from rmqcli import Admin, Consumer, Producer, ProducerMessage
from rmqcli.cli.main import run
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.java, pytest.mark.rmq_versions("4.6.0", "5.5.0")]


@pytest.fixture(autouse=True)
def _state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def rmq(real_cluster, capsys):
    def rmq_(*words):
        capsys.readouterr()
        code = run([*words, "-n", real_cluster.namesrv])
        out, err = capsys.readouterr()
        return code, out, " ".join(err.split())

    return rmq_


def test_messages_of_a_topic_that_was_created_again_were_not_consumed(
    real_cluster, rmq
):
    topic, group = (f"{kind}-{uuid.uuid4().hex[:12]}" for kind in "tg")
    seen: list[bytes] = []
    with Admin(namesrv=real_cluster.namesrv) as admin:
        admin.create_topic(topic, queue_nums=1)
        admin.create_group(group)

        def send(*bodies):
            with Producer(namesrv=real_cluster.namesrv) as producer:
                return [
                    producer.send(ProducerMessage(topic, body, keys=("k",)))
                    for body in bodies
                ]

        old = send(b"old1", b"old2", b"old3")
        admin.delete_topic(topic)
        admin.create_topic(topic, queue_nums=1)
        send(b"new1", b"new2")
        with Consumer(
            group,
            topic,
            lambda message: seen.append(message.body),
            consume_from="earliest",
            namesrv=real_cluster.namesrv,
        ):
            wait_until(lambda: {b"new1", b"new2"} <= set(seen), seen)
            show = ("message", "show", "k", "-t", topic, "-g", group, "-o", "json")

            def states():
                rows = json.loads(rmq(*show)[1])
                return [
                    (row["body"], row["stored"]["state"], each["verdict"])
                    for row in rows
                    for each in row["groups"]
                ]

            wait_until(lambda: len(states()) == 5)
            assert states()[:3] == [
                (body.decode(), "removed", "unknown")
                for body in (b"old1", b"old2", b"old3")
            ]
            assert [each[:2] for each in states()[3:]] == [
                ("new1", "stored"),
                ("new2", "stored"),
            ]
            code, out, err = rmq("message", "find", topic, "--key", "k", "-o", "jsonl")
            assert (code, len(out.splitlines())) == (0, 2), err
            assert "3 more messages of the key are not shown" in err
            before = list(seen)
            for ref in (old[0].offset_msg_id, old[0].msg_id):
                code, _, err = rmq(
                    *("message", "resend", ref, "-t", topic, "-g", group, "--yes")
                )
                assert code == 7, err
            assert seen == before
