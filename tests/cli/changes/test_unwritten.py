"""A change whose result stdout has no room for is reported on stderr."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rmqcli import Admin
from rmqcli.testing import faults
from rmqcli.wire.codes import RequestCode
from tests.admin.dlq.letters import kill, make_letters
from tests.kit.documents import ROOT
from tests.kit.waiting import PATIENCE_S

pytestmark = pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="no device that is full"
)
FULL = (
    "warning: cannot write the output: no space left on device; the result of the"
    " change is this:\n"
)


@pytest.fixture
def cluster(rmq_cluster_factory, tmp_path, monkeypatch):
    """A cluster with what each of the commands below changes."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    cluster = rmq_cluster_factory(settings={"authentication_enabled": True})
    cluster.create_topic("orders", queues=1)
    cluster.create_group("billing")
    cluster.create_topic("%DLQ%billing", queues=1)
    sent = make_letters(cluster, "billing", "orders", "ab")
    kill(cluster, "billing", "orders", sent, delay_level=18)
    topic = {"name": "steps", "read_queue_nums": 4, "write_queue_nums": 4}
    header = {"format": "rmq-definitions", "format_version": 1}
    file = {**header, "topics": [topic], "groups": []}
    (tmp_path / "file.json").write_text(json.dumps(file))
    (tmp_path / "password").write_text("correct horse")
    (tmp_path / "password").chmod(0o600)
    return cluster


def run(cluster, folder, *words):
    """Run `rmq` with stdout on a full disk; return its exit code and its stderr."""
    typed = [str(folder / w) if (folder / w).exists() else w for w in words]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "rmqcli", *typed, "-n", cluster.namesrv],
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    return done.returncode, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("output", ["table", "json", "jsonl", "csv"])
@pytest.mark.parametrize("quiet", [[], ["-q"]])
def test_a_change_that_was_made_is_told_on_stderr(cluster, tmp_path, output, quiet):
    """The error named the disk alone, as if nothing had been changed."""
    code, err = run(cluster, tmp_path, "topic", "create", "new", "-o", output, *quiet)
    assert code == 1
    with Admin(namesrv=cluster.namesrv) as admin:
        assert "new" in {topic.topic for topic in admin.topics().topics}
    before, found, after = err.partition(FULL)
    assert (before, found) == ("", FULL)
    assert "broker-a" in after
    assert "created" in after
    assert after.count("cannot write the output: no space left on device") == 1


@pytest.mark.slow
@pytest.mark.parametrize("output", ["table", "json"])
@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("reset-offset billing orders --to latest --execute", "CONFIRMED"),
        ("topic update orders --perm r", "changed"),
        ("broker drain broker-a --no-wait", "changed"),
        ("group pause billing", "changed"),
        ("definitions apply file.json", "created"),
        ("acl user create bob --password-file password", "created"),
        ("dlq redrive billing --execute", "sent"),
        ("retry flush billing --execute", "sent"),
    ],
)
def test_each_command_tells_what_it_changed(cluster, tmp_path, words, told, output):
    code, err = run(cluster, tmp_path, *words.split(), "--yes", "-o", output)
    assert code == 1
    _, found, after = err.partition(FULL)
    assert found, err
    assert told in after
    assert after.count("cannot write the output: no space left on device") == 1


def test_a_change_that_one_broker_refused_keeps_its_exit_code(
    rmq_cluster_factory, tmp_path
):
    cluster = rmq_cluster_factory(brokers=2)
    code = RequestCode.UPDATE_AND_CREATE_TOPIC
    cluster.faults.add(faults.answer(1, "no"), code=code, broker="broker-b")
    code, err = run(cluster, tmp_path, "topic", "create", "new", "-o", "json")
    assert code == 6
    assert '"result":"created"' in err
    assert '"result":"failed"' in err
    assert "1 of 2 servers failed" in err
