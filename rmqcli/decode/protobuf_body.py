"""Decode protobuf bodies to columns: each body is a message of a descriptor set.

Column types are the ones that Spark's `from_protobuf` uses, except that no unsigned
number becomes negative: `uint32` is `bigint`, and `uint64` is `decimal(20,0)`. Messages
without fields get no column. `rmqcli.decode.protobuf` reads the bodies.

Source: SchemaConverters in apache/spark (connector/protobuf).
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from google.protobuf import descriptor_pb2

from rmqcli.decode.build import BodyReader, plain_leaf_of
from rmqcli.decode.protobuf import (
    TIMESTAMP_NAME,
    ProtobufReader,
    collect_files,
    find_message,
    read_descriptor_set,
)
from rmqcli.decode.schema import DEPTH_MAX, TIMESTAMP, check_type, struct_of
from rmqcli.errors import UsageError

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

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
    files = read_descriptor_set(content)
    descriptor = find_message(files, name)
    by_name = {file.name: file for file in files.file}
    needed: list[str] = []
    collect_files(descriptor.file.name, by_name, needed)
    kept = descriptor_pb2.FileDescriptorSet()
    for each in needed:
        kept.file.add().CopyFrom(by_name[each])
        kept.file[-1].ClearField("source_code_info")
    packed = base64.b64encode(kept.SerializeToString(deterministic=True)).decode()
    text = json.dumps({"descriptor_set": packed, "message": descriptor.full_name})
    protobuf_body(text)
    return text


def protobuf_body(schema: str) -> BodyReader:
    """Return the reader of bodies with a schema that `canonical` returned.

    Raises UsageError when no columns can hold the message.
    """
    value = json.loads(schema)
    files = read_descriptor_set(base64.b64decode(value["descriptor_set"]))
    descriptor = find_message(files, value["message"])
    kind = _message(descriptor, ())
    if kind is None or not pa.types.is_struct(kind):
        raise UsageError(
            f"message {descriptor.full_name} has no fields that can be columns"
        )
    read = ProtobufReader(descriptor, timestamp=_microseconds).read
    return BodyReader(check_type(kind), read, plain_leaf_of)


def _microseconds(seconds: int, nanos: int) -> int:
    return seconds * 1_000_000 + nanos // 1000


def _message(descriptor: Descriptor, outer: tuple[str, ...]) -> pa.DataType | None:
    """Return the type of a message, or None if no field of it can be a column."""
    name = descriptor.full_name
    if name == TIMESTAMP_NAME:
        return TIMESTAMP
    if name in outer:
        raise UsageError(f"message {name} contains itself, which no column can hold")
    if len(outer) >= DEPTH_MAX:
        raise UsageError(f"the messages are nested more than {DEPTH_MAX} deep")
    fields: list[tuple[str, pa.DataType]] = []
    for field in descriptor.fields:
        kind = _field(field, (*outer, name))
        if kind is not None:
            fields.append((field.name, kind))
    return struct_of(fields) if fields else None


def _field(field: FieldDescriptor, outer: tuple[str, ...]) -> pa.DataType | None:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        by_name = field.message_type.fields_by_name
        item = _value(by_name["value"], outer)
        return None if item is None else pa.map_(_value(by_name["key"], outer), item)
    kind = _value(field, outer)
    return pa.list_(kind) if kind is not None and field.is_repeated else kind


def _value(field: FieldDescriptor, outer: tuple[str, ...]) -> pa.DataType | None:
    if field.message_type is not None:
        return _message(field.message_type, outer)
    return _PLAIN[field.type]
