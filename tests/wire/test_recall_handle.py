"""Recall handles as RocketMQ 5.5.0 writes them."""

from __future__ import annotations

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


@pytest.mark.parametrize(
    "text",
    ["", "!!", "djEgdG9waWM=", "djIgdG9waWMgYnJva2VyLWEgMTcgMDE=", "é", "A" * 5_000],
)
def test_what_is_no_handle_is_refused(text):
    with pytest.raises(DecodeError, match="recall handle is invalid"):
        decode_recall_handle(text)
