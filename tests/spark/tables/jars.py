"""The jars of the table formats, from Maven, and the Spark settings that add them.

Each jar is built for one minor version of PySpark. Only tested combinations are listed.
"""

from __future__ import annotations

import pyspark

from tests.kit.artefacts import jars

COORDINATES = {
    ("delta", "4.0"): (
        "io.delta:delta-spark_2.13:4.0.0",
        "io.delta:delta-storage:4.0.0",
    ),
    ("iceberg", "4.0"): ("org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0",),
}


def pyspark_minor():
    """Return the minor version of the installed PySpark, such as `4.0`."""
    return ".".join(pyspark.__version__.split(".")[:2])


def jars_of(kind, minor):
    """Return the Spark setting that adds a format's jars for a version of PySpark."""
    found = jars(f"{kind}-for-pyspark-{minor}", COORDINATES[kind, minor])
    return f"spark.jars={','.join(map(str, found))}"
