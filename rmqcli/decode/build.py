"""Build Arrow columns from Python values, and record which rows do not fit the schema.

A column is converted at once when Arrow accepts the type of every value; otherwise it
is converted value by value. Lists and objects are flattened level by level, and each
value keeps the number of its row: a value that does not fit makes its row bad and does
not affect other rows.
"""

from __future__ import annotations

import datetime
import decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from rmqcli.decode.schema import TIMESTAMP, TIMESTAMP_NTZ, count_fields, fields_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: The most cells that the lists and maps of one `Builder` may have: elements times
#: fields of an element. This bounds the memory, because `[{},{},...]` may have a
#: million elements, each a struct of many fields.
CELLS_MAX: Final = 16 << 20

_NONE: Final = type(None)


class Leaf(NamedTuple):
    """How values are converted to a column of a plain type.

    Arrow accepts values of the types in `exact`. `convert` converts a value of any
    other type to one of these, or raises ValueError or ArithmeticError. With
    `is_finite` a column must not hold infinity, because numbers that are out of range
    would be rounded to it.
    """

    exact: frozenset[type]
    convert: Callable[[Any], Any]
    is_finite: bool = False


class BodyReader(NamedTuple):
    """Reads the bodies of a format.

    `read` returns the value of a body, and may raise any Exception for a corrupt body.
    `leaf_of` returns the conversion of values to columns of a plain type.
    """

    value_type: pa.StructType
    read: Callable[[bytes], object]
    leaf_of: Callable[[pa.DataType], Leaf]


class Builder:
    """Builds the columns of one set of rows; `bad` has the rows that did not fit.

    The contents of bad rows in the columns are undefined.
    """

    def __init__(self, leaf_of: Callable[[pa.DataType], Leaf]) -> None:
        self.bad: set[int] = set()
        self._leaf_of = leaf_of
        self._cells = 0

    def column(
        self, values: list[Any], rows: Sequence[int], kind: pa.DataType
    ) -> pa.Array:
        """Return a column of `values`; `rows` has the row number of each value."""
        if pa.types.is_struct(kind):
            return self._struct(self._only(dict, values, rows), rows, kind)
        if pa.types.is_map(kind):
            return self._map(self._only(dict, values, rows), rows, kind)
        if pa.types.is_list(kind):
            return self._list(self._only(list, values, rows), rows, kind)
        return self._plain(values, rows, kind)

    def _only(self, wanted: type, values: list[Any], rows: Sequence[int]) -> list[Any]:
        """Return the values with None in place of those of another type."""
        if set(map(type, values)) <= {wanted, _NONE}:
            return values
        kept = []
        for value, row in zip(values, rows, strict=True):
            is_wrong = value is not None and type(value) is not wanted
            if is_wrong:
                self.bad.add(row)
            kept.append(None if is_wrong else value)
        return kept

    def _struct(
        self, values: list[Any], rows: Sequence[int], kind: pa.DataType
    ) -> pa.Array:
        fields = fields_of(kind)
        columns = []
        for field in fields:
            name = field.name
            inner = [None if each is None else each.get(name) for each in values]
            columns.append(self.column(inner, rows, field.type))
        mask = pa.array([each is None for each in values], pa.bool_())
        return pa.StructArray.from_arrays(columns, fields=fields, mask=mask)

    def _list(
        self, values: list[Any], rows: Sequence[int], kind: pa.DataType
    ) -> pa.Array:
        offsets, inner, owners = self._flat(values, rows, count_fields(kind))
        column = self.column(inner, owners, kind.value_type)
        return pa.ListArray.from_arrays(offsets, column, type=kind)

    def _map(
        self, values: list[Any], rows: Sequence[int], kind: pa.DataType
    ) -> pa.Array:
        offsets, keys, owners = self._flat(values, rows, count_fields(kind))
        inner = [
            item
            for each, start in zip(values, offsets.to_pylist(), strict=False)
            if start is not None
            for item in each.values()
        ]
        key_column = self.column(keys, owners, kind.key_type)
        if key_column.null_count:
            key_column = pc.fill_null(key_column, _zero(kind.key_type))
        item_column = self.column(inner, owners, kind.item_type)
        return pa.MapArray.from_arrays(offsets, key_column, item_column)

    def _flat(
        self, values: list[Any], rows: Sequence[int], cells: int
    ) -> tuple[pa.Array, list[Any], list[int]]:
        """Return offsets (null for a null list), all elements, and each one's row."""
        offsets: list[int | None] = []
        inner: list[Any] = []
        owners: list[int] = []
        for each, row in zip(values, rows, strict=True):
            if each is not None:
                self._cells += len(each) * cells
                if self._cells > CELLS_MAX:
                    self.bad.add(row)
                    each = None
            offsets.append(None if each is None else len(inner))
            if each:
                inner.extend(each)
                owners.extend([row] * len(each))
        offsets.append(len(inner))
        return pa.array(offsets, pa.int32()), inner, owners

    def _plain(
        self, values: list[Any], rows: Sequence[int], kind: pa.DataType
    ) -> pa.Array:
        leaf = self._leaf_of(kind)
        if set(map(type, values)) - leaf.exact <= {_NONE}:
            column = _column(values, kind, leaf)
            if column is not None:
                return column
        converted = self._converted(values, rows, leaf)
        column = _column(converted, kind, leaf)
        if column is not None:
            return column
        kept = []
        for value, row in zip(converted, rows, strict=True):
            fits = _column([value], kind, leaf) is not None
            if not fits:
                self.bad.add(row)
            kept.append(value if fits else None)
        return pa.array(kept, kind)

    def _converted(
        self, values: list[Any], rows: Sequence[int], leaf: Leaf
    ) -> list[Any]:
        converted = []
        for value, row in zip(values, rows, strict=True):
            result = value
            if value is not None and type(value) not in leaf.exact:
                try:
                    result = leaf.convert(value)
                except (ValueError, ArithmeticError, RecursionError):
                    self.bad.add(row)
                    result = None
            converted.append(result)
        return converted


def _column(values: list[Any], kind: pa.DataType, leaf: Leaf) -> pa.Array | None:
    """Return a column, or None when one of the values does not fit."""
    try:
        column = pa.array(values, kind)
    except (pa.ArrowException, ValueError, TypeError, ArithmeticError):
        return None
    if leaf.is_finite and pc.all(pc.is_finite(column)).as_py() is False:
        return None
    return column


def _zero(kind: pa.DataType) -> pa.Scalar:
    """Return the key to use in a bad row, since keys must not be null."""
    return pa.scalar("" if kind == pa.string() else 0).cast(kind)


def plain_leaf_of(kind: pa.DataType) -> Leaf:
    """Return the conversion of values to a plain type, which never changes a value."""
    if pa.types.is_decimal(kind):
        return _DECIMAL
    return _LEAVES[kind]


def _wrong(value: object) -> Any:  # noqa: ANN401  # never returns
    raise ValueError(f"not a value of this type: {type(value).__name__}")


def leaf(*exact: type) -> Leaf:
    """Return the conversion for which no other types are converted."""
    return Leaf(frozenset(exact), _wrong)


_DECIMAL: Final = leaf(decimal.Decimal, int)
_INT: Final = leaf(int)
_LEAVES: Final = {
    pa.bool_(): leaf(bool),
    pa.int32(): _INT,
    pa.int64(): _INT,
    pa.float32(): leaf(float),
    pa.float64(): leaf(float),
    pa.string(): leaf(str),
    pa.binary(): leaf(bytes),
    pa.date32(): leaf(datetime.date),
    TIMESTAMP: leaf(datetime.datetime, int),  # ints are microseconds
    TIMESTAMP_NTZ: leaf(datetime.datetime),
}
