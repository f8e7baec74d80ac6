"""A real broker that is killed after acknowledgements of POP in order."""

from __future__ import annotations

import pytest

from tests.broker.pop_kills import Real, run

pytestmark = pytest.mark.rmq_versions("5.5.0")


def test_a_real_broker_gives_out_again_what_was_acknowledged_in_the_last_seconds(
    fresh_cluster,
):
    """So does the embedded one, in order: offsets are written every five seconds.

    A real broker begins ten seconds after its start.
    """
    broker = Real(fresh_cluster())

    early = run(broker, kills=2, order=True, after_ms=(0, 500), seed=1)
    late = run(broker, kills=1, order=True, after_ms=(16_000, 16_500), seed=1)

    assert early.again > 0
    assert late.again == 0
    assert early.lost + late.lost == 0
