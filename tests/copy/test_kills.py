"""A copy that is killed anywhere and started again leaves nothing out.

At most one batch is sent twice, its offsets are named before, and every queue keeps its
order.
"""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqcli.admin.dlq.log import LockedFile
from rmqcli.admin.tail.filter import TailFilter
from rmqcli.copy.copy import CopyRequest, CopyRun, identify, plan_copy
from rmqcli.copy.log import CopyLog, open_copy_log, read_copy_log
from tests.admin.dlq.letters import client_of
from tests.copy.copying import stored

MESSAGES = 12
QUEUES = 3
BATCH = 4


class Killed(BaseException):
    """The process ends here."""


class DyingFile(LockedFile):
    """A log on the disk whose process is killed once `left` bytes are written."""

    left: int

    def append(self, data: bytes) -> None:
        super().append(data[: self.left])
        self.left -= len(data)
        if self.left <= 0:
            raise Killed


def without_repeats(bodies):
    return list(dict.fromkeys(bodies))


@pytest.mark.slow
@pytest.mark.parametrize("target_queues", [QUEUES, 2])
@given(lives=st.lists(st.integers(1, 900), min_size=1, max_size=4))
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_a_copy_that_is_killed_goes_on_where_it_was(
    rmq_cluster_factory, tmp_path_factory, target_queues, lives
):
    path = tmp_path_factory.mktemp("log") / "copy.jsonl"
    cluster = rmq_cluster_factory()
    cluster.create_topic("src", queues=QUEUES)
    cluster.create_topic("dst", queues=target_queues)
    sent = [f"{number:02}".encode() for number in range(MESSAGES)]
    cluster.send("src", sent)
    doubtful = 0
    with client_of(cluster) as client:
        request = CopyRequest(
            source_topic="src", target_topic="dst", filter=TailFilter()
        )
        identity = identify(client, client, request)

        def run(life):
            nonlocal doubtful
            state, _ = read_copy_log(path, identity)
            doubtful += sum(span.end - span.start for span in state.doubtful)
            if life is None:
                log = open_copy_log(path, identity, at_ms=0)
            else:
                file = DyingFile(path)
                file.left = life
                state, length = read_copy_log(path, identity)
                file.cut(length)
                log = CopyLog(file, state)
            try:
                if life is not None and not path.stat().st_size:
                    log.begin(identity, at_ms=0)
                plan = plan_copy(client, client, request, identity, log.state)
                copy = CopyRun(client, client.config, plan, log, batch_max=BATCH)
                for _ in copy.batches():
                    pass
                return copy.report
            finally:
                log.close()

        for life in lives:
            with suppress(Killed):
                run(life)
        report = run(None)
        assert report.is_complete
    found = stored(cluster, "dst")
    everything = [body for bodies in found.values() for body in bodies]
    assert sorted(set(everything)) == sent
    assert len(everything) - len(sent) <= doubtful
    source = stored(cluster, "src")
    for bodies in source.values():
        # All of a queue are in one queue here, because they have no sharding key.
        (to,) = [b for b in found.values() if set(bodies) <= set(b)]
        assert [b for b in without_repeats(to) if b in bodies] == bodies
    cluster.close()
