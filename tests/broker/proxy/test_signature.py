"""Signatures: a cluster with accounts takes signed calls only."""

from __future__ import annotations

import pytest

from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.broker.proxy.options import ProxyOptions
from tests.broker.proxy.access import ADMIN, TABLE, TOPIC
from tests.kit.grpc_client import code_of


@pytest.fixture(scope="module")
def guarded():
    accounts = {ADMIN.name: ADMIN.secret}
    with EmbeddedCluster(proxy=ProxyOptions(accounts=accounts)) as cluster:
        cluster.create_topic(TOPIC)
        yield cluster


@pytest.mark.parametrize("name", TABLE)
def test_a_call_must_be_signed(guarded, name):
    row = TABLE[name]
    assert row.ask(guarded.endpoints) == row.expected


def test_without_accounts_a_signature_is_ignored(cluster, connect):
    cluster.create_topic("T")
    client = connect(cluster, metadata={"authorization": "garbage"})
    assert code_of(client.route("T")) == "OK"
