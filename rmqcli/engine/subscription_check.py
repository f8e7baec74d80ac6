"""`SubscriptionCheck`: compares this member's subscriptions with those of its group.

It does so while the member runs. Members of a group share its queues and offsets: a
message that one member filters out, or whose topic it does not subscribe to, is lost
for the others. A broker keeps one table of subscriptions for the group; each heartbeat
replaces the topics in it, and an expression if it is newer. So just before this
member's own heartbeat the table has the subscriptions that another member sent last.

Source: ConsumerGroupInfo#updateSubscription.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqcli.errors import DeniedError, RmqError
from rmqcli.log import get_logger
from rmqcli.model import RETRY_GROUP_TOPIC_PREFIX
from rmqcli.tasks import start

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqcli.engine.member import Member
    from rmqcli.tasks import Pending
    from rmqcli.wire.bodies.consumer import ConsumerConnection
    from rmqcli.wire.subscription import SubscriptionData

logger = get_logger(__name__)

#: How long before a heartbeat the broker is queried.
LEAD_MS: Final = 1_000
#: An unchanged difference is not logged again before this.
AGAIN_MS: Final = 10 * 60 * 1_000
#: An answer names every member, so a group skips one turn for each this many members.
MEMBERS_PER_TURN: Final = 50
_LOGGED_MAX: Final = 5
_EXPRESSION_CHARS_MAX: Final = 100


class SubscriptionCheck:
    """Queries a broker on each call of `run`, and logs differing subscriptions."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._logged: list[str] = []
        self._logged_ms = 0
        self._turns_to_skip = 0
        self._is_denied = False

    def run(self) -> None:
        """Query once; differences are logged when the answer comes.

        Nothing is queried while turns are skipped, without a topic, and after a query
        was denied.
        """
        member = self._member
        topics = [t for t in member.subscriptions if t != member.retry_topic]
        if self._turns_to_skip:
            self._turns_to_skip -= 1
        elif topics and not self._is_denied:
            task = member.network.consumer_connection(member.group, topics[0])
            start(task, member).on_done(self._answered)

    def _answered(self, pending: Pending[ConsumerConnection | None]) -> None:
        seen = pending.outcome()
        if isinstance(seen, RmqError):
            self._is_denied = isinstance(seen, DeniedError)
            logger.debug("subscriptions of the group not compared: %s", seen)
            return
        member = self._member
        if seen is None or not any(
            each.client_id != member.client_id for each in seen.connections
        ):
            return
        self._turns_to_skip = len(seen.connections) // MEMBERS_PER_TURN
        found = differences(member.subscriptions, seen.subscriptions)
        now_ms = member.now_ms()
        if not found or (found == self._logged and now_ms - self._logged_ms < AGAIN_MS):
            return
        self._logged, self._logged_ms = found, now_ms
        logger.warning(
            "members have different subscriptions, so messages are lost group=%s: %s",
            member.group,
            "; ".join(found[:_LOGGED_MAX]),
        )


def differences(
    ours: Mapping[str, SubscriptionData], theirs: Mapping[str, SubscriptionData]
) -> list[str]:
    """Describe how subscriptions differ, one phrase per topic, without retry topics."""
    found = []
    for topic in sorted(ours.keys() | theirs.keys()):
        if topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            continue
        here, there = ours.get(topic), theirs.get(topic)
        if _meaning(here) != _meaning(there):
            found.append(f"{topic}: {_shown(here)} here, {_shown(there)} elsewhere")
    return found


def _meaning(subscription: SubscriptionData | None) -> object:
    """A value that is equal for expressions that select the same messages."""
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
