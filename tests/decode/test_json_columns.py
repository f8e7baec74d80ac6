"""JSON bodies become columns, or are kept unchanged in `_corrupt_body`."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.decode.decoding import decode, decoder_of, is_corrupt, values
from tests.kit.doses import doses
from tests.kit.rows import each_row

DDL = (
    "id bigint, small tinyint, d double, f float, n decimal(6,2), s string, b boolean,"
    " bin binary, dt date, ts timestamp, tn timestamp_ntz,"
    " a array<struct<x: int, y: string>>, m map<string, array<double>>,"
    " o struct<z: smallint>"
)
DECODER = decoder_of(DDL)


@each_row(
    ("text", "name", "value"),
    [
        ('{"id": -9223372036854775808}', "id", -(1 << 63)),
        ('{"id": 1, "id": 2}', "id", 2),  # the last value counts, as in json.loads
        ('{"small": -128}', "small", -128),
        ('{"d": 1}', "d", 1.0),
        ('{"d": 9007199254740993}', "d", 9007199254740992.0),
        ('{"f": 0.1}', "f", 0.10000000149011612),
        ('{"f": 3.4028234663852886e38}', "f", 3.4028234663852886e38),
        ('{"f": -3.4028234663852886e38}', "f", -3.4028234663852886e38),
        ('{"n": 1.50}', "n", Decimal("1.50")),
        ('{"n": 1e3}', "n", Decimal("1000.00")),
        ('{"n": "-12.3"}', "n", Decimal("-12.30")),
        ('{"s": "größer\\u0000"}', "s", "größer\0"),
        ('{"s": 5}', "s", "5"),
        ('{"s": {"a": [1.5, null, "ü"]}}', "s", '{"a":[1.5,null,"ü"]}'),
        ('{"b": false}', "b", False),
        ('{"bin": "AAE="}', "bin", b"\0\1"),
        ('{"dt": "2024-02-29"}', "dt", date(2024, 2, 29)),
        (
            '{"ts": "2024-01-01T00:00:00.1234567+02:00"}',
            "ts",
            datetime(2023, 12, 31, 22, 0, 0, 123456, tzinfo=UTC),
        ),
        ('{"ts": "2024-01-01 10:00"}', "ts", datetime(2024, 1, 1, 10, tzinfo=UTC)),
        (
            '{"tn": "2024-01-01T10:00:01"}',
            "tn",
            datetime(2024, 1, 1, 10, 0, 1),  # noqa: DTZ001  # it has no zone
        ),
        ('{"a": []}', "a", []),
        ('{"a": [null, {}]}', "a", [None, {"x": None, "y": None}]),
        ('{"a": [{"x": 1, "w": 2}]}', "a", [{"x": 1, "y": None}]),
        ('{"m": {"k": [1, null]}}', "m", [("k", [1.0, None])]),
        ('{"m": {}}', "m", []),
        ('{"o": {"z": 7}}', "o", {"z": 7}),
        ('{"o": null}', "o", None),
        ("{}", "id", None),
        ('{"extra": [[[1]]]}', "id", None),
    ],
)
def test_a_value_that_fits_its_type_is_decoded(text, name, value):
    [row] = values(DECODER, text.encode())
    assert row[name] == value
    assert all(other is None for key, other in row.items() if key != name)


@pytest.mark.parametrize("ddl", ["s string", "s string, n decimal(6,2), d double"])
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("12345678901234567.89", "12345678901234567.89"),
        ("-1.10", "-1.10"),
        ("1e400", "1E+400"),
        ('{"a": [0.12345678901234567890, {"ü": 2.50}], "b": null}',
         '{"a":[0.12345678901234567890,{"ü":2.50}],"b":null}'),
        ("[true, 18446744073709551616]", "[true,18446744073709551616]"),
    ],
)  # fmt: skip
def test_a_number_that_becomes_a_text_keeps_all_of_its_digits(ddl, text, found):
    """As a double, an amount or an ID of many digits would be another one."""
    [row] = values(decoder_of(ddl), f'{{"s": {text}, "d": 0.1}}'.encode())
    assert row["s"] == found
    assert row.get("d", 0.1) == 0.1


@each_row(
    "body",
    [
        b"", b" ", b"null", b"[]", b"[{}]", b"5", b'"x"', b"{", b"{} {}", b"{'id': 1}",
        b'{"id": 1.0}', b'{"id": "1"}', b'{"id": true}', b'{"id": [1]}',
        b'{"id": 9223372036854775808}', b'{"id": ' + b"9" * 5_000 + b"}",
        b'{"small": 128}', b'{"small": -129}',
        b'{"d": "1"}', b'{"d": true}', b'{"d": NaN}', b'{"d": -Infinity}',
        b'{"d": 1e400}', b'{"d": ' + b"1" * 400 + b"}", b'{"f": 1e39}',
        b'{"f": 3.402823466385289e38}', b'{"f": -3.402823466385289e38}',
        b'{"n": 1.234}', b'{"n": 12345}', b'{"n": "abc"}', b'{"n": "NaN"}',
        b'{"n": 1e99999999999999999999}', b'{"n": true}',
        b'{"s": "\\ud800"}', b'{"s": "\x01"}', b'{"s": "\xff"}', b'{"\xff": 1}',
        b'{"s": {"a": "\\ud800"}}',
        b'{"b": 1}', b'{"bin": "?"}', b'{"bin": 5}', b'{"bin": "\xc3\xbc==" }',
        b'{"dt": "2023-02-29"}', b'{"dt": "2023-2-1"}', b'{"dt": 5}',
        b'{"ts": 1700000000}', b'{"ts": "yesterday"}', b'{"ts": "2024-01-01"}',
        b'{"tn": "2024-01-01T00:00:00Z"}',
        b'{"a": {}}', b'{"a": [1]}', b'{"a": [{"x": "1"}]}',
        b'{"m": []}', b'{"m": {"k": 1}}', b'{"m": {"k": ["1"]}}',
        b'{"m": {"\\ud800": []}}', b'{"o": 1}', b'{"o": {"z": 32768}}',
        b"\xef\xbb\xbf{}", '{"id": 1}'.encode("utf-16"), b"\xff\xfe{}",
        b"[" * 100_000, b'{"x": ' + b"[" * 100_000, b'{"a": ' * 100_000,
    ],
)  # fmt: skip
def test_a_body_that_does_not_fit_is_kept_in_corrupt_body(body):
    assert is_corrupt(DECODER, body)


def test_a_corrupt_body_does_not_affect_other_rows():
    good = b'{"id": 1, "a": [{"x": 1}], "m": {"k": [1.5]}, "s": "x"}'
    bad = [b'{"a": [{"x": 1}, {"x": "y"}]}', b"\xff", b'{"m": {"k": [2, "z"]}}']
    found = decode(DECODER, good, bad[0], good, bad[1], good, bad[2], good)
    assert found[0] == found[2] == found[4] == found[6]
    assert found[0][0]["m"] == [("k", [1.5])]
    assert [found[at] for at in (1, 3, 5)] == [(None, body) for body in bad]


KINDS = [
    '{"b": true}', '{"b": 1}', '{"id": 1}', '{"id": "1"}', '{"small": 1}',
    '{"small": 1.5}', '{"d": 1.5}', '{"d": "x"}', '{"f": 1}', '{"f": null}',
    '{"n": 1.5}', '{"n": []}', '{"s": "x"}', '{"s": 5}', '{"bin": "AAE="}',
    '{"bin": {}}', '{"dt": "2024-01-01"}', '{"dt": 1}', '{"ts": "2024-01-01T00:00"}',
    '{"ts": 1}', '{"tn": "2024-01-01T00:00"}', '{"tn": 1}', '{"a": []}', '{"a": 1}',
    '{"m": {}}', '{"m": 1}', '{"o": {}}', '{"o": 1}',
]  # fmt: skip


def test_a_body_decodes_the_same_alone_and_among_others():
    bodies = [text.encode() for text in KINDS]
    alone = [row for body in bodies for row in decode(DECODER, body)]
    assert decode(DECODER, *bodies, *reversed(bodies)) == [*alone, *reversed(alone)]
    assert sum(corrupt is not None for _, corrupt in alone) == 12


def test_batches_without_a_good_body_are_decoded():
    assert decode(DECODER) == []
    assert decode(DECODER, b"\xff") == [(None, b"\xff")]


def test_large_bodies_are_decoded_alone_and_in_order():
    large = [json.dumps({"id": n, "s": "x" * (4 << 20)}).encode() for n in range(3)]
    small = [json.dumps({"id": n + 10}).encode() for n in range(3)]
    order = [small[0], large[0], large[1], small[1], small[2], large[2]]
    batch = pa.record_batch({"body": pa.array(order, pa.binary())})
    pieces = [piece for piece, _ in DECODER.decode(batch)]
    assert [piece.num_rows for piece in pieces] == [1, 1, 1, 2, 1]
    ids = [row["value"]["id"] for piece in pieces for row in piece.to_pylist()]
    assert ids == [10, 0, 1, 11, 12, 2]


def test_bodies_of_four_mebibytes_together_are_decoded_at_once():
    decoder = decoder_of("id int")

    def rows_of_pieces(last_bytes):
        bodies = [b"x" * (1 << 20)] * 3 + [b"x" * last_bytes, b"", b"{}"]
        batch = pa.record_batch({"body": pa.array(bodies, pa.binary())})
        return [piece.num_rows for piece, _ in decoder.decode(batch)]

    assert rows_of_pieces((1 << 20) - 3) == [6]  # an empty body counts as a byte
    assert rows_of_pieces((1 << 20) - 2) == [5, 1]
    assert rows_of_pieces((1 << 20) - 1) == [5, 1]
    assert rows_of_pieces(1 << 20) == [5, 1]
    assert rows_of_pieces((1 << 20) + 1) == [3, 3]


def test_a_body_that_would_need_a_gigabyte_is_corrupt():
    wide = decoder_of(
        f"a array<struct<{', '.join(f'f{n}: bigint' for n in range(100))}>>, id int"
    )
    bomb = b'{"a": [' + b"{}," * 400_000 + b"{}]}"
    found = decode(wide, b'{"id": 1}', bomb, b'{"id": 2}')
    assert [value and value["id"] for value, _ in found] == [1, None, 2]
    assert found[1][1] == bomb


FLOAT = st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
OBJECTS = st.fixed_dictionaries(
    {},
    optional={
        "id": st.none() | st.integers(-(1 << 63), (1 << 63) - 1),
        "d": st.none() | FLOAT,
        "s": st.none() | TEXT,
        "b": st.none() | st.booleans(),
        "a": st.none()
        | st.lists(
            st.none()
            | st.fixed_dictionaries(
                {}, optional={"x": st.integers(-(1 << 31), (1 << 31) - 1), "y": TEXT}
            ),
            max_size=4,
        ),
        "m": st.none() | st.dictionaries(TEXT, st.none() | st.lists(FLOAT, max_size=3)),
        "o": st.fixed_dictionaries({}, optional={"z": st.integers(-100, 100)}),
        "unknown": TEXT | st.integers() | st.lists(TEXT, max_size=2),
    },
)


@settings(max_examples=doses(4))
@given(st.lists(OBJECTS, max_size=6))
def test_fields_equal_those_of_json_loads(objects):
    bodies = [json.dumps(each, ensure_ascii=False).encode() for each in objects]
    for row, body in zip(values(DECODER, *bodies), bodies, strict=True):
        loaded = json.loads(body)
        for name in ("id", "d", "s", "b"):
            assert row[name] == loaded.get(name)
        pairs = None if row["m"] is None else dict(row["m"])
        assert pairs == loaded.get("m")
        items = loaded.get("a")
        assert row["a"] == (
            None
            if items is None
            else [
                each if each is None else {"x": None, "y": None, **each}
                for each in items
            ]
        )
        inner = loaded.get("o")
        assert row["o"] == (None if inner is None else {"z": inner.get("z")})


@settings(max_examples=doses(4))
@given(st.lists(st.binary(max_size=12) | st.text(max_size=12).map(str.encode)))
def test_arbitrary_bytes_never_raise(bodies):
    assert len(decode(DECODER, *bodies)) == len(bodies)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | FLOAT | TEXT,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3)
    ),
    max_leaves=8,
)
NAMES = ("id", "small", "d", "f", "n", "s", "b", "bin", "dt", "ts", "tn", "a", "m", "o")


@pytest.mark.slow
@settings(max_examples=doses(4))
@given(st.lists(st.dictionaries(st.sampled_from(NAMES), JSON, max_size=3)))
def test_a_row_does_not_depend_on_its_neighbours(objects):
    bodies = [json.dumps(each).encode() for each in objects]
    alone = [row for body in bodies for row in decode(DECODER, body)]
    assert decode(DECODER, *bodies) == alone
