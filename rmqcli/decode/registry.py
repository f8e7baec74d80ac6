"""Reads bodies whose schemas are in a schema registry: which one, the body begins with.

| registry | how a body begins | asked for |
|---|---|---|
| Confluent's | 0, then the schema's ID in 4 bytes | `/schemas/ids/N` |
| RocketMQ's, Avro | 16, then the record ID in 8 bytes | `/recordId/N/schema` |
| RocketMQ's, JSON | the record ID in 8 bytes | the same |

Integers are big-endian. In Confluent's framing of protobuf the place of the message
type among the types of its file follows, as zigzag varints: their number, and the index
at each level of nesting; the number 0 stands for the first type of the file.

RocketMQ's registry knows record IDs only within a subject, so its URL is that of a
subject, `/schema-registry/v1/subject/NAME`. The URL tells the two registries apart:
which framing a body has is never guessed from its bytes. A body that is not framed, or
whose schema cannot be had, raises DecodeError.

A registry may answer anything, so its schemas are checked as those of files are, and
all that a schema refers to has bounds. Nothing here does I/O: a `Registry` asks, and
keeps what was made of the answers.

Source: AbstractKafkaSchemaSerDe and MessageIndexes in confluentinc/schema-registry,
AvroSerializer, JsonSerializer and SchemaController in apache/rocketmq-schema-registry.
"""

from __future__ import annotations

import binascii
import re
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import quote, urlsplit

from rmqcli.decode.json import body_value
from rmqcli.decode.settings import missing_packages
from rmqcli.errors import ConfigError, DecodeError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    #: Returns the value of a body, as values of JSON. Raises DecodeError.
    Read = Callable[[bytes], object]
    #: Returns the answer to a GET of a URL. Raises DecodeError.
    Get = Callable[[str], bytes]
    #: Returns what asks the registry at a URL.
    OpenRegistry = Callable[[str], "Registry"]

#: How many schemas a schema may refer to, directly or through others.
REFERENCES_MAX: Final = 50
#: A message type may be nested in as many others.
_NESTED_MAX: Final = 32
_HEADER_BYTES: Final = 5
_RECORD_ID_BYTES: Final = 8
#: The length of a record ID, as Avro writes the length of bytes.
_AVRO_LENGTH: Final = b"\x10"
_SUBJECT: Final = re.compile(r"/subject/[^/]+")
_ROCKETMQ_ROOT: Final = "/schema-registry/v1"
#: Imports that protobuf itself brings along, and that registries therefore leave out.
_BUILT_IN: Final = re.compile(
    r"google/protobuf/(any|api|descriptor|duration|empty|field_mask|source_context"
    r"|struct|timestamp|type|wrappers)\.proto"
)


class Registry(Protocol):
    """Asks a schema registry, and keeps the readers that were made from its answers."""

    def once(self, key: Hashable, make: Callable[[Get], Read]) -> Read:
        """Return what `make` returned for this key, calling it if it has not been.

        Raises DecodeError if `make` does; for a while also without calling it again.
        """


def registry_values(url: str, open_registry: OpenRegistry) -> Read:
    """Return what reads the value of a body. Raises ConfigError for a bad URL."""
    url = check_url(url)
    registry = open_registry(url)
    if _SUBJECT.search(urlsplit(url).path):
        return _RocketMQ(url, registry).value
    return _Confluent(url, registry).value


def check_url(url: str) -> str:
    """Return the URL of a registry, without a slash at its end.

    Raises ConfigError, which does not quote a URL that may contain a password.
    """
    if "@" in url:
        raise ConfigError(
            "registry: the URL has a user or a password, which other users could see",
            hint="set RMQ_REGISTRY_USER and RMQ_REGISTRY_PASSWORD, or name a private"
            " file in RMQ_REGISTRY_FILE",
        )
    try:
        parts = urlsplit(url)
        has_port = parts.port != 0
    except ValueError:
        raise ConfigError(f"registry: {url[:200]!r} is not a URL") from None
    shown = f"registry: {url[:200]!r}"
    if parts.scheme not in ("http", "https") or not parts.hostname or not has_port:
        raise ConfigError(f"{shown} is not an http or https URL")
    if parts.query or parts.fragment or "?" in url or "#" in url:
        raise ConfigError(f"{shown} has a query or a fragment")
    if not re.fullmatch(r"[!-~]+", url):
        raise ConfigError(f"{shown} has blanks, or letters that are not ASCII")
    path = parts.path.rstrip("/")
    if path.endswith(_ROCKETMQ_ROOT):
        raise ConfigError(
            f"{shown} names no subject, without which RocketMQ's registry finds no"
            " schema",
            hint=f"write {url.rstrip('/')}/subject/NAME",
        )
    if (at := _SUBJECT.search(path)) and at.end() != len(path):
        raise ConfigError(f"{shown} does not end with the name of the subject")
    return url.rstrip("/")


class _Confluent:
    """Reads bodies with Confluent's framing. Safe to use from several threads."""

    def __init__(self, url: str, registry: Registry) -> None:
        self._url = url
        self._registry = registry

    def value(self, body: bytes) -> object:
        """Return the value of a body. Raises DecodeError."""
        if len(body) < _HEADER_BYTES or body[0] != 0:
            raise DecodeError(
                "not framed for a schema registry: the body does not begin with byte 0"
                " and a schema ID"
            )
        schema_id = int.from_bytes(body[1:_HEADER_BYTES], "big")
        read = self._registry.once(schema_id, lambda get: self._reader(schema_id, get))
        return read(body[_HEADER_BYTES:])

    def _reader(self, schema_id: int, get: Get) -> Read:
        what = f"schema {schema_id}"
        answer = _answer(get, f"{self._url}/schemas/ids/{schema_id}", what)
        match kind := answer.get("schemaType") or "AVRO":
            case "AVRO":
                referenced = [
                    _text(each, "schema", name)
                    for name, each in self._referenced(answer, what, get, "")
                ]
                return _avro(_text(answer, "schema", what), what, referenced)
            case "JSON":
                return body_value
            case "PROTOBUF":
                return self._protobuf(schema_id, what, get)
        raise DecodeError(f"{what} has the type {kind!r:.40}, which is not supported")

    def _protobuf(self, schema_id: int, what: str, get: Get) -> Read:
        """Return the reader of messages: descriptors are what the registry parsed."""
        form = "format=serialized"
        answer = _answer(get, f"{self._url}/schemas/ids/{schema_id}?{form}", what)
        files = [
            _file(each, name, name)
            for name, each in self._referenced(answer, what, get, f"&{form}")
        ]
        name = f"schema-{schema_id}.proto"
        return _Protobuf(what, files, _file(answer, what, name)).value

    def _referenced(
        self, answer: dict[str, Any], what: str, get: Get, form: str
    ) -> list[tuple[str, dict[str, Any]]]:
        """Return the name and the answer of all that a schema refers to.

        Each stands after those that it refers to itself.
        """
        found: dict[tuple[str, int], tuple[str, dict[str, Any]]] = {}
        #: the schemas whose references are being followed, and what is left of these
        path = [(("", 0), what, answer, _references(answer, what))]
        while path:
            place, name, schema, rest = path[-1]
            step = next(rest, None)
            if step is None:
                path.pop()
                if path:
                    found[place] = name, schema
                continue
            name, place = step
            if place in found:
                continue
            if any(place == each[0] for each in path):
                raise DecodeError(f"{what} refers to itself, through {name:.100}")
            if len(found) + len(path) > REFERENCES_MAX:
                raise DecodeError(f"{what} refers to more than {REFERENCES_MAX} others")
            subject, version = quote(place[0], safe=""), place[1]
            # `deleted`: others may still refer to what was deleted.
            url = f"{self._url}/subjects/{subject}/versions/{version}?deleted=true"
            child = _answer(get, url + form, name)
            path.append((place, name, child, _references(child, name)))
        return list(found.values())


class _RocketMQ:
    """Reads bodies with the framing of RocketMQ's registry, as `_Confluent` does.

    The first byte tells Avro from JSON until 2030, when record IDs begin with 16: from
    then on the registry does not know the ID that a body of JSON seems to have.
    """

    def __init__(self, url: str, registry: Registry) -> None:
        self._url = url
        self._registry = registry

    def value(self, body: bytes) -> object:
        """Return the value of a body. Raises DecodeError."""
        at = 1 if body.startswith(_AVRO_LENGTH) else 0
        end = at + _RECORD_ID_BYTES
        record_id = int.from_bytes(body[at:end], "big", signed=True)
        if len(body) < end or record_id <= 0:
            raise DecodeError(
                "not framed for RocketMQ's schema registry: the body does not begin"
                " with a record ID"
            )
        payload = body[end:]
        if at:
            read = self._registry.once(
                record_id, lambda get: self._avro_reader(record_id, get)
            )
            return read(payload)
        try:
            value = body_value(payload)
        except DecodeError as error:
            raise DecodeError(
                f"not framed for RocketMQ's schema registry: what follows"
                f" {_RECORD_ID_BYTES} bytes is {error.message}"
            ) from None
        # The registry has to confirm that these bytes are an ID. It keeps only schemas
        # of Avro, and gives their IDs to JSON, too.
        self._registry.once(
            ("JSON", record_id), lambda get: self._json_reader(record_id, get)
        )
        return value

    def _json_reader(self, record_id: int, get: Get) -> Read:
        self._answer(record_id, get)
        return body_value

    def _avro_reader(self, record_id: int, get: Get) -> Read:
        what = f"schema record {record_id}"
        answer = self._answer(record_id, get)
        if (kind := answer.get("type")) != "AVRO":
            raise DecodeError(f"{what} has the type {kind!r:.40}, but the body is Avro")
        return _avro(_text(answer, "idl", what), what, ())

    def _answer(self, record_id: int, get: Get) -> dict[str, Any]:
        what = f"schema record {record_id}"
        answer = _answer(get, f"{self._url}/recordId/{record_id}/schema", what)
        # It looks for the version in the ID's lowest bits, whatever the others are.
        if (found := answer.get("recordId")) != record_id or type(found) is not int:
            subject = self._url.rpartition("/")[2]
            raise DecodeError(
                f"{what} is not of the subject {subject:.100}: the registry answered"
                f" with {found!r:.40}"
            )
        return answer


class _Protobuf:
    """Reads messages of the types of a file. Safe to use from several threads."""

    def __init__(
        self,
        what: str,
        referenced: list[FileDescriptorProto],
        file: FileDescriptorProto,
    ) -> None:
        from google.protobuf import descriptor_pb2

        from rmqcli.decode.protobuf import find_message, values_of

        files = {each.name: each for each in (*referenced, file)}
        _add_built_in(files)
        self._what = what
        self._file = file
        self._set = descriptor_pb2.FileDescriptorSet(file=files.values())
        self._find, self._values_of = find_message, values_of
        #: place of a message type -> its reader, once needed
        self._readers: dict[tuple[int, ...], Read] = {}
        if not file.message_type:
            raise DecodeError(f"{what} has no message type")
        self._reader((0,))  # whatever is wrong with the schema is found here

    def value(self, payload: bytes) -> object:
        """Return the value of what follows the schema's ID. Raises DecodeError."""
        place, at = _message_place(payload)
        read = self._readers.get(place) or self._reader(place)
        return read(payload[at:])

    def _reader(self, place: tuple[int, ...]) -> Read:
        names = [self._file.package] if self._file.package else []
        types = self._file.message_type
        for index in place:
            if index >= len(types):
                raise DecodeError(f"{self._what} has no message type {list(place)}")
            names.append(types[index].name)
            types = types[index].nested_type
        name = ".".join(names)
        try:
            read = self._values_of(self._find(self._set, name))
        except UsageError as error:
            raise DecodeError(f"{self._what}: {error.message}") from None
        self._readers[place] = read
        return read


def _add_built_in(files: dict[str, FileDescriptorProto]) -> None:
    """Add the files of protobuf itself that others import."""
    import importlib

    from google.protobuf import descriptor_pb2

    wanted = [name for each in files.values() for name in each.dependency]
    while wanted:
        name = wanted.pop()
        if name in files or not _BUILT_IN.fullmatch(name):
            continue
        module = name.removesuffix(".proto").replace("/", ".") + "_pb2"
        content = importlib.import_module(module).DESCRIPTOR.serialized_pb
        files[name] = descriptor_pb2.FileDescriptorProto.FromString(content)
        wanted += files[name].dependency


def _message_place(payload: bytes) -> tuple[tuple[int, ...], int]:
    """Return the place of a message type, and where the message begins."""
    count, at = _varint(payload, 0)
    if count == 0:
        return (0,), at
    if not 0 < count <= _NESTED_MAX:
        raise DecodeError(f"the message type of the body is nested {count} deep")
    place = []
    for _ in range(count):
        index, at = _varint(payload, at)
        if index < 0:
            raise DecodeError("an index of the message type is negative")
        place.append(index)
    return tuple(place), at


def _varint(payload: bytes, at: int) -> tuple[int, int]:
    """Return a zigzag varint of 32 bits, and where it ends."""
    number = 0
    for shift, byte in enumerate(payload[at : at + 5]):
        number |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return number >> 1 ^ -(number & 1), at + shift + 1
    raise DecodeError("the body ends in its message type, or has none")


def _avro(schema: str, what: str, referenced: list[str] | tuple[str, ...]) -> Read:
    if missing_packages(("fastavro",)):
        raise DecodeError(
            f"{what} is Avro, and the package fastavro is not installed"
            " (pip install 'rmqcli[decode]')"
        )
    from rmqcli.decode.avro import avro_values

    try:
        return avro_values(schema.encode(), referenced)
    except UsageError as error:
        raise DecodeError(f"{what}: {error.message}") from None


def _file(answer: dict[str, Any], what: str, name: str) -> FileDescriptorProto:
    """Return the descriptor in an answer, under the name by which others import it."""
    from google.protobuf import descriptor_pb2
    from google.protobuf.message import DecodeError as ProtobufError

    text = _text(answer, "schema", what)
    try:
        content = binascii.a2b_base64(text, strict_mode=True)
        file = descriptor_pb2.FileDescriptorProto.FromString(content)
    except (ValueError, ProtobufError):
        raise DecodeError(
            f"{what} is protobuf, and the registry does not return its descriptor"
        ) from None
    file.name = name
    return file


def _references(answer: dict[str, Any], what: str) -> Iterator[tuple[str, _Place]]:
    """Return the name, and the subject and version, of what a schema refers to."""
    found = []
    references = answer.get("references") or []
    for each in references if isinstance(references, list) else [None]:
        match each:
            case {"name": str(name), "subject": str(subject), "version": int(version)}:
                found.append((name, (subject, version)))
            case _:
                raise DecodeError(f"{what}: the references in the answer are not valid")
    return iter(found)


def _answer(get: Get, url: str, what: str) -> dict[str, Any]:
    try:
        answer = body_value(get(url))
    except DecodeError as error:
        raise DecodeError(f"{what}: {error.message}") from None
    if not isinstance(answer, dict):
        raise DecodeError(f"{what}: the answer is not a JSON object")
    return answer


def _text(answer: dict[str, Any], field: str, what: str) -> str:
    found = answer.get(field)
    if not isinstance(found, str):
        raise DecodeError(f"{what}: the answer has no {field}")
    return found


if TYPE_CHECKING:
    #: A subject and a version.
    _Place = tuple[str, int]
