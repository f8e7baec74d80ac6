"""Every offset of a range is accounted for once, whatever the records say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqcli.errors import BodyError
from rmqcli.model import MessageQueue, OffsetRange
from rmqcli.spark.counts import OffsetCounts
from tests.kit.rows import each_row

RANGE = OffsetRange(MessageQueue("orders", "broker-a", 0), 100, 120)


def counts_of(offsets, *, bad=(), reported=()):
    counts = OffsetCounts(RANGE)
    counts.add(np.array(offsets, np.int64))
    for offset in bad:
        counts.add_undecodable(offset)
    counts.add_missing(reported)
    return counts.close()


def without(*offsets):
    return [o for o in range(100, 120) if o not in offsets]


@each_row(
    ("offsets", "bad", "reported", "closed"),
    [
        pytest.param(without(), (), (), (0, ()), id="complete"),
        pytest.param([], (), (), (0, ((100, 120),)), id="nothing"),
        pytest.param(
            without(100, 119),
            (),
            (),
            (0, ((100, 101), (119, 120))),
            id="edges",
        ),
        pytest.param(without(105), (105,), (), (1, ()), id="bad"),
        pytest.param(without(105), (None,), (), (1, ()), id="bad-illegible"),
        pytest.param(
            without(105, 110),
            (None,),
            ((105, 106),),
            (1, ((105, 106),)),
            id="illegible-is-not-the-reported-hole",
        ),
        pytest.param(without(105, 106, 107), (106,), (), (3, ()), id="wide"),
        pytest.param(without(), (None,), (), (0, ()), id="bad-one-of-another-part"),
        pytest.param(
            without(105, 106, 107),
            (106,),
            ((105, 106),),
            (2, ((105, 106),)),
            id="reported-beside-bad",
        ),
        pytest.param(
            without(105, 106, 107),
            (None,),
            ((106, 108),),
            (1, ((106, 108),)),
            id="illegible-before-reported",
        ),
        pytest.param(
            without(105, 106, 107),
            (None,),
            ((105, 106),),
            (2, ((105, 106),)),
            id="illegible-after-reported",
        ),
        pytest.param(
            without(105, 106, 107, 108, 109),
            (None,),
            ((100, 106), (107, 108), (109, 115)),
            (1, ((105, 106), (107, 110))),
            id="illegible-between-reported",
        ),
    ],
)
def test_a_hole_is_undecodable_or_missing(offsets, bad, reported, closed):
    assert counts_of(offsets, bad=bad, reported=reported) == closed


@pytest.mark.parametrize("offsets", [[101, 101], [105, 104], [99], [120]], ids=str)
def test_offsets_out_of_order_or_place_are_refused(offsets):
    with pytest.raises(BodyError, match="out of order"):
        counts_of(offsets)


def test_the_second_batch_must_follow_the_first():
    counts = OffsetCounts(RANGE)
    counts.add(np.array([100, 101], np.int64))
    with pytest.raises(BodyError, match="after 101"):
        counts.add(np.array([101, 102], np.int64))


@given(
    seen=st.sets(st.integers(100, 119)),
    bad=st.lists(st.none() | st.integers(90, 130), max_size=6),
    reported=st.lists(
        st.tuples(st.integers(95, 125), st.integers(0, 9)).map(
            lambda span: (span[0], sum(span))
        ),
        max_size=4,
    ),
)
def test_the_counts_of_a_part_always_add_up(seen, bad, reported):
    undecodable, missing = counts_of(sorted(seen), bad=bad, reported=reported)
    gone = [o for start, end in missing for o in range(start, end)]
    assert len(seen) + undecodable + len(gone) == 20
    assert not seen.intersection(gone)
    assert gone == sorted(set(gone))
