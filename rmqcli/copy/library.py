"""Copies for programs: `Cluster.copy` plans one and carries it out.

It does what `rmq copy` does, with the same log, and asks nothing.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from rmqcli.admin.admin import PlannedReset
from rmqcli.api.client import Client
from rmqcli.checked import check_callback, check_rate_per_s, check_returned
from rmqcli.copy.copy import CopyRun, identify, plan_copy
from rmqcli.copy.log import default_path, open_copy_log, read_copy_log
from rmqcli.copy.positions import plan_positions
from rmqcli.errors import NotFoundError, RefusedError, RmqError
from rmqcli.hint import Hint, LibraryCall
from rmqcli.units import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from rmqcli.config import ClientConfig
    from rmqcli.copy.copy import CopyPlan, CopyReport, CopyRequest
    from rmqcli.copy.log import CopyIdentity


class Copy:
    """Copies the messages of a topic to another one. Made by `Cluster.copy`.

    `target` says how the cluster of the target is reached; None for the same cluster.
    Each call has connections of its own, which are closed at its end. `log` is the file
    that notes what was copied; None for that of `rmq copy`. A batch is sent and noted
    within `around_batch()`, which may hold interrupts back.
    """

    def __init__(
        self,
        source: ClientConfig,
        request: CopyRequest,
        *,
        target: ClientConfig | None = None,
        log: Path | None = None,
        around_batch: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.request = request
        self._is_within = target is None
        self._source = source
        # A proxy would choose the queues itself.
        self._target = replace(
            source if target is None else target, endpoints=(), plaintext=False
        )
        self._log = log
        self._around_batch = around_batch

    def __repr__(self) -> str:
        topics = (self.request.source_topic, self.request.target_topic)
        return f"Copy{topics!r}"

    def plan(self) -> CopyPlan:
        """Say what `execute` would copy. Changes nothing.

        Raises NotFoundError without one of the topics, and RefusedError for a topic
        that would be copied to itself, for the log of another copy, and when one of the
        topics was deleted and created again since.
        """
        with self._asking_clients() as (source, target):
            identity = self._identify(source, target)
            path = self._path(identity)
            state, _ = read_copy_log(path, identity)
            plan = plan_copy(source, target, self.request, identity, state)
            return replace(plan, log=path)

    def execute(
        self,
        *,
        rate_per_s: float | None = None,
        follow: bool = False,
        on_plan: Callable[[CopyPlan], object] | None = None,
        on_batch: Callable[[CopyReport], object] | None = None,
    ) -> CopyReport:
        """Plan again, and copy; at most `rate_per_s` messages in each second.

        `on_plan` is called with the plan before anything is sent, while no other copy
        can use the log; if it raises an error, nothing is copied. `on_batch` is called
        at the beginning, and when a batch is stored, with what was done until then. An
        error that it raises ends the copy between two batches; the next one goes on
        there. With `follow` new messages are copied as they come, until that happens;
        it is then called every second when there are none. Raises as `plan` does, and
        RefusedError while another copy uses the log or when a queue could not be read:
        nothing was copied. That sending stopped later is in the report. Raises
        TypeError for a function that does not run to its end when it is called, such as
        a coroutine function, and ConfigError for a rate that is not greater than 0.
        """
        check_rate_per_s(rate_per_s)
        check_callback(on_plan, "on_plan")
        check_callback(on_batch, "on_batch")
        with self._clients() as (source, target):
            with source.ask_silent_once(), target.ask_silent_once():
                identity = self._identify(source, target)
            path = self._path(identity)
            # Locked before the plan is made: no other copy sends what it has.
            log = open_copy_log(path, identity, at_ms=source.clock.epoch_ms())
            try:
                with source.ask_silent_once(), target.ask_silent_once():
                    plan = plan_copy(source, target, self.request, identity, log.state)
                if on_plan is not None:
                    check_returned(on_plan(replace(plan, log=path)), "on_plan")
                _refuse_unread(plan, "nothing was copied")
                run = CopyRun(
                    source,
                    self._target,
                    plan,
                    log,
                    rate_per_s=rate_per_s,
                    around_batch=self._around_batch,
                )
                if on_batch is not None:
                    check_returned(on_batch(run.report), "on_batch")
                for _ in run.batches(follow=follow):
                    if on_batch is not None:
                        check_returned(on_batch(run.report), "on_batch")
                return run.report
            finally:
                log.close()

    def plan_group(self, group: str) -> PlannedReset:
        """Plan the positions in the copy of a group that consumes the source.

        They are those of the first messages there that it has not consumed, by the log:
        a complete copy comes before. `Admin.apply_reset` of the target's cluster sets
        them. `plan.warnings` says how many unread messages were not copied. Raises
        NotFoundError when one of the clusters does not know the group, RefusedError
        when a queue could not be read, and as `plan` does.
        """
        with self._asking_clients() as (source, target):
            identity = self._identify(source, target)
            state, _ = read_copy_log(self._path(identity), identity)
            # What it compares: whether the topics are those of the log.
            copy_plan = plan_copy(source, target, self.request, identity, state)
            _refuse_unread(copy_plan, "no positions were planned")
            try:
                plan, positions = plan_positions(
                    source,
                    target,
                    group=group,
                    source_topic=self.request.source_topic,
                    target_topic=self.request.target_topic,
                    state=state,
                )
            except NotFoundError as error:
                # Either cluster may be the one that does not know the group.
                error.missing = None
                error.hint = Hint(
                    "it must exist in both clusters; create it in that of the target"
                    " with: ",
                    LibraryCall("Admin.create_group", group),
                )
                raise
            return PlannedReset(plan=plan, target=positions)

    @contextmanager
    def _clients(self) -> Iterator[tuple[Client, Client]]:
        with Client(self._source) as source, Client(self._target) as target:
            yield source, target

    @contextmanager
    def _asking_clients(self) -> Iterator[tuple[Client, Client]]:
        with (
            self._clients() as (source, target),
            source.ask_silent_once(),
            target.ask_silent_once(),
        ):
            yield source, target

    def _identify(self, source: Client, target: Client) -> CopyIdentity:
        try:
            return identify(source, target, self.request)
        except NotFoundError as error:
            try:
                source.route(self.request.source_topic)
            except RmqError:
                raise error from None
            if not self._is_within:
                error.missing = None  # the source has other topics
            error.hint = Hint(
                "create it first: ",
                "" if self._is_within else "in the target's cluster, ",
                LibraryCall("Admin.create_topic", self.request.target_topic),
            )
            raise

    def _path(self, identity: CopyIdentity) -> Path:
        return self._log or default_path(os.environ, identity)


def _refuse_unread(plan: CopyPlan, outcome: str) -> None:
    """Raise RefusedError for a plan with queues that could not be read."""
    if plan.unread:
        raise RefusedError(
            f"{counted(len(plan.unread), 'queue')} could not be read: {outcome}",
            hint="try again when all brokers can be reached",
        )
