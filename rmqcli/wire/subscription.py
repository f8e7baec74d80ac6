"""Subscriptions: which messages of a topic a consumer wants, and whether one matches.

The broker filters by the hash of the tag, so a consumer compares the tag itself again.

Source: `FilterAPI.buildSubscriptionData`/`build`, `SubscriptionData`, and
`PullAPIWrapper.processPullResult` for the second check.
"""

from __future__ import annotations

import re
from typing import Final

from rmqcli.dataclass import dataclass
from rmqcli.errors import ConfigError
from rmqcli.wire.fields import wire_field
from rmqcli.wire.ids import java_string_hash

SUB_ALL: Final = "*"  # SubscriptionData.SUB_ALL
TAG: Final = "TAG"  # ExpressionType.TAG
SQL92: Final = "SQL92"  # ExpressionType.SQL92

#: The characters that Java's String.trim removes: all up to and including the space.
_JAVA_BLANKS: Final = "".join(map(chr, range(33)))
#: What looks like an operator inside of a tag.
_OPERATOR: Final = re.compile(
    r"&&|[|]|^[!(]|(?:^|\s)(?:not|and|or|in|=|<>|!=)\s", re.IGNORECASE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionData:
    """One topic's subscription, as a heartbeat contains it.

    `sub_string` is the unchanged expression. An empty `tags_set` with the type TAG
    means every message. `sub_version` is epoch ms; a broker keeps the newest.
    """

    topic: str
    sub_string: str = SUB_ALL
    tags_set: frozenset[str] = frozenset()
    code_set: frozenset[int] = frozenset()
    sub_version: int = 0
    # Clients of 4.0 do not send it.
    expression_type: str | None = wire_field(default=TAG, absent=None)
    class_filter_mode: bool = False


def parse_subscription(
    topic: str,
    expression: str | None,
    *,
    expression_type: str | None = TAG,
    sub_version: int = 0,
) -> SubscriptionData:
    """Return the subscription that Java makes of an expression.

    TAG: None, "" and "*" mean every message; tags are separated by `||` and trimmed; `*
    || A` means the two tags `*` and `A`. The text of other types is left to the broker.
    Raises ConfigError for `||` without any tag, and for an empty text of another type.
    """
    if expression_type not in (TAG, None):
        if not expression:
            raise ConfigError(f"a {expression_type} subscription needs an expression")
        return SubscriptionData(
            topic=topic,
            sub_string=expression,
            sub_version=sub_version,
            expression_type=expression_type,
        )
    if expression is None or expression in ("", SUB_ALL):
        return SubscriptionData(topic=topic, sub_version=sub_version)
    items = expression.split("||")
    if not any(items):
        raise _no_tag(expression)
    tags = frozenset(filter(None, (item.strip(_JAVA_BLANKS) for item in items)))
    return SubscriptionData(
        topic=topic,
        sub_string=expression,
        tags_set=tags,
        code_set=frozenset(map(java_string_hash, tags)),
        sub_version=sub_version,
    )


def parse_tags(
    topic: str, expression: str | None, *, sub_version: int = 0
) -> SubscriptionData:
    """Do as `parse_subscription`, for a tag expression that a person has written.

    Also raises ConfigError for blanks without a tag, for which brokers deliver nothing,
    and for other operators than `||`: RocketMQ takes `A && B` for a single tag, which
    no message has.
    """
    subscription = parse_subscription(topic, expression, sub_version=sub_version)
    if expression and not subscription.tags_set and expression != SUB_ALL:
        raise _no_tag(expression)
    if any(map(_OPERATOR.search, subscription.tags_set)):
        raise ConfigError(
            f"{expression!r} is not a list of tags", hint="try 'TagA || TagB'"
        )
    return subscription


def _no_tag(expression: str) -> ConfigError:
    return ConfigError(
        f"tag expression {expression!r} contains no tag", hint="try 'TagA || TagB'"
    )


def tag_matches(subscription: SubscriptionData, tags: str | None) -> bool:
    """Whether the subscription selects a message with these tags.

    The whole text is compared, also for a message with several tags. Without a tags set
    (every message, SQL92), or with a class filter, the broker's decision is final.
    """
    if not subscription.tags_set or subscription.class_filter_mode:
        return True
    return tags is not None and tags in subscription.tags_set
