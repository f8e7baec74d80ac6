"""What the index finds is what reading the topic finds, or is said to be incomplete.

Each example sends messages whose keys are hard for an index: blanks in and around them,
words with the same hash of Java ("Aa" and "BB"), topics whose names have the same hash,
several keys of a message, the same key twice, more messages of a second than a broker
tells at a time. Then a key is looked up by the index and by reading, between two times,
and both are compared with what was sent.
"""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from itertools import count

import pytest
from hypothesis import HealthCheck, assume, example, given, note, settings
from hypothesis import strategies as st

from rmqcli.broker.cluster.seeding import Seed
from rmqcli.cli.main import run
from rmqcli.testing import ManualClock
from rmqcli.units import format_rfc3339
from tests.kit.doses import doses

WORDS = ("Aa", "BB", "AaAa", "BBBB", "k", "订单")
BLANKS = ("", " ", "  ")
#: Both have the hash of "Aa" at the same place, and so any keys in them collide.
TOPICS = ("t-%d-Aa", "t-%d-BB")


@st.composite
def key_texts(draw):
    """The text of a message's property KEYS: words with any blanks around them."""
    words = draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=3))
    text = draw(st.sampled_from(BLANKS))
    for word in words:
        text += word + draw(st.sampled_from((" ", " ", "  ")))
    return text + draw(st.sampled_from(BLANKS))


@dataclass(frozen=True)
class Batch:
    """Messages that are sent together, and how long nothing is sent afterwards."""

    topic: int
    broker: str
    queue_id: int
    keys: tuple[str | None, ...]
    pause_ms: int


batches = st.builds(
    Batch,
    topic=st.sampled_from((0, 0, 1)),
    broker=st.sampled_from(("broker-a", "broker-b")),
    queue_id=st.sampled_from((0, 1)),
    keys=st.one_of(
        st.lists(st.none() | key_texts(), min_size=1, max_size=4).map(tuple),
        st.builds(
            lambda key, times: (key,) * times, key_texts(), st.sampled_from((40, 70))
        ),
    ),
    pause_ms=st.sampled_from((0, 1, 400, 999, 1_000, 5_000, 90_000)),
)


def looked_up(cluster, topic, key, *words):
    """Run `rmq message find`; return its code, the bodies, and what it said."""
    out, err = io.StringIO(), io.StringIO()
    do = ["message", "find", topic, "--key", key, *words]
    with redirect_stdout(out), redirect_stderr(err):
        code = run([*do, "-n", cluster.namesrv, "-o", "jsonl"])
    lines = out.getvalue().splitlines()
    return code, sorted(json.loads(line)["body"] for line in lines), err.getvalue()


def has_key(keys, key):
    """Whether the words of `key` are beside each other in `keys`."""
    words, wanted = (keys or "").split(" "), key.split(" ")
    at = range(len(words) - len(wanted) + 1)
    return any(words[n : n + len(wanted)] == wanted for n in at)


numbers = count()


@pytest.fixture(params=["memory", "files"])
def cluster(rmq_cluster_factory, request, tmp_path):
    """Two brokers whose clock stands still between messages.

    The index of a store of files has hashes and seconds, as that of RocketMQ.
    """
    clock = ManualClock(now_ms=1_700_000_000_000)
    store = tmp_path if request.param == "files" else None
    return rmq_cluster_factory(brokers=2, queues=2, clock=clock, store=store)


@pytest.mark.slow
@given(
    sent=st.lists(batches, min_size=1, max_size=6),
    key=st.one_of(key_texts(), st.sampled_from(WORDS)),
    bounds=st.tuples(st.integers(-1, 6), st.integers(-1, 6)),
    edges=st.tuples(st.sampled_from((-1, 0, 1)), st.sampled_from((-1, 0, 1))),
    of_first=st.sampled_from(("id", "keys", "a key", "nothing")),
)
@settings(
    max_examples=doses(1),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_the_index_finds_what_reading_finds(
    cluster, sent, key, bounds, edges, of_first
):
    number = next(numbers)
    topics = [cluster.create_topic(each % number) for each in TOPICS]
    stored: list[tuple[int, int, str | None, str, str]] = []
    times: list[int] = []
    for batch in sent:
        now_ms = cluster.options.clock.epoch_ms()
        times.append(now_ms)
        seeds = [
            Seed(body=b"%d" % (len(stored) + n), keys=keys or ())
            for n, keys in enumerate(batch.keys)
        ]
        placed = cluster.send(
            topics[batch.topic], seeds, broker=batch.broker, queue_id=batch.queue_id
        )
        stored += [
            (batch.topic, now_ms, keys, str(len(stored) + n), each.msg_id)
            for n, (keys, each) in enumerate(zip(batch.keys, placed, strict=True))
        ]
        cluster.advance(batch.pause_ms)
    _, _, keys, _, msg_id = stored[0]
    if of_first == "id":
        key = msg_id
    elif of_first != "nothing" and keys:
        key = keys if of_first == "keys" else keys.split()[0]
    words, begin_ms, end_ms = [], 0, None
    if 0 <= bounds[0] < len(times):
        begin_ms = times[bounds[0]] + edges[0]
        words += ["--from", f"@{format_rfc3339(begin_ms)}"]
    if 0 <= bounds[1] < len(times):
        end_ms = times[bounds[1]] + edges[1]
        words += ["--to", f"@{format_rfc3339(end_ms)}"]
    assume(end_ms is None or begin_ms <= end_ms)  # others are refused
    note(f"{key!r} {words}")
    expected = sorted(
        body
        for topic, at_ms, keys, body, msg_id in stored
        if topic == 0
        and at_ms >= begin_ms
        and (end_ms is None or at_ms < end_ms)
        and (key == msg_id or has_key(keys, key))
    )
    code, read, err = looked_up(cluster, topics[0], key, *words, "--scan")
    assert (code, read) == (0, expected), err
    code, found, err = looked_up(cluster, topics[0], key, *words)
    assert "found by the index" in err
    if code == 0:
        assert found == expected, err
    else:
        # More of one second than a broker tells.
        assert code == 6, err
        assert set(found) <= set(expected)
        assert "did not tell all messages of the key" in err


@pytest.mark.slow
@given(
    sent=st.lists(
        st.tuples(
            st.sampled_from((1, 30, 63, 64, 70)),
            st.sampled_from((0, 400, 1_000, 90_000)),
            st.sampled_from((-3_600_000, -30_000, -1_000, -999, 0, 5_000)),
        ),
        min_size=2,
        max_size=5,
    )
)
@settings(
    max_examples=doses(1) // 4,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@example(sent=[(70, 0, -3_600_000), (70, 0, 0)])
@example(sent=[(30, 90_000, -30_000), (63, 1_000, 0), (1, 0, 0)])
def test_nothing_is_left_out_unsaid_where_a_clock_was_set_back(cluster, sent):
    """Older messages are then stored at later times than those that were told.

    Each group of messages is sent one by one within a time, before the clock changes.
    """
    topic = cluster.create_topic(f"back-{next(numbers)}")
    bodies: list[str] = []
    for times, within_ms, step_ms in sent:
        for _ in range(times):
            bodies.append(str(len(bodies)))
            seed = Seed(body=bodies[-1].encode(), keys="k")
            cluster.send(topic, [seed], broker="broker-a", queue_id=0)
            cluster.advance(within_ms // times)
        cluster.advance(step_ms)
    code, found, err = looked_up(cluster, topic, "k")
    if code == 0:
        assert found == sorted(bodies), err
    else:
        assert code == 6, err
        assert set(found) <= set(bodies)
        assert "did not tell all messages of the key" in err
