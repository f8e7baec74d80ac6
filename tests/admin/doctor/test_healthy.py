"""A healthy cluster has no problem: a false alarm is as bad as a missed one."""

from __future__ import annotations

import pytest

from rmqcli.admin.doctor.diagnose import CHECKS, diagnose
from tests.admin.doctor.planting import open_client
from tests.conftest import start_cluster
from tests.consumer.collecting import Seen, consumer
from tests.kit.waiting import wait_until

#: What is a warning on any cluster without accounts.
ALWAYS = {"access-control"}
#: Published vulnerabilities of the versions that are tested.
VULNERABLE = {"4.6.0", "4.9.7"}


def not_ok(diagnosis):
    return {
        result.name: [(str(f.status), f.evidence) for f in result.findings]
        for result in diagnosis.results
        if result.status != "ok"
    }


@pytest.fixture(scope="module")
def healthy():
    """Diagnose a cluster of two brokers with a group that has consumed everything."""
    from rmqcli.testing import EmbeddedCluster

    with EmbeddedCluster(brokers=2) as cluster:
        cluster.create_topic("orders", queues=2)
        cluster.send("orders", ["a", "b", "c", "d"])
        seen = Seen()
        with consumer(cluster, "billing", "orders", seen) as member:
            wait_until(lambda: len(seen.messages) == 4)
            member.commit()
            with open_client(cluster.namesrv) as client:
                yield diagnose(client)


@pytest.mark.parametrize("name", [check.name for check in CHECKS])
def test_a_healthy_embedded_cluster_passes(healthy, name):
    expected = {"access-control": "warning"}
    (result,) = [each for each in healthy.results if each.name == name]
    assert (result.status, result.findings) == (
        (expected[name], result.findings) if name in expected else ("ok", ())
    )


@pytest.mark.parametrize("like", ["4.6.0", "4.9.7", "5.5.0"])
def test_an_empty_cluster_of_each_version_has_no_problem(rmq_cluster_factory, like):
    cluster = rmq_cluster_factory(like=like)
    with open_client(cluster.namesrv) as client:
        found = not_ok(diagnose(client))
    assert found.keys() - {"known-cves"} == ALWAYS
    assert ("known-cves" in found) == (like in VULNERABLE)


@pytest.mark.java
@pytest.mark.real_only
def test_a_healthy_real_cluster_has_no_problem(rmq_version, tmp_path):
    """It has one for itself: others are left with what tests have done to groups."""
    seen = Seen()
    with start_cluster(rmq_version, tmp_path) as cluster:
        topic = cluster.create_topic()
        with (
            consumer(cluster, f"G-{topic}", topic, seen),
            open_client(cluster.namesrv, timeout_ms=30_000) as client,
        ):
            diagnosis = diagnose(client)
    found = not_ok(diagnosis)
    problems = {
        name: each
        for name, each in found.items()
        if any(status == "problem" for status, _ in each)
    }
    assert problems == {}
    assert ("known-cves" in found) == (rmq_version in VULNERABLE)
    assert "access-control" in found
    ours = [
        each
        for result in diagnosis.results
        for each in result.findings
        if topic in each.subject or topic in each.evidence
    ]
    assert ours == []
    assert diagnosis.brokers == ("broker-a",)
