"""`rmq dlq export`: the letters of a group as a file of JSON lines, or as Parquet."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from rmqcli.cli.dlq.selection import LetterReadOptions, say_read
from rmqcli.cli.options import Common, command_options, option
from rmqcli.cli.ui.output import Column, emit_json
from rmqcli.dataclass import dataclass
from rmqcli.errors import PartialError, RefusedError, RmqError, UsageError

if TYPE_CHECKING:
    from rmqcli.cli.export.command import ExportCommandOptions

_WHERE = "Where to"
_FIELDS = (
    Column("file", "the file"),
    Column("rows", "letters written", align="right"),
    Column("bytes", "size of the file", align="right"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterExportOptions(LetterReadOptions):
    """The options of `rmq dlq export` as they were typed."""

    to_jsonl: Path | None = option(section=_WHERE, help="New file for JSON lines.")
    to_parquet: str | None = option(
        section=_WHERE, metavar="DIR", help="Folder for Parquet files, with Spark."
    )

    def check(self) -> None:
        """Raise UsageError for options that contradict each other."""
        # With slots, the class is not the one in which this method was compiled.
        super(LetterExportOptions, self).check()  # noqa: UP008
        if (self.to_jsonl is None) == (self.to_parquet is None):
            raise UsageError("give one of --to-jsonl FILE and --to-parquet DIR")
        narrowed = (self.sql, self.key, self.grep, self.property_ or None, self.last)
        values = (self.where, self.decode)
        if self.to_parquet is not None and any(
            each is not None for each in (*narrowed, *values)
        ):
            raise UsageError(
                "--to-parquet can be used with --from, --to, --queue and --tag only",
                hint="use --to-jsonl, or select rows of the files",
            )

    def of_topic(self, folder: str) -> ExportCommandOptions:
        """Return the options with which `rmq export` does it, to Parquet files."""
        from rmqcli.cli.export.command import ExportCommandOptions
        from rmqcli.cli.export.folders import parse_place
        from rmqcli.model import dlq_topic

        return ExportCommandOptions(
            topic=dlq_topic(self.group),
            to_parquet=parse_place(folder),
            from_=self.from_,
            to=self.to,
            queue=self.queue,
            tag=self.tag,
        )


@command_options(
    LetterExportOptions, formats=("table", "json"), fields=_FIELDS, changes=False
)
def export(common: Common, options: LetterExportOptions) -> int | None:
    """Write the dead letters of a group to JSON lines or Parquet.

    Example: rmq dlq export billing --to-jsonl letters.jsonl

    The file appears whole or not at all, and an existing one is not replaced. Lines are
    those of rmq tail -o jsonl, which rmq send --jsonl can send; with --decode they have
    the value of each body. Parquet files are written as by rmq export.
    """
    options.check()
    if options.to_parquet is not None:
        return _to_parquet(common, options, options.to_parquet)
    _to_jsonl(common, options, options.to_jsonl or Path())
    return None


def _to_parquet(common: Common, options: LetterExportOptions, folder: str) -> int:
    from typing import cast

    from rmqcli.admin.dlq.read import check_pullable
    from rmqcli.cli.export.command import export as export_topic

    with common.open_client() as client:
        check_pullable(client, options.group)
    return cast("int", export_topic.function(common, options.of_topic(folder)))


def _to_jsonl(common: Common, options: LetterExportOptions, path: Path) -> None:
    import tempfile

    from rmqcli.admin.dlq.read import LetterReader
    from rmqcli.files import TEMPORARY_PREFIX, sync_folder
    from rmqcli.wire.message.json import JsonWriter

    if os.path.lexists(path):
        raise _exists(path)
    wanted = options.filter()
    lines = JsonWriter(options.decode)
    rows = 0
    with common.open_client() as client:
        reader = LetterReader(client, options.find(client), wanted)
        try:
            fd, temporary = tempfile.mkstemp(
                prefix=TEMPORARY_PREFIX, suffix=".part", dir=path.parent
            )
        except OSError as error:
            raise RmqError(f"{path} cannot be written: {error.strerror}") from error
        try:
            with os.fdopen(fd, "wb") as file:
                for queue, letters in reader:
                    for line in lines.lines(queue, letters):
                        file.write(line.encode("utf-8", "backslashreplace") + b"\n")
                    rows += len(letters)
                file.flush()
                os.fsync(file.fileno())
            for queue, failure in reader.abandoned.items():
                if not reader.scanned:
                    raise failure
                raise PartialError(
                    f"{queue} was not read to its end: {failure.message};"
                    f" {path} was not written",
                    hint=failure.hint,
                )
            # A link, which never replaces a file that appeared meanwhile.
            os.link(temporary, path)
            sync_folder(path.parent)
        except FileExistsError:
            raise _exists(path) from None
        except OSError as error:
            if isinstance(error, RmqError):
                raise
            raise RmqError(f"{path} cannot be written: {error.strerror}") from error
        finally:
            os.unlink(temporary)
    row = {"file": str(path), "rows": rows, "bytes": path.stat().st_size}
    if common.output == "json":
        emit_json(row)
    else:
        common.write_table([row], _FIELDS)
    say_read(common, reader, shown=f"{rows:,} written")


def _exists(path: Path) -> RefusedError:
    return RefusedError(f"{path} exists: nothing was written")
