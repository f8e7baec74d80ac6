"""The warnings about skipped messages that a session finds in the log of Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from rmqcli.spark.shown_errors import LoggedWarnings
from rmqcli.spark.sql.session import SqlSession
from rmqcli.spark.tables.session import SparkTable

SPARK: Any = None
#: One line of Spark's own, of more bytes than characters.
NOISE = ("é" * 500).encode() + b"\n"


def test_warnings_at_the_end_of_a_large_log_are_found(tmp_path):
    log = tmp_path / "spark.log"
    log.write_bytes(NOISE * 34_000 + b"rocketmq: late\n")
    table: Any = SimpleNamespace(name="t")
    errors: Any = None
    assert SparkTable(SPARK, table, errors, LoggedWarnings(str(log))).warnings() == [
        "late"
    ]
    assert SqlSession(SPARK, str(log)).warnings() == ["late"]


def test_each_warning_is_returned_once_when_its_line_is_whole(tmp_path):
    log = tmp_path / "spark.log"
    log.write_bytes(b"rocketmq: a\nrocketmq: b\nrocketmq: a\nrocketmq: c\xff")
    session = SqlSession(SPARK, str(log))
    assert session.warnings() == ["a", "b"]
    assert session.warnings() == []
    with log.open("ab") as file:
        file.write(b"d\nrocketmq: b\n")
    assert session.warnings() == ["c�d"]
