"""`rmq sql`: run a Spark SQL query over topics and show its rows.

This module decides where the statement comes from, how many rows are shown, and how a
cell is shown; `rmqcli.spark.sql` runs the query. On stderr it shows the range of each
topic and, on a terminal, the progress of the query.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Self

from rmqcli.cli.export.setting import parse_spark_setting
from rmqcli.cli.offline import read_from
from rmqcli.cli.options import (
    Common,
    argument,
    command_options,
    option,
    position_option,
    store_option,
    switch,
)
from rmqcli.cli.ui.escape import is_safe, safe
from rmqcli.cli.ui.output import Column, RowWriter, json_line, table_cell
from rmqcli.cli.ui.wording import with_flags
from rmqcli.dataclass import dataclass
from rmqcli.errors import RmqError, UsageError
from rmqcli.files import check_readable
from rmqcli.units import counted
from rmqcli.wire.message.json import RECORD_FIELDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rmqcli.api.client import Client
    from rmqcli.hint import Hint
    from rmqcli.spark.sql.lines import Batch
    from rmqcli.spark.sql.session import QueryResult, ResultColumn, SqlSession
    from rmqcli.spark.sql.statement import Statement
    from rmqcli.spark.sql.views import TopicView

#: The default limit of rows in a table, which is kept in memory until it is complete.
TABLE_ROWS_MAX = 1_000
STATEMENT_BYTES_MAX = 1 << 20
#: Bytes of a binary value that a table shows.
_CELL_BYTES_MAX = 80
#: Bytes of a text, a list or a map that a table shows: enough for every name.
_TEXT_BYTES_MAX = 1024
_NOT_IN_VIEWS = ("offset_msg_id", "store_bytes", "properties")

#: The columns of a topic, for the help. A query chooses its own columns.
FIELDS = (
    *(Column(name, text) for name, text in RECORD_FIELDS if name not in _NOT_IN_VIEWS),
    Column("body", "the body, binary; for text functions: cast(body as string)"),
    Column("properties", "all properties: properties['colour']"),
)
_FLAG_OF_OPTION: Final = {
    '.option("failOnDataLoss", "false")': "--allow-gaps",
    "endingOffsets or endingTimestamp": "--to",
}


def parse_setting(text: str) -> tuple[str, str]:
    """A Spark setting. Raises TextError unless the text is spark.NAME=VALUE."""
    return parse_spark_setting(
        text,
        example="spark.driver.memory=4g",
        no_master="the query runs on this machine",
        instead="to use a cluster, write a Spark program with the format rocketmq",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlCommandOptions:
    """The options of `rmq sql` as they were typed."""

    statement: str | None = argument(
        default=None, metavar="[SQL]", help="Query to run; - reads it from stdin."
    )
    file: str | None = option(
        "--file", "-f", metavar="FILE|-", help="Read the query from a file."
    )
    from_: Any = position_option(
        help="Start of each topic's range.  [default: earliest]"
    )
    to: Any = position_option(help="End of each topic's range.  [default: latest]")
    limit: int | None = option(
        min=1, help="Show at most N rows.  [default: 1000 in a table, else all]"
    )
    allow_gaps: bool = switch(
        help="Leave out messages that are missing or cannot be decoded."
    )
    conf: list[Any] | None = option(
        parser=parse_setting, metavar="KEY=VALUE", help="Setting of Spark; repeatable."
    )
    store: str | None = store_option()

    def text(self, common: Common) -> str:
        """The statement. Raises UsageError unless it comes from exactly one source."""
        if self.file is not None and self.statement is not None:
            hint = "leave one of them out"
            raise UsageError("a query and --file cannot be used together", hint=hint)
        if self.file in (None, "-") and self.statement in (None, "-"):
            if self.file is None and self.statement is None:
                raise UsageError(
                    "a query is missing", hint="write rmq sql 'select * from orders'"
                )
            if common.acl_file == "-":
                raise UsageError(
                    "the query and --acl-file cannot both be read from stdin"
                )
            if sys.stdin is None:
                raise UsageError("stdin is closed")
            return _decoded(sys.stdin.buffer.read(STATEMENT_BYTES_MAX + 1), "stdin")
        if self.file is None:
            return self.statement or ""
        path = os.path.expanduser(self.file)
        check_readable(path)
        with open(path, "rb") as file:
            return _decoded(file.read(STATEMENT_BYTES_MAX + 1), self.file)


def _decoded(data: bytes, name: str) -> str:
    if len(data) > STATEMENT_BYTES_MAX:
        raise UsageError(f"{name}: the query is longer than 1 MiB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{name}: the query is not UTF-8") from None


@command_options(SqlCommandOptions, fields=FIELDS, changes=False)
def sql(common: Common, options: SqlCommandOptions) -> None:
    """Query topics as tables with Spark SQL.

    Example: rmq sql 'select tags, count(*) from orders group by tags' --from -1h
    """
    text = options.text(common)
    from rmqcli.spark.extra import require_extra

    require_extra("rmq sql")
    from rmqcli.spark.java import find_java
    from rmqcli.spark.sql.guess import check_statement, guess_topics

    check_statement(text)
    with read_from(common, options.store) as source, _in_flags():
        find_java(os.environ)
        from rmqcli.api.client import Client

        with Client(source.client_config()) as client:
            client.cluster_info()  # raises before Spark takes seconds to start
            topics = guess_topics(text)
            with Ranges(client, options, topics, warn=common.messages.warn) as ranges:
                from rmqcli.spark.sql.session import sql_session  # loads PySpark

                common.messages.progress("starting Spark")
                with sql_session(tuple(options.conf or ())) as session:
                    try:
                        run_statement(
                            common, options, text, session=session, ranges=ranges
                        )
                    finally:
                        common.messages.clear_progress()


class Ranges:
    """The ranges of topics, which a thread looks up while Spark starts.

    Only the thread uses the client. `topics` are looked up at once; raises
    NotFoundError when one of them does not exist. Use it with `with`.
    """

    def __init__(
        self,
        client: Client,
        options: SqlCommandOptions,
        topics: tuple[str, ...] = (),
        *,
        warn: Callable[[str], None],
    ) -> None:
        from concurrent.futures import ThreadPoolExecutor

        from rmqcli.spark.sql.views import check_topic

        for topic in topics:
            check_topic(client, topic)
        self._client = client
        self._options = options
        self._warn = warn
        #: by topic, what is said once its range is known
        self._warnings: dict[str, list[Hint]] = {}
        self._executor = ThreadPoolExecutor(1, "rmq-sql-topics")
        self._found = {
            topic: self._executor.submit(self._pin, topic) for topic in topics
        }

    def of(self, topic: str) -> TopicView:
        """The range of a topic. Raises the errors of `pin_topic`."""
        if topic not in self._found:
            self._found[topic] = self._executor.submit(self._pin, topic)
        view = self._found[topic].result()
        for text in self._warnings.pop(topic, ()):
            self._warn(with_flags(text))
        return view

    def _pin(self, topic: str) -> TopicView:
        from rmqcli.admin.lag.memory import warnings_of_departed
        from rmqcli.spark.sql.views import pin_topic

        if not self._options.allow_gaps:
            self._warnings[topic] = warnings_of_departed(
                self._client, [topic], done="read"
            )
        return pin_topic(
            self._client,
            topic,
            start=self._options.from_,
            end=self._options.to,
            allow_gaps=self._options.allow_gaps,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._executor.shutdown(cancel_futures=True)


def run_statement(
    common: Common,
    options: SqlCommandOptions,
    text: str,
    *,
    session: SqlSession,
    ranges: Ranges,
) -> None:
    """Run one statement and write its rows to stdout."""
    statement = session.read(text)
    views = {}
    for topic in statement.topics:
        view = views[topic] = ranges.of(topic)
        count = len(view.plans)
        messages, queues = counted(view.messages, "message"), counted(count, "queue")
        common.messages.info(f"{topic}: {messages} in {queues}")
    common.messages.progress("planning the query")
    result = session.query(statement, views)
    try:
        _show(common, session, result, statement, limit=options.limit)
    finally:
        _warn(common, session)


def _warn(common: Common, session: SqlSession) -> None:
    for warning in session.warnings():
        common.messages.warn(warning)


@contextmanager
def _in_flags() -> Iterator[None]:
    """Replace the data source's options in hints by the flags of this command.

    A hint of a worker has come through Java as a text.
    """
    try:
        yield
    except RmqError as error:
        for option, flag in _FLAG_OF_OPTION.items():
            if option in error.hint:
                error.hint = error.hint.replace(option, flag)
        raise


def _show(
    common: Common,
    session: SqlSession,
    result: QueryResult,
    statement: Statement,
    *,
    limit: int | None,
) -> None:
    """Write the rows, and report on stderr when there are more rows than shown."""
    is_table = common.output == "table"
    shown_max = TABLE_ROWS_MAX if limit is None and is_table else limit

    def on_wait() -> None:
        _warn(common, session)
        done, tasks = session.tasks()
        if tasks:
            common.messages.progress(f"{done} of {counted(tasks, 'task')} done")

    if is_table and statement.is_explain:
        rows = result.rows(TABLE_ROWS_MAX, on_wait=on_wait)
        common.messages.clear_progress()
        for row in rows:
            sys.stdout.write(safe(str(row[0]), keep_newlines=True).rstrip() + "\n")
        return
    from rmqcli.spark.sql.session import TAKE_MAX

    common.messages.clear_progress()  # the writer begins with the headings of CSV
    writer = RowWriter(
        columns=_columns(result.columns, is_table=is_table),
        fmt=common.output,
        color=common.use_color,
    )
    if shown_max is not None and (is_table or shown_max < TAKE_MAX):
        rows = result.rows(shown_max + 1, on_wait=on_wait)
        common.messages.clear_progress()
        row_of = _table_row if is_table else _data_row
        writer.write(row_of(result.columns, row) for row in rows[:shown_max])
        has_more = len(rows) > shown_max
    else:
        has_more = False
        left = shown_max
        wanted = None if shown_max is None else shown_max + 1
        for batch in result.batches(wanted, on_wait=on_wait):
            common.messages.clear_progress()
            if left is not None:
                has_more = batch.num_rows > left
                batch = batch.slice(0, left)
                left -= batch.num_rows
            _write_batch(writer, result.columns, batch, fmt=common.output)
    common.messages.clear_progress()
    writer.close()
    if has_more and limit is not None:
        be = "is" if limit == 1 else "are"
        common.messages.info(f"there {be} more than {counted(limit, 'row')}")
    elif has_more:
        common.messages.warn(
            f"there are more than {TABLE_ROWS_MAX:,} rows; -o jsonl writes all,"
            " --limit N shows more in the table"
        )


def _write_batch(
    writer: RowWriter,
    columns: tuple[ResultColumn, ...],
    batch: Batch,
    *,
    fmt: str,
) -> None:
    """Write a batch as JSON or CSV."""
    from rmqcli.spark.sql.lines import CsvStyle, JsonStyle, written_rows

    style: JsonStyle | CsvStyle
    if fmt == "csv":
        json = JsonStyle(encode=json_line, keeps=is_safe)
        style = CsvStyle(cell=writer.csv_cell, escapes=writer.is_terminal, json=json)
    elif writer.is_utf8:
        style = JsonStyle(encode=writer.json_text, keeps=is_safe)
    else:
        style = JsonStyle(
            encode=writer.json_text,
            keeps=lambda text: text.isascii() and is_safe(text),
            comma=", ",
            colon=": ",
        )
    for rows in written_rows(columns, batch, style, separator=writer.separator):
        writer.write_encoded(rows)


def _columns(found: tuple[ResultColumn, ...], *, is_table: bool) -> list[Column]:
    columns = []
    for place, each in enumerate(found):
        columns.append(
            Column(
                each.name,
                title=safe(each.name).upper(),
                align="right" if each.is_number else "left",
                priority=place,
                shorten=each.is_binary,
                is_wanted=True,  # the query names it
            )
        )
        if each.base64_name is not None and not is_table:
            columns.append(Column(each.base64_name))
    return columns


def _table_row(
    columns: tuple[ResultColumn, ...], row: tuple[Any, ...]
) -> dict[str, Any]:
    from rmqcli.cli.ui.records.text import cut_text
    from rmqcli.spark.sql.values import plain

    cells: dict[str, Any] = {}
    for column, value in zip(columns, row, strict=True):
        cell = cells[column.name] = plain(value)
        if isinstance(cell, bytes) and column.is_binary:
            cells[column.name] = cut_text(cell, _CELL_BYTES_MAX)
        elif isinstance(cell, str | list | dict):
            text = table_cell(cell)
            if len(text) > _TEXT_BYTES_MAX:
                cells[column.name] = cut_text(text.encode(), _TEXT_BYTES_MAX)
    return cells


def _data_row(
    columns: tuple[ResultColumn, ...], row: tuple[Any, ...]
) -> dict[str, Any]:
    """A row for JSON and CSV: a binary value is text, or base64 in a `_b64` column."""
    import base64

    from rmqcli.spark.sql.values import plain

    found: dict[str, Any] = {}
    for column, value in zip(columns, row, strict=True):
        if column.base64_name is None:
            found[column.name] = plain(value)
            continue
        text = encoded = None
        if value is not None:
            data = bytes(value)
            try:
                text = data.decode("utf-8")
            except UnicodeDecodeError:
                encoded = base64.b64encode(data).decode("ascii")
        found[column.name] = text
        found[column.base64_name] = encoded
    return found
