"""Headers of requests to a controller, which elects masters (5.0 and later).

Source: the classes of the same names in apache/rocketmq.
"""

from __future__ import annotations

from rmqcli.wire.fields import declared
from rmqcli.wire.header import Header


@declared
class GetMetaDataResponseHeader(Header):
    """What one of the controllers knows about all of them (1005)."""

    group: str | None = None
    controller_leader_id: str | None = None
    controller_leader_address: str | None = None
    is_leader: bool = False
    peers: str | None = None
