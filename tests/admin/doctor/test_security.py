"""Each check of security finds what is open, by version and settings."""

from __future__ import annotations

import pytest

from rmqcli.admin.doctor.checks.security import VULNERABILITIES, parse_version
from tests.admin.doctor.planting import (
    findings,
    only_finding,
    plant_runtime,
    plant_settings,
)
from tests.kit.rows import each_row


@each_row(
    ("version", "names", "fixed"),
    [
        ("4.2.0", "33246 37582 17572", "4.9.7"),
        ("4.5.2", "33246 37582 23321 17572", "5.3.0"),
        ("4.6.0", "33246 37582 23321 17572", "5.3.0"),
        ("4.6.1", "33246 37582 23321", "5.3.0"),
        ("4.9.5", "33246 37582 23321", "5.3.0"),
        ("4.9.6", "37582 23321", "5.3.0"),
        ("4.9.7", "23321", "5.3.0"),
        ("5.0.0", "33246 37582 23321", "5.3.0"),
        ("5.1.0", "33246 37582 23321", "5.3.0"),
        ("5.1.1", "37582 23321", "5.3.0"),
        ("5.1.2", "23321", "5.3.0"),
        ("5.2.0", "23321", "5.3.0"),
        ("5.3.0", "", None),
        ("5.5.0", "", None),
    ],
)
def test_which_versions_have_which_vulnerabilities(version, names, fixed):
    numbers = parse_version(version)
    assert numbers is not None
    fixes = {v.name.split("-")[2]: v.fix_for(numbers) for v in VULNERABILITIES}
    found = {name for name, fix in fixes.items() if fix is not None}
    assert found == set(names.split())
    newest = max((fix for fix in fixes.values() if fix), default=None)
    assert (newest and ".".join(map(str, newest))) == fixed


def test_a_vulnerable_cluster_is_told_what_to_upgrade_to(rmq_cluster_factory):
    cluster = rmq_cluster_factory(like="4.9.7")
    (broker,) = findings(cluster.namesrv, "known-cves")
    assert (str(broker.status), broker.subject) == ("warning", "broker-a")
    assert "RocketMQ 4.9.7, which has CVE-2024-23321" in broker.evidence
    assert "5.3.0 or later" in broker.meaning


def test_a_vulnerable_name_server_is_found(rmq_cluster_factory):
    cluster = rmq_cluster_factory(like="4.6.0")
    found = {f.subject: f for f in findings(cluster.namesrv, "known-cves")}
    assert found.keys() == {"broker-a", cluster.namesrv}
    assert "CVE-2023-37582" in found[cluster.namesrv].evidence
    assert "CVE-2023-37582" not in found["broker-a"].evidence
    # A list of brokers does not show name servers.
    assert {name: each.command for name, each in found.items()} == {
        "broker-a": "rmq brokers",
        cluster.namesrv: f"rmq nameserver config get -n {cluster.namesrv}",
    }


@pytest.mark.parametrize("text", ["", "strange", "5", "5.1"])
def test_a_version_that_cannot_be_read_is_unknown(rmq_cluster, text):
    plant_runtime(rmq_cluster, brokerVersionDesc=text)
    assert only_finding(rmq_cluster, "known-cves")[:2] == ("unknown", "broker-a")
    assert only_finding(rmq_cluster, "access-control")[0] == "unknown"


@pytest.mark.parametrize(
    ("version", "settings", "evidence"),
    [
        ("V4_9_7", {"aclEnable": "false"}, "it asks for no account: aclEnable"),
        ("V4_9_7", {"aclEnable": "true"}, None),
        ("V5_3_2", {"aclEnable": "true"}, None),
        ("V5_3_3", {"aclEnable": "true"}, "aclEnable is true, which has no effect"),
        ("V5_5_0", {}, "it asks for no account: authenticationEnabled is not true"),
        (
            "V5_5_0",
            {"authenticationEnabled": "true", "authorizationEnabled": "false"},
            "authenticationEnabled is true, and authorizationEnabled false",
        ),
        (
            "V5_5_0",
            {"authenticationEnabled": "true", "authorizationEnabled": "true"},
            None,
        ),
        # Rights without accounts are checked for nobody.
        ("V5_5_0", {"authorizationEnabled": "true"}, "it asks for no account"),
    ],
)
def test_access_control_by_version_and_settings(
    rmq_cluster, version, settings, evidence
):
    plant_runtime(rmq_cluster, brokerVersionDesc=version)
    plant_settings(rmq_cluster, **settings)
    found = findings(rmq_cluster.namesrv, "access-control")
    if evidence is None:
        assert found == []
    else:
        assert [str(f.status) for f in found] == ["warning"]
        assert found[0].evidence.startswith(evidence)


def test_plaintext_over_a_network_is_found_and_on_loopback_is_not(
    rmq_cluster_factory,
):
    cluster = rmq_cluster_factory()
    assert findings(cluster.namesrv, "encryption") == []
    port = cluster.broker().address.rpartition(":")[2]
    far = rmq_cluster_factory(settings={"address": f"rmq.example:{port}"})
    mapped = {f"rmq.example:{port}": far_address(far)}
    status, _, evidence = only_finding(far, "encryption", address_map=mapped)
    assert status == "warning"
    assert evidence == f"it answers at rmq.example:{port} without TLS"


def far_address(cluster):
    """Where the broker listens, whatever it advertises."""
    (port,) = cluster.broker()._port.numbers
    return f"127.0.0.1:{port}"
