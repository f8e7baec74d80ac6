"""Every broker of a cluster, with what it says about itself; and one question to many
brokers at once (`ask_each`, `ask_many`).

Source: BrokerController.prepareRuntimeInfo and ClusterListSubCommand in
apache/rocketmq.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from rmqcli.api.calls.config import get_broker_runtime_info
from rmqcli.api.routes import reading_address
from rmqcli.api.runner import run_tasks
from rmqcli.errors import RmqError
from rmqcli.model import MASTER_ID
from rmqcli.tasks import Request

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rmqcli.api.call import Call
    from rmqcli.api.client import Client
    from rmqcli.model import BrokerData


K = TypeVar("K")
T = TypeVar("T")


def reader_addresses(brokers: Iterable[BrokerData]) -> dict[str, str]:
    """Broker name to an address that can be asked about settings, sorted by name."""
    found = {broker.broker_name: reading_address(broker) for broker in brokers}
    return {name: each[1] for name, each in sorted(found.items()) if each is not None}


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
    outcomes = run_tasks(
        client,
        [Request(address, call, timeout_ms) for address, call in questions.values()],
    )
    return dict(zip(questions, outcomes, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRow:
    """One broker process. What it did not say is None; `error` says why.

    `in_tps` and `out_tps`: messages a second stored and read, over the last 10 s.
    Ratios are parts of 1. `boot_timestamp_ms` is the broker's own clock's.
    """

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    version: str | None = None
    in_tps: float | None = None
    out_tps: float | None = None
    commit_log_disk_ratio: float | None = None
    consume_queue_disk_ratio: float | None = None
    boot_timestamp_ms: int | None = None
    error: RmqError | None = None

    @property
    def disk_ratio(self) -> float | None:
        """Of the disks of log and queues, mostly the same one, the fuller; None: not
        said."""
        ratios = (self.commit_log_disk_ratio, self.consume_queue_disk_ratio)
        return max((each for each in ratios if each is not None), default=None)

    @property
    def role(self) -> str:
        """MASTER or SLAVE, as in BrokerRole."""
        return "MASTER" if self.broker_id == MASTER_ID else "SLAVE"


def list_brokers(client: Client) -> list[BrokerRow]:
    """All brokers that the name server knows, by cluster, name and id."""
    info = client.cluster_info()
    addresses = {
        f"{name} {broker_id}": address
        for name, broker in info.brokers.items()
        for broker_id, address in broker.addresses.items()
    }
    answers = ask_each(client, addresses, get_broker_runtime_info())
    rows = [
        _row((broker.cluster, name, broker_id, address), answers[f"{name} {broker_id}"])
        for name, broker in info.brokers.items()
        for broker_id, address in broker.addresses.items()
    ]
    return sorted(rows, key=lambda row: (row.cluster, row.broker_name, row.broker_id))


def _row(
    place: tuple[str, str, int, str], answer: Mapping[str, str] | RmqError
) -> BrokerRow:
    cluster, broker_name, broker_id, address = place
    if isinstance(answer, RmqError):
        return BrokerRow(
            cluster=cluster,
            broker_name=broker_name,
            broker_id=broker_id,
            address=address,
            error=answer,
        )
    boot = _number(answer.get("bootTimestamp"))
    return BrokerRow(
        cluster=cluster,
        broker_name=broker_name,
        broker_id=broker_id,
        address=address,
        version=_version(answer.get("brokerVersionDesc")),
        in_tps=_first_number(answer.get("putTps")),
        # "Transferred" counts messages that were sent out; "found" counts pulls.
        out_tps=_first_number(
            answer.get("getTransferredTps", answer.get("getTransferedTps"))  # 4.x
        ),
        commit_log_disk_ratio=_ratio(answer.get("commitLogDiskRatio")),
        consume_queue_disk_ratio=_ratio(answer.get("consumeQueueDiskRatio")),
        boot_timestamp_ms=None if not boot else int(boot),
    )


def _version(text: str | None) -> str | None:
    """`V4_9_7` is 4.9.7, `V5_0_0_SNAPSHOT` is 5.0.0-SNAPSHOT."""
    if not text:
        return None
    return text.removeprefix("V").replace("_SNAPSHOT", "-SNAPSHOT").replace("_", ".")


def _first_number(text: str | None) -> float | None:
    """Of `10s 1m 10m` averages, the first."""
    return _number(text.split()[0]) if text and text.split() else None


def _ratio(text: str | None) -> float | None:
    value = _number(text)
    return value if value is not None and value <= 1 else None


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    # A broker writes NaN before it has measured, and -1 for a disk it cannot see.
    return value if 0 <= value < float("inf") else None
