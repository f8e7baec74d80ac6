"""What bodies mean: single ones as JSON, and many of them as typed columns of Arrow.

A format of single bodies is a row of `DECODERS`. Its decoder returns the value of one
body as JSON on one line, which is the `value` of a record, or raises DecodeError with a
reason.

For columns, `settings` reads the user's settings. `schema` converts schemas to Arrow
types, and `infer` infers the schema of JSON bodies from a few messages. `decoder`
appends the columns `value` and `_corrupt_body` to batches: `json_body`, `avro_body` or
`protobuf_body` turns each body into a Python value, and `build` turns these values into
columns. Only these modules load pyarrow, fastavro and protobuf, and nothing here needs
Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqcli.decode.json import value_json
from rmqcli.errors import TextError

if TYPE_CHECKING:
    from collections.abc import Callable

    #: Returns the value of a body as JSON on one line. Raises DecodeError.
    Decode = Callable[[bytes], str]

DECODERS: Final[dict[str, Decode]] = {"json": value_json}


def parse_decode(text: str) -> Decode:
    """Return the decoder that `--decode` names. Raises TextError."""
    decode = DECODERS.get(text)
    if decode is None:
        raise TextError(
            text,
            "not a format of bodies",
            start=0,
            end=len(text),
            hint=f"use one of: {', '.join(DECODERS)}",
        )
    return decode
