"""Bodies of lite topics: which ones a client subscribes (5.5).

Source: LiteSubscriptionCtlRequestBody, LiteSubscriptionDTO, OffsetOption in
apache/rocketmq.
"""

from __future__ import annotations

from typing import Final

from rmqcli.wire.body import Body
from rmqcli.wire.fields import declared

#: The attribute of a group with the topic whose lite topics it consumes.
LITE_BIND_TOPIC: Final = "lite.bind.topic"

PARTIAL_ADD: Final = "PARTIAL_ADD"
PARTIAL_REMOVE: Final = "PARTIAL_REMOVE"
COMPLETE_ADD: Final = "COMPLETE_ADD"
COMPLETE_REMOVE: Final = "COMPLETE_REMOVE"

#: The values of an OffsetOption of type POLICY.
POLICY_MIN: Final = 1
POLICY_MAX: Final = 2


@declared
class OffsetOption(Body):
    """Where a group begins in a lite topic that a client subscribes.

    `type` is POLICY (`value` is 0 for the group's offset, 1 for the first or 2 for the
    next message), OFFSET, TAIL_N (messages before the group's offset) or TIMESTAMP.
    """

    type: str | None = None
    value: int = 0


@declared
class LiteSubscriptionDTO(Body):
    """One change of a client's subscriptions to the lite topics of `topic`."""

    action: str | None = None
    client_id: str | None = None
    group: str | None = None
    topic: str | None = None
    lite_topic_set: list[str] | None = None
    offset_option: OffsetOption | None = None
    version: int = 0


@declared
class LiteSubscriptionCtlRequestBody(Body):
    """The body of LITE_SUBSCRIPTION_CTL (200071)."""

    subscription_set: list[LiteSubscriptionDTO] | None = None
