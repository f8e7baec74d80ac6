"""What consumers subscribe to, as their callers write it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from rmqcli.engine.checks import check_topic
from rmqcli.errors import UsageError
from rmqcli.wire.subscription import SubscriptionData, parse_subscription

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Topics: TypeAlias = str | Iterable[str] | Mapping[str, str | SubscriptionData]


def sql(topic: str, expression: str) -> SubscriptionData:
    """Return a subscription by SQL92, for brokers with `enablePropertyFilter`."""
    return parse_subscription(topic, expression, expression_type="SQL92")


def subscriptions_of(topics: Topics, version: int) -> dict[str, SubscriptionData]:
    """Return the subscriptions by topic; strings get `version`.

    Raises ConfigError or UsageError for an invalid topic or expression, and UsageError
    without a topic.
    """
    if isinstance(topics, str):
        topics = {topics: "*"}
    elif not hasattr(topics, "items"):
        topics = dict.fromkeys(topics, "*")
    found = {}
    for topic, each in topics.items():
        check_topic(topic)
        if isinstance(each, str):
            each = parse_subscription(topic, each, sub_version=version)
        elif each.topic != topic:
            raise UsageError(
                f"the subscription for topic {topic} is for topic {each.topic}"
            )
        found[topic] = each
    if not found:
        raise UsageError("topics is empty; at least one is needed")
    return found
