"""Decode protobuf bodies: each body is a message whose type is in a descriptor set.

Column types are the ones that Spark's `from_protobuf` uses, except that no unsigned
number becomes negative: `uint32` is `bigint`, and `uint64` is `decimal(20,0)`. An enum
value becomes its name, or its number when the descriptor set has no name for it. A
field that is not set is null where protobuf tracks presence (`optional`, `oneof`,
messages, proto2); otherwise it has its default value. Messages without fields get no
column. Unknown fields are ignored.

Source: SchemaConverters in apache/spark (connector/protobuf).
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from rmqcli.decode.build import plain_leaf_of
from rmqcli.decode.schema import DEPTH_MAX, TIMESTAMP, check_type, struct_of
from rmqcli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.message import Message

    from rmqcli.decode.build import Leaf

    Read = Callable[[Any], Any]

_TIMESTAMP_NAME: Final = "google.protobuf.Timestamp"
_INCLUDE_HINT: Final = "write the descriptor set with protoc --include_imports"

_FieldProto = descriptor_pb2.FieldDescriptorProto
_BIGINT: Final = pa.int64()
_PLAIN: Final[dict[int, pa.DataType]] = {
    _FieldProto.TYPE_BOOL: pa.bool_(),
    _FieldProto.TYPE_INT32: pa.int32(),
    _FieldProto.TYPE_SINT32: pa.int32(),
    _FieldProto.TYPE_SFIXED32: pa.int32(),
    _FieldProto.TYPE_UINT32: _BIGINT,
    _FieldProto.TYPE_FIXED32: _BIGINT,
    _FieldProto.TYPE_INT64: _BIGINT,
    _FieldProto.TYPE_SINT64: _BIGINT,
    _FieldProto.TYPE_SFIXED64: _BIGINT,
    _FieldProto.TYPE_UINT64: pa.decimal128(20, 0),
    _FieldProto.TYPE_FIXED64: pa.decimal128(20, 0),
    _FieldProto.TYPE_FLOAT: pa.float32(),
    _FieldProto.TYPE_DOUBLE: pa.float64(),
    _FieldProto.TYPE_STRING: pa.string(),
    _FieldProto.TYPE_BYTES: pa.binary(),
    _FieldProto.TYPE_ENUM: pa.string(),
}


def canonical(content: bytes, name: str) -> str:
    """Return a message's name and the descriptors that it needs as canonical JSON.

    Raises UsageError when `content` is not a descriptor set, or does not have the
    message, or when no columns can hold the message.
    """
    files = descriptor_pb2.FileDescriptorSet()
    try:
        files.ParseFromString(content)
    except DecodeError:
        files.Clear()
    if not files.file:
        raise UsageError(
            "not a descriptor set",
            hint="write one with protoc --include_imports --descriptor_set_out=FILE"
            " orders.proto",
        )
    home = _pool(files).FindMessageTypeByName
    try:
        descriptor = home(name)
    except KeyError:
        names = ", ".join(_messages_of(files)[:20])
        raise UsageError(
            f"message {name} is not in the descriptor set", hint=f"it has {names}"
        ) from None
    by_name = {file.name: file for file in files.file}
    needed: list[str] = []
    _collect(descriptor.file.name, by_name, needed)
    kept = descriptor_pb2.FileDescriptorSet()
    for each in needed:
        kept.file.add().CopyFrom(by_name[each])
        kept.file[-1].ClearField("source_code_info")
    packed = base64.b64encode(kept.SerializeToString(deterministic=True)).decode()
    text = json.dumps({"descriptor_set": packed, "message": descriptor.full_name})
    ProtobufBody(text)
    return text


def _collect(name: str, by_name: dict[str, Any], needed: list[str]) -> None:
    """Add the name of a file to `needed`, after the files that it imports."""
    for imported in by_name[name].dependency:
        if imported not in needed:
            _collect(imported, by_name, needed)
    if name not in needed:
        needed.append(name)


def _messages_of(files: descriptor_pb2.FileDescriptorSet) -> list[str]:
    return sorted(
        f"{file.package}.{message.name}" if file.package else message.name
        for file in files.file
        for message in file.message_type
        if file.package != "google.protobuf"
    )


def _pool(files: descriptor_pb2.FileDescriptorSet) -> descriptor_pool.DescriptorPool:
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
            _collect(file.name, by_name, ordered)
        for name in ordered:
            pool.AddSerializedFile(by_name[name].SerializeToString())
    except (TypeError, RecursionError) as error:
        raise UsageError(f"not a descriptor set: {error!s:.200}") from None
    return pool


class ProtobufBody:
    """Reads protobuf bodies with a schema that `canonical` returned."""

    def __init__(self, schema: str) -> None:
        """Raises UsageError when no columns can hold the message."""
        value = json.loads(schema)
        files = descriptor_pb2.FileDescriptorSet()
        files.ParseFromString(base64.b64decode(value["descriptor_set"]))
        descriptor = _pool(files).FindMessageTypeByName(value["message"])
        kind, self._read = _message(descriptor, ())
        if kind is None or not pa.types.is_struct(kind):
            raise UsageError(
                f"message {descriptor.full_name} has no fields that can be columns"
            )
        self.value_type: pa.StructType = check_type(kind)
        self._class = message_factory.GetMessageClass(descriptor)

    def read(self, body: bytes) -> object:
        """Return the fields of a body. Raises DecodeError or ValueError."""
        message = self._class()
        message.ParseFromString(body)
        if not message.IsInitialized():
            raise ValueError("a required field is missing")
        return self._read(message)

    def leaf_of(self, kind: pa.DataType) -> Leaf:
        """Return the conversion of values to columns of a plain type."""
        return plain_leaf_of(kind)


def _message(
    descriptor: Descriptor, outer: tuple[str, ...]
) -> tuple[pa.DataType | None, Read]:
    """Return the type of a message, and a function that converts a message to a value.

    The type is None when the message has no fields that can be columns.
    """
    name = descriptor.full_name
    if name == _TIMESTAMP_NAME:
        return TIMESTAMP, lambda m: m.seconds * 1_000_000 + m.nanos // 1000
    if name in outer:
        raise UsageError(f"message {name} contains itself, which no column can hold")
    if len(outer) >= DEPTH_MAX:
        raise UsageError(f"the messages are nested more than {DEPTH_MAX} deep")
    fields: list[tuple[str, pa.DataType]] = []
    readers: list[tuple[str, Read]] = []
    for field in descriptor.fields:
        kind, read = _field(field, (*outer, name))
        if kind is not None:
            fields.append((field.name, kind))
            readers.append((field.name, read))

    def to_dict(message: Message) -> dict[str, Any]:
        return {field_name: read(message) for field_name, read in readers}

    return (struct_of(fields) if fields else None), to_dict


def _field(
    field: FieldDescriptor, outer: tuple[str, ...]
) -> tuple[pa.DataType | None, Read]:
    """Return the type of a field, and a function that reads the field of a message."""
    name = field.name
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        by_name = field.message_type.fields_by_name
        key, read_key = _value(by_name["key"], outer)
        item, read_item = _value(by_name["value"], outer)
        if item is None:
            return None, _nothing
        return pa.map_(key, item), lambda message: {
            read_key(k): read_item(v) for k, v in getattr(message, name).items()
        }
    kind, read = _value(field, outer)
    if kind is None:
        return None, _nothing
    if field.is_repeated:
        return pa.list_(kind), lambda m: [read(each) for each in getattr(m, name)]
    if field.has_presence:
        return kind, lambda m: read(getattr(m, name)) if m.HasField(name) else None
    return kind, lambda m: read(getattr(m, name))


def _value(
    field: FieldDescriptor, outer: tuple[str, ...]
) -> tuple[pa.DataType | None, Read]:
    """Return the type of one value of a field, and a function that converts it."""
    if field.message_type is not None:
        return _message(field.message_type, outer)
    if field.enum_type is not None:
        by_number = field.enum_type.values_by_number
        names = {number: value.name for number, value in by_number.items()}
        return pa.string(), lambda number: names.get(number) or str(number)
    return _PLAIN[field.type], _unchanged


def _unchanged(value: Any) -> Any:  # noqa: ANN401  # a value of protobuf
    return value


def _nothing(_: object) -> None:
    """Stand in for the function that reads a field, when the field has no column."""
