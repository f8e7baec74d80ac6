"""One question to many brokers at once, and what each answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from rmqcli.errors import RmqError
from rmqcli.model import MASTER_ID

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rmqcli.api.call import Call
    from rmqcli.api.client import Client
    from rmqcli.model import BrokerData

K = TypeVar("K")
T = TypeVar("T")


def reader_address(broker: BrokerData) -> str | None:
    """The master's address, else the lowest slave's, None when there is none."""
    if MASTER_ID in broker.addresses:
        return broker.addresses[MASTER_ID]
    return broker.addresses[min(broker.addresses)] if broker.addresses else None


def reader_addresses(brokers: Iterable[BrokerData]) -> dict[str, str]:
    """Broker name to an address that can be asked about settings, sorted by name."""
    found = {broker.broker_name: reader_address(broker) for broker in brokers}
    return {name: address for name, address in sorted(found.items()) if address}


def ask_each(
    client: Client, addresses: Mapping[str, str], call: Call[T]
) -> dict[str, T | RmqError]:
    """`call` to every address, all at once; errors as values, by the same keys."""
    return ask_many(client, {name: (at, call) for name, at in addresses.items()})


def ask_many(
    client: Client,
    questions: Mapping[K, tuple[str, Call[T]]],
    *,
    timeout_ms: int | None = None,
) -> dict[K, T | RmqError]:
    """Every call to its address, all at once; errors as values, by the same keys."""
    outcomes: dict[K, T | RmqError] = {}
    pendings = {}
    for key, (address, call) in questions.items():
        try:
            pendings[key] = client.submit(address, call, timeout_ms=timeout_ms)
        except RmqError as error:  # an address that cannot be one
            outcomes[key] = error
    answers = client.gather(pendings.values())
    outcomes.update(zip(pendings, answers, strict=True))
    return {key: outcomes[key] for key in questions}
