"""A descriptor set as protoc --include_imports writes it, and its message classes."""

from __future__ import annotations

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    text_format,
    timestamp_pb2,
)

_SHOP = """
name: "shop.proto" package: "shop" syntax: "proto3"
dependency: "google/protobuf/timestamp.proto"
enum_type { name: "State" value { name: "NEW" number: 0 }
            value { name: "PAID" number: 1 } }
message_type {
  name: "Item"
  field { name: "sku" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
  field { name: "n" number: 2 label: LABEL_OPTIONAL type: TYPE_INT32 }
}
message_type { name: "Nothing" }
message_type {
  name: "Node"
  field { name: "next" number: 1 label: LABEL_OPTIONAL type: TYPE_MESSAGE
          type_name: ".shop.Node" }
}
message_type {
  name: "Order"
  field { name: "id" number: 1 label: LABEL_OPTIONAL type: TYPE_INT64 }
  field { name: "u" number: 2 label: LABEL_OPTIONAL type: TYPE_UINT32 }
  field { name: "v" number: 3 label: LABEL_OPTIONAL type: TYPE_UINT64 }
  field { name: "note" number: 4 label: LABEL_OPTIONAL type: TYPE_STRING
          proto3_optional: true oneof_index: 1 }
  field { name: "state" number: 5 label: LABEL_OPTIONAL type: TYPE_ENUM
          type_name: ".shop.State" }
  field { name: "items" number: 6 label: LABEL_REPEATED type: TYPE_MESSAGE
          type_name: ".shop.Item" }
  field { name: "by" number: 7 label: LABEL_REPEATED type: TYPE_MESSAGE
          type_name: ".shop.Order.ByEntry" }
  field { name: "at" number: 8 label: LABEL_OPTIONAL type: TYPE_MESSAGE
          type_name: ".google.protobuf.Timestamp" }
  field { name: "none" number: 9 label: LABEL_OPTIONAL type: TYPE_MESSAGE
          type_name: ".shop.Nothing" }
  field { name: "card" number: 10 label: LABEL_OPTIONAL type: TYPE_STRING
          oneof_index: 0 }
  field { name: "raw" number: 11 label: LABEL_OPTIONAL type: TYPE_BYTES
          oneof_index: 0 }
  field { name: "f" number: 12 label: LABEL_OPTIONAL type: TYPE_FLOAT }
  field { name: "d" number: 13 label: LABEL_OPTIONAL type: TYPE_DOUBLE }
  field { name: "ok" number: 14 label: LABEL_OPTIONAL type: TYPE_BOOL }
  nested_type {
    name: "ByEntry" options { map_entry: true }
    field { name: "key" number: 1 label: LABEL_OPTIONAL type: TYPE_INT32 }
    field { name: "value" number: 2 label: LABEL_OPTIONAL type: TYPE_MESSAGE
            type_name: ".shop.Item" }
  }
  oneof_decl { name: "how" }
  oneof_decl { name: "_note" }
}
"""
_OLD = """
name: "old.proto" package: "shop"
message_type {
  name: "Old"
  field { name: "id" number: 1 label: LABEL_REQUIRED type: TYPE_INT32 }
  field { name: "n" number: 2 label: LABEL_OPTIONAL type: TYPE_INT32
          default_value: "7" }
}
"""


def descriptor_set(*, with_imports=True):
    """The content of the descriptor set file."""
    files = descriptor_pb2.FileDescriptorSet()
    if with_imports:
        timestamp_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    for text in (_SHOP, _OLD):
        text_format.Parse(text, files.file.add())
    return files.SerializeToString()


def message_class(name):
    """The class of a message in the descriptor set."""
    files = descriptor_pb2.FileDescriptorSet.FromString(descriptor_set())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
