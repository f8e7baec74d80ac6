"""Parse the options of the data source, check them, and fill in the defaults.

Spark passes every option as text and ignores case in names. An option that is unknown,
has an invalid value or contradicts another option raises a UsageError that names it.
Positions have the grammar of the command line (`rmqcli.position`).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rmqcli.errors import RmqError, TextError, UsageError
from rmqcli.model import MessageQueue
from rmqcli.position import AtOffset, Earliest, Latest, Position, parse_position
from rmqcli.spark.decode.settings import INFER_MAX, Names, read_settings
from rmqcli.spark.options import (
    CONNECTION_NAMES,
    Connection,
    Given,
    boolean,
    connection,
    named,
)
from rmqcli.spark.rows import wanted_tags

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rmqcli.config import ClientConfig
    from rmqcli.spark.decode.settings import Decoding

#: The names of all options, as they are documented.
NAMES: Final = (
    "namesrv",
    "subscribe",
    "startingOffsets",
    "startingTimestamp",
    "endingOffsets",
    "endingTimestamp",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "includeProperties",
    "includeBody",
    "decode",
    "decodeSchema",
    "decodeInfer",
    "tag",
    "commitGroup",
    *CONNECTION_NAMES,
)
_BATCH_ONLY: Final = ("endingOffsets", "endingTimestamp")
_STREAM_ONLY: Final = ("maxOffsetsPerTrigger", "commitGroup")

#: The broker's rule for topic names; only %RETRY% and %DLQ% topics exceed 127.
_TOPIC = re.compile(r"[%|a-zA-Z0-9_-]{1,255}")  # TopicValidator
_GROUP = re.compile(r"[%|a-zA-Z0-9_-]{1,255}")  # Validators#checkGroup
_POSITIONS: Final = (
    "write earliest, latest, a position such as -100, -15m, 12345 or group:NAME, or"
    ' JSON per queue: {"TOPIC": {"BROKER": {"0": 23, "1": "latest"}}}'
)
_QUEUE_ID_MAX: Final = 65_535
DECODE_NAMES: Final = Names(
    "option decode", "option decodeSchema", "option decodeInfer"
)


@dataclass(frozen=True, slots=True)
class Positions:
    """The position in each queue.

    `own` has the positions of the queues that the JSON of the option names; `others` is
    the position of all other queues, None when the default applies to them. `option` is
    the name of the option, for errors.
    """

    option: str
    others: Position | None
    own: Mapping[MessageQueue, Position]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options of one DataFrame. Can be pickled.

    `given` has the names of the options that the user set. See `Connection` for secrets
    in the pickle.
    """

    given: frozenset[str]
    connection: Connection
    topics: tuple[str, ...]
    start: Positions
    end: Positions
    fail_on_data_loss: bool
    #: whether a record that cannot be decoded fails the query
    fail_on_undecodable: bool
    partitions_min: int | None
    records_per_partition_max: int | None
    offsets_per_trigger_max: int | None
    with_properties: bool
    with_body: bool
    #: None when bodies stay bytes
    decoding: Decoding | None
    tags: Mapping[str, frozenset[str]]
    commit_group: str | None

    @property
    def config(self) -> ClientConfig:
        """The configuration; its credentials may be missing (`Connection`)."""
        return self.connection.config

    def client_config(self) -> ClientConfig:
        """The configuration with the credentials that this process can read.

        Raises ConfigError when a file or environment variable with credentials exists
        but cannot be used.
        """
        return self.connection.client_config()

    def check_batch(self) -> None:
        """Raise UsageError when an option is set that only streams have."""
        self._refuse(_STREAM_ONLY, "readStream, not for read")

    def check_stream(self) -> None:
        """Raise UsageError when an option is set that only batches have."""
        self._refuse(_BATCH_ONLY, "read, not for readStream")

    def _refuse(self, names: tuple[str, ...], where: str) -> None:
        for name in names:
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
    topics = given.read("subscribe", _topics, None)
    if topics is None:
        raise UsageError(
            "option subscribe is missing",
            hint='name the topics: .option("subscribe", "orders,payments")',
        )
    tag = given.text("tag")
    fail_on_data_loss = given.read("failOnDataLoss", boolean, default=True)
    return SourceOptions(
        given=given.names,
        connection=connection(given, environ=environ),
        topics=topics,
        start=_positions(given, "startingOffsets", "startingTimestamp", topics),
        end=_positions(given, "endingOffsets", "endingTimestamp", topics),
        fail_on_data_loss=fail_on_data_loss,
        fail_on_undecodable=fail_on_data_loss,
        partitions_min=given.read("minPartitions", _count, None),
        records_per_partition_max=given.read("maxRecordsPerPartition", _count, None),
        offsets_per_trigger_max=given.read("maxOffsetsPerTrigger", _count, None),
        with_properties=given.read("includeProperties", boolean, default=True),
        with_body=given.read("includeBody", boolean, default=True),
        decoding=_decoding(given),
        tags={topic: _tags(topic, tag) for topic in topics},
        commit_group=given.read("commitGroup", _group, None),
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


def _topics(text: str) -> tuple[str, ...]:
    topics = tuple(each.strip() for each in text.split(","))
    for topic in topics:
        if not _TOPIC.fullmatch(topic):
            raise ValueError(f"{topic!r} is not a valid topic name")
        if topics.count(topic) > 1:
            raise ValueError(f"topic {topic} is named twice")
    return topics


def _group(text: str) -> str:
    if not _GROUP.fullmatch(text):
        raise ValueError(f"{text!r} is not a valid group name")
    return text


def _tags(topic: str, expression: str | None) -> frozenset[str]:
    try:
        return wanted_tags(topic, expression)
    except RmqError as error:
        raise UsageError(f"option tag: {error.message}", hint=error.hint) from None


def _positions(
    given: Given, offsets: str, timestamp: str, topics: tuple[str, ...]
) -> Positions:
    moment = given.text(timestamp)
    text = given.text(offsets)
    if moment is not None:
        if text is not None:
            raise UsageError(
                f"options {offsets} and {timestamp} cannot be used together",
                hint="leave one of them out",
            )
        moment = moment.strip()
        position = named(timestamp, lambda: parse_position(f"@{moment}", tz=None))
        return Positions(timestamp, position, {})
    if text is None:
        return Positions(offsets, None, {})
    text = text.strip()
    if text.startswith("{"):
        own = named(offsets, lambda: dict(_queue_positions(text, topics)))
        return Positions(offsets, None, own)
    try:
        return Positions(offsets, parse_position(text, tz=None), {})
    except TextError as error:
        raise UsageError(
            f"option {offsets}: {error.message}", hint=_POSITIONS
        ) from None


def _queue_positions(
    text: str, topics: tuple[str, ...]
) -> Iterator[tuple[MessageQueue, Position]]:
    try:
        table = json.loads(text)
    except ValueError as error:
        raise ValueError(f"not JSON: {error}; {_POSITIONS}") from None
    for topic, brokers in table.items():
        if topic not in topics:
            raise ValueError(f"topic {topic} is not in subscribe")
        for broker_name, queues in _table(brokers, topic).items():
            for digits, value in _table(queues, f"{topic} {broker_name}").items():
                is_id = digits.isascii() and digits.isdigit() and len(digits) <= 5
                if not is_id or int(digits) > _QUEUE_ID_MAX:
                    raise ValueError(f"{digits!r} is not a queue id")
                queue = MessageQueue(topic, broker_name, int(digits))
                yield queue, _own_position(queue, value)


def _table(value: object, of: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{value!r} of {of} is not a JSON object; {_POSITIONS}")  # noqa: TRY004  # the text is wrong, not a type of ours
    return value


def _own_position(queue: MessageQueue, value: object) -> Position:
    if isinstance(value, str):
        return parse_position(value, tz=None)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return AtOffset(value)
    hint = ""
    if value in (-1, -2):
        word = "latest" if value == -1 else "earliest"
        hint = f'; for Kafka\'s {value} write "{word}"'
    raise ValueError(f"{value!r} of {queue} is not an offset{hint}")


def default_start(*, is_stream: bool) -> Position:
    """The position where a queue starts that no option names, as in Kafka's source."""
    return Latest() if is_stream else Earliest()
