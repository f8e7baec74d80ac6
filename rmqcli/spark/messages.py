"""Convert rows, in Arrow batches or lists of values, to messages.

The column `body` is required; `tags`, `keys`, `properties`, `flag`, `delay` and `topic`
are optional. Properties that brokers and clients added to a message are not sent again,
as in `rmq send --jsonl`, so rows that were read from one topic can be written to
another.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from rmqcli.errors import UsageError
from rmqcli.producer.message import RecordMessage, record_properties

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa

#: The columns that become parts of a message.
MESSAGE_COLUMNS = ("body", "tags", "keys", "properties", "flag", "delay", "topic")


def messages_of(batch: pa.RecordBatch, *, topic: str | None) -> Iterator[RecordMessage]:
    """Yield the message of each row. A `topic` that is not None replaces the rows' own.

    Raises UsageError for a row without a body or topic, and for a row whose keys, delay
    or properties no broker accepts.
    """
    names = batch.schema.names
    columns = {
        name: _values(batch.column(names.index(name)))
        for name in MESSAGE_COLUMNS
        if name in names and not (name == "topic" and topic is not None)
    }
    return message_rows(columns, rows=batch.num_rows, topic=topic)


def message_rows(
    columns: Mapping[str, Iterable[Any]], *, rows: int, topic: str | None
) -> Iterator[RecordMessage]:
    """Yield the message of each row of columns of equal length. See `messages_of`.

    A value of `properties` is a list of pairs or a mapping; a value of `keys` is a
    string or a list.
    """
    none = (None,) * rows
    topics = columns.get("topic", none) if topic is None else (topic,) * rows
    for name, body, tags, keys, properties, flag, delay in zip(
        topics,
        columns["body"],
        columns.get("tags", none),
        columns.get("keys", none),
        columns.get("properties", none),
        columns.get("flag", none),
        columns.get("delay", none),
        strict=True,
    ):
        if body is None:
            raise UsageError(
                "a row has no body: it is null",
                hint='leave such rows out: .where("body IS NOT NULL")',
            )
        if name is None:
            raise UsageError(
                "a row has no topic: it is null", hint='give one: .option("topic", ...)'
            )
        if delay is not None and delay < 1:
            raise UsageError(
                f"delay is {delay}; a delay level must be at least 1",
                hint="leave it null where there is no delay",
            )
        if isinstance(properties, dict):
            properties = properties.items()
        yield RecordMessage(
            name,
            body.encode() if isinstance(body, str) else body,
            properties=record_properties(
                properties or (), tags=tags, keys=_joined(keys)
            ),
            flag=flag or 0,
            delay_level=delay,
        )


def _joined(keys: Any) -> str | None:  # noqa: ANN401  # of Arrow or Spark
    if keys is None or isinstance(keys, str):
        return keys
    # A null is a key that the row does not have, as in array(col("a"), col("b")).
    present = [key for key in keys if key is not None]
    for key in present:
        if not key or key.split() != [key]:
            raise UsageError(
                f"key {key!r} of an array is empty or contains white space, which"
                " separates keys"
            )
    return " ".join(present)


def _values(column: pa.Array) -> list[Any]:
    """The values of a column; the values of a map column are lists of pairs."""
    import pyarrow as pa

    # In Arrow a null row may have entries, so the offsets alone do not suffice.
    if not isinstance(column, pa.MapArray) or column.null_count:
        values: list[Any] = column.to_pylist()
        return values
    # This is twice as fast as to_pylist(), which makes a scalar of each entry. A slice
    # of an array still has the entries of the whole array.
    offsets = column.offsets.to_pylist()
    first = offsets[0]
    count = offsets[-1] - first
    names = column.keys.slice(first, count).to_pylist()
    texts = column.items.slice(first, count).to_pylist()
    return [
        list(
            zip(
                names[start - first : end - first],
                texts[start - first : end - first],
                strict=True,
            )
        )
        for start, end in itertools.pairwise(offsets)
    ]
