"""Names from a server become file names that stay inside the directory."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqcli.errors import ConfigError
from rmqcli.spark.export import layout
from rmqcli.spark.export.plan import PartSpec


@pytest.mark.parametrize(
    ("name", "encoded"),
    [
        ("orders", "orders"),
        ("%RETRY%g-1", "%25RETRY%25g-1"),
        ("../../x", "%2E%2E%2F%2E%2E%2Fx"),
        ("a|b.c", "a%7Cb%2Ec"),
        ("\x1b[2J\0", "%1B%5B2J%00"),
        ("日", "%E6%97%A5"),
    ],
)
def test_name_is_encoded(name, encoded):
    assert layout.encode_name(name) == encoded


@given(st.text(max_size=300))
def test_encoded_name_is_one_short_component(name):
    encoded = layout.encode_name(name)
    assert re.fullmatch(r"[A-Za-z0-9_%~-]*", encoded)
    assert len(encoded) <= 100


@given(st.text(max_size=40), st.text(max_size=40))
def test_encoded_names_differ_when_names_do(one, other):
    assert (layout.encode_name(one) == layout.encode_name(other)) == (one == other)


def test_file_name_carries_both_ends():
    part = PartSpec(0, "broker-a", 3, 500_000, 1_000_000)
    name = layout.file_name("orders", part, start=500_000, end=1_000_000)
    assert name == (
        "orders.broker-a.q3.00000000000000500000-00000000000001000000.parquet"
    )


@pytest.mark.parametrize(
    ("hours", "with_hour", "folder"),
    [
        (0, False, "dt=1970-01-01"),
        (488_888, True, "dt=2025-10-09/hour=08"),
        (-1, True, "dt=1969-12-31/hour=23"),
        (-(2**63) // 3_600_000_000, False, "dt=unknown"),
    ],
)
def test_time_folder_is_utc(hours, with_hour, folder):
    assert layout.time_folder(hours, with_hour=with_hour) == folder


def test_run_id_sorts_by_time_and_is_recognised():
    run_id = layout.new_run_id(epoch_ms=1_760_000_000_999, entropy=b"\x00\xc0\xff\xee")
    assert run_id == "20251009T085320Z-00c0ffee"
    assert layout.is_run_id(run_id)


@pytest.mark.parametrize("name", ["..", "", "x/../y", "20251009T085320Z-00c0ffee/.."])
def test_a_path_for_an_invalid_run_id_is_refused(name):
    with pytest.raises(ConfigError):
        layout.ExportLayout("/d").run(name)
