"""The record of the queues that groups had on each broker in earlier runs of `rmq lag`.

When a broker dies, it leaves the routes, and no name server reports that it existed, so
that the remaining numbers seem complete. So each run leaves a record for the next one:
a JSON file for each set of name servers in `$XDG_STATE_HOME/rmqcli/lag` (else
`~/.local/state/...`), readable by its owner only:

    {"version": 1, "namesrv": ["HOST:PORT"],
     "brokers": {"broker-a": {"address": "HOST:PORT", "seen_ms": 1767322800000}},
     "groups": {"GROUP": {"broker-a": {"TOPIC": [QUEUES, LAG or null]}}}}

A broker is forgotten a week after it was last seen. When no broker of the record still
has the same name and address, the record is of another cluster and is not used. A
record that cannot be read or written is ignored: nothing here raises.
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from typing import TYPE_CHECKING, Any, Final

from rmqcli.dataclass import dataclass
from rmqcli.engine.queue_lag import QueueReading
from rmqcli.errors import NoBrokerError, PartialError, RmqError
from rmqcli.files import read_regular, replace_file, state_folder
from rmqcli.hint import Hint, LibraryCall, Setting
from rmqcli.log import get_logger
from rmqcli.model import PERM_READ, MessageQueue
from rmqcli.units import counted, format_duration, read_count

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from rmqcli.api.client import Client
    from rmqcli.errors import NameKind
    from rmqcli.model import BrokerData, TopicRoute

logger = get_logger(__name__)

_VERSION: Final = 1
_KEPT_MS: Final = 7 * 24 * 3600 * 1000
_BYTES_MAX: Final = 1 << 20
_FILES_MAX: Final = 32
#: A larger number of queues of one topic on one broker is not believed.
_QUEUES_MAX: Final = 65_536
#: `--watch` writes the record no more often than this.
_SAVE_INTERVAL_MS: Final = 10_000

#: Topic -> number of queues, and of messages that waited in them (None: unknown).
Topics = dict[str, tuple[int, int | None]]


@dataclass(slots=True)
class SeenBroker:
    """A broker, and when a name server last listed it."""

    address: str | None
    seen_ms: int

    def last_seen(self, now_ms: int) -> str:
        """Say how long ago it was listed."""
        return f"last seen {format_duration(max(0, now_ms - self.seen_ms))} ago"

    def as_error(self, name: str) -> NoBrokerError:
        """Return what stands for the answer of this broker when it has left."""
        return NoBrokerError(
            "it is no longer in the route",
            address=self.address or name,
            hint=Hint(
                "if it was removed for good: ",
                LibraryCall("Admin.lag"),
                " ",
                LibraryCall("LagMemory.forget"),
            ),
        )


def memory_directory(environ: Mapping[str, str]) -> str | None:
    """Return the folder of the records; None when there is no home directory."""
    return state_folder(environ, "lag")


def open_memory(client: Client) -> LagMemory | None:
    """Read the record of a client's cluster; None for a user without a home."""
    directory = memory_directory(os.environ)
    if directory is None:
        return None
    now_ms = client.clock.epoch_ms()
    return LagMemory(directory, client.config.namesrv, now_ms=now_ms)


def departed_brokers(
    client: Client, brokers: Mapping[str, BrokerData]
) -> dict[str, SeenBroker]:
    """Return the brokers that an earlier run knew and no name server lists now.

    `brokers` are those that name servers list, by name; they are recorded.
    """
    memory = open_memory(client)
    if memory is None:
        return {}
    now_ms = client.clock.epoch_ms()
    addresses = {name: each.master_address for name, each in brokers.items()}
    departed = memory.departed(addresses)
    memory.remember_brokers(addresses, now_ms=now_ms)
    memory.save(now_ms=now_ms)
    return departed


def departed_errors(client: Client) -> dict[str, NoBrokerError]:
    """Return what stands for the answers of all brokers that have left.

    Empty where there are several clusters: the record does not say which of them a
    broker has left.
    """
    info = client.cluster_info()
    if len(info.clusters) > 1:
        return {}
    departed = departed_brokers(client, info.brokers)
    return {name: seen.as_error(name) for name, seen in sorted(departed.items())}


def departed_brokers_of(client: Client, topics: Iterable[str]) -> dict[str, SeenBroker]:
    """Return those of them on which groups had queues of one of these topics.

    Name servers are asked for their brokers only if a broker is not in a topic's route.
    """
    memory = open_memory(client)
    if memory is None:
        return {}
    routed = {
        topic: {broker.broker_name for broker in client.route(topic).brokers}
        for topic in topics
    }
    absent = [
        name
        for name in memory.brokers
        for there in memory.topics_on([name]).values()
        if any(name not in routed[topic] for topic in there & routed.keys())
    ]
    return _departed_of(client, absent)


def warnings_of_departed(
    client: Client, topics: Iterable[str], *, done: str
) -> list[Hint]:
    """Name the brokers that have left and may have had messages of these topics.

    No group has read a topic on them, so nothing more is known. `done` says what is not
    done with the messages, such as "read". Empty where there are several clusters, as
    for `departed_errors`.
    """
    memory = open_memory(client)
    if memory is None:
        return []
    topics = list(topics)
    names = memory.brokers.keys() - departed_brokers_of(client, topics).keys()
    for topic in topics:
        names -= {broker.broker_name for broker in client.route(topic).brokers}
    if not names or len(client.cluster_info().clusters) > 1:
        return []
    now_ms = client.clock.epoch_ms()
    return [
        Hint(
            f"{name} is no longer in the route ({seen.last_seen(now_ms)}): what it may"
            f" have of the topic is not {done}; ",
            seen.as_error(name).hint,
        )
        for name, seen in sorted(_departed_of(client, names).items())
    ]


def departed_queues_of(client: Client, topic: str) -> dict[MessageQueue, RmqError]:
    """Return the queues of a topic that groups had on brokers that have left."""
    departed = departed_brokers_of(client, [topic])
    memory = open_memory(client) if departed else None
    if memory is None:
        return {}
    return {
        MessageQueue(topic, name, queue_id): seen.as_error(name)
        for name, seen in departed.items()
        for queue_id in range(memory.queue_nums(topic, name))
    }


def _departed_of(client: Client, names: Collection[str]) -> dict[str, SeenBroker]:
    if not names:
        return {}
    departed = departed_brokers(client, client.cluster_info(refresh=True).brokers)
    return {name: seen for name, seen in departed.items() if name in names}


def check_departed(client: Client, kind: NameKind, name: str) -> None:
    """Raise PartialError if a name that no broker has was on one that has left.

    It is that of such a broker itself, or of a group, or of a topic that groups read.
    """
    memory = open_memory(client)
    if memory is None:
        return
    departed = departed_brokers(client, client.cluster_info(refresh=True).brokers)
    for broker, seen in departed.items():
        topics = memory.topics_on([broker])
        if kind == "broker" and broker == name:
            text = f"broker {name} is no longer in the route"
        elif (kind == "group" and name in topics) or (
            kind == "topic" and any(name in each for each in topics.values())
        ):
            text = (
                f"{kind} {name} is on no broker that is left, and was on {broker},"
                " which is no longer in the route"
            )
        else:
            continue
        since = seen.last_seen(client.clock.epoch_ms())
        raise PartialError(f"{text} ({since})", hint=seen.as_error(broker).hint)


def departed_errors_of(client: Client, topics: Iterable[str]) -> dict[str, RmqError]:
    """Return what stands for the answers of brokers that had queues of these topics."""
    departed = departed_brokers_of(client, topics)
    return {name: seen.as_error(name) for name, seen in departed.items()}


def slave_errors(brokers: Iterable[BrokerData]) -> dict[str, RmqError]:
    """Return what stands for the masters of brokers of which only slaves are left.

    A slave answers as if nothing were missing, with what it had copied.
    """
    return {
        each.broker_name: PartialError(
            f"{each.broker_name} currently has no master, and its slave may be behind",
            hint=Hint("list brokers with: ", LibraryCall("Admin.brokers")),
        )
        for each in brokers
        if each.addresses and each.master_address is None
    }


def untold_errors_of(client: Client, topics: Collection[str]) -> dict[str, RmqError]:
    """Return what stands for what is not known of these topics although all answer.

    Of brokers that have left, as `departed_errors_of`, and of those without a master.
    """
    errors = departed_errors_of(client, topics)
    for topic in topics:
        errors |= slave_errors(client.route(topic).brokers)
    return errors


def untold_errors(client: Client) -> dict[str, RmqError]:
    """Return what stands for what a list of topics or groups does not have.

    What only brokers know that have left, or of which only slaves are left.
    """
    brokers = client.cluster_info().brokers
    departed = departed_brokers(client, brokers).items()
    errors = slave_errors(brokers.values())
    return errors | {name: seen.as_error(name) for name, seen in departed}


def departed_errors_of_group(
    client: Client, group: str, brokers: Collection[str]
) -> dict[str, RmqError]:
    """Return what stands for the answers of brokers on which a group had queues.

    `brokers` are there: they are left out, unless only slaves of them are left. Name
    servers are asked for their brokers only if there is another one.
    """
    memory = open_memory(client)
    departed: dict[str, SeenBroker] = {}
    if memory is not None:
        had = [name for name in memory.brokers if group in memory.groups_on([name])]
        departed = _departed_of(client, [name for name in had if name not in brokers])
    errors = slave_errors(client.cluster_info().brokers.values())
    return errors | {name: seen.as_error(name) for name, seen in departed.items()}


def how_to_make_readable(topic: str, broker_names: Iterable[str]) -> Hint:
    """Return a hint that names the brokers: others may not have the topic."""
    return Hint(
        "make it readable: ",
        LibraryCall("Admin.update_topic", topic),
        " ",
        Setting("perm", 6),
        Setting("brokers", sorted(set(broker_names))),
    )


def how_to_read(client: Client, topic: str, broker_names: Iterable[str]) -> Hint | str:
    """Return a hint for brokers that do not let a topic be read, which are asked why.

    The permissions of a topic change nothing where the broker's own forbid reading.
    """
    from rmqcli.api.calls.config import get_broker_config

    names, masters = sorted(set(broker_names)), client.masters()
    questions = {n: (masters[n], get_broker_config()) for n in names if n in masters}
    closed = []
    for name, settings in client.ask_many(questions).items():
        if not isinstance(settings, RmqError):
            perm = read_count(settings.get("brokerPermission"))
            if perm is not None and not perm & PERM_READ:
                closed.append(name)
    if closed:
        return f"set brokerPermission=6 on {', '.join(closed)}, which lets nobody read"
    return how_to_make_readable(topic, names)


def hidden_brokers(route: TopicRoute) -> list[str]:
    """Return the names of the brokers on which a topic is not readable, sorted."""
    return sorted({each.broker_name for each in route.queues if not each.is_readable})


def hidden_error(topic: str, broker_names: Sequence[str]) -> PartialError:
    """Return what stands for the messages of a topic on brokers that hide them."""
    return PartialError(
        f"topic {topic} is not readable on {', '.join(broker_names)}: its messages"
        " there would be left out",
        hint=how_to_make_readable(topic, broker_names),
    )


def unread_error(route: TopicRoute) -> PartialError | None:
    """Return what stands for the messages that no consumer may read; None if none."""
    hidden = hidden_brokers(route)
    if hidden:
        return hidden_error(route.topic, hidden)
    unread = route.unread_queues()
    if not unread:
        return None
    name = unread[0].broker_name
    last = max(each.queue_id for each in unread if each.broker_name == name)
    return PartialError(
        f"topic {route.topic} has more write queues than read queues: the messages in"
        f" {', '.join(map(str, unread))} would be left out",
        hint=Hint(
            "make them readable: ",
            LibraryCall("Admin.update_topic", route.topic),
            " ",
            Setting("queue_nums", last + 1),
            Setting("brokers", [name]),
        ),
    )


def check_readable(route: TopicRoute, kind: type[RmqError]) -> None:
    """Raise an error of this kind for a topic with queues that no consumer may read."""
    error = unread_error(route)
    if error is not None:
        raise kind(error.message, hint=error.hint)


def check_complete(client: Client, topic: str, hint: str = "") -> None:
    """Raise PartialError if messages of a topic are where they cannot be read.

    That is if groups had queues of it on a broker that has left, or of which only
    slaves are left, or if it is not
    readable on a broker, as topics of dead letters are up to 4.9.1, or if a broker has
    more write queues than read queues. `hint` says how to
    get what is left, without one the setting `allow_gaps`.
    """
    check_readable(client.route(topic), PartialError)
    hint = hint or Hint("for what is left, use ", Setting("allow_gaps", True))
    for name in departed_brokers_of(client, [topic]):
        raise PartialError(
            f"groups had queues of {topic} on {name}, which is no longer in the route",
            hint=hint,
        )
    for error in slave_errors(client.route(topic).brokers).values():
        error.hint = hint
        raise error


class LagMemory:
    """The record of one cluster, read on construction. Not thread-safe."""

    def __init__(
        self, directory: str | os.PathLike[str], namesrv: Sequence[str], *, now_ms: int
    ) -> None:
        # Not a Path: that module takes as long to load as the notes take to read.
        self._directory = os.fspath(directory)
        self._namesrv = sorted(set(namesrv))
        self.brokers: dict[str, SeenBroker] = {}
        #: group -> broker name -> topics
        self._groups: dict[str, dict[str, Topics]] = {}
        self._saved_ms: int | None = None
        self._load(now_ms)

    @property
    def path(self) -> str:
        """The path of the file that holds the record."""
        text = ";".join(self._namesrv)
        kept = "".join(c if c.isascii() and c.isalnum() else "_" for c in text[:60])
        name = f"{kept}-{zlib.crc32(text.encode()):08x}.json"
        return os.path.join(self._directory, name)

    def forget(self) -> None:
        """Forget everything about the cluster, and remove the file."""
        self.brokers, self._groups = {}, {}
        try:
            remove_file(self.path)
        except OSError as error:
            logger.debug("%s cannot be removed: %s", self.path, error)

    def departed(self, brokers: Mapping[str, str | None]) -> dict[str, SeenBroker]:
        """Return the recorded brokers that are not among `brokers` (name to address).

        Empty when the record is of another cluster: its content is forgotten then.
        """
        if not any(
            address is not None and self.brokers[name].address == address
            for name, address in brokers.items()
            if name in self.brokers
        ):
            self.brokers, self._groups = {}, {}
        return {n: seen for n, seen in self.brokers.items() if n not in brokers}

    def groups_on(self, brokers: Collection[str]) -> list[str]:
        """Return the groups that had queues on any of these brokers, sorted."""
        return sorted(self.topics_on(brokers))

    def topics_on(self, brokers: Collection[str]) -> dict[str, set[str]]:
        """Return group -> the topics of which it had queues on any of these brokers."""
        found: dict[str, set[str]] = {}
        for group, on in self._groups.items():
            topics = {topic for name in brokers for topic in on.get(name, {})}
            if topics:
                found[group] = topics
        return found

    def queue_nums(self, topic: str, broker_name: str) -> int:
        """Return how many queues of a topic groups had on a broker."""
        on = [each.get(broker_name, {}) for each in self._groups.values()]
        return max((topics[topic][0] for topics in on if topic in topics), default=0)

    def queue_nums_of(
        self, groups: Iterable[str], broker_name: str
    ) -> dict[tuple[str, str], int]:
        """Return (group, topic) -> the queues that a group had on a broker."""
        return {
            (group, topic): queues
            for group in groups
            for topic, (queues, _) in self._groups.get(group, {})
            .get(broker_name, {})
            .items()
        }

    def lost_queues(
        self, group: str, departed: Mapping[str, SeenBroker], *, now_ms: int
    ) -> list[QueueReading]:
        """Return the queues that `group` had on departed brokers, without numbers."""
        lost = []
        for name, seen in departed.items():
            topics = self._groups.get(group, {}).get(name, {})
            failure = _left(name, seen, topics, now_ms=now_ms)
            lost += [
                QueueReading(
                    topic=topic, broker_name=name, queue_id=queue_id, failure=failure
                )
                for topic, (queues, _) in topics.items()
                for queue_id in range(queues)
            ]
        return lost

    def remember_brokers(
        self, brokers: Mapping[str, str | None], *, now_ms: int
    ) -> None:
        """Record the brokers that name servers list now."""
        for name, address in brokers.items():
            self.brokers[name] = SeenBroker(address, now_ms)

    def remember(
        self,
        group: str,
        broker_name: str,
        queues: Iterable[QueueReading],
        *,
        topics: Collection[str] = (),
        removed: Mapping[str, int] | None = None,
    ) -> None:
        """Record the queues of a group on a broker that reported all of them.

        When `topics` are given, what is recorded of other topics is kept. `removed` has
        how many queues a topic had before some with unread messages were removed.
        """
        found: dict[str, list[int]] = {}
        unknown: set[str] = set()
        for item in queues:
            if item.broker_name != broker_name or item.topic is None:
                continue
            counted = found.setdefault(item.topic, [0, 0])
            counted[0] = max(counted[0], (item.queue_id or 0) + 1)
            lag = item.known_lag()
            if lag is None:
                unknown.add(item.topic)
            else:
                counted[1] += lag
        on = self._groups.pop(group, {})
        before = on.get(broker_name, {})
        kept = {t: n for t, n in before.items() if topics and t not in topics}
        on[broker_name] = kept | {
            topic: (
                max(queues, (removed or {}).get(topic, 0)),
                None if topic in unknown else lag,
            )
            for topic, (queues, lag) in found.items()
            if queues <= _QUEUES_MAX
        }
        self._groups[group] = on  # at the end: the groups seen last are kept longest

    def keep_groups(self, groups: Collection[str], brokers: Collection[str]) -> None:
        """Forget all other groups than `groups` on these brokers."""
        for group in list(self._groups):
            if group not in groups:
                self.forget_group(group, brokers)

    def forget_group(self, group: str, brokers: Collection[str]) -> None:
        """Forget what a group had on these brokers."""
        on = self._groups.get(group, {})
        for name in brokers:
            on.pop(name, None)
        if not on:
            self._groups.pop(group, None)

    def save(self, *, now_ms: int) -> None:
        """Write the record to its file, unless that was done less than 10 s ago."""
        if self._saved_ms is not None and now_ms - self._saved_ms < _SAVE_INTERVAL_MS:
            return
        self._saved_ms = now_ms
        try:
            make_folder(self._directory)
            self._make_room()
            replace_file(self.path, self._encoded(), mode=0o600, is_synced=False)
        except OSError as error:
            logger.debug("%s cannot be written: %s", self.path, error)

    def _encoded(self) -> bytes:
        groups = dict(self._groups)
        while True:
            data = json.dumps(
                {
                    "version": _VERSION,
                    "namesrv": self._namesrv,
                    "brokers": {
                        name: {"address": seen.address, "seen_ms": seen.seen_ms}
                        for name, seen in self.brokers.items()
                    },
                    "groups": groups,
                },
                separators=(",", ":"),
            ).encode()
            if len(data) <= _BYTES_MAX or not groups:
                return data
            for group in list(groups)[: len(groups) // 2 + 1]:
                del groups[group]

    def _make_room(self) -> None:
        """Remove the oldest files if there are too many."""
        with os.scandir(self._directory) as entries:
            others = [
                (entry.stat(follow_symlinks=False).st_mtime, entry.path)
                for entry in entries
                if entry.name.endswith(".json") and entry.path != self.path
            ]
        others.sort()
        for _, path in others[: max(0, len(others) - _FILES_MAX + 1)]:
            remove_file(path)

    def _load(self, now_ms: int) -> None:
        try:
            value = json.loads(read_regular(self.path, _BYTES_MAX, is_own=True))
            if value["version"] != _VERSION or value["namesrv"] != self._namesrv:
                return
            brokers = {
                str(name): SeenBroker(_text(each["address"]), count_of(each["seen_ms"]))
                for name, each in value["brokers"].items()
            }
            groups = {
                str(group): {
                    str(name): {str(t): _pair(n) for t, n in topics.items()}
                    for name, topics in on.items()
                }
                for group, on in value["groups"].items()
            }
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            logger.debug("%s cannot be used: %r", self.path, error)
            return
        except RecursionError:
            return
        self.brokers = {
            n: seen for n, seen in brokers.items() if now_ms - seen.seen_ms <= _KEPT_MS
        }
        self._groups = {
            group: {n: topics for n, topics in on.items() if n in self.brokers}
            for group, on in groups.items()
        }


def make_folder(path: str) -> None:
    """Create a folder for its owner only; its parents have the usual permissions."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)


def remove_file(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _text(value: Any) -> str | None:  # noqa: ANN401  # JSON
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{value!r} is not a string")
    return value


def count_of(value: Any) -> int:  # noqa: ANN401  # JSON
    """Return a count of a file. Raises ValueError for anything else."""
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise ValueError(f"{value!r} is not a count")
    return value


def _pair(value: Any) -> tuple[int, int | None]:  # noqa: ANN401  # JSON
    queues, lag = value
    if count_of(queues) > _QUEUES_MAX:
        raise ValueError(counted(queues, "queue"))
    return queues, None if lag is None else count_of(lag)


def _left(name: str, seen: SeenBroker, topics: Topics, *, now_ms: int) -> str:
    """Say what was known of the broker and of all queues that the group had there.

    The broker may have been seen after its queues were read: other commands note it.
    """
    text = f"{name} is no longer in the route; {seen.last_seen(now_ms)}"
    lags = [lag for _, lag in topics.values() if lag is not None]
    if len(lags) < len(topics):
        return text
    unread = counted(sum(lags), "unread message")
    return f"{text}; when last read, the group's queues there had {unread}"
