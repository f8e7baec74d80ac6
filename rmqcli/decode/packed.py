"""Reads MessagePack and CBOR, whose bodies say themselves of which types they consist.

A body is one value and nothing after it. Both libraries check lengths against the bytes
that are there, and limit how deeply values are nested. CBOR's references are refused:
with them, a few bytes could describe a value of any size, or one that contains itself.

Both libraries make a dict of a map, in which 1 and true are the same key. So a map with
such keys is refused. Of a text that occurs twice the last value counts, as in JSON.

What JSON lacks becomes an object: a MessagePack extension has `ext_type` and `data`, a
CBOR tag that cbor2 does not know `tag` and `value`, and a simple value `simple`. CBOR's
undefined becomes null.

Source: https://github.com/msgpack/msgpack/blob/master/spec.md, RFC 8949.
"""

from __future__ import annotations

import io
from functools import partial
from typing import Any, Final, NoReturn

from rmqcli.decode.plain import plain_value, reason_of
from rmqcli.errors import DecodeError


def msgpack_value(body: bytes) -> object:
    """Return the value of a MessagePack body. Raises DecodeError."""
    import msgpack

    read = partial(msgpack.unpackb, body, timestamp=3, ext_hook=_extension)
    try:
        try:
            value = read(strict_map_key=True)
        except Exception:  # noqa: BLE001  # the other reader gives the reason
            value = read(strict_map_key=False, object_pairs_hook=_distinct)
    except Exception as error:  # noqa: BLE001  # ValueErrors of many kinds, and more
        raise DecodeError(f"not MessagePack: {reason_of(error)}") from None
    return plain_value(value)


def _distinct(pairs: list[tuple[Any, object]]) -> dict[Any, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("Duplicate map key")  # in cbor2's words
    return found


def _extension(kind: int, data: bytes) -> dict[str, object]:
    return {"ext_type": kind, "data": data}


def cbor_value(body: bytes) -> object:
    """Return the value of a CBOR body. Raises DecodeError."""
    import cbor2

    def read(*, has_text_keys: bool) -> object:
        file.seek(0)
        return cbor2.CBORDecoder(
            file,
            tag_hook=_tagged,
            semantic_decoders=_DECODERS,
            read_size=1,  # so that the file tells what follows the value
            strict_hashable_types=has_text_keys,
            allow_duplicate_keys=has_text_keys,
        ).decode()

    file = io.BytesIO(body)
    try:
        try:
            value = read(has_text_keys=True)
        except Exception:  # noqa: BLE001  # the other reader gives the reason
            value = read(has_text_keys=False)
    except Exception as error:  # noqa: BLE001  # as above
        raise DecodeError(f"not CBOR: {reason_of(error)}") from None
    if file.tell() != len(body):
        raise DecodeError("not CBOR: bytes follow the value")
    others = {type(cbor2.undefined): _nothing, cbor2.CBORSimpleValue: _simple}
    return plain_value(value, others=others)


def _nothing(_undefined: object) -> None:
    """Return null for what CBOR calls undefined."""


def _simple(value: Any) -> dict[str, int]:  # noqa: ANN401  # CBORSimpleValue
    return {"simple": value.value}


def _tagged(tag: Any, _is_immutable: bool) -> dict[str, object]:  # noqa: ANN401  # CBORTag
    return {"tag": tag.tag, "value": tag.value}


def _untouched(value: object, _is_immutable: bool) -> object:
    """Return a value that is not parsed, such as a regular expression."""
    return value


def _refuse(_value: object, _is_immutable: bool) -> NoReturn:
    raise ValueError("references to other parts of the body are not supported")


_DECODERS: Final = {
    25: _refuse,  # a reference to a text
    28: _refuse,  # a value that others refer to
    29: _refuse,  # a reference to it
    256: _refuse,  # texts that others refer to
    258: _untouched,  # a set, in which 1 and true would be the same
    35: _untouched,
    36: _untouched,
}
