"""Asks brokers what a search for a position wants to know.

Each question is asked once and answered the same for the rest of one command: both ends
of a range see the same min and max offset. All questions share one deadline. A broker
that let it pass is asked no more, and the others get the time again.

Pulls as TOOLS_CONSUMER without a commit: nothing is left on the broker.

Source: DefaultMQAdminExtImpl and MQAdminImpl of the Java client.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar

from rmqcli.admin.position_search import (
    Answer,
    Ask,
    AskBrokerClock,
    AskCommitted,
    AskMaxOffset,
    AskMinOffset,
    AskOffsetByTime,
    AskStoreTimes,
    BrokerClock,
    StoreTimes,
)
from rmqcli.api.calls_config import get_broker_runtime_info
from rmqcli.api.calls_offset import (
    get_all_consumer_offset,
    get_max_offset,
    get_min_offset,
    query_consumer_offset,
    search_offset_by_timestamp,
)
from rmqcli.api.calls_pull import pull_message
from rmqcli.clock import Deadline
from rmqcli.errors import DeadlineError, RmqError, TransportError
from rmqcli.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, format_duration
from rmqcli.wire.message import StoredMessage, decode_messages
from rmqcli.wire.pull_answer import PullAnswer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rmqcli.api.call import Call
    from rmqcli.api.client import Client
    from rmqcli.api.pending import Pending
    from rmqcli.model import MessageQueue

K = TypeVar("K")
T = TypeVar("T")

#: Messages per look at store times: enough to see both sides of a moment, few enough
#: that large bodies do not cost much.
_LOOK_MESSAGES = 4

_RUNTIME = re.compile(r"(\d+) days?, (\d+) hours?, (\d+) minutes?, (\d+) seconds?")


class Asker:
    """Asks brokers, each question once, within one deadline for each silent broker."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._deadline = Deadline(client.clock, client.config.timeout_ms)
        #: addresses that did not answer, and why: what would be asked there has that
        self._silent: dict[str, TransportError] = {}
        #: (queue, ask) -> what came back
        self._answers: dict[tuple[MessageQueue, Ask], Answer | RmqError] = {}
        #: address -> its clock; one question for all its queues
        self._clocks: dict[str, BrokerClock | RmqError] = {}
        #: address -> (group, topic) -> queue id -> committed offset
        self._tables: dict[str, dict[tuple[str, str], dict[int, int]] | RmqError] = {}

    def answer(self, queue: MessageQueue, ask: Ask) -> Answer | RmqError:
        """The answer to what `ask` asked before."""
        return self._answers[queue, ask]

    def ask(self, asks: Sequence[tuple[MessageQueue, Ask]]) -> None:
        """Ask what is not known yet, all at once."""
        addresses: dict[tuple[MessageQueue, Ask], str] = {}
        for key in asks:
            if key not in self._answers:
                try:
                    addresses[key] = self._client.reader_of(key[0])
                except RmqError as error:
                    self._answers[key] = error
        clocks = {
            k: a for k, a in addresses.items() if isinstance(k[1], AskBrokerClock)
        }
        self._ask_clocks(set(clocks.values()))
        for key, address in clocks.items():
            self._answers[key] = self._clocks[address]
        calls = {k: (a, _call_for(*k)) for k, a in addresses.items() if k not in clocks}
        for key, outcome in self._gather(calls).items():
            self._answers[key] = _read(outcome)
        self._check_zeros(addresses)

    def _ask_clocks(self, addresses: set[str]) -> None:
        asked_ms = self._client.clock.epoch_ms()
        new = addresses - self._clocks.keys()
        calls = {address: (address, get_broker_runtime_info()) for address in new}
        for address, table in self._gather(calls).items():
            answered_ms = self._client.clock.epoch_ms()
            self._clocks[address] = (
                table
                if isinstance(table, RmqError)
                else broker_clock(table, asked_ms=asked_ms, answered_ms=answered_ms)
            )

    def _check_zeros(self, addresses: Mapping[tuple[MessageQueue, Ask], str]) -> None:
        """A broker before 5.0 may answer 0 for a group that never committed."""
        zeros = {
            key: address
            for key, address in addresses.items()
            if isinstance(key[1], AskCommitted) and self._answers[key] == 0
        }
        new = set(zeros.values()) - self._tables.keys()
        calls = {address: (address, get_all_consumer_offset()) for address in new}
        self._tables.update(self._gather(calls).items())
        for key, address in zeros.items():
            queue, ask = key
            table = self._tables[address]
            if isinstance(table, RmqError):
                self._answers[key] = table
            elif isinstance(ask, AskCommitted):
                offsets = table.get((ask.group, queue.topic), {})
                self._answers[key] = offsets.get(queue.queue_id)

    def _gather(self, calls: Mapping[K, tuple[str, Call[T]]]) -> dict[K, T | RmqError]:
        """Carry out all calls together; errors as values, under the same keys."""
        outcomes: dict[K, T | RmqError] = {}
        pendings: dict[K, Pending[T]] = {}
        for key, (address, call) in calls.items():
            if address in self._silent:
                outcomes[key] = self._silent[address]
                continue
            left_ms = self._deadline.left_ms()
            if left_ms == 0:
                outcomes[key] = DeadlineError(
                    f"{call.what}: no time was left to ask {address}", address=address
                )
                continue
            try:
                pendings[key] = self._client.submit(address, call, timeout_ms=left_ms)
            except RmqError as error:
                outcomes[key] = error
        gathered = self._client.gather(pendings.values())
        asked = dict(zip(pendings, gathered, strict=True))
        self._note_silent([(calls[key][0], asked[key]) for key in asked])
        return outcomes | asked

    def _note_silent(self, outcomes: Sequence[tuple[str, object]]) -> None:
        """Leave out who answered nothing, and give the others the time that it took."""
        answered = {a for a, each in outcomes if not isinstance(each, TransportError)}
        silent = {
            address: each
            for address, each in outcomes
            if isinstance(each, TransportError) and address not in answered
        }
        if silent:
            self._silent |= silent
            self._deadline = Deadline(
                self._client.clock, self._client.config.timeout_ms
            )


def _call_for(queue: MessageQueue, ask: Ask) -> Call[Any]:
    topic, queue_id = queue.topic, queue.queue_id
    match ask:
        case AskMinOffset():
            return get_min_offset(topic, queue_id)
        case AskMaxOffset():
            return get_max_offset(topic, queue_id)
        case AskOffsetByTime(epoch_ms):
            return search_offset_by_timestamp(topic, queue_id, epoch_ms)
        case AskStoreTimes(queue_offset):
            return pull_message(queue, queue_offset, max_msg_nums=_LOOK_MESSAGES)
        case AskCommitted(group):
            return query_consumer_offset(group, topic, queue_id)
        case AskBrokerClock():
            return get_broker_runtime_info()


def _read(outcome: PullAnswer | int | RmqError | None) -> Answer | RmqError:
    if not isinstance(outcome, PullAnswer):
        return outcome
    entries = tuple(
        (message.queue_offset, message.store_timestamp_ms)
        for message in decode_messages(outcome.body)
        if isinstance(message, StoredMessage)
    )
    return StoreTimes(entries, outcome.next_begin_offset)


def broker_clock(
    table: Mapping[str, str], *, asked_ms: int, answered_ms: int
) -> BrokerClock:
    """A broker's present time out of its runtime info, which tells it to the second.

    When our own clock agrees with that, it is the finer one and is taken. Else the
    broker's counts, for it is what store times are measured with.
    """
    match = _RUNTIME.search(table.get("runtime", ""))
    boot = table.get("bootTimestamp", "")
    if match is None or not boot.isdigit() or len(boot) > 15:
        note = "the broker did not tell its time: this machine's clock was used"
        return BrokerClock(answered_ms, note)
    days, hours, minutes, seconds = (int(number[:9]) for number in match.groups())
    up_ms = days * DAY_MS + hours * HOUR_MS + minutes * MINUTE_MS + seconds * SECOND_MS
    low_ms = int(boot) + up_ms
    if low_ms <= answered_ms and asked_ms < low_ms + SECOND_MS:
        return BrokerClock(answered_ms)
    ahead_ms = low_ms - answered_ms
    if ahead_ms < 0:
        ahead_ms = min(0, low_ms + SECOND_MS - asked_ms)
    note = ""
    if abs(ahead_ms) >= SECOND_MS:
        side = "ahead of" if ahead_ms > 0 else "behind"
        by = format_duration(abs(ahead_ms))
        note = f"the broker's clock is {by} {side} this machine's and was used"
    return BrokerClock(low_ms, note)
