"""The table of lite topics on a real proxy in cluster mode: is the table right?"""

from __future__ import annotations

import json

import pytest

from tests.broker.proxy.java.test_official import or_skip
from tests.broker.proxy.lite import CASES, CONSUMED, Lite, consumed_by
from tests.kit.proxy.real import RealProxy

pytestmark = [pytest.mark.rmq_versions("5.5.0"), pytest.mark.real_only]

UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200


@pytest.fixture(scope="module")
def make_lite(rmq_version, start_shared):
    conf = {"enableLmq": "true", "enableMultiDispatch": "true"}
    cluster = start_shared(rmq_version, conf=conf)

    def create_topic(name, kind):
        attributes = None if kind is None else f"+message.type={kind}"
        cluster.create_topic(name, attributes=attributes)

    def create_group(name, attributes):
        changes = {f"+{key}": value for key, value in attributes.items()}
        body = json.dumps({"groupName": name, "attributes": changes}).encode()
        answer = cluster.ask(UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
        assert answer.code == 0

    with RealProxy(cluster) as proxy:
        yield lambda: Lite(
            proxy.endpoints, create_topic, create_group, lambda receive: receive()
        )


@pytest.fixture
def lite(make_lite):
    made = make_lite()
    yield made
    made.close()


@pytest.mark.parametrize("name", CASES)
def test_real_proxy(lite, name):
    assert CASES[name].act(lite) == CASES[name].real


@pytest.mark.parametrize("who", ["java", "python"])
def test_the_official_clients(who, lite, tmp_path):
    assert or_skip(consumed_by, who, lite, tmp_path) == CONSUMED
