"""Carries out a reset plan and reads back the committed offsets: `ResetRun`.

An interrupt may come at any moment: a queue is marked before its request is sent, so
that `outcomes` never hides what may have changed. The plan decides how offsets are set;
the results are judged in `result`. Each topic on each broker is a task, so that a
broker that does not answer holds up only its own queues.

`recheck` is the last check before a plan is carried out: other clients may have
committed while the user read the plan. An offset that moved is refused unless a live
consumer explains it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from rmqcli.admin.brokers import ask_each
from rmqcli.admin.positions import resolve
from rmqcli.admin.reset.backup import Backup, save_backup
from rmqcli.admin.reset.find_method import Membership
from rmqcli.admin.reset.method import Mechanism
from rmqcli.admin.reset.plan import bounds_of, method_key, moved_error
from rmqcli.admin.reset.result import QueueOutcome, QueueResult, judge, judge_unchanged
from rmqcli.admin.reset.target import Restore, ToPosition
from rmqcli.admin.witness import ANOTHER, Noted, Witness, note_ends, read_witnesses
from rmqcli.api.calls.consumer import get_consumer_connection_list
from rmqcli.api.calls.offset import (
    PENDING_RESET_REMARK,
    invoke_broker_to_reset_offset,
    query_consumer_offset,
    update_consumer_offset,
)
from rmqcli.api.runner import run_task
from rmqcli.clock import Deadline
from rmqcli.errors import RefusedError, RmqError, TransportError
from rmqcli.position import AtGroup
from rmqcli.tasks import All, Request, Sleep, every

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from rmqcli.admin.reset.plan import MethodKey, QueuePlan, ResetPlan
    from rmqcli.admin.reset.target import Target
    from rmqcli.api.call import Call
    from rmqcli.api.client import Client
    from rmqcli.model import MessageQueue
    from rmqcli.tasks import Task
    from rmqcli.wire.bodies.consumer import ConsumerConnection


T = TypeVar("T")

#: Consumers persist their offsets every 5 s; after a little longer, all must have.
PERSIST_WAIT_MS = 7_000
#: A client that is asked to reset stops, sleeps 10 s (MQClientInstance#resetOffset) and
#: then commits; it may be busy before that.
PUSH_WAIT_MS = 20_000
_POLL_INTERVAL_MS = 100
#: A client that obeyed a push commits the target and may be past it in its next pull:
#: that moment must not be missed, or the reset seems to have had no effect.
_PUSH_POLL_INTERVAL_MS = 10

#: A broker that resets by itself ignores timestamp and force when an offset is given. A
#: broker that is configured to reset through clients ignores the offset instead; with
#: this timestamp and without force it then leaves every queue where it is.
_HARMLESS_TIMESTAMP_MS = 253_402_300_799_999  # the year 9999


class ResetRun:
    """One execution of a plan. Used by one thread, once."""

    def __init__(self, client: Client, plan: ResetPlan) -> None:
        self._client = client
        self._plan = plan
        #: queues whose request was sent or is being sent
        self._attempted: set[MessageQueue] = set()
        #: queues whose broker accepted the request and makes its members move
        self._moving: set[MessageQueue] = set()
        #: queue -> why its request failed
        self._errors: dict[MessageQueue, RmqError] = {}
        #: queue -> why the last attempt to read it back failed
        self._read_errors: dict[MessageQueue, RmqError] = {}
        #: queue -> its target according to the answer to a push
        self._targets: dict[MessageQueue, int] = {}
        #: queue -> every different offset read back, oldest first
        self._seen: dict[MessageQueue, list[int | None]] = {}

    @property
    def errors(self) -> tuple[RmqError, ...]:
        """The errors, at most one for each queue."""
        errors = {**self._plan.departed, **self._read_errors, **self._errors}
        return tuple(errors.values())

    def save_backup(self, directory: Path, *, undo_of: str) -> str:
        """Save the committed offsets before `execute`; return the backup's id.

        Raises RmqError when that fails; then no offset may be changed. A last message
        that cannot be read is noted as unknown.
        """
        plan = self._plan
        ends = note_ends(self._client, bounds_of(plan.changes))
        noted = {}
        for each in plan.changes:
            end = ends[each.queue]
            if isinstance(end, RmqError):
                end = Noted(each.max_offset, None)
            noted[each.queue] = end
        backup = Backup(
            created_ms=self._client.clock.epoch_ms(),
            namesrv=tuple(self._client.config.namesrv),
            cluster=plan.cluster,
            group=plan.group,
            topic=plan.topic,
            committed={each.queue: each.committed for each in plan.changes},
            targets={
                each.queue: each.target
                for each in plan.changes
                if each.target is not None
            },
            noted=noted,
            undo_of=undo_of,
        )
        return save_backup(directory, backup)

    def execute(self) -> None:
        """Set all offsets, read them back, and wait for live members to move.

        Members are also waited for where the broker resets by itself: a commit that a
        member had sent before undoes the reset, until the member stops, takes over the
        new offset and commits it. The wait ends after `PUSH_WAIT_MS` at the latest.
        """
        self._run([self._execute(key, queues) for key, queues in self._by_key()])

    def watch(self) -> None:
        """Read back repeatedly until consumers must have persisted their offsets."""
        self._run([self._watch(queues) for _, queues in self._by_key()])

    def read_back(self, *, timeout_ms: int | None = None) -> None:
        """Read the committed offsets of all queues of the plan that have a target."""
        self._run([self._read_back(self._plan.queues, timeout_ms)])

    def _run(self, tasks: Sequence[Task[None]]) -> None:
        run_task(self._client, every(*tasks))

    def _by_key(self) -> Iterable[tuple[MethodKey, list[QueuePlan]]]:
        """Group the queues of the plan by topic and broker."""
        found: dict[MethodKey, list[QueuePlan]] = {}
        for each in self._plan.queues:
            found.setdefault(method_key(each.queue), []).append(each)
        return found.items()

    def _execute(self, key: MethodKey, queues: list[QueuePlan]) -> Task[None]:
        yield from self._set_offsets(key, [each for each in queues if each.is_change])
        yield from self._read_back(queues)
        deadline = Deadline(self._client.clock, PUSH_WAIT_MS)
        while not deadline.is_over():
            waiting = [each for each in queues if self._is_awaited(each)]
            if not waiting:
                break
            yield Sleep(_PUSH_POLL_INTERVAL_MS)
            yield from self._read_back(waiting)

    def _is_awaited(self, plan: QueuePlan) -> bool:
        """Whether members should move in this queue, but have not been seen to."""
        return plan.queue in self._moving and not self._outcome(plan).is_good

    def _watch(self, queues: list[QueuePlan]) -> Task[None]:
        deadline = Deadline(self._client.clock, PERSIST_WAIT_MS)
        while not deadline.is_over():
            yield Sleep(_POLL_INTERVAL_MS)
            yield from self._read_back(queues)

    def _read_back(
        self, queues: Iterable[QueuePlan], timeout_ms: int | None = None
    ) -> Task[None]:
        asked = [each for each in queues if each.target is not None]
        answers: list[int | RmqError | None] = yield All(
            [
                Request(
                    self._plan.method_of(each.queue).address,
                    query_consumer_offset(
                        self._plan.group, each.queue.topic, each.queue.queue_id
                    ),
                    timeout_ms,
                )
                for each in asked
            ]
        )
        for each, offset in zip(asked, answers, strict=True):
            if isinstance(offset, RmqError):
                self._read_errors[each.queue] = offset
                continue
            self._read_errors.pop(each.queue, None)
            seen = self._seen.setdefault(each.queue, [])
            if not seen or seen[-1] != offset:
                seen.append(offset)

    def outcomes(self) -> dict[MessageQueue, QueueOutcome]:
        """Return the outcome of every queue of the plan, as far as it is known now."""
        found = {each.queue: self._outcome(each) for each in self._plan.queues}
        for queue, error in self._plan.departed.items():
            found[queue] = _not_attempted(error.message)
        return found

    def _outcome(self, plan: QueuePlan) -> QueueOutcome:
        seen = self._seen.get(plan.queue, [])
        if plan.target is None:
            return _not_attempted("no target offset")
        if not plan.is_change:
            return judge_unchanged(target=plan.target, seen=seen)
        error = self._errors.get(plan.queue)
        if plan.queue not in self._attempted:
            return _not_attempted("" if error is None else error.message)
        method = self._plan.method_of(plan.queue)
        target = self._targets.get(plan.queue, _target(plan))
        outcome = judge(
            committed=plan.committed,
            target=target,
            seen=seen,
            mechanism=method.mechanism,
            is_live=method.is_live,
        )
        if error is None and not seen and plan.queue in self._read_errors:
            reason = self._read_errors[plan.queue].message
            return replace(outcome, note=f"{outcome.note}: {reason}")
        if outcome.is_good or error is None:
            return outcome
        if error.may_be_done:
            # The request may have been carried out, or may still be.
            return QueueOutcome(
                result=QueueResult.UNKNOWN,
                is_good=False,
                read_back=outcome.read_back,
                note=error.message,
            )
        return _not_attempted(error.message, read_back=outcome.read_back)

    def _set_offsets(self, key: MethodKey, changes: list[QueuePlan]) -> Task[None]:
        """Set the offsets of one topic on one broker."""
        if not changes:
            return
        match self._plan.methods[key].mechanism:
            case Mechanism.COMMIT:
                yield from self._commit(changes)
            case Mechanism.SERVER_RESET:
                yield from self._reset_by_server(changes)
            case Mechanism.CLIENT_PUSH:
                yield from self._push(key, changes)

    def _commit(self, changes: list[QueuePlan]) -> Task[None]:
        remarks = yield from self._send(
            changes,
            lambda each: update_consumer_offset(
                self._plan.group,
                each.queue.topic,
                each.queue.queue_id,
                commit_offset=_target(each),
            ),
        )
        # An earlier reset there waits for a client; only another one can replace it.
        waiting = [
            each
            for each in changes
            if PENDING_RESET_REMARK in remarks.get(each.queue, "")
        ]
        if waiting:
            yield from self._reset_by_server(waiting)

    def _reset_by_server(self, changes: list[QueuePlan]) -> Task[None]:
        taken = yield from self._send(
            changes,
            lambda each: invoke_broker_to_reset_offset(
                self._plan.group,
                each.queue.topic,
                timestamp_ms=_HARMLESS_TIMESTAMP_MS,
                is_force=False,
                queue_id=each.queue.queue_id,
                offset=_target(each),
            ),
        )
        self._moving.update(taken)

    def _push(self, key: MethodKey, changes: list[QueuePlan]) -> Task[None]:
        """Reset all queues of one topic on one broker with a single push."""
        method = self._plan.methods[key]
        if method.push is None:
            return
        self._attempted.update(each.queue for each in changes)
        call = invoke_broker_to_reset_offset(
            self._plan.group,
            key[0],
            timestamp_ms=method.push.timestamp_ms,
            is_force=method.push.is_force,
        )
        try:
            offsets = yield Request(method.address, call)
        except RmqError as error:
            self._errors.update((each.queue, error) for each in changes)
            return
        for each in changes:
            self._targets[each.queue] = offsets.get(each.queue, _target(each))
            self._moving.add(each.queue)

    def _send(
        self, changes: list[QueuePlan], make: Callable[[QueuePlan], Call[T]]
    ) -> Task[dict[MessageQueue, T]]:
        """Send the call that `make` returns for each queue; return the good answers.

        One call is sent first, then all others at once. For a group and topic that are
        new to it, a broker creates their map in the thread of the request, and of
        several requests at once it may lose all but one (7 of 80 resets with 4.6.0, 1
        of 80 with 5.5.0). If the first call gets no answer, the others are not sent.
        """
        answers: dict[MessageQueue, T] = {}
        first, *others = changes
        yield from self._send_one(first, make, answers)
        error = self._errors.get(first.queue)
        if isinstance(error, TransportError):
            self._errors.update((each.queue, error) for each in others)
        else:
            yield All([self._send_one(each, make, answers) for each in others])
        return answers

    def _send_one(
        self,
        plan: QueuePlan,
        make: Callable[[QueuePlan], Call[T]],
        answers: dict[MessageQueue, T],
    ) -> Task[None]:
        # Before it is sent: an interrupt may come in between.
        self._attempted.add(plan.queue)
        address = self._plan.method_of(plan.queue).address
        try:
            answers[plan.queue] = yield Request(address, make(plan))
        except RmqError as error:
            self._errors[plan.queue] = error


def _target(plan: QueuePlan) -> int:
    if plan.target is None:
        raise ValueError(f"{plan.queue} has no target")
    return plan.target


def _not_attempted(note: str, *, read_back: int | None = None) -> QueueOutcome:
    return QueueOutcome(
        result=QueueResult.NOT_ATTEMPTED, is_good=False, read_back=read_back, note=note
    )


def recheck(client: Client, plan: ResetPlan, target: Target) -> ResetPlan:
    """Read the committed offsets of `plan.changes` again; return `plan` with them.

    An offset may have moved where members consume and `target` is a position or a
    backup. Then the queue has a warning, and the backup will hold the new offset.
    Raises RefusedError for any other offset that moved, and for one that moved past its
    target, so that messages to be skipped would be replayed or the other way round.
    Also when members consume by now where the plan knew of none and commits the offset:
    they would overwrite it, and for a queue that is not the one of the plan. Raises a
    broker's error when it does not tell either.
    """
    changes = {each.queue: each for each in plan.changes}
    moved = {}
    refused = []
    found = resolve(client, changes, AtGroup(plan.group))
    _check_same(client, plan, {q: each.max_offset for q, each in found.items()})
    for queue, each in changes.items():
        committed = None if found[queue].offset is None else found[queue].wanted
        if committed == each.committed:
            continue
        moved[queue] = _moved(each, committed)
        is_absolute = isinstance(target, ToPosition | Restore)
        is_expected = plan.method_of(queue).is_live and is_absolute
        if not is_expected or _turns(each, moved[queue]):
            refused.append(
                f"{queue}: committed offset was {each.committed}, is now {committed}"
            )
    if refused:
        raise moved_error(refused, "; nothing was changed", hint="run it again")
    _check_still_idle(client, plan)
    queues = tuple(moved.get(each.queue, each) for each in plan.queues)
    return replace(plan, queues=queues)


def _check_same(
    client: Client, plan: ResetPlan, ends: Mapping[MessageQueue, int]
) -> None:
    """Raise RefusedError for a queue whose topic was made anew since the plan was made.

    It ends before, or has another message at the end of the range that is skipped or
    replayed.
    """
    stored_ms = {}
    for each in plan.changes:
        if ends[each.queue] < each.max_offset:
            raise RefusedError(
                f"{each.queue} ends at {ends[each.queue]}, but it ended at"
                f" {each.max_offset} when the plan was made: {ANOTHER}",
                hint="run it again",
            )
        if each.moved_range is not None and each.last_store_ms is not None:
            stored_ms[each.queue] = each.moved_range[1] - 1, each.last_store_ms
    places = {queue: offset for queue, (offset, _) in stored_ms.items()}
    for queue, found in read_witnesses(client, places).items():
        offset, planned_ms = stored_ms[queue]
        if isinstance(found, Witness) and found.store_timestamp_ms != planned_ms:
            raise RefusedError(
                f"{queue} has another message at offset {offset} than the plan has"
                f" seen ({found}): {ANOTHER}",
                hint="run it again",
            )


def _check_still_idle(client: Client, plan: ResetPlan) -> None:
    """Raise RefusedError if a member consumes where the plan knew of none."""
    idle = {
        method_key(each.queue): method.address
        for each in plan.changes
        for method in [plan.method_of(each.queue)]
        if method.mechanism is Mechanism.COMMIT and not method.is_live
    }
    call = get_consumer_connection_list(plan.group)
    answers = ask_each(client, {name: at for (_, name), at in idle.items()}, call)
    seen: dict[str, ConsumerConnection | None] = {}
    for name, answer in answers.items():
        if isinstance(answer, RmqError):
            raise answer
        seen[name] = answer
    members = Membership(seen, {})
    for topic, name in idle:
        if members.is_live(name, topic):
            raise RefusedError(
                f"since the plan was made, members of group {plan.group} consume"
                f" {topic} at {name}: nothing was changed",
                hint="run it again",
            )


def _moved(plan: QueuePlan, committed: int | None) -> QueuePlan:
    before, now = (
        "none" if each is None else str(each) for each in (plan.committed, committed)
    )
    warning = f"committed offset changed from {before} to {now} after the plan was made"
    return replace(
        plan,
        committed=committed,
        warnings=(*plan.warnings, warning),
        first_store_ms=None,  # the known times are of another range of messages
        last_store_ms=None,
    )


def _turns(before: QueuePlan, now: QueuePlan) -> bool:
    """Whether a skip has become a replay, or the other way round."""
    if before.delta is None or now.delta is None:
        return False
    return before.delta * now.delta < 0
