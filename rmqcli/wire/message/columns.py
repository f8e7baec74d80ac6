"""Decodes stored messages into Arrow record batches, ten times faster than one by one.

Many pull answers are decoded at once. numpy finds and reads the plain records (V1, IPv4
hosts, no inner batch, inner lengths that add up) and splits their properties. Records
of another form, damaged ones, and those that repeat a property name go through
`decode_messages` and return to their places, so that both decoders give the same rows.

Imports numpy and pyarrow (55 ms), so only the Spark side may import this module.

Source: the layout in `rmqcli.wire.message.layout`.
"""

from __future__ import annotations

import struct
from dataclasses import field, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from rmqcli.dataclass import dataclass
from rmqcli.errors import DecodeError
from rmqcli.wire.compression import inflate
from rmqcli.wire.ids import host_text
from rmqcli.wire.message.arrays import array_of, repeated, strings_of
from rmqcli.wire.message.decode import DecodeFailure, StoredMessage, decode_messages
from rmqcli.wire.message.layout import (
    FIXED_BYTES,
    FIXED_FIELDS,
    MAGIC_V1,
    RECORD_BYTES_MIN,
    Layout,
    find_layout,
    read_head,
)
from rmqcli.wire.message.system_flag import COMPRESSED, SPECIAL_LAYOUT

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

#: Largest sum of the bodies of one call, and of what their messages inflate to, each in
#: bytes: offsets in an Arrow batch have 31 bits.
BODIES_BYTES_MAX: Final = 1 << 30

#: Largest distance from 1970, in ms, that 64 bits of microseconds can hold.
_MS_MAX: Final = (1 << 63) // 1000 - 1

_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")

#: The columns that are made of properties, and the properties that have a column.
_NAMED_PROPERTIES: Final = {"msg_id": b"UNIQ_KEY", "tags": b"TAGS", "keys": b"KEYS"}
_OF_PROPERTIES: Final = frozenset((*_NAMED_PROPERTIES, "properties"))
_NUMPY_CODES: Final = {"I": ">u4", "i": ">i4", "q": ">i8", "8s": ">u8"}
#: The fields in front of a plain record's body; a host is read as one number.
FIXED: Final = np.dtype(
    [(name, _NUMPY_CODES[code]) for name, code in FIXED_FIELDS.items()]
)
#: With fewer bodies left a Python loop over sizes is faster than numpy's steps.
_LOCK_STEP_MIN: Final = 48
#: Bytes added behind the data, so that eight can be read from any position in it.
PAD_BYTES: Final = 16
_KEY_WORD_BYTES: Final = 8
#: n -> the mask of the first n bytes of a word, big endian.
_WORD_MASKS: Final = np.array(
    [(1 << 64) - (1 << 8 * (8 - count)) for count in range(9)], dtype=np.uint64
)
#: Rows with more entries than this are read one by one.
_ENTRIES_MAX: Final = 32
#: Odd 64-bit number that spreads the words of long names.
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class ColumnarResult:
    """`batch` holds a row for each readable message, in the order of the bodies.

    `failures` are the other records; `at` is a position in the body that it came from.
    """

    batch: pa.RecordBatch
    failures: list[DecodeFailure]


def message_schema(columns: Collection[str] | None = None) -> pa.Schema:
    """Return the schema of a batch. Exported files have it, so it never changes.

    With `columns`, it has only these, in the same order.
    """
    fields = [
        ("topic", pa.string()),
        ("broker_name", pa.string()),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("msg_id", pa.string()),
        ("tags", pa.string()),
        ("keys", pa.string()),
        ("born_timestamp", _TIMESTAMP),
        ("store_timestamp", _TIMESTAMP),
        ("born_host", pa.string()),
        ("store_host", pa.string()),
        ("reconsume_times", pa.int32()),
        ("flag", pa.int32()),
        ("sys_flag", pa.int32()),
        ("commit_log_offset", pa.int64()),
        ("body", pa.binary()),
        ("properties", pa.map_(pa.string(), pa.string())),
    ]
    return pa.schema(
        [field for field in fields if columns is None or field[0] in columns]
    )


def decode_columns(
    bodies: Sequence[bytes | bytearray | memoryview],
    *,
    topic: str,
    broker_name: str,
    columns: Collection[str] | None = None,
) -> ColumnarResult:
    """Return all messages of the bodies (one pull answer each) as one batch.

    With `columns`, of which at least one must exist, the batch has only these; rows and
    failures are the same. `topic` and `broker_name` fill their columns, whatever the
    records say. Message bodies are inflated; a message whose body cannot be inflated is
    a failure, like a record that cannot be read. A time that 64 bits of microseconds
    cannot hold is null.

    Never raises because of the content of the bodies. Raises ValueError when they sum
    to more than 1 GiB. Once the messages of one call have inflated to more than 1 GiB,
    further compressed messages are failures: the caller should pass fewer bodies.
    """
    total_bytes = sum(map(len, bodies))
    if total_bytes > BODIES_BYTES_MAX:
        raise ValueError(f"bodies of {total_bytes} bytes exceed {BODIES_BYTES_MAX}")
    schema = message_schema(columns)
    wanted = frozenset(schema.names)
    return _Decoder(bodies, topic, broker_name, schema, wanted).run()


@dataclass(eq=False)
class _Decoder:
    """One call of `decode_columns`."""

    bodies: Sequence[bytes | bytearray | memoryview]
    topic: str
    broker_name: str
    schema: pa.Schema
    wanted: frozenset[str]
    inflatable_bytes: int = BODIES_BYTES_MAX
    #: Messages that were read one by one: position in `Scan.data`, message, body.
    singles: list[tuple[int, StoredMessage, bytes]] = field(default_factory=list)
    failures: list[tuple[int, DecodeFailure]] = field(default_factory=list)

    def run(self) -> ColumnarResult:
        """Decode all bodies."""
        found = scan(self.bodies)
        plain: NDArray[np.bool_] | slice = self._read_special(found)
        if isinstance(plain, np.ndarray) and plain.all():
            plain = slice(None)  # a view: the usual case copies nothing
        starts = found.starts[plain]
        properties_at = found.properties_at[plain]
        ends = found.ends[plain]
        body_ends = found.body_ends[plain]
        fixed = found.fixed[plain]
        body, unreadable = self._bodies_column(found, starts, body_ends, fixed)
        keep = np.ones(len(starts), dtype=np.bool_)
        keep[unreadable] = False
        properties = None
        if self.wanted & _OF_PROPERTIES:
            properties = split_properties(found.data, properties_at, ends)
            for row in properties.repeated.tolist():
                if keep[row]:
                    self._read_record(found, int(starts[row]), int(ends[row]))
                    keep[row] = False
        batch = self._plain_batch(fixed, body, properties)
        if self.singles or not keep.all():
            batch = self._merge(batch, starts, keep)
        self.failures.sort(key=lambda pair: pair[0])
        return ColumnarResult(batch, [failure for _, failure in self.failures])

    def _read_special(self, found: Scan) -> NDArray[np.bool_]:
        """Decode records that are not plain; return a mask of those left to decode."""
        plain = found.plain.copy()
        places = [(int(at), True) for at in found.starts[~plain]]
        places += [(at, False) for at in found.stuck_at]
        taken_to = -1
        for at, has_size in sorted(places):
            if at < taken_to:
                continue
            number = int(np.searchsorted(found.body_starts, at, side="right")) - 1
            body_at = int(found.body_starts[number])
            body_end = int(found.body_starts[number + 1])
            if has_size:
                end = at + int.from_bytes(found.data[at : at + 4].tobytes(), "big")
                if _lengths_agree(found.data[at:end].tobytes()):
                    self._read_record(found, at, end)
                    continue
            # The sizes in the rest of this body are not reliable: decode_messages
            # finds its records.
            taken_to = body_end
            plain &= (found.starts < at) | (found.starts >= body_end)
            self._collect(
                decode_messages(self.bodies[number], start=at - body_at), body_at, 0
            )
        return plain

    def _read_record(self, found: Scan, at: int, end: int) -> None:
        number = int(np.searchsorted(found.body_starts, at, side="right")) - 1
        offset = at - int(found.body_starts[number])
        # Not from found.data: split_properties may have written a 0x02 into it.
        record = bytes(self.bodies[number][offset : offset + end - at])
        self._collect(decode_messages(record), at - offset, offset)

    def _collect(
        self, found: list[StoredMessage | DecodeFailure], body_at: int, offset: int
    ) -> None:
        """Add what was decoded from position `offset` on of the body at `body_at`."""
        for one in found:
            at = one.at + offset
            if isinstance(one, DecodeFailure):
                self.failures.append((body_at + at, replace(one, at=at)))
                continue
            body = self._inflate(one.raw_body, one.sys_flag)
            if isinstance(body, bytes):
                self.singles.append((body_at + at, one, body))
            else:
                failure = DecodeFailure(
                    at=at,
                    queue_id=one.queue_id,
                    queue_offset=one.queue_offset,
                    commit_log_offset=one.commit_log_offset,
                    error=body.message,
                    raw=one.buffer[one.at : one.at + one.store_bytes],
                )
                self.failures.append((body_at + at, failure))

    def _inflate(self, raw: bytes, sys_flag: int) -> bytes | DecodeError:
        if not sys_flag & COMPRESSED:
            return raw
        if self.inflatable_bytes <= 0:
            return DecodeError(
                f"bodies of one batch inflate to more than {BODIES_BYTES_MAX} bytes"
            )
        try:
            body = inflate(raw, sys_flag)
        except DecodeError as error:
            return error
        self.inflatable_bytes -= len(body)
        return body

    def _bodies_column(
        self,
        found: Scan,
        starts: Ints,
        body_ends: Ints,
        fixed: np.ndarray[tuple[int], np.dtype[np.void]],
    ) -> tuple[pa.Array | None, list[int]]:
        """Return the bodies, inflated, and the rows whose body cannot be inflated.

        If bodies are not wanted, they are inflated only to find these rows.
        """
        stored = None
        if "body" in self.wanted:
            stored = pieces(found.data, starts + FIXED_BYTES, body_ends)
        (compressed,) = np.nonzero(fixed["sys_flag"] & COMPRESSED)
        if not len(compressed):
            return stored, []
        inflated: list[bytes] = []
        unreadable: list[int] = []
        for row in compressed.tolist():
            raw = found.data[starts[row] + FIXED_BYTES : body_ends[row]].tobytes()
            body = self._inflate(raw, int(fixed["sys_flag"][row]))
            if isinstance(body, DecodeError):
                unreadable.append(row)
                self._fail_row(found, int(starts[row]), fixed[row], body)
                body = b""
            if stored is not None:
                inflated.append(body)
        if stored is None:
            return None, unreadable
        index = np.arange(len(starts))
        index[compressed] = len(starts) + np.arange(len(inflated))
        both = pa.concat_arrays([stored, pa.array(inflated, pa.binary())])
        return both.take(array_of(index)), unreadable

    def _fail_row(
        self, found: Scan, start: int, fixed: np.void, error: DecodeError
    ) -> None:
        number = int(np.searchsorted(found.body_starts, start, side="right")) - 1
        failure = DecodeFailure(
            at=start - int(found.body_starts[number]),
            queue_id=int(fixed["queue_id"]),
            queue_offset=int(fixed["queue_offset"]),
            commit_log_offset=int(fixed["commit_log_offset"]),
            error=error.message,
            raw=found.data[start : start + int(fixed["total_bytes"])].tobytes(),
        )
        self.failures.append((start, failure))

    def _plain_batch(
        self,
        fixed: np.ndarray[tuple[int], np.dtype[np.void]],
        body: pa.Array | None,
        properties: PropertyColumns | None,
    ) -> pa.RecordBatch:
        arrays = [
            self._plain_column(name, fixed, body, properties)
            for name in self.schema.names
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _plain_column(
        self,
        name: str,
        fixed: np.ndarray[tuple[int], np.dtype[np.void]],
        body: pa.Array | None,
        properties: PropertyColumns | None,
    ) -> pa.Array:
        if properties is not None and name in _OF_PROPERTIES:
            key = _NAMED_PROPERTIES.get(name)
            return properties.as_map() if key is None else properties.column(key)
        match name:
            case "topic":
                return repeated(self.topic, len(fixed))
            case "broker_name":
                return repeated(self.broker_name, len(fixed))
            case "born_timestamp" | "store_timestamp":
                return _timestamps(fixed[name].astype(np.int64))
            case "born_host" | "store_host":
                return _hosts(fixed[name].astype(np.uint64))
            case "body":
                return body
        kind = self.schema.field(name).type
        return array_of(
            fixed[name].astype(np.int64 if kind == pa.int64() else np.int32)
        )

    def _merge(
        self, batch: pa.RecordBatch, starts: Ints, keep: NDArray[np.bool_]
    ) -> pa.RecordBatch:
        """Return the kept rows and those read one by one, in the order of the bytes."""
        places = np.array([at for at, _, _ in self.singles], dtype=np.int64)
        (kept,) = np.nonzero(keep)
        index = np.concatenate([kept, len(starts) + np.arange(len(places))])
        order = np.argsort(np.concatenate([starts[kept], places]), kind="stable")
        both = pa.Table.from_batches([batch, self._singles_batch()])
        merged = both.combine_chunks().take(array_of(index[order])).combine_chunks()
        batches = merged.to_batches()
        return batches[0] if batches else batch.slice(0, 0)

    def _singles_batch(self) -> pa.RecordBatch:
        messages = [message for _, message, _ in self.singles]
        count = len(messages)
        columns: dict[str, pa.Array | list[object]] = {
            "topic": [self.topic] * count,
            "broker_name": [self.broker_name] * count,
            "body": [body for _, _, body in self.singles],
        }
        for name in ("born_timestamp", "store_timestamp"):
            times_ms = [getattr(message, f"{name}_ms") for message in messages]
            columns[name] = _timestamps(np.array(times_ms, dtype=np.int64))
        if "properties" in self.wanted:
            columns["properties"] = [list(one.properties.items()) for one in messages]
        arrays = [
            pa.array(
                columns[field.name]
                if field.name in columns
                else [getattr(message, field.name) for message in messages],
                field.type,
            )
            for field in self.schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _lengths_agree(record: bytes) -> bool:
    """Whether the inner lengths of a record add up to its total size."""
    head = read_head(record, 0)
    layout = find_layout(record, 0, head) if head else ""
    return isinstance(layout, Layout) and layout.end == len(record)


def _timestamps(times_ms: Ints) -> pa.Array:
    """Return ms as UTC timestamps; null where microseconds would not fit 64 bits."""
    beyond = (times_ms > _MS_MAX) | (times_ms < -_MS_MAX)
    if beyond.any():
        times_us = np.where(beyond, 0, times_ms) * 1000
        return array_of(times_us, absent=beyond).view(_TIMESTAMP)
    return array_of(times_ms * 1000).view(_TIMESTAMP)


def _hosts(raw: NDArray[np.uint64]) -> pa.Array:
    """Return hosts as text, each of `raw` being ip and port as one number.

    Many rows have few hosts, so each host is formatted once.
    """
    if len(raw) and (raw == raw[0]).all():
        return repeated(host_text(int(raw[0]).to_bytes(8, "big")), len(raw))
    unique, inverse = np.unique(raw, return_inverse=True)
    texts = [host_text(number.to_bytes(8, "big")) for number in unique.tolist()]
    return strings_of(texts).take(array_of(inverse))


# --- finding the records


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """The records found by their total sizes, in order.

    `data` is all bodies one after the other and `PAD_BYTES` zeros; all positions are
    positions in it. Body i is at [`body_starts[i]`, `body_starts[i + 1]`). All other
    arrays have one element for each record; `plain` says which records are plain, and
    only for those `body_ends` and `properties_at` are meaningful. `stuck_at` has the
    positions, at most one in each body, where a total size is impossible.
    """

    data: NDArray[np.uint8]
    body_starts: Ints
    starts: Ints
    ends: Ints
    fixed: np.ndarray[tuple[int], np.dtype[np.void]]
    plain: Bools
    body_ends: Ints
    properties_at: Ints
    stuck_at: list[int]


def scan(bodies: Sequence[bytes | bytearray | memoryview]) -> Scan:
    """Find the records of the bodies. Never raises because of their content."""
    data = np.frombuffer(bytearray().join([*bodies, bytes(PAD_BYTES)]), dtype=np.uint8)
    body_starts = np.zeros(len(bodies) + 1, dtype=np.int64)
    np.cumsum([len(body) for body in bodies], out=body_starts[1:])
    starts, stuck_at = _hop(data, body_starts)
    size = len(data)
    row_count = max(size - FIXED_BYTES + 1, 0)
    rows = np.ndarray((row_count,), f"V{FIXED_BYTES}", data, strides=(1,))
    fixed = rows[starts].view(FIXED)
    ends = starts + fixed["total_bytes"]
    body_ends = starts + FIXED_BYTES + fixed["body_bytes"]
    plain = (fixed["magic"] == MAGIC_V1) & ((fixed["sys_flag"] & SPECIAL_LAYOUT) == 0)
    plain &= body_ends + 3 <= ends
    # Where a length leads out of the record, use a position that can be read.
    body_ends[~plain] = 0
    properties_at = body_ends + 3 + data[body_ends]
    plain &= properties_at <= ends
    properties_at[~plain] = 2
    properties_bytes = data[properties_at - 2].astype(np.int64) << 8
    properties_bytes |= data[properties_at - 1]
    plain &= properties_at + properties_bytes == ends
    return Scan(
        data=data,
        body_starts=body_starts,
        starts=starts,
        ends=ends,
        fixed=fixed,
        plain=plain,
        body_ends=body_ends,
        properties_at=properties_at,
        stuck_at=stuck_at,
    )


def _hop(data: NDArray[np.uint8], body_starts: Ints) -> tuple[Ints, list[int]]:
    """Follow the total sizes; all bodies advance by one record in each numpy step."""
    sizes = np.ndarray((len(data) - 3,), ">u4", data, strides=(1,))
    at, body_ends = body_starts[:-1], body_starts[1:]
    found: list[Ints] = []
    stuck_at: list[int] = []
    while True:
        going = at < body_ends
        at, body_ends = at[going], body_ends[going]
        if len(at) < _LOCK_STEP_MIN:
            break
        total_bytes = sizes[at].astype(np.int64)
        following = at + total_bytes
        good = (total_bytes >= RECORD_BYTES_MIN) & (following <= body_ends)
        if not good.all():
            stuck_at += at[~good].tolist()
            at, following, body_ends = at[good], following[good], body_ends[good]
        found.append(at)
        at = following
    for start, end in zip(at.tolist(), body_ends.tolist(), strict=True):
        starts, stuck = _hop_one(data, start, end)
        found.append(np.array(starts, dtype=np.int64))
        if stuck is not None:
            stuck_at.append(stuck)
    starts_all = np.concatenate(found) if found else np.empty(0, dtype=np.int64)
    starts_all.sort()  # bodies are one after the other, so positions give the order
    return starts_all, stuck_at


def _hop_one(
    data: NDArray[np.uint8], start: int, end: int
) -> tuple[list[int], int | None]:
    unpack = struct.Struct(">I").unpack_from
    buffer = data.data
    starts: list[int] = []
    append = starts.append
    at = start
    while at < end:
        (total_bytes,) = unpack(buffer, at)
        following = at + total_bytes
        if total_bytes < RECORD_BYTES_MIN or following > end:
            return starts, at
        append(at)
        at = following
    return starts, None


# --- their properties


def pieces(values: NDArray[np.uint8], starts: Ints, ends: Ints) -> pa.Array:
    """Return the parts [start, end) of `values` as one binary array.

    The parts must be in order and not overlap: they become every other element of an
    array over the whole buffer, which Arrow then takes in one pass of C++.
    """
    count = len(starts)
    offsets = np.empty(2 * count, dtype=np.int32)
    offsets[0::2] = starts
    offsets[1::2] = ends
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(values)]
    both = pa.Array.from_buffers(pa.binary(), max(2 * count - 1, 0), buffers)
    return both.take(array_of(np.arange(0, 2 * count, 2, dtype=np.int32)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyColumns:
    """The entries of all rows; those of row i are [`offsets[i]`, `offsets[i + 1]`).

    `words` are the first eight bytes of the names. `repeated` are the rows that may
    have a name twice, which the caller must decode again one by one.
    """

    names: pa.Array
    values: pa.Array
    offsets: NDArray[np.int32]
    words: NDArray[np.uint64]
    name_bytes: Ints
    rows: Ints
    repeated: Ints

    def column(self, name: bytes) -> pa.Array:
        """Return one property, whose name has at most 8 bytes, as a string column."""
        word = np.uint64(int.from_bytes(name.ljust(_KEY_WORD_BYTES, b"\0"), "big"))
        (at,) = np.nonzero((self.words == word) & (self.name_bytes == len(name)))
        count = len(self.offsets) - 1
        if not len(at):
            return pa.nulls(count, pa.string())
        index = np.zeros(count, dtype=np.int64)
        absent = np.ones(count, dtype=np.bool_)
        index[self.rows[at]] = at
        absent[self.rows[at]] = False
        return self.values.take(array_of(index, absent=absent))

    def as_map(self) -> pa.Array:
        """Return all properties as map<string, string>."""
        return pa.MapArray.from_arrays(array_of(self.offsets), self.names, self.values)


def split_properties(
    data: NDArray[np.uint8], starts: Ints, ends: Ints
) -> PropertyColumns:
    """Split the properties at each [start, end) of `data`, which become one row each.

    This writes to `data`: where the last 0x02 is missing (4.9.1 to 5.1.4), the byte at
    `end` becomes 0x02. It belongs to the next record's total size, or to the padding.
    """
    lacking = (ends > starts) & (data[ends - 1] != 2)
    data[ends[lacking]] = 2
    texts = pieces(data, starts, ends + lacking)
    buffers = texts.buffers()
    offsets = np.frombuffer(buffers[1], dtype=np.int32, count=len(texts) + 1)
    text = np.frombuffer(buffers[2] or b"", dtype=np.uint8, count=int(offsets[-1]))
    padded = np.concatenate([text, np.zeros(_KEY_WORD_BYTES, dtype=np.uint8)])
    (entry_ends,) = np.nonzero(text == 2)
    entry_starts = np.empty_like(entry_ends)
    entry_starts[:1] = 0
    entry_starts[1:] = entry_ends[:-1] + 1
    name_ends, valid = _find_names(text, entry_starts, entry_ends)
    row_offsets = np.searchsorted(entry_ends, offsets)
    if not valid.all():
        kept = np.zeros(len(valid) + 1, dtype=np.int64)
        np.cumsum(valid, out=kept[1:])
        row_offsets = kept[row_offsets]
        entry_starts, entry_ends = entry_starts[valid], entry_ends[valid]
        name_ends = name_ends[valid]
    name_bytes = name_ends - entry_starts
    words = _words(padded, entry_starts)
    masked = words & _WORD_MASKS[np.minimum(name_bytes, _KEY_WORD_BYTES)]
    rows = np.repeat(np.arange(len(starts)), np.diff(row_offsets))
    names, values = _name_value(text, entry_starts, name_ends, entry_ends)
    return PropertyColumns(
        names=names,
        values=values,
        offsets=row_offsets.astype(np.int32),
        words=masked,
        name_bytes=name_bytes,
        rows=rows,
        repeated=_rows_with_repeats(padded, masked, name_ends, name_bytes, rows),
    )


def _find_names(
    text: NDArray[np.uint8], starts: Ints, ends: Ints
) -> tuple[Ints, Bools]:
    """Return where each entry's first 0x01 is, and which have a name and a value."""
    (marks,) = np.nonzero(text == 1)
    if len(marks) == len(ends):
        valid = (marks > starts) & (marks + 1 < ends)
        if valid.all():  # nearly always: each entry has exactly one
            return marks, valid
    marks = np.append(marks, len(text))
    name_ends = marks[np.searchsorted(marks, starts)]
    return name_ends, (name_ends > starts) & (name_ends + 1 < ends)


def _words(padded: NDArray[np.uint8], at: Ints) -> NDArray[np.uint64]:
    """Return the eight bytes from each position on, as big-endian numbers."""
    view = np.ndarray((len(padded) - 7,), ">u8", padded, strides=(1,))
    return view[at].astype(np.uint64)


def _name_value(
    text: NDArray[np.uint8], starts: Ints, name_ends: Ints, ends: Ints
) -> tuple[pa.Array, pa.Array]:
    count = len(starts)
    offsets = np.empty(4 * count, dtype=np.int32)
    offsets[0::4] = starts
    offsets[1::4] = name_ends
    offsets[2::4] = name_ends
    offsets[2::4] += 1
    offsets[3::4] = ends
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    is_utf8 = _is_utf8(text)
    kind = pa.string() if is_utf8 else pa.binary()
    parts = pa.Array.from_buffers(kind, max(4 * count - 1, 0), buffers)
    names = parts.take(array_of(np.arange(0, 4 * count, 4, dtype=np.int32)))
    values = parts.take(array_of(np.arange(2, 4 * count, 4, dtype=np.int32)))
    if is_utf8:
        return names, values
    return _replaced(names), _replaced(values)


def _is_utf8(text: NDArray[np.uint8]) -> bool:
    """Whether all of it is UTF-8. Then each part is too: separators are ASCII."""
    offsets = np.array([0, len(text)], dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    try:
        pa.Array.from_buffers(pa.string(), 1, buffers).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _replaced(array: pa.Array) -> pa.Array:
    texts = [raw.decode("utf-8", "replace") for raw in array.to_pylist()]
    return pa.array(texts, pa.string())


def _rows_with_repeats(
    padded: NDArray[np.uint8],
    words: NDArray[np.uint64],
    name_ends: Ints,
    name_bytes: Ints,
    rows: Ints,
) -> Ints:
    """Return the rows in which two names look equal: none is missed, few are wrong.

    Names are compared by length and by their first and last eight bytes: each with the
    next, the next but one and so on of its row, which for a dozen entries is faster
    than sorting.
    """
    if not len(rows):
        return np.empty(0, dtype=np.int64)
    long_names = name_bytes > _KEY_WORD_BYTES
    marks = words + name_bytes.astype(np.uint64) * _MIX
    if long_names.any():
        last = _words(padded, np.maximum(name_ends - _KEY_WORD_BYTES, 0))
        marks = np.where(long_names, marks ^ (last * _MIX), marks)
    found: list[Ints] = []
    for distance in range(1, len(rows)):
        same_row = rows[distance:] == rows[:-distance]
        if not same_row.any():
            break
        same = same_row & (marks[distance:] == marks[:-distance])
        if same.any():
            found.append(rows[distance:][same])
        if distance == _ENTRIES_MAX:
            found.append(rows[distance:][same_row])
            break
    return np.unique(np.concatenate(found)) if found else np.empty(0, dtype=np.int64)
