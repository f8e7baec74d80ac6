"""Run one streaming query into Parquet, as a process that may be killed.

    python -m tests.spark.source.run_stream NAMESRV FOLDER [--report]

Prints `started` when the query runs, and whenever it is started again after a failure.
It never ends by itself. With --report it reads the available messages, ends, and prints
every row of the sink as JSON.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile

from pyspark.errors import StreamingQueryException

from tests.kit.spark import patiently, spark_session

ROWS_PER_BATCH = 50


def main() -> None:
    namesrv, folder = sys.argv[1:3]
    with (
        tempfile.TemporaryDirectory() as temp,
        spark_session(temp) as spark,
    ):
        stream = (
            spark.readStream.format("rocketmq")
            .option("namesrv", namesrv)
            .option("subscribe", "orders")
            .option("startingOffsets", "earliest")
            .option("minPartitions", "3")
        )
        if hasattr(_reader_class(), "getDefaultReadLimit"):
            stream = stream.option("maxOffsetsPerTrigger", str(ROWS_PER_BATCH))
        writer = (
            stream.load()
            .select("queue_id", "queue_offset", "body")
            .writeStream.format("parquet")
            .option("path", f"{folder}/rows")
            .option("checkpointLocation", f"{folder}/checkpoint")
        )
        if "--report" not in sys.argv:
            while True:
                query = writer.start()
                print("started", flush=True)
                with contextlib.suppress(StreamingQueryException):
                    query.awaitTermination()
        writer = writer.trigger(availableNow=True)
        patiently(lambda: writer.start().awaitTermination())
        rows = spark.read.parquet(f"{folder}/rows").collect()
        print(json.dumps([[r.queue_id, r.queue_offset, r.body.decode()] for r in rows]))


def _reader_class():
    from pyspark.sql.datasource import DataSourceStreamReader

    return DataSourceStreamReader


if __name__ == "__main__":
    main()
