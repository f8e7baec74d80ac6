"""Headers of requests to a name server about topics and their routes.

Codes 105, 216, 217, 224. Registration and settings are in `registration` and
`namesrv_config`.

Source: the classes of the same names in apache/rocketmq.
"""

from __future__ import annotations

from rmqcli.wire.fields import declared
from rmqcli.wire.header import Header


@declared
class GetRouteInfoRequestHeader(Header):
    """Query the route of a topic (105)."""

    topic: str
    accept_standard_json_only: bool | None = None  # 4.9.4


@declared
class GetTopicsByClusterRequestHeader(Header):
    """Query the topics of one cluster (224)."""

    cluster: str


@declared
class DeleteTopicFromNamesrvRequestHeader(Header):
    """Delete a topic from the name server (216)."""

    topic: str
    cluster_name: str | None = None  # 4.9.7


@declared
class RegisterTopicRequestHeader(Header):
    """Register one topic (217, 5.0)."""

    topic: str
