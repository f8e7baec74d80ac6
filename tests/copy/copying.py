"""Helpers: a copy within or between embedded clusters, and what is stored then."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from rmqcli import Admin
from rmqcli.admin.tail.filter import TailFilter
from rmqcli.copy.copy import BATCH_MAX, CopyRequest, CopyRun, identify, plan_copy
from rmqcli.copy.log import open_copy_log
from rmqcli.position import Earliest
from tests.admin.dlq.letters import client_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqcli.copy.copy import CopyPlan, CopyReport
    from rmqcli.copy.log import CopyLog
    from rmqcli.position import Position


def stored(cluster: Any, topic: str) -> dict[tuple[str, int], list[bytes]]:
    """Return the bodies of each queue that has any, in order."""
    found: dict[tuple[str, int], list[bytes]] = {}
    with Admin(namesrv=cluster.namesrv) as admin:
        for message in admin.read(topic, from_="earliest", to="latest"):
            queue = message.message_queue
            key = queue.broker_name, queue.queue_id
            found.setdefault(key, []).append(message.body)
    return found


@contextmanager
def prepared(
    source: Any,
    target: Any,
    path: Any,
    *,
    topics: tuple[str, str] = ("src", "dst"),
    batch_max: int = BATCH_MAX,
    retry_for_ms: int = 0,
    start: Position = Earliest(),  # noqa: B008  # a value
    **conditions: Any,
) -> Iterator[PreparedCopy]:
    """Plan a copy, which has yet to run."""
    with ExitStack() as stack:
        reading = stack.enter_context(client_of(source))
        writing = stack.enter_context(client_of(target))
        wanted = TailFilter(**conditions)
        request = CopyRequest(
            source_topic=topics[0],
            target_topic=topics[1],
            filter=wanted,
            chosen_by=str(wanted),
            start=start,
        )
        identity = identify(reading, writing, request)
        log = open_copy_log(path, identity, at_ms=0)
        stack.callback(log.close)
        plan = plan_copy(reading, writing, request, identity, log.state)
        run = CopyRun(
            reading,
            writing.config,
            plan,
            log,
            batch_max=batch_max,
            retry_for_ms=retry_for_ms,
        )
        yield PreparedCopy(plan, run, log)


class PreparedCopy:
    """A plan, and what carries it out."""

    def __init__(self, plan: CopyPlan, run: CopyRun, log: CopyLog) -> None:
        self.plan = plan
        self.log = log
        self.batches = run.batches
        self.report = run.report


def copied(source: Any, target: Any, path: Any, **options: Any) -> CopyReport:
    """Copy all there is, and return the report. The options are those of `prepared`."""
    with prepared(source, target, path, **options) as run:
        for _ in run.batches():
            pass
        return run.report
