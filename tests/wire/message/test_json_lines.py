"""A chunk of plain messages becomes the same lines that `JsonWriter` writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from rmqcli.model import MessageQueue
from rmqcli.wire.message.decode import decode_messages
from rmqcli.wire.message.encode import MessageFields, encode_message
from rmqcli.wire.message.json import JsonWriter
from rmqcli.wire.message.json_lines import write_lines
from rmqcli.wire.message.scan import read_columns
from tests.kit.doses import doses
from tests.kit.rows import each_row
from tests.wire.message.bodies import BODIES

if TYPE_CHECKING:
    from collections.abc import Mapping

QUEUE = MessageQueue("orders", "broker-a", 3)
JAVA_PROPERTIES = {"UNIQ_KEY": "0A", "WAIT": "true", "TAGS": "TagA"}

PROPERTIES: list[Mapping[str, str] | bytes] = [
    JAVA_PROPERTIES,
    {"UNIQ_KEY": "0B", "WAIT": "false", "TAGS": "Tag\N{EURO SIGN}"},
    {"KEYS": "order-1 order-2", "TAGS": "TagA"},
    {"XTAGS": "TagA", "TAGSX": "TagB"},
    {"KEYS": 'said "yes"\n'},
    {"TAGS": ""},
    {"NESTED": "a\x01b"},
    {},
    b"TAGS\x01TagA\x02KEYS\x01k",
    b"TAGS\x01TagA\x02\x02",
    b"TAGS\x01\xff\xe7\x02KEYS\x01k\x02",
    b"TAGS\x01old\x02TAGS\x01new\x02",
    b"no separator",
    b"\x01value\x02",
    b"\x02",
]


def lines_of(body: bytes) -> list[str] | None:
    columns = read_columns(body)
    return None if columns is None else write_lines(JsonWriter(), QUEUE, columns)


def assert_same_as_one_by_one(body: bytes) -> None:
    lines = lines_of(body)
    assert lines is not None
    assert lines == JsonWriter().lines(QUEUE, decode_messages(body))
    assert all("\n" not in line for line in lines)


@settings(max_examples=doses(8))
@given(
    kinds=st.lists(
        st.tuples(
            st.sampled_from(BODIES) | st.binary(max_size=8),
            st.sampled_from(PROPERTIES)
            | st.text(alphabet='\x01\x02aTAGS"\\ü\n', max_size=12),
            st.sampled_from([0, 0, 0, 4, 8]),
        ),
        min_size=1,
        max_size=6,
    ),
    copies=st.integers(1, 3),
    hosts=st.lists(st.sampled_from(["1.2.3.4:5", "1.2.3.5:5"]), min_size=1, max_size=2),
    times=st.lists(
        st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 1 << 42),
        min_size=1,
        max_size=4,
    ),
    place=st.integers(-(1 << 63), (1 << 63) - 1),
)
def test_the_lines_of_any_plain_records_are_the_same(
    kinds: list[tuple[bytes, Mapping[str, str] | str | bytes, int]],
    copies: int,
    hosts: list[str],
    times: list[int],
    place: int,
) -> None:
    records = [
        encode_message(
            MessageFields(
                topic="orders",
                body=body,
                queue_offset=offset,
                commit_log_offset=place,
                sys_flag=sys_flag,
                flag=offset % 2,
                reconsume_times=-offset,
                born_host=hosts[offset % len(hosts)],
                born_timestamp_ms=times[offset % len(times)],
                store_timestamp_ms=times[-1 - offset % len(times)],
                properties=properties,
            )
        )
        for offset, (body, properties, sys_flag) in enumerate(kinds * copies)
    ]
    assert_same_as_one_by_one(b"".join(records))


def record(offset: int, body: bytes, properties: Mapping[str, str] | bytes) -> bytes:
    return encode_message(
        MessageFields(
            topic="orders", body=body, queue_offset=offset, properties=properties
        )
    )


@each_row("body", BODIES, ids=range(len(BODIES)))
@each_row("properties", PROPERTIES, ids=range(len(PROPERTIES)))
def test_bodies_and_properties_of_every_kind(
    body: bytes, properties: Mapping[str, str] | bytes
) -> None:
    """The records have one shape, or one of them has a longer body."""
    for last in (body, body + b"longer"):
        records = [record(offset, body, properties) for offset in range(3)]
        records.append(record(3, last, properties))
        assert_same_as_one_by_one(b"".join(records))


def test_records_of_several_brokers_are_left_to_the_single_writer() -> None:
    records = [
        encode_message(MessageFields(topic="orders", store_host=host))
        for host in ("1.2.3.4:5", "1.2.3.5:5")
    ]
    assert lines_of(b"".join(records)) is None
    assert lines_of(records[0]) is not None
