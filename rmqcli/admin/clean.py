"""Clean-ups that brokers make when they are told to: expired queues, unused topics.

A queue is expired when the commit log has none of its messages any more. A broker
removes such a queue and numbers it from 0 again, while groups keep their offsets. An
unused topic is one that the broker has queues of but no settings for. Brokers do not
list such queues; those that groups have read are known by their offsets.

Source: DefaultMessageStore.cleanExpiredConsumerQueue and cleanUnusedTopic,
AdminBrokerProcessor.getTopicStatsInfo in apache/rocketmq.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rmqcli.admin.brokers import ask_each, change_each, failed_word, with_address
from rmqcli.admin.topics import topic_kind
from rmqcli.api.calls.config import (
    clean_expired_consume_queue,
    clean_unused_topic,
    get_all_topic_config,
)
from rmqcli.api.calls.offset import get_all_consumer_offset
from rmqcli.api.calls.stats import get_topic_stats_info
from rmqcli.api.calls.store import query_consume_queue
from rmqcli.dataclass import dataclass
from rmqcli.errors import (
    BrokerError,
    ChangeUnknownError,
    NotFoundError,
    PartialError,
    RmqError,
)
from rmqcli.model import SCHEDULE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqcli.admin.brokers import Addresses
    from rmqcli.api.call import Call
    from rmqcli.api.client import Client
    from rmqcli.model import MessageQueue
    from rmqcli.wire.bodies.stats import TopicOffset


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanStep:
    """One queue of a broker, or with `topic` None the broker itself.

    `result` is `planned` before the clean-up, or `failed` if the broker's queues could
    not be read, and then `removed`, `failed` or `unknown`.
    `max_offset` is where the queue ended; None when not known. The `error` of a planned
    step says why it is not known whether the broker has the queue.
    """

    broker_name: str
    address: str | None
    topic: str | None = None
    queue_id: int | None = None
    max_offset: int | None = None
    result: str
    error: RmqError | None = None

    @property
    def server(self) -> str:
        """The name of the broker, as in other results."""
        return self.broker_name


def plan_clean_expired(client: Client, masters: Addresses) -> list[CleanStep]:
    """Return the queues that a clean-up would remove; nothing is changed.

    A broker whose queues cannot be read has one failed step. Raises NoBrokerError when
    no broker answers.
    """
    steps = []
    at = with_address(masters)
    tables = ask_each(client, masters, get_all_topic_config())
    client.raise_if_none_answers(tables.values())
    for name, table in tables.items():
        if isinstance(table, RmqError):
            steps.append(_failed(name, masters[name], table))
            continue
        stats = _stats(client, at[name], table)
        if isinstance(stats, RmqError):
            steps.append(_failed(name, at[name], stats))
            continue
        steps += [
            CleanStep(
                broker_name=name,
                address=at[name],
                topic=queue.topic,
                queue_id=queue.queue_id,
                max_offset=offset.max_offset,
                result="planned",
            )
            for queue, offset in sorted(stats.items())
            if _is_expired(queue, offset)
        ]
    return steps


def _stats(
    client: Client, address: str, topics: Mapping[str, object]
) -> dict[MessageQueue, TopicOffset] | RmqError:
    answers = client.ask_many(
        {topic: (address, get_topic_stats_info(topic)) for topic in topics}
    )
    found: dict[MessageQueue, TopicOffset] = {}
    for answer in answers.values():
        if isinstance(answer, NotFoundError):
            continue  # deleted in the meantime
        if isinstance(answer, RmqError):
            return answer
        found.update(answer)
    return found


def _is_expired(queue: MessageQueue, offset: TopicOffset) -> bool:
    """Whether the log has lost the last message of a queue that had some.

    The store time of that message is then unknown to the broker.
    """
    is_gone = offset.max_offset > 0 and offset.last_update_timestamp <= 0
    return is_gone and queue.topic != SCHEDULE_TOPIC


def apply_clean_expired(client: Client, steps: list[CleanStep]) -> list[CleanStep]:
    """Tell brokers with planned steps to clean up, then read which queues are left."""
    brokers = with_address(
        {s.broker_name: s.address for s in steps if s.result == "planned"}
    )
    written = _clean(client, brokers, clean_expired_consume_queue())
    topics = {s.topic: None for s in steps if s.result == "planned" and s.topic}
    read = {n: _stats(client, address, topics) for n, address in brokers.items()}
    results = []
    for step in steps:
        if step.result != "planned":
            results.append(step)
            continue
        error, left = written[step.broker_name], read[step.broker_name]
        if isinstance(left, RmqError):
            results.append(_unread(step, error, left))
            continue
        is_left = any(
            (queue.topic, queue.queue_id) == (step.topic, step.queue_id)
            and _is_expired(queue, offset)
            for queue, offset in left.items()
        )
        results.append(_applied(step, error, is_left=is_left))
    return results


def plan_clean_unused(client: Client, masters: Addresses) -> list[CleanStep]:
    """Return the queues without a topic that are known; nothing is changed.

    They are those that groups have read. A broker whose queues cannot be read has one
    failed step. Raises NoBrokerError when no broker answers.
    """
    tables = ask_each(client, masters, get_all_topic_config())
    client.raise_if_none_answers(tables.values())
    offsets = ask_each(client, masters, get_all_consumer_offset())
    info = client.cluster_info()
    steps = []
    at = with_address(masters)
    for name in masters:
        table, committed = tables[name], offsets[name]
        if isinstance(table, RmqError) or isinstance(committed, RmqError):
            error = table if isinstance(table, RmqError) else committed
            assert isinstance(error, RmqError)  # one of the two  # noqa: S101
            steps.append(_failed(name, masters[name], error))
            continue
        address = at[name]
        queues = {
            (topic, queue_id)
            for (_, topic), by_queue in committed.items()
            if topic not in table and topic_kind(topic, info) != "system"
            for queue_id in by_queue
        }
        steps += [
            CleanStep(
                broker_name=name,
                address=address,
                topic=topic,
                queue_id=queue_id,
                result="planned",
                error=exists if isinstance(exists, RmqError) else None,
            )
            for (topic, queue_id), exists in sorted(
                _existing(client, address, queues).items()
            )
            if exists is not False
        ]
    return steps


def _existing(
    client: Client, address: str, queues: set[tuple[str, int]]
) -> dict[tuple[str, int], bool | RmqError]:
    """Return which queues a broker has, whatever topics it has.

    Source: AdminBrokerProcessor.queryConsumeQueue, whose remark alone says that a queue
    does not exist: the code is the one of any failure.
    """
    answers = client.ask_many(
        {
            (topic, queue_id): (
                address,
                query_consume_queue(topic, queue_id, 0, count=1),
            )
            for topic, queue_id in queues
        },
    )
    found: dict[tuple[str, int], bool | RmqError] = {}
    for (topic, queue_id), answer in answers.items():
        absent = f"{queue_id}@{topic} is not exist!"
        if isinstance(answer, BrokerError) and answer.remark == absent:
            found[topic, queue_id] = False
        else:
            found[topic, queue_id] = answer if isinstance(answer, RmqError) else True
    return found


def apply_clean_unused(
    client: Client, masters: Addresses, steps: list[CleanStep]
) -> list[CleanStep]:
    """Tell the brokers to remove queues without a topic, then read which are left.

    All brokers are told, because they may have queues that are not known here.
    """
    failed = {step.broker_name for step in steps if step.result == "failed"}
    asked = with_address(masters, failed)
    written = _clean(client, asked, clean_unused_topic())
    results = [step for step in steps if step.result == "failed"]
    for name, address in asked.items():
        planned = [step for step in steps if step.broker_name == name]
        error = written[name]
        if not planned and error is not None:
            results.append(_failed(name, address, error))
        keys = {(s.topic or "", s.queue_id or 0) for s in planned}
        left = _existing(client, address, keys)
        for step in planned:
            found = left[step.topic or "", step.queue_id or 0]
            results.append(
                _unread(step, error, found)
                if isinstance(found, RmqError)
                else _applied(step, error, is_left=found)
            )
    return results


def _clean(
    client: Client, brokers: Mapping[str, str], call: Call[None]
) -> dict[str, RmqError | None]:
    """Tell the brokers to clean up; return by name what went wrong."""
    answers = change_each(client, brokers, call)
    for name, answer in answers.items():
        if isinstance(answer, BrokerError):
            answer.message = f"{name} refused to clean up: {answer.message}"
            answer.args = (answer.message,)
    return answers


def _applied(step: CleanStep, written: RmqError | None, *, is_left: bool) -> CleanStep:
    """Return the outcome when a broker shows what is left.

    If the broker refused, the step failed even if the queue is gone: something else
    removed it.
    """
    if not (is_left or _is_undone(written)):
        return replace(step, result="removed", error=None)
    kept = PartialError(
        f"{step.broker_name} confirmed the clean-up, but still has queue"
        f" {step.queue_id} of {step.topic}"
    )
    error = written or kept
    return replace(step, result=failed_word(error), error=error)


def _unread(step: CleanStep, written: RmqError | None, read: RmqError) -> CleanStep:
    """Return the outcome when a broker does not show what is left.

    The clean-up failed if the broker refused it, and otherwise may have been made.
    """
    if written is not None and _is_undone(written):
        return replace(step, result=failed_word(written), error=written)
    error = written or read
    unread = ChangeUnknownError(
        f"{step.broker_name} was told to clean up, but whether it did is not known:"
        f" {error.message}",
        hint=error.hint,
    )
    return replace(step, result=failed_word(unread), error=unread)


def _is_undone(written: RmqError | None) -> bool:
    """Whether a broker certainly did not clean up."""
    return written is not None and not isinstance(written, ChangeUnknownError)


def _failed(name: str, address: str | None, error: RmqError) -> CleanStep:
    word = failed_word(error)
    return CleanStep(broker_name=name, address=address, result=word, error=error)
