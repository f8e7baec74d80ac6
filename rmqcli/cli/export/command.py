"""`rmq export`: the command, its options, and the checks of their combinations.

It shows the progress and the summary, and says how to resume a run that did not finish.
The exit code is 6 if offsets are missing without --allow-gaps, or messages could not be
decoded without --allow-undecodable. The export itself is in
`rmqcli.spark.export.export`; with --to-table, `rmqcli.cli.export.table` carries the
command out.
"""

from __future__ import annotations

import functools
import os
import re
from typing import TYPE_CHECKING, Any

from rmqcli.cli.export import table as table_export
from rmqcli.cli.export.folders import parse_place
from rmqcli.cli.export.report import ExportReport, summarise
from rmqcli.cli.export.setting import parse_spark_setting
from rmqcli.cli.offline import read_from
from rmqcli.cli.options import (
    Common,
    argument,
    choice_option,
    command_options,
    duration_option,
    option,
    position_option,
    queue_option,
    size_option,
    store_option,
    switch,
)
from rmqcli.cli.selection import refuse_empty, tag_option
from rmqcli.cli.ui.output import Column, number_column, write_summary
from rmqcli.cli.ui.wording import with_flags
from rmqcli.dataclass import dataclass
from rmqcli.errors import ExitCode, RmqError, UsageError
from rmqcli.hint import command_line
from rmqcli.units import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rmqcli.decode.settings import Names
    from rmqcli.spark.export.cluster import BrokerCluster
    from rmqcli.spark.export.export import Export, ExportOptions
    from rmqcli.spark.export.manifest import RunRecord
    from rmqcli.spark.export.plan import ExportRequest

_TARGET = "Where to write"
_READ = "What to read"
_SPARK = "How Spark runs"
_FILES = "Files"
_BODIES = "Columns of the bodies"
_RUNS = "Interrupted and incomplete runs"


#: Names of settings whose values Spark itself hides: spark.redaction.regex.
_REDACTED = r"(?i)secret|password|token|access.?key"

#: Options that cannot be used with --remote -> what to do instead.
_REMOTE_HINTS = {
    "master": "the server of --remote has a master already: leave --master out",
    "conf": "start the server with the setting: leave --conf out",
    "archives": "start the server with the archive: leave --archives out",
    "store": "only this machine can read the folder: leave --remote out",
}

FORMATS = ("auto", "table", "json", "jsonl")
FIELDS = (
    Column("dir", "the directory", title=None),
    Column("run_id", "ID of the run, as in _rmq/runs", title=None),
    Column("files", "number of Parquet files of the run", title=None),
    Column("bytes", "total size of the files in bytes", title=None),
    *table_export.QUEUES,
    number_column("rows", "messages written"),
    number_column("filtered", "messages left out by --tag", priority=10),
    number_column(
        "undecodable", "undecodable messages, kept in undecodable.jsonl", "BAD"
    ),
    number_column(
        "corrupt", "bodies that do not fit --decode, kept in _corrupt_body", priority=5
    ),
    Column(
        "gaps",
        "offsets whose messages are missing",
        shown=lambda row: ", ".join(
            f"{gap['from']}-{gap['to']} {gap['reason']}" for gap in row["gaps"]
        ),
        priority=1,
    ),
    *table_export.FIELDS,
)
_DECODE_NAMES = ("--decode", "--schema", "--infer")


def _parse_setting(text: str) -> tuple[str, str]:
    return parse_spark_setting(
        text,
        example="spark.executor.memory=2g",
        no_master="the master has its own option",
        instead="give --master",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportCommandOptions:
    """The options of `rmq export` as they were typed, and checks of combinations.

    The library's `ExportOptions` and `ExportRequest` are made from them.
    """

    topic: str = argument(help="Topic to export.")
    to_parquet: str | None = option(
        parser=parse_place,
        metavar="DIR",
        help="Folder for the Parquet files: a path, or a URL: s3, gs, hdfs, file.",
        section=_TARGET,
    )
    to_table: str | None = option(
        metavar="TABLE",
        help="Table to append to: a name, or for delta also a path or URL.",
        section=_TARGET,
    )
    format: str | None = choice_option(
        choices=("parquet", *table_export.FORMATS),
        help="Format of the files or the table.  [default: parquet]",
        section=_TARGET,
    )
    from_: Any = position_option(
        help="Start position.  [default: earliest]", section=_READ
    )
    to: Any = position_option(
        help="End position, resolved at the start.  [default: latest]", section=_READ
    )
    queue: list[Any] | None = queue_option(section=_READ)
    tag: str | None = tag_option(section=_READ)
    master: str | None = option(
        metavar="URL",
        help="Spark cluster to run on, e.g. spark://host:7077.",
        section=_SPARK,
    )
    remote: str | None = option(
        metavar="URL",
        help="Spark Connect server to run on: sc://HOST:PORT.",
        section=_SPARK,
    )
    conf: list[Any] | None = option(
        parser=_parse_setting,
        metavar="KEY=VALUE",
        help="Setting of Spark; repeatable.",
        section=_SPARK,
    )
    archives: list[str] | None = option(
        metavar="FILE[#NAME]",
        help="Archive to unpack on the executors of --master; repeatable.",
        section=_SPARK,
    )
    executor_timeout: Any = duration_option(
        help="Exit when the cluster runs no task for this long.  [default: 2m]",
        section=_SPARK,
    )
    rows_per_file: int | None = option(
        min=1, help="Start a new file after N rows.  [default: 500000]", section=_FILES
    )
    bytes_per_file: Any = size_option(
        help="Start a new file after SIZE.  [default: 1GiB]", section=_FILES
    )
    min_partitions: int | None = option(
        min=1, help="Divide the work into at least N parts.", section=_SPARK
    )
    partition_by: str | None = choice_option(
        choices=("none", "queue", "date", "hour"),
        help="Partition the output by queue, or by store time in UTC.  [default: none]",
        section=_FILES,
    )
    compression: str | None = choice_option(
        choices=("zstd", "snappy", "lz4", "gzip", "none"),
        help="Parquet compression codec.  [default: zstd]",
        section=_FILES,
    )
    decode: str | None = option(
        metavar="FORMAT",
        help="Add typed columns of the bodies: json, avro:FILE or"
        " protobuf:FILE:MESSAGE.",
        section=_BODIES,
    )
    schema: str | None = option(
        metavar="FILE",
        help="Schema of JSON bodies, as Spark's DDL or StructType JSON.",
        section=_BODIES,
    )
    infer: int | None = option(
        min=1,
        max=10_000,
        help="Infer the schema of JSON bodies from the first N messages.",
        section=_BODIES,
    )
    resume: bool = switch(help="Finish an interrupted run.", section=_RUNS)
    since_last: bool = switch(help="Continue where the last run ended.", section=_RUNS)
    allow_gaps: bool = switch(
        help="Do not fail because of missing messages.", section=_RUNS
    )
    allow_undecodable: bool = switch(
        help="Do not fail because of messages that cannot be decoded.", section=_RUNS
    )
    allow_unencrypted_keys: bool = switch(
        help="Allow access keys to be sent unencrypted to the cluster's workers.",
        section=_SPARK,
    )
    store: str | None = store_option(section=_READ)

    def check(self) -> None:
        """Raise UsageError for options that are wrong or contradict each other."""
        from rmqcli.spark.master import check_master_url
        from rmqcli.wire.subscription import parse_tags

        refuse_empty(tag=self.tag)
        parse_tags("", self.tag)
        table_export.check_target(self)
        if self.since_last and (self.resume or self.from_ is not None):
            other = "--resume" if self.resume else "--from"
            raise UsageError(f"--since-last and {other} cannot be used together")
        master = self.master
        check_master_url(master, os.environ)
        if self.remote is not None:
            self._check_remote(self.remote)
        if self.store is not None and not (master or "local").startswith("local"):
            raise UsageError(
                f"--store and --master {master} cannot be used together: only this"
                " machine can read the folder",
                hint="leave --master out, or give local[*]",
            )

        if self.decode is None and (self.schema is not None or self.infer is not None):
            given = "--schema" if self.schema is not None else "--infer"
            raise UsageError(f"{given} needs --decode json")

    def _check_remote(self, url: str) -> None:
        from rmqcli.spark.connect import remote_address

        remote_address(url)  # raises UsageError for another URL
        for name in ("master", "conf", "archives", "store"):
            if getattr(self, name):
                raise UsageError(
                    f"--{name} and --remote cannot be used together",
                    hint=_REMOTE_HINTS[name],
                )

    @property
    def folder(self) -> str:
        """The folder of the Parquet files; empty for a table."""
        return self.to_parquet or ""

    @property
    def executor_timeout_ms(self) -> int:
        """How long a cluster may go without running any task."""
        from rmqcli.spark.export.executors import TIMEOUT_MS

        chosen: int | None = self.executor_timeout
        return TIMEOUT_MS if chosen is None else chosen

    def given(self) -> dict[str, Any]:
        """The fields of ExportRequest that were typed."""
        fields = {
            "from_position": None if self.from_ is None else str(self.from_),
            "to_position": None if self.to is None else str(self.to),
            "queues": tuple(map(str, self.queue or ())) or None,
            "tag": self.tag,
            "rows_per_file": self.rows_per_file,
            "bytes_per_file": self.bytes_per_file,
            "min_partitions": self.min_partitions,
            "partition_by": self.partition_by,
            "compression": self.compression,
            **self._decoding(),
        }
        return {name: value for name, value in fields.items() if value is not None}

    def _decoding(self) -> dict[str, Any]:
        """The fields of ExportRequest that say how bodies are decoded."""
        if self.decode is None:
            return {}
        from rmqcli.decode.settings import read_settings

        found = read_settings(
            self.decode,
            schema_file=self.schema,
            infer=self.infer,
            names=self.decode_names(),
        )
        return {
            "decode": found.format,
            "decode_schema": found.schema,
            "decode_infer": found.infer,
        }

    def decode_names(self) -> Names:
        """Return what error messages call the settings of a Decoding."""
        from rmqcli.decode.settings import Names

        return Names(*_DECODE_NAMES)

    def request(self) -> ExportRequest:
        """Return what is to be exported."""
        from rmqcli.spark.export.plan import ExportRequest

        ends = {"from_position": "earliest", "to_position": "latest"}
        return ExportRequest(topic=self.topic, **{**ends, **self.given()})

    def run_options(self) -> ExportOptions:
        """Return how the library is to export it."""
        from rmqcli.spark.export.export import ExportOptions

        return ExportOptions(
            path=self.folder,
            given=frozenset(self.given()),
            master=self.master,
            remote=self.remote,
            resume=self.resume,
            since_last=self.since_last,
            allow_gaps=self.allow_gaps,
            allow_undecodable=self.allow_undecodable,
            conf=tuple(self.conf or ()),
            archives=tuple(self.archives or ()),
            executor_timeout_ms=self.executor_timeout_ms,
        )

    def flags_to_repeat(self) -> list[str]:
        """Return the flags that a resumed run needs again: its plan lacks them."""
        words = [] if self.master is None else ["--master", self.master]
        if self.remote is not None:
            from rmqcli.spark.master import shown_url

            words += ["--remote", shown_url(self.remote)]
        for key, value in self.conf or ():
            is_secret = re.search(_REDACTED, key)
            words += ["--conf", f"{key}={'VALUE' if is_secret else value}"]
        for archive in self.archives or ():
            words += ["--archives", archive]
        if self.executor_timeout is not None:
            words += ["--executor-timeout", f"{self.executor_timeout}ms"]
        flags = {
            "--allow-gaps": self.allow_gaps,
            "--allow-undecodable": self.allow_undecodable,
            "--allow-unencrypted-keys": self.allow_unencrypted_keys,
        }
        return words + [name for name, is_given in flags.items() if is_given]


@command_options(ExportCommandOptions, formats=FORMATS, fields=FIELDS, changes=False)
def export(common: Common, options: ExportCommandOptions) -> int:
    """Write a range of a topic to Parquet files or a table.

    Example: rmq export orders --to-parquet ./orders --from -1d --to latest
    """
    options.check()
    from rmqcli.spark.extra import require_extra

    require_extra("rmq export")
    from rmqcli.position import Earliest, Latest
    from rmqcli.spark.export.cluster import BrokerCluster

    is_allowed = options.allow_unencrypted_keys
    with read_from(common, options.store) as source:
        client_config = source.client_config()
        is_secret = client_config.credentials is not None and not is_allowed
        cluster = BrokerCluster(
            config=client_config,
            allow_unencrypted=is_allowed,
            allow_gaps=options.allow_gaps,
            start=options.from_ or Earliest(),
            end=options.to or Latest(),
            note=lambda text: common.messages.info(with_flags(text)),
        )
        check_ready = functools.partial(_check_ready, options, is_secret=is_secret)
        if options.to_table is not None:
            return table_export.export_table(
                common,
                options,
                cluster=cluster,
                is_secret=is_secret,
                check_ready=check_ready,
            )
        return _export_files(common, source, options, cluster, check_ready)


def _export_files(
    common: Common,
    source: Common,
    options: ExportCommandOptions,
    cluster: BrokerCluster,
    check_ready: Callable[[], None],
) -> int:
    from rmqcli.spark.export.export import Export
    from rmqcli.spark.export.storage import storage_of

    storage = storage_of(options.folder, os.environ)
    report = ExportReport(source.messages, options.topic)
    job = Export(
        request=options.request(),
        options=options.run_options(),
        cluster=cluster,
        report=report,
        disk=storage,
        check_ready=check_ready,
        decode_names=options.decode_names(),
    )
    resume = resume_command(
        source, options.topic, options.folder, repeated=options.flags_to_repeat()
    )
    record = _run(job, report, f"resume with: {resume}")
    return _finish(common, record, storage.root_of(options.folder))


def _run(job: Export, report: ExportReport, resume: str) -> RunRecord:
    """Run the export; if a run began and does not finish, say how to resume it."""
    try:
        return job.run()
    except (KeyboardInterrupt, RmqError) as error:
        report.close()
        if report.is_planned and isinstance(error, RmqError) and not error.hint:
            error.hint = resume
        elif report.is_planned:
            report.warn(f"not finished; {resume}")
        raise
    finally:
        report.close()


def _check_ready(options: ExportCommandOptions, *, is_secret: bool) -> None:
    """Raise an error for what would end the run, before the run begins."""
    from rmqcli.spark.encryption import check_encrypted, submitted_settings
    from rmqcli.spark.export.executors import PACKAGES
    from rmqcli.spark.java import find_java
    from rmqcli.spark.master import (
        check_kubernetes_image,
        check_master_answers,
        is_local,
    )

    if options.remote is not None:
        from rmqcli.spark import connect

        if is_secret:
            connect.check_private(options.remote, os.environ)
        connect.check_client_packages()
        connect.check_remote_answers(options.remote)
        return
    master = options.master
    find_java(os.environ)
    if is_local(master):
        return
    settings = {**submitted_settings(os.environ), **dict(options.conf or ())}
    if is_secret:
        check_encrypted(settings.get)
    check_kubernetes_image(master, settings.get, packages=PACKAGES)
    check_master_answers(master)


def _finish(common: Common, record: RunRecord, root: str) -> int:
    """Print the summary; return the exit code.

    It is 6 if offsets are missing, or messages could not be decoded, and no option
    accepts that.
    """
    summary = summarise(record, root=root)
    for gap in record.gaps():
        end = "?" if gap.end is None else gap.end
        common.messages.warn(
            f"{gap.broker_name} queue {gap.queue_id}: offsets {gap.start} to {end} are "
            f"not in the export ({gap.reason})"
        )
    if summary["undecodable"]:
        common.messages.warn(
            f"{counted(summary['undecodable'], 'message')} could not be decoded; their"
            f" bytes are in _rmq/runs/{record.run_id}/undecodable.jsonl"
        )
        if not record.undecodable_allowed:
            common.messages.warn(
                "the export is not marked as complete; to accept it without these "
                "messages, run it again with --allow-undecodable"
            )
    if summary.get("corrupt"):
        common.messages.warn(
            f"{summary['corrupt']} of {summary['rows']} bodies do not fit the schema; "
            "they are in the column _corrupt_body"
        )
    columns = [c for c in FIELDS if c.name != "corrupt" or "corrupt" in summary]
    if write_summary(
        summary, columns=columns, fmt=common.output, color=common.use_color
    ):
        common.messages.info(
            f"{counted(summary['rows'], 'row')} in {counted(summary['files'], 'file')},"
            f" {counted(summary['bytes'], 'byte')}, in {summary['dir']}"
        )
    return ExitCode.OK if record.is_accepted else ExitCode.PARTIAL


def resume_command(
    common: Common, topic: str, path: str, *, repeated: Sequence[str] = ()
) -> str:
    """Return the command that finishes an interrupted run. It contains no secrets.

    `repeated` are the flags of the export that its plan lacks.
    """
    options = ["--to-parquet", path, "--resume", *common.flags_to_repeat(), *repeated]
    return command_line("rmq export", topic, options=options)
