"""A part is either complete under its final name or absent; its rows are messages."""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmqcli.errors import DisconnectedError, PartialError, RefusedError
from rmqcli.model import MessageQueue
from rmqcli.spark.export.disk import Disk
from rmqcli.spark.export.layout import ExportLayout
from rmqcli.spark.export.parquet_file import (
    Footer,
    ParquetFile,
    count_by_tag,
    read_footer,
)
from rmqcli.spark.export.part import PartContext, PartFailure, write_part, write_task
from rmqcli.spark.export.part_files import FilesContext
from rmqcli.spark.export.plan import ExportRequest, PartSpec
from rmqcli.wire.message.decode import StoredMessage, decode_messages
from rmqcli.wire.message.encode import MessageFields, encode_message
from tests.spark.export.sources import MadeSource, record

RUN_ID = "20251009T085320Z-00c0ffee"
PART = PartSpec(0, "broker-a", 3, 1000, 2000)
NAME = "orders.broker-a.q3.00000000000000001000-00000000000000002000.parquet"


def context_of(root, source=None, *, disk=None, **request) -> PartContext:
    settings = {"from_position": "earliest", "to_position": "latest", **request}
    layout = ExportLayout(str(root))
    os.makedirs(layout.run(RUN_ID), exist_ok=True)
    temp = os.path.join(layout.temp, "attempt")
    os.makedirs(temp, exist_ok=True)
    return PartContext(
        files=FilesContext(
            layout=layout,
            run_id=RUN_ID,
            temp=temp,
            request=ExportRequest(topic="orders", **settings),
            disk=disk or Disk(),
        ),
        source=source or MadeSource(),
    )


def write(context, part=PART):
    with context.source.connect() as reader:
        return write_part(part, context, reader=reader)


def visible(root):
    return sorted(
        os.path.relpath(os.path.join(folder, name), root)
        for folder, folders, names in os.walk(root)
        for name in names
        if "_rmq" not in folder.split(os.sep) and folders is not None
    )


def rows_of(root, names):
    tables = [pq.ParquetFile(os.path.join(root, n)).read() for n in names]
    rows = [row for table in tables for row in table.to_pylist()]
    return sorted(rows, key=lambda row: row["queue_offset"])


def test_rows_are_the_messages_field_for_field(tmp_path):
    context = context_of(tmp_path)
    result = write(context)
    assert visible(tmp_path) == [NAME]
    assert (result.rows, result.filtered, result.undecodable, result.missing) == (
        1000,
        0,
        0,
        (),
    )
    assert result.files[0].file_bytes == os.path.getsize(tmp_path / NAME)
    queue = MessageQueue("orders", "broker-a", 3)
    for row, offset in zip(rows_of(tmp_path, [NAME]), range(1000, 2000), strict=True):
        [message] = decode_messages(record(queue, offset))
        assert isinstance(message, StoredMessage)
        assert row["queue_offset"] == offset == message.queue_offset
        assert row["body"] == message.body
        assert dict(row["properties"]) == message.properties
        assert row["msg_id"] == message.msg_id
        assert (row["tags"], row["keys"]) == (message.tags, message.keys)
        assert row["born_host"] == message.born_host
        assert row["store_timestamp"].timestamp() * 1000 == message.store_timestamp_ms


def test_footer_names_run_part_and_range(tmp_path):
    write(context_of(tmp_path))
    footer = read_footer(str(tmp_path / NAME))
    assert footer is not None
    assert (footer.run_id, footer.part, footer.topic) == (RUN_ID, 0, "orders")
    assert (footer.start, footer.end, footer.rows) == (1000, 2000, 1000)


def test_column_types_are_ones_that_spark_reads(tmp_path):
    write(context_of(tmp_path))
    schema = pq.read_schema(tmp_path / NAME)
    assert schema.field("store_timestamp").type == pa.timestamp("us", tz="UTC")
    assert schema.field("body").type == pa.binary()
    assert schema.field("properties").type == pa.map_(pa.string(), pa.string())
    assert schema.names[:4] == ["topic", "broker_name", "queue_id", "queue_offset"]


WITHOUT_PANDAS = """
import sys
from pathlib import Path
from rmqcli.spark.export.part import write_task
from tests.spark.export.sources import MadeSource
from tests.spark.export.test_part import PART, context_of
source = MadeSource(lost=frozenset(range(1200, 1210)))
wanted = {"partition_by": "hour", "tag": "A"}
[result] = write_task([PART], context_of(Path(sys.argv[1]), source, **wanted))
print(result.rows, "pandas" in sys.modules)
"""


def test_writing_does_not_import_pandas(tmp_path):
    """Pandas costs each of Spark's workers 0.2 s of CPU."""
    assert importlib.util.find_spec("pandas")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PANDAS, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    # Of offsets 1000 to 1999 333 have the tag A, and four of these are lost.
    assert done.stdout == "329 False\n"


def test_columns_that_every_message_has_are_declared_not_null(tmp_path):
    write(context_of(tmp_path))
    schema = pq.read_schema(tmp_path / NAME)
    assert [field.name for field in schema if not field.nullable] == [
        "topic", "broker_name", "queue_id", "queue_offset", "reconsume_times", "flag",
        "sys_flag", "commit_log_offset", "body",
    ]  # fmt: skip


def test_the_footer_has_offset_statistics_for_readers(tmp_path):
    write(context_of(tmp_path))
    row_group = pq.read_metadata(tmp_path / NAME).row_group(0)
    assert row_group.sorting_columns == (pq.SortingColumn(3),)
    assert row_group.column(3).path_in_schema == "queue_offset"
    assert row_group.column(3).has_column_index
    assert row_group.column(3).has_offset_index


def test_an_empty_body_is_empty_and_not_null(tmp_path):
    class Empty(MadeSource):
        def _records(self, queue, start, end):
            for offset in range(start, end):
                fields = MessageFields(
                    topic="orders", body=b"", queue_id=3, queue_offset=offset
                )
                yield encode_message(fields)

    write(context_of(tmp_path, Empty()))
    assert {row["body"] for row in rows_of(tmp_path, [NAME])} == {b""}


def test_missing_and_undecodable_are_counted_and_kept(tmp_path):
    source = MadeSource(lost=frozenset({1003, 1004}), broken=frozenset({1500}))
    result = write(context_of(tmp_path, source))
    assert result.missing == ((1003, 1005),)
    assert (result.rows, result.undecodable) == (997, 1)
    side = ExportLayout(str(tmp_path)).part_undecodable(RUN_ID, 0)
    with open(side) as file:
        [line] = map(json.loads, file)
    assert (line["broker_name"], line["queue_id"]) == ("broker-a", 3)
    assert line["error"]
    assert line["raw_b64"]


def test_a_tag_filters_by_its_text_and_filtered_messages_are_counted(tmp_path):
    result = write(context_of(tmp_path, tag="A || C"))
    assert (result.rows, result.filtered) == (666, 334)
    assert {row["tags"] for row in rows_of(tmp_path, [NAME])} == {"A", "C"}


def test_a_part_without_a_row_has_a_record_and_no_file(tmp_path):
    result = write(context_of(tmp_path, tag="other"))
    assert (result.rows, result.filtered, result.files) == (0, 1000, ())
    assert visible(tmp_path) == []
    assert os.path.exists(ExportLayout(str(tmp_path)).part_record(RUN_ID, 0))


def test_the_path_keys_of_a_queue_are_not_columns(tmp_path):
    write(context_of(tmp_path, partition_by="queue"))
    assert visible(tmp_path) == [f"broker=broker-a/queue=3/{NAME}"]


def test_date_partition_names_first_and_last_offset(tmp_path):
    """There is one message each minute. Offsets 1000 to 1999, from 01:33 UTC on, have
    one date; the next date begins at offset 2347."""
    result = write(context_of(tmp_path, partition_by="date"))
    prefix = "orders.broker-a.q3"
    assert [row.path for row in result.files] == [
        f"dt=2025-10-10/{prefix}.00000000000000001000-00000000000000002000.parquet"
    ]
    part = PartSpec(1, "broker-a", 3, 2000, 3000)
    result = write(context_of(tmp_path, partition_by="date"), part)
    assert [row.path for row in result.files] == [
        f"dt=2025-10-10/{prefix}.00000000000000002000-00000000000000002347.parquet",
        f"dt=2025-10-11/{prefix}.00000000000000002347-00000000000000003000.parquet",
    ]
    assert [row.rows for row in result.files] == [347, 653]


def test_hour_partition_keeps_few_files_open(tmp_path):
    result = write(context_of(tmp_path, partition_by="hour"))
    assert len(result.files) == 18
    assert [row["queue_offset"] for row in rows_of(tmp_path, visible(tmp_path))] == [
        *range(1000, 2000)
    ]


@pytest.mark.parametrize(
    ("step", "bounds"),
    [
        (250, [1000, 1250, 1500, 1750, 2000]),
        # What comes in smaller pieces is decoded when there are 100 messages of it.
        (60, [1000, 1120, 1240, 1360, 1480, 1600, 1720, 1840, 1960, 2000]),
    ],
)
def test_a_large_part_continues_in_a_second_file(tmp_path, monkeypatch, step, bounds):
    monkeypatch.setattr("rmqcli.spark.export.parquet_file.ROW_GROUP_ROWS", 100)
    monkeypatch.setattr("rmqcli.spark.rows.DECODE_MESSAGES", 100)
    result = write(context_of(tmp_path, MadeSource(step=step), bytes_per_file=1))
    assert [(row.start, row.end) for row in result.files] == [*pairwise(bounds)]
    assert sum(row.rows for row in result.files) == 1000


def test_writing_again_replaces_the_same_file(tmp_path):
    assert write(context_of(tmp_path)) == write(context_of(tmp_path))
    assert visible(tmp_path) == [NAME]


@pytest.mark.parametrize("foreign", ["text", "symlink", "parquet"])
def test_a_foreign_file_is_never_replaced(tmp_path, foreign):
    target = tmp_path / NAME
    if foreign == "text":
        target.write_text("mine")
    elif foreign == "symlink":
        (tmp_path / "elsewhere").write_text("mine")
        target.symlink_to("elsewhere")
    else:
        pq.write_table(pa.table({"a": [1]}), target)
    before = target.read_bytes()
    with pytest.raises(RefusedError, match="was not written by this export"):
        write(context_of(tmp_path))
    assert target.read_bytes() == before


def test_symlinked_folder_is_not_followed(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    root = tmp_path / "root"
    root.mkdir()
    (root / "broker=broker-a").symlink_to(outside)
    with pytest.raises(RefusedError, match="is a symbolic link or not a folder"):
        write(context_of(root, partition_by="queue"))
    assert list(outside.iterdir()) == []


class FullDisk(Disk):
    """Fails at the n-th call that changes something, and at every later call."""

    def __init__(self, calls: int) -> None:
        self.left = calls

    def _spend(self, path) -> None:
        if not self.left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        self.left -= 1

    def create(self, path):
        self._spend(path)
        return FullFile(super().create(path), self)

    def sync(self, file):
        self._spend("sync")
        super().sync(file)

    def replace(self, source, target):
        self._spend(target)
        super().replace(source, target)

    def sync_folder(self, path):
        self._spend(path)
        super().sync_folder(path)


class FullFile:
    def __init__(self, file, disk) -> None:
        self._file = file
        self._disk = disk

    def write(self, data):
        self._disk._spend("write")
        return self._file.write(data)

    def __getattr__(self, name):
        return getattr(self._file, name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._file.close()


def test_a_file_is_abandoned_on_a_disk_that_is_full_by_now(tmp_path):
    """A writer that is closed writes its footer, for which there is no room."""
    disk = FullDisk(2)  # the file, and the first four bytes in it
    file = ParquetFile(
        str(tmp_path / "part.parquet"),
        pa.schema([("queue_offset", pa.int64())]),
        compression="none",
        disk=disk,
    )
    assert disk.left == 0
    file.abort()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("partition_by", ["none", "date"])
def test_full_disk_at_any_write_leaves_no_partial_file(tmp_path, partition_by):
    """Files with a final name are complete, and a second attempt writes all rows."""
    source = MadeSource(step=50, broken=frozenset({2310}))
    part = PartSpec(0, "broker-a", 3, 2300, 2400)
    for calls in range(500):  # writing the page index takes some of these calls
        root = tmp_path / str(calls)
        disk = FullDisk(calls)
        context = context_of(root, source, disk=disk, partition_by=partition_by)
        [outcome] = write_task([part], context)
        if not isinstance(outcome, PartFailure):
            break
        assert "No space left on device" in outcome.error.message
        assert "free space" in outcome.error.hint or "sync" in outcome.error.message
        for name in visible(root):
            footer = read_footer(str(root / name))
            assert footer is not None
            assert footer.rows == pq.ParquetFile(root / name).read().num_rows
        leftover = [n for n in os.listdir(context.files.temp) if "progress" not in n]
        assert leftover == []
        write(context_of(root, source, partition_by=partition_by), part)
        offsets = [row["queue_offset"] for row in rows_of(root, visible(root))]
        assert offsets == [o for o in range(2300, 2400) if o != 2310]
    else:
        pytest.fail("a part never needs that many writes")
    assert calls > 15


def test_a_lost_broker_fails_only_its_own_parts(tmp_path):
    parts = [
        PartSpec(0, "broker-b", 3, 0, 1000),
        PartSpec(1, "broker-b", 3, 1000, 2000),
        PartSpec(2, "broker-a", 3, 1000, 2000),
    ]
    outcomes = write_task(parts, context_of(tmp_path, MadeSource(fail_at=700)))
    for outcome in outcomes[:2]:
        assert isinstance(outcome, PartFailure)
        assert isinstance(outcome.error, DisconnectedError)
    assert not isinstance(outcomes[2], PartFailure)
    assert visible(tmp_path) == [NAME]


def test_worker_of_a_dead_driver_can_publish_nothing(tmp_path):
    """The next driver has already removed the folder of the attempt."""
    context = context_of(tmp_path)
    os.rmdir(context.files.temp)
    [outcome] = write_task([PART], context)
    assert isinstance(outcome, PartFailure)
    assert visible(tmp_path) == []


def test_an_inconsistent_record_is_refused(tmp_path):
    result = write(context_of(tmp_path))
    with pytest.raises(PartialError, match="is for part"):
        result.check(PartSpec(0, "broker-a", 3, 1000, 2001))


OTHER_PARTS = [PartSpec(n, "broker-a", 3, n * 10, n * 10 + 10) for n in range(1, 4)]


def test_no_worker_starts_a_part_after_a_disk_is_full(tmp_path):
    """Otherwise other parts would be pulled from the broker in vain."""
    go_path = str(tmp_path / "go")
    context = replace(context_of(tmp_path, disk=FullDisk(0)), go_path=go_path)
    with open(go_path, "w"):
        pass
    outcomes = write_task(OTHER_PARTS, context)
    assert [outcome.index for outcome in outcomes] == [1, 2, 3]
    for outcome in outcomes:
        assert isinstance(outcome, PartFailure)
        assert "No space left on device" in outcome.error.message
        assert "free space" in outcome.error.hint
        assert not outcome.may_work_elsewhere
    # A worker of another task, whose disk has space left.
    elsewhere = replace(context_of(tmp_path), go_path=go_path)
    [outcome] = write_task([PART], elsewhere)
    assert isinstance(outcome, PartFailure)
    assert "the disk is full, so no more parts were started" in outcome.error.message
    assert visible(tmp_path) == []


def test_a_retried_task_writes_only_incomplete_parts(tmp_path):
    context = context_of(tmp_path, MadeSource(fail_at=25))
    first = write_task(OTHER_PARTS, context)
    failed = [o.index for o in first if isinstance(o, PartFailure)]
    assert failed == [2, 3]
    assert all(o.may_work_elsewhere for o in first if isinstance(o, PartFailure))
    before = (tmp_path / visible(tmp_path)[0]).stat().st_mtime_ns
    again = write_task(OTHER_PARTS, context_of(tmp_path), is_retry=True)
    assert again[0] == first[0]
    assert [o.index for o in again if not isinstance(o, PartFailure)] == [1, 2, 3]
    names = visible(tmp_path)
    assert len(names) == 3
    assert (tmp_path / names[0]).stat().st_mtime_ns == before


def test_a_disk_error_allows_a_retry_on_another_machine(tmp_path):
    class NoFolder(Disk):
        def create(self, path):
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    [outcome] = write_task([PART], context_of(tmp_path, disk=NoFolder()))
    assert isinstance(outcome, PartFailure)
    assert outcome.may_work_elsewhere


FIELDS: dict[str, Any] = {
    "run_id": "R",
    "part": 1,
    "topic": "orders",
    "broker_name": "broker-a",
    "queue_id": 2,
    "start": 3,
    "end": 4,
    "rows": 99,
}


@pytest.mark.parametrize(
    "text",
    [
        None,
        "{",
        "[]",
        "3",
        "{}",
        json.dumps(FIELDS),
        json.dumps({**FIELDS, "version": 2}),
        json.dumps({**FIELDS, "version": 1, "more": 0}),
        json.dumps({"version": 1, "topic": "orders"}),
    ],
)
def test_a_file_with_a_footer_of_another_kind_is_not_of_an_export(tmp_path, text):
    path = tmp_path / "x.parquet"
    metadata = {} if text is None else {"rmq.export": text}
    pq.write_table(pa.table({"a": [1, 2]}).replace_schema_metadata(metadata), path)
    assert read_footer(str(path)) is None


def test_the_rows_of_a_footer_are_those_of_the_file(tmp_path):
    path = tmp_path / "x.parquet"
    text = json.dumps({**FIELDS, "version": 1})
    rows = pa.table({"a": [1, 2]}).replace_schema_metadata({"rmq.export": text})
    pq.write_table(rows, path)
    assert read_footer(str(path)) == Footer(**{**FIELDS, "rows": 2})
    link = tmp_path / "link.parquet"
    link.symlink_to(path)
    assert read_footer(str(link)) is None
    assert read_footer(str(tmp_path)) is None


def test_rows_are_counted_by_tag_in_the_files_of_one_folder(tmp_path):
    for name, tags in (
        ("one.parquet", ["B", None, "A"]),
        ("two.parquet", ["A", None]),
        ("three.txt", ["C"]),
    ):
        pq.write_table(pa.table({"tags": tags, "n": range(len(tags))}), tmp_path / name)
    (tmp_path / "inner").mkdir()
    pq.write_table(pa.table({"tags": ["D"]}), tmp_path / "inner" / "x.parquet")
    assert count_by_tag(str(tmp_path)) == [("-", 2), ("A", 2), ("B", 1)]
