"""Settings for decoding: files are read once, and errors name the option."""

from __future__ import annotations

import json
import sys

import pytest

from rmqcli.decode.settings import (
    Decoding,
    Names,
    missing_packages,
    read_settings,
)
from rmqcli.errors import ConfigError, UsageError
from tests.decode.shop import descriptor_set

NAMES = Names("--decode", "--schema", "--infer")


def read(text, *, schema_file=None, infer=None):
    return read_settings(text, schema_file=schema_file, infer=infer, names=NAMES)


def test_json_takes_a_schema_file_or_a_number_of_messages(tmp_path):
    file = tmp_path / "schema.ddl"
    file.write_text("id BIGINT,\n name STRING\n")
    found = read("json", schema_file=str(file))
    assert found == Decoding("json", "`id` bigint, `name` string")
    assert read("json", infer=100) == Decoding("json", None, 100)


def test_the_path_of_a_descriptor_set_may_contain_colons(tmp_path):
    file = tmp_path / "a:b.bin"
    file.write_bytes(descriptor_set())
    found = read(f"protobuf:{file}:shop.Item")
    assert found.format == "protobuf"
    assert '"message": "shop.Item"' in found.known_schema


def test_a_schema_of_avro_is_read_from_its_file(tmp_path):
    pytest.importorskip("fastavro")
    file = tmp_path / "a:b.avsc"
    file.write_text(
        '{"type": "record", "name": "Order", "fields": [{"name": "n", "type": "int"}]}'
    )
    found = read(f"avro:{file}")
    assert (found.format, found.infer) == ("avro", None)
    assert json.loads(found.known_schema)["name"] == "Order"


@pytest.mark.parametrize(
    ("text", "given", "words"),
    [
        ("xml", {}, "--decode: 'xml' is not one of json, avro, protobuf"),
        ("json", {}, "--decode=json needs a schema"),
        ("json:FILE", {}, "--decode: 'json:FILE' names a file"),
        ("json", {"schema_file": "x", "infer": 1}, "--schema and --infer cannot be"),
        ("json", {"infer": 10_001}, "--infer: 10001 is not between 1 and 10000"),
        ("json", {"infer": 0}, "--infer: 0 is not between 1 and 10000"),
        ("avro:x", {"infer": 1}, "--infer is only for json"),
        ("protobuf:x:y", {"schema_file": "x"}, "--schema is only for json"),
        ("avro", {}, "--decode: 'avro' names no schema file"),
        ("protobuf:file", {}, "does not name both a file and a message"),
        ("protobuf::Order", {}, "does not name both a file and a message"),
    ],
)
def test_invalid_settings_are_refused(text, given, words):
    with pytest.raises(UsageError) as caught:
        read(text, **given)
    assert words in caught.value.message


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"--schema: cannot read .*: No such file"):
        read("json", schema_file=str(tmp_path / "absent"))
    with pytest.raises(ConfigError, match=r"--decode: cannot read .*: Is a directory"):
        read(f"protobuf:{tmp_path}:shop.Order")
    file = tmp_path / "file"
    file.write_bytes(b"id \xff")
    with pytest.raises(UsageError, match="--schema: not UTF-8"):
        read("json", schema_file=str(file))
    file.write_text("id")
    with pytest.raises(UsageError, match="--schema: not valid DDL: expected a type"):
        read("json", schema_file=str(file))
    with pytest.raises(UsageError, match="--decode: not a descriptor set"):
        read(f"protobuf:{file}:shop.Order")


@pytest.mark.parametrize("infer", [1, 10_000])
def test_a_schema_is_inferred_from_1_to_10000_messages(infer):
    assert read("json", infer=infer) == Decoding("json", None, infer)


@pytest.mark.slow
def test_a_schema_has_256_kib_and_its_file_16_mib_at_most(tmp_path):
    file = tmp_path / "schema.ddl"
    longest = "x" * ((256 << 10) - len("`` int"))
    file.write_text(f"{longest} int")
    assert read("json", schema_file=str(file)).schema == f"`{longest}` int"
    file.write_text(f"{longest}x int")
    with pytest.raises(UsageError, match=r"^--schema: the schema has 262145 bytes"):
        read("json", schema_file=str(file))
    file.write_text("x int" + " " * ((16 << 20) - 5))
    assert read("json", schema_file=str(file)).schema == "`x` int"
    file.write_text("x int" + " " * ((16 << 20) - 4))
    with pytest.raises(ConfigError, match="is larger than the limit of 16777216 bytes"):
        read("json", schema_file=str(file))


def test_a_format_whose_package_is_not_installed_says_how_to_install_it(monkeypatch):
    for name in ("fastavro", "google.protobuf"):
        monkeypatch.setitem(sys.modules, name, None)
    Decoding("json", None).check_packages()
    for kind, package, hint in (
        ("avro", "fastavro", "pip install 'rmqcli[avro]'"),
        ("protobuf", "google.protobuf", "install it for this Python"),
    ):
        with pytest.raises(ConfigError) as caught:
            Decoding(kind, None).check_packages()
        assert caught.value.message == (
            f"bodies cannot be decoded as {kind}: the package {package} is not"
            " installed"
        )
        assert caught.value.hint == hint


def test_a_missing_package_is_named():
    assert missing_packages(("json", "no_such_package", "no.such.package")) == (
        "no_such_package",
        "no.such.package",
    )
    assert missing_packages(("google.protobuf",)) == ()
