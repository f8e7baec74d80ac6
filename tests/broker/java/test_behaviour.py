"""The table of behaviour on real brokers, which shows that the table is right."""

from __future__ import annotations

import pytest

from tests.broker.behaviour.check import check
from tests.broker.behaviour.holds import ACTS
from tests.broker.behaviour.orders import Orders, check_orders
from tests.broker.behaviour.sql92 import CHECKS_OFF
from tests.broker.behaviour.stage import Stage
from tests.broker.behaviour.table import TABLE

pytestmark = pytest.mark.rmq_versions("4.6.0", "4.9.7", "5.5.0")


@pytest.fixture(scope="module")
def staged(real_cluster, rmq_version):
    stage = Stage(real_cluster.broker_address())
    yield stage, rmq_version
    stage.close()


@pytest.mark.parametrize("name", TABLE)
def test_real_broker(staged, name):
    stage, version = staged
    check(stage, TABLE[name], version)


@pytest.mark.parametrize("act", ACTS)
def test_real_broker_holds(staged, act):
    stage, _ = staged
    act(stage)


def test_real_broker_learns_which_topics_are_ordered(real_cluster, rmq_version):
    orders = Orders(real_cluster.namesrv, real_cluster.broker_address())
    check_orders(orders, rmq_version)


def test_real_broker_without_sql92(fresh_cluster, rmq_version):
    cluster = fresh_cluster(conf={"enablePropertyFilter": "false"})
    stage = Stage(cluster.broker_address())
    for row in CHECKS_OFF:
        check(stage, row, rmq_version)
    stage.close()
