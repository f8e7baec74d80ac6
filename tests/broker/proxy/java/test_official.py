"""The official clients of Java, Python and Node.js work with the embedded proxy."""

from __future__ import annotations

import os

import pytest

from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.broker.proxy.options import ProxyOptions
from tests.broker.proxy.lite import CONSUMED, Lite, consumed_by
from tests.kit.artefacts import UnavailableError
from tests.kit.clients.official import run_java_tour, run_node_client, run_python_client

pytestmark = pytest.mark.java


def or_skip(run, *arguments):
    try:
        return run(*arguments)
    except UnavailableError as error:
        if os.environ.get("RMQ_REQUIRE_JAVA"):
            pytest.fail(f"official clients are demanded: {error}")
        pytest.skip(f"no official client: {error}")


@pytest.fixture
def cluster():
    settings = {
        "transaction_timeout_ms": 1_000,
        "transaction_check_interval_ms": 1_000,
        "recall_message_enable": True,
    }
    with EmbeddedCluster(proxy=True, settings=settings) as cluster:
        cluster.create_topic("N", queues=2)
        for topic, kind in (("F", "FIFO"), ("D", "DELAY"), ("X", "TRANSACTION")):
            cluster.create_topic(topic, queues=2, attributes={"message.type": kind})
        cluster.create_group("GO", consume_message_orderly=True)
        yield cluster


def test_java(cluster, tmp_path):
    names = ["N", "F", "D", "X", "GS", "GP", "GO"]
    assert or_skip(run_java_tour, cluster.endpoints, names, tmp_path) == {
        "normal": "n-0,n-1,n-2,n-3,n-4",
        "same-ids": "true",
        "fields": "A k1,k2 blue 1",
        "again": "true 2",
        "recall": "true",
        "delayed": "[kept] true",
        "nothing-else": "true",
        "transactions": "committed,orphan",
        "checked": "orphan",
        "push": "p-0:1,p-1:1,p-1:2,p-2:1",
        "orderly": "o-0,o-1,o-2,o-3,o-4,o-5",
        "end": "reached",
    }


def test_python(cluster, tmp_path):
    found = or_skip(run_python_client, cluster.endpoints, ["N", "GS", "GP"], tmp_path)
    assert found == {
        "simple": "s-0,s-1,s-2,s-3,s-4",
        "push": "p-0,p-1,p-1,p-2",
    }


@pytest.mark.parametrize("who", ["java", "python"])
def test_lite_topics(who, cluster, tmp_path):
    lite = Lite(
        cluster.endpoints,
        lambda name, kind: cluster.create_topic(
            name, attributes={"message.type": kind or "NORMAL"}
        ),
        lambda name, attributes: cluster.create_group(name, attributes=attributes),
        lambda receive: receive(),
    )
    try:
        assert or_skip(consumed_by, who, lite, tmp_path) == CONSUMED
    finally:
        lite.close()


def test_python_with_an_account(tmp_path):
    rights = {"Topic:N": "Pub,Sub", "Group:GS": "Sub", "Group:GP": "Sub"}
    options = ProxyOptions(accounts={"key": "secret"}, rights={"key": rights})
    with EmbeddedCluster(proxy=options) as cluster:
        cluster.create_topic("N", queues=2)
        names = ["N", "GS", "GP", "key", "secret"]
        found = or_skip(run_python_client, cluster.endpoints, names, tmp_path)
    assert found["simple"] == "s-0,s-1,s-2,s-3,s-4"
    assert found["push"] == "p-0,p-1,p-1,p-2"


def test_node(cluster, tmp_path):
    names = ["N", "F", "D", "X", "GS", "GP", "GO"]
    assert or_skip(run_node_client, cluster.endpoints, names, tmp_path) == {
        "normal": "n-0,n-1,n-2,n-3,n-4",
        "same-ids": "true",
        "fields": "A k1,k2 blue 1",
        "again": "true 2",
        "recall": "true",
        "delayed": "kept true",
        "transactions": "committed,orphan",
        "checked": "orphan",
        "push": "p-0:1,p-1:1,p-1:2,p-2:1",
        "orderly": "o-0,o-1,o-2,o-3,o-4,o-5",
        "end": "reached",
    }
