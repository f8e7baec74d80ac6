"""Recall handles as RocketMQ 5.5.0 writes them."""

from __future__ import annotations

import base64

import pytest

from rmqcli.errors import DecodeError
from rmqcli.wire.recall_handle import (
    RecallHandle,
    decode_recall_handle,
    encode_recall_handle,
)

TEXT = "djEgdG9waWMgYnJva2VyLWEgMTcwMDAwMDAwMDAwMSAwMUFC"
HANDLE = RecallHandle(
    topic="topic",
    broker_name="broker-a",
    timestamp_ms="1700000000001",
    message_id="01AB",
)


def test_a_handle_is_read_and_written():
    assert decode_recall_handle(TEXT) == HANDLE
    assert encode_recall_handle(HANDLE) == TEXT


@pytest.mark.parametrize("message_id", ["0", "01", "01A", "01AB"])
def test_a_handle_may_lack_the_signs_that_fill_it_up(message_id):
    handle = RecallHandle(
        topic="topic",
        broker_name="broker-a",
        timestamp_ms="1700000000001",
        message_id=message_id,
    )
    text = encode_recall_handle(handle)
    assert decode_recall_handle(text) == handle
    assert decode_recall_handle(text.rstrip("=")) == handle


def handle_of(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode()


def test_parts_after_the_fifth_and_bytes_that_are_not_utf_8_are_taken_as_by_java():
    found = decode_recall_handle(handle_of(b"v1 t\xff b 1 m more"))
    assert (found.topic, found.message_id) == ("t\ufffd", "m")
    with pytest.raises(DecodeError, match="recall handle is invalid"):
        decode_recall_handle(handle_of(b"v1 t b 1"))


def test_a_handle_has_4096_characters_at_most():
    start = b"v1 t b 1 "
    longest = handle_of(start + b"m" * (3072 - len(start)))
    assert len(longest) == 4096
    assert decode_recall_handle(longest).message_id == "m" * (3072 - len(start))
    with pytest.raises(DecodeError, match="recall handle is invalid"):
        decode_recall_handle(longest + "AAAA")


@pytest.mark.parametrize(
    "text",
    ["", "!!", "djEgdG9waWM=", "djIgdG9waWMgYnJva2VyLWEgMTcgMDE=", "é", "A" * 5_000],
)
def test_what_is_no_handle_is_refused(text):
    with pytest.raises(DecodeError, match="recall handle is invalid"):
        decode_recall_handle(text)
