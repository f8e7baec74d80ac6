"""What a message keeps when it is written into another record."""

from __future__ import annotations

import pytest

from rmqcli.broker.message.copy import fields_as_stored
from rmqcli.wire.message.decode import decode_messages
from rmqcli.wire.message.encode import MessageFields, encode_message, encode_placed
from rmqcli.wire.message.record import DecodeFailure

#: A record whose every field has a value of its own; its CRC is not that of its body.
RECORD = encode_message(
    MessageFields(
        topic="%RETRY%g",
        body=b"x",
        queue_id=3,
        queue_offset=40,
        commit_log_offset=50,
        flag=6,
        sys_flag=1,
        born_timestamp_ms=70,
        born_host="10.0.0.8:80",
        store_timestamp_ms=90,
        store_host="[fe80::1]:10911",
        reconsume_times=11,
        prepared_transaction_offset=12,
        body_crc=13,
        properties={"a": "b"},
    )
)


@pytest.mark.parametrize(
    ("topic", "name"), [("", b"%RETRY%g"), ("orders12", b"orders12")]
)
def test_the_same_message_in_another_record_differs_in_nothing_else(topic, name):
    (message,) = decode_messages(RECORD)
    assert not isinstance(message, DecodeFailure)
    fields = fields_as_stored(message, properties={"a": "b"}, topic=topic)
    written = encode_placed(fields, queue_offset=40, commit_log_offset=50)
    assert written == RECORD.replace(b"%RETRY%g", name)
