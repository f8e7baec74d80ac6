"""Redrives for programs: `Cluster.redrive` plans one and carries it out.

It does what `rmq dlq redrive` does, with the same log, and asks nothing.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import field
from typing import TYPE_CHECKING, Final

from rmqcli.admin.dlq.read import letter_route
from rmqcli.admin.reset.cluster_identity import identity_of
from rmqcli.api.client import Client
from rmqcli.checked import check_callback, check_rate_per_s, check_returned
from rmqcli.dataclass import dataclass
from rmqcli.errors import RefusedError
from rmqcli.names import check_group
from rmqcli.redrive.log import UNKNOWN, default_path, open_log, read_log
from rmqcli.redrive.redrive import RedriveRun, plan_redrive
from rmqcli.units import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from rmqcli.admin.reset.cluster_identity import ClusterIdentity
    from rmqcli.config import ClientConfig
    from rmqcli.errors import RmqError
    from rmqcli.model import MessageQueue
    from rmqcli.redrive.log import LetterResult
    from rmqcli.redrive.redrive import RedrivePlan, RedriveRequest

#: Letters that a report names of each kind.
NAMED_MAX: Final = 1_000


@dataclass(slots=True)
class RedriveReport:
    """What became of the letters of a plan.

    `stored` counts those that were sent, `by_topic` where. `unknown` counts those to
    whose send no answer came: the next redrive sends them again; `unknown_letters`
    names the first of them. `failures` are the first letters that are not stored for
    certain, with the reason, and `by_error` counts all of them. `given_up` is why
    sending stopped before the end of the plan, and `unread` has the queues that were
    not read to their ends.
    """

    plan: RedrivePlan
    stored: int = 0
    unknown: int = 0
    unknown_letters: list[str] = field(default_factory=list)
    by_topic: dict[str, int] = field(default_factory=Counter)
    by_error: dict[str, int] = field(default_factory=Counter)
    failures: list[LetterResult] = field(default_factory=list)
    given_up: RmqError | None = None
    unread: dict[MessageQueue, RmqError] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether all letters of the plan were sent, and all could be decoded."""
        is_sent = self.stored == self.plan.count and not self.unread
        return is_sent and not self.plan.undecoded

    def add(self, results: Sequence[LetterResult]) -> None:
        """Count the results of a batch."""
        stored = Counter(each.topic for each in results if each.is_stored)
        self.stored += stored.total()
        for topic, count in stored.items():
            self.by_topic[topic] += count
        if stored.total() == len(results):
            return
        for each in results:
            if each.is_stored:
                continue
            if each.status == UNKNOWN:
                self.unknown += 1
                if len(self.unknown_letters) < NAMED_MAX:
                    self.unknown_letters.append(str(each.place))
            self.by_error[f"{each.status}: {each.error or 'not sent'}"] += 1
            if len(self.failures) < NAMED_MAX:
                self.failures.append(each)


def refuse_unread(plan: RedrivePlan) -> None:
    """Raise RefusedError for a plan with queues that were not read to their ends."""
    if plan.unread:
        raise RefusedError(
            f"{counted(len(plan.unread), 'queue')} could not be read to the end:"
            " nothing was sent",
            hint=next(iter(plan.unread.values())).hint
            or "try again when all brokers can be reached",
        )


class Redrive:
    """Sends the dead letters of a group again. Made by `Cluster.redrive`.

    Each call has connections of its own, which are closed at its end. `log` is the file
    that notes what was sent; None for that of `rmq dlq redrive`.
    """

    def __init__(
        self, config: ClientConfig, request: RedriveRequest, *, log: Path | None = None
    ) -> None:
        check_group(request.group)
        self.request = request
        self._config = config
        self._log = log

    def __repr__(self) -> str:
        return f"Redrive({self.request.group!r}, to={self.request.to!r})"

    def plan(self) -> RedrivePlan:
        """Read the letters, and say what `execute` would send. Changes nothing.

        Raises NotFoundError when the group has no dead letters, and RefusedError for a
        log of another group or cluster, or when the retry topic cannot be used.
        """
        with Client(self._config) as client:
            identity = self._identity(client)
            path = self._path(identity)
            states, _, _ = read_log(path, self.request.group, identity)
            return plan_redrive(client, self.request, states)

    def execute(
        self,
        *,
        rate_per_s: float | None = None,
        on_plan: Callable[[RedrivePlan], object] | None = None,
        on_batch: Callable[[Sequence[LetterResult]], object] | None = None,
    ) -> RedriveReport:
        """Plan again, and send the letters; at most `rate_per_s` in each second.

        `on_plan` is called with the plan before anything is sent, while no other
        redrive can use the log; if it raises an error, nothing is sent. `on_batch` is
        called with the results of each batch, once they are known. An error that it
        raises ends the redrive between two batches; the next one goes on there. Raises
        as `plan` does, and RefusedError while another redrive uses the log or when a
        queue could not be read: nothing was sent. That sending stopped later is in the
        report. Raises TypeError for a function that does not run to its end when it is
        called, such as a coroutine function, and ConfigError for a rate that is not
        greater than 0.
        """
        check_rate_per_s(rate_per_s)
        check_callback(on_plan, "on_plan")
        check_callback(on_batch, "on_batch")
        with Client(self._config) as client:
            group, now_ms = self.request.group, client.clock.epoch_ms()
            identity = self._identity(client)
            # Locked before the plan is made: no other redrive sends what it has.
            log = open_log(self._path(identity), group, identity, at_ms=now_ms)
            try:
                plan = plan_redrive(client, self.request, log.states)
                refuse_unread(plan)
                if on_plan is not None:
                    check_returned(on_plan(plan), "on_plan")
                report = RedriveReport(plan)
                if not plan.count:
                    return report
                log.choose_by(self.request.chosen_by, at_ms=now_ms)
                run = RedriveRun(client, plan, log, rate_per_s=rate_per_s)
                for results in run.batches():
                    report.add(results)
                    if on_batch is not None:
                        check_returned(on_batch(results), "on_batch")
                report.given_up, report.unread = run.given_up, dict(run.unread)
                return report
            finally:
                log.close()

    def _identity(self, client: Client) -> ClusterIdentity:
        return identity_of(letter_route(client, self.request.group))

    def _path(self, identity: ClusterIdentity) -> Path:
        return self._log or default_path(os.environ, self.request.group, identity)
