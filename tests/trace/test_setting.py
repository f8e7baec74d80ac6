"""Which topic a client's argument `trace` names."""

from __future__ import annotations

import pytest

from rmqcli.config import ClientConfig
from rmqcli.errors import ConfigError, UnsupportedError
from rmqcli.trace.setting import trace_topic

NAMESRV = ClientConfig(namesrv=("127.0.0.1:9876",))
PROXY = ClientConfig(endpoints=("127.0.0.1:8081",))


@pytest.mark.parametrize(
    ("trace", "topic"),
    [
        (False, None),
        (True, "RMQ_SYS_TRACE_TOPIC"),
        ("my-traces", "my-traces"),
    ],
)
def test_traces_go_to_rocketmq_s_topic_or_the_one_that_is_named(trace, topic):
    assert trace_topic(trace, NAMESRV) == topic


@pytest.mark.parametrize("trace", [None, 1, 0, b"topic"])
def test_another_type_is_refused(trace):
    with pytest.raises(TypeError, match="trace"):
        trace_topic(trace, NAMESRV)


@pytest.mark.parametrize("trace", ["", "a topic", "x" * 128])
def test_a_name_that_no_topic_can_have_is_refused(trace):
    with pytest.raises(ConfigError):
        trace_topic(trace, NAMESRV)


def test_a_proxy_carries_no_traces():
    assert trace_topic(False, PROXY) is None
    for trace in (True, "my-traces"):
        with pytest.raises(UnsupportedError, match="through a proxy") as refused:
            trace_topic(trace, PROXY)
        assert refused.value.hint == "use name servers, or leave trace out"
