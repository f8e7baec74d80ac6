"""Decoding a few bodies without a message around them."""

from __future__ import annotations

import pyarrow as pa

from rmqcli.spark.decode.decoder import BodyDecoder
from rmqcli.spark.decode.settings import Decoding


def decoder_of(schema, *, kind="json"):
    return BodyDecoder(Decoding(kind, schema))


def decode(decoder, *bodies):
    """`(value, corrupt body)` of each body; the columns are valid Arrow."""
    batch = pa.record_batch({"body": pa.array(bodies, pa.binary())})
    found = []
    for piece, corrupt in decoder.decode(batch):
        piece.validate(full=True)
        rows = piece.to_pylist()
        assert corrupt == sum(row["_corrupt_body"] is not None for row in rows)
        found += [(row["value"], row["_corrupt_body"]) for row in rows]
    return found


def values(decoder, *bodies):
    """The value of each body, all of which can be decoded."""
    found = decode(decoder, *bodies)
    assert [corrupt for _, corrupt in found if corrupt is not None] == []
    return [value for value, _ in found]


def is_corrupt(decoder, body):
    """Whether a body is kept as it was and spares its neighbours."""
    good = decode(decoder, body, body)
    assert good[0] == good[1]
    value, corrupt = good[0]
    assert (value is None) == (corrupt is not None)
    assert corrupt in (None, body)
    return corrupt is not None
