"""The state of an export's directory after each step, and the files that it trusts."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from rmqcli.errors import (
    ConfigError,
    PartialError,
    RefusedError,
    RmqError,
    UsageError,
)
from rmqcli.spark.export.directory import open_directory
from rmqcli.spark.export.disk import Disk
from rmqcli.spark.export.manifest import Manifest, manifest_to_json
from rmqcli.spark.export.parquet_file import read_footer
from rmqcli.spark.export.plan import plan_from_json
from tests.spark.export.inline import InlineRunner, expected, export_of, offsets_in
from tests.spark.export.sources import MadeCluster, MadeSource

QUEUES = {0: (0, 250)}


def interrupted(tmp_path, *, stop_after=1, **options):
    """Start a run that Ctrl-C ends after some parts."""
    runner = InlineRunner(stop_after=stop_after)
    with pytest.raises(KeyboardInterrupt):
        export_of(tmp_path, MadeCluster(QUEUES), runner=runner, **options).run()


def opened(tmp_path, **options):
    return open_directory(str(tmp_path), disk=Disk(), **options)


def plan_in(tmp_path):
    (path,) = tmp_path.glob("_rmq/runs/*/plan.json")
    return plan_from_json(path.read_text(), path=str(path))


def test_since_last_begins_after_the_highest_offset_of_all_runs(tmp_path):
    cluster = MadeCluster({0: (0, 300), 1: (0, 80)})
    ends = {"from_position": "150", "to_position": "200"}
    export_of(tmp_path, cluster, request=ends).run()
    ends = {"from_position": "0", "to_position": "100"}
    record = export_of(tmp_path, cluster, request=ends).run()
    assert [(q.queue_id, q.start, q.end) for q in record.queues] == [
        (0, 0, 100),
        (1, 0, 80),
    ]
    later = export_of(tmp_path, cluster, since_last=True).run()
    assert [(q.queue_id, q.start, q.end) for q in later.queues] == [
        (0, 200, 300),
        (1, 80, 80),
    ]
    wanted = [(0, n) for n in (*range(100), *range(150, 300))]
    assert offsets_in(tmp_path) == wanted + expected({1: (0, 80)})


def test_the_success_mark_is_absent_from_the_beginning_to_the_end_of_a_run(
    tmp_path,
):
    export_of(tmp_path, MadeCluster({0: (0, 100)})).run()
    assert (tmp_path / "_SUCCESS").exists()
    seen = []

    class Looks(InlineRunner):
        def write(self, parts, context, /, *, watch):
            seen.append((tmp_path / "_SUCCESS").exists())
            raise KeyboardInterrupt

    cluster = MadeCluster({0: (0, 200)})
    with pytest.raises(KeyboardInterrupt):
        export_of(tmp_path, cluster, since_last=True, runner=Looks()).run()
    assert seen == [False]
    assert not (tmp_path / "_SUCCESS").exists()
    export_of(tmp_path, cluster, resume=True).run()
    assert (tmp_path / "_SUCCESS").exists()


def test_an_inconsistent_part_ends_the_run_without_a_manifest(tmp_path):
    class Miscounts(InlineRunner):
        def write(self, parts, context, /, *, watch):
            found = super().write(parts, context, watch=watch)
            return [*found[:-1], replace(found[-1], filtered=1)]

    with pytest.raises(
        PartialError, match="part 2 of broker-a queue 0 does not add up"
    ):
        export_of(tmp_path, MadeCluster(QUEUES), runner=Miscounts()).run()
    assert not (tmp_path / "_SUCCESS").exists()
    assert not (tmp_path / "_rmq" / "manifest.json").exists()


def test_a_part_with_an_inconsistent_record_is_written_again(tmp_path):
    interrupted(tmp_path, stop_after=2)
    (record, *_) = sorted(tmp_path.glob("_rmq/runs/*/part-*"))
    value = json.loads(record.read_text())
    record.write_text(json.dumps({**value, "undecodable": value["undecodable"] + 1}))
    runner = InlineRunner()
    export_of(tmp_path, MadeCluster(QUEUES), resume=True, runner=runner).run()
    assert runner.runs == [[0, 2]]
    assert offsets_in(tmp_path) == expected(QUEUES)


@pytest.mark.parametrize(
    "change", [{"start": 1}, {"end": 99}, {"rows": 99}, {"file_bytes": 1}]
)
def test_a_file_that_does_not_match_its_record_is_refused(tmp_path, change):
    record = export_of(tmp_path, MadeCluster(QUEUES)).run()
    plan = plan_in(tmp_path)
    with opened(tmp_path) as directory:
        directory.check_files(plan.run_id, record.parts[0])
        (row,) = record.parts[0].files
        other = replace(record.parts[0], files=(replace(row, **change),))
        with pytest.raises(PartialError, match="is not the file that the export"):
            directory.check_files(plan.run_id, other)
        with pytest.raises(PartialError, match="is not the file that the export"):
            directory.check_files("other", record.parts[0])
        with pytest.raises(PartialError, match="is not the file that the export"):
            directory.check_files(plan.run_id, replace(record.parts[0], index=1))
        os.remove(tmp_path / row.path)
        with pytest.raises(PartialError, match="cannot be read"):
            directory.check_files(plan.run_id, record.parts[0])


def test_unlisted_files_of_this_run_are_removed_and_all_others_stay(tmp_path):
    record = export_of(tmp_path, MadeCluster(QUEUES)).run()
    plan = plan_in(tmp_path)
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "theirs.parquet").write_bytes(b"PAR1")
    kept = list(record.parts[1:])
    with opened(tmp_path) as directory:
        directory.remove_strays(replace(plan, run_id="other"), kept)
        assert len(list(tmp_path.glob("orders*.parquet"))) == 3
        directory.remove_strays(plan, kept)
    assert len(list(tmp_path.glob("orders*.parquet"))) == 2
    assert (tmp_path / "notes.txt").exists()
    assert (tmp_path / "theirs.parquet").exists()


def test_the_newest_unfinished_run_is_resumed(tmp_path):
    interrupted(tmp_path)
    plan = plan_in(tmp_path)
    with opened(tmp_path) as directory:
        assert directory.unfinished(None) == plan
        newer = replace(plan, run_id="20991009T085320Z-00c0ffee")
        directory.write_plan(newer)
        assert directory.unfinished(None) == newer
        (tmp_path / "_rmq" / "runs" / "20991109T085320Z-00c0ffee").mkdir()
        (tmp_path / "_rmq" / "runs" / "zzz").mkdir()
        assert directory.unfinished(None) == newer


def test_a_finished_run_is_not_unfinished(tmp_path):
    export_of(tmp_path, MadeCluster(QUEUES)).run()
    with opened(tmp_path) as directory:
        manifest = directory.manifest()
        assert manifest is not None
        assert directory.unfinished(manifest) is None
        assert directory.unfinished(Manifest("orders")) == plan_in(tmp_path)


def test_a_later_run_is_added_to_the_manifest_without_writing_it_again(tmp_path):
    """Otherwise an hourly export would write the runs of a whole year every hour."""
    first = export_of(tmp_path, MadeCluster({0: (0, 100)})).run()
    written: dict[str, bytes] = {}
    records = [first]
    for end in (200, 300, 400):
        cluster = MadeCluster({0: (0, end)})
        records.append(export_of(tmp_path, cluster, since_last=True).run())
        for path in tmp_path.glob("_rmq/manifest*/*.json"):
            written.setdefault(path.name, path.read_bytes())
    assert sorted(written) == ["00000001.json", "00000002.json", "00000003.json"]
    assert [len(json.loads(text)["runs"]) for text in written.values()] == [1, 1, 1]
    for name, text in written.items():
        assert (tmp_path / "_rmq" / "manifest" / name).read_bytes() == text
    base = json.loads((tmp_path / "_rmq" / "manifest.json").read_text())
    assert [run["run_id"] for run in base["runs"]] == [first.run_id]
    with opened(tmp_path) as directory:
        assert directory.manifest() == Manifest("orders", tuple(records))


def test_a_run_that_is_accepted_later_replaces_itself(tmp_path):
    cluster = MadeCluster(QUEUES, MadeSource(broken=frozenset({3})))
    record = export_of(tmp_path, cluster).run()
    export_of(tmp_path, cluster, allow_undecodable=True).run()
    with opened(tmp_path) as directory:
        accepted = replace(record, undecodable_allowed=True)
        assert directory.manifest() == Manifest("orders", (accepted,))


def test_a_manifest_in_one_file_is_still_read(tmp_path):
    """Before there were segments, `manifest.json` had all runs."""
    first = export_of(tmp_path, MadeCluster({0: (0, 100)})).run()
    second = export_of(tmp_path, MadeCluster({0: (0, 200)}), since_last=True).run()
    both = Manifest("orders", (first, second))
    (tmp_path / "_rmq" / "manifest.json").write_text(manifest_to_json(both))
    shutil.rmtree(tmp_path / "_rmq" / "manifest")
    with opened(tmp_path) as directory:
        assert directory.manifest() == both
    record = export_of(tmp_path, MadeCluster({0: (0, 300)}), since_last=True).run()
    assert [(q.start, q.end) for q in record.queues] == [(200, 300)]
    assert offsets_in(tmp_path) == expected({0: (0, 300)})


@pytest.mark.parametrize("text", ["{", '{"version": 1, "topic": "other", "runs": []}'])
def test_a_damaged_segment_is_named_and_nothing_is_written(tmp_path, text):
    export_of(tmp_path, MadeCluster({0: (0, 100)})).run()
    export_of(tmp_path, MadeCluster({0: (0, 200)}), since_last=True).run()
    (tmp_path / "_rmq" / "manifest" / "00000001.json").write_text(text)
    with pytest.raises(
        ConfigError, match=r"manifest/00000001\.json (is|belongs to topic other)"
    ):
        export_of(tmp_path, MadeCluster({0: (0, 300)}), since_last=True).run()
    assert offsets_in(tmp_path) == expected({0: (0, 200)})


def test_undecodable_messages_of_all_parts_are_in_one_file_in_order(tmp_path):
    cluster = MadeCluster(QUEUES, MadeSource(broken=frozenset({3, 120, 249})))
    record = export_of(tmp_path, cluster).run()
    folder = tmp_path / "_rmq" / "runs" / record.run_id
    lines = (folder / "undecodable.jsonl").read_text().splitlines()
    assert [json.loads(line)["queue_offset"] for line in lines] == [3, 120, 249]
    assert sorted(os.listdir(folder)) == ["plan.json", "undecodable.jsonl"]


def test_only_the_temporary_files_of_an_attempt_are_removed(tmp_path):
    export_of(tmp_path, MadeCluster(QUEUES)).run()
    meta = tmp_path / "_rmq"
    (meta / "temp").mkdir(exist_ok=True)
    with opened(tmp_path) as directory:
        temp = directory.disk.begin_attempt(directory.paths, "r1")
        assert os.path.isdir(temp)
        directory.sweep()
        assert not os.path.exists(temp)
        name = os.path.basename(directory.paths.temp)
        assert not [each for each in os.listdir(meta) if each.startswith(name)]
    assert (meta / "manifest.json").exists()
    assert (meta / "runs").exists()


class StartFails(InlineRunner):
    """Fails to start workers, as happens without Java or a master."""

    def __call__(self, start, /):
        Path(start.log_path).write_text("why")
        raise RmqError("Spark did not start")


@pytest.mark.parametrize("is_there", [False, True])
def test_a_run_whose_workers_do_not_start_has_not_begun(tmp_path, is_there):
    root = tmp_path / "out"
    if is_there:
        root.mkdir()
    with pytest.raises(RmqError, match="did not start"):
        export_of(root, MadeCluster(QUEUES), runner=StartFails()).run()
    assert root.exists() == is_there
    assert not (root / "_rmq").exists()
    # The range ends where the second attempt found the end, not where the first did.
    export_of(root, MadeCluster({0: (0, 300)})).run()
    assert offsets_in(root) == expected({0: (0, 300)})


def test_a_complete_export_stays_complete_when_the_next_run_does_not_start(tmp_path):
    export_of(tmp_path, MadeCluster(QUEUES)).run()
    more = MadeCluster({0: (0, 300)})
    with pytest.raises(RmqError, match="did not start"):
        export_of(tmp_path, more, since_last=True, runner=StartFails()).run()
    assert (tmp_path / "_SUCCESS").exists()
    assert len(list(tmp_path.glob("_rmq/runs/*"))) == 1
    more = MadeCluster({0: (0, 400)})
    record = export_of(tmp_path, more, since_last=True).run()
    assert [(q.start, q.end) for q in record.queues] == [(250, 400)]


def test_a_resumed_run_whose_workers_do_not_start_can_still_be_resumed(tmp_path):
    interrupted(tmp_path)
    with pytest.raises(RmqError, match="did not start"):
        export_of(tmp_path, MadeCluster(QUEUES), resume=True, runner=StartFails()).run()
    export_of(tmp_path, MadeCluster(QUEUES), resume=True).run()
    assert offsets_in(tmp_path) == expected(QUEUES)


def test_the_log_of_the_start_is_kept_with_the_run(tmp_path):
    class Logs(InlineRunner):
        @contextlib.contextmanager
        def __call__(self, start, /):
            with open(start.log_path, "a") as log:
                log.write("begins ")
                yield self.write
                log.write("and ends ")

    with pytest.raises(KeyboardInterrupt):
        export_of(tmp_path, MadeCluster(QUEUES), runner=Logs(stop_after=1)).run()
    export_of(tmp_path, MadeCluster(QUEUES), resume=True, runner=Logs()).run()
    (log,) = tmp_path.glob("_rmq/runs/*/spark.log")
    assert log.read_text() == "begins begins and ends "


def fail_in(path):
    with opened(path) as directory:
        assert not directory.was_ours
        raise KeyError


def test_an_export_that_could_not_begin_leaves_the_directory_unchanged(tmp_path):
    (tmp_path / "there").mkdir()
    for name in ("there", "new"):
        with pytest.raises(KeyError):
            fail_in(tmp_path / name)
    assert (tmp_path / "there").exists()
    assert not (tmp_path / "there" / "_rmq").exists()
    assert not (tmp_path / "new").exists()


def test_a_directory_belongs_to_the_export_once_a_run_has_begun(tmp_path):
    export_of(tmp_path, MadeCluster(QUEUES)).run()
    with opened(tmp_path) as directory:
        assert directory.was_ours
    assert (tmp_path / "_rmq").exists()


def test_a_directory_is_created_only_when_allowed(tmp_path):
    with (
        pytest.raises(UsageError, match="is not a folder"),
        opened(tmp_path / "no", create=False),
    ):
        pass
    assert not (tmp_path / "no").exists()


def test_a_second_process_gets_the_process_id_of_the_first(tmp_path):
    with (
        opened(tmp_path),
        pytest.raises(
            RefusedError, match=rf"another export \(process {os.getpid()}\) is running"
        ),
        opened(tmp_path),
    ):
        pass


def test_the_lock_file_holds_only_the_process_id_of_its_owner(tmp_path):
    export_of(tmp_path, MadeCluster(QUEUES)).run()
    lock = tmp_path / "_rmq" / "lock"
    lock.write_text("99999999999999999999\n")
    with opened(tmp_path):
        assert lock.read_text() == f"{os.getpid()}\n"


def test_an_existing_folder_is_kept_when_an_export_fails_in_it(tmp_path):
    (tmp_path / "there").mkdir()
    with pytest.raises(KeyError):
        fail_in(tmp_path / "there")
    assert list((tmp_path / "there").iterdir()) == []


def test_a_footer_names_run_part_and_range(tmp_path):
    record = export_of(tmp_path, MadeCluster(QUEUES)).run()
    (row,) = record.parts[2].files
    footer = read_footer(str(tmp_path / row.path))
    assert footer is not None
    assert (footer.run_id, footer.part) == (record.run_id, 2)
    assert (footer.start, footer.end, footer.rows) == (200, 250, 50)


def test_only_the_owner_may_write_into_folders_of_an_export(tmp_path):
    before = os.umask(0)
    try:
        path = Path(Disk().make_folders(str(tmp_path), "dt=2026-01-02/broker=a"))
    finally:
        os.umask(before)
    assert [each.stat().st_mode & 0o777 for each in (path.parent, path)] == [0o755] * 2
