"""Protobuf bodies: every kind of field, fields that are not set, and damaged bodies."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqcli.decode.protobuf_body import canonical
from rmqcli.decode.schema import ddl_of
from rmqcli.errors import UsageError
from tests.decode.decoding import decode, decoder_of, is_corrupt, values
from tests.decode.shop import descriptor_set, message_class
from tests.kit.doses import doses

DECODER = decoder_of(canonical(descriptor_set(), "shop.Order"), kind="protobuf")


def order(**fields):
    return message_class("shop.Order")(**fields)


def test_column_types_equal_those_of_from_protobuf_except_unsigned():
    assert ddl_of(DECODER._body.value_type).replace("`", "") == (
        "id bigint, u bigint, v decimal(20,0), note string, state string,"
        " items array<struct<sku:string,n:int>>, by map<int,struct<sku:string,n:int>>,"
        " at timestamp, card string, raw binary, f float, d double, ok boolean"
    )


def test_every_field_is_read():
    message = order(
        id=-5, u=(1 << 32) - 1, v=(1 << 64) - 1, note="", state=1, raw=b"\xff", f=1.5,
        d=math.inf, ok=True, items=[{"sku": "a", "n": 1}, {}], by={-1: {"sku": "b"}},
    )  # fmt: skip
    message.at.seconds, message.at.nanos = -1, 999_999_999
    [row] = values(DECODER, message.SerializeToString())
    assert row == {
        "id": -5,
        "u": 4294967295,
        "v": Decimal(18446744073709551615),
        "note": "",
        "state": "PAID",
        "items": [{"sku": "a", "n": 1}, {"sku": "", "n": 0}],
        "by": [(-1, {"sku": "b", "n": 0})],
        "at": datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        "card": None,
        "raw": b"\xff",
        "f": 1.5,
        "d": math.inf,
        "ok": True,
    }


def test_a_timestamp_is_its_seconds_and_whole_microseconds():
    decoder = decoder_of(canonical(descriptor_set(), "shop.Order"), kind="protobuf")
    message = order()
    message.at.seconds, message.at.nanos = 1_700_000_000, 999_999_999
    [row] = values(decoder, message.SerializeToString())
    assert row["at"] == datetime(2023, 11, 14, 22, 13, 20, 999_999, tzinfo=UTC)


def test_an_unset_field_is_null_where_protobuf_tracks_presence():
    [row] = values(DECODER, b"")
    assert row == {
        "id": 0, "u": 0, "v": Decimal(0), "note": None, "state": "NEW", "items": [],
        "by": [], "at": None, "card": None, "raw": None, "f": 0.0, "d": 0.0,
        "ok": False,
    }  # fmt: skip
    old = decoder_of(canonical(descriptor_set(), "shop.Old"), kind="protobuf")
    message = message_class("shop.Old")(id=1)
    assert values(old, message.SerializeToString()) == [{"id": 1, "n": None}]
    assert is_corrupt(old, b"")  # without a required field


def test_an_unknown_enum_value_is_its_number_and_unknown_fields_are_ignored():
    [row] = values(DECODER, order(state=99).SerializeToString() + b"\xf8\x07\x01")
    assert row["state"] == "99"


def test_a_damaged_body_is_kept_in_corrupt_body():
    good = order(id=1, card="x", v=5).SerializeToString()
    far = order()
    far.at.seconds = 1 << 62
    for body in (good[:-1], b'{"id": 1}', b"\xff" * 10, b"\x52\x02\xff\xff"):
        assert is_corrupt(DECODER, body)
    assert is_corrupt(DECODER, far.SerializeToString())
    found = decode(DECODER, good, good[:-1], good)
    assert found[0] == found[2]
    assert found[1] == (None, good[:-1])


@settings(max_examples=doses(4))
@given(st.binary(max_size=40))
def test_arbitrary_bytes_never_raise(body):
    assert len(decode(DECODER, body)) == 1


def test_only_descriptors_that_the_message_needs_are_kept():
    old = canonical(descriptor_set(), "shop.Old")
    assert json.loads(old)["message"] == "shop.Old"
    assert len(old) < 200 < len(canonical(descriptor_set(), "shop.Order"))


@pytest.mark.parametrize(
    ("content", "name", "words"),
    [
        (b"", "shop.Order", "not a descriptor set"),
        (b"\xff\xff", "shop.Order", "not a descriptor set"),
        (b'syntax = "proto3";', "shop.Order", "not a descriptor set"),
        (
            descriptor_set(with_imports=False),
            "shop.Order",
            "imports google/protobuf/timestamp.proto, which is not in",
        ),
        (descriptor_set(), "Order", "message Order is not in the descriptor set"),
        (descriptor_set(), "shop.Node", "message shop.Node contains itself"),
        (descriptor_set(), "shop.Nothing", "has no fields that can be columns"),
        (
            descriptor_set(),
            "google.protobuf.Timestamp",
            "has no fields that can be columns",
        ),
    ],
)
def test_an_invalid_set_or_message_is_refused(content, name, words):
    with pytest.raises(UsageError) as caught:
        canonical(content, name)
    assert words in caught.value.message


def test_the_hint_for_an_unknown_message_lists_the_known_ones():
    with pytest.raises(UsageError) as caught:
        canonical(descriptor_set(), "shop.Oder")
    assert caught.value.hint == (
        "it has shop.Item, shop.Node, shop.Nothing, shop.Old, shop.Order"
    )
