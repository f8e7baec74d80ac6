"""Typed columns from message bodies: JSON, Avro and protobuf, in Arrow batches.

`settings` reads the user's settings. `schema` converts schemas to Arrow types, and
`infer` infers the schema of JSON bodies from a few messages. `decoder` appends the
columns `value` and `_corrupt_body` to batches: `json_body`, `avro_body` or
`protobuf_body` turns each body into a Python value, and `build` turns these values into
columns. The export and the data source use this package.
"""
