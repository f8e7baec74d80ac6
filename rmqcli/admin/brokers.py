"""Lists brokers with their runtime information, and sends requests to many brokers.

`list_brokers` has a row for each broker process; `ask_each` and `ask_many` send calls
to many brokers at once, `change_each` and `change_many` those that change something.

Source: BrokerController.prepareRuntimeInfo, ClusterListSubCommand,
DefaultHAService.getRuntimeInfo and GetSyncStateSetSubCommand in apache/rocketmq.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from rmqcli.admin.lag.memory import departed_brokers
from rmqcli.api.broker_errors import lost_broker, not_found
from rmqcli.api.calls.config import (
    get_broker_config,
    get_broker_ha_status,
    get_broker_runtime_info,
)
from rmqcli.api.routes import reading_address
from rmqcli.api.runner import run_tasks
from rmqcli.dataclass import dataclass
from rmqcli.errors import (
    ChangeUnknownError,
    ConfigError,
    DeniedError,
    NoBrokerError,
    NotFoundError,
    RmqError,
)
from rmqcli.model import MASTER_ID
from rmqcli.tasks import Request
from rmqcli.wire.ids import host_bytes
from rmqcli.wire.version import V5_0_0

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from rmqcli.api.call import Call
    from rmqcli.api.client import Client
    from rmqcli.model import BrokerData
    from rmqcli.wire.bodies.ha import HARuntimeInfo, ReplicaIdentity, ReplicasInfo


#: What to do where the answer to a change was lost.
_LOOK: Final = "look whether it was done before you do it again"

#: Addresses by broker name; None for a broker of which only slaves are left, and for a
#: broker that has left the route.
Addresses: TypeAlias = "Mapping[str, str | None]"

K = TypeVar("K")
T = TypeVar("T")


def reader_addresses(brokers: Iterable[BrokerData]) -> dict[str, str]:
    """Return an address to query for each broker, sorted by broker name.

    It is the master's where there is one. Brokers without an address are left out.
    """
    found = {broker.broker_name: reading_address(broker) for broker in brokers}
    return {name: each[1] for name, each in sorted(found.items()) if each is not None}


def addresses_of_host(broker: BrokerData, host: str) -> list[str]:
    """Return the addresses of a broker at which the host of an offset id may be.

    `host` is the "ip:port" that the broker writes with each record. IPv6 addresses have
    several spellings; and an address that is a name, with this port, may be any host.
    """
    found = []
    for address in dict.fromkeys(broker.addresses.values()):
        try:
            is_it = host_bytes(address) == host_bytes(host)
        except ConfigError:
            is_it = address.rpartition(":")[2] == host.rpartition(":")[2]
        if is_it:
            found.append(address)
    return found


def ask_each(
    client: Client, addresses: Addresses, call: Call[T]
) -> dict[str, T | RmqError]:
    """Send `call` to all addresses at once; return answers or errors by broker name.

    The error of a broker without an address is that it has no master, or has left.
    """
    asked = {name: (at, call) for name, at in with_address(addresses).items()}
    answers = client.ask_many(asked)
    return {
        name: answers[name] if name in answers else _no_address(client, name)
        for name in addresses
    }


def _no_address(client: Client, name: str) -> RmqError:
    brokers = client.cluster_info().brokers
    if name not in brokers and (seen := departed_brokers(client, brokers).get(name)):
        return seen.as_error(name)
    return no_master(name)


def with_address(
    addresses: Addresses, left_out: Collection[str] = ()
) -> dict[str, str]:
    """Return the brokers that have an address, without those that are left out."""
    return {
        name: at
        for name, at in addresses.items()
        if at is not None and name not in left_out
    }


def no_master(name: str) -> NotFoundError:
    """Return the error of a broker of which only slaves are left."""
    return lost_broker(f"broker {name} currently has no master")


def use_one_of(names: Iterable[str]) -> str:
    """Return the hint for a name that does not exist among few."""
    return f"use one of: {', '.join(sorted(names))}"


def have_left(answers: Iterable[object]) -> bool:
    """Whether these are only the errors of brokers that have left the route."""
    return all(isinstance(each, NoBrokerError) for each in answers)


def denial_of(answers: Iterable[object]) -> DeniedError | None:
    """Return the first of these answers of brokers if all are denials, else None.

    Then nothing is known, and it is not a part that is missing.
    """
    found = list(answers)
    first = next(iter(found), None)
    is_denied = all(isinstance(each, DeniedError) for each in found)
    return first if isinstance(first, DeniedError) and is_denied else None


def split_answers(
    answers: Mapping[K, T | RmqError],
) -> tuple[dict[K, T], dict[K, RmqError]]:
    """Return those of `answers` that are not errors, and the errors."""
    return (
        {key: each for key, each in answers.items() if not isinstance(each, RmqError)},
        {key: each for key, each in answers.items() if isinstance(each, RmqError)},
    )


def change_each(
    client: Client, addresses: Addresses, call: Call[T], *, look: str = _LOOK
) -> dict[str, T | RmqError]:
    """Do as `change_many`, with one call for all addresses; see `ask_each`."""
    answers = ask_each(client, addresses, call)
    return {name: _changed(answer, look) for name, answer in answers.items()}


def change_many(
    client: Client, changes: Mapping[K, tuple[str, Call[T]]], *, look: str = _LOOK
) -> dict[K, T | RmqError]:
    """Send each call to its address, all at once; return answers or errors by key.

    Where an answer is lost, the error is a ChangeUnknownError with the hint `look`,
    which says how to find out whether the change was made.
    """
    answers = client.ask_many(changes)
    return {key: _changed(answer, look) for key, answer in answers.items()}


def _changed(answer: T | RmqError, look: str) -> T | RmqError:
    return lost_answer(answer, look=look) if isinstance(answer, RmqError) else answer


def lost_answer(error: RmqError, *, look: str = _LOOK) -> RmqError:
    """Return the error of a change: a ChangeUnknownError if it may have been made."""
    if not error.may_be_done:
        return error
    unknown = ChangeUnknownError(f"{error.message}; it may have been done", hint=look)
    unknown.__cause__ = error
    return unknown


def not_shown(name: str, what: str, error: RmqError, *, look: str) -> RmqError:
    """Return the error of a broker that confirmed settings, and then did not show them.

    They may be as they were requested, so the result is unknown.
    """
    return ChangeUnknownError(
        f"{name} confirmed the settings of {what}, but did not show them afterwards:"
        f" {error.message}",
        hint=look,
    )


def failed_word(error: RmqError) -> str:
    """Return the result of a change that has an error: `failed` or `unknown`."""
    return "unknown" if isinstance(error, ChangeUnknownError) else "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadPoolQueue:
    """The requests that wait for a thread; the first has waited for `head_wait_ms`."""

    size: int
    capacity: int
    head_wait_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """A process of a broker as its controller knows it.

    `broker_id` stays the same when the process becomes master, which the name server
    then lists as 0. `is_alive` is whether it sends heartbeats to the controller.
    """

    broker_id: int
    address: str
    is_alive: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncState:
    """What the controller has decided about a broker's processes.

    Those `in_sync`, the master among them, have each message that counts as stored; one
    of them becomes master when it fails. Both lists are sorted by id.
    """

    master_epoch: int | None
    sync_state_set_epoch: int | None
    in_sync: tuple[Replica, ...]
    not_in_sync: tuple[Replica, ...]

    @property
    def slaves(self) -> int:
        """How many processes are not the master, with those that are gone."""
        return max(0, len(self.in_sync) + len(self.not_in_sync) - 1)

    @property
    def slaves_in_sync(self) -> int:
        """How many of them are in sync."""
        return self.slaves - len(self.not_in_sync)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRow:
    """One broker process. Values that it did not report are None.

    `error` is set when the broker did not answer. `in_tps` and `out_tps` are messages
    stored and read per second, over the last 10 s. Ratios are between 0 and 1.
    `boot_timestamp_ms` is by the broker's own clock, as are `uptime_ms`, for how long
    it runs, and `earliest_message_ms`, the store time of its oldest message.
    `page_cache_lock_ms` is how long a message is being written to the page cache now.

    A master has `slaves` connected, of which `slaves_in_sync` are in sync; before 5.0 a
    broker does not report them, and `slaves_reason` says why they are not known. The
    name server lists `slaves_registered` of it, which may be connected or not. A slave
    is `behind_bytes` behind its master. If a controller elects the master, its
    `sync_state` is the controller's; `sync_state_reason` says why it is not known.
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
    uptime_ms: int | None = None
    earliest_message_ms: int | None = None
    page_cache_lock_ms: int | None = None
    send_queue: ThreadPoolQueue | None = None
    pull_queue: ThreadPoolQueue | None = None
    dispatch_behind_bytes: int | None = None
    slaves: int | None = None
    slaves_in_sync: int | None = None
    slaves_reason: str | None = None
    slaves_registered: int | None = None
    sync_state: SyncState | None = None
    sync_state_reason: str | None = None
    behind_bytes: int | None = None
    error: RmqError | None = None

    @property
    def disk_ratio(self) -> float | None:
        """The usage of the fuller disk, of commit log or consume queues.

        Both are usually on the same disk. None when the broker reported neither.
        """
        ratios = (self.commit_log_disk_ratio, self.consume_queue_disk_ratio)
        return max((each for each in ratios if each is not None), default=None)

    @property
    def process_name(self) -> str:
        """The broker's name, and for a slave its id, too: `broker-a:1`."""
        return self.broker_name + (f":{self.broker_id}" if self.broker_id else "")

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
    return read_brokers(client, [broker], with_settings=True)


def list_brokers(client: Client) -> list[BrokerRow]:
    """List all brokers that the name server knows, sorted by cluster, name and id."""
    brokers = client.cluster_info().brokers.values()
    found = read_brokers(client, brokers, with_settings=True)
    return [each.row for each in found]


def read_brokers(
    client: Client, brokers: Iterable[BrokerData], *, with_settings: bool
) -> list[BrokerDetail]:
    """Ask all processes of `brokers` about themselves, side by side.

    They are sorted by cluster, name and id. Slaves are asked about after masters have
    answered, which tells the version; and so are controllers, whose addresses are among
    the settings.
    """
    places = sorted(
        (broker.cluster, broker.broker_name, broker_id, address)
        for broker in brokers
        for broker_id, address in broker.addresses.items()
    )
    asked = [(place, get_broker_runtime_info()) for place in places]
    if with_settings:
        asked += [(place, get_broker_config()) for place in places]
    answers = run_tasks(client, [Request(place[3], call) for place, call in asked])
    infos = dict(zip(places, answers, strict=False))
    settings = dict(zip(places, answers[len(places) :], strict=False))
    masters = {
        place: (place[3], get_broker_ha_status())
        for place in places
        if place[2] == MASTER_ID and (client.known_version(place[3]) or 0) >= V5_0_0
    }
    replication = client.ask_many(masters)
    ends = {
        place[:2]: _integer(info, "commitLogMaxOffset")
        for place, info in infos.items()
        if place[2] == MASTER_ID and not isinstance(info, RmqError)
    }
    sync_states = _read_sync_states(
        client,
        {
            place[1]: shown
            for place, shown in settings.items()
            if place[2] == MASTER_ID and not isinstance(infos[place], RmqError)
        },
    )
    found = []
    for place in places:
        info, shown = infos[place], settings.get(place)
        row = _row(place, info)
        if row.error is None and row.broker_id == MASTER_ID:
            row = replace(
                _with_slaves(row, replication.get(place)),
                slaves_registered=sum(each[:2] == place[:2] for each in places) - 1,
            )
            match sync_states.get(row.broker_name):
                case SyncState() as state:
                    row = replace(row, sync_state=state)
                case str(reason):
                    row = replace(row, sync_state_reason=reason)
        elif row.error is None:
            end, at = ends.get(place[:2]), _integer(info, "commitLogMaxOffset")
            behind = None if end is None or at is None else max(0, end - at)
            row = replace(row, behind_bytes=behind)
        found.append(
            BrokerDetail(
                row=row,
                runtime=None if isinstance(info, RmqError) else dict(info),
                settings=None
                if shown is None or isinstance(shown, RmqError)
                else dict(shown),
                settings_error=shown if isinstance(shown, RmqError) else None,
            )
        )
    return found


def _with_slaves(row: BrokerRow, answer: HARuntimeInfo | RmqError | None) -> BrokerRow:
    if answer is None:
        reason = f"RocketMQ {row.version} does not report its slaves"
        return replace(row, slaves_reason=reason)
    if isinstance(answer, RmqError):
        return replace(row, slaves_reason=answer.message)
    return replace(
        row,
        slaves=len(answer.ha_connection_info),
        slaves_in_sync=max(0, answer.in_sync_slave_nums),
    )


def _read_sync_states(
    client: Client, settings: Mapping[str, Mapping[str, str] | RmqError]
) -> dict[str, SyncState | str]:
    """Return what controllers say of brokers, or why they say nothing, by broker name.

    `settings` are those of masters. A broker that has no controller is left out.
    """
    found: dict[str, SyncState | str] = {}
    names: dict[str, list[str]] = {}  # by the addresses of their controllers
    for name, shown in settings.items():
        if isinstance(shown, RmqError):
            found[name] = f"its settings were not shown: {shown.message}"
        elif shown.get("enableControllerMode") == "true":
            names.setdefault(shown.get("controllerAddr", ""), []).append(name)
    if not names:
        return found
    from rmqcli.api.calls.controller import (  # few clusters have controllers
        get_controller_metadata,
        get_sync_state_data,
    )

    controllers = {
        address: (address, get_controller_metadata())
        for group in names
        for address in _addresses(group)
    }
    told = client.ask_many(controllers)
    leaders: dict[str, str] = {}
    for group in names:
        answers = [told[address] for address in _addresses(group)]
        for answer in answers:
            if not isinstance(answer, RmqError) and answer.controller_leader_address:
                leaders[group] = answer.controller_leader_address
        if group not in leaders:
            errors = [each.message for each in answers if isinstance(each, RmqError)]
            why = errors[0] if errors else "no controller leads"
            found.update(dict.fromkeys(names[group], why))
    questions = {
        group: (leader, get_sync_state_data(names[group]))
        for group, leader in leaders.items()
    }
    for group, state in client.ask_many(questions).items():
        for name in names[group]:
            if isinstance(state, RmqError):
                found[name] = state.message
            elif name in state.replicas_info_table:
                found[name] = _sync_state(state.replicas_info_table[name])
            else:
                found[name] = f"the controller {leaders[group]} does not know it"
    return found


def _addresses(group: str) -> list[str]:
    """The addresses in a broker's setting `controllerAddr`."""
    return [each.strip() for each in group.split(";") if each.strip()]


def _sync_state(info: ReplicasInfo) -> SyncState:
    def replicas(identities: list[ReplicaIdentity]) -> tuple[Replica, ...]:
        found = [
            Replica(
                broker_id=each.broker_id,
                address=each.broker_address or "",
                is_alive=each.alive,
            )
            for each in identities
        ]
        return tuple(sorted(found, key=lambda each: each.broker_id))

    return SyncState(
        master_epoch=info.master_epoch,
        sync_state_set_epoch=info.sync_state_set_epoch,
        in_sync=replicas(info.in_sync_replicas),
        not_in_sync=replicas(info.not_in_sync_replicas),
    )


def _row(
    place: tuple[str, str, int, str], answer: Mapping[str, str] | RmqError
) -> BrokerRow:
    cluster, broker_name, broker_id, address = place
    row = BrokerRow(
        cluster=cluster, broker_name=broker_name, broker_id=broker_id, address=address
    )
    if isinstance(answer, RmqError):
        return replace(row, error=answer)
    from rmqcli.api.positions import uptime_ms  # which takes long to load

    return replace(
        row,
        version=_version(answer.get("brokerVersionDesc")),
        in_tps=_first_number(answer.get("putTps")),
        # "Transferred" counts messages that were sent out; "found" counts pulls.
        out_tps=_first_number(
            answer.get("getTransferredTps", answer.get("getTransferedTps"))  # 4.x
        ),
        commit_log_disk_ratio=_ratio(answer.get("commitLogDiskRatio")),
        consume_queue_disk_ratio=_ratio(answer.get("consumeQueueDiskRatio")),
        boot_timestamp_ms=_integer(answer, "bootTimestamp") or None,
        uptime_ms=uptime_ms(answer),
        earliest_message_ms=_integer(answer, "earliestMessageTimeStamp") or None,
        page_cache_lock_ms=_integer(answer, "pageCacheLockTimeMills"),
        send_queue=thread_pool_queue(answer, "send"),
        pull_queue=thread_pool_queue(answer, "pull"),
        dispatch_behind_bytes=_integer(answer, "dispatchBehindBytes"),
    )


def thread_pool_queue(runtime: Mapping[str, str], pool: str) -> ThreadPoolQueue | None:
    """Return how full the queue of a broker's thread pool is; None if not reported."""
    size = _integer(runtime, f"{pool}ThreadPoolQueueSize")
    capacity = _integer(runtime, f"{pool}ThreadPoolQueueCapacity")
    if size is None or not capacity:
        return None
    head = _integer(runtime, f"{pool}ThreadPoolQueueHeadWaitTimeMills")
    return ThreadPoolQueue(size=size, capacity=capacity, head_wait_ms=head)


def _integer(runtime: Mapping[str, str], name: str) -> int | None:
    value = _number(runtime.get(name))
    return None if value is None else int(value)


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
