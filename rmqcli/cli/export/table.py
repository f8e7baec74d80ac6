"""`rmq export --to-table`: writes a range as one commit of a table.

Checks that a table supports the given flags of `rmq export`, and prints the summary.
The export itself is in `rmqcli.spark.tables.export`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqcli.cli.export.report import ExportReport
from rmqcli.cli.ui.output import Column, number_column, write_summary
from rmqcli.errors import ExitCode, UsageError
from rmqcli.units import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.cli.export.command import ExportCommandOptions
    from rmqcli.cli.options import Common
    from rmqcli.spark.export.cluster import BrokerCluster
    from rmqcli.spark.tables.export import TableRun
    from rmqcli.spark.tables.session import TableOptions

FORMATS = ("delta", "iceberg")
#: Keys of the summary that an export to Parquet does not have.
FIELDS = (
    Column("table", "the table, with --to-table", title=None),
    Column("format", "delta or iceberg, with --to-table", title=None),
    Column("version", "its version or snapshot, with --to-table", title=None),
    Column("offsets", "number of offsets that were read, with --to-table", title=None),
)
#: The range of each queue, which all exports have.
QUEUES = (
    Column("broker_name", "broker of the queue", title="BROKER"),
    number_column("queue_id", "ID of the queue", "QUEUE"),
    number_column("from", "first offset of the range"),
    number_column("to", "end of the range, exclusive"),
)
_VERSIONS = {"delta": "version", "iceberg": "snapshot"}
_PARTITIONS = "create the table with the columns and partitions that you need"
#: Options that cannot be used with a table -> what to do instead.
_REFUSED = {
    "rows_per_file": "set the sizes of files in the table's properties",
    "bytes_per_file": "set the sizes of files in the table's properties",
    "compression": "set it in the table's properties",
    "partition_by": _PARTITIONS,
    "resume": "run the same command again: a run that was not committed left no rows",
    "remote": "leave --remote out, or give a --master",
    # Spark runs the same Python on the driver, where no archive is unpacked.
    "archives": "install the packages that the executors need in their Python",
}


def check_target(options: ExportCommandOptions) -> None:
    """Raise UsageError unless there is one target, which fits --format."""
    is_table = options.format in FORMATS
    if options.to_parquet is None and options.to_table is None:
        flags = "--to-table" if is_table else "--to-parquet"
        raise UsageError(
            f"{flags} is missing",
            hint="give --to-parquet DIR, or --to-table TABLE with --format delta or"
            " iceberg",
        )
    if options.to_parquet is not None and options.to_table is not None:
        raise UsageError("--to-parquet and --to-table cannot be used together")
    if options.to_table is not None and not is_table:
        raise UsageError("--to-table needs --format delta or --format iceberg")
    if options.to_parquet is not None and is_table:
        raise UsageError(
            f"--to-parquet writes Parquet files, not {options.format} tables",
            hint="give --to-table TABLE",
        )
    for name, hint in _REFUSED.items():
        if is_table and getattr(options, name):
            flag = "--" + name.replace("_", "-")
            raise UsageError(
                f"{flag} and --to-table cannot be used together", hint=hint
            )


def export_table(
    common: Common,
    options: ExportCommandOptions,
    *,
    cluster: BrokerCluster,
    is_secret: bool,
    check_ready: Callable[[], None],
) -> int:
    """Run the export; return the exit code."""
    from rmqcli.spark.tables.export import TableExport
    from rmqcli.spark.tables.formats import check_target
    from rmqcli.spark.tables.session import open_table

    table = table_options(options, is_secret=is_secret, note=common.messages.info)
    check_target(table.format, table.target, table.given())
    check_ready()
    report = ExportReport(common.messages, options.topic)
    job = TableExport(
        request=options.request(),
        options=options.run_options(),
        cluster=cluster,
        report=report,
        open_session=lambda: open_table(table),
        decode_names=options.decode_names(),
    )
    try:
        run = job.run()
    except KeyboardInterrupt:
        report.close()
        common.messages.warn(
            "not finished; run it again: what was committed is not written twice"
        )
        raise
    finally:
        report.close()
    return _finish(common, run, name=table.target, kind=table.format.name)


def table_options(
    options: ExportCommandOptions, *, is_secret: bool, note: Callable[[str], None]
) -> TableOptions:
    """Return where and how the library is to write the table."""
    from rmqcli.spark.export.executors import packages_of
    from rmqcli.spark.tables.formats import FORMATS
    from rmqcli.spark.tables.session import TableOptions

    return TableOptions(
        topic=options.topic,
        target=options.to_table or "",
        format=FORMATS[options.format or ""],
        is_secret=is_secret,
        note=note,
        master=options.master,
        conf=tuple(options.conf or ()),
        executor_timeout_ms=options.executor_timeout_ms,
        packages=packages_of(options.request().decoding),
    )


def summarise(run: TableRun, *, name: str, kind: str) -> dict[str, Any]:
    """Return the object that the command prints. Its keys are public.

    `version` is None when there was nothing to write.
    """
    commit = run.commit
    return {
        "table": name,
        "format": kind,
        "version": None if commit is None else commit.version,
        "run_id": None if commit is None else run.run_id,
        "rows": 0 if commit is None else commit.rows,
        "files": 0 if commit is None else commit.files,
        "bytes": 0 if commit is None else commit.file_bytes,
        "offsets": 0 if commit is None else run.offsets,
        "queues": [
            {
                "broker_name": queue.broker_name,
                "queue_id": queue.queue_id,
                "from": queue.start,
                "to": queue.end,
            }
            for queue in run.queues
        ],
    }


def _finish(common: Common, run: TableRun, *, name: str, kind: str) -> int:
    summary = summarise(run, name=name, kind=kind)
    for warning in run.warnings:
        common.messages.warn(warning)
    if run.without_row:
        common.messages.warn(
            f"{run.without_row} of {counted(run.offsets, 'offset')} have no row in"
            f" {name}: their messages are missing, or cannot be decoded"
        )
    is_table = write_summary(
        summary, columns=QUEUES, fmt=common.output, color=common.use_color
    )
    if is_table and run.commit is not None:
        rows = "unknown number of rows"
        if run.commit.rows is not None:
            rows = counted(run.commit.rows, "row")
        common.messages.info(
            f"{rows} in {name}, {_VERSIONS[kind]} {run.commit.version}"
        )
    return ExitCode.OK
