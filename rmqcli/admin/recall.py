"""Recalls a message that waits for its delivery time, and verifies it.

A recall is a record that deletes the message when it is due. A broker stores it without
a look at the message. So the message is looked for first, and afterwards it is checked
that it no longer waits.

Source: RecallMessageProcessor and RecallMessageHandle of 5.3.2 and later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqcli.admin.brokers import denial_of, lost_answer, reader_addresses
from rmqcli.admin.delayed import (
    DelayedMessage,
    delayed_by_level,
    delivered_until_ms,
    waiting_timers,
)
from rmqcli.admin.lag.memory import untold_errors_of
from rmqcli.api.broker_errors import not_found
from rmqcli.api.calls.config import get_broker_runtime_info
from rmqcli.api.calls.producer import recall_message
from rmqcli.dataclass import dataclass
from rmqcli.errors import (
    ChangeUnknownError,
    DecodeError,
    NotFoundError,
    PartialError,
    RefusedError,
    RmqError,
    UsageError,
)
from rmqcli.hint import Argument, Hint, LibraryCall
from rmqcli.units import SECOND_MS, read_count
from rmqcli.wire.codes import ResponseCode
from rmqcli.wire.message.properties import REAL_TOPIC
from rmqcli.wire.recall_handle import (
    RecallHandle,
    decode_recall_handle,
    encode_recall_handle,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from rmqcli.api.client import Client

#: A message that is due sooner may be on its way already.
_CERTAIN_MS: Final = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallPlan:
    """A message that waits for its delivery time, and the handle that recalls it."""

    topic: str
    message: DelayedMessage
    recall_handle: str


def plan_recall(client: Client, ref: str, *, topic: str | None) -> RecallPlan:
    """Find the message of a recall handle, or with `topic` of an id; change nothing.

    Raises UsageError for an id without `topic`, a key, and a handle of another topic,
    RefusedError for a message with a delay level, which RocketMQ cannot recall,
    NotFoundError when no such message waits, DeniedError when all brokers deny access,
    PartialError when that is not known of every broker, and NoBrokerError when no
    broker answers.
    """
    handle = parse_handle(ref, topic=topic)
    if handle is not None:
        topic, msg_id = handle.topic, handle.message_id
    elif topic is not None:
        msg_id = ref
    else:
        raise UsageError(
            f"{ref} is not a recall handle; a message ID needs its topic",
            hint=Hint("give ", Argument("topic")),
        )
    spellings = (msg_id, msg_id.upper())
    addresses = reader_addresses(client.route(topic).brokers)
    errors: dict[str, RmqError] = {}
    if handle is not None and handle.broker_name not in addresses:
        raise not_found("broker", handle.broker_name)
    #: by its handle, which recalls all copies that are due at one time on one broker
    plans: dict[str, RecallPlan] = {}
    with_key: list[str] = []
    for name, address in addresses.items():
        if handle is not None and name != handle.broker_name:
            continue
        try:
            waiting, _ = waiting_timers(client, name, address, topic)
            found = [
                each
                for each in waiting
                if each.msg_id in spellings
                and (handle is None or _is_named_by(handle, each))
            ]
            with_key += [
                each.msg_id
                for each in waiting
                if each.msg_id and ref in (each.keys or "").split()
            ]
            if not found and handle is None:
                _refuse_level(client, name, address, topic, spellings)
        except RefusedError:
            raise
        except RmqError as error:
            errors[name] = error
            continue
        for each in found:
            text = encode_recall_handle(
                RecallHandle(
                    topic=topic,
                    broker_name=name,
                    # The due time is rounded down to the second.
                    timestamp_ms=str((each.due_ms or 0) + 1),
                    message_id=each.msg_id or msg_id,
                )
            )
            plans[text] = RecallPlan(topic=topic, message=each, recall_handle=text)
    if not plans and handle is None:
        errors |= untold_errors_of(client, [topic])
    client.raise_if_none_answers(errors.values())
    denial = None if plans else denial_of(errors.get(name) for name in addresses)
    if denial is not None:
        raise denial
    for name, failure in errors.items():
        raise PartialError(
            f"whether the message waits on {name} is not known: {failure.message}",
            hint=failure.hint,
        )
    if ref in plans:
        return plans[ref]
    if len(plans) > 1:
        handles = ", ".join(plans)
        raise UsageError(
            f"{len(plans)} copies of message {msg_id} wait",
            hint=f"recall each by its handle: {handles}",
        )
    if plans:
        return next(iter(plans.values()))
    if with_key:
        raise UsageError(
            f"{ref} is a key, and messages are recalled by their IDs",
            hint=f"of messages with this key, these wait: {', '.join(with_key)}",
        )
    raise NotFoundError(
        f"no message with the ID {msg_id} of topic {topic} waits for its delivery"
        " time: it was delivered, recalled, or never delayed",
        code=ResponseCode.NO_MESSAGE,
    )


def apply_recall(client: Client, plan: RecallPlan) -> None:
    """Recall the message, and check that it no longer waits.

    Raises the broker's error when it refuses, as without recallMessageEnable, and
    PartialError when it accepted the recall and the message still waits, or does not
    show whether it waits, or was due before that was certain. When the broker's answer
    was lost and the recall has not been seen to be done, that is ChangeUnknownError.
    """
    broker_name = plan.message.queue.broker_name
    address = client.master_of(client.route(plan.topic), broker_name)
    look = Hint("see what waits: ", LibraryCall("Admin.delayed", plan.topic))
    lost: ChangeUnknownError | None = None
    try:
        client.invoke(address, recall_message(plan.topic, plan.recall_handle))
    except RmqError as error:
        unknown = lost_answer(error, look=look)
        if not isinstance(unknown, ChangeUnknownError):
            raise
        lost = unknown
    try:
        waiting, _ = waiting_timers(client, broker_name, address, plan.topic)
        runtime = client.invoke(address, get_broker_runtime_info())
    except RmqError as error:
        raise lost or PartialError(
            f"{broker_name} accepted the recall, but whether the message"
            f" {plan.message.msg_id} still waits is not known: {error.message}",
            hint=look,
        ) from error
    if any(
        (each.msg_id, each.due_ms) == (plan.message.msg_id, plan.message.due_ms)
        for each in waiting
    ):
        raise lost or PartialError(
            f"{broker_name} accepted the recall, but the message"
            f" {plan.message.msg_id} still waits"
        )
    until_ms = delivered_until_ms(client, runtime)
    if (plan.message.due_ms or 0) <= until_ms + _CERTAIN_MS:
        raise PartialError(
            f"message {plan.message.msg_id} was due while it was recalled: it may have"
            " been delivered"
        )


def _is_named_by(handle: RecallHandle, message: DelayedMessage) -> bool:
    """Whether a handle with the id of this message also has the time of it.

    Copies of a message have its id, too. Brokers round the time down to the second, and
    a full second to the one before.
    """
    at_ms = read_count(handle.timestamp_ms)
    if at_ms is None or at_ms == 0:
        return False
    return message.due_ms in (at_ms - 1, (at_ms - 1) // SECOND_MS * SECOND_MS)


def parse_handle(ref: str, *, topic: str | None) -> RecallHandle | None:
    """Return the parts of a recall handle, None if `ref` is not one.

    Raises UsageError if it is of a message of another topic than `topic`.
    """
    try:
        handle = decode_recall_handle(ref)
    except DecodeError:
        return None
    if topic not in (None, handle.topic):
        raise UsageError(
            f"the recall handle is of a message of topic {handle.topic}, not {topic}"
        )
    return handle


def _refuse_level(
    client: Client, name: str, address: str, topic: str, msg_ids: Collection[str]
) -> None:
    """Raise RefusedError if the message waits in a delay level."""
    for level, _, _, message in delayed_by_level(client, name, address):
        if message.msg_id in msg_ids and message.properties.get(REAL_TOPIC) == topic:
            raise RefusedError(
                f"message {message.msg_id} waits in delay level {level} of {name};"
                " RocketMQ recalls only messages with a delivery time"
            )
