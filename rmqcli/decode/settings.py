"""The settings for decoding bodies: as the user writes them and as a plan keeps them.

The user writes `json`, `avro:FILE` or `protobuf:FILE:MESSAGE`; for JSON, also a schema
file or the number of messages from which to infer a schema. The plan keeps the schema
itself in canonical form, so that equal schemas are equal texts, and neither workers nor
a resumed run need the files.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Final, NamedTuple

from rmqcli.dataclass import dataclass
from rmqcli.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

FORMATS: Final = ("json", "avro", "protobuf")
#: Most messages from which a schema may be inferred.
INFER_MAX: Final = 10_000
#: Schemas are bounded because every plan, and the manifest's record of every run,
#: contains one.
_FILE_BYTES_MAX: Final = 16 << 20
SCHEMA_BYTES_MAX: Final = 256 << 10

#: The Python packages that a format needs in addition to what every worker needs.
_PACKAGES: Final = {"avro": ("fastavro",), "protobuf": ("google.protobuf",)}
_INSTALL: Final = {"avro": "pip install 'rmqcli[avro]'"}


class Names(NamedTuple):
    """The names by which the user knows the settings, for error messages."""

    decode: str
    schema: str
    infer: str


#: The names of the arguments of a library call.
ARGUMENT_NAMES: Final = Names("decode", "schema", "infer")


@dataclass(frozen=True, slots=True)
class Decoding:
    """How bodies are decoded. Can be pickled.

    `schema` is DDL for JSON, the JSON of the schema for Avro, and for protobuf a JSON
    object of the message's name and descriptors. It is None until it has been inferred
    from `infer` messages.
    """

    format: str
    schema: str | None
    infer: int | None = None

    @property
    def known_schema(self) -> str:
        """The schema. Raises ValueError when it has not been inferred yet."""
        if self.schema is None:
            raise ValueError("the schema has not been inferred yet")
        return self.schema

    @property
    def packages(self) -> tuple[str, ...]:
        """The Python packages that decoding needs in addition to the usual ones."""
        return _PACKAGES.get(self.format, ())

    def check_packages(self) -> None:
        """Raise ConfigError when a package that decoding needs is not installed."""
        missing = missing_packages(self.packages)
        if missing:
            raise ConfigError(
                f"bodies cannot be decoded as {self.format}: the package"
                f" {', '.join(missing)} is not installed",
                hint=_INSTALL.get(self.format, "install it for this Python"),
            )


def read_settings(
    text: str, *, schema_file: str | None, infer: int | None, names: Names
) -> Decoding:
    """Parse the settings and read the files that they name.

    Raises UsageError for invalid settings, and ConfigError for a file that cannot be
    read or a package that is not installed.
    """
    kind, colon, rest = text.partition(":")
    if kind not in FORMATS:
        raise UsageError(
            f"{names.decode}: {kind!r} is not one of {', '.join(FORMATS)}",
            hint="write json, avro:FILE or protobuf:FILE:MESSAGE",
        )
    if kind == "json":
        if colon:
            raise UsageError(
                f"{names.decode}: {text!r} names a file, but json takes none here",
                hint=f"give the schema as {names.schema}",
            )
        return _json(schema_file, infer, names)
    for name, value in ((names.schema, schema_file), (names.infer, infer)):
        if value is not None:
            raise UsageError(
                f"{name} is only for json: {kind} takes its schema from FILE",
                hint=f"leave out {name}",
            )
    if kind == "avro":
        if not rest:
            raise UsageError(
                f"{names.decode}: {text!r} names no schema file",
                hint="write avro:FILE",
            )
        return _checked(kind, read_file(rest, names.decode), names.decode, _avro)
    file, _, message = rest.rpartition(":")
    if not file or not message:
        raise UsageError(
            f"{names.decode}: {text!r} does not name both a file and a message",
            hint="write protobuf:FILE:MESSAGE, where FILE is a descriptor set: protoc"
            " --include_imports --descriptor_set_out=FILE orders.proto",
        )

    def canonical(content: bytes) -> str:
        from rmqcli.decode.protobuf_body import canonical

        return canonical(content, message)

    return _checked(kind, read_file(file, names.decode), names.decode, canonical)


def _json(schema_file: str | None, infer: int | None, names: Names) -> Decoding:
    if schema_file is None and infer is None:
        raise UsageError(
            f"{names.decode}=json needs a schema",
            hint=f"give a file as {names.schema}, or as {names.infer} the number of"
            " messages from which to infer a schema",
        )
    if schema_file is not None and infer is not None:
        raise UsageError(
            f"{names.schema} and {names.infer} cannot be used together",
            hint="leave one of them out",
        )
    if infer is not None:
        if not 1 <= infer <= INFER_MAX:
            raise UsageError(f"{names.infer}: {infer} is not between 1 and {INFER_MAX}")
        return Decoding("json", None, infer)
    content = read_file(schema_file or "", names.schema)
    return _checked("json", content, names.schema, _ddl)


def _checked(
    kind: str, content: bytes, name: str, canonical: Callable[[bytes], str]
) -> Decoding:
    Decoding(kind, None).check_packages()
    try:
        schema = canonical(content)
    except UsageError as error:
        raise UsageError(f"{name}: {error.message}", hint=error.hint) from None
    if len(schema) > SCHEMA_BYTES_MAX:
        raise UsageError(
            f"{name}: the schema has {len(schema)} bytes, more than the limit of"
            f" {SCHEMA_BYTES_MAX}"
        )
    return Decoding(kind, schema)


def _ddl(content: bytes) -> str:
    from rmqcli.decode.schema import ddl_of, parse_schema

    return ddl_of(parse_schema(_utf8(content)))


def _avro(content: bytes) -> str:
    from rmqcli.decode.avro_body import canonical

    return canonical(_utf8(content))


def _utf8(content: bytes) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"not UTF-8: {error.reason} at byte {error.start}") from None


def read_file(path: str, name: str) -> bytes:
    """Read a schema, given as `name`. Raises ConfigError if that is not possible."""
    try:
        with open(path, "rb") as file:
            content = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(
            f"{name}: cannot read {path}: {error.strerror or error}"
        ) from error
    if len(content) > _FILE_BYTES_MAX:
        raise ConfigError(
            f"{name}: {path} is larger than the limit of {_FILE_BYTES_MAX} bytes"
        )
    return content


def missing_packages(packages: tuple[str, ...]) -> tuple[str, ...]:
    """Return the packages that this Python cannot import."""
    return tuple(each for each in packages if not _is_there(each))


def _is_there(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # the parent package is not installed
        return False
