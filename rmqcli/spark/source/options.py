"""Parse the options of the data source, check them, and fill in the defaults.

Spark passes every option as text and ignores case in names. An option that is unknown,
has an invalid value or contradicts another option raises a UsageError that names it.
Positions have the grammar of the command line (`rmqcli.position`).
"""

from __future__ import annotations

import json
import re
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final

from rmqcli.dataclass import dataclass
from rmqcli.decode.settings import INFER_MAX, Names, read_settings
from rmqcli.errors import RmqError, TextError, UsageError
from rmqcli.model import MessageQueue
from rmqcli.names import STORED_NAME
from rmqcli.position import Ago, AtTime, Earliest, Latest, Position, parse_position
from rmqcli.spark.options import (
    CONNECTION_NAMES,
    ClusterConnection,
    Given,
    boolean,
    connection,
    positive_ms,
)
from rmqcli.spark.rows import wanted_tags
from rmqcli.spark.source.subscription import Subscription
from rmqcli.units import parse_duration_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rmqcli.api.positions import ResolvedPosition
    from rmqcli.config import ClientConfig
    from rmqcli.decode.settings import Decoding

#: The names of all options, as they are documented.
NAMES: Final = (
    "namesrv",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "includeProperties",
    "includeBody",
    "decode",
    "decodeSchema",
    "decodeInfer",
    "tag",
    "commitGroup",
    "retryFor",
    "retryInterval",
    *CONNECTION_NAMES,
)
_BATCH_ONLY: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_STREAM_ONLY: Final = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "commitGroup",
)

#: A broker is asked again for this long, which is long enough for it to restart.
RETRY_FOR_MS: Final = 30_000
RETRY_EVERY_MS: Final = 500
TRIGGER_DELAY_MAX_MS: Final = 15 * 60 * 1000  # of Kafka's source

_POSITIONS: Final = (
    "write earliest, latest, a position such as -100, -15m, 12345 or group:NAME, or"
    ' JSON per topic or queue: {"TOPIC": {"BROKER": {"0": 23, "1": "latest"}}}'
)
_TIMES: Final = (
    'write JSON per topic or queue: {"TOPIC": {"BROKER": {"0": 1767322800000}}}'
)
_ASSIGNED: Final = 'write JSON: {"TOPIC": {"BROKER": [0, 1]}}'
_QUEUE_ID_MAX: Final = 65_535
DECODE_NAMES: Final = Names(
    "option decode", "option decodeSchema", "option decodeInfer"
)


@dataclass(frozen=True, slots=True)
class Positions:
    """The position in each queue.

    `own` has the positions of the queues and topics that the JSON of the option names;
    `others` is the position of all other queues, None when the default applies to them.
    `option` is the name of the option, for errors. With `must_match`, a queue without a
    message at or after a time is an error.
    """

    option: str
    others: Position | None
    own: Mapping[MessageQueue | str, Position] = field(default_factory=dict)
    must_match: bool = False

    def of(self, queue: MessageQueue) -> Position | None:
        """The position in a queue; None when the default applies to it."""
        return self.own.get(queue) or self.own.get(queue.topic) or self.others

    def unmatched(
        self, queue: MessageQueue, found: ResolvedPosition
    ) -> UsageError | None:
        """The error for a queue without a message at or after the time, or None."""
        position = self.of(queue)
        is_time = isinstance(position, AtTime | Ago)
        if not (self.must_match and is_time and found.offset == found.max_offset):
            return None
        return UsageError(
            f"{self.option}: {queue} has no message at or after {position}",
            hint="to start at its end:"
            ' .option("startingOffsetsByTimestampStrategy", "latest")',
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options of one DataFrame. Can be pickled.

    `given` has the names of the options that the user set. See `ClusterConnection` for
    secrets in the pickle.
    """

    given: frozenset[str] = frozenset()
    connection: ClusterConnection
    subscription: Subscription
    start: Positions
    end: Positions
    fail_on_data_loss: bool
    #: whether a record that cannot be decoded fails the query
    fail_on_undecodable: bool
    partitions_min: int | None = None
    records_per_partition_max: int | None
    offsets_per_trigger_max: int | None = None
    with_properties: bool = True
    with_body: bool = True
    #: None when bodies stay bytes
    decoding: Decoding | None = None
    #: the tags of the messages to read; empty for all messages
    tags: frozenset[str] = frozenset()
    commit_group: str | None = None
    offsets_per_trigger_min: int | None = None
    trigger_delay_max_ms: int = TRIGGER_DELAY_MAX_MS
    retry_for_ms: int = RETRY_FOR_MS
    retry_every_ms: int = RETRY_EVERY_MS

    def client_config(self) -> ClientConfig:
        """The configuration with the credentials that this process can read.

        Raises ConfigError when a file or environment variable with credentials exists
        but cannot be used.
        """
        return self.connection.client_config()

    def check(self, *, is_stream: bool) -> None:
        """Raise UsageError when an option is set that only the other kind has."""
        where = "read, not for readStream" if is_stream else "readStream, not for read"
        for name in _BATCH_ONLY if is_stream else _STREAM_ONLY:
            if name in self.given:
                raise UsageError(f"option {name} is for {where}", hint="leave it out")


def parse_options(
    options: Mapping[str, str], *, environ: Mapping[str, str]
) -> SourceOptions:
    """Parse the options. Raises UsageError or ConfigError that names the option."""
    given = Given(
        options,
        documented=NAMES,
        call="load",
        instead='.option("subscribe", ...).load()',
    )
    subscription = _subscription(given)
    fail_on_data_loss = given.read("failOnDataLoss", boolean, default=True)
    return SourceOptions(
        given=given.names,
        connection=connection(given, environ=environ),
        subscription=subscription,
        start=_positions(given, "starting", subscription),
        end=_positions(given, "ending", subscription),
        fail_on_data_loss=fail_on_data_loss,
        fail_on_undecodable=fail_on_data_loss,
        partitions_min=given.read("minPartitions", _count, None),
        records_per_partition_max=given.read("maxRecordsPerPartition", _count, None),
        offsets_per_trigger_max=given.read("maxOffsetsPerTrigger", _count, None),
        with_properties=given.read("includeProperties", boolean, default=True),
        with_body=given.read("includeBody", boolean, default=True),
        decoding=_decoding(given),
        tags=given.read("tag", _tags, frozenset()),
        commit_group=given.read("commitGroup", _group, None),
        offsets_per_trigger_min=given.read("minOffsetsPerTrigger", _count, None),
        trigger_delay_max_ms=_trigger_delay(given),
        retry_for_ms=given.read("retryFor", parse_duration_ms, RETRY_FOR_MS),
        retry_every_ms=given.read("retryInterval", positive_ms, RETRY_EVERY_MS),
    )


def _decoding(given: Given) -> Decoding | None:
    """The settings for decoding bodies, None to keep bytes. Reads the schema's file."""
    decode = given.text("decode")
    schema_file = given.text("decodeSchema")
    infer = given.read("decodeInfer", _infer, None)
    if decode is None:
        for name in ("decodeSchema", "decodeInfer"):
            if name in given.names:
                raise UsageError(
                    f"option {name} needs decode", hint='add .option("decode", "json")'
                )
        return None
    return read_settings(
        decode.strip(), schema_file=schema_file, infer=infer, names=DECODE_NAMES
    )


def _infer(text: str) -> int:
    count = _count(text)
    if count > INFER_MAX:
        raise ValueError(f"{count} exceeds the limit of {INFER_MAX}")
    return count


def _count(text: str) -> int:
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit() and int(digits[:19]) > 0):
        raise ValueError(f"{text!r} is not a positive integer")
    return int(digits)


def _group(text: str) -> str:
    if not STORED_NAME.fullmatch(text):
        raise ValueError(f"{text!r} is not a valid group name")
    return text


def _tags(expression: str) -> frozenset[str]:
    try:
        return wanted_tags("", expression)
    except RmqError as error:
        raise UsageError(f"option tag: {error.message}", hint=error.hint) from None


def _trigger_delay(given: Given) -> int:
    if "maxTriggerDelay" in given.names and "minOffsetsPerTrigger" not in given.names:
        raise UsageError("option maxTriggerDelay needs minOffsetsPerTrigger")
    delay_ms: int = given.read("maxTriggerDelay", positive_ms, TRIGGER_DELAY_MAX_MS)
    return delay_ms


# --- what is read


def _subscription(given: Given) -> Subscription:
    ways = ("subscribe", "subscribePattern", "assign")
    used = [name for name in ways if name in given.names]
    if not used:
        raise UsageError(
            "option subscribe is missing",
            hint='name the topics: .option("subscribe", "orders,payments")',
        )
    _check_single(used)
    return Subscription(
        topics=given.read("subscribe", _topics, ()),
        pattern=given.read("subscribePattern", _pattern, None),
        assigned=given.read("assign", _assigned, frozenset()),
    )


def _check_single(used: Sequence[str]) -> None:
    if len(used) > 1:
        raise UsageError(
            f"options {used[0]} and {used[1]} cannot be used together",
            hint="leave one of them out",
        )


def _topics(text: str) -> tuple[str, ...]:
    topics = tuple(each.strip() for each in text.split(","))
    for topic in topics:
        if not STORED_NAME.fullmatch(topic):
            raise ValueError(f"{topic!r} is not a valid topic name")
        if topics.count(topic) > 1:
            raise ValueError(f"topic {topic} is named twice")
    return topics


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from None
    return text


def _assigned(text: str) -> frozenset[MessageQueue]:
    queues: set[MessageQueue] = set()
    for topic, brokers in _json_table(text, _ASSIGNED).items():
        if not STORED_NAME.fullmatch(topic):
            raise ValueError(f"{topic!r} is not a valid topic name")
        for broker_name, ids in _table(brokers, topic, _ASSIGNED).items():
            if not isinstance(ids, list):
                raise ValueError(  # noqa: TRY004  # the text is wrong, not a type of ours
                    f"{ids!r} of {topic} {broker_name} is not a list; {_ASSIGNED}"
                )
            for queue_id in ids:
                queue = MessageQueue(topic, broker_name, _queue_id(queue_id))
                if queue in queues:
                    raise ValueError(f"queue {queue} is named twice")
                queues.add(queue)
    if not queues:
        raise ValueError(f"names no queue; {_ASSIGNED}")
    return frozenset(queues)


# --- positions


def _positions(given: Given, side: str, subscription: Subscription) -> Positions:
    offsets, timestamp = f"{side}Offsets", f"{side}Timestamp"
    by_timestamp = f"{offsets}ByTimestamp"
    used = [n for n in (offsets, timestamp, by_timestamp) if n in given.names]
    _check_single(used)
    option = f"option {used[0] if used else offsets}"
    strategy = f"{by_timestamp}Strategy"
    must_match = given.read(strategy, _must_match, default=False)
    if strategy in given.names and not {timestamp, by_timestamp} & {*used}:
        raise UsageError(f"option {strategy} needs {timestamp} or {by_timestamp}")
    others: Position | None = None
    own: dict[MessageQueue | str, Position] = {}
    if timestamp in used:
        others = given.read(timestamp, lambda text: _time(text.strip()), None)
    elif by_timestamp in used:
        own = given.read(
            by_timestamp, lambda text: _own(text, subscription, _time, _TIMES), own
        )
    elif (given.text(offsets) or "").lstrip().startswith("{"):
        own = given.read(
            offsets, lambda text: _own(text, subscription, _position, _POSITIONS), own
        )
    else:
        others = given.read(offsets, _with_hint, None)
    return Positions(option, others, own, must_match)


def _must_match(text: str) -> bool:
    word = text.strip().lower()
    if word not in ("error", "latest"):
        raise ValueError(f"{text!r} is neither error nor latest")
    return word == "error"


def _with_hint(text: str) -> Position:
    try:
        return parse_position(text.strip())
    except TextError as error:
        error.hint = _POSITIONS
        raise


def _own(
    text: str,
    subscription: Subscription,
    read: Callable[[object], Position],
    hint: str,
) -> dict[MessageQueue | str, Position]:
    """The positions of JSON, by topic or by queue."""
    own: dict[MessageQueue | str, Position] = {}
    for topic, brokers in _json_table(text, hint).items():
        if not subscription.has_topic(topic):
            raise ValueError(f"topic {topic} is not among {subscription}")
        if not isinstance(brokers, dict):
            own[topic] = _named_position(topic, brokers, read)
            continue
        for broker_name, queues in brokers.items():
            for digits, value in _table(queues, f"{topic} {broker_name}", hint).items():
                queue = MessageQueue(topic, broker_name, _queue_id(digits))
                if not subscription.has_queue(queue):
                    raise ValueError(f"queue {queue} is not among {subscription}")
                if queue in own:
                    raise ValueError(f"queue {queue} is named twice")
                own[queue] = _named_position(queue, value, read)
    return own


def _named_position(
    of: MessageQueue | str, value: object, read: Callable[[object], Position]
) -> Position:
    try:
        return read(value)
    except ValueError as error:
        raise ValueError(f"{value!r} of {of} {error}") from None


def _position(value: object) -> Position:
    if isinstance(value, str):
        return parse_position(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return parse_position(str(value))
    hint = ""
    if value in (-1, -2):
        word = "latest" if value == -1 else "earliest"
        hint = f'; for Kafka\'s {value} write "{word}"'
    raise ValueError(f"is not an offset{hint}")


def _time(value: object) -> Position:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("is not a time in ms or RFC 3339")  # noqa: TRY004  # the text is wrong, not a type of ours
    return parse_position(f"@{value}")


def _json_table(text: str, hint: str) -> dict[str, Any]:
    """The object of a JSON text, in which no name occurs twice."""
    try:
        value = json.loads(text, object_pairs_hook=_without_duplicates)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}; {hint}") from None
    except RecursionError:
        raise ValueError(f"JSON that is nested too deeply; {hint}") from None
    return _table(value, "the option", hint)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for name, value in pairs:
        if name in table:
            raise ValueError(f"{name!r} is named twice")
        table[name] = value
    return table


def _table(value: object, of: str, hint: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{value!r} of {of} is not a JSON object; {hint}")  # noqa: TRY004  # the text is wrong, not a type of ours
    return value


def _queue_id(value: object) -> int:
    digits = str(value)
    is_id = digits.isascii() and digits.isdigit() and len(digits) <= 5
    if not is_id or int(digits) > _QUEUE_ID_MAX:
        raise ValueError(f"{value!r} is not a queue id")
    return int(digits)


def default_start(*, is_stream: bool) -> Position:
    """The position where a queue starts that no option names, as in Kafka's source."""
    return Latest() if is_stream else Earliest()
