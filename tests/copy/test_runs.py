"""What the state of a copy keeps of the messages that are stored."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from rmqcli.copy.log import BatchOutcome, CopyState, SourceSpan, StoredRun, compact
from rmqcli.copy.positions import map_positions

A, B, T, U = ("a", 0), ("b", 0), ("t", 0), ("u", 0)


def run(key, offsets, to, at):
    return StoredRun(key[0], key[1], compact(list(offsets)), to[0], to[1], at)


def take(state, runs, *, unknown=0):
    """Let a batch end with these runs; `unknown` messages have no answer."""
    state.take_intent(state.batch + 1, [])
    state.take_outcome(
        BatchOutcome(
            runs=runs,
            unknown=[SourceSpan("a", 0, 0, unknown, unknown)] if unknown else [],
            positions={},
            read={},
            written={},
        )
    )


def kept(*batches):
    state = CopyState()
    for runs in batches:
        take(state, runs)
    return state.runs


def test_neighbours_are_a_range_and_other_offsets_eight_bytes_each():
    assert compact([3, 4, 5]) == range(3, 6)
    assert compact([7]) == range(7, 8)
    assert compact([3, 5]) == array("q", [3, 5])


def test_a_run_that_continues_another_one_is_a_part_of_it():
    assert kept(
        [run(A, range(5), T, 10), run(B, range(3), U, 0)],
        [run(B, range(3, 9), U, 3), run(A, range(5, 8), T, 15)],
    ) == [run(A, range(8), T, 10), run(B, range(9), U, 0)]


def test_a_run_that_does_not_continue_another_one_is_kept():
    first = run(A, range(5), T, 10)
    for other in (
        run(A, range(6, 8), T, 15),  # a message between is not copied
        run(A, range(5, 8), T, 16),  # others have sent a message between
        run(A, range(5, 8), U, 15),
        run(B, range(5, 8), T, 15),
        run(A, (5, 7), T, 15),
    ):
        assert kept([first], [other]) == [first, other]


def test_a_run_after_messages_in_doubt_is_not_a_part_of_one_before():
    state = CopyState()
    take(state, [run(A, range(5), T, 0)], unknown=2)
    take(state, [run(A, range(5, 8), T, 5)])
    take(state, [run(A, range(8, 9), T, 8)])
    assert state.runs == [run(A, range(5), T, 0), run(A, range(5, 9), T, 5)]
    assert (state.doubts, state.copied) == ({1: {A: 2}}, 9)


def test_only_messages_that_were_sent_are_in_doubt():
    state = CopyState()
    state.take_intent(1, [SourceSpan("a", 0, 0, 9, 2), SourceSpan("b", 0, 0, 9, 0)])
    state.take_intent(2, [SourceSpan("a", 0, 0, 9, 9), SourceSpan("b", 0, 0, 9, 1)])
    state.take_intent(3, [])
    assert state.doubts == {0: {A: 11, B: 1}}


@given(
    batches=st.lists(
        st.tuples(
            st.sampled_from([A, B]),
            st.sampled_from([T, U]),
            st.integers(1, 3),  # messages
            st.sampled_from([0, 0, 0, 1, 3]),  # of others before them
            st.sampled_from([0, 0, 0, 1, 2]),  # in doubt afterwards
        ),
        max_size=25,
    ),
    committed=st.fixed_dictionaries({A: st.integers(0, 40), B: st.integers(0, 40)}),
)
def test_joined_runs_give_the_same_positions(batches, committed):
    state = CopyState()
    runs: list[StoredRun] = []
    doubts: dict[int, dict[tuple[str, int], int]] = {}
    read, ends = {A: 0, B: 0}, {T: 0, U: 0}
    in_doubt = 0
    for key, to, count, others, unknown in batches:
        if in_doubt:
            doubts[len(runs)] = {A: in_doubt}
        at = ends[to] + others
        runs.append(run(key, range(read[key], read[key] + count), to, at))
        take(state, [runs[-1]], unknown=unknown)
        read[key] += count
        ends[to] = at + count
        in_doubt = unknown
    assert map_positions(state.runs, committed, state.doubts) == map_positions(
        runs, committed, doubts
    )
    assert state.copied == sum(count for _, _, count, _, _ in batches)
