"""Convert between Arrow types and the two notations in which Spark writes schemas.

A schema is written as DDL (`id BIGINT, items ARRAY<STRUCT<sku: STRING>>`) or as the
JSON of a StructType (`df.schema.json()`). This module parses both, because Spark needs
a JVM to parse DDL. Every field may be null, whatever the schema says, as in Spark's
readers.

Source: SqlBaseParser.g4 (colTypeList, dataType) and DataType.scala in apache/spark.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from rmqcli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

#: How deeply types may be nested, and how many fields a schema may have in total.
DEPTH_MAX: Final = 32
FIELDS_MAX: Final = 2_000

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
TIMESTAMP_NTZ: Final = pa.timestamp("us")

_PLAIN: Final = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
    "timestamp_ntz": TIMESTAMP_NTZ,
}
_OTHER_NAMES: Final = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "timestamp_ltz": "timestamp",
}
_NAMES: Final = {kind: name for name, kind in _PLAIN.items()}
_DECIMAL: Final = ("decimal", "dec", "numeric")
_DECIMAL_DIGITS_MAX: Final = 38

_TOKEN = re.compile(
    r"\s*(?:(?P<quoted>`(?:[^`]|``)+`)|(?P<word>\w+)|(?P<mark>[<>(),:])"
    r"|(?P<text>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"))"
)


def parse_schema(text: str) -> pa.StructType:
    """Parse a schema in either notation. Raises UsageError for an invalid schema."""
    try:
        if text.lstrip().startswith("{"):
            kind = _from_json(_loaded(text), depth=0)
            if not pa.types.is_struct(kind):
                raise UsageError('the outermost type of the schema is not "struct"')
        else:
            kind = _Ddl(text).columns()
    except RecursionError:
        raise UsageError("the types are nested too deeply") from None
    return check_type(kind)


def check_type(kind: pa.StructType) -> pa.StructType:
    """Return the type after checking that rows can have it.

    Raises UsageError for a struct without fields, for two fields whose names differ
    only in case, and for too many or too deeply nested fields.
    """
    for depth, each in _walk(kind, 0):
        if depth > DEPTH_MAX:
            raise UsageError(f"the types are nested more than {DEPTH_MAX} deep")
        if not pa.types.is_struct(each):
            continue
        if not each.num_fields:
            raise UsageError("a struct has no fields")
        seen: dict[str, str] = {}
        for field in fields_of(each):
            other = seen.get(field.name.lower())
            seen[field.name.lower()] = field.name
            if other is not None:
                raise UsageError(
                    f"fields {other!r} and {field.name!r} clash: Spark does not"
                    " distinguish upper and lower case"
                )
    if count_fields(kind) - 1 > FIELDS_MAX:  # it counts `kind` itself, too
        raise UsageError(
            f"the schema has more than {FIELDS_MAX} fields",
            hint="use MAP<STRING, ...> for objects whose field names are data",
        )
    return kind


def fields_of(kind: pa.StructType) -> list[pa.Field]:
    """Return the fields of a struct."""
    return [kind.field(index) for index in range(kind.num_fields)]


def count_fields(kind: pa.DataType) -> int:
    """Return how many types a type consists of, itself included: the cells of a row."""
    return sum(1 for _ in _walk(kind, 0))


def ddl_of(kind: pa.StructType) -> str:
    """Return the fields of a struct as DDL, which `parse_schema` reads."""
    return ", ".join(
        f"{_quoted(field.name)} {_text_of(field.type, quoted=True)}"
        for field in fields_of(kind)
    )


def simple_string(kind: pa.DataType) -> str:
    """Return a type as PySpark's `DataType.simpleString` writes it."""
    return _text_of(kind, quoted=False)


def ddl_type(kind: pa.DataType) -> str:
    """Return a type as DDL."""
    return _text_of(kind, quoted=True)


def struct_of(fields: Iterable[tuple[str, pa.DataType]]) -> pa.StructType:
    """Return a struct with these fields, all of which may be null."""
    return pa.struct([pa.field(name, kind) for name, kind in fields])


def _walk(kind: pa.DataType, depth: int) -> Iterable[tuple[int, pa.DataType]]:
    yield depth, kind
    if depth > DEPTH_MAX:
        return
    children: list[pa.DataType] = []
    if pa.types.is_struct(kind):
        children = [field.type for field in fields_of(kind)]
    elif pa.types.is_map(kind):
        children = [kind.key_type, kind.item_type]
    elif pa.types.is_list(kind):
        children = [kind.value_type]
    for child in children:
        yield from _walk(child, depth + 1)


def _text_of(kind: pa.DataType, *, quoted: bool) -> str:
    if pa.types.is_struct(kind):
        inner = (
            f"{_quoted(f.name) if quoted else f.name}:{_text_of(f.type, quoted=quoted)}"
            for f in fields_of(kind)
        )
        return f"struct<{','.join(inner)}>"
    if pa.types.is_map(kind):
        key, item = (
            _text_of(k, quoted=quoted) for k in (kind.key_type, kind.item_type)
        )
        return f"map<{key},{item}>"
    if pa.types.is_list(kind):
        return f"array<{_text_of(kind.value_type, quoted=quoted)}>"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return _NAMES[kind]


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def plain_type(name: str) -> pa.DataType:
    """Return the type without parameters that has one of Spark's names for it.

    Raises UsageError for any other name.
    """
    word = name.lower()
    kind = _PLAIN.get(_OTHER_NAMES.get(word, word))
    if kind is None:
        raise UsageError(
            f"bodies cannot be decoded to type {name!r}",
            hint=f"use {', '.join(_PLAIN)}, decimal, array, map or struct",
        )
    return kind


def _decimal(precision: int, scale: int) -> pa.DataType:
    if not 1 <= precision <= _DECIMAL_DIGITS_MAX or not 0 <= scale <= precision:
        raise UsageError(f"decimal({precision},{scale}) is not a valid Spark type")
    return pa.decimal128(precision, scale)


def _map(key: pa.DataType, item: pa.DataType) -> pa.DataType:
    if key != pa.string():
        raise UsageError(
            f"the keys of a map are {_text_of(key, quoted=True)}, not string"
        )
    return pa.map_(key, item)


def _loaded(text: str) -> Any:  # noqa: ANN401  # any JSON
    try:
        return json.loads(text)
    except ValueError as error:
        raise UsageError(f"not JSON: {error}") from None


def _from_json(value: object, *, depth: int) -> pa.DataType:
    """Return the type that a part of `StructType.json()` describes."""
    if depth > DEPTH_MAX:
        raise UsageError(f"the types are nested more than {DEPTH_MAX} deep")
    if isinstance(value, str):
        found = re.fullmatch(
            r"decimal(?:\(\s*(\d{1,3})\s*,\s*(-?\d{1,3})\s*\))?", value
        )
        if found:
            return _decimal(int(found[1] or 10), int(found[2] or 0))
        return plain_type(value)
    if not isinstance(value, dict):
        raise UsageError(f"{str(value)[:40]!r} is not the JSON of a type")
    kind, below = value.get("type"), depth + 1
    if kind == "array":
        return pa.list_(_from_json(value.get("elementType"), depth=below))
    if kind == "map":
        key, item = (
            _from_json(value.get(f"{each}Type"), depth=below)
            for each in ("key", "value")
        )
        return _map(key, item)
    fields = value.get("fields")
    if kind != "struct" or not isinstance(fields, list):
        raise UsageError(f"type {str(kind)[:40]!r} is none of array, map and struct")
    found_fields = []
    for field in fields:
        name = field.get("name") if isinstance(field, dict) else None
        if not isinstance(name, str) or not is_name(name):
            raise UsageError(f"a field of a struct has no name: {str(field)[:80]}")
        found_fields.append((name, _from_json(field.get("type"), depth=below)))
    return struct_of(found_fields)


def is_name(name: str) -> bool:
    """Return whether a column can have this name."""
    return bool(name) and not re.search("[\ud800-\udfff]", name)


class _Ddl:
    """A recursive-descent parser of DDL."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def columns(self) -> pa.StructType:
        """Parse the whole text: fields separated by commas."""
        found = self._fields()
        if self._text[self._at :].strip():
            raise self._error("a comma or the end of the text")
        return found

    def _fields(self) -> pa.StructType:
        fields = [self._field()]
        while self._take(","):
            fields.append(self._field())
        return struct_of(fields)

    def _field(self) -> tuple[str, pa.DataType]:
        name = self._name()
        self._take(":")
        kind = self._type()
        if self._take("NOT") and not self._take("NULL"):
            raise self._error("NULL after NOT")
        if self._take("COMMENT") and self._next("text") is None:
            raise self._error("a string in quotes after COMMENT")
        return name, kind

    def _name(self) -> str:
        quoted = self._next("quoted")
        if quoted is not None and is_name(quoted[1:-1]):
            return quoted[1:-1].replace("``", "`")
        word = self._next("word") if quoted is None else None
        if word is None:
            raise self._error("the name of a field")
        return word

    def _type(self) -> pa.DataType:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise UsageError(f"the types are nested more than {DEPTH_MAX} deep")
        word = self._next("word")
        if word is None:
            raise self._error("a type")
        kind = self._type_of(word.lower(), word)
        self._depth -= 1
        return kind

    def _type_of(self, word: str, written: str) -> pa.DataType:
        if word == "array":
            self._need("<")
            kind = pa.list_(self._type())
        elif word == "map":
            self._need("<")
            key = self._type()
            self._need(",")
            kind = _map(key, self._type())
        elif word == "struct":
            self._need("<")
            kind = self._fields()
        elif word in _DECIMAL:
            return self._decimal()
        else:
            return plain_type(written)
        self._need(">")
        return kind

    def _decimal(self) -> pa.DataType:
        if not self._take("("):
            return _decimal(10, 0)
        precision, scale = self._number(), 0
        if self._take(","):
            scale = self._number()
        self._need(")")
        return _decimal(precision, scale)

    def _number(self) -> int:
        word = self._next("word")
        if word is None or not re.fullmatch(r"[0-9]{1,3}", word):
            raise self._error("a number")
        return int(word)

    def _next(self, kind: str) -> str | None:
        """Consume and return the next token if it is of this kind."""
        found = _TOKEN.match(self._text, self._at)
        if found is None or found.lastgroup != kind:
            return None
        self._at = found.end()
        return found[kind]

    def _take(self, token: str) -> bool:
        """Consume the next token if it is this mark, or this word in any case."""
        found = _TOKEN.match(self._text, self._at)
        if found is None or found[found.lastgroup or 0].upper() != token:
            return False
        self._at = found.end()
        return True

    def _need(self, token: str) -> None:
        if not self._take(token):
            raise self._error(token)

    def _error(self, expected: str) -> UsageError:
        rest = self._text[self._at :].strip()
        where = f"at {rest[:40]!r}" if rest else "at the end of the text"
        return UsageError(f"not valid DDL: expected {expected} {where}")
