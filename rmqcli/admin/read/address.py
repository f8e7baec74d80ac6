"""Chooses the address from which to pull a queue: its master or one of the slaves.

With each answer a broker suggests which member of its group to pull from next: the
master or a slave. A member that cannot be reached is left out until all members have
been tried. After a failure the route is read again, because a master that died may have
got another address.

Source: PullAPIWrapper#recalculatePullFromWhichNode, findBrokerAddressInSubscribe
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from rmqcli.api.routes import reading_address
from rmqcli.dataclass import dataclass
from rmqcli.errors import RmqError
from rmqcli.model import MASTER_ID

if TYPE_CHECKING:
    from rmqcli.api.client import Client
    from rmqcli.model import MessageQueue

#: Minimum time between two reads of a topic's route because of failures.
_REFRESH_EVERY_MS = 2_000


@dataclass(slots=True)
class _Choice:
    address: str | None = None
    broker_id: int = MASTER_ID
    #: addresses that failed; cleared when all addresses of the broker have failed
    tried: set[str] = field(default_factory=set)


class AddressBook:
    """The address to pull each queue from. `failed` and `suggested` do no I/O."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._choices: dict[MessageQueue, _Choice] = {}
        #: topic -> when its route was last read because of a failure
        self._refreshed_ms: dict[str, int] = {}

    def address(self, queue: MessageQueue) -> str | RmqError:
        """Return the address to pull `queue` from, or an error if there is none.

        May read the route from the name servers after a failure.
        """
        choice = self._choices.get(queue)
        if choice is None:
            choice = self._choices[queue] = _Choice()
        if choice.address is not None:
            return choice.address
        try:
            address = self._choose(queue, choice)
        except RmqError as error:
            return error
        choice.address = address
        return address

    def failed(self, queue: MessageQueue, address: str) -> None:
        """Record that `address` did not answer for `queue`; the next one is another."""
        choice = self._choices[queue]
        choice.tried.add(address)
        if choice.address == address:
            choice.address = None

    def suggested(self, queue: MessageQueue, broker_id: int) -> None:
        """Record that an answer suggested `broker_id` as the one to pull from next."""
        choice = self._choices[queue]
        if choice.tried:
            # The suggested broker may be the one that is down: go there only when the
            # present one fails.
            choice.broker_id = broker_id
            return
        if broker_id != choice.broker_id:
            choice.broker_id = broker_id
            choice.address = None

    def _choose(self, queue: MessageQueue, choice: _Choice) -> str:
        if choice.tried:
            self._refresh(queue.topic)
        broker = self._client.route(queue.topic).broker(queue.broker_name)
        if broker is None:
            return self._client.reader_of(queue)  # raises
        if choice.tried.issuperset(broker.addresses.values()):
            choice.tried.clear()
        found = reading_address(broker, choice.broker_id, without=choice.tried)
        return self._client.reader_of(queue) if found is None else found[1]

    def _refresh(self, topic: str) -> None:
        now_ms = self._client.clock.monotonic_ms()
        last_ms = self._refreshed_ms.get(topic)
        if last_ms is not None and now_ms - last_ms < _REFRESH_EVERY_MS:
            return
        self._refreshed_ms[topic] = now_ms
        try:
            self._client.route(topic, refresh=True)
        except RmqError:
            return  # the route that is known is still the best there is
