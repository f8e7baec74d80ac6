"""Typed columns from message bodies: JSON, Avro and protobuf, in Arrow batches.

`settings` reads what the user asks for, `schema` has the types, `infer` finds those of
JSON from a few messages. `decoder` appends the columns `value` and `_corrupt_body` to
batches, with what `json_body`, `avro_body` or `protobuf_body` makes of a body and
`build` makes of their values. Used by the export and by the data source.
"""
