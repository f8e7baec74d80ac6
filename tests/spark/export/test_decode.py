"""An export that decodes bodies: columns, counts, and one schema in a folder."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from rmqcli.cli.export.report import summarise
from rmqcli.decode.protobuf_body import canonical
from rmqcli.errors import ConfigError, RefusedError, UsageError
from rmqcli.spark.export.compact import FileLimits, compact
from rmqcli.spark.export.disk import Disk
from rmqcli.spark.export.executors import PACKAGES, look, packages_of
from rmqcli.spark.export.plan import ExportRequest
from rmqcli.wire.message.encode import MessageFields, encode_message
from tests.decode.shop import descriptor_set, message_class
from tests.spark.export.inline import InlineRunner, SilentReport, export_of
from tests.spark.export.sources import MadeCluster, MadeSource

MESSAGE_COLUMNS = [
    "topic", "broker_name", "queue_id", "queue_offset", "msg_id", "tags", "keys",
    "born_timestamp", "store_timestamp", "born_host", "store_host", "reconsume_times",
    "flag", "sys_flag", "commit_log_offset", "body", "properties",
]  # fmt: skip
GIVEN = {
    "decode": "json",
    "decode_schema": "`id` bigint, `tags` array<string>, `o` struct<`x`:double>",
}
INFERRED = {"decode": "json", "decode_infer": 20}


@dataclass(frozen=True)
class JsonSource(MadeSource):
    """A JSON object at each offset; at offsets from `text_from` on `id` is text."""

    text_from: int = 1 << 40

    def _records(self, queue, start, end):
        for offset in range(start, end):
            yield encode_message(
                MessageFields(
                    topic=queue.topic,
                    body=self.body(queue, offset),
                    queue_id=queue.queue_id,
                    queue_offset=offset,
                )
            )

    def body(self, queue, offset):
        if offset % 10 == 7:
            return b"\xff not JSON"
        identity = f"x{offset}" if offset >= self.text_from else offset
        return json.dumps(
            {"id": identity, "tags": ["größer", None], "o": {"x": queue.queue_id}}
        ).encode()


def cluster_of(*ends, **source):
    queues = {queue_id: (0, end) for queue_id, end in enumerate(ends)}
    return MadeCluster(queues, JsonSource(**source))


def rows_in(path):
    table = pa.dataset.dataset(path, format="parquet").to_table()
    order = [("queue_id", "ascending"), ("queue_offset", "ascending")]
    return table.sort_by(order).to_pylist()


def check_rows(rows):
    for row in rows:
        offset = row["queue_offset"]
        if offset % 10 == 7:
            assert (row["value"], row["_corrupt_body"]) == (None, row["body"])
        else:
            assert row["_corrupt_body"] is None
            assert row["value"] == {
                "id": offset,
                "tags": ["größer", None],
                "o": {"x": row["queue_id"]},
            }


def test_columns_follow_those_of_the_message(tmp_path):
    record = export_of(tmp_path, cluster_of(250, 30), request=GIVEN).run()
    rows = rows_in(tmp_path)
    assert len(rows) == 280
    assert list(rows[0]) == [*MESSAGE_COLUMNS, "value", "_corrupt_body"]
    check_rows(rows)
    assert record.is_accepted
    summary = summarise(record, root="/d")
    assert (summary["rows"], summary["corrupt"], summary["undecodable"]) == (280, 28, 0)
    assert [queue["corrupt"] for queue in summary["queues"]] == [25, 3]
    manifest = json.loads((tmp_path / "_rmq" / "manifest.json").read_text())
    [run] = manifest["runs"]
    assert [part["corrupt"] for part in run["parts"]] == [10, 10, 5, 3]
    assert run["request"]["decode_schema"] == GIVEN["decode_schema"]


def test_without_decode_files_are_as_they_were(tmp_path):
    export_of(tmp_path, cluster_of(20)).run()
    [path] = tmp_path.glob("*.parquet")
    assert pq.read_schema(path).names == MESSAGE_COLUMNS


def test_a_schema_is_inferred_once_for_a_folder(tmp_path):
    report = SilentReport()
    export_of(tmp_path, cluster_of(100, 100), request=INFERRED, report=report).run()
    schema = "`id` bigint, `o` struct<`x`:bigint>, `tags` array<string>"
    assert f"inferred schema: {schema}" in report.infos
    report = SilentReport()
    runner = InlineRunner()
    later = cluster_of(150, 100, text_from=100)
    export_of(tmp_path, later, request=INFERRED, report=report, runner=runner).run()
    assert "nothing to do" in report.infos[-1]
    record = export_of(tmp_path, later, since_last=True).run()
    assert record.corrupt == 50  # in this folder an id is not text
    assert record.request.decode_inferred == schema
    rows = rows_in(tmp_path)
    assert len(rows) == 250
    check_rows([row for row in rows if row["queue_offset"] < 100])


def test_an_interrupted_run_keeps_its_schema(tmp_path):
    first = cluster_of(300)
    runner = InlineRunner(stop_after=1)
    with pytest.raises(KeyboardInterrupt):
        export_of(tmp_path, first, request=INFERRED, runner=runner).run()
    other = cluster_of(300, text_from=0)
    given = frozenset({"decode_infer"})
    request = {**INFERRED, "decode_infer": 30}
    with pytest.raises(RefusedError, match="was planned with decode_infer 20, not 30"):
        export_of(tmp_path, other, request=request, resume=True, given=given).run()
    record = export_of(tmp_path, other, resume=True).run()
    inferred = record.request.decode_inferred
    assert inferred == "`id` bigint, `o` struct<`x`:bigint>, `tags` array<string>"
    assert record.corrupt == 10 + 200


def test_a_schema_that_is_not_the_plan_s_is_refused_without_its_text(tmp_path):
    runner = InlineRunner(stop_after=1)
    with pytest.raises(KeyboardInterrupt):
        export_of(tmp_path, cluster_of(300), request=GIVEN, runner=runner).run()
    request = {"decode": "json", "decode_schema": "`id` string"}
    given = frozenset({"decode", "decode_schema"})
    with pytest.raises(RefusedError) as caught:
        export_of(
            tmp_path, cluster_of(300), request=request, resume=True, given=given
        ).run()
    assert caught.value.message.endswith("was planned with a different decode_schema")


@pytest.mark.parametrize(
    ("first", "then", "words"),
    [
        (GIVEN, {}, "holds an export that decodes bodies as json"),
        ({}, GIVEN, "holds an export that does not decode bodies"),
        (
            GIVEN,
            {"decode": "json", "decode_schema": "`id` int"},
            "decodes bodies as json, with another schema",
        ),
        (GIVEN, INFERRED, "decodes bodies as json, with another schema"),
    ],
)
@pytest.mark.parametrize("since_last", [False, True])
def test_a_folder_has_one_schema(tmp_path, first, then, words, since_last):
    ends = {"from_position": "0", "to_position": "100"}
    export_of(tmp_path, cluster_of(100), request={**first, **ends}).run()
    if since_last and not then:
        export_of(tmp_path, cluster_of(200), since_last=True).run()
        check_rows(rows_in(tmp_path))
        return
    later = {} if since_last else {"from_position": "100"}
    with pytest.raises(RefusedError) as caught:
        export_of(
            tmp_path,
            cluster_of(200),
            request={**then, **later},
            since_last=since_last,
            given=frozenset(then),
        ).run()
    assert words in caught.value.message


def test_nothing_to_infer_from_begins_no_run(tmp_path):
    root = tmp_path / "out"
    with pytest.raises(
        UsageError, match=r"^infer: none of the messages is a JSON object"
    ):
        export_of(root, cluster_of(0), request=INFERRED).run()
    assert not root.exists()
    with pytest.raises(
        UsageError, match=r"^infer: none of the messages is a JSON object"
    ):
        export_of(root, MadeCluster({0: (0, 50)}), request=INFERRED).run()
    assert not root.exists()


def test_an_empty_export_has_the_columns(tmp_path):
    export_of(tmp_path, cluster_of(0), request=GIVEN).run()
    [path] = tmp_path.glob("*.parquet")
    names = [*MESSAGE_COLUMNS, "value", "_corrupt_body"]
    assert pq.read_schema(path).names == names


def test_a_compaction_keeps_the_columns(tmp_path):
    export_of(tmp_path, cluster_of(100), request=GIVEN).run()
    for end in (130, 160, 190):
        export_of(tmp_path, cluster_of(end), since_last=True).run()
    before = rows_in(tmp_path)
    limits = FileLimits(rows=500_000, file_bytes=1 << 30)
    summary = compact(str(tmp_path), disk=Disk(), limits=limits)
    assert (summary.files_before, summary.files, summary.runs) == (4, 2, 2)
    assert rows_in(tmp_path) == before
    manifest = json.loads((tmp_path / "_rmq" / "manifest.json").read_text())
    assert [p["corrupt"] for run in manifest["runs"] for p in run["parts"]] == [10, 9]
    export_of(tmp_path, cluster_of(200), since_last=True).run()
    check_rows(rows_in(tmp_path))


def test_protobuf_is_decoded(tmp_path):
    @dataclass(frozen=True)
    class OrderSource(JsonSource):
        def body(self, queue, offset):
            return bytes(
                message_class("shop.Item")(sku="a", n=offset).SerializeToString()
            )

    request = {
        "decode": "protobuf",
        "decode_schema": canonical(descriptor_set(), "shop.Item"),
    }
    export_of(tmp_path, MadeCluster({0: (0, 5)}, OrderSource()), request=request).run()
    assert [row["value"] for row in rows_in(tmp_path)] == [
        {"sku": "a", "n": n} for n in range(5)
    ]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"decode": "xml", "decode_infer": 1}, "'xml' is not one of json, avro"),
        ({"decode": "json"}, "needs either decode_schema or decode_infer"),
        ({"decode_infer": 1}, "needs either decode_schema or decode_infer"),
        ({**GIVEN, "decode_infer": 1}, "needs either decode_schema or decode_infer"),
    ],
)
def test_a_request_that_makes_no_sense(fields, words):
    with pytest.raises(UsageError, match=words):
        ExportRequest(topic="t", from_position="0", to_position="9", **fields)


def test_workers_are_asked_for_the_packages_of_the_format(tmp_path):
    runner = InlineRunner()
    export_of(tmp_path, cluster_of(5), request=GIVEN, runner=runner).run()
    decoding = runner.starts[0].files.request.decoding
    assert packages_of(decoding) == PACKAGES
    report = look(0, folder=str(tmp_path), packages=(*PACKAGES, "no_such_package"))
    assert report.missing == ("no_such_package",)


def test_a_package_that_this_machine_lacks_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "fastavro", None)
    request = {"decode": "avro", "decode_schema": "{}"}
    runner = InlineRunner()
    with pytest.raises(ConfigError, match="the package fastavro is not installed") as e:
        export_of(tmp_path, cluster_of(5), request=request, runner=runner).run()
    assert e.value.hint == "pip install 'rmqcli[avro]'"
    assert runner.starts == []
