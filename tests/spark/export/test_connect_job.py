"""The results of Spark Connect's tasks are encoded as JSON and decoded safely."""

from __future__ import annotations

import pytest

from rmqcli.errors import ConnectError, RmqError
from rmqcli.spark.export.connect_job import from_json, to_json
from rmqcli.spark.export.executors import ExecutorReport
from rmqcli.spark.export.manifest import FileRow, PartResult
from rmqcli.spark.export.part import PartFailure

RESULT = PartResult(
    index=3,
    broker_name="broker-a",
    queue_id=1,
    start=0,
    end=5,
    rows=2,
    filtered=1,
    undecodable=0,
    missing=((1, 3),),
    files=(
        FileRow(
            path="größe.parquet",
            start=0,
            end=5,
            rows=2,
            first_offset=0,
            last_offset=4,
            file_bytes=10,
            first_store_timestamp_ms=None,
            last_store_timestamp_ms=7,
            body_crc32=9,
        ),
    ),
)


def test_results_and_reports_round_trip():
    assert from_json(to_json([RESULT, RESULT])) == [RESULT, RESULT]
    report = ExecutorReport("h", "3.11", "/python", ("lz4",), sees_folder=False)
    assert from_json(to_json(report)) == report


def test_the_error_of_a_part_keeps_its_class_texts_and_exit_code():
    error = ConnectError("no broker", address="h:1", hint="wait")
    failure = from_json(to_json(PartFailure(4, error, may_work_elsewhere=True)))
    assert isinstance(failure, PartFailure)
    assert (failure.index, failure.may_work_elsewhere) == (4, True)
    found = failure.error
    assert isinstance(found, ConnectError)
    assert (str(found), found.message, found.hint) == ("no broker", "no broker", "wait")
    assert (found.address, found.exit_code, found.retriable) == ("h:1", 5, True)


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[1]", '{"part": "{}"}', '{"report": {"host": "h"}}',
     '{"failure": 1, "elsewhere": true, "error": "X", "values": {}}'],
)  # fmt: skip
def test_invalid_results_are_refused_and_never_executed(text):
    with pytest.raises(RmqError, match="returned an invalid task result"):
        from_json(text)


def test_an_unknown_error_class_becomes_rmq_error():
    text = to_json(PartFailure(1, RmqError("x"))).replace("RmqError", "ExitCode")
    failure = from_json(text)
    assert isinstance(failure, PartFailure)
    assert type(failure.error) is RmqError
