"""Reads protobuf bodies: each body is a message whose type is in a descriptor set.

An enum value becomes its name, of several the first one, or its number when the
descriptor set has no name for it. A field that is not set is null where protobuf tracks
presence (`optional`, `oneof`, messages, proto2); otherwise it has its default value.
Unknown fields are ignored.
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError as ProtobufError

from rmqcli.decode.plain import plain_value
from rmqcli.errors import DecodeError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from google.protobuf.descriptor import Descriptor, FieldDescriptor

TIMESTAMP_NAME: Final = "google.protobuf.Timestamp"
#: The most fields that the messages of a body may have together. This bounds the
#: memory, because two bytes may be a message of many fields that are not set.
FIELDS_MAX: Final = 16 << 20
_INCLUDE_HINT: Final = "write the descriptor set with protoc --include_imports"
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def protobuf_values(descriptor_set: bytes, message: str) -> Callable[[bytes], object]:
    """Return what reads the value of a body. Raises UsageError for a bad schema."""
    files = read_descriptor_set(descriptor_set)
    return values_of(find_message(files, message))


def values_of(descriptor: Descriptor) -> Callable[[bytes], object]:
    """Return what reads the value of a message's bytes."""
    read = ProtobufReader(descriptor, timestamp=_time).read

    def value(body: bytes) -> object:
        try:
            return plain_value(read(body))
        except (ProtobufError, ValueError, OverflowError, RecursionError) as error:
            if isinstance(error, DecodeError):
                raise
            reason = f"{error}"[:200]
            if isinstance(error, ProtobufError):
                reason = "the bytes are not those of such a message"
            elif isinstance(error, RecursionError):
                reason = "it is nested too deeply"
            raise DecodeError(f"not a {descriptor.full_name}: {reason}") from None

    return value


def _time(seconds: int, nanos: int) -> datetime.datetime:
    return _EPOCH + datetime.timedelta(seconds=seconds, microseconds=nanos // 1000)


def read_descriptor_set(content: bytes) -> descriptor_pb2.FileDescriptorSet:
    """Read a descriptor set. Raises UsageError for anything else."""
    files = descriptor_pb2.FileDescriptorSet()
    try:
        files.ParseFromString(content)
    except ProtobufError:
        files.Clear()
    if not files.file:
        raise UsageError(
            "not a descriptor set",
            hint="write one with protoc --include_imports --descriptor_set_out=FILE"
            " orders.proto",
        )
    return files


def find_message(files: descriptor_pb2.FileDescriptorSet, name: str) -> Descriptor:
    """Return a message of a descriptor set.

    Raises UsageError when it is not there, or what it needs.
    """
    try:
        return pool_of(files).FindMessageTypeByName(name)
    except KeyError:
        names = ", ".join(_messages_of(files)[:20])
        raise UsageError(
            f"message {name} is not in the descriptor set", hint=f"it has {names}"
        ) from None


def _messages_of(files: descriptor_pb2.FileDescriptorSet) -> list[str]:
    return sorted(
        f"{file.package}.{message.name}" if file.package else message.name
        for file in files.file
        for message in file.message_type
        if file.package != "google.protobuf"
    )


def collect_files(name: str, by_name: dict[str, Any], needed: list[str]) -> None:
    """Add the name of a file to `needed`, after the files that it imports."""
    for imported in by_name[name].dependency:
        if imported not in needed:
            collect_files(imported, by_name, needed)
    if name not in needed:
        needed.append(name)


def pool_of(files: descriptor_pb2.FileDescriptorSet) -> descriptor_pool.DescriptorPool:
    """Return a new descriptor pool with the files; imported files are added first."""
    pool = descriptor_pool.DescriptorPool()
    by_name = {file.name: file for file in files.file}
    for file in files.file:
        for imported in file.dependency:
            if imported not in by_name:
                raise UsageError(
                    f"{file.name} imports {imported}, which is not in the descriptor"
                    " set",
                    hint=_INCLUDE_HINT,
                )
    ordered: list[str] = []
    try:
        for file in files.file:
            collect_files(file.name, by_name, ordered)
        for name in ordered:
            pool.AddSerializedFile(by_name[name].SerializeToString())
    except (TypeError, RecursionError) as error:
        raise UsageError(f"not a descriptor set: {error!s:.200}") from None
    return pool


class ProtobufReader:
    """Reads messages of a type; `timestamp` converts seconds and nanoseconds.

    Safe to use from several threads: at worst two of them make the same converters.
    """

    def __init__(
        self, descriptor: Descriptor, *, timestamp: Callable[[int, int], Any]
    ) -> None:
        self._class = message_factory.GetMessageClass(descriptor)
        self._descriptor = descriptor
        self._timestamp = timestamp
        #: full name of a message -> its fields and what reads them, once needed
        self._fields: dict[str, list[tuple[str, _ReadField]]] = {}

    def read(self, body: bytes) -> dict[str, Any]:
        """Return the fields of a body. Raises protobuf's DecodeError or ValueError."""
        message = self._class()
        message.ParseFromString(body)
        if not message.IsInitialized():
            raise ValueError("a required field is missing")
        found: dict[str, Any] = self._message(message, self._descriptor, [FIELDS_MAX])
        return found

    def _message(self, message: Any, descriptor: Descriptor, room: list[int]) -> Any:  # noqa: ANN401
        name = descriptor.full_name
        if name == TIMESTAMP_NAME:
            return self._timestamp(message.seconds, message.nanos)
        fields = self._fields.get(name)
        if fields is None:
            fields = [(each.name, self._field(each)) for each in descriptor.fields]
            self._fields[name] = fields
        room[0] -= len(fields)
        if room[0] < 0:
            raise ValueError(f"its messages have more than {FIELDS_MAX:,} fields")
        return {name: read(message, room) for name, read in fields}

    def _field(self, field: FieldDescriptor) -> _ReadField:
        """Return what reads a field of a message."""
        name = field.name
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            by_name = field.message_type.fields_by_name
            key, item = self._value(by_name["key"]), self._value(by_name["value"])
            return lambda message, room: {
                key(k, room): item(v, room) for k, v in getattr(message, name).items()
            }
        value = self._value(field)
        if field.is_repeated:
            return lambda message, room: [
                value(each, room) for each in getattr(message, name)
            ]
        if field.has_presence:
            return lambda message, room: (
                value(getattr(message, name), room) if message.HasField(name) else None
            )
        return lambda message, room: value(getattr(message, name), room)

    def _value(self, field: FieldDescriptor) -> _ReadField:
        """Return what converts one value of a field."""
        descriptor = field.message_type
        if descriptor is not None:
            return lambda value, room: self._message(value, descriptor, room)
        if field.enum_type is not None:
            # Of several names for a number the first one counts.
            every = reversed(field.enum_type.values)
            names = {value.number: value.name for value in every}
            return lambda number, _: names.get(number) or str(number)
        return lambda value, _: value


if TYPE_CHECKING:
    #: Takes a message or a value, and how many fields the rest of the body may have.
    _ReadField = Callable[[Any, list[int]], Any]
