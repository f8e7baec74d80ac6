"""Records made fast are the bytes that `encode_message` makes."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqcli.errors import UsageError
from rmqcli.wire.message_encode import MessageFields, encode_message
from rmqcli.wire.message_placed import encode_placed

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
    body_crc=st.none() | st.integers(0, 2**31 - 1),
    properties=st.dictionaries(NAMES, NAMES | st.none(), max_size=5)
    | st.just("a\x01b\x02")
    | st.just(b"a\x01\xff\x02"),
)


@given(FIELDS, LONGS, LONGS)
def test_bytes_are_the_same(fields, queue_offset, commit_log_offset):
    placed = dataclasses.replace(
        fields, queue_offset=queue_offset, commit_log_offset=commit_log_offset
    )
    assert encode_placed(
        fields, queue_offset=queue_offset, commit_log_offset=commit_log_offset
    ) == encode_message(placed)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"topic": "t" * 32_768}, ValueError),
        ({"properties": {"a": "b" * 32_768}}, ValueError),
        ({"properties": {"a": "b\x02"}}, ValueError),
        ({"born_host": "localhost:1"}, UsageError),
    ],
)
def test_what_no_record_can_hold_is_refused(changes, error):
    with pytest.raises(error):
        encode_placed(
            MessageFields(**{"topic": "t"} | changes),
            queue_offset=0,
            commit_log_offset=0,
        )
