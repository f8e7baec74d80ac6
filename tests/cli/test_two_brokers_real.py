"""Profiles, settings and drains with two real brokers: what the other broker sees."""

from __future__ import annotations

import json
import pty
import shlex
import uuid

import pytest

from rmqcli import Admin
from rmqcli.admin.doctor.diagnose import diagnose
from rmqcli.api.client import Client
from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.cli.main import run
from rmqcli.config import ClientConfig
from tests.exporter.pages import ShiftedClock
from tests.kit import raw
from tests.kit.proxy.real import RealProxy
from tests.kit.waiting import wait_until
from tests.transport.peer import free_port

pytestmark = [
    pytest.mark.java,
    pytest.mark.real_only,
    pytest.mark.rmq_versions("4.6.0", "5.5.0"),
]

#: A broadcast address: no broker can be reached there, and that is said at once.
ELSEWHERE = "127.255.255.255"


@pytest.fixture(scope="module")
def cluster(rmq_version, start_shared):
    return start_shared(rmq_version, brokers=2)


@pytest.fixture(autouse=True)
def _environment_of_no_cluster(monkeypatch):
    for name in ("NAMESRV_ADDR", "ROCKETMQ_ENDPOINTS", "RMQ_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def rmq(capsys):
    """Run `rmq`; return its exit code, its rows, and what it says on stderr."""

    def run_it(*words):
        capsys.readouterr()
        code = run([*words, "-o", "jsonl"])
        out, err = capsys.readouterr()
        return code, [json.loads(line) for line in out.splitlines()], err

    return run_it


def add_profile(cluster, *words):
    """Make a profile of the cluster, and put it in use."""
    assert run(["profile", "add", *words, "--use", "-n", cluster.namesrv]) == 0


def perms_of(cluster, topic):
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        queues = client.route(topic, refresh=True).queues
    return {queue.broker_name: queue.perm for queue in queues}


def advertise(cluster, host):
    """Let the brokers advertise other addresses, and register with them."""
    known = raw.GET_BROKER_CLUSTER_INFO
    for index in range(2):
        body = f"brokerIP1={host}\nbrokerPermission=6".encode()
        assert cluster.ask(raw.UPDATE_BROKER_CONFIG, body=body, broker=index).code == 0
        port = cluster.broker_address(index).split(":")[1]
        address = f'"{host}:{port}"'.encode()
        wait_until(
            lambda wanted=address: wanted in raw.ask(cluster.namesrv, known).body
        )


def brokers_of(rows):
    return sorted({row["broker_name"] for row in rows})


def test_addresses_of_a_profile_lead_to_brokers_that_advertise_others(cluster, rmq):
    ports = [cluster.broker_address(index).split(":")[1] for index in range(2)]
    pairs = [f"{ELSEWHERE}:{port}=127.0.0.1:{port}" for port in ports]
    topic = cluster.create_topic(queues=1)
    without = ["--profile", "none", "-n", cluster.namesrv]
    advertise(cluster, ELSEWHERE)
    try:
        words = [word for pair in pairs for word in ("--address-map", pair)]
        add_profile(cluster, "docker", *words)
        code, rows, err = rmq("brokers", *without)
        error = f"cannot connect to {ELSEWHERE}:{ports[0]}: network is unreachable"
        assert (code, rows[0]["error"]) == (5, error)
        assert "or say where it is with --address-map" in err
        code, rows, _ = rmq("doctor", "--only", "broker-address", *without)
        assert code == 2
        assert [(row["subject"], row["command"]) for row in rows] == [
            ("broker-a", f"rmq doctor --address-map {pairs[0]}"),
            ("broker-b", f"rmq doctor --address-map {pairs[1]}"),
        ]
        code, rows, _ = rmq("brokers")
        assert (code, [row["error"] for row in rows]) == (0, [None, None])
        assert rows[0]["address"] == f"{ELSEWHERE}:{ports[0]}"
        assert rmq("doctor", "--only", "broker-address")[0] == 0
        code, rows, _ = rmq("send", topic, "x", "--count", "8")
        assert (code, brokers_of(rows)) == (0, ["broker-a", "broker-b"])
        words = [topic, "--from", "earliest", "--count", "8"]
        for command in (["tail"], ["consume", "-g", f"g-{topic}"]):
            code, rows, _ = rmq(*command, *words)
            assert (code, len(rows)) == (0, 8)
            assert brokers_of(rows) == ["broker-a", "broker-b"]
    finally:
        advertise(cluster, "127.0.0.1")


@pytest.mark.parametrize("typed", [False, True], ids=["", "with-servers"])
def test_a_read_only_profile_changes_no_broker(cluster, rmq, typed):
    """Typing its servers is no way around it."""
    topic = cluster.create_topic(queues=1)
    add_profile(cluster, "archive", "--read-only")
    at = ["-n", cluster.namesrv] if typed else []
    setting = ["broker", "config", "set", "fileReservedTime=9", "--broker", "broker-b"]
    for words in (
        ["topic", "create", f"{topic}-2"],
        ["topic", "delete", topic, "--yes"],
        ["send", topic, "x"],
        [*setting, "--yes"],
        ["broker", "drain", "broker-b", "--yes"],
    ):
        code, rows, err = rmq(*words, *at)
        assert (code, rows) == (7, [])
        assert "profile archive is read-only, and this command changes" in err
    (row,) = (row for row in rmq("topics")[1] if row["topic"].startswith(topic))
    assert (row["topic"], row["brokers"]) == (topic, ["broker-a", "broker-b"])
    values = rmq("broker", "config", "get", "fileReservedTime")[1]
    assert "9" not in [row["value"] for row in values]
    assert perms_of(cluster, topic) == {"broker-a": 6, "broker-b": 6}


def test_the_name_of_a_protected_profile_is_typed(cluster, rmq, monkeypatch):
    add_profile(cluster, "prod", "--protected")
    names = [cluster.create_topic(queues=1) for _ in range(3)]
    delete = [["topic", "delete", name, "--yes"] for name in names]
    code, _, err = rmq(*delete[0])
    assert (code, "not confirmed: nothing was changed" in err) == (7, True)
    codes = []
    for typed, words in (("y\n", delete[0]), ("prod\n", delete[1])):
        ours, theirs = pty.openpty()
        with open(ours, "w") as keyboard, open(theirs) as terminal:
            monkeypatch.setattr("sys.stdin", terminal)
            keyboard.write(typed)
            keyboard.flush()
            codes.append(rmq(*words)[0])
    monkeypatch.setattr("sys.stdin", None)
    assert codes == [7, 0]
    assert rmq(*delete[2], "--confirm", "other")[0] == 7
    assert rmq(*delete[2], "--confirm", "prod")[0] == 0
    left = [row["topic"] for row in rmq("topics")[1] if row["topic"] in names]
    assert left == names[:1]


def test_settings_in_which_brokers_differ_are_shown_until_they_agree(cluster, rmq):
    at = ["-n", cluster.namesrv]
    diff = ["broker", "config", "diff", *at]
    set_it = ["broker", "config", "set", "fileReservedTime=48", "--yes", *at]
    assert rmq(*diff)[:2] == (0, [])
    assert rmq(*set_it, "--broker", "broker-b")[0] == 0
    code, rows, err = rmq(*diff)
    assert (code, rows) == (
        0,
        [
            {"name": "fileReservedTime", "value": "72", "brokers": ["broker-a"]},
            {"name": "fileReservedTime", "value": "48", "brokers": ["broker-b"]},
        ],
    )
    assert err == (
        "not shown: 5 settings that are different for each broker; --all shows them\n"
    )
    code, (found,), _ = rmq("doctor", "--only", "broker-settings", *at)
    assert (code, found["evidence"]) == (
        1,
        "fileReservedTime differs: 48 on broker-b; 72 on broker-a",
    )
    assert suggested(rmq, found, *at)[:2] == (0, rows)
    code, rows, _ = rmq(*set_it, "--cluster", "DefaultCluster")
    assert (code, [row["result"] for row in rows]) == (0, ["changed", "unchanged"])
    assert rmq(*diff)[:2] == (0, [])
    assert {row["name"] for row in rmq(*diff, "--all")[1]} == {
        "brokerName",
        "haListenPort",
        "listenPort",
        "storePathCommitLog",
        "storePathRootDir",
    }


def suggested(rmq, finding, *more):
    """Run the command that a finding of `rmq doctor` suggests."""
    return rmq(*shlex.split(finding["command"])[1:], *more)


def test_a_drained_broker_gets_no_messages_until_what_the_doctor_says_is_done(
    cluster, rmq
):
    topic = cluster.create_topic(queues=1)
    at = ["-n", cluster.namesrv]
    doctor = ["doctor", "--only", "broker-permission", *at]
    settle = ["--settle", "1ms", "--wait", "60s"]
    settle += ["--skip-delayed", "--skip-transactions"]
    with Admin(namesrv=cluster.namesrv) as admin:
        for row in admin.groups().groups:  # other tests leave messages unread
            settle += ["--skip-group", row.group]
    code, _, err = rmq("broker", "drain", "broker-b", "--yes", *settle, *at)
    assert (code, "broker-b is drained" in err) == (0, True), err
    assert perms_of(cluster, topic) == {"broker-a": 6, "broker-b": 4}
    code, rows, _ = rmq("send", topic, "x", "--count", "4", *at)
    assert (code, brokers_of(rows)) == (0, ["broker-a"])
    code, (found,), _ = rmq(*doctor)
    assert (code, found["subject"]) == (2, "broker-b")
    code, (row,), err = suggested(rmq, found, "--yes", *at)
    assert (code, row["result"]) == (0, "changed"), err
    assert perms_of(cluster, topic) == {"broker-a": 6, "broker-b": 6}
    code, rows, _ = rmq("send", topic, "x", "--count", "4", *at)
    assert (code, brokers_of(rows)) == (0, ["broker-a", "broker-b"])
    assert rmq(*doctor)[0] == 0


def test_a_broker_that_is_read_only_is_writable_when_what_the_doctor_says_is_done(
    cluster, rmq
):
    topic = cluster.create_topic(queues=1)
    at = ["-n", cluster.namesrv]
    set_it = ["broker", "config", "set", "brokerPermission=4", "--broker", "broker-a"]
    assert rmq(*set_it, "--yes", *at)[0] == 0
    wait_until(lambda: perms_of(cluster, topic) == {"broker-a": 4, "broker-b": 6})
    code, (found,), _ = rmq("doctor", "--only", "broker-permission", *at)
    assert (code, found["evidence"]) == (1, "brokerPermission is 4: it is read only")
    code, (row,), _ = suggested(rmq, found, "--yes", *at)
    assert (code, row["broker_name"], row["new"]) == (0, "broker-a", "6")
    wait_until(lambda: perms_of(cluster, topic) == {"broker-a": 6, "broker-b": 6})


def test_name_servers_that_differ_or_do_not_answer_are_found(cluster, rmq):
    down = f"127.0.0.1:{free_port()}"
    cluster.create_topic("0-first-of-five", queues=1)
    with EmbeddedCluster() as other:
        servers = f"{cluster.namesrv};{other.namesrv};{down}"
        words = ["--only", "namesrv-answers", "--only", "namesrv-agree"]
        code, rows, _ = rmq("doctor", *words, "-n", servers)
        brokers = ", ".join(
            f"{cluster.broker_name(each)} at {cluster.broker_address(each)}"
            for each in range(2)
        )
        evidence = f"it does not know {brokers}, which another name server does"
        assert ("problem", other.namesrv, evidence) in {
            (row["status"], row["subject"], row["evidence"]) for row in rows
        }
    assert code == 2
    # The embedded one may have system topics that the version lacks.
    places = {(row["check"], row["status"], row["subject"]) for row in rows}
    assert places - {("namesrv-agree", "warning", cluster.namesrv)} == {
        ("namesrv-answers", "problem", down),
        ("namesrv-agree", "problem", cluster.namesrv),
        ("namesrv-agree", "problem", other.namesrv),
        ("namesrv-agree", "warning", other.namesrv),
        ("namesrv-agree", "unknown", down),
    }
    assert any("0-first-of-five" in row["evidence"] for row in rows)


@pytest.mark.parametrize(
    ("ahead_ms", "status"), [(0, "ok"), (30_000, "warning"), (-3_600_000, "problem")]
)
def test_the_clock_of_this_machine_is_compared_with_those_of_brokers(
    cluster, ahead_ms, status
):
    clock = ShiftedClock()
    clock.ahead_ms = ahead_ms
    config = ClientConfig(namesrv=(cluster.namesrv,), timeout_ms=30_000)
    with Client(config, clock=clock) as client:
        (result,) = diagnose(client, only=["clock-skew"]).results
    assert str(result.status) == status
    wanted = [] if status == "ok" else ["broker-a", "broker-b"]
    assert [each.subject for each in result.findings] == wanted


@pytest.mark.rmq_versions("5.5.0")
def test_a_profile_of_a_proxy(cluster, rmq):
    topic, group = cluster.create_topic(queues=1), f"g-{uuid.uuid4().hex[:8]}"
    assert rmq("group", "create", group, "-n", cluster.namesrv)[0] == 0
    with RealProxy(cluster) as proxy:
        words = ["profile", "add", "cloud", "--endpoints", proxy.endpoints]
        assert run([*words, "--plaintext", "--use"]) == 0
        code, rows, _ = rmq("topic", "show", topic)
        assert (code, brokers_of(rows)) == (0, ["broker-a", "broker-b"])
        code, sent, _ = rmq("send", topic, "x", "--count", "6")
        assert (code, {row["status"] for row in sent}) == (0, {"SEND_OK"})
        code, rows, _ = rmq("consume", topic, "-g", group, "--count", "6")
        assert code == 0
        ids = {row["msg_id"] for row in sent}
        assert {row["msg_id"] for row in rows} == ids
        code, _, err = rmq("brokers")
        assert code == 2
        assert "needs a name server, and profile cloud names a proxy" in err
    code, (lag,), _ = rmq("lag", group, "-n", cluster.namesrv)
    assert (code, lag["state"], lag["total_lag"]) == (0, "OK", 0)
