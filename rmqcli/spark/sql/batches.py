"""The rows of a query as Arrow batches, read one Spark partition after the other.

Spark has no public method for this: `toArrow` collects the whole result, and
`toLocalIterator` pickles row by row. The two methods of the JVM that this module calls
are the ones behind them.

Source: Dataset.toArrowBatchRdd, PythonRDD.toLocalIteratorAndServe, ArrowUtils.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.serializers import NoOpSerializer
from pyspark.sql.types import ArrayType, DecimalType, MapType, NullType, StructType
from pyspark.util import _local_iterator_from_socket

from rmqcli.decode.schema import plain_type

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

#: Rows of a batch in the JVM. A column of a batch has at most 2 GiB, and a broker takes
#: messages of 4 MiB unless it is configured otherwise.
_ROWS_MAX: Final = 500
#: Batches of a partition are put together up to this size, because a batch costs the
#: caller as much as hundreds of rows.
_TOGETHER_ROWS: Final = 8_192
_TOGETHER_BYTES: Final = 8 << 20

_ARROW: Final = "spark.sql.execution.arrow"
#: What the reader relies on.
_SETTINGS: Final = {
    f"{_ARROW}.maxRecordsPerBatch": str(_ROWS_MAX),
    f"{_ARROW}.useLargeVarTypes": "false",
    # A struct may have two fields of the same name.
    "spark.sql.execution.pandas.structHandlingMode": "row",
}


def read_batches(frame: DataFrame) -> Iterator[pa.RecordBatch]:
    """Run a query and yield its rows in their order.

    Spark computes the next partition while the caller takes the batches of one. Each
    type must be known to `arrow_type`. Raises the errors of Spark. Texts may be invalid
    UTF-8.
    """
    spark = frame.sparkSession
    for name, value in _SETTINGS.items():
        spark.conf.set(name, value)
    jvm: Any = spark._jvm  # noqa: SLF001  # has no public name
    state = spark._jsparkSession.sessionState()  # noqa: SLF001  # as above
    rows = jvm.org.apache.spark.sql.execution.SQLExecutionRDD(  # with the settings
        frame._jdf.toArrowBatchRdd(),  # noqa: SLF001  # as above
        state.conf(),
    )
    served = jvm.org.apache.spark.api.python.PythonRDD.toLocalIteratorAndServe(
        rows, True
    )
    schema = pa.schema(
        [(each.name, arrow_type(each.dataType)) for each in frame.schema]
    )
    batches: Iterator[pa.RecordBatch] = _local_iterator_from_socket(
        served, _Partition(schema)
    )
    return batches


def arrow_type(kind: DataType) -> pa.DataType:
    """The type in which Spark ships values of a type."""
    match kind:
        case ArrayType():
            return pa.list_(arrow_type(kind.elementType))
        case MapType():
            return pa.map_(arrow_type(kind.keyType), arrow_type(kind.valueType))
        case StructType():
            return pa.struct([(each.name, arrow_type(each.dataType)) for each in kind])
        case DecimalType():
            return pa.decimal128(kind.precision, kind.scale)
        case NullType():
            return pa.null()
    return plain_type(kind.typeName())


class _Partition:
    """Reads the batches of one partition, as a serializer of PySpark does."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def load_stream(self, stream: Any) -> Iterator[pa.RecordBatch]:  # noqa: ANN401  # a file of PySpark
        waiting: list[pa.RecordBatch] = []
        rows = size = 0
        for data in NoOpSerializer().load_stream(stream):
            batch = pa.ipc.read_record_batch(pa.py_buffer(data), self._schema)
            columns = list(map(_with_offsets, batch.columns))
            waiting.append(pa.RecordBatch.from_arrays(columns, schema=self._schema))
            rows += batch.num_rows
            size += len(data)
            if rows >= _TOGETHER_ROWS or size >= _TOGETHER_BYTES:
                yield from _together(waiting)
                waiting, rows, size = [], 0, 0
        yield from _together(waiting)


def _with_offsets(array: pa.Array) -> pa.Array:
    """The array, in which inner arrays without elements have their buffers.

    Java's Arrow, up to that of PySpark 4.0, leaves out the offsets of an inner array
    without elements, and pyarrow crashes when it reads them.
    """
    kind = array.type
    if not len(array):
        return pa.nulls(0, kind)
    if not pa.types.is_nested(kind):
        return array
    if pa.types.is_struct(kind):
        inner = [array.field(number) for number in range(kind.num_fields)]
        own = 1
    else:
        inner, own = [array.values], 2
    return pa.Array.from_buffers(
        kind,
        len(array),
        array.buffers()[:own],
        children=list(map(_with_offsets, inner)),
    )


def _together(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One batch with the rows of several, or several if a column were too large."""
    if len(batches) < 2:
        return iter(batches)
    return iter(pa.Table.from_batches(batches).combine_chunks().to_batches())
