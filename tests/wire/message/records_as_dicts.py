"""The expected JSON of a record, built key by key from the message's attributes.

This is the simple reference for the two writers, which work on bytes.
"""

from __future__ import annotations

import json
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
        "body_encoding": None,
        "error": error,
        "raw_b64": b64encode(raw).decode(),
    }


def body_members(body: bytes) -> dict[str, Any]:
    """Return the body as JSON if it is compact JSON, else as text, else as base64."""
    try:
        value = json.loads(body.decode())
        compact = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        is_nested = isinstance(value, (dict, list)) and compact.encode() == body
        if is_nested and "NaN" not in compact and "Infinity" not in compact:
            return {"body_json": value, "body_encoding": "json"}
    except (ValueError, RecursionError):
        pass
    try:
        return {"body": body.decode(), "body_encoding": "utf-8"}
    except UnicodeDecodeError:
        return {"body_b64": b64encode(body).decode(), "body_encoding": "base64"}
