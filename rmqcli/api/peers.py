"""The versions of a client's peers, and the brokers that advertise their addresses.

Brokers advertise addresses that need not be reachable from here (containers). The hint
of an error about such an address names the broker that advertises it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.errors import ConnectError
from rmqcli.hint import Argument, Hint
from rmqcli.transport.address import map_address

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rmqcli.errors import RmqError
    from rmqcli.model import BrokerData


class Peers:
    """The peers of one client, by address.

    When the last route that names an address is gone, its entries are removed.
    """

    def __init__(self, address_map: Mapping[str, str]) -> None:
        self._address_map = address_map
        #: address -> MQVersion ordinal of its last answer
        self.versions: dict[str, int] = {}
        #: address -> since when (monotonic) its version is known to be too old
        self.too_old_ms: dict[str, int] = {}
        #: address -> the broker that advertises it, according to the newest route
        self._advertised: dict[str, str] = {}
        #: address -> how many routes name it; the list of all brokers counts as a route
        self._mentions: dict[str, int] = {}

    def replace(
        self, known: Iterable[BrokerData], brokers: Iterable[BrokerData]
    ) -> list[str]:
        """Note that a route named the brokers `known` and now names `brokers`.

        Returns the addresses that no route names any more.
        """
        mentions = self._mentions
        for broker in brokers:
            for address in broker.addresses.values():
                self._advertised[address] = broker.broker_name
                mentions[address] = mentions.get(address, 0) + 1
        gone: list[str] = []
        for broker in known:
            for address in broker.addresses.values():
                mentions[address] -= 1
                if not mentions[address]:
                    del mentions[address], self._advertised[address]
                    self.versions.pop(address, None)
                    self.too_old_ms.pop(address, None)
                    gone.append(address)
        return gone

    def explain(self, error: RmqError) -> None:
        """Add a hint to an error about an advertised address that cannot be reached.

        Other errors are not changed, and neither are those about an address that has
        answered, or that accepts connections.
        """
        if not isinstance(error, ConnectError):
            return
        broker_name = self._advertised.get(error.address)
        if broker_name is None or error.address in self.versions:
            return
        advertises = f"{broker_name} advertises {error.address}"
        mapped = self.shown(error.address)
        if mapped != error.address:
            error.hint = Hint(f"{advertises}; check ", Argument("address_map"))
            return
        error.hint = Hint(
            f"{advertises}; if that address cannot be reached from here (for example"
            " because the broker runs in a container), set the broker's brokerIP1 and"
            " listenPort to a reachable address, or say where it is with ",
            Argument("address_map"),
        )

    def shown(self, address: str) -> str:
        """Return an address for a message, with where the address map leads it."""
        return str(map_address(address, self._address_map))
