"""Run one export from a generated source, for tests that kill or interrupt a process.

    python -m tests.spark.export.run_export DIR '{"queues": {"0": [0, 1000]}, ...}'

Prints the run's summary as JSON, and its progress on stderr.
"""

from __future__ import annotations

import json
import os
import sys

from rmqcli.cli.export.report import summarise
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.errors import RmqError
from rmqcli.spark.export.export import Export, ExportOptions
from rmqcli.spark.export.plan import ExportRequest
from rmqcli.spark.export.storage import storage_of
from tests.spark.export.sources import MadeCluster, MadeSource


class StderrReport:
    def info(self, text):
        print("info:", text, file=sys.stderr, flush=True)

    def planned(self, topic, queues):
        print("planned:", topic, file=sys.stderr, flush=True)

    def progress(self, progress):
        print("progress:", progress, file=sys.stderr, flush=True)


def main() -> int:
    path, settings = sys.argv[1], json.loads(sys.argv[2])
    source = MadeSource(**settings.get("source", {}))
    export = Export(
        request=ExportRequest(
            **{
                "topic": "orders",
                "from_position": "earliest",
                "to_position": "latest",
                "rows_per_file": 4000,
                **settings.get("request", {}),
            },
        ),
        options=ExportOptions(path=path, **settings.get("options", {})),
        cluster=MadeCluster(
            {int(q): tuple(span) for q, span in settings["queues"].items()}, source
        ),
        report=StderrReport(),
        clock=SYSTEM_CLOCK,
        disk=storage_of(path, os.environ),
    )
    try:
        record = export.run()
    except KeyboardInterrupt:
        return 130
    except RmqError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return error.exit_code
    print(json.dumps(summarise(record, root=path)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
