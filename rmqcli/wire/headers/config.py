"""Headers of topic, group and broker settings.

Codes 17, 21, 26, 201, 207, 215, 351 to 353.

Source: the classes of the same names in apache/rocketmq.
"""

from __future__ import annotations

from rmqcli.wire.fields import declared
from rmqcli.wire.header import Header


@declared
class CreateTopicRequestHeader(Header):
    """Create a topic, or replace all of its settings (17)."""

    topic: str
    default_topic: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_filter_type: str  # SINGLE_TAG or MULTI_TAG
    topic_sys_flag: int | None = None
    order: bool = False
    attributes: str | None = None  # 5.0: +k=v,-k
    force: bool | None = None  # 5.0


@declared
class DeleteTopicRequestHeader(Header):
    """Remove a topic from one broker (215)."""

    topic: str


@declared
class GetTopicConfigRequestHeader(Header):
    """Query one topic's settings (351, 5.0), and with `lo` a static topic's mapping."""

    topic: str
    lo: bool | None = None


@declared
class GetSubscriptionGroupConfigRequestHeader(Header):
    """Query one group's settings (352, 5.0). The broker may create the group."""

    group: str


@declared
class DeleteSubscriptionGroupRequestHeader(Header):
    """Remove a group (207). Send both flags, because each version knows only one."""

    group_name: str
    remove_offset: bool | None = None  # 4.9.0 to 4.9.8
    clean_offset: bool | None = None  # 5.0


@declared
class UpdateGroupForbiddenRequestHeader(Header):
    """Query whether a group may read a topic, after setting it to `readable` if given.

    Code 353, from 5.0 on.
    """

    group: str
    topic: str
    readable: bool | None = None
