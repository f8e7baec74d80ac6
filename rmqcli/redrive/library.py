"""Redrives and flushes for programs: `Cluster.redrive`, `Cluster.flush_retries`.

They do what `rmq dlq redrive` and `rmq retry flush` do, with the same logs, and ask
nothing.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import contextmanager
from dataclasses import field
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from rmqcli.admin.dlq.log import (
    FLUSH,
    REDRIVE,
    UNKNOWN,
    LetterStates,
    default_path,
    open_log,
    read_log,
)
from rmqcli.admin.dlq.read import letter_route
from rmqcli.admin.reset.cluster_identity import identity_of
from rmqcli.api.client import Client
from rmqcli.checked import check_callback, check_rate_per_s, check_returned
from rmqcli.dataclass import dataclass
from rmqcli.errors import NotFoundError, RefusedError
from rmqcli.model import retry_topic
from rmqcli.names import check_group
from rmqcli.redrive.flush import FlushPlan, FlushRequest, plan_flush
from rmqcli.redrive.redrive import RedrivePlan, RedriveRequest, RedriveRun, plan_redrive
from rmqcli.units import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from rmqcli.admin.dlq.log import LetterResult, RedriveLog
    from rmqcli.admin.reset.cluster_identity import ClusterIdentity
    from rmqcli.config import ClientConfig
    from rmqcli.errors import RmqError
    from rmqcli.model import MessageQueue

#: Letters that a report names of each kind.
NAMED_MAX: Final = 1_000

RequestT = TypeVar("RequestT", bound="RedriveRequest | FlushRequest")
PlanT = TypeVar("PlanT", bound="RedrivePlan | FlushPlan")
ReportT = TypeVar("ReportT", bound="RedriveReport | FlushReport")


@dataclass(slots=True)
class SendReport:
    """What became of the letters of a plan.

    `stored` counts those that were sent, `by_topic` where. `unknown` counts those to
    whose send no answer came: the next run sends them again; `unknown_letters` names
    the first of them. `failures` are the first letters that are not stored for certain,
    with the reason, and `by_error` counts all of them. `given_up` is why sending
    stopped before the end of the plan.
    """

    stored: int = 0
    unknown: int = 0
    unknown_letters: list[str] = field(default_factory=list)
    by_topic: dict[str, int] = field(default_factory=Counter)
    by_error: dict[str, int] = field(default_factory=Counter)
    failures: list[LetterResult] = field(default_factory=list)
    given_up: RmqError | None = None

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


@dataclass(slots=True)
class RedriveReport(SendReport):
    """What became of the letters of a redrive's plan; see SendReport.

    `unread` has the queues that were not read to their ends.
    """

    plan: RedrivePlan = field(kw_only=True)
    unread: dict[MessageQueue, RmqError] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether all letters of the plan were sent, and all could be decoded."""
        is_sent = self.stored == self.plan.count and not self.unread
        return is_sent and not self.plan.undecoded


@dataclass(slots=True)
class FlushReport(SendReport):
    """What became of the messages of a flush's plan; see SendReport.

    `unread` has the brokers that were not read to their ends. `came_due` counts the
    messages that were not copied because their time had come meanwhile: their broker
    has moved them.
    """

    plan: FlushPlan = field(kw_only=True)
    unread: dict[str, RmqError] = field(default_factory=dict)

    @property
    def came_due(self) -> int:
        """How many messages came due before they were copied."""
        if self.given_up is not None or self.unread:
            return 0  # some were not looked at
        return self.plan.count - self.stored - sum(self.by_error.values())

    @property
    def is_complete(self) -> bool:
        """Whether each message was copied, or came due meanwhile.

        False when the plan lacks what waits on a broker that did not tell.
        """
        unread = self.unread or self.plan.unread
        return self.stored + self.came_due == self.plan.count and not unread


def refuse_unread(plan: RedrivePlan) -> None:
    """Raise RefusedError for a plan of which a queue was not read."""
    if plan.unread:
        raise RefusedError(
            f"{counted(len(plan.unread), 'queue')} could not be read to the end:"
            " nothing was sent",
            hint=next(iter(plan.unread.values())).hint
            or "try again when all brokers can be reached",
        )


class PreparedSending(NamedTuple, Generic[PlanT]):
    """A plan, and what the log at `path` says; `log` is open only to send.

    Without a path there is nothing to send, and no log.
    """

    plan: PlanT
    states: LetterStates
    path: Path | None = None
    log: RedriveLog | None = None


class LetterSending(Generic[RequestT, PlanT, ReportT]):
    """What a redrive and a flush have in common.

    Each call has connections of its own, which are closed at its end. `log` is the file
    that notes what was sent; None for that of the command.
    """

    #: of what the log is
    _kind: str

    def __init__(
        self, config: ClientConfig, request: RequestT, *, log: Path | None = None
    ) -> None:
        check_group(request.group)
        self.request = request
        self._config = config
        self._log = log

    def plan(self) -> PlanT:
        """Read the letters, and say what `execute` would send. Changes nothing.

        Raises NotFoundError when the group does not exist or, for a redrive, has no
        dead letters, and RefusedError for a log of another group or cluster, or when
        the retry topic cannot be used.
        """
        with Client(self._config) as client, self.prepared(client) as found:
            return found.plan

    @contextmanager
    def prepared(
        self, client: Client, *, to_send: bool = False
    ) -> Iterator[PreparedSending[PlanT]]:
        """Plan, as `plan` does. With `to_send` no other run can use the log meanwhile.

        It is locked before the plan is made: no other run sends what that has.
        """
        group, identity = self.request.group, self._identity(client)
        if identity is None:
            states = LetterStates()
            yield PreparedSending(self._planned(client, states), states)
            return
        path = self._log or default_path(os.environ, group, identity, kind=self._kind)
        if not to_send:
            states, _, _ = read_log(path, group, identity, kind=self._kind)
            yield PreparedSending(self._planned(client, states), states, path)
            return
        now_ms = client.clock.epoch_ms()
        log = open_log(path, group, identity, at_ms=now_ms, kind=self._kind)
        try:
            yield PreparedSending(
                self._planned(client, log.states), log.states, path, log
            )
        finally:
            log.close()

    def execute(
        self,
        *,
        rate_per_s: float | None = None,
        on_plan: Callable[[PlanT], object] | None = None,
        on_batch: Callable[[Sequence[LetterResult]], object] | None = None,
    ) -> ReportT:
        """Plan again, and send the letters; at most `rate_per_s` in each second.

        `on_plan` is called with the plan before anything is sent, while no other run
        can use the log; if it raises an error, nothing is sent. `on_batch` is called
        with the results of each batch, once they are known. An error that it raises
        ends the run between two batches; the next one goes on there. Raises as `plan`
        does, and RefusedError while another run uses the log or when a queue of dead
        letters could not be read: nothing was sent. That sending stopped later is in
        the report. Raises TypeError for a function that does not run to its end when it
        is called, such as a coroutine function, and ConfigError for a rate that is not
        greater than 0.
        """
        check_rate_per_s(rate_per_s)
        check_callback(on_plan, "on_plan")
        check_callback(on_batch, "on_batch")
        with (
            Client(self._config) as client,
            self.prepared(client, to_send=True) as (plan, _, _, log),
        ):
            if isinstance(plan, RedrivePlan):
                refuse_unread(plan)
            if on_plan is not None:
                check_returned(on_plan(plan), "on_plan")
            report = self._report(plan)
            if log is None or not plan.count:
                return report
            log.choose_by(self._chosen_by, at_ms=client.clock.epoch_ms())
            run = RedriveRun(client, plan, log, rate_per_s=rate_per_s)
            for results in run.batches():
                report.add(results)
                if on_batch is not None:
                    check_returned(on_batch(results), "on_batch")
            report.given_up = run.given_up
            report.unread.update(run.unread)
            return report

    @property
    def _chosen_by(self) -> str | None:
        return None

    def _planned(self, client: Client, states: LetterStates) -> PlanT:
        raise NotImplementedError

    def _report(self, plan: PlanT) -> ReportT:
        raise NotImplementedError

    def _identity(self, client: Client) -> ClusterIdentity | None:
        """Return the cluster; None if there is nothing to send, and no log."""
        raise NotImplementedError


class Redrive(LetterSending[RedriveRequest, RedrivePlan, RedriveReport]):
    """Sends the dead letters of a group again. Made by `Cluster.redrive`.

    Each call has connections of its own, which are closed at its end. `log` is the file
    that notes what was sent; None for that of `rmq dlq redrive`.
    """

    _kind = REDRIVE

    def __repr__(self) -> str:
        return f"Redrive({self.request.group!r}, to={self.request.to!r})"

    @property
    def _chosen_by(self) -> str | None:
        return self.request.chosen_by

    def _planned(self, client: Client, states: LetterStates) -> RedrivePlan:
        return plan_redrive(client, self.request, states)

    def _report(self, plan: RedrivePlan) -> RedriveReport:
        return RedriveReport(plan=plan)

    def _identity(self, client: Client) -> ClusterIdentity:
        return identity_of(letter_route(client, self.request.group))


class RetryFlush(LetterSending[FlushRequest, FlushPlan, FlushReport]):
    """Delivers now what waits for a group's next try. Made by `Cluster.flush_retries`.

    It stores copies in the group's retry topic. No broker removes the originals: each
    comes at its time, too. Each call has connections of its own, which are closed at
    its end. `log` is the file that notes what was copied; None for that of
    `rmq retry flush`.
    """

    _kind = FLUSH

    def __repr__(self) -> str:
        return f"RetryFlush({self.request.group!r})"

    def _planned(self, client: Client, states: LetterStates) -> FlushPlan:
        return plan_flush(client, self.request, states)

    def _report(self, plan: FlushPlan) -> FlushReport:
        return FlushReport(plan=plan)

    def _identity(self, client: Client) -> ClusterIdentity | None:
        try:
            return identity_of(client.route(retry_topic(self.request.group)))
        except NotFoundError:
            return None  # nothing has failed yet
