"""The table of behaviour, on the embedded broker as each version."""

from __future__ import annotations

import pytest

from rmqcli.broker.cluster.embedded import EmbeddedCluster
from tests.broker.behaviour.check import check
from tests.broker.behaviour.holds import ACTS
from tests.broker.behaviour.orders import Orders, check_orders
from tests.broker.behaviour.sql92 import CHECKS_OFF
from tests.broker.behaviour.stage import V4_6, V4_9, V5, Stage
from tests.broker.behaviour.table import TABLE
from tests.kit.rows import each_row


@pytest.fixture(scope="module", params=[V4_6, V4_9, V5])
def staged(request):
    settings = {"enable_property_filter": True}
    with EmbeddedCluster(like=request.param, settings=settings) as cluster:
        stage = Stage(cluster.broker().address)
        yield stage, request.param
        stage.close()


@each_row("name", TABLE)
def test_embedded_broker(staged, name):
    stage, version = staged
    check(stage, TABLE[name], version)


@pytest.fixture(scope="module")
def stage_of_5():
    with EmbeddedCluster() as cluster:
        stage = Stage(cluster.broker().address)
        yield stage
        stage.close()


@each_row("row", CHECKS_OFF, ids=lambda row: row.name)
def test_embedded_broker_without_sql92(stage_of_5, row):
    check(stage_of_5, row, V5)


@pytest.mark.slow
@pytest.mark.parametrize("act", ACTS)
def test_embedded_broker_holds(stage_of_5, act):
    act(stage_of_5)


@pytest.mark.parametrize("like", [V4_6, V4_9, V5])
def test_embedded_broker_learns_which_topics_are_ordered(like):
    with EmbeddedCluster(like=like) as cluster:
        check_orders(Orders(cluster.namesrv, cluster.broker().address), like)
