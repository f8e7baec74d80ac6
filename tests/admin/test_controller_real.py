"""A broker whose master a controller elects: what is known of its replicas."""

from __future__ import annotations

import pytest

from rmqcli import Admin
from rmqcli.errors import RmqError
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.java, pytest.mark.rmq_versions("5.5.0")]


def test_a_replica_that_is_gone_is_still_named_after_the_failover(fresh_cluster):
    cluster = fresh_cluster(brokers=2, controller=True)
    with Admin(namesrv=cluster.namesrv) as admin:

        def state():
            """The master's address, and the ids of its replicas in and out of sync."""
            try:
                rows = admin.brokers()
            except RmqError:
                return None
            for row in rows:
                found = row.sync_state
                if row.role == "MASTER" and found is not None:
                    return (
                        row.address,
                        {each.address: each.is_alive for each in found.in_sync},
                        {each.address: each.is_alive for each in found.not_in_sync},
                    )
            return None

        addresses = [cluster.broker_address(index) for index in range(2)]
        both = dict.fromkeys(addresses, True)
        wait_until(lambda: (state() or ("", None, None))[1:] == (both, {}))
        master = addresses.index(state()[0])
        cluster.kill_broker(master)
        other = addresses[1 - master]
        wait_until(
            lambda: state() == (other, {other: True}, {addresses[master]: False})
        )
        (row,) = (each for each in admin.brokers() if each.role == "MASTER")
    assert row.sync_state is not None
    assert (row.slaves, row.sync_state.slaves) == (0, 1)
    assert row.sync_state.slaves_in_sync == 0
    assert row.sync_state.master_epoch == 2
