"""Tells of members of the group that subscribe to something else.

Members of one group share its queues and its offsets: what one of them filters out, or
is not subscribed to, is lost for the others. Clients do not compare themselves, and a
broker keeps one table for the whole group: each heartbeat replaces its topics, and an
expression when it is a newer one. So what the table says a moment before our own
heartbeat is what another member said last.

Source: ConsumerGroupInfo.updateSubscription.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from rmqcli.errors import DeniedError, RmqError
from rmqcli.model import RETRY_GROUP_TOPIC_PREFIX
from rmqcli.one_line_log import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqcli.engine.member import Member
    from rmqcli.wire.bodies_consumer import ConsumerConnection
    from rmqcli.wire.subscription import SubscriptionData

logger = one_line(logging.getLogger(__name__))

#: How long before a heartbeat the broker is asked.
LEAD_MS: Final = 1_000
#: The same difference is told again after this.
AGAIN_MS: Final = 10 * 60 * 1_000
#: An answer names every member: large groups ask less often, by one turn for so many.
MEMBERS_PER_TURN: Final = 50
_TOLD_MAX: Final = 5
_EXPRESSION_CHARS_MAX: Final = 100


class SubscriptionCheck:
    """Asks a broker of the group each time `run` is called, and warns."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._told: list[str] = []
        self._told_ms = 0
        self._turns_to_skip = 0
        self._is_denied = False

    def run(self) -> None:
        """Ask once; what is found is logged when the answer comes."""
        member = self._member
        topics = [t for t in member.subscriptions if t != member.retry_topic]
        if self._turns_to_skip:
            self._turns_to_skip -= 1
        elif topics and not self._is_denied:
            member.network.consumer_connection(member.group, topics[0], self._answered)

    def _answered(self, seen: ConsumerConnection | RmqError | None) -> None:
        if isinstance(seen, RmqError):
            self._is_denied = isinstance(seen, DeniedError)
            logger.debug("members' subscriptions are not compared: %s", seen)
            return
        member = self._member
        if seen is None or not any(
            each.client_id != member.client_id for each in seen.connections
        ):
            return
        self._turns_to_skip = len(seen.connections) // MEMBERS_PER_TURN
        found = differences(member.subscriptions, seen.subscriptions)
        now_ms = member.now_ms()
        if not found or (found == self._told and now_ms - self._told_ms < AGAIN_MS):
            return
        self._told, self._told_ms = found, now_ms
        logger.warning(
            "members of group %s subscribe differently, so messages get lost: %s",
            member.group,
            "; ".join(found[:_TOLD_MAX]),
        )


def differences(
    ours: Mapping[str, SubscriptionData], theirs: Mapping[str, SubscriptionData]
) -> list[str]:
    """What two members disagree about, one phrase for each topic; retries left out."""
    found = []
    for topic in sorted(ours.keys() | theirs.keys()):
        if topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            continue
        here, there = ours.get(topic), theirs.get(topic)
        if _meaning(here) != _meaning(there):
            found.append(f"{topic}: {_shown(here)} here, {_shown(there)} elsewhere")
    return found


def _meaning(subscription: SubscriptionData | None) -> object:
    """What is the same for expressions that select the same."""
    if subscription is None:
        return None
    text = subscription.sub_string or "*"
    if subscription.expression_type not in (None, "TAG"):
        return subscription.expression_type, text
    return frozenset(part.strip() for part in text.split("||"))


def _shown(subscription: SubscriptionData | None) -> str:
    if subscription is None:
        return "no subscription"
    text = (subscription.sub_string or "*")[:_EXPRESSION_CHARS_MAX]
    if subscription.expression_type in (None, "TAG"):
        return text
    return f"{subscription.expression_type} {text}"
