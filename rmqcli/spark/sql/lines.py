"""Write the lines of JSON and CSV for Arrow batches, column by column.

The result is the same as if each row were a dict of the values that
`rmqcli.spark.sql.values` makes and were written by itself; the functions that write a
single value come from the caller. A column is written at once where it is certain that
this makes no difference. In the other cases, and for types that are rare, each value is
written by those functions.

Imports numpy and pyarrow, so it is loaded with Spark only.
"""

from __future__ import annotations

import base64
import codecs
import functools
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqcli.dataclass import dataclass
from rmqcli.spark.sql.values import key_text, plain
from rmqcli.wire.message.arrays import (
    array_of,
    mask_of,
    numbers_of,
    repeated,
    strings_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from rmqcli.spark.sql.session import ResultColumn

#: The rows that `written_rows` takes.
Batch: TypeAlias = pa.RecordBatch

#: Larger batches are written in pieces, because a column of lines has at most 2 GiB.
_PIECE_BYTES: Final = 32 << 20
#: Bytes that both formats write unchanged, wherever they stand in a text.
_AS_IS: Final = bytes(set(range(0x21, 0x7F)) - set(b"\"\\,=+-@'"))
_QUOTED_IN_JSON: Final = b'"\\'
_JSON_AS_IS: Final = bytes(set(range(0x20, 0x7F)) - set(_QUOTED_IN_JSON))
#: Texts that a CSV may write in another way: those that may look like a formula, need
#: quotes, or begin or end with a blank.
_SPECIAL_IN_CSV: Final = r"^[=+\-@]|[,\"\r\n]|^[^!-~]|[^!-~]$"
_NOT_ASCII: Final = r"[^ -~]"
_AS_JAVA: Final = "rmqcli-as-java"


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonStyle:
    """How single values are written in JSON.

    `encode` returns the text of a value. `keeps` tells whether it would leave each
    character of a text as it is, except for quotes and backslashes.
    """

    encode: Callable[[object], str]
    keeps: Callable[[str], bool]
    comma: str = ","
    colon: str = ":"


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvStyle:
    """How single values are written in CSV: `cell` returns the text of one.

    On a terminal, which `escapes`, only ASCII is certain to be left as it is. `json` is
    for lists, maps and structs.
    """

    cell: Callable[[object], str]
    escapes: bool
    json: JsonStyle


def written_rows(
    columns: Sequence[ResultColumn],
    batch: pa.RecordBatch,
    style: JsonStyle | CsvStyle,
    *,
    separator: str,
) -> Iterator[str]:
    """The rows of a batch as text with separators between them, in pieces.

    A binary column becomes two: the values that are UTF-8, and the others in base64.
    """
    for piece in _pieces(batch):
        names: list[str] = []
        arrays: list[pa.Array] = []
        for column, array in zip(columns, piece.columns, strict=True):
            names.append(column.name)
            if column.base64_name is None:
                arrays.append(array)
            else:
                names.append(column.base64_name)
                arrays += _texts_and_base64(array)
        if isinstance(style, JsonStyle):
            rows = _Json(style).objects(names, arrays)
        else:
            cells = [_csv_cells(array, style) for array in arrays]
            rows = _joined(*cells, between=",")
        every = array_of(np.array([0, len(rows)], dtype=np.int32))
        lists = pa.ListArray.from_arrays(every, rows)
        yield str(pc.binary_join(lists, _literal(separator))[0])


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    count = -(-batch.nbytes // _PIECE_BYTES)
    rows = max(1, -(-batch.num_rows // max(1, count)))
    return (batch.slice(start, rows) for start in range(0, batch.num_rows, rows))


class _Json:
    """Writes columns as JSON."""

    def __init__(self, style: JsonStyle) -> None:
        self._style = style

    def objects(self, names: Sequence[str], arrays: Sequence[pa.Array]) -> pa.Array:
        """An object for each row. Of columns with the same name, the last counts."""
        style = self._style
        parts: list[Any] = []
        before = "{"
        for name, array in dict(zip(names, arrays, strict=True)).items():
            parts += [_literal(before + style.encode(name) + style.colon)]
            parts += [self.texts(array)]
            before = style.comma
        return _joined(*parts, _literal("}"))

    def texts(self, array: pa.Array) -> pa.Array:
        """The JSON of each value; nothing is null."""
        kind = array.type
        if pa.types.is_null(kind):
            return repeated("null", len(array))
        if pa.types.is_list(kind):
            texts = self._list(array)
        elif pa.types.is_map(kind):
            texts = self._map(array)
        elif pa.types.is_struct(kind):
            texts = self._struct(array)
        elif pa.types.is_boolean(kind) or pa.types.is_integer(kind):
            texts = array.cast(pa.string())
        elif (plain_texts := _texts(array)) is not None:
            texts = self._strings(plain_texts)
        else:
            return self._one_by_one(array)
        return _filled(texts, "null")

    def _one_by_one(self, array: pa.Array) -> pa.Array:
        encode = self._style.encode
        return strings_of([encode(plain(each)) for each in array.to_pylist()])

    def _strings(self, array: pa.Array) -> pa.Array:
        raw = _memory(array)
        if raw.translate(None, _JSON_AS_IS):
            if not self._style.keeps(raw.decode()):
                return self._one_by_one(array)
            for mark in ("\\", '"'):
                if mark.encode() in raw:
                    array = pc.replace_substring(array, mark, "\\" + mark)
        return _joined(_literal('"'), array, _literal('"'))

    def _list(self, array: pa.ListArray) -> pa.Array:
        offsets = _offsets(array)
        inner = array.values.slice(offsets[0], offsets[-1] - offsets[0])
        return self._gathered(array, offsets, self.texts(inner), ("[", "]"))

    def _map(self, array: pa.MapArray) -> pa.Array:
        offsets = _offsets(array)
        start, count = offsets[0], offsets[-1] - offsets[0]
        keys, values = (each.slice(start, count) for each in (array.keys, array.items))
        names = _texts(keys)
        if names is None:
            names = strings_of([key_text(each) for each in keys.to_pylist()])
        texts, inner = self._strings(names), self.texts(values)
        offsets = offsets - start
        if _has_repeats(texts, offsets):
            return self._map_one_by_one(array, offsets, texts, inner)
        entries = _joined(texts, inner, between=self._style.colon)
        return self._gathered(array, offsets, entries, ("{", "}"))

    def _map_one_by_one(
        self,
        array: pa.MapArray,
        offsets: NDArray[np.int32],
        keys: pa.Array,
        values: pa.Array,
    ) -> pa.Array:
        """Maps of which some have a key twice; the last value counts."""
        pairs = list(zip(keys.to_pylist(), values.to_pylist(), strict=True))
        found = []
        for start, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
            inner = self._style.comma.join(
                key + self._style.colon + value
                for key, value in dict(pairs[start:end]).items()
            )
            found.append("{" + inner + "}")
        return _where_valid(array, strings_of(found))

    def _struct(self, array: pa.StructArray) -> pa.Array:
        names = [field.name for field in array.type]
        if not names:
            return _where_valid(array, repeated("{}", len(array)))
        return _where_valid(array, self.objects(names, array.flatten()))

    def _gathered(
        self,
        array: pa.Array,
        offsets: NDArray[np.int32],
        entries: pa.Array,
        brackets: tuple[str, str],
    ) -> pa.Array:
        """The entries of each row between brackets, with commas between them."""
        lists = pa.ListArray.from_arrays(array_of(offsets - offsets[0]), entries)
        inner = pc.binary_join(lists, _literal(self._style.comma))
        begin, end = brackets
        return _where_valid(array, _joined(_literal(begin), inner, _literal(end)))


def _csv_cells(array: pa.Array, style: CsvStyle) -> pa.Array:
    """The cell of each value; nothing is null."""
    kind = array.type
    if pa.types.is_null(kind):
        return repeated("", len(array))
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return _filled(array.cast(pa.string()), "")
    if pa.types.is_nested(kind):
        texts = _where_valid(array, _Json(style.json).texts(array))
    else:
        texts = _texts(array)
    if texts is None:
        return strings_of([style.cell(plain(each)) for each in array.to_pylist()])
    texts = _filled(texts, "")
    if not _memory(texts).translate(None, _AS_IS):
        return texts
    pattern = _SPECIAL_IN_CSV + (f"|{_NOT_ASCII}" if style.escapes else "")
    special = pc.match_substring_regex(texts, pattern)
    chosen = texts.filter(special).to_pylist()
    if not chosen:
        return texts
    return pc.replace_with_mask(
        texts, special, strings_of(list(map(style.cell, chosen)))
    )


def _texts(array: pa.Array) -> pa.Array | None:
    """The values as text, as `plain` returns it; None for a type of another kind.

    They are valid UTF-8. Binary values, which are inside of others here, are in base64.
    """
    kind = array.type
    if pa.types.is_timestamp(kind):
        return _times(array)
    if pa.types.is_date(kind):
        return array.cast(pa.string())
    if pa.types.is_binary(kind):
        return _with_nulls([_base64(each) for each in array.to_pylist()])
    if not pa.types.is_string(kind):
        return None
    texts = array
    if _memory(texts).isascii():
        return texts
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return _with_nulls(
            [
                None if each is None else each.decode("utf-8", _AS_JAVA)
                for each in array.view(pa.binary()).to_pylist()
            ]
        )
    return texts


def _times(array: pa.TimestampArray) -> pa.Array:
    """RFC 3339 in UTC, with as many digits as `plain` writes."""
    whole_ms = numbers_of(array) % 1000 == 0
    moments = array.view(pa.timestamp("us"))
    texts = moments.cast(pa.timestamp("ms"), safe=False).cast(pa.string())
    if not whole_ms.all():
        texts = pc.if_else(mask_of(whole_ms), texts, moments.cast(pa.string()))
    return _joined(pc.replace_substring(texts, " ", "T"), _literal("Z"))


def _texts_and_base64(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The binary values that are UTF-8, and the base64 of the others."""
    texts = array.view(pa.string())
    if not _memory(texts).isascii():
        try:
            texts.validate(full=True)
        except pa.ArrowInvalid:
            return _one_by_one_in_base64(array)
    return texts, pa.nulls(len(array))


def _one_by_one_in_base64(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    texts: list[str | None] = []
    encoded: list[str | None] = []
    for each in array.to_pylist():
        text = code = None
        if each is not None:
            try:
                text = each.decode()
            except UnicodeDecodeError:
                code = _base64(each)
        texts.append(text)
        encoded.append(code)
    return _with_nulls(texts), _with_nulls(encoded)


def _base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode("ascii")


def _replaced_as_java(error: UnicodeError) -> tuple[str, int]:
    """Replace what is not UTF-8 as Java does: a lone surrogate is one character."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    data, at, end = error.object, error.start, error.end
    if data[at] == 0xED and data[at + 1 : at + 2] >= b"\xa0":
        is_whole = data[at + 2 : at + 3] and data[at + 2] >> 6 == 0b10
        end = at + (3 if is_whole else 2)
    return "\ufffd", end


codecs.register_error(_AS_JAVA, _replaced_as_java)


# --- arrays


@functools.cache
def _literal(text: str) -> pa.StringScalar:
    return strings_of([text])[0]


def _joined(*parts: Any, between: str = "") -> pa.Array:  # noqa: ANN401  # arrays and scalars
    """The texts of each row one after the other; null where one of them is."""
    return pc.binary_join_element_wise(*parts, _literal(between))


def _filled(array: pa.Array, text: str) -> pa.Array:
    return pc.fill_null(array, _literal(text)) if array.null_count else array


def _where_valid(array: pa.Array, texts: pa.Array) -> pa.Array:
    """The texts, with null where the array has null."""
    if not array.null_count:
        return texts
    return pc.if_else(array.is_valid(), texts, pa.nulls(len(texts), pa.string()))


def _with_nulls(texts: Sequence[str | None]) -> pa.Array:
    absent = np.array([each is None for each in texts], dtype=np.bool_)
    found = strings_of([each or "" for each in texts])
    return _where_valid(array_of(np.zeros(len(texts), np.int8), absent=absent), found)


def _offsets(array: pa.Array) -> NDArray[np.int32]:
    """Where the entries of each list begin, and where the last ones end."""
    offsets = np.frombuffer(array.buffers()[1] or b"", np.int32)
    found = offsets[array.offset : array.offset + len(array) + 1]
    return found if len(found) else np.zeros(1, np.int32)


def _memory(array: pa.Array) -> bytes:
    """The bytes of all texts, one after the other."""
    offsets = _offsets(array)
    data = array.buffers()[2]
    return b"" if data is None else memoryview(data)[offsets[0] : offsets[-1]].tobytes()


def _has_repeats(keys: pa.Array, offsets: NDArray[np.int32]) -> bool:
    """Whether a row has the same key twice. `offsets` begin at 0."""
    if len(keys) < 2:
        return False
    found = keys.dictionary_encode()
    codes = np.frombuffer(found.indices.buffers()[1], np.int32, len(keys))
    counts = np.diff(offsets)
    if (counts == counts[0]).all():  # messages of a topic mostly have the same names
        alike = codes.reshape(-1, counts[0])
        if (alike == alike[0]).all():
            return len(set(alike[0].tolist())) < len(alike[0])
    rows = np.repeat(np.arange(len(offsets) - 1), counts)
    marks = rows * len(found.dictionary) + codes
    return len(np.unique(marks)) < len(marks)
