"""The formats of single bodies, as the user names them, and what reads each of them.

A format is `json`, `avro:FILE`, `protobuf:FILE:MESSAGE`, `msgpack`, `cbor` or `gzip`,
whose value is a text, or `registry:URL`, with schemas from a schema registry that the
caller asks. `gzip+FORMAT` inflates a body and reads what was in it. Each library is
loaded when its format is named.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

from rmqcli.checked import check_type
from rmqcli.decode.json import body_value, compact_json
from rmqcli.decode.settings import missing_packages, read_file
from rmqcli.errors import ConfigError, DecodeError, TextError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.decode.registry import OpenRegistry

    #: Returns the value of a body, as values of JSON. Raises DecodeError.
    Read = Callable[[bytes], object]

#: How the formats are written.
FORMATS: Final = (
    "json",
    "avro:FILE",
    "protobuf:FILE:MESSAGE",
    "msgpack",
    "cbor",
    "gzip",
    "registry:URL",
)
#: A body that inflates to more is not decoded: a few KiB could inflate to gigabytes.
#: RocketMQ's own compression has the same limit.
INFLATED_MAX: Final = 16 << 20
#: What gzip calls members: most files have one, and a body could have one in 20 bytes.
_GZIP_MEMBERS_MAX: Final = 1_000
_GZIP_PREFIX: Final = "gzip+"
_PACKAGES: Final = {"avro": "fastavro", "msgpack": "msgpack", "cbor": "cbor2"}


class Decode:
    """Reads bodies of one format. Safe to use from several threads.

    `format` is its name without a file: `json`, `avro`, `gzip+json`; `text` is how the
    user wrote it.
    """

    def __init__(self, text: str, read: Read) -> None:
        self.text = text
        self.format = text.partition(":")[0]
        self._read = read

    def __repr__(self) -> str:
        return f"Decode({self.format!r})"

    def value(self, body: bytes) -> object:
        """Return what a body means, as values of JSON. Raises DecodeError."""
        return self._read(body)

    def __call__(self, body: bytes) -> str:
        """Return the value of a body as JSON on one line. Raises DecodeError."""
        return compact_json(self._read(body))


def parse_decode(text: str, open_registry: OpenRegistry | None = None) -> Decode:
    """Return what reads the bodies of a format, such as "json" or "avro:FILE".

    `open_registry` returns what asks the schema registry at a URL; without it
    `registry:URL` is no format.

    Raises TextError for a text that names no format, UsageError for a schema that
    cannot be used, and ConfigError for a file that cannot be read or a package that is
    not installed.
    """
    check_type(text, str, "text")
    if text.startswith(_GZIP_PREFIX):
        try:
            inner = _reader(text.removeprefix(_GZIP_PREFIX), open_registry)
        except TextError as error:
            at = len(_GZIP_PREFIX)
            start, end = error.start + at, error.end + at
            raise TextError(
                text, error.what, start=start, end=end, hint=error.hint
            ) from None
        return Decode(text, lambda body: inner(gunzip(body)))
    return Decode(text, _reader(text, open_registry))


def _reader(text: str, open_registry: OpenRegistry | None) -> Read:
    kind, colon, rest = text.partition(":")
    match kind, bool(colon):
        case "json", False:
            return body_value
        case "gzip", False:
            return _gzip_text
        case "msgpack" | "cbor", False:
            _require(kind)
            from rmqcli.decode import packed

            return packed.msgpack_value if kind == "msgpack" else packed.cbor_value
        case "avro", True if rest:
            _require(kind)
            from rmqcli.decode.avro import avro_values

            return _of_file(text, rest, avro_values)
        case "protobuf", True:
            file, _, message = rest.rpartition(":")
            if file and message:
                from rmqcli.decode.protobuf import protobuf_values

                return _of_file(text, file, lambda data: protobuf_values(data, message))
        case "registry", True if rest and open_registry is not None:
            from rmqcli.decode.registry import registry_values

            return registry_values(rest, open_registry)
        case _:
            pass
    formats = FORMATS if open_registry is not None else FORMATS[:-1]
    hint = f"write one of: {', '.join(formats)}, gzip+FORMAT"
    for name in formats:
        if ":" in name and kind == name.partition(":")[0]:
            hint = f"write {name}"
    raise TextError(text, "not a format of bodies", start=0, end=len(text), hint=hint)


def _of_file(text: str, path: str, make: Callable[[bytes], Read]) -> Read:
    try:
        return make(read_file(path, text))
    except ConfigError:
        raise
    except UsageError as error:
        raise UsageError(f"{text}: {error.message}", hint=error.hint) from None


def _require(kind: str) -> None:
    """Raise ConfigError if the library of a format is not installed."""
    if missing_packages((_PACKAGES[kind],)):
        raise ConfigError(
            f"bodies cannot be decoded as {kind}: the package {_PACKAGES[kind]} is not"
            " installed",
            hint="run: pip install 'rmqcli[decode]'",
        )


def gunzip(body: bytes) -> bytes:
    """Return what a gzip body was made from. Raises DecodeError."""
    found: list[bytes] = []
    room = INFLATED_MAX
    for _ in range(_GZIP_MEMBERS_MAX):
        inflater = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        try:
            found.append(inflater.decompress(body, room + 1))
        except zlib.error as error:
            reason = "the compressed data is damaged"
            if "header check" in str(error):
                reason = "the bytes do not begin as gzip's"
            elif "data check" in str(error):
                reason = "the checksum of the text is wrong"
            raise DecodeError(f"not gzip: {reason}") from None
        room -= len(found[-1])
        if room < 0:
            raise DecodeError(f"gzip: more than {INFLATED_MAX >> 20} MiB")
        if not inflater.eof:
            raise DecodeError("not gzip: the body ends too early")
        body = inflater.unused_data
        if not body:
            return b"".join(found)
    raise DecodeError(f"gzip: more than {_GZIP_MEMBERS_MAX:,} members")


def _gzip_text(body: bytes) -> str:
    try:
        return gunzip(body).decode()
    except UnicodeDecodeError as error:
        raise DecodeError(
            f"gzip: what was compressed is not UTF-8 at byte {error.start}"
        ) from None
