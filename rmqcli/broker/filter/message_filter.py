"""Which messages of a queue a pull asks for: by a tag's hash, or by SQL92.

A pull without a filter has None, so that it pays nothing. A tag is compared by its hash
in the consume queue alone, and clients compare the text. SQL92 reads a message's
properties. Not imitated: class filters (removed from RocketMQ), bloom filters in the
queue's extension (they only save work).

Source: `ExpressionMessageFilter` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

from rmqcli.wire.subscription import SUB_ALL, TAG

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rmqcli.wire.subscription import SubscriptionData

    Condition: TypeAlias = Callable[[Mapping[str, str]], bool]

_INT_MAX = (1 << 31) - 1


class MessageFilter(Protocol):
    """Decides in two steps; a message must pass both."""

    def matches_unit(self, tags_code: int | None) -> bool:
        """Whether an entry of the consume queue may match; None is unknown: yes."""

    @property
    def condition(self) -> Condition | None:
        """The condition on the properties; None without one."""


class TagFilter:
    """Messages whose tag has one of these hashes."""

    condition = None

    def __init__(self, codes: frozenset[int]) -> None:
        self._codes = codes

    def matches_unit(self, tags_code: int | None) -> bool:
        """Whether the hash is asked for. A due time counts by its low 32 bits."""
        if tags_code is None:
            return True
        if not -_INT_MAX - 1 <= tags_code <= _INT_MAX:
            tags_code = ((tags_code + _INT_MAX + 1) & 0xFFFFFFFF) - _INT_MAX - 1
        return tags_code in self._codes


class PropertyFilter:
    """Messages whose properties fulfil a condition."""

    def __init__(self, condition: Condition) -> None:
        self.condition: Condition | None = condition

    def matches_unit(self, tags_code: int | None) -> bool:
        """Always: only the properties decide."""
        return True


def is_tag_type(expression_type: str | None) -> bool:
    """Whether an expression is about tags. Source: ExpressionType.isTagType."""
    return expression_type in (None, "", TAG)


def tag_filter(subscription: SubscriptionData) -> TagFilter | None:
    """The filter of a tag subscription; None if it matches everything."""
    if subscription.class_filter_mode or subscription.sub_string == SUB_ALL:
        return None
    return TagFilter(subscription.code_set)
