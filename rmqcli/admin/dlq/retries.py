"""What waits to be delivered again to a group, and when each message comes next.

A message that a consumer gave back waits in a delay level (SCHEDULE_TOPIC_XXXX), and
then in the group's retry topic until a member takes it. Messages that POP gave out and
that were not acknowledged are neither: the broker keeps only their places until their
invisible time ends, and then copies them to a retry topic of POP.

Nothing here moves a message. What waits in a delay level cannot be brought forward:
brokers have no request for it, and a copy that is delivered now (`rmqcli.redrive.flush`
stores one) does not keep the original from coming later.

Source: ScheduleMessageService, AbstractSendMessageProcessor.consumerSendMsgBack,
KeyBuilder.buildPopRetryTopic.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import field
from typing import TYPE_CHECKING, Final

from rmqcli.admin.brokers import (
    ask_each,
    denial_of,
    reader_addresses,
    split_answers,
    with_address,
)
from rmqcli.admin.delayed import delayed_by_level, stored_messages
from rmqcli.admin.dlq.letter import facts_of
from rmqcli.admin.lag.gather import read_pop_lag
from rmqcli.admin.lag.memory import departed_errors_of_group
from rmqcli.api.broker_errors import not_found
from rmqcli.api.calls.config import get_all_subscription_group_config
from rmqcli.api.calls.offset import get_all_consumer_offset
from rmqcli.api.calls.stats import get_topic_stats_info
from rmqcli.dataclass import dataclass
from rmqcli.errors import NotFoundError, RmqError, TransportError
from rmqcli.model import MessageQueue, pop_retry_topics, retry_topic
from rmqcli.wire.message.properties import REAL_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rmqcli.admin.lag.model import PopLag
    from rmqcli.api.client import Client
    from rmqcli.engine.message import PulledMessage
    from rmqcli.errors import DeniedError

#: Where messages wait: a delay level, the retry topic, the retry topics of POP.
DELAY: Final = "delay"
RETRY: Final = "retry"
POP_RETRY: Final = "pop_retry"
_SLACK: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingMessage:
    """One message that will be delivered to the group again.

    `place` is where it waits: `delay`, `retry` or `pop_retry`. `next_ms` is when it
    comes next, by the broker's clock in epoch ms; None in a retry topic, where it comes
    as soon as a member takes it, and where the broker's delays are not known.
    `attempt` counts deliveries, the first one included, and is the one that comes next;
    `attempts_max` follows from the group's setting on that broker, which consumers may
    override; None if it is not known, or if `attempt` shows that they override it.
    """

    place: str
    queue: MessageQueue
    message: PulledMessage
    topic: str | None
    attempt: int
    attempts_max: int | None
    next_ms: int | None


@dataclass(slots=True)
class WaitingMessages:
    """What waits for a group, and what could not be found out, by broker or queue.

    `messages` are those that come next, at most as many as were asked for; `counts` has
    the number of all by place. `scanned` counts messages that were read in the delay
    levels, which hold those of all groups. `pop` is what POP has handed out and was not
    acknowledged: it comes back, and is not among the messages. None if nothing shows
    that the group uses POP. `denial` is the error if all brokers denied access.
    """

    messages: list[WaitingMessage] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=Counter)
    errors: dict[str, RmqError] = field(default_factory=dict)
    scanned: int = 0
    pop: PopLag | None = None
    denial: DeniedError | None = None

    def keep(self, limit: int) -> None:
        """Keep the messages that come next."""
        self.messages.sort(
            key=lambda e: (e.next_ms or 0, e.queue, e.message.queue_offset)
        )
        del self.messages[limit:]


def find_waiting(client: Client, group: str, *, limit: int) -> WaitingMessages:
    """Find what waits for a group on all brokers; keep at most `limit` messages.

    Raises NotFoundError when no broker knows the group, the error of one that does not
    tell, and NoBrokerError when none answers.
    """
    addresses = reader_addresses(client.cluster_info().brokers.values())
    offsets = ask_each(client, addresses, get_all_consumer_offset())
    tables, errors = split_answers(offsets)
    found = WaitingMessages(errors=errors)
    client.raise_if_none_answers(errors.values())
    answering = with_address(addresses, errors)
    settings = ask_each(client, answering, get_all_subscription_group_config())
    is_known = bool(errors)
    has_answers = False
    for name, table in tables.items():
        address, configs = addresses[name], settings[name]
        config = None if isinstance(configs, RmqError) else configs.get(group)
        committed = {of: each for (owner, of), each in table.items() if owner == group}
        is_known = is_known or config is not None or bool(committed)
        times_max = None if config is None else config.retry_max_times
        broker = _Broker(client, group, name, address, times_max)
        try:
            broker.read_retries(committed, found, limit)
            has_answers = True
        except RmqError as error:
            found.errors[name] = error
            if isinstance(error, TransportError):
                continue
        try:
            broker.read_delayed(found, limit)
        except RmqError as error:
            found.errors.setdefault(name, error)
    if not has_answers and not found.messages:
        found.denial = denial_of(found.errors.get(name) for name in addresses)
    found.errors |= departed_errors_of_group(client, group, addresses)
    if not is_known and not found.errors:
        refusals = (e for e in settings.values() if isinstance(e, RmqError))
        raise next(refusals, not_found("group", group))
    found.pop = read_pop_lag(client, group)
    found.keep(limit)
    return found


@dataclass(frozen=True, slots=True)
class _Broker:
    """One broker that is asked for what waits there."""

    client: Client
    group: str
    name: str
    address: str
    times_max: int | None

    def read_retries(
        self,
        committed: Mapping[str, Mapping[int, int]],
        found: WaitingMessages,
        limit: int,
    ) -> None:
        """Find what is in the retry topics, from the committed offsets on."""
        own = retry_topic(self.group)
        pop_prefixes = pop_retry_topics(self.group, "")
        stats = self.client.ask_many(
            {
                topic: (self.address, get_topic_stats_info(topic))
                for topic in {own, *committed}
                if topic == own or topic.startswith(pop_prefixes)
            },
        )
        for topic, answer in stats.items():
            if isinstance(answer, NotFoundError):
                continue  # no message of the group has failed here yet
            if isinstance(answer, RmqError):
                raise answer
            place = RETRY if topic == own else POP_RETRY
            for queue, ends in answer.items():
                at = committed.get(topic, {}).get(queue.queue_id, 0)
                start = max(0, ends.min_offset, min(at, ends.max_offset))
                found.counts[place] += max(0, ends.max_offset - start)
                end = min(ends.max_offset, start + limit)
                for message in stored_messages(
                    self.client, self.address, queue, start, end
                ):
                    found.messages.append(self._waiting(place, queue, message, None))
        found.keep(limit)

    def read_delayed(self, found: WaitingMessages, limit: int) -> None:
        """Find the group's messages in the delay levels."""
        for queue, message, next_ms in delayed_retries(
            self.client, self.group, self.name, self.address
        ):
            found.scanned += 1
            if message is None:
                continue
            found.counts[DELAY] += 1
            found.messages.append(self._waiting(DELAY, queue, message, next_ms))
            if len(found.messages) > 2 * limit + _SLACK:
                found.keep(limit)

    def _waiting(
        self,
        place: str,
        queue: MessageQueue,
        message: PulledMessage,
        next_ms: int | None,
    ) -> WaitingMessage:
        topic = facts_of(self.group, message).origin_topic
        for prefix in pop_retry_topics(self.group, ""):
            if place == POP_RETRY and queue.topic.startswith(prefix):
                topic = queue.topic.removeprefix(prefix)
        attempt = message.reconsume_times + 1
        attempts_max = None if self.times_max is None else self.times_max + 1
        if place != POP_RETRY and attempts_max is not None and attempt > attempts_max:
            attempts_max = None
        return WaitingMessage(
            place=place,
            queue=queue,
            message=message,
            topic=topic,
            attempt=attempt,
            attempts_max=attempts_max,
            next_ms=next_ms,
        )


def delayed_retries(
    client: Client, group: str, name: str, address: str
) -> Iterator[tuple[MessageQueue, PulledMessage | None, int | None]]:
    """Yield what waits in the delay levels of a broker; None for another's message.

    Yields the queue, the message, and when it comes by the broker's clock (epoch ms);
    None if the broker does not show its delays, or has the level no more. Raises as
    `delayed_by_level` does.
    """
    own = retry_topic(group)
    for _, delay_ms, queue, message in delayed_by_level(client, name, address):
        if message.properties.get(REAL_TOPIC) != own:
            yield queue, None, None
        elif delay_ms is None:
            yield queue, message, None
        else:
            yield queue, message, message.store_timestamp_ms + delay_ms
