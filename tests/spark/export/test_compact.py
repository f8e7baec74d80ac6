"""A compaction keeps all rows in fewer files, and the export can be continued."""

from __future__ import annotations

import errno
import os
from dataclasses import replace

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from rmqcli.errors import PartialError, RefusedError, UsageError
from rmqcli.spark.export.compact import CompactSummary, FileLimits, compact
from rmqcli.spark.export.directory import open_directory
from rmqcli.spark.export.disk import Disk, walk_files
from tests.spark.export.inline import InlineRunner, expected, export_of, offsets_in
from tests.spark.export.sources import MadeCluster, MadeSource

LIMITS = FileLimits(rows=500_000, file_bytes=1 << 30)


def hourly(path, *, hours=5, queues=2, **request):
    """Create an export with several runs, each with 60 messages of each queue."""
    for hour in range(hours + 1):
        cluster = MadeCluster(dict.fromkeys(range(queues), (0, 60 * (hour + 1))))
        options = {"since_last": True} if hour else {"request": request}
        export_of(path, cluster, **options).run()


def rows_of(path):
    dataset = pa.dataset.dataset(path, format="parquet")
    order = [("queue_id", "ascending"), ("queue_offset", "ascending")]
    return dataset.to_table().sort_by(order).to_pylist()


def manifest_of(path):
    with open_directory(str(path), disk=Disk()) as directory:
        return directory.manifest()


def compacted(path, **limits):
    return compact(str(path), disk=Disk(), limits=replace(LIMITS, **limits))


def test_files_and_runs_are_merged_and_rows_are_kept(tmp_path):
    hourly(tmp_path)
    before, runs = rows_of(tmp_path), manifest_of(tmp_path).runs
    sizes = [p.stat().st_size for p in tmp_path.glob("*.parquet")]
    summary = compacted(tmp_path)
    after = [p.stat().st_size for p in tmp_path.glob("*.parquet")]
    assert summary == CompactSummary(
        topic="orders",
        runs_before=6,
        runs=2,
        files_before=16,
        files=4,
        bytes_before=sum(sizes),
        bytes=sum(after),
    )
    assert rows_of(tmp_path) == before
    first, hours = manifest_of(tmp_path).runs
    # The first run's request differs, so repeating it must still find nothing to do.
    assert first.request == runs[0].request
    assert (hours.run_id, len(hours.absorbed)) == (runs[-1].run_id, 4)
    assert [(q.queue_id, q.start, q.end) for q in hours.queues] == [
        (0, 60, 360),
        (1, 60, 360),
    ]
    assert [(p.start, p.end, p.rows) for p in hours.parts] == [(60, 360, 300)] * 2
    assert sorted(os.listdir(tmp_path / "_rmq")) == ["lock", "manifest.json", "runs"]
    assert sorted(os.listdir(tmp_path / "_rmq" / "runs")) == sorted(
        [runs[0].run_id, runs[-1].run_id]
    )
    assert (tmp_path / "_SUCCESS").exists()


def test_the_rows_of_merged_files_are_counted_up_to_all_of_them(tmp_path):
    hourly(tmp_path)
    seen = []
    compact(
        str(tmp_path),
        disk=Disk(),
        limits=LIMITS,
        watch=lambda done, rows: seen.append((done, rows)),
    )
    assert len(seen) == 14
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    assert {rows for _, rows in seen} == {600}
    assert seen[-1] == (600, 600)


def test_merged_files_are_described_by_the_manifest_and_their_footers(tmp_path):
    hourly(tmp_path, queues=1)
    compacted(tmp_path)
    run = manifest_of(tmp_path).runs[-1]
    ((row,),) = [part.files for part in run.parts]
    assert row.path == f"orders.broker-a.q0.{60:020d}-{360:020d}.parquet"
    assert (row.first_offset, row.last_offset, row.rows) == (60, 359, 300)
    file = tmp_path / row.path
    assert row.file_bytes == file.stat().st_size
    assert row.last_store_timestamp_ms == 1_760_000_000_000 + 359 * 60_000
    with open_directory(str(tmp_path), disk=Disk()) as directory:
        directory.check_files(run.run_id, run.parts[0])
    group = pq.read_metadata(file).row_group(0)
    assert group.sorting_columns == (pq.SortingColumn(3),)


def test_the_export_can_be_continued_after_a_compaction(tmp_path):
    hourly(tmp_path)
    compacted(tmp_path)
    runner = InlineRunner()
    more = MadeCluster({0: (0, 400), 1: (0, 360)})
    export_of(tmp_path, more, runner=runner).run()
    assert runner.runs == []
    export_of(tmp_path, more, since_last=True, runner=runner).run()
    assert offsets_in(tmp_path) == expected({0: (0, 400), 1: (0, 360)})
    with pytest.raises(RefusedError, match="have already been exported by run"):
        export_of(tmp_path, more, request={"from_position": "100"}).run()
    # The new run continues the merged run, and is merged into it.
    assert compacted(tmp_path).runs == 2
    assert len(manifest_of(tmp_path).runs[-1].absorbed) == 5
    assert offsets_in(tmp_path) == expected({0: (0, 400), 1: (0, 360)})


def test_a_second_compaction_changes_nothing(tmp_path):
    hourly(tmp_path)
    compacted(tmp_path)
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file()}
    summary = compacted(tmp_path)
    assert (summary.files_before, summary.runs_before) == (4, 2)
    assert (summary.files, summary.runs) == (4, 2)
    after = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file()}
    lock = tmp_path / "_rmq" / "lock"
    assert {**after, lock: 0} == {**before, lock: 0}


@pytest.mark.parametrize("partition_by", ["queue", "date", "hour"])
def test_files_stay_in_their_folders(tmp_path, partition_by):
    hourly(tmp_path, partition_by=partition_by)
    before = rows_of(tmp_path)
    folders = {os.path.dirname(path) for path in walk_files(str(tmp_path))}
    summary = compacted(tmp_path)
    assert summary.files < summary.files_before
    assert rows_of(tmp_path) == before
    assert folders == {os.path.dirname(path) for path in walk_files(str(tmp_path))}


def test_files_do_not_grow_beyond_the_limits(tmp_path):
    hourly(tmp_path, queues=1)
    compacted(tmp_path, rows=150)
    rows = [row.rows for p in manifest_of(tmp_path).runs[-1].parts for row in p.files]
    assert rows == [140, 100, 60]
    before = manifest_of(tmp_path)
    compacted(tmp_path, file_bytes=1)
    assert manifest_of(tmp_path) == before


def test_runs_with_gaps_or_undecodable_messages_keep_their_records(tmp_path):
    hourly(tmp_path, hours=1, queues=1)
    source = MadeSource(broken=frozenset({130}), lost=frozenset({190, 250}))
    allowed = {"since_last": True, "allow_gaps": True, "allow_undecodable": True}
    for end in (180, 240, 300):
        export_of(tmp_path, MadeCluster({0: (0, end)}, source), **allowed).run()
    compacted(tmp_path)
    runs = manifest_of(tmp_path).runs
    assert [(r.queues[0].start, r.queues[0].end) for r in runs] == [
        (0, 60), (60, 120), (120, 180), (180, 300),
    ]  # fmt: skip
    assert [run.undecodable for run in runs] == [0, 0, 1, 0]
    assert [(g.start, g.end) for run in runs for g in run.gaps()] == [
        (190, 191), (250, 251),
    ]  # fmt: skip
    side = tmp_path / "_rmq" / "runs" / runs[2].run_id / "undecodable.jsonl"
    assert side.exists()
    assert (tmp_path / "_SUCCESS").exists()


def test_an_incomplete_export_is_refused(tmp_path):
    with pytest.raises(UsageError, match="is not a folder"):
        compacted(tmp_path / "none")
    with pytest.raises(UsageError, match="holds no finished export"):
        compacted(tmp_path)
    assert list(tmp_path.iterdir()) == []
    hourly(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        export_of(
            tmp_path,
            MadeCluster({0: (0, 900)}),
            since_last=True,
            allow_gaps=True,
            runner=InlineRunner(1),
        ).run()
    with pytest.raises(RefusedError, match="holds the unfinished run"):
        compacted(tmp_path)


def test_a_changed_file_stops_the_compaction(tmp_path):
    hourly(tmp_path, queues=1)
    second, third = sorted(tmp_path.glob("*.parquet"))[1:3]
    third.write_bytes(second.read_bytes())
    before = sorted(p.name for p in tmp_path.iterdir())
    with pytest.raises(
        PartialError, match="is not the file that the export wrote there"
    ):
        compacted(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == before
    assert not (tmp_path / "_rmq" / "compact").exists()
    third.write_bytes(b"PAR1")
    with pytest.raises(PartialError, match="cannot be read"):
        compacted(tmp_path)


def test_a_full_disk_while_files_are_merged_changes_nothing(tmp_path):
    class Full(Disk):
        def sync(self, file):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    hourly(tmp_path)
    before = rows_of(tmp_path)
    with pytest.raises(OSError, match="No space left"):
        compact(str(tmp_path), disk=Full(), limits=LIMITS)
    assert rows_of(tmp_path) == before
    assert (tmp_path / "_SUCCESS").exists()
    assert not (tmp_path / "_rmq" / "compact").exists()
