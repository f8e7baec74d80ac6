"""Whether messages that brokers found are still in their topics.

The commit log and its index keep the messages of a topic that was deleted, also when a
topic of that name exists again. Then other messages have their places, or none has. So
a message is compared with what its queue has at its offset now.

A queue has its messages in the order of the commit log: where one of them is still
there, those that were stored later are, too. So of many messages, only the first one of
each queue is compared, and the others where that one is not there.

Source: DefaultMessageStore.cleanUnusedTopic, PullMessageProcessor and
AdminBrokerProcessor.queryConsumeQueue in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rmqcli.admin.brokers import reader_addresses
from rmqcli.admin.message.records import PENDING_TOPICS, decode_found
from rmqcli.admin.witness import ANOTHER
from rmqcli.api.calls.config import get_broker_runtime_info
from rmqcli.api.calls.pull import pull_message
from rmqcli.api.calls.store import query_consume_queue
from rmqcli.api.runner import run_tasks
from rmqcli.errors import DeniedError, NotFoundError, RmqError
from rmqcli.tasks import Request
from rmqcli.units import counted, read_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rmqcli.admin.message.find import FoundMessages
    from rmqcli.api.client import Client
    from rmqcli.engine.message import PulledMessage
    from rmqcli.model import MessageQueue
    from rmqcli.tasks import Task
    from rmqcli.wire.message.record import StoredMessage
    from rmqcli.wire.pull_answer import PullAnswer

#: Places that are compared side by side.
_AT_ONCE = 256


class PlaceState(NamedTuple):
    """Whether a message is at its place; None, with the reason, if that is not known.

    The reason of False says what shows that it is not there any more.
    """

    is_there: bool | None
    reason: str | None = None


def check_place(
    address: str | None, queue: MessageQueue, message: StoredMessage
) -> Task[PlaceState]:
    """Find out whether `message` is in `queue` still, as its broker at `address` says.

    A topic that cannot be read may show the entries of its queues all the same.
    """
    if address is None:
        return PlaceState(None, f"{queue.broker_name} has no address")
    pull = Request(address, pull_message(queue, message.queue_offset, max_msg_nums=1))
    try:
        answer = yield pull
        if answer.max_offset <= message.queue_offset:
            # Brokers store messages before they put them into their queues.
            runtime = yield Request(address, get_broker_runtime_info())
            if _queued_end(runtime) <= message.commit_log_offset:
                return PlaceState(None, "its broker has not put it into its queue yet")
            answer = yield pull
        return _compare(queue, message, answer)
    except NotFoundError as error:
        return PlaceState(False, f"{queue.broker_name}: {error.message}")
    except DeniedError as error:
        return (yield from _by_entry(address, queue, message, error))
    except RmqError as error:
        return _unknown(queue, error)


def _queued_end(runtime: Mapping[str, str]) -> int:
    """Return where in the commit log what is not in its queue yet begins."""
    end = read_count(runtime.get("commitLogMaxOffset")) or 0
    return end - (read_count(runtime.get("dispatchBehindBytes")) or 0)


def _unknown(queue: MessageQueue, error: RmqError) -> PlaceState:
    return PlaceState(
        None, f"{queue.broker_name} does not show what is at its place: {error.message}"
    )


def _compare(
    queue: MessageQueue, message: StoredMessage, answer: PullAnswer
) -> PlaceState:
    offset = message.queue_offset
    if answer.max_offset <= offset:
        return PlaceState(False, f"{queue} ends at {answer.max_offset}")
    if offset < answer.min_offset:
        return PlaceState(None, f"{queue} begins at {answer.min_offset}")
    for found in decode_found(answer.body, queue.broker_name):
        if found.queue_offset == offset:
            return (
                PlaceState(True) if _is_same(message, found) else _other(queue, offset)
            )
    return PlaceState(None, f"{queue} shows no message at offset {offset}")


def _is_same(message: StoredMessage, found: StoredMessage) -> bool:
    """Whether two records are of one message.

    What was moved to another storage may have another commit log offset there.
    """
    if message.commit_log_offset == found.commit_log_offset:
        return True
    return message.msg_id is not None and (
        (message.msg_id, message.store_timestamp_ms)
        == (found.msg_id, found.store_timestamp_ms)
    )


def _other(queue: MessageQueue, offset: int) -> PlaceState:
    return PlaceState(False, f"{queue} has another message at offset {offset}")


def _by_entry(
    address: str, queue: MessageQueue, message: StoredMessage, denied: DeniedError
) -> Task[PlaceState]:
    """Compare the message with the entry of a queue that may not be read."""
    offset = message.queue_offset
    call = query_consume_queue(queue.topic, queue.queue_id, offset, count=1)
    try:
        answer = yield Request(address, call)
    except RmqError:
        return _unknown(queue, denied)
    for entry in answer.queue_data or ():
        is_it = entry.physic_offset == message.commit_log_offset
        return PlaceState(True) if is_it else _other(queue, offset)
    return _unknown(queue, denied)


def removed_because(state: PlaceState) -> str:
    """Say that a message is not in its topic any more, and what shows it."""
    return (
        f"it is in the commit log, but no longer in the topic: {state.reason}"
        f" ({ANOTHER})"
    )


def check_places(
    client: Client, messages: Iterable[PulledMessage]
) -> list[tuple[PulledMessage, PlaceState]]:
    """Find out of each message whether it is in its topic still, in any order."""
    by_queue: dict[MessageQueue, list[PulledMessage]] = {}
    for each in sorted(messages, key=lambda e: e.commit_log_offset):
        by_queue.setdefault(each.message_queue, []).append(each)
    states = _check_all(client, [each[0] for each in by_queue.values()])
    rest: list[PulledMessage] = []
    for (_, first), (_, *later) in zip(list(states), by_queue.values(), strict=True):
        if first.is_there:
            states += [(each, first) for each in later]
        else:
            rest += later
    return states + _check_all(client, rest)


def set_removed_aside(client: Client, found: FoundMessages) -> None:
    """Move the messages that are not in their topics any more to `found.removed`.

    `found.unplaced` says of how many this is not known, and why. Half and delayed
    messages have no place in their topics yet.
    """
    placed = [e for e in found.messages if e.topic not in PENDING_TOPICS]
    states = check_places(client, placed)
    gone = {id(each): state for each, state in states if state.is_there is False}
    unknown = [state.reason for _, state in states if state.is_there is None]
    if gone:
        found.removed += [each for each in found.messages if id(each) in gone]
        found.removed_because = removed_because(next(iter(gone.values())))
        found.messages = [each for each in found.messages if id(each) not in gone]
    if unknown:
        found.unplaced = (
            f"{counted(len(unknown), 'message')} may no longer be in the topic:"
            f" {unknown[0]}"
        )


def _check_all(
    client: Client, messages: Sequence[PulledMessage]
) -> list[tuple[PulledMessage, PlaceState]]:
    addresses = reader_addresses(client.cluster_info().brokers.values())
    states: list[tuple[PulledMessage, PlaceState]] = []
    for start in range(0, len(messages), _AT_ONCE):
        part = messages[start : start + _AT_ONCE]
        tasks = [
            check_place(addresses.get(each.broker_name), each.message_queue, each)
            for each in part
        ]
        states += zip(part, run_tasks(client, tasks), strict=True)
    return states
