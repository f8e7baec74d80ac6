"""The jars of table formats that tests run with, from Maven, and the settings of both.

Each format is for one minor version of PySpark; here are those that are tried.
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
    """The version of the PySpark that is installed, such as `4.0`."""
    return ".".join(pyspark.__version__.split(".")[:2])


def jars_of(kind, minor):
    """The setting of Spark that brings a format for a PySpark."""
    found = jars(f"{kind}-for-pyspark-{minor}", COORDINATES[kind, minor])
    return f"spark.jars={','.join(map(str, found))}"
