"""The effects of an export on a directory, and the cases that it refuses."""

from __future__ import annotations

import fcntl
import json
import os

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from rmqcli.cli.export.report import summarise
from rmqcli.errors import (
    ConfigError,
    DisconnectedError,
    PartialError,
    RefusedError,
    RmqError,
    UsageError,
)
from tests.spark.export.inline import (
    InlineRunner,
    SilentReport,
    expected,
    export_of,
    offsets_in,
)
from tests.spark.export.sources import MadeCluster, MadeSource

QUEUES = {0: (0, 350), 1: (120, 260), 2: (40, 40)}


def files_below(path):
    return sorted(
        os.path.relpath(os.path.join(folder, name), path)
        for folder, _, names in os.walk(path)
        for name in names
    )


def test_export_writes_each_message_once_and_marks_success(tmp_path):
    record = export_of(tmp_path, MadeCluster(QUEUES)).run()
    assert offsets_in(tmp_path) == expected(QUEUES)
    assert files_below(tmp_path) == [
        "_SUCCESS",
        "_rmq/lock",
        "_rmq/manifest.json",
        f"_rmq/runs/{record.run_id}/plan.json",
        "orders.broker-a.q0.00000000000000000000-00000000000000000100.parquet",
        "orders.broker-a.q0.00000000000000000100-00000000000000000200.parquet",
        "orders.broker-a.q0.00000000000000000200-00000000000000000300.parquet",
        "orders.broker-a.q0.00000000000000000300-00000000000000000350.parquet",
        "orders.broker-a.q1.00000000000000000120-00000000000000000200.parquet",
        "orders.broker-a.q1.00000000000000000200-00000000000000000260.parquet",
    ]


def test_directory_is_a_dataset_for_readers(tmp_path):
    export_of(tmp_path, MadeCluster(QUEUES), request={"topic": "%RETRY%g"}).run()
    dataset = pa.dataset.dataset(tmp_path, format="parquet")
    assert dataset.count_rows() == 490


def test_summary_has_the_public_keys(tmp_path):
    cluster = MadeCluster(
        {0: (0, 250)},
        MadeSource(lost=frozenset({7, 8}), broken=frozenset({9})),
    )
    record = export_of(tmp_path, cluster, request={"tag": "A"}).run()
    summary = summarise(record, root="/d")
    size = sum(p.stat().st_size for p in tmp_path.glob("*.parquet"))
    assert summary == {
        "dir": "/d",
        "run_id": record.run_id,
        "rows": 83,
        "files": 3,
        "bytes": size,
        "gaps": 2,
        "filtered": 164,
        "undecodable": 1,
        "queues": [
            {
                "broker_name": "broker-a",
                "queue_id": 0,
                "from": 0,
                "to": 250,
                "rows": 83,
                "filtered": 164,
                "undecodable": 1,
                "gaps": [{"from": 7, "to": 9, "reason": "missing"}],
            }
        ],
    }


def test_undecodable_messages_are_kept_in_one_side_file(tmp_path):
    cluster = MadeCluster({0: (0, 250)}, MadeSource(broken=frozenset({9, 150})))
    record = export_of(tmp_path, cluster).run()
    side = tmp_path / "_rmq" / "runs" / record.run_id / "undecodable.jsonl"
    lines = [json.loads(line) for line in side.read_text().splitlines()]
    assert len(lines) == 2
    assert {"broker_name", "queue_id", "queue_offset", "error", "raw_b64"} <= set(
        lines[0]
    )


def test_undecodable_messages_are_not_a_success_until_allowed(tmp_path):
    cluster = MadeCluster({0: (0, 250)}, MadeSource(broken=frozenset({9, 150})))
    record = export_of(tmp_path, cluster).run()
    assert not record.is_accepted
    assert not (tmp_path / "_SUCCESS").exists()
    runner = InlineRunner()
    # Allowing gaps does not allow undecodable messages.
    gaps = export_of(tmp_path, cluster, allow_gaps=True, runner=runner).run()
    assert not gaps.is_accepted
    assert not (tmp_path / "_SUCCESS").exists()
    again = export_of(tmp_path, cluster, allow_undecodable=True, runner=runner).run()
    assert again.is_accepted
    assert runner.runs == []
    assert (tmp_path / "_SUCCESS").exists()
    assert export_of(tmp_path, cluster).run().is_accepted


def test_empty_topic_is_a_finished_export_without_spark(tmp_path):
    runner = InlineRunner()
    record = export_of(tmp_path, MadeCluster({0: (7, 7)}), runner=runner).run()
    assert summarise(record, root="/d")["rows"] == 0
    assert runner.runs == []
    assert (tmp_path / "_SUCCESS").exists()


@pytest.mark.parametrize(
    ("partition_by", "folder"),
    [
        ("none", ""),
        ("queue", "broker=broker-a/queue=0/"),
        ("date", "dt=2025-10-09/"),
        ("hour", "dt=2025-10-09/hour=08/"),
    ],
)
@pytest.mark.parametrize("tag", [None, "none has it"])
def test_an_export_without_a_row_is_an_empty_file_with_the_columns(
    tmp_path, partition_by, folder, tag
):
    """DuckDB cannot read a folder without files, and no reader would know its
    columns."""
    queues = {0: (7, 7)} if tag is None else {0: (7, 40)}
    request = {"partition_by": partition_by, "tag": tag}
    record = export_of(tmp_path, MadeCluster(queues), request=request).run()
    name = f"{folder}orders.broker-a.q0.{7:020d}-{7:020d}.parquet"
    assert [path for path, _ in record.files()] == [name]
    summary = summarise(record, root="/d")
    assert (summary["rows"], summary["files"]) == (0, 1)
    assert summary["bytes"] == (tmp_path / name).stat().st_size
    with_keys = pa.dataset.dataset(tmp_path, format="parquet", partitioning="hive")
    assert with_keys.count_rows() == 0
    assert with_keys.schema.names[:4] == [
        "topic", "broker_name", "queue_id", "queue_offset",
    ]  # fmt: skip
    # The file stays when later runs have rows, and no other empty file is written.
    export_of(tmp_path, MadeCluster({0: (7, 40)}), since_last=True).run()
    again = MadeCluster({0: (7, 50)})
    export_of(tmp_path, again, since_last=True).run()
    assert (tmp_path / name).exists()


@pytest.mark.parametrize(
    ("before", "now", "words"),
    [
        (None, "A", "any tag up to where the last run ended, so messages with the tag"),
        (
            "A",
            "B",
            "the tag A up to where the last run ended, so messages with the tag",
        ),
        ("A", "*", "so messages with any tag cannot be exported from there on"),
    ],
)
def test_a_run_that_continues_with_another_tag_is_refused(tmp_path, before, now, words):
    """What the first run had left out was then missing, and nothing said so."""
    export_of(tmp_path, MadeCluster({0: (0, 40)}), request={"tag": before}).run()
    more = MadeCluster({0: (0, 50)})
    with pytest.raises(RefusedError, match=words) as caught:
        export_of(
            tmp_path,
            more,
            since_last=True,
            request={"tag": now},
            given=frozenset({"tag"}),
        ).run()
    assert caught.value.exit_code == 7
    assert str(caught.value.hint).endswith("into an empty folder")


@pytest.mark.parametrize(("before", "now"), [("A || B", "B||A"), (None, "*")])
def test_a_run_may_continue_with_the_same_tags(tmp_path, before, now):
    export_of(tmp_path, MadeCluster({0: (0, 40)}), request={"tag": before}).run()
    more = MadeCluster({0: (0, 50)})
    record = export_of(
        tmp_path,
        more,
        since_last=True,
        request={"tag": now},
        given=frozenset({"tag"}),
    ).run()
    assert [(q.start, q.end) for q in record.queues] == [(40, 50)]


def test_second_run_of_the_same_does_nothing(tmp_path):
    first = export_of(tmp_path, MadeCluster(QUEUES)).run()
    before = {p: p.stat().st_mtime_ns for p in tmp_path.glob("*.parquet")}
    runner, report = InlineRunner(), SilentReport()
    more = MadeCluster({0: (0, 9000)})
    again = export_of(tmp_path, more, runner=runner, report=report).run()
    assert again == first
    assert runner.runs == []
    [said] = report.infos
    assert said == (
        f"run {first.run_id} is finished: nothing to do; since_last=True exports the"
        " messages that came later"
    )
    assert {p: p.stat().st_mtime_ns for p in tmp_path.glob("*.parquet")} == before


@pytest.mark.parametrize("stop_after", range(7))
def test_interrupted_run_is_finished_by_resume(tmp_path, stop_after):
    """Ctrl-C at any part removes temporary files and keeps finished ones."""
    report = SilentReport()
    with pytest.raises(KeyboardInterrupt):
        export_of(
            tmp_path,
            MadeCluster(QUEUES),
            runner=InlineRunner(stop_after),
            report=report,
        ).run() if stop_after < 6 else _interrupt()
    if stop_after < 6:
        assert report.is_planned
        assert len(list(tmp_path.glob("*.parquet"))) == stop_after
        assert not (tmp_path / "_SUCCESS").exists()
        assert not (tmp_path / "_rmq" / "tmp").exists()
    runner = InlineRunner()
    grown = MadeCluster({0: (0, 5000), 1: (120, 5000)})
    resume = stop_after < 6
    record = export_of(
        tmp_path, grown if resume else MadeCluster(QUEUES), runner=runner, resume=resume
    ).run()
    assert runner.runs == [list(range(stop_after if resume else 0, 6))]
    assert offsets_in(tmp_path) == expected(QUEUES)
    assert sum(part.rows for part in record.parts) == 490


def _interrupt():
    raise KeyboardInterrupt


def test_same_request_again_continues_an_interrupted_run(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        export_of(tmp_path, MadeCluster(QUEUES), runner=InlineRunner(2)).run()
    report = SilentReport()
    export_of(tmp_path, MadeCluster({0: (0, 5000)}), report=report).run()
    assert report.infos[0].startswith("continuing run ")
    assert offsets_in(tmp_path) == expected(QUEUES)


@pytest.mark.parametrize("change", [{"request": {"tag": "A"}}, {"since_last": True}])
def test_other_request_is_refused_while_a_run_is_unfinished(tmp_path, change):
    with pytest.raises(KeyboardInterrupt):
        export_of(tmp_path, MadeCluster(QUEUES), runner=InlineRunner(2)).run()
    with pytest.raises(RefusedError, match="holds the unfinished run") as caught:
        export_of(tmp_path, MadeCluster(QUEUES), **change).run()
    assert caught.value.hint == "finish that run first, with resume=True"


@pytest.mark.parametrize("damage", ["cut", "gone", "other"])
def test_resume_writes_again_what_does_not_match_its_record(tmp_path, damage):
    with pytest.raises(KeyboardInterrupt):
        export_of(tmp_path, MadeCluster(QUEUES), runner=InlineRunner(3)).run()
    victim = min(tmp_path.glob("*.parquet"))
    if damage == "cut":
        os.truncate(victim, victim.stat().st_size - 1)
        # A damaged file has no footer that identifies it as ours.
        victim.unlink()
    elif damage == "gone":
        victim.unlink()
    else:
        os.replace(max(tmp_path.glob("*.parquet")), victim)
    runner = InlineRunner()
    export_of(tmp_path, MadeCluster(QUEUES), runner=runner, resume=True).run()
    assert 0 in runner.runs[0]
    assert offsets_in(tmp_path) == expected(QUEUES)


def test_resume_of_nothing_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="nothing to resume"):
        export_of(tmp_path, MadeCluster(QUEUES), resume=True).run()
    with pytest.raises(UsageError, match="is not a folder"):
        export_of(tmp_path / "not-there", MadeCluster(QUEUES), resume=True).run()
    assert not (tmp_path / "not-there").exists()


def test_resume_of_a_finished_run_does_nothing(tmp_path):
    first = export_of(tmp_path, MadeCluster(QUEUES)).run()
    assert export_of(tmp_path, MadeCluster(QUEUES), resume=True).run() == first


def test_since_last_begins_where_each_queue_ended(tmp_path):
    export_of(tmp_path, MadeCluster(QUEUES)).run()
    grown = {0: (0, 420), 1: (130, 260), 2: (40, 45), 3: (0, 20)}
    record = export_of(tmp_path, MadeCluster(grown), since_last=True).run()
    assert [(q.queue_id, q.start, q.end) for q in record.queues] == [
        (0, 350, 420),
        (1, 260, 260),
        (2, 40, 45),
        (3, 0, 20),
    ]
    assert offsets_in(tmp_path) == expected({**grown, 1: (120, 260)})


def test_since_last_misses_the_first_messages_of_a_queue_that_was_added(tmp_path):
    """They came after the last run, and the broker removed them before this one."""
    export_of(tmp_path, MadeCluster({0: (0, 100)})).run()
    added = MadeCluster({0: (0, 100), 1: (10, 20)})
    with pytest.raises(PartialError) as caught:
        export_of(tmp_path, added, since_last=True).run()
    assert caught.value.message == (
        "broker-a queue 1 has lost offsets 0 to 9 since the last run"
    )
    record = export_of(tmp_path, added, since_last=True, allow_gaps=True).run()
    assert [(g.queue_id, g.start, g.end, g.reason) for g in record.gaps()] == [
        (1, 0, 10, "trimmed")
    ]


def test_since_last_of_chosen_queues_takes_another_one_as_it_is(tmp_path):
    """Earlier runs were not asked for it, so nothing of it is missing since then."""
    first = {"queues": ("0",)}
    export_of(tmp_path, MadeCluster({0: (0, 100)}), request=first).run()
    both = MadeCluster({0: (0, 110), 1: (10, 20)})
    record = export_of(
        tmp_path,
        both,
        since_last=True,
        given=frozenset({"queues"}),
        request={"queues": ("0", "1")},
    ).run()
    assert [(q.start, q.end, q.trimmed) for q in record.queues] == [
        (100, 110, None),
        (10, 20, None),
    ]


def test_since_last_with_nothing_new_leaves_no_run_behind(tmp_path):
    export_of(tmp_path, MadeCluster(QUEUES)).run()
    before = files_below(tmp_path)
    record = export_of(tmp_path, MadeCluster(QUEUES), since_last=True).run()
    assert summarise(record, root="/d")["rows"] == 0
    assert files_below(tmp_path) == before


def test_since_last_stops_when_messages_were_lost(tmp_path):
    export_of(tmp_path, MadeCluster({0: (0, 100)})).run()
    trimmed = MadeCluster({0: (150, 200)})
    with pytest.raises(PartialError, match="lost offsets 100 to 149") as caught:
        export_of(tmp_path, trimmed, since_last=True).run()
    assert caught.value.hint == "export what is left with allow_gaps=True"
    assert offsets_in(tmp_path) == expected({0: (0, 100)})
    record = export_of(tmp_path, trimmed, since_last=True, allow_gaps=True).run()
    assert [(g.start, g.end, g.reason) for g in record.gaps()] == [
        (100, 150, "trimmed")
    ]
    assert record.gaps_allowed


def test_since_last_names_a_queue_that_left_the_route(tmp_path):
    export_of(tmp_path, MadeCluster(QUEUES)).run()
    left = MadeCluster({0: (0, 400)})
    with pytest.raises(PartialError, match="queue 1 is no longer in the route"):
        export_of(tmp_path, left, since_last=True).run()
    record = export_of(tmp_path, left, since_last=True, allow_gaps=True).run()
    assert summarise(record, root="/d")["gaps"] is None
    # The gap was accepted once, so later runs do not report it again.
    export_of(tmp_path, MadeCluster({0: (0, 410)}), since_last=True).run()


def test_a_queue_that_left_the_route_is_named_again_when_it_has_been_back(tmp_path):
    export_of(tmp_path, MadeCluster({0: (0, 10), 1: (0, 10)})).run()
    left = MadeCluster({0: (0, 10)})
    export_of(tmp_path, left, since_last=True, allow_gaps=True).run()
    back = MadeCluster({0: (0, 10), 1: (0, 20)})
    export_of(tmp_path, back, since_last=True).run()
    with pytest.raises(PartialError, match="queue 1 is no longer in the route; it was"):
        export_of(tmp_path, left, since_last=True).run()


def test_since_last_refuses_a_topic_that_was_created_again(tmp_path):
    export_of(tmp_path, MadeCluster({0: (0, 100)})).run()
    with pytest.raises(
        RefusedError, match="ends at offset 10, but was exported up to 100"
    ):
        export_of(tmp_path, MadeCluster({0: (0, 10)}), since_last=True).run()


def test_since_last_needs_a_finished_run(tmp_path):
    with pytest.raises(UsageError, match="no finished export"):
        export_of(tmp_path, MadeCluster(QUEUES), since_last=True).run()


def test_trimmed_start_is_a_gap_without_success_until_allowed(tmp_path):
    cluster = MadeCluster({0: (60, 100)})
    request = {"from_position": "0"}
    record = export_of(tmp_path, cluster, request=request).run()
    assert [(g.start, g.end, g.reason) for g in record.gaps()] == [(0, 60, "trimmed")]
    assert not record.gaps_allowed
    assert not (tmp_path / "_SUCCESS").exists()
    again = export_of(tmp_path, cluster, request=request, allow_gaps=True).run()
    assert again.gaps_allowed
    assert (tmp_path / "_SUCCESS").exists()


def test_a_later_run_does_not_hide_that_an_earlier_one_lacks_messages(tmp_path):
    """`rmq import` and other readers take the mark for that of the whole export."""
    request = {"from_position": "0"}
    first = export_of(tmp_path, MadeCluster({0: (60, 100)}), request=request).run()
    assert not first.is_accepted
    grown, report = MadeCluster({0: (60, 120)}), SilentReport()
    later = export_of(tmp_path, grown, since_last=True, report=report).run()
    assert later.is_accepted
    assert not (tmp_path / "_SUCCESS").exists()
    assert str(report.infos[-1]) == (
        f"run {first.run_id} lacks messages, so the export is not marked as complete;"
        " accept that with resume=True and allow_gaps=True"
    )
    again = export_of(tmp_path, grown, resume=True, allow_gaps=True).run()
    assert again.run_id == later.run_id
    assert (tmp_path / "_SUCCESS").exists()
    assert offsets_in(tmp_path) == expected({0: (60, 120)})


def test_the_note_of_an_earlier_run_says_what_is_to_be_accepted(tmp_path):
    """Its gap is accepted already, and what could not be decoded is not."""
    broken = MadeSource(broken=frozenset({70}))
    trimmed = MadeCluster({0: (60, 100)}, broken)
    request = {"from_position": "0"}
    export_of(tmp_path, trimmed, request=request, allow_gaps=True).run()
    report = SilentReport()
    grown = MadeCluster({0: (60, 120)})
    later = export_of(tmp_path, grown, since_last=True, report=report).run()
    assert str(report.infos[-1]).endswith("with resume=True and allow_undecodable=True")
    again = export_of(tmp_path, grown, resume=True, allow_undecodable=True).run()
    assert again == later
    assert (tmp_path / "_SUCCESS").exists()


def test_overlap_with_a_finished_run_is_refused(tmp_path):
    export_of(tmp_path, MadeCluster(QUEUES)).run()
    with pytest.raises(RefusedError, match="queue 0 offsets 300 to 350 have already"):
        export_of(
            tmp_path, MadeCluster({0: (0, 400)}), request={"from_position": "300"}
        ).run()


def test_other_topic_is_refused(tmp_path):
    export_of(tmp_path, MadeCluster(QUEUES)).run()
    with pytest.raises(RefusedError, match="of topic orders, not payments"):
        export_of(tmp_path, MadeCluster(QUEUES), request={"topic": "payments"}).run()


@pytest.mark.parametrize("name", ["theirs.parquet", "dt=2025-01-01/x.parquet"])
def test_directory_with_foreign_parquet_is_left_alone(tmp_path, name):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(RefusedError, match="which rmq did not write"):
        export_of(tmp_path, MadeCluster(QUEUES)).run()
    assert files_below(tmp_path) == [name]


def test_foreign_success_is_left_alone(tmp_path):
    (tmp_path / "_SUCCESS").touch()
    with pytest.raises(RefusedError, match="that rmq did not write"):
        export_of(tmp_path, MadeCluster(QUEUES)).run()
    assert files_below(tmp_path) == ["_SUCCESS"]


def test_files_of_other_kinds_are_accepted(tmp_path):
    (tmp_path / "README.txt").write_text("mine")
    export_of(tmp_path, MadeCluster(QUEUES)).run()
    assert (tmp_path / "README.txt").read_text() == "mine"


def test_symlinked_meta_folder_is_refused(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    root = tmp_path / "root"
    root.mkdir()
    (root / "_rmq").symlink_to(outside)
    with pytest.raises(RefusedError, match="is a symbolic link or not a folder"):
        export_of(root, MadeCluster(QUEUES)).run()
    assert list(outside.iterdir()) == []


def test_a_second_export_at_the_same_time_is_refused(tmp_path):
    export_of(tmp_path, MadeCluster(QUEUES)).run()
    with open(tmp_path / "_rmq" / "lock", "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(RefusedError, match=r"another export .* is running"):
            export_of(tmp_path, MadeCluster(QUEUES)).run()


def test_path_that_is_a_file_is_a_usage_error(tmp_path):
    path = tmp_path / "file"
    path.touch()
    with pytest.raises(UsageError, match="is not a folder"):
        export_of(path, MadeCluster(QUEUES)).run()


def test_a_damaged_manifest_is_named_and_nothing_is_written(tmp_path):
    export_of(tmp_path, MadeCluster(QUEUES)).run()
    (tmp_path / "_rmq" / "manifest.json").write_text("{")
    with pytest.raises(ConfigError, match=r"manifest\.json is not an export manifest"):
        export_of(tmp_path, MadeCluster(QUEUES)).run()


def test_lost_broker_leaves_a_run_that_can_be_resumed(tmp_path):
    queues = {0: (0, 350)}
    broken = MadeCluster(queues, MadeSource(fail_at=250))
    with pytest.raises(PartialError, match="1 of 4 parts could not be written"):
        export_of(tmp_path, broken).run()
    export_of(tmp_path, MadeCluster(queues), resume=True).run()
    assert offsets_in(tmp_path) == expected(queues)


def test_when_no_part_could_be_read_the_error_is_that_of_the_broker(tmp_path):
    broken = MadeCluster({0: (0, 50)}, MadeSource(fail_at=0))
    with pytest.raises(DisconnectedError, match="the broker went away") as caught:
        export_of(tmp_path, broken).run()
    assert caught.value.hint == ""  # not TLS: the plan was made without it


def test_a_folder_that_cannot_be_made_is_an_rmq_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RmqError):
        export_of(tmp_path / "file" / "below", MadeCluster(QUEUES)).run()
