"""Faults on demand: what goes wrong, with which requests, and how often.

    faults = Faults()
    faults.add(answer(14, "busy"), code=RequestCode.PULL_MESSAGE, times=2)
    faults.next(drop_answer(), code=RequestCode.SEND_MESSAGE_V2, topic="orders")
    seen = faults.observe(code=RequestCode.PULL_MESSAGE)

This module only decides; `server` carries the actions out. The first rule that applies
wins, and observers see every request. All methods may be called from any thread.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import KW_ONLY, field
from typing import (
    TYPE_CHECKING,
    Final,
    Literal,
    NamedTuple,
    TypeAlias,
    TypedDict,
    Unpack,
)

from rmqcli.callbacks import call_back
from rmqcli.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.wire.command import RemotingCommand

_OBSERVED_MAX: Final = 10_000
#: names of a field in headers, the last one in SendMessageRequestHeaderV2 (310, 320)
_GROUP_KEYS: Final = ("consumerGroup", "group", "producerGroup", "a")
_TOPIC_KEYS: Final = ("topic", "originTopic", "b")
_QUEUE_KEYS: Final = ("queueId", "e")

Part: TypeAlias = Literal["length", "header", "body"]


@dataclass(frozen=True, slots=True)
class Answer:
    """The client gets this answer, and the broker never sees the request."""

    code: int
    remark: str | None = None
    ext_fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Drop:
    """The client gets no answer. With `is_handled` the broker handles the request."""

    is_handled: bool


@dataclass(frozen=True, slots=True)
class DelayAnswer:
    """The answer comes `delay_ms` later; others overtake it."""

    delay_ms: int


@dataclass(frozen=True, slots=True)
class Reorder:
    """The answer comes after the next one on the same connection."""


@dataclass(frozen=True, slots=True)
class Disconnect:
    """The connection ends in place of the answer. `is_handled` as in Drop."""

    is_handled: bool


@dataclass(frozen=True, slots=True)
class Corrupt:
    """The answer's bytes are damaged in `part`."""

    part: Part


Action: TypeAlias = Answer | Drop | DelayAnswer | Reorder | Disconnect | Corrupt


def answer(
    code: int,
    remark: str | None = None,
    *,
    ext_fields: dict[str, str] | None = None,
    body: bytes = b"",
) -> Action:
    """Answer with `code`, without asking the broker."""
    return Answer(int(code), remark, ext_fields or {}, body)


def drop_request() -> Action:
    """Lose the request: the broker does not handle it."""
    return Drop(is_handled=False)


def drop_answer() -> Action:
    """Lose the answer to a request that the broker has handled."""
    return Drop(is_handled=True)


def delay(delay_ms: int) -> Action:
    """Hold the answer back for `delay_ms`."""
    return DelayAnswer(delay_ms)


def reorder() -> Action:
    """Let the next answer on the connection overtake this one."""
    return Reorder()


def disconnect(*, is_handled: bool = False) -> Action:
    """Close the connection in place of the answer."""
    return Disconnect(is_handled)


def corrupt(part: Part = "header") -> Action:
    """Damage the answer: its length word, its header, or its body."""
    return Corrupt(part)


class Observed(NamedTuple):
    """One request that a rule matched. `broker` is "namesrv" for the name server."""

    broker: str
    command: RemotingCommand


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Which requests a rule matches; None matches any value."""

    code: int | None = None
    broker: str | None = None
    group: str | None = None
    topic: str | None = None
    queue_id: int | None = None

    def takes(self, broker: str, command: RemotingCommand) -> bool:
        """Whether the rule matches this request."""
        fields = command.ext_fields
        return (
            (self.code is None or self.code == command.code)
            and (self.broker is None or self.broker == broker)
            and (self.group is None or self.group == _first(fields, _GROUP_KEYS))
            and (self.topic is None or self.topic == _first(fields, _TOPIC_KEYS))
            and (
                self.queue_id is None
                or str(self.queue_id) == _first(fields, _QUEUE_KEYS)
            )
        )


class Which(TypedDict, total=False):
    """The fields of `Match`, as keyword arguments."""

    code: int
    broker: str
    group: str
    topic: str
    queue_id: int


@dataclass(eq=False)
class Rule:
    """One fault, or one observer if `action` is None.

    `requests` holds the newest 10,000 requests that it counted.
    """

    match: Match
    action: Action | None
    _: KW_ONLY
    nth: int = 1
    times: int | None = None
    on_request: Callable[[Observed], None] | None = None
    requests: deque[Observed] = field(
        default_factory=lambda: deque(maxlen=_OBSERVED_MAX), init=False
    )
    #: the number of requests that it counted, and of those that it was applied to
    seen: int = field(default=0, init=False)
    hits: int = field(default=0, init=False)

    def decide(self, observed: Observed) -> Action | None:
        """Count the request and return the action for it, if any."""
        self.seen += 1
        self.requests.append(observed)
        if self.on_request is not None:
            call_back(self.on_request, observed, "on_request", broker=observed.broker)
        is_over = self.times is not None and self.hits >= self.times
        if self.action is None or self.seen < self.nth or is_over:
            return None
        self.hits += 1
        return self.action


class Faults:
    """The rules of one cluster, in their order."""

    def __init__(self) -> None:
        self._rules: list[Rule] = []
        self._lock = threading.Lock()  # guards _rules

    def add(
        self,
        action: Action,
        *,
        nth: int = 1,
        times: int | None = None,
        **which: Unpack[Which],
    ) -> Rule:
        """Apply `action` to matching requests from the `nth` on, at most `times` times.

        Without `times` there is no limit.
        """
        return self.add_rule(Rule(Match(**which), action, nth=nth, times=times))

    def next(self, action: Action, **which: Unpack[Which]) -> Rule:
        """Apply `action` once, to the next matching request."""
        return self.add(action, times=1, **which)

    def observe(
        self,
        *,
        on_request: Callable[[Observed], None] | None = None,
        **which: Unpack[Which],
    ) -> Rule:
        """Record requests and change nothing. `on_request` runs in the I/O thread."""
        return self.add_rule(Rule(Match(**which), None, on_request=on_request))

    def add_rule(self, rule: Rule) -> Rule:
        """Add a rule after the others."""
        with self._lock:
            self._rules.append(rule)
        return rule

    def remove(self, rule: Rule) -> None:
        """Remove a rule, if it is still there."""
        with self._lock:
            if rule in self._rules:
                self._rules.remove(rule)

    def clear(self) -> None:
        """Remove all rules."""
        with self._lock:
            self._rules.clear()

    def decide(self, broker: str, command: RemotingCommand) -> Action | None:
        """Return the action of the first rule that applies to a request, if any.

        The matching rules up to that one and all matching observers count the request.
        """
        if not self._rules:
            return None
        chosen: Action | None = None
        observed = Observed(broker, command)
        with self._lock:
            rules = list(self._rules)
        for rule in rules:
            if rule.match.takes(broker, command) and (
                chosen is None or rule.action is None
            ):
                chosen = rule.decide(observed) or chosen
        return chosen


def _first(fields: dict[str, str], keys: tuple[str, ...]) -> str | None:
    return next((fields[key] for key in keys if key in fields), None)


def damaged(frame: bytes, part: Part) -> bytes:
    """Return `frame` with one part damaged, so that no client can read it."""
    data = bytearray(frame)
    header_length = int.from_bytes(data[5:8], "big")
    if part == "length":
        data[0:4] = b"\x7f\xff\xff\xff"
    elif part == "header":
        data[8 : 8 + header_length] = b"\xff" * header_length
    else:
        body = data[8 + header_length :]
        data[8 + header_length :] = bytes(byte ^ 0x55 for byte in body)
    return bytes(data)
