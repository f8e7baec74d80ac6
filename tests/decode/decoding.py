"""Decode a few bodies without messages around them."""

from __future__ import annotations

import importlib.util

import pyarrow as pa

from rmqcli.decode.decoder import BodyDecoder
from rmqcli.decode.settings import Decoding

#: The formats of single bodies that need no schema, as far as their libraries are here.
WITHOUT_FILES = [
    *("json", "gzip", "gzip+json"),
    *(["msgpack"] if importlib.util.find_spec("msgpack") else []),
    *(["cbor"] if importlib.util.find_spec("cbor2") else []),
]


def decoder_of(schema, *, kind="json"):
    return BodyDecoder(Decoding(kind, schema))


def decode(decoder, *bodies):
    """Return `(value, corrupt body)` of each body; check that the columns are valid."""
    batch = pa.record_batch({"body": pa.array(bodies, pa.binary())})
    found = []
    for piece, corrupt in decoder.decode(batch):
        piece.validate(full=True)
        assert piece.schema.field("value").type == decoder._body.value_type
        rows = piece.to_pylist()
        assert corrupt == sum(row["_corrupt_body"] is not None for row in rows)
        found += [(row["value"], row["_corrupt_body"]) for row in rows]
    return found


def values(decoder, *bodies):
    """Return the value of each body, and check that all of them can be decoded."""
    found = decode(decoder, *bodies)
    assert [corrupt for _, corrupt in found if corrupt is not None] == []
    return [value for value, _ in found]


def is_corrupt(decoder, body):
    """Whether a body is corrupt; check that a corrupt body is kept unchanged."""
    good = decode(decoder, body, body)
    assert good[0] == good[1]
    value, corrupt = good[0]
    assert (value is None) == (corrupt is not None)
    assert corrupt in (None, body)
    return corrupt is not None
