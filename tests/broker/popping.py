"""Requests of POP consumers, to a core that is driven by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqcli.wire.codes import RequestCode
from rmqcli.wire.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    PopMessageRequestHeader,
)
from rmqcli.wire.message.decode import decode_messages
from rmqcli.wire.message.record import StoredMessage
from rmqcli.wire.receipt_handle import (
    ReceiptHandle,
    decode_receipt_handle,
    decode_start_offset_info,
    encode_receipt_handle,
)
from tests.broker.driving import CLIENT, Driver, need

if TYPE_CHECKING:
    from rmqcli.broker.effects import Peer
    from rmqcli.wire.command import RemotingCommand


def pop_header(driver: Driver, **changes: Any) -> PopMessageRequestHeader:
    """A receive from queue 0 of T by the group g, that is not held."""
    fields: dict[str, Any] = {
        "consumer_group": "g",
        "topic": "T",
        "queue_id": 0,
        "max_msg_nums": 32,
        "invisible_time": 60_000,
        "poll_time": 0,
        "born_time": driver.now.epoch_ms,
        "init_mode": 1,
    }
    return PopMessageRequestHeader(**{**fields, **changes})


def pop(driver: Driver, *, peer: Peer = CLIENT, **changes: Any) -> RemotingCommand:
    """The answer to a receive that is answered at once."""
    header = pop_header(driver, **changes)
    answer = driver.ask(RequestCode.POP_MESSAGE, header, peer=peer)
    assert answer is not None, "held"
    return answer


def messages(answer: RemotingCommand) -> list[StoredMessage]:
    """The messages of an answer."""
    found = decode_messages(answer.body)
    return [each for each in found if isinstance(each, StoredMessage)]


def handles(answer: RemotingCommand) -> list[ReceiptHandle]:
    """The handle of each message, as clients make it."""
    fields, made = answer.ext_fields, []
    starts = decode_start_offset_info(fields["startOffsetInfo"])
    for message in messages(answer):
        given = message.properties.get("POP_CK")
        made.append(
            decode_receipt_handle(given)
            if given is not None
            else ReceiptHandle(
                start_offset=starts["0", message.queue_id],
                pop_time_ms=int(fields["popTime"]),
                invisible_ms=int(fields["invisibleTime"]),
                revive_queue_id=int(fields["reviveQid"]),
                topic_type="0",
                broker_name="broker-a",
                queue_id=message.queue_id,
                offset=message.queue_offset,
            )
        )
    return made


def ack(driver: Driver, handle: ReceiptHandle) -> int:
    """The code of the answer to an acknowledgement."""
    header = AckMessageRequestHeader(
        consumer_group="g",
        topic=handle.real_topic("T", "g"),
        queue_id=handle.queue_id,
        extra_info=encode_receipt_handle(handle),
        offset=need(handle.offset),
    )
    return need(driver.ask(RequestCode.ACK_MESSAGE, header)).code


def change(
    driver: Driver, handle: ReceiptHandle, invisible_ms: int, *, suspend: bool = False
) -> RemotingCommand:
    """The answer to a change of the invisible time."""
    header = ChangeInvisibleTimeRequestHeader(
        consumer_group="g",
        topic=handle.real_topic("T", "g"),
        queue_id=handle.queue_id,
        extra_info=encode_receipt_handle(handle),
        offset=need(handle.offset),
        invisible_time=invisible_ms,
        suspend=suspend,
    )
    return need(driver.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header))


def bodies(answer: RemotingCommand) -> list[str]:
    """The tag and the number of earlier attempts of each message: `A`, `A1`."""
    return [
        f"{each.properties.get('TAGS')}{each.reconsume_times or ''}"
        for each in messages(answer)
    ]
