"""The table of access control on real proxies in local mode: is the table right?"""

from __future__ import annotations

import pytest

from rmqcli import Admin, ClientConfig, Credentials
from tests.broker.proxy.access import ADMIN, GROUP, RIGHTS, TABLE, TOPIC

pytestmark = [pytest.mark.rmq_versions("5.3.3", "5.5.0"), pytest.mark.real_only]


@pytest.fixture(scope="module")
def guarded(rmq_version, start_shared):
    cluster = start_shared(rmq_version, proxy=True, superuser=ADMIN)
    cluster.create_topic(TOPIC)
    for account, rights in RIGHTS.items():
        cluster.create_account(account, rights)
    config = ClientConfig(
        namesrv=(cluster.namesrv,), credentials=Credentials(ADMIN.name, ADMIN.secret)
    )
    with Admin(client=config) as admin:
        admin.create_group(GROUP)
    return cluster


@pytest.mark.parametrize("name", TABLE)
def test_real_proxy(guarded, name):
    row = TABLE[name]
    assert row.ask(guarded.endpoints) == row.expected
