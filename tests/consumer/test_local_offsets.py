"""The offsets file of broadcasting members has Java's format."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rmqcli.consumer.local_offsets import (
    LocalOffsetFile,
    format_local_offsets,
    local_offset_path,
    parse_local_offsets,
)
from rmqcli.errors import ConfigError
from rmqcli.model import MessageQueue

#: A file as fastjson writes it: the keys of the table are objects.
JAVA = (
    '{\n\t"offsetTable":{{\n\t\t\t"brokerName":"broker-a",\n\t\t\t"queueId":3,\n'
    '\t\t\t"topic":"TopicTest"\n\t\t}:13,{\n\t\t\t"brokerName":"broker-b",\n'
    '\t\t\t"queueId":0,\n\t\t\t"topic":"TopicTest"\n\t\t}:7\n\t}\n}'
)
A3, B0 = (
    MessageQueue("TopicTest", "broker-a", 3),
    MessageQueue("TopicTest", "broker-b", 0),
)


@pytest.fixture
def file(tmp_path):
    return LocalOffsetFile(tmp_path / "deep" / "offsets.json")


def test_the_file_is_read_and_written_as_java_does():
    assert parse_local_offsets(JAVA) == {A3: 13, B0: 7}
    assert format_local_offsets({B0: 7, A3: 13}) == JAVA
    assert parse_local_offsets(format_local_offsets({})) == {}


def test_the_file_is_where_java_keeps_it():
    path = local_offset_path(Path("/home/me"), "10.0.0.1@DEFAULT", "billing")
    assert str(path) == (
        "/home/me/.rocketmq_offsets/10.0.0.1@DEFAULT/billing/offsets.json"
    )


@pytest.mark.parametrize("group", ["../up", "..", "a/b", "nul\0", "."])
def test_no_name_of_a_group_leads_out_of_the_folder(group):
    path = local_offset_path(Path("/h"), "c", group)
    assert path.parent.parent == Path("/h/.rocketmq_offsets/c")
    assert ".." not in path.parts
    assert "\0" not in str(path)


def test_without_a_file_there_are_no_offsets(file):
    assert file.read() == {}


def test_offsets_are_merged_into_those_of_the_file(file):
    file.write({A3: 1, B0: 2})
    file.write({A3: 5})
    assert file.read() == {A3: 5, B0: 2}


@pytest.mark.parametrize(
    "text", [b"", b"{", b"\0\0\0", b'{"offsetTable":3}', b"\xff\xfe"]
)
def test_a_damaged_file_is_read_from_its_backup(file, text):
    file.write({A3: 1})
    file.write({A3: 2})
    file.path.write_bytes(text)
    assert file.read() == {A3: 1}


def test_a_damaged_backup_is_an_error(file):
    file.path.parent.mkdir()
    file.path.write_text("{")
    file.path.with_name("offsets.json.bak").write_text("{")
    with pytest.raises(ConfigError, match="cannot be read"):
        file.read()
    file.write({A3: 9})
    assert file.read() == {A3: 9}


@pytest.mark.parametrize(
    ("client", "group"), [("", "g"), ("c", ""), ("c" * 256, "g"), ("c", "é" * 60)]
)
def test_a_name_that_no_folder_can_have_is_an_error_before_anything_is_read(
    client, group
):
    with pytest.raises(ConfigError, match="cannot create a path"):
        local_offset_path(Path("/h"), client, group)


def test_a_planted_link_is_not_written_through(file, tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("precious")
    file.path.parent.mkdir()
    for name in ("offsets.json", "offsets.json.tmp", "offsets.json.bak"):
        (file.path.parent / name).symlink_to(precious)
    file.write({A3: 1})
    file.write({A3: 2})
    assert precious.read_text() == "precious"
    assert file.read() == {A3: 2}


@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_a_path_that_is_not_a_file_is_an_error_at_once(file, kind):
    file.path.parent.mkdir()
    os.mkfifo(file.path) if kind == "pipe" else file.path.mkdir()
    with pytest.raises(ConfigError, match="cannot be read"):
        file.read()


def test_nothing_is_left_beside_the_file(file):
    file.write({A3: 1})
    file.write({A3: 2})
    names = {each.name for each in file.path.parent.iterdir()}
    assert names == {"offsets.json", "offsets.json.bak"}


def test_names_outside_ascii_are_written_as_they_are():
    """fastjson does the same, and Java reads the file as UTF-8."""
    offsets = {MessageQueue("größe", "博客", 0): 5}
    text = format_local_offsets(offsets)
    assert text == (
        '{\n\t"offsetTable":{{\n\t\t\t"brokerName":"博客",\n\t\t\t"queueId":0,\n'
        '\t\t\t"topic":"größe"\n\t\t}:5\n\t}\n}'
    )
    assert parse_local_offsets(text) == offsets
