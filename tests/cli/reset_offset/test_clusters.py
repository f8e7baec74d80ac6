"""`rmq reset-offset --undo` and `--apply` recognise the cluster and the topic.

A backup or a plan of another cluster changes nothing, even if group, topic and brokers
have the same names there. Nor does one of a topic that was created again since.
"""

from __future__ import annotations

import json

import pytest

from rmqcli import Admin, RefusedError, UsageError
from rmqcli.api.calls.offset import update_consumer_offset
from rmqcli.api.client import Client
from rmqcli.cli.main import run
from rmqcli.config import ClientConfig
from rmqcli.testing import faults
from rmqcli.wire.codes import RequestCode, ResponseCode
from tests.consumer.collecting import committed

DO = ("--execute", "--yes")


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    """The folder in which `rmq reset-offset` keeps backups."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "rmqcli" / "reset-offset"


@pytest.fixture
def start(rmq_cluster_factory):
    """Starts clusters with 100 messages in T and group G at the given offset."""

    def start(offset, **options):
        cluster = rmq_cluster_factory(queues=1, **options)
        cluster.create_topic("T")
        cluster.create_group("G")
        cluster.send("T", ["x"] * 100)
        commit(cluster, offset)
        return cluster

    return start


def commit(cluster, offset, broker="broker-a"):
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        call = update_consumer_offset("G", "T", 0, commit_offset=offset)
        client.invoke(cluster.broker(broker).address, call)


def at(cluster):
    return committed(cluster, "G", "T")[0]


def reset(namesrv, capsys, *words, group="G"):
    """Run `rmq reset-offset`; return exit code, JSON of stdout or None, and stderr."""
    capsys.readouterr()
    code = run(["reset-offset", group, "T", *words, "-n", namesrv, "-o", "json"])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else None, err


def make_backup(cluster, capsys, *, to="90"):
    """Reset the group, and return the id of the backup."""
    code, done, err = reset(cluster.namesrv, capsys, "--to", to, *DO)
    assert code == 0, err
    return done["backup"]


def test_undo_without_an_id_refuses_the_backup_of_another_cluster(start, capsys):
    one, other = start(5), start(90)
    backup = make_backup(one, capsys)
    code, out, err = reset(other.namesrv, capsys, "--undo", *DO)
    assert (code, out, at(other)) == (7, None, 90)
    assert f"the latest, {backup}, is of DefaultCluster (broker-a" in err
    hint = json.loads(err)["error"]["hint"]
    assert hint == f"to restore it here: --undo {backup} --other-cluster"
    assert reset(one.namesrv, capsys, "--undo", *DO)[0] == 0
    assert at(one) == 5
    # The backup that the undo made is not what an undo restores.
    code, _, err = reset(other.namesrv, capsys, "--undo", *DO)
    assert (code, json.loads(err)["error"]["hint"]) == (7, hint)


def test_the_library_does_not_name_the_flag_for_a_backup_of_another_cluster(
    start, capsys
):
    one, other = start(5), start(90)
    make_backup(one, capsys)
    with (
        Admin(namesrv=other.namesrv) as admin,
        pytest.raises(RefusedError) as caught,
    ):
        admin.plan_undo("G", "T")
    assert caught.value.hint == (
        "plan the undo with a client of that cluster, or pass backup_id and"
        " other_cluster=True"
    )


def test_the_library_restores_a_backup_of_another_cluster_when_told_so(start, capsys):
    one, other = start(5), start(90)
    backup = make_backup(one, capsys)
    with Admin(namesrv=other.namesrv) as admin:
        (saved,) = admin.backups(group="G", topic="T")
        assert (saved.backup_id, list(saved.committed.values())) == (backup, [5])
        assert admin.backups(group="H") == []
        with pytest.raises(RefusedError, match="made on DefaultCluster") as caught:
            admin.undo_reset("G", "T", backup_id=backup)
        assert caught.value.hint == (
            "to use these offsets anyway, add other_cluster=True"
        )
        with pytest.raises(UsageError, match="needs a backup_id"):
            admin.plan_undo("G", "T", other_cluster=True)
        done = admin.undo_reset("G", "T", backup_id=backup, other_cluster=True)
    assert done.is_complete
    assert at(other) == 5


def test_undo_without_an_id_passes_over_newer_backups_of_other_clusters(start, capsys):
    one, other = start(5), start(60)
    make_backup(one, capsys)
    make_backup(other, capsys)
    assert reset(one.namesrv, capsys, "--undo", *DO)[0] == 0
    assert (at(one), at(other)) == (5, 90)


def test_undo_with_an_id_needs_the_mismatch_confirmed(start, capsys):
    one, other = start(5), start(90)
    backup = make_backup(one, capsys)
    undo = ("--undo", backup, *DO)
    code, out, err = reset(other.namesrv, capsys, *undo)
    assert (code, out, at(other)) == (7, None, 90)
    what = (
        f"backup {backup} was made on DefaultCluster (broker-a {address(one)}), but"
        f" this cluster is DefaultCluster (broker-a {address(other)})"
    )
    assert json.loads(err)["error"] == {
        "kind": "RefusedError",
        "message": f"{what}: nothing was changed",
        "hint": "if all brokers of the cluster have moved, or these offsets are meant"
        " for this cluster too, add --other-cluster",
        "exit_code": 7,
    }
    code, done, err = reset(other.namesrv, capsys, *undo, "--other-cluster")
    assert (code, done["queues"][0]["result"], at(other)) == (0, "CONFIRMED", 5)
    assert err.startswith(f"warning: {what}\n")


def address(cluster):
    return cluster.broker().address


@pytest.mark.parametrize(
    "words",
    [("--undo",), ("--to", "5"), ("--shift", "1"), ("--list-backups",)],
    ids=lambda words: words[0],
)
def test_other_cluster_goes_with_an_id_or_a_file_only(start, capsys, words):
    cluster = start(5)
    make_backup(cluster, capsys)
    code, _, err = reset(cluster.namesrv, capsys, *words, "--other-cluster")
    assert code == 2
    error = json.loads(err)["error"]
    assert (error["message"], error["hint"]) == (
        "--other-cluster needs the ID of a backup after --undo, or --apply FILE",
        "see: rmq reset-offset --list-backups",
    )


def test_a_backup_is_found_again_through_another_name_server(start, capsys):
    """The brokers identify the cluster, and they are the same."""
    one = start(5)
    backup = make_backup(one, capsys)
    port = one.namesrv.rpartition(":")[2]
    code, done, err = reset(f"localhost:{port}", capsys, "--undo", *DO)
    assert (code, done["queues"][0]["result"], at(one)) == (0, "CONFIRMED", 5), err
    assert backup in err or done["backup"] != backup


def test_one_broker_that_is_unchanged_is_enough(start, capsys, state):
    cluster = start(5, brokers=2)
    make_backup(cluster, capsys, to="latest")
    moved = edit(state, lambda d: d["cluster"]["brokers"].update({"broker-b": ["b:1"]}))
    code, _, err = reset(cluster.namesrv, capsys, "--undo", *DO)
    assert (code, moved) == (0, 1), err


def test_a_backup_made_while_a_broker_was_down_is_of_the_same_cluster(start, capsys):
    cluster = start(5, brokers=2)
    cluster.broker("broker-b").kill()
    make_backup(cluster, capsys, to="latest")
    cluster.broker("broker-b").restart()
    assert reset(cluster.namesrv, capsys, "--undo", *DO)[0] == 0
    assert at(cluster) == 5


def test_another_cluster_name_is_another_cluster(start, capsys, state):
    cluster = start(5)
    backup = make_backup(cluster, capsys)
    edit(state, lambda d: d["cluster"].update(names=["Staging"]))
    code, _, err = reset(cluster.namesrv, capsys, "--undo", backup, *DO)
    assert (code, at(cluster)) == (7, 90)
    assert f"backup {backup} was made on Staging (broker-a" in err


def test_brokers_that_have_all_moved_are_restored_when_confirmed(start, capsys, state):
    cluster = start(5)
    backup = make_backup(cluster, capsys)
    edit(state, lambda d: d["cluster"].update(brokers={"broker-a": ["10.0.0.1:10911"]}))
    undo = ("--undo", backup, *DO)
    code, _, err = reset(cluster.namesrv, capsys, *undo)
    assert (code, at(cluster)) == (7, 90)
    assert "if all brokers of the cluster have moved" in err
    assert reset(cluster.namesrv, capsys, *undo, "--other-cluster")[0] == 0
    assert at(cluster) == 5


def edit(state, change):
    """Apply `change` to every backup, and return their number."""
    files = list(state.iterdir())
    for file in files:
        document = json.loads(file.read_text())
        change(document)
        file.write_text(json.dumps(document))
    return len(files)


def test_undo_refuses_the_backup_of_another_group(start, capsys):
    cluster = start(5)
    backup = make_backup(cluster, capsys)
    cluster.create_group("H")
    words = ("--undo", backup, *DO)
    code, out, err = reset(cluster.namesrv, capsys, *words, group="H")
    assert (code, out) == (7, None)
    error = json.loads(err)["error"]
    assert (error["message"], error["hint"]) == (
        f"backup {backup} belongs to group G and topic T: nothing was changed",
        "see: rmq reset-offset H T --list-backups",
    )
    assert committed(cluster, "H", "T") == {}
    assert at(cluster) == 90


def test_undo_refuses_the_backup_of_another_topic(start, capsys):
    cluster = start(5)
    backup = make_backup(cluster, capsys)
    cluster.create_topic("U")
    cluster.send("U", ["x"] * 10)
    words = ["reset-offset", "G", "U", "--undo", backup, *DO]
    assert run([*words, "-n", cluster.namesrv]) == 7
    assert committed(cluster, "G", "U") == {}


def test_the_list_shows_the_cluster_of_each_backup(start, capsys):
    one, other = start(5), start(5)
    make_backup(one, capsys)
    make_backup(other, capsys)
    rows = reset(one.namesrv, capsys, "--list-backups")[1]
    assert [(row["cluster"], row["brokers"], row["namesrv"]) for row in rows] == [
        ("DefaultCluster", {"broker-a": [address(each)]}, each.namesrv)
        for each in (one, other)
    ]
    run(["reset-offset", "--list-backups", "-o", "table"])
    assert "CLUSTER" in capsys.readouterr().out.splitlines()[0]


def test_a_plan_of_another_cluster_is_applied_only_when_confirmed(
    start, capsys, tmp_path
):
    one, other = start(5), start(5)
    file = str(tmp_path / "plan.json")
    assert reset(one.namesrv, capsys, "--to", "90", "--out", file)[0] == 0
    apply = ("--apply", file, *DO)
    code, out, err = reset(other.namesrv, capsys, *apply)
    assert (code, out, at(other)) == (7, None, 5)
    assert f"the plan was made on DefaultCluster (broker-a {address(one)})" in err
    assert reset(other.namesrv, capsys, *apply, "--other-cluster")[0] == 0
    assert at(other) == 90
    assert reset(one.namesrv, capsys, *apply)[0] == 0
    assert at(one) == 90


def make_anew(cluster, count):
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.delete_topic("T")
    cluster.create_topic("T", queues=1)
    if count:
        cluster.send("T", ["new"] * count)


@pytest.mark.parametrize(
    ("count", "reason"),
    [
        (100, "T@broker-a:0 has another message at offset 99 than the backup has seen"),
        (7, "T@broker-a:0 ends at 7, but the backup has seen up to 100"),
        (0, "T@broker-a:0 ends at 0, but the backup has seen up to 100"),
    ],
    ids=["as long", "shorter", "empty"],
)
def test_undo_refuses_the_backup_of_a_topic_that_was_created_again_since(
    start, capsys, count, reason
):
    """The offsets of the old topic were set in the new one, and messages skipped."""
    cluster = start(5)
    backup = make_backup(cluster, capsys)
    make_anew(cluster, count)
    commit(cluster, 1)
    for words in (("--undo",), ("--undo", backup)):
        code, out, err = reset(cluster.namesrv, capsys, *words, *DO)
        assert (code, out, at(cluster)) == (7, None, 1), err
        assert reason in err
        assert "the topic was deleted and created again" in err
        assert "pass the ID of the backup and --other-cluster" in err
    with Admin(namesrv=cluster.namesrv) as admin, pytest.raises(RefusedError):
        admin.undo_reset("G", "T")
    code, _, err = reset(
        cluster.namesrv, capsys, "--undo", backup, "--other-cluster", *DO
    )
    assert (code, at(cluster)) == (0, min(5, count)), err


@pytest.mark.parametrize(
    ("count", "reason"),
    [
        (100, "T@broker-a:0 has another message at offset 99 than the plan has seen"),
        (95, "T@broker-a:0 ends at 95, but the plan has seen up to 100"),
    ],
    ids=["as long", "shorter"],
)
@pytest.mark.parametrize("name", ["plan.json", "plan.csv"])
def test_a_plan_of_a_topic_that_was_created_again_since_is_refused(
    start, capsys, tmp_path, name, count, reason
):
    """Offset and queue looked the same, so 85 new messages were skipped."""
    cluster = start(5)
    file = str(tmp_path / name)
    assert reset(cluster.namesrv, capsys, "--to", "90", "--out", file)[0] == 0
    make_anew(cluster, count)
    commit(cluster, 5)
    apply = ("--apply", file, *DO)
    code, out, err = reset(cluster.namesrv, capsys, *apply)
    assert (code, out, at(cluster)) == (7, None, 5), err
    assert reason in err
    assert "the topic was deleted and created again" in err
    assert "make a new plan, or, if these offsets are meant for the topic as it" in err
    assert "is now, add --other-cluster" in err
    assert reset(cluster.namesrv, capsys, *apply, "--other-cluster")[0] == 0
    assert at(cluster) == 90


def test_a_plan_in_csv_without_last_messages_is_applied(start, capsys, tmp_path):
    """As `--out` wrote it before, and as a program may write it."""
    cluster = start(5)
    file = tmp_path / "plan.csv"
    file.write_text(
        "group,topic,broker_name,queue_id,committed,target\nG,T,broker-a,0,5,90\n"
    )
    assert reset(cluster.namesrv, capsys, "--apply", str(file), *DO)[0] == 0
    assert at(cluster) == 90


def test_a_plan_whose_last_messages_could_not_be_read_says_so(start, capsys, tmp_path):
    """As for an account that may move offsets, and not read messages."""
    cluster = start(5)
    file = str(tmp_path / "plan.json")
    denied = faults.answer(ResponseCode.NO_PERMISSION, "no")
    rule = cluster.faults.add(denied, code=RequestCode.PULL_MESSAGE)
    code, _, err = reset(cluster.namesrv, capsys, "--to", "90", "--out", file)
    assert code == 0
    assert "T@broker-a:0: --apply cannot tell whether the topic was created" in err
    cluster.faults.remove(rule)
    assert reset(cluster.namesrv, capsys, "--apply", file, *DO)[0] == 0
    assert at(cluster) == 90


def test_a_plan_is_applied_after_more_messages_came(start, capsys, tmp_path):
    cluster = start(5)
    file = str(tmp_path / "plan.json")
    assert reset(cluster.namesrv, capsys, "--to", "90", "--out", file)[0] == 0
    cluster.send("T", ["later"] * 3)
    for _ in range(2):  # the second time it is at its target already
        assert reset(cluster.namesrv, capsys, "--apply", file, *DO)[0] == 0
        assert at(cluster) == 90


def test_undo_says_when_nothing_shows_that_the_queue_is_the_same(start, capsys):
    cluster = start(5)
    make_backup(cluster, capsys)
    cluster.send("T", ["later"] * 3)
    cluster.broker().trim("T", 101)
    code, plan, err = reset(cluster.namesrv, capsys, "--undo")
    assert code == 0, err
    (row,) = plan["queues"]
    assert row["target"] == 101
    assert row["warnings"][-1] == (
        "all messages that the queue had at the time of the backup are deleted: nothing"
        " shows that it is still the same queue"
    )


def test_a_backup_of_a_queue_without_messages_is_restored(start, capsys):
    cluster = start(5)
    make_anew(cluster, 0)
    commit(cluster, 40)
    code, done, err = reset(cluster.namesrv, capsys, "--to", "latest", *DO)
    assert (code, at(cluster)) == (0, 0), err
    cluster.send("T", ["x"] * 60)
    code, _, err = reset(cluster.namesrv, capsys, "--undo", done["backup"], *DO)
    assert (code, at(cluster)) == (0, 40), err


def test_undo_is_refused_while_the_queue_cannot_be_compared(start, capsys):
    """The last message of a queue could not be read: the offsets were set unproven."""
    cluster = start(5)
    make_backup(cluster, capsys)
    cluster.faults.add(
        faults.answer(ResponseCode.NO_PERMISSION, "no"), code=RequestCode.PULL_MESSAGE
    )
    code, out, err = reset(cluster.namesrv, capsys, "--undo", *DO)
    assert (code, out, at(cluster)) == (4, None, 90), err
