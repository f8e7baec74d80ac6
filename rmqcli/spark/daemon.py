"""The process that Spark starts on this machine to fork its Python workers from.

This is PySpark's own daemon, but the modules that every worker needs are imported once,
before the fork. Used by local masters only.
"""

from __future__ import annotations

import importlib
from typing import Final

#: The modules that every worker needs.
MODULES: Final = (
    "pyarrow.parquet",
    "pyarrow.compute",
    "rmqcli.wire.message.columns",
    "rmqcli.spark.export.part",
    "rmqcli.api.client",
    "rmqcli.admin.read.range",
    "pyspark.worker",
)


def main() -> None:
    """Run PySpark's daemon until Spark closes its input."""
    for name in MODULES:
        importlib.import_module(name)
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
