"""Reads the single messages that a reset needs.

By queue and offset (`read_messages`, `with_times`): for the store times of the messages
that a plan moves over, and the messages on each side of its targets. They are pulled as
TOOLS_CONSUMER without a commit, so that nothing is left on the broker. A message that
cannot be read is left out, because a plan is useful without it.

By id (`find_message`): offset ids and unique ids look alike. An offset id contains the
position of a record; a unique id has to be looked up in each broker's index. An id is
tried as an offset id first when its host is one of the topic's brokers. Answers are
checked: they must have the requested topic and id.

Source: MQAdminImpl#queryMessage, QueryMessageProcessor in apache/rocketmq.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rmqcli.admin.brokers import addresses_of_host
from rmqcli.admin.reset.plan import EdgeMessage
from rmqcli.api.calls.pull import pull_message
from rmqcli.api.calls.store import is_nothing_there, query_message, view_message_by_id
from rmqcli.api.runner import run_task, run_tasks
from rmqcli.errors import (
    BrokerError,
    DecodeError,
    NotFoundError,
    RmqError,
    UsageError,
)
from rmqcli.hint import Blank, Hint, Setting
from rmqcli.model import MessageQueue
from rmqcli.tasks import All, Request
from rmqcli.units import DAY_MS, counted
from rmqcli.wire.codes import ResponseCode
from rmqcli.wire.ids import decode_offset_msg_id, decode_unique_id
from rmqcli.wire.message.decode import StoredMessage, decode_messages

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rmqcli.admin.reset.plan import QueuePlan, ResetPlan
    from rmqcli.api.client import Client
    from rmqcli.tasks import Task
    from rmqcli.wire.pull_answer import PullAnswer

#: How many characters of a body are shown beside a target.
_PREVIEW_CHARS = 60

Place = tuple["MessageQueue", int]


def read_messages(
    client: Client, places: Iterable[Place]
) -> Task[dict[Place, StoredMessage]]:
    """Read the messages at `places`, all at once; missing ones are left out.

    The client must already know the routes of their topics.
    """
    asked: dict[Place, Request[PullAnswer]] = {}
    for place in dict.fromkeys(places):
        queue, queue_offset = place
        try:
            address = client.reader_of(queue)
        except RmqError:
            continue
        call = pull_message(queue, queue_offset, max_msg_nums=1)
        asked[place] = Request(address, call)
    answers = yield All(list(asked.values()))
    found = {}
    for place, answer in zip(asked, answers, strict=True):
        if isinstance(answer, RmqError):
            continue
        for message in decode_messages(answer.body):
            if isinstance(message, StoredMessage) and message.queue_offset == place[1]:
                found[place] = message
    return found


def with_times(client: Client, plan: ResetPlan, *, with_edges: bool) -> ResetPlan:
    """Return `plan` with the store times of the messages that it moves over.

    With `with_edges`, also with the messages on each side of the targets.
    """
    places: list[Place] = []
    for each in plan.queues:
        places += _span(each) or ()
        if with_edges and each.target is not None:
            places += [(each.queue, each.target - 1), (each.queue, each.target)]
    there = [place for place in places if place[1] >= 0]
    found = run_task(client, read_messages(client, there))
    queues = []
    for each in plan.queues:
        changes: dict[str, object] = {}
        span = _span(each)
        if span is not None:
            first, last = found.get(span[0]), found.get(span[1])
            changes["first_store_ms"] = first and first.store_timestamp_ms
            changes["last_store_ms"] = last and last.store_timestamp_ms
        if with_edges and each.target is not None:
            changes["before"] = _edge(found.get((each.queue, each.target - 1)))
            changes["after"] = _edge(found.get((each.queue, each.target)))
        queues.append(replace(each, **changes))  # type: ignore[arg-type]  # by name
    return replace(plan, queues=tuple(queues))


def _span(plan: QueuePlan) -> tuple[Place, Place] | None:
    moved = plan.moved_range
    if moved is None or moved[0] >= moved[1]:
        return None
    return (plan.queue, moved[0]), (plan.queue, moved[1] - 1)


def _edge(message: StoredMessage | None) -> EdgeMessage | None:
    if message is None:
        return None
    try:
        body = message.body
    except DecodeError:
        body = message.raw_body
    return EdgeMessage(
        queue_offset=message.queue_offset,
        store_timestamp_ms=message.store_timestamp_ms,
        msg_id=message.msg_id,
        keys=message.keys,
        tags=message.tags,
        body_preview=body[: 4 * _PREVIEW_CHARS].decode("utf-8", "backslashreplace")[
            :_PREVIEW_CHARS
        ],
    )


@dataclass(frozen=True, slots=True)
class FoundMessage:
    """The queue and the offset of a message."""

    queue: MessageQueue
    queue_offset: int


def find_message(client: Client, topic: str, message_id: str) -> FoundMessage:
    """Find the message of `topic` with this id, an offset id or a unique id.

    Raises NotFoundError when there is none. Raises UsageError for a text that is not an
    id, and when several messages have the id: a producer that sends a message again
    uses its id again.
    """
    found = list(dict.fromkeys(_by_offset_id(client, topic, message_id)))
    if not found:
        found = list(dict.fromkeys(_by_unique_id(client, topic, message_id)))
    if not found:
        raise NotFoundError(
            f"no message of topic {topic} has the id {message_id}; if it is a unique"
            f" id, {_producer_of(message_id)}",
            code=int(ResponseCode.NO_MESSAGE),
            name=ResponseCode.NO_MESSAGE.name,
            hint=Hint(
                "if the index does not reach back that far, name the message's queue"
                " and offset: ",
                Setting("queues", Blank("[QUEUE]")),
                Setting("to", Blank("OFFSET+1")),
            ),
        )
    if len(found) > 1:
        places = ", ".join(f"{each.queue} at {each.queue_offset}" for each in found)
        raise UsageError(
            f"{counted(len(found), 'message')} have the id {message_id}: {places}",
            hint="name one of them by its offset_msg_id",
        )
    return found[0]


def _producer_of(text: str) -> str:
    """Describe which process made the id and when, if it is a unique id.

    This helps when the id is of another cluster.
    """
    made = decode_unique_id(text)
    day, ms = divmod(made.since_month_start_ms, DAY_MS)
    minutes, seconds = divmod(ms // 1_000, 60)
    hour, minute = divmod(minutes, 60)
    return (
        f"process {made.pid} at {made.ip} created it on day {day + 1} of the month at"
        f" {hour:02}:{minute:02}:{seconds:02} local time"
    )


def _by_offset_id(client: Client, topic: str, text: str) -> Iterator[FoundMessage]:
    try:
        wanted = decode_offset_msg_id(text)
    except UsageError:
        # Raise for text that is not an id; an invalid port only means a unique id.
        if len(text) not in (32, 56) or not text.isalnum():
            raise
        return
    route = client.route(topic)
    for broker in route.brokers:
        for address in addresses_of_host(broker, wanted.host):
            call = view_message_by_id(wanted.commit_log_offset, topic=topic)
            try:
                body = client.invoke(address, call)
            except BrokerError as error:
                if not is_nothing_there(error):
                    raise
                continue  # then it was a unique id
            for message in decode_messages(body):
                if (
                    isinstance(message, StoredMessage)
                    and message.offset_msg_id == text.upper()
                    and message.topic == topic
                ):
                    yield _found(message, topic, broker.broker_name)


def _by_unique_id(client: Client, topic: str, text: str) -> Iterator[FoundMessage]:
    route = client.route(topic)
    names = [b.broker_name for b in route.brokers if b.master_address is not None]
    # A producer's clock may be ahead of ours.
    end_ms = client.clock.epoch_ms() + DAY_MS
    call = query_message(topic, text, begin_ms=0, end_ms=end_ms)
    bodies = run_tasks(
        client, [Request(client.master_of(route, name), call) for name in names]
    )
    for name, body in zip(names, bodies, strict=True):
        if isinstance(body, RmqError):
            raise body
        for message in decode_messages(body):
            if (
                isinstance(message, StoredMessage)
                and message.topic == topic
                and message.msg_id == text
            ):
                yield _found(message, topic, name)


def _found(message: StoredMessage, topic: str, broker_name: str) -> FoundMessage:
    queue = MessageQueue(topic, broker_name, message.queue_id)
    return FoundMessage(queue, message.queue_offset)
