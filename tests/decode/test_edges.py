"""Nesting is accepted up to the limit that errors name, in each format."""

from __future__ import annotations

import pytest

from rmqcli.decode import parse_decode
from rmqcli.errors import DecodeError, UsageError

WRITTEN = {
    "json": lambda depth: b"[" * depth + b"]" * depth,
    # Many lists that are not within each other.
    "json beside others": lambda depth: (
        b"[" + b"[]," * 200 + b"[" * (depth - 1) + b"]" * depth
    ),
    "msgpack": lambda depth: b"\x91" * depth + b"\x01",
    "cbor": lambda depth: b"\x81" * depth + b"\x01",
}


@pytest.mark.parametrize("name", WRITTEN)
def test_values_are_nested_up_to_200_levels(name):
    kind = name.split()[0]
    pytest.importorskip({"json": "json", "cbor": "cbor2"}.get(kind, kind))
    decode = parse_decode(kind)
    assert decode(WRITTEN[name](200)).count("[") >= 200
    with pytest.raises(DecodeError, match="nested deeper than 200 levels"):
        decode(WRITTEN[name](201))


@pytest.mark.parametrize(
    "referenced", [(), ('{"type": "enum", "name": "E", "symbols": ["A"]}',)]
)
def test_types_of_avro_are_nested_up_to_64_deep(referenced):
    pytest.importorskip("fastavro")
    from rmqcli.decode.avro import avro_values

    def schema(depth):
        return b'{"type": "array", "items": ' * depth + b'"int"' + b"}" * depth

    read = avro_values(schema(64), referenced)
    assert str(read(b"\x02" * 64 + b"\x0e" + b"\0" * 64)).strip("[]") == "7"
    with pytest.raises(UsageError, match="nested more than 64 deep"):
        avro_values(schema(65), referenced)
