"""The log of redrives on the disk: what it holds, and what is read from it."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqcli.admin.dlq.log import (
    DOUBTFUL,
    NEW,
    SENT,
    LetterPlace,
    LetterResult,
    LetterStates,
    default_path,
    open_log,
    read_log,
)
from rmqcli.admin.reset.cluster_identity import ClusterIdentity
from rmqcli.errors import ConfigError, RefusedError, RmqError
from rmqcli.wire.message.record import DecodeFailure

CLUSTER = ClusterIdentity(("DefaultCluster",), {"broker-a": ("10.0.0.1:10911",)})
OTHER = ClusterIdentity(("DefaultCluster",), {"broker-a": ("10.0.0.2:10911",)})

A0 = LetterPlace("broker-a", 0, 7, 4_096, 101)
A1 = LetterPlace("broker-a", 0, 9, 8_192, 102)
B0 = LetterPlace("broker-b", 3, 0, 12, 103)

HEAD = (
    '{"version":1,"group":"billing","cluster":{"names":["DefaultCluster"],'
    '"brokers":{"broker-a":["10.0.0.1:10911"]}},"at_ms":5}\n'
)
#: Two batches: one whose outcomes are known, and one that a kill has interrupted.
WRITTEN = (
    HEAD + '{"batch":1,"at_ms":6,"intent":'
    '[["broker-a",0,7,4096,101],["broker-b",3,0,12,103]]}\n'
    '{"batch":1,"at_ms":8,"outcome":['
    '["broker-a",0,7,4096,"SEND_OK","orders","AB01","broker-a",2,31,null,101],'
    '["broker-b",3,0,12,"UNKNOWN","orders",null,null,null,null,"no answer",103]]}\n'
    '{"batch":2,"at_ms":9,"intent":[["broker-a",0,9,8192,102]]}\n'
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "redrive" / "log.jsonl"


def write(path, text):
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def test_each_line_says_what_was_sent_when_and_what_became_of_it(path):
    log = open_log(path, "billing", CLUSTER, at_ms=5)
    log.intend([A0, B0], at_ms=6)
    log.conclude(
        [
            LetterResult(A0, "SEND_OK", "orders", "AB01", "broker-a", 2, 31),
            LetterResult(B0, "UNKNOWN", "orders", error="no answer"),
        ],
        at_ms=8,
    )
    log.intend([A1], at_ms=9)
    log.close()
    assert path.read_text() == WRITTEN
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (
        0o600,
        0o700,
    )


def test_outcomes_reach_the_disk_together_with_the_next_letters_or_at_the_end(path):
    """A kill in between leaves one batch in doubt, as one during the batch does."""
    log = open_log(path, "billing", CLUSTER, at_ms=5)
    log.intend([A0], at_ms=6)
    begun = path.read_text()
    log.conclude([LetterResult(A0, "SEND_OK", "orders")], at_ms=8)
    assert path.read_text() == begun
    assert read_log(path, "billing", CLUSTER)[0].get(A0) == DOUBTFUL
    log.intend([A1], at_ms=9)
    states, _, _ = read_log(path, "billing", CLUSTER)
    assert [states.get(each) for each in (A0, A1)] == [SENT, DOUBTFUL]
    log.conclude([LetterResult(A1, "SEND_OK", "orders")], at_ms=10)
    log.flush()
    assert read_log(path, "billing", CLUSTER)[0].get(A1) == SENT
    log.intend([B0], at_ms=11)
    log.conclude([LetterResult(B0, "SEND_OK", "orders")], at_ms=12)
    log.close()
    assert read_log(path, "billing", CLUSTER)[0].get(B0) == SENT


def test_a_log_is_continued_with_the_next_batch(path):
    write(path, WRITTEN)
    log = open_log(path, "billing", CLUSTER, at_ms=10)
    log.intend([A1], at_ms=11)
    log.close()
    assert path.read_text() == (
        WRITTEN + '{"batch":3,"at_ms":11,"intent":[["broker-a",0,9,8192,102]]}\n'
    )


def test_the_expression_by_which_letters_are_chosen_is_noted_when_it_changes(path):
    log = open_log(path, "billing", CLUSTER, at_ms=5)
    log.choose_by(None, at_ms=6)
    assert path.read_text() == HEAD
    log.intend([A0], at_ms=6)
    log.conclude([LetterResult(A0, "SEND_OK", "orders", "AB01", "b", 0, 1)], at_ms=7)
    log.choose_by("body = 'a'", at_ms=8)
    log.choose_by("body = 'a'", at_ms=9)
    assert log.states.chosen_by == "body = 'a'"
    log.choose_by(None, at_ms=10)
    log.close()
    assert path.read_text() == (
        HEAD + '{"batch":1,"at_ms":6,"intent":[["broker-a",0,7,4096,101]]}\n'
        '{"batch":1,"at_ms":7,"outcome":['
        '["broker-a",0,7,4096,"SEND_OK","orders","AB01","b",0,1,null,101]]}\n'
        '{"batch":1,"at_ms":8,"chosen_by":"body = \'a\'"}\n'
        '{"batch":1,"at_ms":10,"chosen_by":null}\n'
    )


def test_results_that_are_noted_one_after_the_other_are_all_kept(path):
    log = open_log(path, "billing", CLUSTER, at_ms=5)
    log.intend([A0, A1], at_ms=6)
    log.conclude([LetterResult(A0, "SEND_OK", "orders")], at_ms=7)
    log.conclude([LetterResult(A1, "SEND_OK", "orders")], at_ms=8)
    log.close()
    states, _, _ = read_log(path, "billing", CLUSTER)
    assert [states.get(each) for each in (A0, A1)] == [SENT, SENT]


def test_texts_that_are_not_unicode_are_kept(path):
    """Such a text is half of a pair of UTF-16, which JSON and Java can hold."""
    half = "\ud83d"
    log = open_log(path, "billing", CLUSTER, at_ms=5)
    log.choose_by(f"body = '{half}'", at_ms=6)
    place = A0._replace(broker_name=half)
    log.intend([place], at_ms=6)
    log.conclude([LetterResult(place, "SEND_OK", "orders", error=half)], at_ms=7)
    log.close()
    states, _, _ = read_log(path, "billing", CLUSTER)
    assert (states.chosen_by, states.get(place)) == (f"body = '{half}'", SENT)


def test_a_line_that_the_disk_takes_in_pieces_is_written_whole(path, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:7]))
    log = open_log(path, "billing", CLUSTER, at_ms=5)
    log.close()
    assert path.read_text() == HEAD


def test_the_name_of_a_new_log_is_flushed_to_the_disk_too(path, monkeypatch):
    """Without that a power cut may lose the whole file, and letters are sent twice."""
    flushed: list[str] = []
    fsync = os.fsync

    def note(fd):
        flushed.append(os.readlink(f"/proc/self/fd/{fd}"))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", note)
    open_log(path, "billing", CLUSTER, at_ms=5).close()
    assert flushed == [str(path.parent), str(path)]
    flushed.clear()
    open_log(path, "billing", CLUSTER, at_ms=6).close()
    assert flushed == []


def test_states_follow_from_the_last_word_on_each_letter(path):
    write(path, WRITTEN)
    states, batch, length = read_log(path, "billing", CLUSTER)
    assert (batch, length) == (3, len(WRITTEN))
    assert [states.get(each) for each in (A0, B0, A1)] == [SENT, DOUBTFUL, DOUBTFUL]
    assert states.get(A0._replace(queue_offset=8)) == NEW
    assert states.get(A0._replace(queue_offset=6)) == NEW
    assert states.get(A0._replace(queue_offset=10)) == NEW
    assert states.get(A0._replace(queue_id=1)) == NEW


def test_a_log_that_is_open_knows_the_same_states(path):
    log = open_log(path, "billing", CLUSTER, at_ms=5)
    log.intend([A0, A1, B0], at_ms=6)
    assert [log.states.get(each) for each in (A0, A1, B0)] == [DOUBTFUL] * 3
    log.conclude(
        [
            LetterResult(A0, "SLAVE_NOT_AVAILABLE", "orders"),
            LetterResult(A1, "UNKNOWN", "orders"),
            LetterResult(B0, "NO_PERMISSION", "orders"),
        ],
        at_ms=7,
    )
    log.close()
    assert [log.states.get(each) for each in (A0, A1, B0)] == [SENT, DOUBTFUL, NEW]


@pytest.mark.parametrize(
    "status",
    ["SEND_OK", "FLUSH_DISK_TIMEOUT", "FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE"],
)
def test_a_stored_letter_is_sent_whatever_the_broker_says_of_its_copies(path, status):
    write(path, HEAD + f'{{"batch":1,"outcome":[["broker-a",0,7,4096,"{status}"]]}}\n')
    states, _, _ = read_log(path, "billing", CLUSTER)
    assert states.get(A0) == SENT


def test_a_letter_of_a_topic_that_was_created_again_is_new(path):
    """Its offset is that of another letter, which was sent."""
    write(path, WRITTEN)
    states, _, _ = read_log(path, "billing", CLUSTER)
    assert states.get(A0._replace(commit_log_offset=4_097)) == NEW


def test_a_letter_of_a_cluster_that_was_wiped_is_new(path):
    """Messages of the same sizes have the same places in the new commit log."""
    write(path, WRITTEN)
    states, _, _ = read_log(path, "billing", CLUSTER)
    later = [each._replace(store_timestamp_ms=999) for each in (A0, A1, B0)]
    assert [states.get(each) for each in later] == [NEW, NEW, NEW]
    assert [states.get(each) for each in (A0, A1, B0)] == [SENT, DOUBTFUL, DOUBTFUL]


def test_a_log_without_store_times_is_read(path):
    """As an earlier version wrote it."""
    write(
        path,
        HEAD + '{"batch":1,"at_ms":6,"intent":[["broker-a",0,9,8192]]}\n'
        '{"batch":1,"at_ms":8,"outcome":['
        '["broker-a",0,7,4096,"SEND_OK","orders","AB01","broker-a",2,31,null]]}\n',
    )
    states, _, _ = read_log(path, "billing", CLUSTER)
    assert [states.get(each) for each in (A0, A1)] == [SENT, DOUBTFUL]


def test_a_line_that_a_kill_has_cut_is_removed(path):
    write(path, WRITTEN + '{"batch":3,"at_ms":9,"inte')
    assert read_log(path, "billing", CLUSTER)[1:] == (3, len(WRITTEN))
    open_log(path, "billing", CLUSTER, at_ms=10).close()
    assert path.read_text() == WRITTEN


@pytest.mark.parametrize("text", ["precious", "{", '{"version"', HEAD[:-1], ""])
def test_a_file_is_emptied_only_if_a_kill_may_have_cut_its_first_line(path, text):
    """A file that was named by mistake lost its content if it had no end of a line."""
    write(path, text)
    if text == "precious":
        with pytest.raises(ConfigError, match="is not a log of redrives"):
            open_log(path, "billing", CLUSTER, at_ms=5)
        assert path.read_text() == "precious"
    else:
        open_log(path, "billing", CLUSTER, at_ms=5).close()
        assert path.read_text() == HEAD


def test_a_line_that_is_too_long_is_not_read_to_its_end_and_not_removed(
    path, monkeypatch
):
    monkeypatch.setattr("rmqcli.admin.dlq.log._LINE_BYTES_MAX", len(HEAD))
    text = HEAD + " " * (len(HEAD) - 1) + "{}\n"
    write(path, text)
    with pytest.raises(ConfigError, match="damaged after 123 bytes: ValueError"):
        open_log(path, "billing", CLUSTER, at_ms=5)
    assert path.read_text() == text
    write(path, HEAD + " " * (len(HEAD) - 1))
    assert read_log(path, "billing", CLUSTER)[1:] == (1, len(HEAD))


def test_a_log_without_a_batch_begins_with_the_first_one(path):
    states = LetterStates()
    assert (states.is_empty, states.chosen_by) == (True, None)
    write(path, HEAD)
    states, batch, length = read_log(path, "billing", CLUSTER)
    assert (batch, length, states.is_empty) == (1, len(HEAD), True)
    states.set(A0, DOUBTFUL)
    assert not states.is_empty


def test_a_file_that_does_not_exist_has_no_batches(path):
    states, batch, length = read_log(path, "billing", CLUSTER)
    assert (batch, length, states.get(A0)) == (1, 0, NEW)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("null", "TypeError"),
        ("[]", "TypeError"),
        ('{"at_ms":1}', "KeyError"),
        ('{"batch":"x"}', "ValueError"),
        ('{"batch":1,"intent":7}', "TypeError"),
        ('{"batch":1,"chosen_by":7}', "TypeError"),
        ('{"batch":1,"intent":[["broker-a",0,7]]}', "ValueError"),
        ('{"batch":1,"intent":[["broker-a",-1,7,4096]]}', "TypeError"),
        ('{"batch":1,"intent":[["broker-a",0,"7",4096]]}', "TypeError"),
        (
            '{"batch":1,"intent":[["broker-a",0,7,1],["broker-a",0,1000000007,1]]}',
            "ValueError('broker-a:0:1000000007 is too far",
        ),
        (f'{{"batch":1,"intent":[["broker-a",0,7,{2**63}]]}}', "TypeError"),
        ("[" * 100_000, "RecursionError"),
        ("{", "JSONDecodeError"),
    ],
)
def test_a_damaged_log_is_refused_with_the_place(path, line, says):
    write(path, f"{HEAD}{line}\n")
    with pytest.raises(ConfigError) as caught:
        open_log(path, "billing", CLUSTER, at_ms=10)
    assert f"damaged after {len(HEAD)} bytes: {says}" in caught.value.message
    assert path.read_text() == f"{HEAD}{line}\n"
    # The file is not locked any more.
    write(path, HEAD)
    open_log(path, "billing", CLUSTER, at_ms=10).close()


def test_the_first_line_must_be_of_this_version_group_and_cluster(path):
    write(path, HEAD.replace('"version":1', '"version":2'))
    with pytest.raises(ConfigError, match="version 2 is not 1"):
        read_log(path, "billing", CLUSTER)
    write(path, HEAD)
    with pytest.raises(RefusedError, match="the log of group billing, not of shipping"):
        read_log(path, "shipping", CLUSTER)
    with pytest.raises(RefusedError, match=r"10\.0\.0\.1:10911.*this cluster is"):
        read_log(path, "billing", OTHER)


def test_a_folder_in_the_place_of_the_log_is_an_error(tmp_path):
    with pytest.raises(RmqError, match="cannot be opened"):
        open_log(tmp_path, "billing", CLUSTER, at_ms=1)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_log(tmp_path, "billing", CLUSTER)


def test_the_log_of_a_group_is_in_the_folder_of_the_users_state():
    environ = {"XDG_STATE_HOME": "/state"}
    two = ClusterIdentity(("a/b", "c"), {})
    assert str(default_path(environ, "billing", two)) == (
        "/state/rmqcli/redrive/billing@a_b+c.jsonl"
    )
    assert str(default_path(environ, "billing", ClusterIdentity((), {}))) == (
        "/state/rmqcli/redrive/billing@cluster.jsonl"
    )


@given(
    st.lists(
        st.tuples(
            st.integers(100, 140),
            st.sampled_from([1, 2]),
            st.sampled_from([3, 4]),
            st.sampled_from([SENT, DOUBTFUL, NEW]),
        )
    )
)
def test_the_last_state_of_each_letter_counts_in_any_order_of_the_letters(noted):
    states = LetterStates()
    expected: dict[int, tuple[int, int, int]] = {}
    for offset, place, time_ms, state in noted:
        states.set(LetterPlace("broker-a", 0, offset, place, time_ms), state)
        expected[offset] = place, time_ms, state
    for offset in range(99, 142):
        known = expected.get(offset, (0, 0, NEW))
        for which in ((1, 3), (1, 4), (2, 3), (2, 4)):
            found = states.get(LetterPlace("broker-a", 0, offset, *which))
            assert found == (known[2] if known[:2] == which else NEW)


def test_letters_that_are_too_far_apart_are_of_no_queue(monkeypatch):
    monkeypatch.setattr("rmqcli.admin.dlq.log._SPAN_MAX", 10)
    states = LetterStates()
    states.set(A0, SENT)
    last, first = A0._replace(queue_offset=16), A0._replace(queue_offset=6)
    states.set(last, DOUBTFUL)
    with pytest.raises(ValueError, match="broker-a:0:17 is too far"):
        states.set(A0._replace(queue_offset=17), SENT)
    with pytest.raises(ValueError, match="broker-a:0:6 is too far"):
        states.set(first, SENT)
    with pytest.raises(ValueError, match="broker-a:0:17 is too far"):
        states.set_all([A1, A0._replace(queue_offset=17)], SENT)
    states.set(first._replace(queue_id=1), SENT)  # another queue
    assert [states.get(each) for each in (A0, last, first)] == [SENT, DOUBTFUL, NEW]


def test_states_of_distant_neighbours_are_kept_apart():
    states = LetterStates()
    offsets = (8_191, 0, 4_096, 4_095, 100_000)
    places = [
        A0._replace(queue_offset=offset, commit_log_offset=offset + 1)
        for offset in offsets
    ]
    states.set_all([*places, B0], DOUBTFUL)
    states.set_all(places[1:3], SENT)
    assert [states.get(each) for each in (*places, B0)] == [
        *(DOUBTFUL, SENT, SENT, DOUBTFUL, DOUBTFUL),
        DOUBTFUL,
    ]
    assert states.get(places[0]._replace(queue_offset=8_190)) == NEW
    assert states.get(places[0]._replace(queue_offset=8_192)) == NEW


@pytest.mark.parametrize("end", [4_095, 4_096, 4_097])
def test_neighbours_on_both_sides_of_a_blocks_end_are_kept(end):
    """Noted together, as the letters of a batch are."""
    places = [
        A0._replace(queue_offset=offset, commit_log_offset=offset + 1)
        for offset in range(4_090, end)
    ]
    states = LetterStates()
    states.set_all(places, DOUBTFUL)
    assert {states.get(each) for each in places} == {DOUBTFUL}
    after = A0._replace(queue_offset=end, commit_log_offset=end + 1)
    assert states.get(after) == NEW


def test_an_illegible_letter_is_none_of_those_that_were_sent():
    states = LetterStates()
    states.set(A0, SENT)
    state_of = states.of("broker-a", 0)

    def illegible(queue_offset):
        return DecodeFailure(
            at=0,
            queue_id=0,
            queue_offset=queue_offset,
            commit_log_offset=4_096,
            error="properties are too long",
            raw=b"",
        )

    assert state_of(illegible(None)) == NEW
    assert state_of(illegible(7)) == NEW
    states.set(A0._replace(store_timestamp_ms=None), SENT)
    assert state_of(illegible(7)) == SENT


def test_a_store_time_that_cannot_be_true_does_not_damage_the_log(path):
    letter = A0._replace(store_timestamp_ms=-1)
    log = open_log(path, "billing", CLUSTER, at_ms=5)
    log.intend([letter], at_ms=6)
    log.close()
    states, _, _ = read_log(path, "billing", CLUSTER)
    assert states.get(letter) == log.states.get(letter) == DOUBTFUL
