"""Message filters of a pull: by the hash of a tag, or by an SQL92 expression.

A pull without a filter has None, so that it costs nothing. For tags, the broker only
compares the hash in the consume queue, and clients compare the text. SQL92 needs a
message's properties. Not imitated: class filters (removed from RocketMQ), bloom filters
in the queue's extension (they only save work).

Source: `ExpressionMessageFilter` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from rmqcli.wire.subscription import SUB_ALL, TAG, SubscriptionData

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Condition: TypeAlias = Callable[[Mapping[str, str]], bool]

_INT_MAX = (1 << 31) - 1


class MessageFilter(NamedTuple):
    """Selects messages in two steps; a message must pass both.

    `codes` are the hashes of the wanted tags, and `condition` is for a message's
    properties. None selects every message.
    """

    codes: frozenset[int] | None = None
    condition: Condition | None = None

    def matches_unit(self, tags_code: int | None) -> bool:
        """Whether a consume queue entry may match; true for an unknown code (None).

        Of a due time in place of a hash, the low 32 bits count.
        """
        if tags_code is None or self.codes is None:
            return True
        if not -_INT_MAX - 1 <= tags_code <= _INT_MAX:
            tags_code = ((tags_code + _INT_MAX + 1) & 0xFFFFFFFF) - _INT_MAX - 1
        return tags_code in self.codes


def may_match(
    message_filter: MessageFilter | None,
    tags_code: int | None,
    properties: Mapping[str, str] | None,
) -> bool:
    """Whether a message passes a filter, as far as the message is known.

    `tags_code` and `properties` are None where they are not, and the filter is None if
    it selects every message.
    """
    if message_filter is None:
        return True
    if not message_filter.matches_unit(tags_code):
        return False
    condition = message_filter.condition
    return condition is None or properties is None or condition(properties)


def is_tag_type(expression_type: str | None) -> bool:
    """Whether an expression is about tags. Source: ExpressionType.isTagType."""
    return expression_type in (None, "", TAG)


def tag_filter(subscription: SubscriptionData) -> MessageFilter | None:
    """Return the filter of a tag subscription, or None if it matches everything."""
    if subscription.class_filter_mode or subscription.sub_string == SUB_ALL:
        return None
    return MessageFilter(subscription.code_set)
