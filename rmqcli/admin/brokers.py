"""Lists brokers with their runtime information, and sends requests to many brokers.

`list_brokers` has a row for each broker process; `ask_each` and `ask_many` send calls
to many brokers at once.

Source: BrokerController.prepareRuntimeInfo and ClusterListSubCommand in
apache/rocketmq.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from rmqcli.api.broker_errors import not_found
from rmqcli.api.calls.config import get_broker_config, get_broker_runtime_info
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
    """Return an address to query for each broker, sorted by broker name.

    It is the master's where there is one. Brokers without an address are left out.
    """
    found = {broker.broker_name: reading_address(broker) for broker in brokers}
    return {name: each[1] for name, each in sorted(found.items()) if each is not None}


def ask_each(
    client: Client, addresses: Mapping[str, str], call: Call[T]
) -> dict[str, T | RmqError]:
    """Send `call` to all addresses at once; return answers or errors by broker name."""
    return ask_many(client, {name: (at, call) for name, at in addresses.items()})


def ask_many(
    client: Client,
    questions: Mapping[K, tuple[str, Call[T]]],
    *,
    timeout_ms: int | None = None,
) -> dict[K, T | RmqError]:
    """Send each call to its address, all at once; return answers or errors by key."""
    outcomes = run_tasks(
        client,
        [Request(address, call, timeout_ms) for address, call in questions.values()],
    )
    return dict(zip(questions, outcomes, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRow:
    """One broker process. Values that it did not report are None.

    `error` is set when the broker did not answer. `in_tps` and `out_tps` are messages
    stored and read per second, over the last 10 s. Ratios are between 0 and 1.
    `boot_timestamp_ms` is by the broker's own clock.
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
        """The usage of the fuller disk, of commit log or consume queues.

        Both are usually on the same disk. None when the broker reported neither.
        """
        ratios = (self.commit_log_disk_ratio, self.consume_queue_disk_ratio)
        return max((each for each in ratios if each is not None), default=None)

    @property
    def role(self) -> str:
        """MASTER or SLAVE, as in BrokerRole."""
        return "MASTER" if self.broker_id == MASTER_ID else "SLAVE"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerDetail:
    """One broker process, with all that it reports about itself, as texts.

    `runtime` and `settings` are None when it did not report them; `settings_error` says
    why it did not show its settings, which needs the rights of an administrator.
    """

    row: BrokerRow
    runtime: dict[str, str] | None = field(default=None, hash=False)
    settings: dict[str, str] | None = field(default=None, hash=False)
    settings_error: RmqError | None = None


def show_broker(client: Client, broker_name: str) -> list[BrokerDetail]:
    """Return the processes with this broker name, the master first.

    Raises NotFoundError when the name servers know none. A process that does not answer
    has an error in its row.
    """
    broker = client.cluster_info().brokers.get(broker_name)
    if broker is None:
        raise not_found("broker", broker_name)
    addresses = {str(number): at for number, at in sorted(broker.addresses.items())}
    infos = ask_each(client, addresses, get_broker_runtime_info())
    settings = ask_each(client, addresses, get_broker_config())
    found = []
    for number, address in sorted(broker.addresses.items()):
        info, shown = infos[str(number)], settings[str(number)]
        place = (broker.cluster, broker_name, number, address)
        found.append(
            BrokerDetail(
                row=_row(place, info),
                runtime=None if isinstance(info, RmqError) else dict(info),
                settings=None if isinstance(shown, RmqError) else dict(shown),
                settings_error=shown if isinstance(shown, RmqError) else None,
            )
        )
    return found


def list_brokers(client: Client) -> list[BrokerRow]:
    """List all brokers that the name server knows, sorted by cluster, name and id."""
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
    """Return the first of three averages, over 10 s, 1 min and 10 min."""
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
