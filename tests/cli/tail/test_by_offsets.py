"""`rmq tail --endpoints` on a proxy that reads by offset: same output as with -n."""

from __future__ import annotations

import json
import re
import shlex
import sys

import pytest

from rmqcli import Admin, ClientConfig
from rmqcli.api.calls.offset import update_consumer_offset
from rmqcli.api.client import Client
from rmqcli.broker.cluster.seeding import Seed
from rmqcli.broker.proxy.options import ProxyOptions
from rmqcli.cli.main import run
from rmqcli.wire.protobuf import definition_pb2 as pb
from rmqcli.wire.protobuf import service_pb2 as service
from tests.kit.proxy.scripted import OK, ScriptedProxy

T0 = 1_700_000_000_000


@pytest.fixture(autouse=True)
def no_addresses(monkeypatch):
    for name in ("ROCKETMQ_ENDPOINTS", "NAMESRV_ADDR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def cluster(rmq_cluster_factory):
    made = rmq_cluster_factory(
        proxy=ProxyOptions(serves_offsets=True),
        settings={"enable_property_filter": True},
    )
    made.create_topic("T", queues=2)
    return made


@pytest.fixture
def tail(capfdbinary):
    """Runs `rmq tail T` through a proxy; returns stdout and stderr as text."""

    def run_it(server, *arguments, code=0):
        words = ["--endpoints", server.endpoints, "--plaintext"]
        returned = run(["tail", "T", *words, *arguments])
        out, err = capfdbinary.readouterr()
        assert returned == code, err.decode()
        return out.decode(), err.decode()

    return run_it


def seeds(count, **fields):
    """Return messages m0, m1, ... which the cluster sends to the queues in turn."""
    return [
        Seed(body=b"m%d" % n, keys=[f"k{n}"], properties={"a": str(n)}, **fields)
        for n in range(count)
    ]


def commit(cluster, group, queue_id, offset):
    """Create the group, and commit an offset for it in a queue of T."""
    cluster.create_group(group)
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        call = update_consumer_offset(group, "T", queue_id, commit_offset=offset)
        client.invoke(cluster.brokers[0].address, call)


RANGES = [
    [],
    ["--last", "3"],
    ["--from", "earliest"],
    ["--from", "latest"],
    ["--from", "2"],
    ["--from", "-2"],
    ["--from", "+1"],
    ["--from", "1", "--to", "3"],
    ["--from", "latest", "--to", "1"],
    ["--from", "@2020-01-01T00:00:00Z", "--to", "now"],
    ["--from", "-1h"],
    ["--queue", "1", "--from", "earliest"],
    ["--grep", "m[135]"],
    ["--key", "k4", "--from", "earliest"],
    ["--tag", "A", "--from", "earliest"],
    ["--sql", "a > 5", "--from", "earliest"],
    ["--from", "earliest", "--count", "3"],
    ["--from", "earliest", "--key", "nothing", "--not", "--count", "5"],
    ["--from", "2", "--to", "+3"],
    ["--from-queue", "T@broker-a:1=5"],
    ["--from-queue", "T@broker-a:1=5", "--from", "-2"],
    ["--from-queue", "T@broker-a:1=5", "--from-queue", "T@broker-a:0=latest"],
    ["--from", "group:G"],
    ["--from", "earliest", "--to", "group:G"],
    ["--around-group", "G"],
    ["--around-group", "G", "-B", "0", "-A", "1"],
    ["--from", "earliest", "--rate", "1000/s"],
]


@pytest.mark.parametrize("choice", RANGES, ids=lambda words: " ".join(words))
def test_it_shows_what_a_name_server_s_tail_shows(cluster, tail, capfdbinary, choice):
    commit(cluster, "G", 0, 3)  # no commit in the other queue
    cluster.send("T", seeds(8))
    cluster.send("T", seeds(8, tags="A"))
    flags = [*choice, "--format", r"%q %o %k %v %p{a}\n"]
    if "--to" not in choice and "--around-group" not in choice:
        flags.append("--no-follow")
    assert run(["tail", "T", "-n", cluster.namesrv, *flags]) == 0
    expected = capfdbinary.readouterr().out.decode()
    out, _ = tail(cluster, *flags)
    # Messages of different queues with the same store time may come in any order.
    assert sorted(out.splitlines()) == sorted(expected.splitlines())
    for number in "01":
        ours = [line for line in out.splitlines() if line[0] == number]
        assert ours == [line for line in expected.splitlines() if line[0] == number]


def test_ranges_and_counts_are_told(cluster, tail):
    cluster.send("T", seeds(6))
    _, err = tail(cluster, "--from", "1", "--to", "latest", "-o", "raw")
    assert err.splitlines() == [
        "T@broker-a:0-1: each 1 to 3, 2 messages",
        "4 shown, 4 read, nothing missing",
    ]


def test_nothing_is_left_on_the_broker(cluster, tail):
    cluster.send("T", seeds(4))
    tail(cluster, "--from", "earliest", "--no-follow")
    with Admin(namesrv=cluster.namesrv) as admin:
        groups = admin.groups().groups
    assert [each.group for each in groups if each.kind == "normal"] == []


def test_records_are_those_of_every_tail(cluster, tail):
    cluster.send("T", [Seed(body=b"x", tags="A")])
    record = json.loads(tail(cluster, "--no-follow", "-o", "jsonl")[0])
    assert (record["body"], record["tags"], record["queue_offset"]) == ("x", "A", 0)
    assert record["commit_log_offset"] is None


def test_it_follows_until_a_time_limit(cluster, tail):
    cluster.send("T", seeds(2))
    out, _ = tail(cluster, "--last", "1", "--idle-timeout", "600ms", "-o", "raw")
    assert out == "m1\n"
    out, err = tail(cluster, "--from", "latest", "--for", "300ms", "-o", "json")
    assert out == "[]\n"
    assert "ended before" not in err


def test_what_arrives_is_shown(cluster, capfdbinary, monkeypatch):
    """The function that writes the first message sends the second one."""
    cluster.send("T", [b"first"])
    from rmqcli.cli.ui.records import output

    def write_and_send(data):
        sent.append(data)
        if len(sent) == 1:
            cluster.send("T", [b"second"])

    sent: list[bytes] = []
    monkeypatch.setattr(output, "_write_bytes", write_and_send)
    words = ["--endpoints", cluster.endpoints, "--plaintext", "--count", "2"]
    assert run(["tail", "T", *words, "-o", "raw"]) == 0
    assert sent == [b"first\n", b"second\n"]


def test_nothing_matched_is_8_when_that_was_asked(cluster, tail):
    tail(cluster, "--no-follow", "--fail-if-empty", code=8)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--from-queue", "T@broker-a:7=1"], "queue broker-a:7 does not exist"),
        (["--queue", "7"], "queue 7 does not exist"),
    ],
)
def test_a_queue_that_does_not_exist_is_not_found(cluster, tail, arguments, words):
    out, err = tail(cluster, *arguments, code=3)
    assert out == ""
    assert words in err


@pytest.mark.parametrize("flags", [["--from", "group:g"], ["--around-group", "g"]])
def test_a_group_without_any_offset_may_be_mistyped(cluster, tail, flags):
    out, err = tail(cluster, *flags, code=3)
    assert out == ""
    assert "group g has committed nothing in these queues, or does not exist" in err


def test_what_is_odd_about_a_position_is_told(cluster, tail):
    commit(cluster, "G", 1, 2)
    cluster.send("T", seeds(6))
    _, err = tail(cluster, "--from", "group:G", "--to", "9", "-o", "raw")
    assert err.splitlines()[:2] == [
        (
            "T@broker-a:0: 0 to 3, 3 messages; group G has committed nothing here;"
            " 9 is beyond the end (3)"
        ),
        "T@broker-a:1: 2 to 3, 1 message; 9 is beyond the end (3)",
    ]


def test_a_rate_limits_and_a_timeout_ends_the_wait(cluster, tail):
    cluster.send("T", seeds(8))
    flags = ["--from", "earliest", "--no-follow", "-o", "raw", "--rate", "0.001/s"]
    out, err = tail(cluster, *flags, "--for", "500ms")
    assert len(out.splitlines()) == 1
    assert (
        "1 shown, 8 read, nothing missing, stopped before all messages were shown"
        in err
    )


@pytest.fixture
def interrupted(cluster, capfdbinary, monkeypatch):
    """Runs `rmq tail` and interrupts it at its second write.

    Returns the output, and the arguments of the command in its hint.
    """

    def run_it(*flags):
        from rmqcli.cli.ui.records import output

        shown: list[bytes] = []

        def write(data):
            if shown:
                raise KeyboardInterrupt
            shown.append(data)

        words = ["tail", "T", "--endpoints", cluster.endpoints, "--plaintext"]
        words += [*flags, "-o", "raw", "--rate", "10/s"]
        with monkeypatch.context() as patch:
            patch.setattr(output, "_write_bytes", write)
            patch.setattr(sys, "argv", ["rmq", *words])
            assert run(words) == 130
        err = capfdbinary.readouterr().err.decode()
        (hint,) = re.findall(r"^resume with: rmq (.*)$", err, re.MULTILINE)
        return b"".join(shown).decode(), shlex.split(hint)

    return run_it


@pytest.mark.parametrize(
    ("flags", "kept", "starts"),
    [
        (
            ["--from", "1"],
            [],
            ["--from-queue", "T@broker-a:0=2", "--from-queue", "T@broker-a:1=1"],
        ),
        (
            ["--from-queue", "T@broker-a:1=1", "--from", "latest"],
            [],
            ["--from-queue", "T@broker-a:0=3", "--from-queue", "T@broker-a:1=2"],
        ),
        (["--queue", "0", "--from", "1"], ["--queue", "0"], ["--from", "2"]),
        (
            ["--queue", "0", "--from=0", "--count", "3"],
            ["--queue", "0"],
            ["--count", "2", "--from", "1"],
        ),
    ],
    ids=" ".join,
)
def test_an_interrupt_tells_how_to_go_on(
    cluster, tail, interrupted, flags, kept, starts
):
    for queue_id in (0, 1):
        for number in range(3):
            seed = Seed(body=b"%d" % number, keys=[f"k{number}"])
            cluster.send("T", [seed], queue_id=queue_id)
    whole, _ = tail(cluster, *flags, "--no-follow", "-o", "raw")
    shown, words = interrupted(*flags)
    assert words[-len(starts) :] == starts
    assert words[5 : -len(starts)] == [*kept, "-o", "raw", "--rate", "10/s"]
    rest, _ = tail(cluster, *words[5:], "--no-follow")
    assert sorted((shown + rest).splitlines()) == sorted(whole.splitlines())


@pytest.mark.parametrize("flags", [["--last", "2"], ["--around-group", "G"], []])
def test_an_interrupt_of_a_bounded_part_shows_it_from_its_start(
    cluster, interrupted, flags
):
    commit(cluster, "G", 0, 1)
    cluster.send("T", seeds(6))
    _, words = interrupted(*flags)
    first = ["tail", "T", "--endpoints", cluster.endpoints, "--plaintext", *flags]
    assert words == [*first, "-o", "raw", "--rate", "10/s"]


@pytest.fixture
def proxy():
    """A scripted proxy whose queues begin at offset 0 and end at 3; see `pulls`."""
    with ScriptedProxy() as made:
        made.answers["QueryOffset"] = lambda request, _context: (
            service.QueryOffsetResponse(
                status=OK,
                offset=0
                if request.query_offset_policy == pb.QueryOffsetPolicy.BEGINNING
                else 3,
            )
        )
        yield made


def part(offset):
    found = service.PullMessageResponse()
    found.message.topic.name, found.message.body = "T", b"%d" % offset
    found.message.system_properties.queue_offset = offset
    return found


def pulls(proxy, *parts):
    def answer(_request, _context):
        yield service.PullMessageResponse(status=OK)
        yield from parts

    proxy.answers["PullMessage"] = answer


def following(offset):
    return service.PullMessageResponse(next_offset=offset)


def test_offsets_that_do_not_come_are_told(proxy, tail):
    pulls(proxy, part(0), part(2), following(3))
    flags = ["--queue", "0", "--from", "earliest", "--no-follow", "-o", "raw"]
    out, err = tail(proxy, *flags)
    assert out == "0\n2\n"
    assert "2 shown, 2 read, 1 missing" in err


@pytest.mark.parametrize(
    "parts",
    [
        [part(1), part(0), following(3)],
        [part(0), following(0)],
        [part(0)],
    ],
    ids=["out of order", "goes back", "no next offset"],
)
def test_an_answer_that_cannot_be_is_an_error(proxy, tail, parts):
    pulls(proxy, *parts)
    _, err = tail(proxy, "--from", "earliest", "--no-follow", "-o", "raw", code=1)
    assert "error: pull from T@broker-a:0 at 0" in err


def test_a_proxy_may_read_by_offset_and_tell_none_of_groups(proxy, tail):
    _, err = tail(proxy, "--from", "group:G", code=2)
    assert "this proxy does not report committed offsets: group G" in err
    assert "--namesrv" in err


def test_a_proxy_that_gives_nothing_is_asked_until_the_time_is_over(proxy, tail):
    pulls(proxy, following(0))
    flags = ["--from", "earliest", "--no-follow", "--for", "700ms", "-o", "raw"]
    out, err = tail(proxy, *flags)
    assert out == ""
    assert "stopped before all messages were shown" in err
