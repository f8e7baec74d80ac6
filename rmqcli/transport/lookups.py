"""Resolves host names in separate threads, because the system's resolver may block.

| thread | started by | blocks on | ended by |
|---|---|---|---|
| rmq-lookup | Lookups, look_up_within | getaddrinfo | its answer |

At most THREADS_MAX of a client run at once; further names wait for their turn. No
caller waits for them beyond its own deadline, and they are daemons. Literal addresses
need no thread.

`local_ip` is this machine's address as a peer would see it; nothing is sent to find it.

Source: UtilAll.getIP and MessageClientIDSetter.createFakeIP in apache/rocketmq.
"""

from __future__ import annotations

import socket
import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

from rmqcli.errors import ConnectError
from rmqcli.transport.address import is_any_literal, look_up, parse_address, unknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.transport.address import Address, Endpoint

    Outcome = list[Endpoint] | ConnectError


THREADS_MAX: Final = 4
LOOK_UP_MS: Final = 1_000


class LookupListener(Protocol):
    """An object that waits for a look-up."""

    def looked_up(self, outcome: Outcome) -> None:
        """Continue with the endpoints, or with the error."""


class Lookups:
    """The endpoints of addresses, looked up once and kept until `forget`.

    Belongs to the thread that drives the loop. The look-up threads call `wake` when
    there is something to `settle`.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        #: address text -> its endpoints, in the system's order of preference
        self._known: dict[str, list[Endpoint]] = {}
        #: address text -> the listener of its look-up under way
        self._listeners: dict[str, LookupListener] = {}
        #: addresses whose look-up waits for a free thread
        self._waiting: deque[Address] = deque()
        #: outcomes, which the look-up threads append
        self._answers: deque[tuple[Address, Outcome]] = deque()
        self._running = 0

    @property
    def has_answers(self) -> bool:
        """Whether `settle` has something to do."""
        return bool(self._answers)

    def endpoints(
        self, address: Address, listener: LookupListener
    ) -> list[Endpoint] | None:
        """Return the endpoints of `address`, or None if `listener` gets them later.

        The list is never empty. Raises ConnectError for a literal address that the
        system does not accept.
        """
        known = self._known.get(address.text)
        if known is None and is_any_literal(address.host):
            known = self._known[address.text] = look_up(address)
        if known is not None:
            return known
        is_under_way = address.text in self._listeners
        self._listeners[address.text] = listener
        if not is_under_way:
            self._waiting.append(address)
            self._begin()
        return None

    def forget(self, address: Address) -> None:
        """Forget the endpoints of an address, so that it is looked up again."""
        self._known.pop(address.text, None)

    def settle(self) -> None:
        """Pass the outcomes of look-ups to their listeners."""
        while self._answers:
            address, outcome = self._answers.popleft()
            self._running -= 1
            if not isinstance(outcome, ConnectError):
                self._known[address.text] = outcome
            self._begin()
            self._listeners.pop(address.text).looked_up(outcome)

    def forget_after_fork(self) -> None:
        """In a forked child: drop all look-ups, whose threads do not exist there."""
        self._listeners.clear()
        self._waiting.clear()
        self._answers.clear()
        self._running = 0

    def _begin(self) -> None:
        while self._waiting and self._running < THREADS_MAX:
            address = self._waiting.popleft()
            self._running += 1
            try:
                _start(lambda address=address: self._look_up(address))  # type: ignore[misc]  # bound now
            except RuntimeError as error:  # no more threads
                self._answers.append((address, unknown(address, str(error))))

    def _look_up(self, address: Address) -> None:
        self._answers.append((address, _outcome(address)))
        self._wake()


def look_up_within(address: Address, timeout_ms: int) -> list[Endpoint]:
    """Return the endpoints of `address`.

    Blocks for at most `timeout_ms`. Raises ConnectError when there are none by then.
    """
    if is_any_literal(address.host):
        return look_up(address)
    outcomes: list[Outcome] = []
    answered = threading.Event()

    def ask() -> None:
        outcomes.append(_outcome(address))
        answered.set()

    with suppress(RuntimeError):  # no more threads
        _start(ask)
        answered.wait(timeout_ms / 1000)
    outcome = outcomes[0] if outcomes else too_slow(address, timeout_ms)
    if isinstance(outcome, ConnectError):
        raise outcome
    return outcome


def too_slow(address: Address, timeout_ms: int) -> ConnectError:
    """Return the error for a look-up that has not answered in time."""
    return unknown(address, f"the name was not resolved within {timeout_ms} ms")


def _outcome(address: Address) -> Outcome:
    try:
        return look_up(address)
    except ConnectError as error:
        return error


def _start(action: Callable[[], None]) -> None:
    threading.Thread(target=action, name="rmq-lookup", daemon=True).start()


def local_ip(toward: str) -> str | None:
    """Return the IP address from which this machine would reach `toward` ("host:port").

    None when there is no route to it, or its name is not resolved within LOOK_UP_MS.
    """
    try:
        endpoints = look_up_within(parse_address(toward), LOOK_UP_MS)
    except ConnectError:
        return None
    for family, sockaddr in endpoints:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                # A datagram socket's connect only chooses the route.
                probe.connect(sockaddr)
                return str(probe.getsockname()[0]).partition("%")[0]
        except OSError:
            continue
    return None
