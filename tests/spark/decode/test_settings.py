"""What is said of decoding: files are read once, and mistakes name the option."""

from __future__ import annotations

import pytest

from rmqcli.errors import ConfigError, UsageError
from rmqcli.spark.decode.settings import (
    Decoding,
    Names,
    missing_packages,
    read_settings,
)
from tests.spark.decode.shop import descriptor_set

NAMES = Names("--decode", "--schema", "--infer")


def read(text, *, schema_file=None, infer=None):
    return read_settings(text, schema_file=schema_file, infer=infer, names=NAMES)


def test_json_with_a_file_or_a_number(tmp_path):
    file = tmp_path / "schema.ddl"
    file.write_text("id BIGINT,\n name STRING\n")
    found = read("json", schema_file=str(file))
    assert found == Decoding("json", "`id` bigint, `name` string")
    assert read("json", infer=100) == Decoding("json", None, 100)


def test_a_descriptor_set_whose_path_has_colons(tmp_path):
    file = tmp_path / "a:b.bin"
    file.write_bytes(descriptor_set())
    found = read(f"protobuf:{file}:shop.Item")
    assert found.format == "protobuf"
    assert '"message": "shop.Item"' in found.known_schema


@pytest.mark.parametrize(
    ("text", "given", "words"),
    [
        ("xml", {}, "--decode: 'xml' is not one of json, avro, protobuf"),
        ("json", {}, "--decode=json needs a schema"),
        ("json:FILE", {}, "--decode: json takes no file here"),
        ("json", {"schema_file": "x", "infer": 1}, "--schema and --infer cannot be"),
        ("json", {"infer": 10_001}, "--infer: 10001 is not from 1 to 10000"),
        ("avro:x", {"infer": 1}, "--infer is for json"),
        ("protobuf:x:y", {"schema_file": "x"}, "--schema is for json"),
        ("avro", {}, "--decode: write avro:FILE"),
        ("protobuf:file", {}, "--decode: write protobuf:FILE:MESSAGE"),
        ("protobuf::Order", {}, "--decode: write protobuf:FILE:MESSAGE"),
    ],
)
def test_what_makes_no_sense_is_said(text, given, words):
    with pytest.raises(UsageError) as caught:
        read(text, **given)
    assert words in caught.value.message


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(ConfigError, match=r"--schema: cannot read .*: No such file"):
        read("json", schema_file=str(tmp_path / "absent"))
    with pytest.raises(ConfigError, match=r"--decode: cannot read .*: Is a directory"):
        read(f"protobuf:{tmp_path}:shop.Order")
    file = tmp_path / "file"
    file.write_bytes(b"id \xff")
    with pytest.raises(UsageError, match="--schema: not UTF-8"):
        read("json", schema_file=str(file))
    file.write_text("id")
    with pytest.raises(UsageError, match="--schema: not DDL: expected a type"):
        read("json", schema_file=str(file))
    with pytest.raises(UsageError, match="--decode: not a descriptor set"):
        read(f"protobuf:{file}:shop.Order")


def test_a_package_that_is_not_there_is_named():
    assert missing_packages(("json", "no_such_package", "no.such.package")) == (
        "no_such_package",
        "no.such.package",
    )
    assert missing_packages(("google.protobuf",)) == ()
