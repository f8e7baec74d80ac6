"""What consumers subscribe to, as their callers write it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

from rmqcli.checked import check_type
from rmqcli.errors import ConfigError
from rmqcli.names import check_topic
from rmqcli.wire.subscription import SubscriptionData, parse_subscription

if TYPE_CHECKING:
    from collections.abc import Mapping

    Topics: TypeAlias = str | Iterable[str] | Mapping[str, str | SubscriptionData]


def sql(topic: str, expression: str) -> SubscriptionData:
    """Return a subscription by SQL92, for brokers with `enablePropertyFilter`."""
    return parse_subscription(topic, expression, expression_type="SQL92")


def subscriptions_of(topics: Topics, version: int) -> dict[str, SubscriptionData]:
    """Return the subscriptions by topic; strings get `version`.

    Raises ConfigError for an invalid topic or expression, and without a topic, and
    TypeError for other values.
    """
    if isinstance(topics, str):
        topics = {topics: "*"}
    elif not hasattr(topics, "items"):
        check_type(topics, Iterable, "topics")
        topics = dict.fromkeys(topics, "*")
    found = {}
    for topic, each in topics.items():
        check_topic(topic)
        if isinstance(each, str):
            found[topic] = parse_subscription(topic, each, sub_version=version)
            continue
        check_type(each, (str, SubscriptionData), f"the subscription for {topic!r}")
        if each.topic != topic:
            raise ConfigError(
                f"the subscription for topic {topic} is for topic {each.topic}"
            )
        found[topic] = each
    if not found:
        raise ConfigError("topics is empty; at least one is needed")
    return found
