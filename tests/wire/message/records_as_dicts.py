"""The expected JSON of a record, built key by key from the message's attributes.

This is the simple reference for the two writers, which work on bytes.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any

from rmqcli.errors import DecodeError
from rmqcli.units import format_rfc3339
from rmqcli.wire.message.record import DecodeFailure

if TYPE_CHECKING:
    from rmqcli.model import MessageQueue
    from rmqcli.wire.message.record import StoredMessage

KEYS = (
    "topic",
    "broker_name",
    "queue_id",
    "queue_offset",
    "commit_log_offset",
    "msg_id",
    "offset_msg_id",
    "tags",
    "keys",
    "born_timestamp",
    "store_timestamp",
    "born_host",
    "store_host",
    "reconsume_times",
    "flag",
    "sys_flag",
    "store_bytes",
    "properties",
)


def record_as_dict(
    queue: MessageQueue, message: StoredMessage | DecodeFailure
) -> dict[str, Any]:
    """Return the record of a message, or of a failure to decode one."""
    if isinstance(message, DecodeFailure):
        record = dict.fromkeys(KEYS) | {
            "topic": queue.topic,
            "broker_name": queue.broker_name,
            "queue_id": queue.queue_id,
            "queue_offset": message.queue_offset,
            "commit_log_offset": message.commit_log_offset,
            "store_bytes": len(message.raw),
        }
        return record | undecodable(message.error, message.raw)
    values = (
        queue.topic,
        queue.broker_name,
        queue.queue_id,
        message.queue_offset,
        message.commit_log_offset,
        message.msg_id,
        message.offset_msg_id,
        message.tags,
        message.keys,
        format_rfc3339(message.born_timestamp_ms),
        format_rfc3339(message.store_timestamp_ms),
        message.born_host,
        message.store_host,
        message.reconsume_times,
        message.flag,
        message.sys_flag,
        message.store_bytes,
        message.properties,
    )
    record = dict(zip(KEYS, values, strict=True))
    try:
        return record | body_members(message.body)
    except DecodeError as error:
        return record | undecodable(error.message, message.raw_body)


def undecodable(error: str, raw: bytes) -> dict[str, Any]:
    return {
        "body": None,
        "body_b64": None,
        "body_encoding": None,
        "error": error,
        "raw_b64": b64encode(raw).decode(),
    }


def body_members(body: bytes) -> dict[str, Any]:
    """Return the body as text, or as base64 if it is not UTF-8."""
    try:
        return {"body": body.decode(), "body_b64": None, "body_encoding": "utf-8"}
    except UnicodeDecodeError:
        encoded = b64encode(body).decode()
        return {"body": None, "body_b64": encoded, "body_encoding": "base64"}
