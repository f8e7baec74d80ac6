"""`rmq import` on the embedded cluster: round trips, refusals, and continuation."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

from rmqcli.broker import faults
from rmqcli.cli.main import run
from rmqcli.position import AtOffset
from rmqcli.spark.export.disk import walk_files
from rmqcli.testing import Seed
from rmqcli.wire.codes import RequestCode
from tests.kit.wiped import wiped
from tests.producer.stored import bodies, stored
from tests.spark.export.inline import InlineRunner
from tests.spark.imports.exported import essence, export, seeds

BATCH = RequestCode.SEND_BATCH_MESSAGE


@pytest.fixture
def rmq(capfd):
    """Run `rmq` in this process; returns exit code, stdout, stderr."""

    def run_it(*arguments):
        code = run([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return code, out, err

    return run_it


@pytest.fixture
def cluster(rmq_cluster_factory):
    cluster = rmq_cluster_factory(queues=4)
    cluster.create_topic("orders", queues=4)
    cluster.create_topic("copy", queues=4)
    return cluster


def import_(rmq, cluster, path, *arguments, topic="copy", code=0):
    """Run an import; return its summary and stderr."""
    found, out, err = rmq(
        "import", topic, "--from-parquet", path, "-n", cluster.namesrv, "-o", "json",
        "--timeout", "5m",  # a batch is sent again after the timeout
        *arguments,
    )  # fmt: skip
    assert found == code, err
    return json.loads(out) if out else None, err


@pytest.mark.slow
@pytest.mark.parametrize("partition_by", ["none", "queue", "hour"])
def test_the_round_trip_gives_equal_messages(rmq, cluster, tmp_path, partition_by):
    cluster.send("orders", seeds(2_000))
    path = export(
        cluster.namesrv,
        "orders",
        tmp_path / "out",
        rows_per_file=200,
        partition_by=partition_by,
    )
    summary, _ = import_(rmq, cluster, path)
    assert (summary["messages"], summary["sent"], summary["before"]) == (
        2_000,
        2_000,
        0,
    )
    assert [(q["queue_id"], q["to_queue_id"]) for q in summary["queues"]] == [
        (n, n) for n in range(4)
    ]
    again = export(cluster.namesrv, "copy", tmp_path / "again")
    assert essence(again) == essence(path)
    assert sum(map(len, essence(again).values())) == 2_000


def test_a_second_run_does_nothing(rmq, cluster, tmp_path):
    cluster.send("orders", seeds(30))
    path = export(cluster.namesrv, "orders", tmp_path / "out")
    assert import_(rmq, cluster, path)[1] == "30 messages sent to copy\n"
    summary, err = import_(rmq, cluster, path)
    assert (summary["before"], summary["sent"]) == (30, 0)
    assert err == (
        "nothing to do: earlier runs sent everything, 30 messages; to send it again,"
        f" remove {summary['state']}\n"
    )
    assert len(stored(cluster, "copy")) == 30
    os.remove(summary["state"])
    import_(rmq, cluster, path)
    assert len(stored(cluster, "copy")) == 60


def test_a_second_import_sends_only_what_a_later_run_exported(rmq, cluster, tmp_path):
    cluster.send("orders", seeds(30))
    path = export(cluster.namesrv, "orders", tmp_path / "out")
    import_(rmq, cluster, path)
    cluster.send("orders", seeds(10, first=30))
    export(cluster.namesrv, "orders", path, since_last=True, from_position="since-last")
    summary, err = import_(rmq, cluster, path)
    assert (summary["before"], summary["sent"]) == (30, 10)
    assert err == (
        "continuing: 30 of 40 messages have been sent; up to one batch after them may"
        " be sent twice\n"
        "10 messages sent to copy\n"
    )
    again = export(cluster.namesrv, "copy", tmp_path / "again")
    assert essence(again) == essence(path)


def test_a_topic_that_is_not_there_is_created_as_the_hint_says(rmq, cluster, tmp_path):
    cluster.send("orders", seeds(30))
    path = export(cluster.namesrv, "orders", tmp_path / "out")
    _, err = import_(rmq, cluster, path, topic="new", code=3)
    error = json.loads(err)["error"]
    assert (error["message"], error["hint"]) == (
        "topic new does not exist",
        "create it with the export's queues: rmq topic create new --queues 4",
    )


def test_an_export_without_messages_sends_nothing(rmq, cluster, tmp_path):
    path = export(cluster.namesrv, "orders", tmp_path / "out")
    summary, err = import_(rmq, cluster, path)
    assert (summary["messages"], summary["sent"]) == (0, 0)
    assert err == "nothing to do: the export contains no messages\n"


def test_a_compacted_export_is_imported_like_the_original(rmq, cluster, tmp_path):
    """This also holds when a part of the export was sent before the compaction."""
    path = tmp_path / "out"
    for count in (200, 300, 400):
        cluster.send("orders", seeds(100, first=count))
        later = count > 200
        export(cluster.namesrv, "orders", path, rows_per_file=10, since_last=later)
        if count == 300:
            import_(rmq, cluster, path)
    assert rmq("export-compact", path)[0] == 0
    summary, _ = import_(rmq, cluster, path)
    assert (summary["messages"], summary["sent"], summary["before"]) == (300, 100, 200)
    journal = path / "_rmq" / "compact" / "journal.json"
    journal.parent.mkdir()
    journal.write_text('{"new": [], "old": [], "success": true}')
    _, err = import_(rmq, cluster, path, code=7)
    assert "has not finished" in err


@pytest.mark.slow
def test_a_failed_import_continues_where_it_stopped(rmq, cluster, tmp_path):
    cluster.send("orders", seeds(4_000))
    path = export(cluster.namesrv, "orders", tmp_path / "out")
    refusing = cluster.faults.add(faults.answer(13, "illegal"), code=BATCH, nth=4)
    _, err = import_(rmq, cluster, path, code=1)
    assert (
        "warning: not finished: 1,536 of 4,000 messages have been sent; the same"
        " command continues, and may send one batch twice\n"
    ) in err
    cluster.faults.remove(refusing)
    summary, err = import_(rmq, cluster, path)
    assert "up to one batch after them may be sent twice" in err
    assert (summary["before"], summary["sent"]) == (1_536, 2_464)
    again = export(cluster.namesrv, "copy", tmp_path / "again")
    assert essence(again) == essence(path)


def test_an_interrupt_says_how_to_continue(rmq, cluster, tmp_path):
    cluster.send("orders", seeds(4_000))
    path = export(cluster.namesrv, "orders", tmp_path / "out")
    seen = itertools.count(1)

    def interrupt(_):
        if next(seen) == 3:
            signal.raise_signal(signal.SIGINT)

    watching = cluster.faults.observe(code=BATCH, on_request=interrupt)
    _, err = import_(rmq, cluster, path, code=130)
    assert re.search(
        r"not finished: [\d,]+ of 4,000 messages have been sent; the same", err
    )
    cluster.faults.remove(watching)
    summary, _ = import_(rmq, cluster, path)
    assert summary["before"] in (1_024, 1_536)
    copy = essence(export(cluster.namesrv, "copy", tmp_path / "again"))
    for queue_id, rows in essence(path).items():
        assert {str(row) for row in rows} == {str(row) for row in copy[queue_id]}


@pytest.mark.slow
def test_a_batch_without_an_answer_may_be_stored_twice(rmq, cluster, tmp_path):
    cluster.send("orders", seeds(8))
    path = export(cluster.namesrv, "orders", tmp_path / "out")
    cluster.faults.next(faults.drop_answer(), code=BATCH)
    summary, err = import_(rmq, cluster, path, "--timeout", "2s")
    assert summary["unsure"] == 2
    assert "2 messages may be stored twice" in err
    assert len(stored(cluster, "copy")) == 10


def test_a_dry_run_sends_nothing(rmq, cluster, tmp_path):
    cluster.send("orders", seeds(8))
    path = export(cluster.namesrv, "orders", tmp_path / "out")
    summary, err = import_(rmq, cluster, path, "--dry-run")
    assert [(q["rows"], q["sent"]) for q in summary["queues"]] == [(2, 0)] * 4
    assert err == "8 of 8 messages would be sent to copy; nothing was sent\n"
    assert stored(cluster, "copy") == []
    assert not os.path.exists(summary["state"])


def test_fewer_queues_are_refused_unless_they_are_remapped(rmq, cluster, tmp_path):
    cluster.create_topic("small", queues=3)
    cluster.send("orders", seeds(400))
    path = export(cluster.namesrv, "orders", tmp_path / "out")
    _, err = import_(rmq, cluster, path, topic="small", code=7)
    assert (
        "the export has 4 queues on 1 broker, the topic has 3 queues on 1 broker" in err
    )
    assert "--remap-queues" in err
    summary, _ = import_(rmq, cluster, path, "--remap-queues", topic="small")
    assert [q["to_queue_id"] for q in summary["queues"]] == [0, 1, 2, 0]
    again = essence(export(cluster.namesrv, "small", tmp_path / "again"))
    origin = essence(path)
    assert again[1] == origin[1]
    assert sorted(map(str, again[0])) == sorted(map(str, origin[0] + origin[3]))
    for part in (origin[0], origin[3]):  # each queue's messages keep their order
        assert [row for row in again[0] if row in part] == part


@pytest.mark.slow
def test_remapped_messages_go_where_a_proxy_and_a_broker_look_for_them(
    rmq, cluster, rmq_cluster_factory, tmp_path
):
    """They went to any queue: the next messages of a group overtook those before."""
    cluster.create_topic("small", queues=3)
    for number in range(40):
        properties = {"__SHARDINGKEY": ("g0", "g3", "g4", "g5")[number % 4]}
        seed = Seed(body=b"%02d" % number, properties=properties)
        cluster.send("orders", [seed], queue_id=number % 4)
    for priority in range(5):
        seed = Seed(body=b"x", properties={"_SYS_MSG_PRIORITY_": str(priority)})
        cluster.send("orders", [seed], queue_id=3)
    cluster.send("orders", [b"x"] * 5, queue_id=3)
    path = export(cluster.namesrv, "orders", tmp_path / "out")
    summary, err = import_(rmq, cluster, path, "--remap-queues", topic="small")
    assert summary["sent"] == 50
    assert [q["sent"] for q in summary["queues"]] == [11, 11, 11, 17]
    assert err.endswith(
        "32 messages are in the queues of their message groups or priorities, not in"
        " those of the table\n"
    )
    places: dict[str, set[int]] = {}
    numbers: dict[str, list[int]] = {}
    again = export(cluster.namesrv, "small", tmp_path / "again")
    for queue_id, rows in essence(again).items():
        for body, _, _, _, properties in rows:
            group = properties.get("__SHARDINGKEY")
            name = group or properties.get("_SYS_MSG_PRIORITY_", "other")
            places.setdefault(name, set()).add(queue_id)
            if group:
                numbers.setdefault(group, []).append(int(body))
    assert places == {
        "g0": {0},
        "g3": {2},
        "g4": {1},
        "g5": {2},
        "0": {0},
        "1": {1},
        "2": {2},
        "3": {2},
        "4": {2},
        "other": {0},
    }
    assert numbers["g3"] == [1, 5, 9, 13, 17, 21, 25, 29, 33, 37]
    assert numbers["g5"] == [3, 7, 11, 15, 19, 23, 27, 31, 35, 39]
    _, err = import_(rmq, cluster, path, "--remap-queues", topic="small")
    assert "nothing to do: earlier runs sent everything, 50 messages" in err
    new = wiped(cluster, rmq_cluster_factory)
    new.create_topic("small", queues=3)
    new.send("small", [b"x"] * 16, queue_id=0)
    _, err = import_(rmq, new, path, "--remap-queues", topic="small", code=7)
    assert "small@broker-a:1 ends at 0, but the import has written up to 11" in err


def test_brokers_with_other_names_take_the_queues_of_the_same_id(
    rmq, rmq_cluster_factory, tmp_path
):
    two = rmq_cluster_factory(brokers=2, queues=2)
    two.create_topic("orders", queues=2)
    two.create_topic("copy", queues=2)
    two.send("orders", seeds(100))
    path = export(two.namesrv, "orders", tmp_path / "out")
    manifest = path / "_rmq" / "manifest.json"
    text = manifest.read_text()
    manifest.write_text(text.replace('"broker-a"', '"x"').replace('"broker-b"', '"y"'))
    summary, _ = import_(rmq, two, path)
    assert [
        (q["broker_name"], q["queue_id"], q["to_broker_name"], q["to_queue_id"])
        for q in summary["queues"]
    ] == [
        ("x", 0, "broker-a", 0),
        ("x", 1, "broker-a", 1),
        ("y", 0, "broker-b", 0),
        ("y", 1, "broker-b", 1),
    ]
    again = export(two.namesrv, "copy", tmp_path / "again")
    assert essence(again, by_broker=True) == essence(path, by_broker=True)


def test_an_unknown_topic_exits_3_and_names_the_needed_queues(rmq, cluster, tmp_path):
    cluster.send("orders", seeds(8))
    path = export(cluster.namesrv, "orders", tmp_path / "out")
    _, err = import_(rmq, cluster, path, topic="nowhere", code=3)
    hint = "rmq topic create nowhere --queues 4"
    assert hint in json.loads(err.splitlines()[-1])["error"]["hint"]


def test_a_folder_without_an_export_exits_2(rmq, cluster, tmp_path):
    for path in (tmp_path, tmp_path / "missing"):
        _, err = import_(rmq, cluster, path, code=2)
        assert "does not contain an export" in err


def test_an_unfinished_export_exits_7_unless_it_is_allowed(rmq, cluster, tmp_path):
    cluster.send("orders", seeds(40))
    path = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        export(cluster.namesrv, "orders", path, runner=InlineRunner(stop_after=1))
    _, err = import_(rmq, cluster, path, "--allow-incomplete", code=7)
    assert "is not complete: there is no _SUCCESS" in err
    done = export(cluster.namesrv, "orders", tmp_path / "done")
    cluster.send("orders", seeds(10))
    request = {"since_last": True, "from_position": "since-last"}
    runner = InlineRunner(stop_after=1)
    with pytest.raises(KeyboardInterrupt):
        export(cluster.namesrv, "orders", done, runner=runner, **request)
    _, err = import_(rmq, cluster, done, code=7)
    assert "--allow-incomplete" in err
    summary, _ = import_(rmq, cluster, done, "--allow-incomplete")
    assert summary["sent"] == 40


def test_a_file_that_differs_from_the_manifest_exits_6_and_sends_nothing(
    rmq, cluster, tmp_path
):
    cluster.send("orders", seeds(40))
    path = export(cluster.namesrv, "orders", tmp_path / "out")
    name = next(name for name in walk_files(str(path)) if name.endswith(".parquet"))
    table = pq.ParquetFile(path / name).read()
    pq.write_table(table.slice(1), path / name)
    _, err = import_(rmq, cluster, path, code=6)
    assert "is not the file that the export wrote there" in err
    os.remove(path / name)
    _, err = import_(rmq, cluster, path, code=6)
    assert stored(cluster, "copy") == []


def test_a_path_outside_the_export_folder_is_refused(rmq, cluster, tmp_path):
    cluster.send("orders", seeds(4))
    path = export(cluster.namesrv, "orders", tmp_path / "out")
    name = next(name for name in walk_files(str(path)) if name.endswith(".parquet"))
    manifest = path / "_rmq" / "manifest.json"
    manifest.write_text(manifest.read_text().replace(name, f"../{name}"))
    _, err = import_(rmq, cluster, path, code=2)
    assert "which is outside the export's folder" in err


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"orders"', '"or\\u0000ders"'),
        ('"orders"', '"or\\ud800ders"'),
        ("{", "[" * 300_000),
        ("{", "\udc80{"),
        ('"path": "', '"path": "\\u0000'),
        ('"path": "', '"path": "\\udcff'),
        ('"run_id": "', '"run_id": "../../'),
        ('"rows": ', '"rows": "x", "x": '),
        ('"file_bytes": ', '"file_bytes": 1e999, "x": '),
    ],
    ids=["nul", "surrogate", "brackets", "bytes", "path-nul", "path-surrogate",
         "run-id", "text", "infinity"],
)  # fmt: skip
def test_a_hostile_manifest_is_an_error_in_words_and_sends_nothing(
    rmq, cluster, tmp_path, old, new
):
    cluster.send("orders", seeds(4))
    path = export(cluster.namesrv, "orders", tmp_path / "out")
    manifest = path / "_rmq" / "manifest.json"
    text = manifest.read_text().replace(old, new)
    manifest.write_bytes(text.encode("utf-8", "surrogateescape"))
    _, err = import_(rmq, cluster, path, code=2)
    error = json.loads(err)["error"]
    assert error["kind"] == "ConfigError"
    assert error["message"].startswith(f"{manifest} ")
    assert len(error["message"]) < 500
    assert stored(cluster, "copy") == []


def test_the_state_of_another_cluster_is_refused(
    rmq, cluster, rmq_cluster_factory, tmp_path
):
    other = rmq_cluster_factory(queues=4)
    other.create_topic("copy", queues=4)
    cluster.send("orders", seeds(8))
    path = export(cluster.namesrv, "orders", tmp_path / "out")
    import_(rmq, cluster, path)
    _, err = import_(rmq, other, path, code=7)
    assert f"belongs to an import with name servers {cluster.namesrv}, not" in err
    assert "--state DIR" in err
    summary, _ = import_(rmq, other, path, "--state", tmp_path / "state")
    assert summary["sent"] == 8
    assert summary["state"].startswith(str(tmp_path / "state"))


def half_imported(rmq, cluster, path):
    """Import a part of 4,000 messages."""
    cluster.send("orders", seeds(4_000))
    path = export(cluster.namesrv, "orders", path)
    cluster.faults.add(faults.answer(13, "illegal"), code=BATCH, nth=5)
    _, err = import_(rmq, cluster, path, code=1)
    assert "2,048 of 4,000 messages have been sent" in err
    return path


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [[], ["--dry-run"]])
@pytest.mark.parametrize(
    ("count", "error"),
    [
        (0, "copy@broker-a:0 ends at 0, but the import has written up to 512: the"),
        (3_000, "copy@broker-a:0 has another message at offset 511 than the import"),
    ],
)
def test_an_import_does_not_go_on_into_a_topic_that_was_made_anew(
    rmq, cluster, rmq_cluster_factory, tmp_path, count, error, arguments
):
    """It sent the second half, and said that all was sent."""
    path = half_imported(rmq, cluster, tmp_path / "out")
    new = wiped(cluster, rmq_cluster_factory)
    new.create_topic("copy", queues=4)
    new.send("copy", seeds(count))
    _, err = import_(rmq, new, path, *arguments, code=7)
    assert error in err
    assert len(stored(new, "copy")) == count
    [state] = path.glob("_rmq/imports/*.json")
    assert f"remove {state} to send everything again" in err
    state.unlink()
    summary, _ = import_(rmq, new, path)
    assert summary["sent"] == 4_000


def test_an_import_ends_when_its_topic_is_made_anew_in_the_middle(
    rmq, cluster, tmp_path
):
    """It went on, and the next run knew a message of the new topic: all was sent."""
    cluster.send("orders", seeds(4_000))
    path = export(cluster.namesrv, "orders", tmp_path / "out")
    stored_first = {"msgId": "0" * 32, "queueId": "0", "queueOffset": "0"}
    cluster.faults.add(faults.answer(0, ext_fields=stored_first), code=BATCH, nth=5)
    _, err = import_(rmq, cluster, path, code=7)
    assert (
        "copy@broker-a:0 stored a message at offset 0, but the import has written up"
        " to 512: the topic was deleted and created again, or its broker has lost"
        " messages" in err
    )
    [state] = path.glob("_rmq/imports/*.json")
    assert f"remove {state} to send everything again" in err
    assert json.loads(state.read_text())["queues"][0]["last"]["queue_offset"] == 511


@pytest.mark.slow
def test_a_finished_import_into_a_topic_that_was_made_anew_is_not_nothing_to_do(
    rmq, cluster, rmq_cluster_factory, tmp_path
):
    cluster.send("orders", seeds(8))
    path = export(cluster.namesrv, "orders", tmp_path / "out")
    import_(rmq, cluster, path)
    new = wiped(cluster, rmq_cluster_factory)
    new.create_topic("copy", queues=4)
    _, err = import_(rmq, new, path, code=7)
    assert "copy@broker-a:0 ends at 0" in err


def test_a_topic_whose_broker_counts_late_is_waited_for(rmq, cluster, tmp_path):
    """A broker that was restarted has the messages, and counts them a moment later."""
    cluster.send("orders", seeds(8))
    path = export(cluster.namesrv, "orders", tmp_path / "out")
    import_(rmq, cluster, path)
    late = faults.answer(0, ext_fields={"offset": "1"})
    code = RequestCode.GET_MAX_OFFSET
    # For each of the four queues the first time.
    cluster.faults.add(late, code=code, topic="copy", times=4)
    summary, _ = import_(rmq, cluster, path)
    assert summary["sent"] == 0


@pytest.mark.slow
def test_queues_that_share_a_queue_are_recognized_by_its_last_message(
    rmq, cluster, rmq_cluster_factory, tmp_path
):
    cluster.create_topic("small", queues=3)
    cluster.send("orders", seeds(400))
    path = export(cluster.namesrv, "orders", tmp_path / "out")
    import_(rmq, cluster, path, "--remap-queues", topic="small")
    summary, err = import_(rmq, cluster, path, "--remap-queues", topic="small")
    assert (summary["sent"], "still the same" in err) == (0, False)
    new = wiped(cluster, rmq_cluster_factory)
    new.create_topic("small", queues=3)
    new.send("small", seeds(450))  # 150 a queue; the shared one has had 200
    _, err = import_(rmq, new, path, "--remap-queues", topic="small", code=7)
    assert "small@broker-a:0 ends at 150, but the import has written up to 200" in err


@pytest.mark.slow
def test_a_state_of_an_earlier_version_goes_on_with_a_note(
    rmq, cluster, rmq_cluster_factory, tmp_path
):
    """It has no messages, but how many there must be."""
    path = half_imported(rmq, cluster, tmp_path / "out")
    [state] = path.glob("_rmq/imports/*.json")
    document = json.loads(state.read_text())
    for queue in document["queues"]:
        del queue["last"]
    state.write_text(json.dumps(document))
    cluster.faults.clear()
    old = state.read_text()
    summary, err = import_(rmq, cluster, path)
    assert summary["sent"] == 1_952
    assert "nothing shows that these queues are still the same" in err
    state.write_text(old)
    new = wiped(cluster, rmq_cluster_factory)
    new.create_topic("copy", queues=4)
    _, err = import_(rmq, new, path, code=7)
    assert "copy@broker-a:0 ends at 0, but the import has written up to 512" in err


def test_an_import_goes_on_when_its_first_messages_have_expired(rmq, cluster, tmp_path):
    path = half_imported(rmq, cluster, tmp_path / "out")
    cluster.faults.clear()
    cluster.broker().trim("copy", 500)
    summary, err = import_(rmq, cluster, path)
    assert summary["sent"] == 1_952
    assert "still the same" not in err


def test_a_damaged_state_exits_2(rmq, cluster, tmp_path):
    cluster.send("orders", seeds(8))
    path = export(cluster.namesrv, "orders", tmp_path / "out")
    summary, _ = import_(rmq, cluster, path)
    with open(summary["state"], "w") as file:
        file.write("{")
    _, err = import_(rmq, cluster, path, code=2)
    assert "is not the state of an import" in err


def test_gaps_of_the_export_are_reported(rmq, cluster, tmp_path):
    cluster.send("orders", seeds(40))
    cluster.broker().trim("orders", 2)
    path = export(cluster.namesrv, "orders", tmp_path / "out", start=AtOffset(0))
    summary, err = import_(rmq, cluster, path)
    assert (
        "warning: topic orders: 8 messages of it are not in the export, because the"
        " broker had deleted them\n"
    ) in err
    assert (summary["messages"], summary["sent"]) == (32, 32)
    assert bodies(cluster, "copy") == bodies(cluster, "orders")


def test_the_error_for_an_unsupported_scheme_speaks_of_importing(rmq, tmp_path):
    code, _, err = rmq("import", "copy", "--from-parquet", "abfs://c/x")
    assert code == 2
    assert "rmq cannot read from abfs URLs, only from folders on this machine" in err


@pytest.mark.slow
def test_a_killed_import_loses_nothing(cluster, tmp_path):
    """SIGKILL is sent before each call to the disk, that is, after a batch is sent and
    while the state is written. Each kill may repeat one batch."""
    cluster.send("orders", seeds(5_000))
    path = export(cluster.namesrv, "orders", tmp_path / "out")
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.imports.kill_import", cluster.namesrv,
         "copy", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    kills = int(done.stdout)
    assert kills > 10
    origin = essence(path)
    copy = essence(export(cluster.namesrv, "copy", tmp_path / "again"))
    repeated = 0
    for queue_id, rows in origin.items():
        at = 0
        for row in copy[queue_id]:
            if at < len(rows) and row == rows[at]:
                at += 1
            else:  # a batch is repeated: continue after this row
                at = rows.index(row) + 1
        assert at == len(rows)
        assert {str(row) for row in rows} == {str(row) for row in copy[queue_id]}
        repeated += len(copy[queue_id]) - len(rows)
    assert 0 < repeated <= kills * 512
