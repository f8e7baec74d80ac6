"""What bodies mean: single ones as JSON, and many of them as typed columns of Arrow.

`single` has the formats of single bodies: the value of a body is the `value` of its
record. `json`, `avro`, `protobuf` and `packed` read the formats, `registry` those whose
schemas are in a schema registry, and `plain` turns what the libraries return into
values of JSON.

For columns, `settings` reads the user's settings. `schema` converts schemas to Arrow
types, and `infer` infers the schema of JSON bodies from a few messages. `decoder`
appends the columns `value` and `_corrupt_body` to batches: `json_body`, `avro_body` or
`protobuf_body` turns each body into a Python value, and `build` turns these values into
columns. Only these modules load pyarrow, and nothing here needs Spark.
"""

from __future__ import annotations

from rmqcli.decode.single import FORMATS, Decode, parse_decode

__all__ = ["FORMATS", "Decode", "parse_decode"]
