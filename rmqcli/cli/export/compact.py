"""`rmq export-compact`: merge the small files and runs of an export directory.

`rmqcli.spark.export.compact` merges them; neither a cluster nor Spark is needed.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rmqcli.cli.export.folders import parse_folder
from rmqcli.cli.options import Common, argument, command_options, option, size_option
from rmqcli.cli.ui.output import Column, emit_json, number_column, write_rows
from rmqcli.dataclass import dataclass

FIELDS = (
    Column("topic", "topic of the export"),
    number_column("runs_before", "runs in the manifest before compaction"),
    number_column("runs", "runs in the manifest now"),
    number_column("files_before", "Parquet files before compaction"),
    number_column("files", "Parquet files now"),
    number_column("bytes_before", "bytes of files before compaction", priority=10),
    number_column("bytes", "bytes of files now", priority=10),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactCommandOptions:
    """The options of `rmq export-compact` as they were typed."""

    folder: str = argument(metavar="DIR", help="Folder of a finished export.")
    rows_per_file: int | None = option(
        min=1, help="Merge files up to N rows each.  [default: 500000]"
    )
    bytes_per_file: Any = size_option(
        help="Merge files up to SIZE each.  [default: 1GiB]"
    )


@command_options(CompactCommandOptions, fields=FIELDS, connects=False)
def export_compact(common: Common, options: CompactCommandOptions) -> None:
    """Merge the small Parquet files and runs of an export.

    Example: rmq export-compact ./orders
    """
    from rmqcli.spark.extra import require_extra

    require_extra("rmq export-compact")
    from rmqcli.cli.ui.progress import Progress
    from rmqcli.spark.export.compact import FileLimits, compact
    from rmqcli.spark.export.disk import Disk
    from rmqcli.spark.export.plan import BYTES_PER_FILE_DEFAULT, ROWS_PER_FILE_DEFAULT

    limits = FileLimits(
        rows=options.rows_per_file or ROWS_PER_FILE_DEFAULT,
        file_bytes=options.bytes_per_file or BYTES_PER_FILE_DEFAULT,
    )
    folder = parse_folder(
        options.folder,
        verb="compact an export in",
        instead="copy it to a folder, compact it there, and copy it back",
    )
    progress: Progress | None = None

    def watch(done: int, rows: int) -> None:
        nonlocal progress
        if progress is None:
            progress = Progress(common.messages, "rows merged", total=rows)
        progress.update(done)

    try:
        summary = compact(folder, disk=Disk(), limits=limits, watch=watch)
    finally:
        common.messages.clear_progress()
    row = asdict(summary)
    if common.output == "json":
        emit_json(row)
    else:
        write_rows([row], columns=FIELDS, fmt=common.output, color=common.use_color)
