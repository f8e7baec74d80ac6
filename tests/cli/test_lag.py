"""`rmq lag` without a cluster: what it refuses, and how it shows a reading."""

from __future__ import annotations

import csv
import json
import sys
from contextlib import redirect_stdout
from dataclasses import replace
from typing import Any

import pytest

from rmqcli.admin.lag.gather import LagReading
from rmqcli.admin.lag.members import Members
from rmqcli.admin.lag.model import (
    BrokerFailure,
    GroupReading,
    PopLag,
    compute_lag,
)
from rmqcli.admin.lag.process_queues import ClientQueues
from rmqcli.admin.lag.trend import compare
from rmqcli.broker.cluster.seeding import Seed
from rmqcli.cli.lag.command import LagOptions, _exit_code, sort_groups
from rmqcli.cli.lag.view import (
    GROUP_COLUMNS,
    QUEUE_COLUMNS,
    TREND_COLUMNS,
    LagView,
    headline,
    without_empty_retries,
)
from rmqcli.cli.lag.watch import _Watcher, sparkline, watch_lag
from rmqcli.cli.main import run
from rmqcli.cli.options import Common
from rmqcli.clock import SystemClock
from rmqcli.engine.queue_lag import QueueReading
from rmqcli.errors import ConnectError
from rmqcli.model import MessageQueue
from rmqcli.wire.bodies.consumer import Connection, ConsumerConnection
from rmqcli.wire.bodies.stats import QueueTimeSpan
from tests.admin.lag.test_embedded import commit
from tests.kit.terminal import Terminal

NOW_MS = 1_767_322_800_000
SAMPLE_MS = 1_237  # no other wait takes as long
LONG = "a-topic-with-a-name-that-other-tools-cut-off-somewhere-in-the-middle"


def queue(committed, high, *, topic="T", queue_id=0, failure=None):
    known = failure is None
    return QueueReading(
        topic=topic,
        broker_name="broker-a",
        queue_id=queue_id,
        committed=committed,
        min_offset=0 if known else None,
        max_offset=high if known else None,
        failure=failure,
    )


def waiting_for(age_ms):
    return QueueTimeSpan(queue=MessageQueue("T", "broker-a", 0), delay_time=age_ms)


def group(name, *queues, **more):
    return GroupReading(group=name, at_ms=NOW_MS, queues=list(queues), **more)


def reading(*groups):
    return LagReading(
        at_ms=NOW_MS,
        monotonic_ms=0,
        groups=list(groups),
        missing=[],
        failures=[],
    )


def members_of(model):
    members = Members()
    members.add(
        ConsumerConnection(
            connections=(
                Connection(
                    client_id="c", client_addr="127.0.0.1:1", language=0, version=409
                ),
            ),
            message_model=model,
        )
    )
    return members


@pytest.mark.parametrize(
    ("queues", "more", "state", "code"),
    [
        ([queue(10, 10)], {}, "OK", 0),
        ([queue(5, 10)], {"members": members_of("CLUSTERING")}, "BEHIND", 0),
        ([queue(5, 10)], {}, "STOPPED", 0),
        ([queue(None, 10), queue(5, 10, queue_id=1)], {}, "STOPPED", 0),
        ([queue(None, 10)], {}, "NO_COMMIT", 0),
        ([], {}, "NO_COMMIT", 0),
        ([queue(None, 10)], {"members": members_of("BROADCASTING")}, "BROADCAST", 0),
        ([queue(11, 10)], {}, "AHEAD", 0),
        ([replace(queue(1, 10), min_offset=3)], {}, "EXPIRED", 0),
        ([queue(None, 0, failure="it is no longer in the route")], {}, "UNKNOWN", 6),
        (
            [queue(5, 10)],
            {
                "failures": [
                    BrokerFailure(broker_name="b", address=None, message="no answer")
                ]
            },
            "UNKNOWN",
            6,
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_only_what_brokers_did_not_tell_is_exit_code_6(queues, more, state, code):
    """A group that never committed, or that broadcasts, has no number to be missing."""
    found = group("G", *queues, **more)
    lag = compute_lag(found)
    common = Common()
    assert lag.state == state
    assert _exit_code(common, reading(found), [lag], process_queues=False) == code


@pytest.mark.parametrize(
    ("failure", "process_queues", "code"),
    [("no answer", True, 6), ("no answer", False, 0), (None, True, 0)],
)
def test_a_silent_member_is_missing_where_process_queues_were_asked_for(
    failure, process_queues, code
):
    clients = {"c": ClientQueues(client_id="c", failure=failure)}
    more = {"members": members_of("CLUSTERING"), "clients": clients}
    found = group("G", queue(5, 10), **more)
    shown = reading(found), [compute_lag(found)]
    assert _exit_code(Common(), *shown, process_queues=process_queues) == code


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--sort", "size"], "is not one of queue, lag, age, state, group"),
        (["--watch", "2"], "a unit is missing"),
        (["--watch", "0s"], "--watch must be greater than zero"),
        (["--sample", "0s"], "--sample must be greater than zero"),
        (["--watch", "1s", "--sample", "1s"], "cannot be used together"),
        (["--watch", "1s", "-o", "csv"], "--watch cannot write csv"),
        (["--watch", "1s", "-o", "json"], "--watch cannot write json"),
        (["--explain", "-o", "csv"], "--explain cannot write csv"),
    ],
)
def test_usage_errors(capsys, arguments, says):
    assert run(["lag", *arguments]) == 2
    assert says in capsys.readouterr().err


def test_no_name_server_is_unreachable(capsys):
    assert run(["lag", "G", "-n", "127.0.0.1:1", "--timeout", "500ms"]) == 5
    assert "127.0.0.1:1" in capsys.readouterr().err


def test_output_help_lists_every_key_of_a_queue(capsys):
    assert run(["lag", "-o", "help"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    lag = compute_lag(group("G", queue(1, 2)))
    trends = {"G": compare(lag.queues, lag, elapsed_ms=10_000)}
    row = LagView(groups=(), trends=trends).group_json(lag)
    assert listed == ["group", *order_of_columns(row["queues"][0])]


def order_of_columns(keys):
    names = [column.name for column in (*QUEUE_COLUMNS, *TREND_COLUMNS)]
    return sorted(keys, key=names.index)


def test_json_has_the_keys_of_the_contract():
    row = LagView(groups=()).group_json(compute_lag(group("G", queue(1, 5))))
    assert {"group", "state", "total_lag", "topics", "queues", "errors"} <= row.keys()
    assert row["queues"] == [
        {
            "topic": "T",
            "broker_name": "broker-a",
            "queue_id": 0,
            "committed": 1,
            "min_offset": 0,
            "max_offset": 5,
            "lag": 4,
            "inflight": None,
            "expired": 0,
            "age_ms": None,
            "state": "KNOWN",
            "reason": None,
            "client_id": None,
            "visible_at": None,
        }
    ]
    assert (row["topics"][0]["topic"], row["topics"][0]["lag"]) == ("T", 4)


def test_topics_and_queues_that_no_broker_told_are_not_0_in_the_list_of_groups():
    failure = BrokerFailure(
        broker_name="broker-a", address="127.0.0.1:2", message="no answer"
    )
    shown = {each.name: each.shown for each in GROUP_COLUMNS if each.shown is not None}

    def counts(*queues, failures=()):
        lag = compute_lag(group("G", *queues, failures=list(failures)))
        row = LagView(groups=()).summary_row(lag)
        return shown["topics"](row), shown["queues"](row)

    unread = queue(None, 0, topic=None, queue_id=None, failure="no answer")
    assert counts(unread, failures=[failure]) == (None, None)
    assert counts(queue(1, 5), unread, failures=[failure]) == (1, 1)
    assert counts() == (0, 0)


def test_unknown_is_null_with_a_reason():
    failure = BrokerFailure(
        broker_name="broker-a", address="127.0.0.1:2", message="no answer"
    )
    lag = compute_lag(
        group("G", queue(None, 0, failure="no answer"), failures=[failure])
    )
    row = LagView(groups=()).group_json(lag)
    assert (row["total_lag"], row["state"]) == (None, "UNKNOWN")
    assert row["reason"] == "broker-a: no answer"
    assert row["errors"][0]["broker_name"] == "broker-a"
    assert (row["queues"][0]["lag"], row["queues"][0]["reason"]) == (None, "no answer")


def show(capsys, *readings, **view):
    lags = [compute_lag(item) for item in readings]
    LagView(groups=lags, **view).write(Common())
    return capsys.readouterr()


def test_a_table_cuts_no_name(capsys):
    out = show(capsys, group("G", queue(1, 5, topic=LONG))).out
    assert LONG in out
    assert out.splitlines()[0].split() == [
        *("TOPIC", "BROKER", "QUEUE", "COMMITTED", "MIN", "MAX", "LAG", "EXPIRED"),
        *("INFLIGHT", "AGE", "STATE", "CLIENT"),
    ]


def test_a_group_is_its_queues_its_members_an_explanation_and_a_headline(capsys):
    waits = replace(queue(3, 5, queue_id=1), time_span=waiting_for(5_000))
    retry = queue(2, 4, topic="%RETRY%G")
    found = group(
        *("G", queue(1, 5), waits, retry),
        members=members_of("CLUSTERING"),
        dead_letters=3,
        notes=["a note"],
    )
    out, err = show(capsys, found, explain=True)
    assert (
        out
        == """\
TOPIC     BROKER    QUEUE  COMMITTED  MIN  MAX  LAG  EXPIRED  INFLIGHT  AGE  STATE  \
CLIENT
%RETRY%G  broker-a      0          2    0    4    2        0  -         -    KNOWN  -
T         broker-a      0          1    0    5    4        0  -         -    KNOWN  -
T         broker-a      1          3    0    5    2        0  -         5s   KNOWN  -

CLIENT  ADDRESS      VERSION  LANGUAGE  QUEUES
c       127.0.0.1:1  4.9.8    JAVA      -

G has 8 messages to read; the oldest has waited at least 5s.
2 of them failed before and wait for a retry.
Its dead-letter topic holds 3 messages; read them with: rmq tail %DLQ%G
1 member is online.
50% of it is in T@broker-a:0.
"""
    )
    assert err == (
        "G: BEHIND, lag 8, 2 of it in the retry topic, oldest unread message at least"
        " 5s old, members 1, dead letters 3\n"
        "warning: G: a note\n"
    )


@pytest.mark.parametrize(
    ("queues", "more", "said"),
    [
        ([queue(5, 5)], {}, "G: OK, lag 0, members 0"),
        (
            [queue(1, 5), queue(None, 0, topic="U", failure="no answer")],
            {
                "failures": [
                    BrokerFailure(broker_name="b", address=None, message="no answer")
                ],
                "members_unknown": "not told",
                "dead_letters_unknown": "not told",
            },
            (
                "G: UNKNOWN, lag unknown (b: no answer; 4 known), members unknown, dead"
                " letters unknown"
            ),
        ),
        (
            [queue(None, 0, failure="no answer")],
            {
                "failures": [
                    BrokerFailure(broker_name="b", address=None, message="no answer")
                ],
                "members": members_of("CLUSTERING"),
                "members_unknown": "not told",
            },
            "G: UNKNOWN, lag unknown (b: no answer), members at least 1",
        ),
        (
            [replace(queue(1, 5), time_span=waiting_for(5_000))],
            {},
            "G: STOPPED, lag 4, oldest unread message 5s old, members 0",
        ),
    ],
)
def test_the_headline_says_what_is_known(queues, more, said):
    lag = compute_lag(group("G", *queues, **more))
    assert headline(lag) == said


def test_the_headline_says_how_much_pop_has_handed_out():
    lag = compute_lag(group("G", queue(1, 5)))
    for inflight, said in (
        (2, ", 2 of it handed out and not acknowledged"),
        (0, ""),
        (None, ""),
    ):
        pop = PopLag(
            inflight=inflight,
            overdue=0,
            visible_ms=None,
            visible_in_ms=None,
            retry_lag=0,
        )
        line = headline(replace(lag, pop=pop))
        assert line == f"G: STOPPED, lag 4{said}, members 0"


def test_several_groups_have_a_column_for_it(capsys):
    out = show(capsys, group("G", queue(1, 5)), group("H", queue(2, 5))).out
    assert [line.split()[0] for line in out.splitlines()] == ["GROUP", "G", "H"]


def test_all_groups_are_a_line_each(capsys):
    out = show(
        capsys,
        group("G", queue(1, 5), queue(0, 2, queue_id=1), dead_letters=4),
        group("H", queue(None, 5)),
        is_summary=True,
    ).out
    assert [line.split() for line in out.splitlines()[1:]] == [
        ["G", "6", "-", "STOPPED", "1", "2", "0", "4"],
        ["H", "-", "-", "NO_COMMIT", "1", "1", "0", "-"],
    ]


def test_a_group_without_queues_is_not_a_blank(capsys):
    lags = [compute_lag(group("G"))]
    LagView(groups=lags).write(Common())
    assert capsys.readouterr().out.splitlines()[1].split()[-2:] == ["NO_COMMIT", "-"]
    LagView(groups=lags).write(Common(output="csv"))
    assert capsys.readouterr().out.splitlines()[1] == (
        'G,,,,,,,,,,,NO_COMMIT,"no committed offset, and no member subscribes to a'
        ' topic",,'
    )


def test_csv_has_the_rates_of_a_second_sample_behind_its_other_columns(capsys):
    before, now = (compute_lag(group("G", queue(at, 5))) for at in (1, 3))
    trends = {"G": compare(before.queues, now, elapsed_ms=10_000)}
    LagView(groups=[now], trends=trends).write(Common(output="csv"))
    rows = csv.DictReader(capsys.readouterr().out.splitlines())
    assert list(rows.fieldnames or ())[-5:] == [
        *("visible_at", "rate_in", "rate_out", "drain_ms", "verdict"),
    ]
    (row,) = rows
    assert (row["lag"], row["rate_in"], row["rate_out"]) == ("2", "0.0", "0.2")
    assert (row["drain_ms"], row["verdict"]) == ("10000", "BEHIND")


def test_nothing_from_a_peer_reaches_the_terminal_raw(capsys):
    members = Members()
    members.add(
        ConsumerConnection(
            connections=(
                Connection(
                    client_id="c\x1b[2J", client_addr="a\x07", language=0, version=409
                ),
            ),
            subscriptions={},
        )
    )
    hostile = group(
        "G\x1b]0;x\x07",
        queue(1, 5, topic="T\x1b[31m\u202e", failure="words\x9b"),
        members=members,
        notes=["note\x1b[0m"],
    )
    shown = show(capsys, hostile, explain=True)
    for text in (shown.out, shown.err):
        assert not any(char in text for char in "\x1b\x07\x9b\u202e")


def test_an_explanation_is_wrapped_between_words_on_a_terminal(monkeypatch):
    """At 80 columns the terminal cut its words in two."""
    out = Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")
    lags = [compute_lag(group("G", queue(1, 5)))]
    LagView(groups=lags, explain=True).write(Common())
    assert out.getvalue().splitlines()[-3:] == [
        "G has 4 messages to read.",
        "No member is online: nothing is read",
        "  until one starts.",
    ]


@pytest.mark.parametrize(
    ("key", "names"),
    [
        (None, ["b", "c", "a", "d"]),
        ("group", ["a", "b", "c", "d"]),
        ("lag", ["d", "a", "b", "c"]),
        ("state", ["a", "b", "d", "c"]),
        ("age", ["a", "b", "c", "d"]),
    ],
)
def test_sort(key, names):
    lags = [
        compute_lag(group("b", replace(queue(1, 3), time_span=waiting_for(5_000)))),
        compute_lag(group("c", queue(1, 1))),
        compute_lag(
            GroupReading(
                group="a",
                queues=[
                    QueueReading(
                        topic="T",
                        broker_name="broker-a",
                        queue_id=0,
                        committed=1,
                        min_offset=2,
                        max_offset=9,
                        time_span=waiting_for(60_000),
                    )
                ],
            )
        ),
        compute_lag(group("d", queue(None, 4))),
    ]
    assert [lag.group for lag in sort_groups(lags, key)] == names


@pytest.mark.parametrize(
    ("values", "bars"),
    [
        ((), ""),
        ((0, 0), "▁▁"),
        ((0, 7, None, 14), "▁▄ █"),
        ((5,), "█"),
    ],
)
def test_sparkline(values, bars):
    assert sparkline(values) == bars


class Looks:
    """Stands for the cluster: `read` gives one reading or error each, then Ctrl-C."""

    def __init__(self, *looks):
        self._looks = list(looks)

    def on_turn(self, action):
        """No reading takes long."""

    def read(self):
        if not self._looks:
            raise KeyboardInterrupt
        look = self._looks.pop(0)
        if isinstance(look, Exception):
            raise look
        return look


def watch(*looks):
    with pytest.raises(KeyboardInterrupt):
        watch_lag(Common(), Looks(*looks), LagOptions(watch=1))


def test_watch_writes_json_lines_in_a_pipe(capsys):
    later = reading(group("G", queue(3, 5)))
    later.at_ms += 10_000
    later.monotonic_ms += 10_000
    watch(reading(group("G", queue(1, 5))), later)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["at"], line["total_lag"]) for line in lines] == [
        ("2026-01-02T03:00:00.000Z", 4),
        ("2026-01-02T03:00:10.000Z", 2),
    ]
    assert "trend" not in lines[0]
    assert lines[1]["trend"]["rate_out"] == 0.2
    assert [line["state"] for line in lines] == ["STOPPED", "BEHIND"]
    assert lines[1]["trend"]["verdict"] == "BEHIND"


def test_watch_tells_no_rates_before_members_have_committed_twice(capsys):
    later = reading(group("G", queue(3, 5)))
    later.at_ms += 9_999
    watch(reading(group("G", queue(1, 5))), later)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert ["trend" in line for line in lines] == [False, False]


def test_watch_orders_groups_as_sort_says(capsys):
    found = reading(group("b", queue(1, 5)), group("a", queue(1, 2)))
    with pytest.raises(KeyboardInterrupt):
        watch_lag(Common(), Looks(found), LagOptions(watch=1, sort="group"))
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["group"] for line in lines] == ["a", "b"]


def test_watch_survives_a_look_that_fails(capsys):
    lost = ConnectError("no server at 127.0.0.1:1", address="127.0.0.1:1")
    watch(reading(group("G", queue(1, 5))), lost, reading(group("G", queue(1, 5))))
    shown = capsys.readouterr()
    lines = [json.loads(line) for line in shown.out.splitlines()]
    assert [(line["state"], line["total_lag"]) for line in lines] == [
        ("STOPPED", 4),
        ("UNKNOWN", None),
        ("STOPPED", 4),
    ]
    assert [line["reason"] for line in lines] == [
        None,
        "no answer since 03:00:00Z",
        None,
    ]
    assert [line["queues"][0]["state"] for line in lines] == [
        "KNOWN",
        "UNKNOWN",
        "KNOWN",
    ]
    assert lines[1]["queues"][0]["lag"] is None
    assert "warning: no server at 127.0.0.1:1" in shown.err


def test_watch_on_a_terminal_names_brokers_that_fail_and_why_nothing_is_read(
    monkeypatch,
):
    part = reading(group("G", queue(1, 5)))
    part.failures.append(BrokerFailure(broker_name="b", address=None, message="hangs"))
    lost = ConnectError("no server at 127.0.0.1:1", address="127.0.0.1:1")
    monkeypatch.setenv("TERM", "xterm")
    with redirect_stdout(Terminal()) as screen:
        watch(part, lost)
    _, first, second, _ = screen.getvalue().split("lag of all groups")
    assert "b: hangs" in first
    assert "no server" not in first
    assert "b: hangs" in second
    assert "no server at 127.0.0.1:1" in second


@pytest.mark.parametrize(
    ("options", "title"),
    [
        (LagOptions(watch=1), "lag of all groups"),
        (LagOptions(watch=1, groups=["G"]), "lag of G"),
    ],
)
def test_what_is_watched_has_rates_from_the_second_reading_on(options, title):
    watcher = _Watcher(options)
    watcher.take(reading(group("G", queue(1, 5))))
    picture = watcher.picture(interval_ms=2_000)
    heading = ("2026-01-02T03:00:00.000Z", "every 2s", "rates after 10s")
    assert (picture.title, picture.words) == (title, (*heading, "Ctrl-C to stop"))
    assert picture.warnings == []
    later = reading(group("G", queue(3, 6), queue(0, 0, topic="%RETRY%G")))
    later.at_ms += 10_000
    later.monotonic_ms += 10_000
    watcher.take(later)
    picture = watcher.picture(interval_ms=2_000, error="no answer")
    assert picture.words == ("2026-01-02T03:00:10.000Z", "every 2s", "Ctrl-C to stop")
    assert picture.warnings == ["no answer"]
    shown = "topic lag total_lag age_ms state rate_in rate_out drain_ms verdict spark"
    rates = {"rate_in": 0.1, "rate_out": 0.2, "drain_ms": 30_000, "verdict": "BEHIND"}
    known = {"state": "BEHIND", "age_ms": None, "spark": "█▆", **rates}
    if options.groups:
        total = {"topic": "TOTAL", "lag": 3, **known}
        queues = [{"topic": "T", "lag": 3, **known, "state": "KNOWN"}]
    else:
        total = {"total_lag": 3, **known}
        queues = []
        assert len(picture.rows[0]["topics"]) == 2
    rows = [
        {name: row[name] for name in shown.split() if name in row}
        for row in picture.rows
    ]
    assert rows == [total, *queues]
    watcher.is_stale = True
    picture = watcher.picture(interval_ms=2_000)
    assert picture.words[0] == "no answer since 03:00:10Z"
    names = ("state", "verdict", "rate_in", "rate_out", "drain_ms")
    assert [[row[name] for name in names] for row in picture.rows] == [
        ["UNKNOWN", None, None, None, None]
    ] * len(rows)


def test_the_first_look_must_work():
    lost = ConnectError("nobody", address="127.0.0.1:1")
    with pytest.raises(ConnectError):
        watch_lag(Common(), Looks(lost), LagOptions(watch=1))


def test_empty_retry_queues_are_left_out_unless_there_is_nothing_else():
    empty = {"topic": "%RETRY%G", "state": "OK", "lag": 0}
    full = {"topic": "%RETRY%G", "state": "KNOWN", "lag": 1}
    unknown: dict[str, Any] = {"topic": "%RETRY%G", "state": "UNKNOWN", "lag": None}
    other = {"topic": "T", "state": "OK", "lag": 0}
    rows: list[dict[str, Any]] = [empty, full, unknown, other]
    assert without_empty_retries(rows) == [full, unknown, other]
    assert without_empty_retries([empty]) == [empty]


@pytest.mark.parametrize("by_ms", [-3_600_000, 3_600_000])
def test_a_clock_that_is_set_between_two_samples_changes_no_rate(
    rmq_cluster, monkeypatch, capsys, by_ms
):
    """A clock that was set back made three messages 3,000 per second."""
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.send("orders", [Seed(body=b"x")])
    commit(rmq_cluster, "billing", "orders", {0: 0})
    epoch_ms, wait_ms = SystemClock.epoch_ms, SystemClock.wait_ms
    set_by_ms = 0

    def wait(clock, event, timeout_ms):
        nonlocal set_by_ms
        if timeout_ms == SAMPLE_MS:
            rmq_cluster.send("orders", [Seed(body=b"x") for _ in range(3)])
            set_by_ms = by_ms
        return wait_ms(clock, event, timeout_ms)

    monkeypatch.setattr(SystemClock, "wait_ms", wait)
    monkeypatch.setattr(SystemClock, "epoch_ms", lambda it: epoch_ms(it) + set_by_ms)
    words = ["lag", "billing", "--sample", f"{SAMPLE_MS}ms", "-o", "json"]
    run([*words, "-n", rmq_cluster.namesrv])
    (group,) = json.loads(capsys.readouterr().out)
    # Three in 1.237 s; a busy machine takes longer, but not an hour.
    assert 0.02 < group["trend"]["rate_in"] < 2.5
