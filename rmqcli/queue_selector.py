"""Parses `--queue [BROKER:]ID`, and selects the queues of a topic by it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.checked import check_type
from rmqcli.dataclass import dataclass
from rmqcli.errors import ConfigError, NotFoundError, TextError
from rmqcli.model import MessageQueue
from rmqcli.names import similar

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

QUEUE_ID_MAX = 65_535


@dataclass(frozen=True, slots=True)
class QueueSelector:
    """A queue id, on one broker or (None) on every broker that has it."""

    broker_name: str | None
    queue_id: int

    def matches(self, queue: MessageQueue) -> bool:
        """Whether this selects `queue`."""
        return queue.queue_id == self.queue_id and (
            self.broker_name is None or self.broker_name == queue.broker_name
        )

    def __str__(self) -> str:
        if self.broker_name is None:
            return str(self.queue_id)
        return f"{self.broker_name}:{self.queue_id}"


def parse_queue_selector(text: str) -> QueueSelector:
    """Read `3` or `broker-a:3`. Raises TextError."""
    broker_name, colon, digits = text.rpartition(":")
    start = len(text) - len(digits)
    hint = "write a queue id, or broker and id: 3, broker-a:3"
    if colon and not broker_name:
        raise TextError(text, "no broker before ':'", start=0, end=1, hint=hint)
    if not (digits.isascii() and digits.isdigit()):
        what = "the queue id is not a number" if digits else "no queue id"
        raise TextError(text, what, start=start, end=len(text), hint=hint)
    if len(digits) > 5 or int(digits) > QUEUE_ID_MAX:
        what = f"the queue id is greater than {QUEUE_ID_MAX}"
        raise TextError(text, what, start=start, end=len(text), hint=hint)
    return QueueSelector(broker_name or None, int(digits))


def parse_queue(text: str) -> MessageQueue:
    """Read one queue of one topic, as `TOPIC@BROKER:ID`. Raises TextError."""
    topic, _, rest = text.partition("@")
    broker_name, _, digits = rest.rpartition(":")
    is_id = digits.isascii() and digits.isdigit() and len(digits) <= 5
    if not (topic and broker_name and is_id and int(digits) <= QUEUE_ID_MAX):
        hint = "write TOPIC@BROKER:ID, for example orders@broker-a:3"
        raise TextError(text, "not a queue", hint=hint)
    return MessageQueue(topic, broker_name, int(digits))


def selectors_of(
    topic: str, queues: Collection[MessageQueue]
) -> tuple[QueueSelector, ...]:
    """Return what selects some queues of a topic.

    Raises TypeError for anything else than queues, and ConfigError for one of another
    topic.
    """
    for each in queues:
        check_type(each, MessageQueue, "each of queues")
        if each.topic != topic:
            raise ConfigError(f"queues: {each} is not a queue of topic {topic}")
    return tuple(QueueSelector(each.broker_name, each.queue_id) for each in queues)


def select_queues(
    queues: Iterable[MessageQueue], selectors: Collection[QueueSelector]
) -> list[MessageQueue]:
    """Return the queues that a selector matches, in order; all without selectors.

    Raises NotFoundError when a selector matches no queue.
    """
    all_queues = list(queues)
    for selector in selectors:
        if not any(selector.matches(queue) for queue in all_queues):
            raise _not_found(selector, all_queues)
    if not selectors:
        return all_queues
    return [q for q in all_queues if any(s.matches(q) for s in selectors)]


def _not_found(
    selector: QueueSelector, queues: Collection[MessageQueue]
) -> NotFoundError:
    """Return the error for a queue that does not exist, in the words for all names."""
    brokers = sorted({q.broker_name for q in queues if q.queue_id == selector.queue_id})
    near = [
        str(QueueSelector(each, selector.queue_id))
        for each in similar(selector.broker_name or "", brokers)
    ]
    return NotFoundError(
        f"queue {selector} does not exist"
        + (f"; did you mean {' or '.join(near)}?" if near else ""),
        code=22,
        name="QUERY_NOT_FOUND",
        hint="" if near else _those_that_exist(queues),
    )


def _those_that_exist(queues: Collection[MessageQueue]) -> str:
    """Return which queues there are: `topic orders has queues 0 to 3 on broker-a`."""
    if not queues:
        return ""
    spans: dict[str, list[str]] = {}
    for broker_name in sorted({queue.broker_name for queue in queues}):
        ids = [q.queue_id for q in queues if q.broker_name == broker_name]
        low, high = min(ids), max(ids)
        span = f"queue {low}" if low == high else f"queues {low} to {high}"
        spans.setdefault(span, []).append(broker_name)
    topics = sorted({queue.topic for queue in queues})
    parts = [f"{span} on {', '.join(names)}" for span, names in spans.items()]
    return f"topic {', '.join(topics)} has {'; '.join(parts)}"
