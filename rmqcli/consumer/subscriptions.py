"""What consumers subscribe to, as their callers write it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from rmqcli.checked import check_type, checks_arguments
from rmqcli.errors import ConfigError
from rmqcli.names import check_topic
from rmqcli.wire.subscription import SubscriptionData, parse_subscription, parse_tags

if TYPE_CHECKING:
    Topics: TypeAlias = (
        str
        | SubscriptionData
        | Iterable[str | SubscriptionData]
        | Mapping[str, str | SubscriptionData]
    )


@checks_arguments()
def sql(topic: str, expression: str) -> SubscriptionData:
    """Return a subscription by SQL92, for brokers with `enablePropertyFilter`."""
    return parse_subscription(topic, expression, expression_type="SQL92")


def subscriptions_of(topics: Topics, version: int) -> dict[str, SubscriptionData]:
    """Return the subscriptions by topic; strings get `version`.

    Raises ConfigError for an invalid topic or expression, for two subscriptions of one
    topic, and without a topic, and TypeError for other values.
    """
    given: Iterable[tuple[str, str | SubscriptionData]]
    if isinstance(topics, str | SubscriptionData):
        topics = [topics]
    if isinstance(topics, Mapping):
        given = topics.items()
    else:
        check_type(topics, Iterable, "topics")
        given = [
            (each.topic, each) if isinstance(each, SubscriptionData) else (each, "*")
            for each in topics
        ]
    found: dict[str, SubscriptionData] = {}
    for topic, each in given:
        check_topic(topic)
        check_type(each, (str, SubscriptionData), f"the subscription for {topic!r}")
        if isinstance(each, str):
            each = parse_tags(topic, each, sub_version=version)
        if each.topic != topic:
            raise ConfigError(
                f"the subscription for topic {topic} is for topic {each.topic}"
            )
        if found.setdefault(topic, each) != each:
            raise ConfigError(f"topic {topic} has two different subscriptions")
    if not found:
        raise ConfigError("topics is empty; at least one is needed")
    return found
