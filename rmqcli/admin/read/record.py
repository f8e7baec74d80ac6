"""A message as a record: the keys and values that `-o json|jsonl` and exports share.

The body is in one of `body` (text), `body_json` (a value) or `body_b64`, and
`body_encoding` says which; JSON is nested only where writing it compactly gives back
the very bytes, so nothing is ever lost. What could not be decoded is in `error`, with
the bytes in `raw_b64`.
"""

from __future__ import annotations

import json
from binascii import b2a_base64
from typing import TYPE_CHECKING, Any, NoReturn

from rmqcli.errors import DecodeError
from rmqcli.units import format_rfc3339
from rmqcli.wire.message.record import DecodeFailure

if TYPE_CHECKING:
    from rmqcli.model import MessageQueue
    from rmqcli.wire.message.decode import StoredMessage

#: Every key that a record always has, in order, and what it is.
RECORD_FIELDS = (
    ("topic", "the topic that was read"),
    ("broker_name", "the broker that holds the queue"),
    ("queue_id", "number of the queue on that broker"),
    ("queue_offset", "place in the queue"),
    ("commit_log_offset", "place in the broker's log, in bytes"),
    ("msg_id", "the producer's id, UNIQ_KEY"),
    ("offset_msg_id", "the broker's id: its address and commit_log_offset"),
    ("tags", "the tag"),
    ("keys", "keys, separated by spaces"),
    ("born_timestamp", "when it was sent, by the producer's clock; RFC 3339, UTC"),
    ("store_timestamp", "when it was stored, by the broker's clock; RFC 3339, UTC"),
    ("born_host", "the producer's address"),
    ("store_host", "the broker's address"),
    ("reconsume_times", "how often it was consumed in vain"),
    ("flag", "the producer's own number"),
    ("sys_flag", "bits: compressed, transaction, ..."),
    ("store_bytes", "size of the record as stored"),
    ("properties", "all properties, the system's too"),
)
#: Keys that a record has only where they apply.
BODY_FIELDS = (
    ("body", "the body, when it is UTF-8 text"),
    ("body_json", "the body, when it is a compact JSON object or list"),
    ("body_b64", "the body in base64, when it is neither"),
    ("body_encoding", "which of the three there is: utf-8, json or base64"),
    ("truncated", "true when the body was cut"),
    ("error", "what in the message could not be decoded"),
    ("raw_b64", "with error: the bytes that could not be decoded"),
)

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def record_of(
    queue: MessageQueue, message: StoredMessage | DecodeFailure
) -> dict[str, Any]:
    """The record of a message, or of what should have been one."""
    if isinstance(message, DecodeFailure):
        return _failure_record(queue, message)
    record: dict[str, Any] = {
        "topic": queue.topic,
        "broker_name": queue.broker_name,
        "queue_id": queue.queue_id,
        "queue_offset": message.queue_offset,
        "commit_log_offset": message.commit_log_offset,
        "msg_id": message.msg_id,
        "offset_msg_id": message.offset_msg_id,
        "tags": message.tags,
        "keys": message.keys,
        "born_timestamp": format_rfc3339(message.born_timestamp_ms),
        "store_timestamp": format_rfc3339(message.store_timestamp_ms),
        "born_host": message.born_host,
        "store_host": message.store_host,
        "reconsume_times": message.reconsume_times,
        "flag": message.flag,
        "sys_flag": message.sys_flag,
        "store_bytes": message.store_bytes,
        "properties": message.properties,
    }
    try:
        body = message.body
    except DecodeError as error:
        record["body_encoding"] = None
        record["error"] = error.message
        record["raw_b64"] = to_base64(message.raw_body)
        return record
    value = nested_json(body)
    if value is not None:
        record["body_json"] = value
        record["body_encoding"] = "json"
        return record
    try:
        record["body"] = body.decode()
        record["body_encoding"] = "utf-8"
    except UnicodeDecodeError:
        record["body_b64"] = to_base64(body)
        record["body_encoding"] = "base64"
    return record


def nested_json(body: bytes) -> dict[str, object] | list[object] | None:
    """The object or list that `body` is, None unless writing it gives `body` again."""
    if body[:1] not in (b"{", b"[") or body[-1:] not in (b"}", b"]"):
        return None
    try:
        text = body.decode()
        value: dict[str, object] | list[object]
        value, end = _decode_value(text)
        is_same = end == len(text) and _encode(value) == text
    except (ValueError, RecursionError):
        return None
    return value if is_same else None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")


#: Kept, for making it costs as much as reading a short body.
_decode_value = json.JSONDecoder(parse_constant=_refuse_constant).raw_decode


def to_base64(data: bytes) -> str:
    """Base64 on one line."""
    return b2a_base64(data, newline=False).decode()


def _failure_record(queue: MessageQueue, failure: DecodeFailure) -> dict[str, Any]:
    record: dict[str, Any] = dict.fromkeys(name for name, _ in RECORD_FIELDS)
    record["topic"] = queue.topic
    record["broker_name"] = queue.broker_name
    record["queue_id"] = queue.queue_id
    record["queue_offset"] = failure.queue_offset
    record["commit_log_offset"] = failure.commit_log_offset
    record["store_bytes"] = len(failure.raw)
    record["body_encoding"] = None
    record["error"] = failure.error
    record["raw_b64"] = to_base64(failure.raw)
    return record
