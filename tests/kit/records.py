"""Reads JSON records, and holds them to the schema that `rmq tail -o schema` prints."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from jsonschema import Draft202012Validator

import rmqcli.wire.message

if TYPE_CHECKING:
    from collections.abc import Iterable

SCHEMA: Final[dict[str, Any]] = json.loads(
    (Path(rmqcli.wire.message.__file__).parent / "record.schema.json").read_text(
        encoding="utf-8"
    )
)
_VALIDATOR: Final = Draft202012Validator(SCHEMA)


def checked_records(lines: Iterable[str | bytes]) -> list[dict[str, Any]]:
    """Return the records of JSON lines. Fails for a line that breaks the schema."""
    records = [json.loads(line) for line in lines]
    for record in records:
        _VALIDATOR.validate(record)
    return records


def body_of(record: dict[str, Any]) -> bytes:
    """Return the body of a record as bytes, whatever its encoding in JSON."""
    if record["body_encoding"] == "utf-8":
        return str(record["body"]).encode()
    return b64decode(record["body_b64"], validate=True)
