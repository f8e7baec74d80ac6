"""What bodies mean: decoders of single bodies, by format.

A format is a row of `DECODERS`. Its decoder returns the value of one body as JSON on
one line, which is the `value` of a record, or raises DecodeError with a reason.
`rmqcli.spark.decode` makes typed columns of many bodies.
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
