"""A broker's tables in config files, as a real broker keeps them.

topics.json, subscriptionGroup.json, consumerOffset.json, delayOffset.json,
messageRequestMode.json and consumerOrderInfo.json are read once, and written when their
table has changed: topics, groups and message request modes before the change is
answered, the others every 5 s, and all of them when the broker stops. So a crash loses
up to 5 s of offsets, as with RocketMQ.

Source: `ConfigManager` and its subclasses in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from rmqcli.broker.table_json import (
    delays_json,
    groups_json,
    modes_json,
    offsets_json,
    order_json,
    topics_json,
)
from rmqcli.errors import BodyError, RmqError
from rmqcli.log import get_logger
from rmqcli.store.message_store import StoreError
from rmqcli.wire import fastjson
from rmqcli.wire.bodies.config import SubscriptionGroupConfig, TopicConfig
from rmqcli.wire.bodies.data_version import DataVersion
from rmqcli.wire.bodies.offset import split_keys
from rmqcli.wire.bodies.pop import ConsumerOrderInfo, MessageRequestModeSerializeWrapper
from rmqcli.wire.body import from_json, reader_of, to_int, to_object

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.broker.state.broker import BrokerState
    from rmqcli.clock import Now
    from rmqcli.wire.fastjson import JsonObject

TOPICS: Final = "topics.json"
GROUPS: Final = "subscriptionGroup.json"
OFFSETS: Final = "consumerOffset.json"
DELAYS: Final = "delayOffset.json"
MODES: Final = "messageRequestMode.json"
ORDER: Final = "consumerOrderInfo.json"

INTERVAL_MS: Final = 5_000  # BrokerConfig.flushConsumerOffsetInterval

logger = get_logger(__name__)

T = TypeVar("T")


class ConfigFiles(Protocol):
    """Reads and writes the files, as `store.config_files.ConfigFolder` does."""

    def read(self, name: str) -> object | None:
        """The file's content; None if it does not exist. Raises StoreError."""

    def write(self, name: str, text: str) -> None:
        """Replace the file atomically, and keep its old version. Raises StoreError."""


class Persistence:
    """Keeps one broker's tables in files. Call it in the core's thread."""

    def __init__(self, broker: BrokerState, files: ConfigFiles) -> None:
        self._broker = broker
        self._files = files
        self._written: dict[str, object] = {}
        self._seen: tuple[DataVersion, DataVersion, int] | None = None

    def load(self) -> None:
        """Load the files, before the broker answers anything.

        Entries that cannot be read are skipped with a warning. Raises StoreError or
        BodyError for a file that cannot be read, because the next write would replace
        the file.
        """
        for error in self._load(replaces=False).values():
            raise error
        self._written = {n: table.state(self._broker) for n, table in _TABLES.items()}

    def replace(self) -> dict[str, RmqError]:
        """Replace the broker's tables with those of the files; return errors by file.

        For a broker that never writes. If a file cannot be read, its table stays as it
        was.
        """
        return self._load(replaces=True)

    def _load(self, *, replaces: bool) -> dict[str, RmqError]:
        errors: dict[str, RmqError] = {}
        for name, table in _TABLES.items():
            try:
                data = self._read(name)
                if data is None and replaces and name in (TOPICS, GROUPS):
                    data = {}
                if data is not None:
                    table.load(self._broker, data, replaces)
            except (StoreError, BodyError) as error:
                errors[name] = error
        return errors

    def start(self, now: Now) -> None:
        """Write changed tables every 5 s. A failed write is logged and tried again."""
        self._broker.timers.every(INTERVAL_MS, now, lambda _: self._try_to_save())

    def save_changes(self) -> None:
        """Write topics, groups and modes if they changed. Cheap if not; call it often.

        A failed write is logged, and retried within 5 s or at the next change.
        """
        broker = self._broker
        seen = (
            broker.topics.data_version,
            broker.groups.data_version,
            broker.request_modes.version,
        )
        if seen == self._seen:
            return
        self._seen = seen
        self._try_to_save(TOPICS, GROUPS, MODES)

    def save(self, *names: str) -> None:
        """Write the tables that changed since they were last written or read.

        With `names`, only these tables are written. Raises StoreError; the next call
        then writes what is missing.
        """
        for name in names or _TABLES:
            table = _TABLES[name]
            state = table.state(self._broker)
            if name in self._written and self._written[name] == state:
                continue
            data = table.to_json(self._broker)
            text = fastjson.dumps(data, bare_numbers=True, pretty=True)
            self._files.write(name, text)
            self._written[name] = state

    def _try_to_save(self, *names: str) -> None:
        try:
            self.save(*names)
        except (StoreError, OSError) as error:
            logger.warning("could not write tables: %s; retrying", error)

    def _read(self, name: str) -> JsonObject | None:
        data = self._files.read(name)
        if data is None:
            return None
        if not isinstance(data, dict):
            found = type(data).__name__
            raise StoreError(f"{name} is not a JSON object (found {found})")
        return data


def _load_topics(broker: BrokerState, data: JsonObject, replaces: bool) -> None:
    table = _table(data, "topicConfigTable")
    broker.topics.load(
        _readable(TOPICS, table, TopicConfig, "topicName"),
        version=_version(data, broker.topics.data_version),
        replaces=replaces,
    )


def _load_groups(broker: BrokerState, data: JsonObject, replaces: bool) -> None:
    table = _table(data, "subscriptionGroupTable")
    broker.groups.load(
        _readable(GROUPS, table, SubscriptionGroupConfig, "groupName"),
        _forbidden(data),
        version=_version(data, broker.groups.data_version),
        replaces=replaces,
    )


def _load_offsets(broker: BrokerState, data: JsonObject, _: bool) -> None:
    broker.offsets.load(_offsets(data, "offsetTable"))
    for (topic, group), queues in _offsets(data, "pullOffsetTable").items():
        for queue_id, offset in queues.items():
            broker.offsets.commit_pull(group, topic, queue_id, offset)


def _load_delays(broker: BrokerState, data: JsonObject, _: bool) -> None:
    levels = _numbers(DELAYS, "offsetTable", _table(data, "offsetTable"))
    broker.schedule.load(levels)


def _load_modes(broker: BrokerState, data: JsonObject, _: bool) -> None:
    broker.request_modes.load(from_json(MessageRequestModeSerializeWrapper, data))


def _load_order(broker: BrokerState, data: JsonObject, _: bool) -> None:
    broker.order_infos.load(from_json(ConsumerOrderInfo, data), broker.started)


class _Table(NamedTuple):
    """One table: how to write it, a value that changes with it, and how to read it.

    `load` gets whether the file's entries replace those that the broker has.
    """

    to_json: Callable[[BrokerState], dict[str, object]]
    state: Callable[[BrokerState], object]
    load: Callable[[BrokerState, JsonObject, bool], None]


_TABLES: Final = {
    TOPICS: _Table(topics_json, lambda b: b.topics.data_version, _load_topics),
    GROUPS: _Table(groups_json, lambda b: b.groups.data_version, _load_groups),
    OFFSETS: _Table(offsets_json, lambda b: b.offsets.version, _load_offsets),
    DELAYS: _Table(delays_json, lambda b: dict(b.schedule.offsets), _load_delays),
    MODES: _Table(modes_json, lambda b: b.request_modes.version, _load_modes),
    ORDER: _Table(order_json, lambda b: b.order_infos.version, _load_order),
}


def _table(data: JsonObject, name: str) -> JsonObject:
    value = data.get(name)
    return {} if value is None else to_object(value, name)


def _readable(file: str, table: JsonObject, cls: type[T], key_field: str) -> list[T]:
    """Return the entries of a table that can be read; log a warning for each other.

    `key_field` is the field of an entry that repeats its key; an entry may lack it.
    """
    found: list[T] = []
    for key, value in table.items():
        if value is None:
            continue
        try:
            found.append(from_json(cls, {key_field: key, **to_object(value, key)}))
        except BodyError as error:
            _left_out(file, key, error.message)
    return found


def _offsets(
    data: JsonObject, table_name: str
) -> dict[tuple[str, str], dict[int, int]]:
    """Return offsets by topic and group.

    Keys that are not `topic@group` are skipped, as in Java.
    """
    offsets = {}
    tables = _table(data, table_name)
    for key, topic, group in split_keys(tables):
        table = tables[key]
        if isinstance(table, dict):
            offsets[topic, group] = _numbers(OFFSETS, key, table)
        elif table is not None:
            _left_out(OFFSETS, key, "not a JSON object")
    return offsets


def _numbers(file: str, key: str, table: JsonObject) -> dict[int, int]:
    """Return a table whose keys and values are integers, none of them negative.

    Other entries are skipped with a warning.
    """
    numbers = {}
    for name, value in table.items():
        if value is None:
            continue
        try:
            number, at = to_int(value, "offset"), to_int(name, "queue id")
        except BodyError as error:
            _left_out(file, f"{key}: {name}", error.message)
            continue
        if number < 0 or at < 0:
            why = f"negative offset or queue id: offset {number}, queue {at}"
            _left_out(file, f"{key}: {name}", why)
            continue
        numbers[at] = number
    return numbers


def _left_out(file: str, key: str, why: str) -> None:
    logger.warning("entry skipped file=%s key=%.200s: %s", file, key, why)


def _version(data: JsonObject, default: DataVersion) -> DataVersion:
    given = _table(data, "dataVersion")
    return from_json(DataVersion, {"timestamp": default.timestamp, **given})


def _forbidden(data: JsonObject) -> dict[str, dict[str, int]]:
    table: dict[str, dict[str, int]] = reader_of(dict[str, dict[str, int]])(
        _table(data, "forbiddenTable"), "forbiddenTable"
    )
    return table
