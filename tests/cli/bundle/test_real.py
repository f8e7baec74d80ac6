"""`rmq bundle` of a real cluster: it is complete, with settings of all servers."""

from __future__ import annotations

import json
import tarfile

import pytest

from rmqcli.cli.main import run

pytestmark = pytest.mark.java


def test_the_archive_is_complete(real_cluster, tmp_path, capsys):
    real_cluster.create_topic("bundled", queues=2)
    path = tmp_path / "b.tar.gz"
    words = ["bundle", "--out", str(path), "-n", real_cluster.namesrv, "-o", "json"]
    code = run(words)
    shown = json.loads(capsys.readouterr().out)
    # 4.6.0 lists producers of a given group only.
    is_old = real_cluster.version == "4.6.0"
    with tarfile.open(path) as archive:
        read = {}
        for member in archive.getmembers():
            file = archive.extractfile(member)
            assert file is not None
            read[member.name.partition("/")[2]] = json.load(file)
    # A 4.6.0 that has just started does not report its disk, and what other tests
    # leave in the cluster they share may keep a check from being made.
    findings = [
        each for check in read["doctor.json"]["checks"] for each in check["findings"]
    ]
    doctor = ["doctor.json"] if "unknown" in [e["status"] for e in findings] else []
    partial = [each["file"] for each in shown["files"] if each["status"] != "ok"]
    assert partial == doctor + (["producers.json"] if is_old else [])
    assert code == (6 if partial else 0)
    (server,) = read["name-servers.json"]
    assert server["settings"]["listenPort"] == real_cluster.namesrv.partition(":")[2]
    (broker,) = read["brokers.json"]
    assert broker["settings"]["brokerName"] == broker["broker_name"]
    assert "bundled" in [each["topicName"] for each in read["topics.json"]]
    (without,) = read["accounts.json"]["without"]
    assert without == (
        "access control 2.0 needs RocketMQ 5.3.0, and broker-a has 4.6.0"
        if is_old
        else "access control is off: authenticationMetadataProvider is not set"
    )
    routes = {each["topic"]: each for each in read["routes.json"]}
    assert routes["bundled"]["queues"][0]["read_queue_nums"] == 2
