"""What became of one message in one group, judged from what brokers reported. Pure.

A verdict says no more than its evidence. A committed offset behind the message does not
prove that the message was consumed: the group may have skipped it by a filter, by a
reset, or because it began at the end of the queue; POP moves the offset when it hands a
message out. What speaks against a verdict makes it `unknown`, with the reason.

| verdict | evidence |
|---|---|
| consumed | the group is past the message, its filter selects it, and the members have had that filter since before it was stored; or POP has a record of its acknowledgement; or the group is past its last retry |
| waiting | the committed offset is not past the message, and no member holds it |
| in_flight | a member has pulled it and it is not committed, or POP has handed it out and it is not acknowledged |
| filtered | the tags or the SQL expression of the subscription do not select it |
| in_retry | a copy waits in a retry topic, or for its delay |
| dead | a copy is in the group's dead-letter topic, or on its way there, and nothing shows that the group gets, or got, the message once more; no offset would show that it did |
| delayed, half, rolled_back, recalled | no consumer gets it, or not yet; see `pending` |
| broadcast | members keep their offsets themselves |
| unknown | as `reason` says |

Source: AbstractSendMessageProcessor.consumerSendMsgBack, PopReviveService,
ScheduleMessageService, ConsumerManageProcessor, RebalancePushImpl.computePullFromWhere
in apache/rocketmq.
"""  # noqa: E501  # a table

from __future__ import annotations

import functools
from dataclasses import field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from rmqcli.dataclass import dataclass
from rmqcli.engine.queue_lag import NEVER_COMMITTED
from rmqcli.units import counted, format_rfc3339
from rmqcli.wire.ids import tags_code
from rmqcli.wire.subscription import SQL92, tag_matches

if TYPE_CHECKING:
    from rmqcli.admin.lag.check_points import PopDelivery
    from rmqcli.engine.message import PulledMessage
    from rmqcli.wire.bodies.consumer import ConsumerConnection
    from rmqcli.wire.subscription import SubscriptionData

#: A member subscribes first, and later, at a rebalance, asks where its queues end. In
#: between, a group that is new skips what is stored, unless it begins at the first.
BEGINNING_MS: Final = 60_000
#: The most messages that one request of orderly POP hands out.
_POP_BATCH_MAX: Final = 32
_MEMBERS_NAMED_MAX: Final = 3
#: Clocks of brokers, and of this machine, may differ by so much.
_CLOCKS_DIFFER_MS: Final = 60_000
#: A member that is idle pulls again when the broker has held its request for so long.
_PULLS_EVERY_MS: Final = 45_000
#: A member whose last pull is at most so far ahead of the broker's time counts as one
#: with the same clock.
_SAME_CLOCK_MS: Final = 2_000
#: Clients tell when they subscribed: those in Java in epoch ms, those in Go in
#: nanoseconds. Neither comes near this number.
_SUBSCRIBED_MS_MAX: Final = 10**15
_MS_NANOSECONDS: Final = 1_000_000
_NO_RECORD: Final = (
    "POP moves the offset when it hands a message out, or skips it, and there is no"
    " record of which it was"
)
_LOCKED: Final = (
    "orderly POP has handed out messages from there on, and waits for their"
    " acknowledgement"
)
_BATCH_END: Final = (
    "orderly POP moves the offset when a message is acknowledged, and keeps what it has"
    " handed out where it cannot be read"
)
_AGAIN: Final = (
    "the group's offset is not past it: it was moved back since, or moves just now"
)
_RESET: Final = "a reset moved the group over it ({})"
_USED_UP: Final = (
    "its deliveries are used up: a proxy that receives it makes it a dead letter"
    " instead of delivering it"
)
_AFTER_DEATH: Final = (
    "a delivery since then, as after a reset back over it, would have left no record"
)
_LATER_FILTER: Final = (
    "the members' subscription is newer than the message, and they may have had another"
    " filter before"
)
_LATER_THAN_POP: Final = (
    "the members' subscription is newer than that, and they may have had another filter"
)
_RENEWED: Final = (
    "gRPC members renew the time of their subscription, so that it does not show"
    " whether they had another filter before"
)


#: Kinds of copies of a message that the group has given up.
_DEAD: Final = ("dead", "dying")


class MessageVerdict(StrEnum):
    """What became of a message in a group."""

    CONSUMED = "consumed"
    WAITING = "waiting"
    FILTERED = "filtered"
    IN_RETRY = "in_retry"
    DEAD = "dead"
    IN_FLIGHT = "in_flight"
    BROADCAST = "broadcast"
    DELAYED = "delayed"
    HALF = "half"
    ROLLED_BACK = "rolled_back"
    RECALLED = "recalled"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupVerdict:
    """What became of a message in a group, and what the verdict rests on.

    `evidence` says what was seen, `reason` why more cannot be said. `attempt` counts
    deliveries: that which comes next for `in_retry`, the last for `dead`;
    `attempts_max` follows from the broker's settings of the group, and members may have
    another limit: None if `attempt` shows that they have. `waiting_before` is how many
    messages of the queue come first. `next_at_ms` (epoch ms by the broker's clock) is
    when the next delivery is due: of a message that POP has handed out, unless it is
    acknowledged before. `where` is the place of the copy, TOPIC@BROKER:QUEUE:OFFSET.
    What is not known, or does not apply, is None.
    """

    group: str
    verdict: MessageVerdict
    evidence: str | None = None
    reason: str | None = None
    attempt: int | None = None
    attempts_max: int | None = None
    waiting_before: int | None = None
    next_at_ms: int | None = None
    where: str | None = None


@dataclass(slots=True, kw_only=True)
class MessageCopy:
    """A copy of the message that a broker made for one group.

    `kind` is `retry`, `delay` (a retry that waits for its delay), `dead`, or `dying`: a
    dead letter that waits for a delay. Brokers of 4.6.0 keep the delay of the retry
    that failed last, so that the letter waits as long once more. `is_passed` says
    whether the group's offset is past it in its retry topic; None if that is not known.
    `due_ms` is for a delay; None if the delay is not known. `is_over` says that the
    broker has delivered what waited there up to this copy, so that its end has made
    another one. `delivery` is what POP
    recorded about it, None without a record. `moved_by` names the backup of a reset
    that moved the group over it.
    """

    kind: str
    message: PulledMessage
    is_pop: bool = False
    is_passed: bool | None = None
    due_ms: int | None = None
    is_over: bool = False
    delivery: PopDelivery | None = None
    moved_by: str | None = None

    @property
    def place(self) -> str:
        """Where it is: TOPIC@BROKER:QUEUE:OFFSET."""
        return f"{self.message.message_queue}:{self.message.queue_offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A member that tells that it pulls the message's queue.

    `unfinished` has the lowest and the highest offset that it has pulled and not
    finished, None without any. `committed` is the offset that it would commit now; None
    if it does not tell. `asked_ms` is the broker's time at which it answered,
    `pulled_ms` when it last pulled, by its own clock (both epoch ms); None if it does
    not tell.
    """

    client_id: str
    unfinished: tuple[int, int] | None
    pulled_ms: int | None
    asked_ms: int
    subscription: SubscriptionData | None
    committed: int | None = None
    is_orderly: bool = False


@dataclass(frozen=True, slots=True)
class MovedBack:
    """A reset that moved a group back over a message, as a backup tells it.

    The backup, which `name` names, shows that it was asked for, not that it was done.
    `at_ms` is by the clock of the message's broker.
    """

    name: str
    at_ms: int


@dataclass(slots=True, kw_only=True)
class GroupEvidence:
    """All that was read about one group and one message.

    `committed` and `pulled` are the group's offsets in the message's queue.
    `no_offset` says why they are not known, `no_members` why members are not, and
    `no_copies` why copies of the message may exist that were not found. `selected` says
    whether the members' filter selects the message, as far as a broker had to say that,
    and `no_selection` why it did not.
    """

    group: str
    committed: int | None = None
    pulled: int | None = None
    no_offset: str | None = None
    connection: ConsumerConnection | None = None
    no_members: str | None = None
    copies: list[MessageCopy] = field(default_factory=list)
    no_copies: str | None = None
    retry_max_times: int | None = None
    is_orderly: bool = False
    is_pop: bool = False
    #: what POP recorded about the message itself
    delivery: PopDelivery | None = None
    #: why POP may have handed it out without a record that was found
    no_deliveries: str | None = None
    #: whether orderly POP has handed out messages of the queue, and they are neither
    #: acknowledged nor visible again
    is_locked: bool | None = None
    #: why that is not known
    no_lock: str | None = None
    holder: Holder | None = None
    selected: bool | None = None
    no_selection: str | None = None
    #: whether members renew the time of a subscription that stays the same
    is_renewed: bool = False
    #: names the backup of a reset that moved the group over the message
    moved_by: str | None = None
    #: what a log of redrives says of the dead letter; None if nothing
    redriven: str | None = None
    #: the last reset that moved the group back to the message or before it, and when,
    #: by the clock of the message's broker
    moved_back: MovedBack | None = None


def judge(
    message: PulledMessage, seen: GroupEvidence, *, min_offset: int | None
) -> GroupVerdict:
    """Return what became of `message`; `min_offset` is the first of its queue."""
    return _Case(message, seen, min_offset).judged()


def letter_of(seen: GroupEvidence) -> MessageCopy | None:
    """Return the last dead letter; one that is on its way only if none has arrived."""
    for kind in _DEAD:
        letters = [copy for copy in seen.copies if copy.kind == kind]
        if letters:
            return max(letters, key=_age)
    return None


class _Case:
    """One message and one group, to be judged.

    The methods that return None judge only what their docstrings say.
    """

    def __init__(
        self, message: PulledMessage, seen: GroupEvidence, min_offset: int | None
    ) -> None:
        self._message = message
        self._offset = message.queue_offset
        self._topic = message.message_queue.topic
        self._seen = seen
        self._min_offset = min_offset
        self._at = f"committed offset {seen.committed}, message at {self._offset}"
        self._found = functools.partial(GroupVerdict, group=seen.group)

    def judged(self) -> GroupVerdict:
        seen = self._seen
        found = self._by_copies()
        if found is not None and found.verdict is MessageVerdict.DEAD:
            found = self._once_more(found) or found
            if seen.redriven is not None:
                found = replace(found, evidence=f"{found.evidence}; {seen.redriven}")
            return found
        if found is not None:
            return found
        connection = seen.connection
        if connection is not None and connection.message_model == "BROADCASTING":
            return self._found(
                verdict=MessageVerdict.BROADCAST,
                evidence="its members consume in broadcast mode",
                reason="members keep their offsets themselves",
            )
        if seen.no_offset is not None:
            return self._unknown(seen.no_offset)
        if seen.delivery is not None:
            return self._handed_out(seen.delivery)
        if seen.committed is None:
            return self._held(NEVER_COMMITTED) or self._unknown(NEVER_COMMITTED)
        if seen.committed <= self._offset:
            return self._not_passed(seen.committed)
        return self._passed()

    def _unknown(self, reason: str, evidence: str | None = None) -> GroupVerdict:
        unknown = MessageVerdict.UNKNOWN
        return self._found(verdict=unknown, evidence=evidence, reason=reason)

    def _by_copies(self) -> GroupVerdict | None:
        """Judge by the last copy; None without copies."""
        seen, attempts_max = self._seen, None
        if seen.retry_max_times is not None:
            attempts_max = seen.retry_max_times + 1
        others = [copy for copy in seen.copies if copy.kind not in _DEAD]
        letter = letter_of(seen)
        if letter is not None:
            others = _after(letter, others)
            if not others:
                why, unsure = _death(letter)
                return self._found(
                    verdict=MessageVerdict.DEAD,
                    evidence=why,
                    reason=unsure,
                    attempt=letter.message.reconsume_times or None,
                    attempts_max=attempts_max,
                    where=letter.place,
                )
        if not others:
            return None
        last = max(others, key=_age)
        attempt = last.message.reconsume_times + 1
        is_above = attempts_max is not None and attempt > attempts_max
        if is_above and not last.is_pop:
            attempts_max = None  # brokers take the limit of the members: it is higher
        if last.delivery is not None:
            return self._retry_handed_out(last, last.delivery, attempts_max)
        if last.kind == "delay" and last.is_over:
            return self._unknown(
                f"the copy for delivery {attempt} was not found in the retry topic: it"
                " was deleted, or is not in the index yet",
                f"the delay of {last.place} has ended",
            )
        found = self._found(
            verdict=MessageVerdict.IN_RETRY,
            evidence="a copy waits for its delay to end",
            attempt=attempt,
            attempts_max=attempts_max,
            where=last.place,
        )
        if last.kind == "delay" or last.is_passed is False:
            reason = None
            if last.kind == "retry":
                why = "a copy waits in the retry topic, past the group's offset there"
                found = replace(found, evidence=why)
                reason = "it may be in the hands of a member"
            if is_above and last.is_pop:
                reason = _USED_UP
            return replace(found, reason=reason, next_at_ms=last.due_ms)
        evidence = f"copy for delivery {attempt} at {last.place}"
        if last.is_passed is None:
            return self._unknown(
                "the group's offset in the retry topic is not known", evidence
            )
        if last.moved_by is not None:
            return self._unknown(_RESET.format(last.moved_by), evidence)
        if last.is_pop:
            return self._unknown(seen.no_deliveries or _NO_RECORD, evidence)
        if seen.no_copies is not None:
            return self._unknown(seen.no_copies, evidence)
        evidence = f"the group is past the {evidence}, and there is no later one"
        return replace(found, verdict=MessageVerdict.CONSUMED, evidence=evidence)

    def _once_more(self, dead: GroupVerdict) -> GroupVerdict | None:
        """Judge a message with a dead letter that the group gets, or got, once more.

        As after a reset back over it. Returns None if nothing shows that.
        """
        seen = self._seen
        letter = letter_of(seen)
        assert letter is not None  # noqa: S101  # of which the verdict is
        died_ms = letter.message.store_timestamp_ms
        died = f"{dead.evidence} since {format_rfc3339(died_ms)}"
        delivery, committed = seen.delivery, seen.committed
        if delivery is not None and delivery.popped_ms > died_ms:
            again = self._handed_out(delivery)
            evidence = f"{died}; {again.evidence}"
            return replace(again, evidence=evidence, where=letter.place, attempt=None)
        if seen.no_offset is not None or committed is None:
            return None
        if committed > self._offset:
            moved = seen.moved_back
            if moved is None or moved.at_ms < died_ms - _CLOCKS_DIFFER_MS:
                return None
            return self._unknown(
                "a reset was to move the group back over it, at"
                f" {format_rfc3339(moved.at_ms)} ({moved.name}); whether the message"
                " was consumed since is not recorded",
                f"{died}; {self._at}",
            )
        holder = seen.holder
        if holder is not None and (holder.committed or 0) > self._offset:
            return None  # its member is past it, and will commit that
        again = self._not_passed(committed)
        if again.verdict is MessageVerdict.WAITING:
            evidence = f"{died}; {again.evidence}"
            return replace(again, evidence=evidence, where=letter.place)
        return self._unknown(
            "the group's offset is not past it: it was moved back since, or an earlier"
            f" message holds it{'' if again.reason is None else f'; {again.reason}'}",
            f"{died}; {again.evidence or self._at}",
        )

    def _retry_handed_out(
        self, copy: MessageCopy, delivery: PopDelivery, attempts_max: int | None
    ) -> GroupVerdict:
        """Judge a retry that POP has handed out."""
        attempt = copy.message.reconsume_times + 1
        found = self._by_delivery(delivery)
        if found.verdict is MessageVerdict.CONSUMED:
            if copy.is_passed is False:
                return self._unknown(_AGAIN, found.evidence)
            if self._seen.no_copies is not None:
                return self._unknown(self._seen.no_copies, found.evidence)
        is_unknown = found.verdict is MessageVerdict.UNKNOWN
        return replace(
            found,
            evidence=f"copy for delivery {attempt} at {copy.place}: {found.evidence}",
            attempt=None if is_unknown else attempt,
            attempts_max=attempts_max,
            where=copy.place,
        )

    def _handed_out(self, delivery: PopDelivery) -> GroupVerdict:
        """Judge a message that POP has handed out, of which there is no copy."""
        found, committed = self._by_delivery(delivery), self._seen.committed
        if found.verdict is not MessageVerdict.CONSUMED:
            return found
        if committed is None or committed <= self._offset:
            return self._unknown(_AGAIN, found.evidence)
        return self._as_filtered(delivery.popped_ms, found.evidence or "") or found

    def _as_filtered(self, popped_ms: int, acked: str) -> GroupVerdict | None:
        """Judge a message that was handed out only because of the hash of its tag.

        Brokers compare hashes. The proxy or the member, which compares the tag itself,
        acknowledges what is not selected without giving it to a listener. Returns None
        for any other message.
        """
        seen, tags = self._seen, self._message.tags
        own = seen.connection and seen.connection.subscriptions.get(self._topic)
        if not own or tag_matches(own, tags):
            return None
        if tags_code(tags) not in map(tags_code, own.tags_set):
            return None
        _, why = self._selection()
        since_ms, no_clock = _subscribed_ms(seen, own)
        if since_ms is None or since_ms > popped_ms:
            later = _RENEWED if seen.is_renewed else _LATER_THAN_POP
            return self._unknown(f"{why}, but {no_clock or later}", acked)
        evidence = f"{why}, whose hash is the same; {acked}"
        return self._found(verdict=MessageVerdict.FILTERED, evidence=evidence)

    def _by_delivery(self, delivery: PopDelivery) -> GroupVerdict:
        popped = f"handed out at {format_rfc3339(delivery.popped_ms)}"
        if delivery.is_open:
            return self._found(
                verdict=MessageVerdict.IN_FLIGHT,
                evidence=f"{popped} by POP, and not acknowledged",
                reason=f"POP does not record to whom{self._online()}",
                attempt=1,
                next_at_ms=delivery.visible_ms,
            )
        if delivery.acked_ms is None:
            why = self._seen.no_copies
            return self._unknown(
                "it was not acknowledged in time, and the copy for its next delivery"
                f" was not found{'' if why is None else f': {why}'}",
                popped,
            )
        acked = f"{popped}, acknowledged at {format_rfc3339(delivery.acked_ms)}"
        if delivery.acked_ms > delivery.visible_ms:
            reason = "that was after it was visible again, and may have no effect"
            return self._unknown(reason, acked)
        return self._found(verdict=MessageVerdict.CONSUMED, evidence=acked, attempt=1)

    def _online(self) -> str:
        """Name the members that are online, if they are few."""
        if self._seen.connection is None:
            return ""
        names = sorted(each.client_id for each in self._seen.connection.connections)
        if not 0 < len(names) <= _MEMBERS_NAMED_MAX:
            return f"; {counted(len(names), 'member')} are online" if names else ""
        return f"; online: {', '.join(names)}"

    def _not_passed(self, committed: int) -> GroupVerdict:
        seen, offset, min_offset = self._seen, self._offset, self._min_offset
        if min_offset is not None and offset < min_offset:
            reason = f"the queue begins at {min_offset}: deleted, perhaps unread"
            return self._unknown(reason, self._at)
        if seen.no_members is not None:
            return self._unknown(seen.no_members, self._at)
        if seen.connection is not None:
            selected, why = self._selection()
            if selected is None:
                return self._unknown(why, self._at)
            if not selected:
                return self._found(verdict=MessageVerdict.FILTERED, evidence=why)
        # Only POP goes by the group's setting, so its members that have left used POP.
        may_pop = seen.is_pop or (
            seen.connection is None
            # A broker that keeps what POP hands out in RocksDB moves the committed
            # offset with the next request only, and the pulled offset at once.
            and (
                seen.is_orderly or (seen.no_deliveries and (seen.pulled or 0) > offset)
            )
        )
        found = None
        if may_pop or seen.is_locked:
            found = self._maybe_popped(committed)
        elif seen.connection is not None:
            found = self._maybe_pulled()
        if found is not None:
            return found
        first = committed if min_offset is None else max(committed, min_offset)
        return self._found(
            verdict=MessageVerdict.WAITING,
            evidence=self._at,
            waiting_before=offset - first,
        )

    def _maybe_popped(self, committed: int) -> GroupVerdict | None:
        """Judge a message that POP may have handed out before it moves the offset."""
        seen, evidence = self._seen, self._at
        if seen.no_deliveries is not None:
            return self._unknown(seen.no_deliveries, evidence)
        if seen.is_locked is False or not (seen.is_orderly or seen.is_locked):
            return None
        if seen.is_locked:
            evidence += f"; {_LOCKED}"
        if seen.connection is not None:
            behind = self._offset - committed
            own = seen.connection.subscriptions.get(self._topic)
            is_all = own is not None and own.sub_string == "*"
            if is_all and behind >= _POP_BATCH_MAX:
                return None
            if seen.is_locked and behind == 0:
                reason = f"POP does not record to whom{self._online()}"
                return self._in_flight(evidence, reason)
        return self._unknown(seen.no_lock or _BATCH_END, evidence)

    def _in_flight(self, evidence: str, reason: str) -> GroupVerdict:
        in_flight = MessageVerdict.IN_FLIGHT
        return self._found(verdict=in_flight, evidence=evidence, reason=reason)

    def _held(self, evidence: str) -> GroupVerdict | None:
        """Judge a message that is among those that a member has, and not finished."""
        holder = self._seen.holder
        if holder is None or holder.unfinished is None:
            return None
        low, high = holder.unfinished
        if not low <= self._offset <= high:
            return None
        return self._in_flight(
            f"{evidence}; {holder.client_id} holds {low} to {high}",
            "it may have been consumed: members commit the lowest offset that is not",
        )

    def _maybe_pulled(self) -> GroupVerdict | None:
        """Judge a message that a member may have pulled, but not committed."""
        held = self._held(self._at)
        if held is not None:
            return held
        holder, pulled = self._seen.holder, self._seen.pulled
        if holder is not None and (holder.committed or 0) > self._offset:
            return self._in_flight(
                f"{self._at}; {holder.client_id} is at {holder.committed}",
                "its member is past it, and has not committed that yet",
            )
        if pulled is None and holder is None:
            return self._unknown(
                "members are online, and neither they nor this broker tell what they"
                " have pulled (brokers do from RocketMQ 5.1.0 on)",
                self._at,
            )
        if pulled is not None and pulled > self._offset:
            return self._in_flight(
                f"{self._at}, pulled up to {pulled}",
                "a member may have consumed it: it commits the lowest offset that it"
                " has not",
            )
        return None

    def _passed(self) -> GroupVerdict:
        seen, evidence = self._seen, self._at
        if seen.moved_by is not None:
            return self._unknown(_RESET.format(seen.moved_by), evidence)
        if seen.no_members is not None:
            return self._unknown(seen.no_members, evidence)
        is_pop = seen.is_pop and not seen.is_orderly
        if seen.connection is None:
            reason = "no member is online, so the group's filter is not known"
            if is_pop:
                reason = seen.no_deliveries or f"{_NO_RECORD}; {reason}"
            return self._unknown(reason, evidence)
        selected, why = self._selection()
        if selected is None:
            return self._unknown(why, evidence)
        subscription = seen.connection.subscriptions[self._topic]
        since_ms, no_clock = _subscribed_ms(seen, subscription)
        stored_ms = self._message.store_timestamp_ms
        if not selected:
            if since_ms is not None and since_ms <= stored_ms:
                return self._found(verdict=MessageVerdict.FILTERED, evidence=why)
            return self._unknown(f"{why}, but {no_clock or _later(seen)}", evidence)
        if is_pop:
            return self._unknown(seen.no_deliveries or _NO_RECORD, evidence)
        if seen.no_copies is not None:
            return self._unknown(seen.no_copies, evidence)
        if seen.holder is None and not seen.is_pop:
            return self._unknown(
                "no member tells that it pulls the queue; it may have been handed out"
                " by POP, as to gRPC clients, which moves the offset before the message"
                " is acknowledged",
                evidence,
            )
        skipped = no_clock
        if since_ms is not None:
            skipped = _may_have_skipped(seen, since_ms, stored_ms)
        if skipped is not None:
            return self._unknown(skipped, evidence)
        # Orderly members get a message that failed once more in its place, without a
        # copy.
        is_orderly = seen.is_orderly if seen.holder is None else seen.holder.is_orderly
        return self._found(
            verdict=MessageVerdict.CONSUMED,
            evidence=f"{evidence}; the filter selects it, and no copy waits for a"
            " retry",
            attempt=None if is_orderly else 1,
        )

    def _selection(self) -> tuple[bool | None, str]:
        """Whether the members' filter selects the message, or None; and why."""
        seen, tags = self._seen, self._message.tags
        assert seen.connection is not None  # noqa: S101
        subscription = seen.connection.subscriptions.get(self._topic)
        if subscription is None:
            return None, f"its members do not subscribe to {self._topic} now"
        wanted = subscription.sub_string
        own = None if seen.holder is None else seen.holder.subscription
        if own is not None and _filter_of(own) != _filter_of(subscription):
            return None, (
                f"the member of its queue has the filter {own.sub_string!r}, and"
                f" another has {wanted!r}"
            )
        if subscription.expression_type == SQL92 or subscription.class_filter_mode:
            if seen.selected is None:
                reason = seen.no_selection or "is evaluated by brokers"
                return None, f"the filter {wanted!r} {reason}"
            return (
                seen.selected,
                "" if seen.selected else f"{wanted!r} does not select it",
            )
        if tag_matches(subscription, tags):
            return True, ""
        tag = "no tag" if tags is None else f"tag {tags}"
        return False, f"{tag} is not selected by {wanted!r}"


def _death(letter: MessageCopy) -> tuple[str, str]:
    """Say where a dead letter is, and what is not known about it."""
    if letter.kind == "dead":
        return "a copy is in the dead-letter topic", _AFTER_DEATH
    if letter.is_over:
        why = "it was deleted, or is not in the index yet"
        return (
            "its dead letter waited for a delay, which has ended",
            f"the letter was not found in the dead-letter topic: {why}",
        )
    due = "" if letter.due_ms is None else f", until {format_rfc3339(letter.due_ms)}"
    return (
        f"its dead letter is on its way: it waits for a delay{due}",
        "it is in the dead-letter topic only when that has ended",
    )


def _after(letter: MessageCopy, copies: list[MessageCopy]) -> list[MessageCopy]:
    """Return the copies that still come, or came, although there is a dead letter.

    As when a letter was sent to the retry topic again. A delay that has ended is still
    found: its end made a copy in the retry topic, which counts in its place.
    """
    return [
        copy
        for copy in copies
        if not any(_ended(copy, each) for each in copies)
        if copy.kind == "delay"
        or copy.is_passed is False
        or copy.message.store_timestamp_ms > letter.message.store_timestamp_ms
    ]


def _ended(delay: MessageCopy, copy: MessageCopy) -> bool:
    """Whether the first copy is a delay, and the second what its end made."""
    return (
        (delay.kind, copy.kind) == ("delay", "retry")
        and copy.message.reconsume_times == delay.message.reconsume_times
        and copy.message.broker_name == delay.message.broker_name
        and copy.message.store_timestamp_ms >= delay.message.store_timestamp_ms
    )


def _age(copy: MessageCopy) -> tuple[int, int, int]:
    """Order copies: by deliveries, by where they go next, and by time."""
    is_due = int(copy.kind != "delay")
    return copy.message.reconsume_times, is_due, copy.message.store_timestamp_ms


def _later(seen: GroupEvidence) -> str:
    return _RENEWED if seen.is_renewed else _LATER_FILTER


def _may_have_skipped(seen: GroupEvidence, since_ms: int, stored_ms: int) -> str | None:
    """Say why a group that is past a message may not have been given it, or None.

    `since_ms` is when its members subscribed, `stored_ms` when it was stored.
    """
    if since_ms > stored_ms:
        return _later(seen)
    begins = seen.connection and seen.connection.consume_from_where
    if begins == "CONSUME_FROM_FIRST_OFFSET" or since_ms + BEGINNING_MS <= stored_ms:
        return None
    return (
        "the members subscribed less than a minute before it was stored, and a group"
        " that is new begins at the end of a queue, past older messages"
    )


def _subscribed_ms(
    seen: GroupEvidence, subscription: SubscriptionData
) -> tuple[int | None, str | None]:
    """Return when the members subscribed, at the latest, by the broker's clock.

    The time of a subscription is by a member's clock. What it reported of its last pull
    shows how far that clock is behind at most. Without these times: None, and the
    reason.
    """
    holder, since_ms = seen.holder, subscription.sub_version
    if since_ms <= 0:
        return None, "the members do not report when they subscribed"
    if since_ms > _SUBSCRIBED_MS_MAX:
        since_ms //= _MS_NANOSECONDS
    if holder is None:  # behind a proxy, which has the time by its own clock
        return since_ms, None
    if holder.pulled_ms is None:
        return None, f"{holder.client_id} does not tell the time by its clock"
    behind_ms = holder.asked_ms - holder.pulled_ms
    if -_SAME_CLOCK_MS <= behind_ms <= _PULLS_EVERY_MS:
        return since_ms, None
    return since_ms + behind_ms, None


def _filter_of(subscription: SubscriptionData) -> tuple[str, str]:
    return subscription.expression_type or "TAG", subscription.sub_string
