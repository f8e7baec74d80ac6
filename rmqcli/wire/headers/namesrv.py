"""Headers of requests about topics and their routes to a name server.

Codes 105, 216, 217, 224.

Source: the classes of the same names in apache/rocketmq.
"""

from __future__ import annotations

from rmqcli.wire.fields import declared
from rmqcli.wire.header import Header


@declared
class GetRouteInfoRequestHeader(Header):
    """Where a topic's queues are (105)."""

    topic: str
    accept_standard_json_only: bool | None = None  # 4.9.4


@declared
class GetTopicsByClusterRequestHeader(Header):
    """The topics of one cluster (224)."""

    cluster: str


@declared
class DeleteTopicFromNamesrvRequestHeader(Header):
    """Forget a topic (216)."""

    topic: str
    cluster_name: str | None = None


@declared
class RegisterTopicRequestHeader(Header):
    """Announce one topic (217, 5.0)."""

    topic: str
