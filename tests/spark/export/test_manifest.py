"""The proof that an export is complete: its parts, its runs and where they end."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqcli.errors import ConfigError, PartialError
from rmqcli.spark.export.manifest import (
    FileRow,
    Gap,
    Manifest,
    PartResult,
    RunRecord,
    finish_run,
    manifest_from_json,
    manifest_to_json,
    part_from_json,
    part_to_json,
)
from rmqcli.spark.export.plan import ExportPlan, ExportRequest, PartSpec
from rmqcli.spark.extent import QueueRange
from tests.kit.rows import each_row

REQUEST = ExportRequest(
    topic="orders", from_position="earliest", to_position="latest", rows_per_file=100
)
PART = PartSpec(3, "broker-a", 2, 100, 200)


def file_row(rows=90, path="f.parquet"):
    return FileRow(
        path=path, start=100, end=200, rows=rows, first_offset=100, last_offset=199,
        file_bytes=7, first_store_timestamp_ms=1, last_store_timestamp_ms=2,
        body_crc32=9,
    )  # fmt: skip


#: 90 rows in two files, 4 filtered, 3 undecodable, 3 missing: 100 offsets.
RESULT = PartResult(
    index=3, broker_name="broker-a", queue_id=2, start=100, end=200, rows=90,
    filtered=4, undecodable=3, missing=((110, 112), (150, 151)),
    files=(file_row(60), file_row(30, "g.parquet")),
)  # fmt: skip


def queue(start, end, *, queue_id=0, broker_name="broker-a", trimmed=None):
    return QueueRange(
        broker_name=broker_name, queue_id=queue_id, start=start, end=end,
        min_offset=0, max_offset=1000, trimmed=trimmed,
    )  # fmt: skip


def run(run_id, *queues, parts=(), gone=()):
    return RunRecord(
        run_id=run_id, finished_at_ms=5, request=REQUEST, queues=queues, parts=parts,
        gone=gone,
    )  # fmt: skip


def test_a_part_that_adds_up_is_taken():
    RESULT.check(PART)
    assert RESULT.missing_count == 3


@each_row(
    "change",
    [
        {"rows": 89},
        {"rows": 91},
        {"filtered": 3},
        {"filtered": 5},
        {"undecodable": 2},
        {"undecodable": 4},
        {"missing": ((110, 112),)},
        {"missing": ((110, 112), (150, 152))},
        {"missing": ()},
        # The sums are right, but the files have fewer rows.
        {"files": (file_row(60),)},
        {"files": (file_row(60), file_row(31, "g.parquet"))},
        {"files": ()},
        {"rows": 91, "filtered": 3},
        {"rows": 89, "undecodable": 4},
    ],
)
def test_a_part_that_does_not_add_up_is_refused_with_its_numbers(change):
    with pytest.raises(PartialError, match="part 3 of broker-a queue 2 does not add"):
        replace(RESULT, **change).check(PART)


@pytest.mark.parametrize(
    "change",
    [{"index": 4}, {"broker_name": "b"}, {"queue_id": 1}, {"start": 99}, {"end": 201}],
)
def test_the_record_of_another_part_is_refused(change):
    with pytest.raises(PartialError, match="the record of part"):
        replace(RESULT, **change).check(PART)


PLAN = ExportPlan(
    run_id="r1", created_at_ms=1, request=REQUEST, queues=(queue(0, 150),)
)


def written(index, start, end):
    rows = end - start
    return PartResult(
        index=index, broker_name="broker-a", queue_id=0, start=start, end=end,
        rows=rows, filtered=0, undecodable=0, missing=(), files=(file_row(rows),),
    )  # fmt: skip


def test_a_run_has_its_parts_in_the_order_of_the_plan():
    results = [written(1, 100, 150), written(0, 0, 100)]
    record = finish_run(PLAN, results, finished_at_ms=7)
    assert [part.index for part in record.parts] == [0, 1]
    assert (record.run_id, record.finished_at_ms) == ("r1", 7)
    assert (record.queues, record.gone, record.gaps_allowed) == (PLAN.queues, (), False)


@pytest.mark.parametrize(
    ("results", "words"),
    [
        ([], "part 0 of 2 was not written"),
        ([written(0, 0, 100)], "part 1 of 2 was not written"),
        ([written(0, 0, 100)] * 2, "part 0 was written twice"),
        ([written(0, 0, 100), written(1, 100, 149)], "the record of part"),
        (
            [written(0, 0, 100), replace(written(1, 100, 150), filtered=1)],
            "does not add up",
        ),
    ],
)
def test_a_run_without_all_its_parts_is_not_finished(results, words):
    with pytest.raises(PartialError, match=words):
        finish_run(PLAN, results, finished_at_ms=7)


def test_the_next_run_begins_at_the_highest_end_whatever_the_order_of_runs():
    runs = (
        run("r1", queue(200, 300), queue(50, 60, queue_id=1)),
        run("r2", queue(0, 100), queue(60, 60, queue_id=1)),
        run("r3", queue(0, 5, broker_name="broker-b")),
    )
    assert Manifest("orders", runs).ends() == {
        ("broker-a", 0): 300,
        ("broker-a", 1): 60,
        ("broker-b", 0): 5,
    }


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ((0, 100), None),
        ((200, 250), None),
        ((100, 100), None),
        ((150, 150), None),
        (
            (99, 101),
            "broker-a queue 0 offsets 100 to 101 have already been exported by run r1",
        ),
        ((199, 300), "broker-a queue 0 offsets 199 to 200 have already been exported"),
        ((120, 130), "broker-a queue 0 offsets 120 to 130 have already been exported"),
        ((0, 1000), "broker-a queue 0 offsets 100 to 200 have already been exported"),
    ],
)
def test_only_ranges_that_share_an_offset_overlap(asked, words):
    manifest = Manifest("orders", (run("r1", queue(100, 200)),))
    found = manifest.overlap([queue(*asked)])
    assert (found is None) == (words is None)
    assert words is None or words in (found or "")


def test_queues_of_other_ids_and_brokers_do_not_overlap():
    manifest = Manifest("orders", (run("r1", queue(100, 200)),))
    others = [queue(100, 200, queue_id=1), queue(100, 200, broker_name="broker-b")]
    assert manifest.overlap(others) is None


def test_a_run_replaces_the_same_run():
    first, second = run("r1", queue(0, 1)), run("r2", queue(1, 2))
    manifest = Manifest("orders", (first, second))
    again = replace(first, gaps_allowed=True)
    assert manifest.with_runs([again]) == Manifest("orders", (again, second))
    third = run("r3", queue(2, 3))
    assert manifest.with_runs([third, again]).runs == (again, second, third)
    assert manifest.run_ids() == {"r1", "r2"}
    assert manifest.run("r2") is second
    assert manifest.run("r3") is None


def test_gaps_are_listed_in_order_of_queue_and_offset():
    gone = Gap(broker_name="broker-a", queue_id=9, start=4, end=None, reason="gone")
    record = run(
        "r1",
        queue(50, 200, queue_id=2, trimmed=(10, 50)),
        parts=(RESULT,),
        gone=(gone,),
    )
    found = [(g.queue_id, g.start, g.end, g.reason) for g in record.gaps()]
    assert found == [
        (2, 10, 50, "trimmed"),
        (2, 110, 112, "missing"),
        (2, 150, 151, "missing"),
        (9, 4, None, "gone"),
    ]


def test_what_is_missing_in_several_parts_is_one_gap():
    """A queue of a lost broker is one line, no matter how many parts it has."""
    whole = replace(RESULT, rows=0, filtered=0, undecodable=0, files=())
    parts = [
        replace(whole, index=0, start=0, end=100, missing=((40, 100),)),
        replace(whole, index=1, start=100, end=200, missing=((100, 200),)),
        replace(whole, index=2, start=200, end=300, missing=((200, 201), (299, 300))),
        # A gap of another queue, which begins where the previous gap ends.
        replace(whole, index=3, queue_id=3, start=300, end=400, missing=((300, 400),)),
    ]
    plan = queue(40, 300, queue_id=2, trimmed=(0, 40))
    record = run("r1", plan, parts=tuple(parts))
    assert [(g.queue_id, g.start, g.end, g.reason) for g in record.gaps()] == [
        (2, 0, 40, "trimmed"),
        (2, 40, 201, "missing"),
        (2, 299, 300, "missing"),
        (3, 300, 400, "missing"),
    ]


def test_records_are_read_back_from_their_files():
    gone = Gap(broker_name="b", queue_id=9, start=4, end=None, reason="gone")
    record = run("r1", queue(50, 200, trimmed=(1, 50)), parts=(RESULT,), gone=(gone,))
    manifest = Manifest("orders", (replace(record, gaps_allowed=True),))
    assert manifest_from_json(manifest_to_json(manifest), path="p") == manifest
    assert part_from_json(part_to_json(RESULT)) == RESULT
    assert part_to_json(RESULT).count("\n") == 1


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "7", '{"version": 2, "topic": "t", "runs": []}',
             '{"version": 1, "topic": "t", "runs": [{}]}', '{"version": 1}'],
)  # fmt: skip
def test_a_file_that_is_not_a_manifest_is_named(text):
    with pytest.raises(ConfigError, match="the-path"):
        manifest_from_json(text, path="the-path")


def hostile(draw, value):
    """A JSON value with one part replaced by another value."""
    other = draw(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.sampled_from(["", "\0", "\ud800", "../x", "x" * 400])
        | st.builds(list)
        | st.builds(dict)
        | st.just([[[]]])
        | st.just({"\0": 1})
    )
    if not isinstance(value, dict | list) or not value or draw(st.integers(0, 4)) == 0:
        return other
    copy = value.copy()
    keys = sorted(copy) if isinstance(copy, dict) else range(len(copy))
    key = draw(st.sampled_from(keys))
    copy[key] = hostile(draw, copy[key])
    return copy


@given(st.data())
def test_a_manifest_with_any_value_of_another_kind_is_refused(data):
    record = run("r1", queue(50, 200, trimmed=(1, 50)), parts=(RESULT,))
    text = manifest_to_json(Manifest("orders", (record,)))
    changed = json.dumps(hostile(data.draw, json.loads(text)))
    try:
        manifest = manifest_from_json(changed, path="the-path")
    except ConfigError as error:
        message = error.message
    else:
        message = "the-path "
        written = manifest_to_json(manifest)
        assert manifest_from_json(written, path="p") == manifest
    assert message.startswith("the-path ")
    assert not re.search("[\0\ud800-\udfff]", message)
    assert len(message) < 500


@pytest.mark.parametrize("name", ["compression", "partition_by"])
def test_a_long_text_in_a_manifest_is_not_repeated_in_full(name):
    manifest = json.loads(manifest_to_json(Manifest("orders", (run("r1"),))))
    settings = manifest["runs"][0]["request"]
    assert name in settings
    settings[name] = "x" * 600
    with pytest.raises(ConfigError) as caught:
        manifest_from_json(json.dumps(manifest), path="the-path")
    assert len(caught.value.message) < 300


@pytest.mark.parametrize(
    "text",
    [
        "[" * 300_000,
        '{"version": ' + "[" * 300_000 + "]" * 300_000 + "}",
        '{"version": 1, "topic": "a\\u0000b", "runs": []}',
        '{"version": 1, "topic": "a\\ud800b", "runs": []}',
        '{"version": 1, "topic": "t", "runs": [], "\\u0000": 1}',
        '{"version": 1, "topic": 5, "runs": []}',
        '{"version": 1, "topic": "t", "runs": 1e999}',
        '{"version": 1, "topic": "t", "runs": ' + "9" * 5_000 + "}",
    ],
    ids=range(8),
)
def test_a_hostile_manifest_is_refused_in_a_line(text):
    with pytest.raises(ConfigError) as caught:
        manifest_from_json(text, path="the-path")
    assert caught.value.message.startswith("the-path is not an export manifest: ")
    assert len(caught.value.message) < 400
    assert "\0" not in caught.value.message


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"missing": [], "files": [7]}'])
def test_a_text_that_is_not_a_part_record_is_a_value_error(text):
    with pytest.raises(ValueError, match=r"."):
        part_from_json(text)


def test_the_version_of_a_manifest_is_one():
    assert '"version": 1' in manifest_to_json(Manifest("orders"))
