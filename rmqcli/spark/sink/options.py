"""Check the options of the sink and the columns of the DataFrame before it is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegralType,
    MapType,
    NullType,
    StringType,
)

from rmqcli.dataclass import dataclass
from rmqcli.errors import UsageError
from rmqcli.names import check_topic
from rmqcli.spark.options import CONNECTION_NAMES, ClusterConnection, Given, connection

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql.types import DataType, StructType

#: The names of all options, as they are documented.
NAMES: Final = ("namesrv", "topic", *CONNECTION_NAMES)
#: Options of every streaming query, which Spark also passes to the sink.
_SPARKS_OWN: Final = ("checkpointlocation", "queryname")


def _of(*kinds: type[DataType]) -> Callable[[DataType], bool]:
    return lambda kind: isinstance(kind, kinds)


_is_text = _of(StringType)
_is_number = _of(IntegralType)


def _is_text_or_texts(kind: DataType) -> bool:
    return _is_text(kind.elementType if isinstance(kind, ArrayType) else kind)


def _is_map_of_text(kind: DataType) -> bool:
    is_map = isinstance(kind, MapType)
    return is_map and _is_text(kind.keyType) and _is_text(kind.valueType)


#: Column -> the types that it may have, in words and as a predicate.
_COLUMNS: Final[Mapping[str, tuple[str, Callable[[DataType], bool]]]] = {
    "body": ("binary or string", _of(StringType, BinaryType)),
    "tags": ("string", _is_text),
    "keys": ("string or array<string>", _is_text_or_texts),
    "properties": ("map<string,string>", _is_map_of_text),
    "flag": ("int", _is_number),
    "delay": ("int, a delay level", _is_number),
    "topic": ("string", _is_text),
    "queue_id": ("int", _is_number),
    "sharding_key": ("string", _is_text),
}

_REQUIRED: Final = frozenset({"body", "topic"})


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of one write. Can be pickled; contains no secret.

    When `topic` is None, column topic of each row names the topic.
    """

    connection: ClusterConnection
    topic: str | None


def parse_sink_options(
    options: Mapping[str, str], *, environ: Mapping[str, str]
) -> SinkOptions:
    """Parse the options. Raises UsageError or ConfigError that names the option."""
    own = {n: text for n, text in options.items() if n.lower() not in _SPARKS_OWN}
    given = Given(
        own,
        documented=NAMES,
        call="save or start",
        instead='.option("topic", ...).save()',
    )
    return SinkOptions(
        connection(given, environ=environ), given.read("topic", _topic, None)
    )


def _topic(text: str) -> str:
    topic = text.strip()
    check_topic(topic)
    return topic


def check_columns(schema: StructType, options: SinkOptions) -> None:
    """Raise UsageError for a column that is missing, unknown or of a wrong type.

    As everywhere in Spark, the names may be in any case.
    """
    allowed = ", ".join(_COLUMNS)
    names: dict[str, str] = {}
    for field in schema.fields:
        name = field.name.lower()
        if name in names:
            raise UsageError(
                f"columns {names[name]} and {field.name} are the same column of a"
                " message",
                hint="leave one of them out",
            )
        names[name] = field.name
        if name not in _COLUMNS:
            raise UsageError(
                f"column {field.name} is not a column of a message",
                hint=f"select only these columns: {allowed}",
            )
        words, fits = _COLUMNS[name]
        # lit(None) is a column of nulls without a type: no row has the value.
        is_absent = isinstance(field.dataType, NullType) and name not in _REQUIRED
        if not is_absent and not fits(field.dataType):
            raise UsageError(
                f"column {field.name} is {field.dataType.simpleString()}; it must be"
                f" {words}",
                hint=f'cast it: df.withColumn("{field.name}", ...)',
            )
    if "body" not in names:
        raise UsageError(
            "the DataFrame has no column body",
            hint='rename the column to send: df.selectExpr("value AS body")',
        )
    if options.topic is None and "topic" not in names:
        raise UsageError(
            "neither option topic nor column topic is given",
            hint='write .option("topic", "orders")',
        )
