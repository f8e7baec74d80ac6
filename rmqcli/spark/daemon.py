"""What Spark starts on this machine to fork its Python workers from.

PySpark's own daemon, but from the installed package: Spark puts a zip of PySpark first
on the path, which Python compiles anew at every start (0.6 s). And what every worker
needs is imported once, before the fork. Only for local masters.
"""

from __future__ import annotations

import importlib
import sys


def main() -> None:
    """Run PySpark's daemon until Spark closes its input."""
    sys.path[:] = [path for path in sys.path if not path.endswith(".zip")]
    for name in (
        "pyarrow.parquet",
        "pyarrow.compute",
        "rmqcli.wire.message.columns",
        "rmqcli.spark.export.part",
        "rmqcli.api.client",
        "rmqcli.admin.read.range",
        "pyspark.worker",
    ):
        importlib.import_module(name)
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
