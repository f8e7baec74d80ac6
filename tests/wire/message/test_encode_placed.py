"""The fast encoder writes the same bytes as code that writes field by field."""

from __future__ import annotations

import dataclasses
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqcli.errors import UsageError
from rmqcli.wire.ids import crc32, host_bytes
from rmqcli.wire.message.encode import MessageFields, encode_message, encode_placed
from rmqcli.wire.message.layout import MAGIC_V1, MAGIC_V2
from rmqcli.wire.message.properties import encode_properties

HOSTS = st.sampled_from(
    ["127.0.0.1:1", "10.0.0.2:10911", "[fe80::1]:9", "[::1]:65535", "0.0.0.0:0"]
)
INTS = st.integers(-(2**31), 2**31 - 1)
LONGS = st.integers(0, 2**63 - 1)
NAMES = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]))

FIELDS = st.builds(
    MessageFields,
    topic=st.text("T%-_é", min_size=1, max_size=200),
    body=st.binary(max_size=300),
    queue_id=INTS,
    flag=INTS,
    sys_flag=st.integers(0, 0x7FF),
    born_timestamp_ms=LONGS,
    born_host=HOSTS,
    store_timestamp_ms=LONGS,
    store_host=HOSTS,
    reconsume_times=INTS,
    prepared_transaction_offset=LONGS,
    body_crc=st.none() | INTS,
    properties=st.dictionaries(NAMES, NAMES | st.none(), max_size=5)
    | st.just("a\x01b\x02")
    | st.just(b"a\x01\xff\x02"),
    properties_bytes=st.none() | st.just(b"known\x011\x02"),
)


def written(fields, magic=None):
    """Return the record, written field by field. Source: `MessageExtEncoder`."""
    topic, properties = fields.topic.encode(), fields.properties
    if fields.properties_bytes is not None:
        properties = fields.properties_bytes
    elif isinstance(properties, dict):
        properties = encode_properties(properties)
    if isinstance(properties, str):
        properties = properties.encode()
    born, store = host_bytes(fields.born_host), host_bytes(fields.store_host)
    sys_flag = fields.sys_flag & ~0b110000
    sys_flag |= (len(born) > 8) << 4 | (len(store) > 8) << 5
    magic = magic or (MAGIC_V1 if len(topic) <= 127 else MAGIC_V2)
    crc = crc32(fields.body) if fields.body_crc is None else fields.body_crc
    at = fields.queue_offset, fields.commit_log_offset
    after_size = (
        struct.pack(">Iiii", magic, crc, fields.queue_id, fields.flag)
        + struct.pack(">qqiq", *at, sys_flag, fields.born_timestamp_ms)
        + born
        + struct.pack(">q", fields.store_timestamp_ms)
        + store
        + struct.pack(">i", fields.reconsume_times)
        + struct.pack(">q", fields.prepared_transaction_offset)
        + struct.pack(">i", len(fields.body))
        + fields.body
        + struct.pack(">b" if magic == MAGIC_V1 else ">h", len(topic))
        + topic
        + struct.pack(">h", len(properties))
        + properties
    )
    return struct.pack(">i", 4 + len(after_size)) + after_size


@given(FIELDS, LONGS, LONGS)
def test_a_record_has_the_bytes_of_its_fields_one_by_one(
    fields, queue_offset, commit_log_offset
):
    placed = dataclasses.replace(
        fields, queue_offset=queue_offset, commit_log_offset=commit_log_offset
    )
    found = encode_placed(
        fields, queue_offset=queue_offset, commit_log_offset=commit_log_offset
    )
    assert found == written(placed) == encode_message(placed)
    if len(fields.topic.encode()) <= 127:
        for magic in (MAGIC_V1, MAGIC_V2):
            assert encode_message(placed, magic=magic) == written(placed, magic)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"topic": "t" * 32_768}, ValueError),
        ({"properties": {"a": "b" * 32_768}}, ValueError),
        ({"properties": {"a": "b\x02"}}, ValueError),
        ({"born_host": "localhost:1"}, UsageError),
    ],
)
def test_fields_that_no_record_can_hold_are_refused(changes, error):
    with pytest.raises(error):
        encode_placed(
            MessageFields(**{"topic": "t"} | changes),
            queue_offset=0,
            commit_log_offset=0,
        )
