"""`rmq send`: send messages from an argument, files, lines or JSON lines.

Sources yield messages, and None before they may have to wait for input. A line is kept
as bytes: only its newline is removed, nothing is decoded. Results are rows on stdout;
on a terminal many results are shown as a summary. The exit code is 6 when some messages
are not stored. `rmqcli.producer.send` does the sending.
"""

from __future__ import annotations

import os
import random
import stat
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import IO, TYPE_CHECKING, Any, cast

from rmqcli.cli.options import (
    Common,
    argument,
    command_options,
    endpoints_option,
    option,
    plaintext_option,
    queue_option,
    switch,
)
from rmqcli.cli.selection import SHOW_SECTION
from rmqcli.cli.ui import interrupts
from rmqcli.cli.ui.messages import is_terminal
from rmqcli.cli.ui.output import (
    Column,
    RowWriter,
    json_column,
    number_column,
    place_columns,
    row_of,
)
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.dataclass import dataclass
from rmqcli.errors import PartialError, RmqError, TextError, TransportError, UsageError
from rmqcli.files import check_readable, input_title
from rmqcli.hint import command_line
from rmqcli.names import check_topic
from rmqcli.producer.delay import Delay, parse_delay, resolve_delay
from rmqcli.producer.message import (
    OutgoingMessage,
    check_user_properties,
    with_settings,
)
from rmqcli.producer.pace import paced, parse_rate
from rmqcli.units import counted, format_size

if TYPE_CHECKING:
    from rmqcli.api.client import Client
    from rmqcli.config import ClientConfig
    from rmqcli.producer.remoting.send import StoredAgain
    from rmqcli.producer.remoting.trace import SentTraces
    from rmqcli.producer.send import SendNetwork, SendOutcome


_what = partial(option, section="What to send")
_each = partial(option, section="Every message")
_WHERE = "Where to"


_READ_BYTES = 1 << 16

#: No broker accepts a larger message, because this is the limit of a frame.
FILE_BYTES_MAX = 16 << 20
#: A line of JSON can be several times as long as its body: `\u00e9` is two bytes.
LINE_BYTES_MAX = 64 << 20

Messages = Iterator[OutgoingMessage | None]


def read_bodies(bodies: Iterable[bytes], *, count: int) -> Messages:
    """Yield each body `count` times."""
    for body in bodies:
        for _ in range(count):
            yield OutgoingMessage(body)


def read_files(names: Iterable[str], *, count: int) -> Messages:
    """Yield the content of each file `count` times, unchanged; `-` is stdin."""
    for name in names:
        with open_bytes(name) as file:
            body = _read_all(file, name)
        for _ in range(count):
            yield OutgoingMessage(body, source=input_title(name))


def read_lines(name: str) -> Messages:
    """Yield a message for each line; `-` is stdin."""
    for item in _lines(name):
        if item is None:
            yield None
        else:
            number, line = item
            yield OutgoingMessage(line, source=_where(name, number))


def read_records(name: str) -> Messages:
    """Yield a message for each line of JSON; blank lines are skipped."""
    from rmqcli.producer.records import parse_record

    for item in _lines(name):
        if item is None:
            yield None
        elif item[1].strip():
            yield parse_record(item[1], source=_where(name, item[0]))


def first(messages: Messages, count: int) -> Messages:
    """Yield the first `count` messages."""
    left = count
    for message in messages:
        left -= message is not None
        yield message
        if not left:  # before another one is read, for which stdin may have to wait
            return


@contextmanager
def open_bytes(name: str) -> Iterator[IO[bytes]]:
    """Open a file unbuffered, or stdin for `-`. An OSError names the file."""
    if name == "-":
        if sys.stdin is None:
            raise UsageError("stdin is closed")
        buffer = sys.stdin.buffer
        yield cast("IO[bytes]", getattr(buffer, "raw", buffer))
        return
    with open(name, "rb", buffering=0) as file:
        yield cast("IO[bytes]", file)


def _lines(name: str) -> Iterator[tuple[int, bytes] | None]:
    """Yield the number, from 1, and the bytes of each line.

    Yields None before a read that may wait.
    """
    number = 0
    rest = bytearray()
    with open_bytes(name) as file:
        may_wait = not _is_regular(file)
        while True:
            if may_wait:
                yield None
            data = file.read(_READ_BYTES)
            if not data:
                break
            at = rest_from = 0
            while (end := data.find(b"\n", at)) >= 0:
                number += 1
                line = bytes(rest) + data[at:end] if rest else data[at:end]
                rest.clear()
                yield number, line
                at = rest_from = end + 1
            rest += data[rest_from:]
            if len(rest) > LINE_BYTES_MAX:
                raise UsageError(
                    f"{_where(name, number + 1)} is longer than"
                    f" {format_size(LINE_BYTES_MAX)}"
                )
    if rest:
        yield number + 1, bytes(rest)


def _read_all(file: IO[bytes], name: str) -> bytes:
    parts = bytearray()
    while data := file.read(_READ_BYTES):
        parts += data
        if len(parts) > FILE_BYTES_MAX:
            raise UsageError(
                f"{input_title(name)} is larger than {format_size(FILE_BYTES_MAX)}, the"
                " largest message that any broker accepts",
                hint="send its lines with --lines",
            )
    return bytes(parts)


def _is_regular(file: IO[bytes]) -> bool:
    try:
        return stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    except (OSError, ValueError, AttributeError):
        return True  # a buffer in memory, in a test


def _where(name: str, number: int) -> str:
    return f"{input_title(name)} line {number}"


#: The most rows of a table, which is kept in memory until it is complete.
TABLE_ROWS_MAX = 1000
#: On a terminal, more results than this are shown as a summary.
SUMMARY_ROWS_MAX = 20

_STORED = (
    "SEND_OK",
    "FLUSH_DISK_TIMEOUT",
    "SLAVE_NOT_AVAILABLE",
    "FLUSH_SLAVE_TIMEOUT",
)

COLUMNS = (
    Column("msg_id", "id that this command gave the message (UNIQ_KEY)"),
    json_column("offset_msg_id", "id that the broker gave it"),
    *place_columns(
        "broker to which it was sent; null through a proxy",
        "queue to which it was sent; null through a proxy",
        priority=20,
        queue_priority=10,
    ),
    number_column(
        "queue_offset",
        "its offset in the queue; null when delayed",
        title="OFFSET",
        priority=10,
    ),
    Column(
        "status",
        "SEND_OK, FLUSH_DISK_TIMEOUT, SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT: stored;"
        " UNKNOWN: perhaps stored, so sending again may store it twice; all others: not"
        " stored",
        states={
            "SEND_OK": "good",
            **dict.fromkeys(_STORED[1:], "warn"),
            "UNKNOWN": "bad",
            "NOT_SENT": "bad",
        },
    ),
    json_column(
        "recall_handle",
        "what `rmq message recall` takes, of a delayed message through a proxy",
    ),
    Column("source", "line or file of the message", priority=5),
    Column(
        "error",
        "why it is not stored, or not known to be stored",
        value=lambda sent: sent.error and sent.error.message,
        priority=1,
    ),
)


#: System property -> the option that sets it.
_OPTION_OF_PROPERTY = {
    "KEYS": "--key",
    "TAGS": "--tag",
    "DELAY": "--delay",
    "TIMER_DELAY_SEC": "--delay",
    "TIMER_DELAY_MS": "--delay",
    "TIMER_DELIVER_MS": "--delay",
}


def _parse_tag(text: str) -> str:
    """Refuse what brokers store, and no consumer can subscribe to."""
    at = text.find("||")
    if at >= 0:
        raise TextError(
            text,
            "|| separates the tags of a subscription, so no consumer can subscribe to"
            " this tag",
            start=at,
            end=at + 2,
            hint="send a message for each tag, or choose another separator",
        )
    return text


def _parse_property(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        raise UsageError(f"{text!r} is not NAME=VALUE")
    return name, value


@dataclass(frozen=True, slots=True, kw_only=True)
class SendCommandOptions:
    """The options of `rmq send` as they were typed, with checks of combinations."""

    topic: str = argument(help="Topic to send to.")
    body: str | None = argument(
        default=None, metavar="[BODY]", help="Message body; - sends each line of stdin."
    )
    file: list[str] | None = _what(help="Send a file as one message; repeatable.")
    jsonl: str | None = _what(
        metavar="FILE|-", help="Send records from JSON lines, as tail prints them."
    )
    lines: str | None = _what(metavar="FILE|-", help="Send each line as one message.")
    tag: Any = _each(parser=_parse_tag, help="Tag of every message.")
    key: list[str] | None = _each(help="Key of every message; repeatable.")
    properties: list[Any] | None = _each(
        "--property",
        parser=_parse_property,
        metavar="NAME=VALUE",
        help="Property of every message; repeatable.",
    )
    queue: list[Any] | None = queue_option(section=_WHERE)
    shard_by: str | None = option(
        metavar="FIELD",
        help="Choose the queue by a field of the JSON body, or by a property.",
        section=_WHERE,
    )
    delay: Delay | None = _each(
        parser=parse_delay,
        metavar="LEVEL|DURATION",
        help="Deliver later: a delay level of the broker, or a duration.",
    )
    count: int | None = _what(
        min=1, help="Send BODY or each file N times; of lines, send the first N."
    )
    rate: int | None = _what(parser=parse_rate, help="Limit the rate, e.g. to 100/s.")
    create: bool = switch(help="Create the topic if it does not exist.", section=_WHERE)
    rows: bool = switch(
        help="Show a row for each message, also on a terminal.", section=SHOW_SECTION
    )
    message_group: str | None = option(
        metavar="NAME",
        help="Keep the messages in order, in a FIFO topic; with --endpoints.",
        section=_WHERE,
    )
    trace: bool = _each(
        default=False, help="Write message traces, which rmq message trace shows."
    )
    endpoints: Any = endpoints_option()
    plaintext: bool = plaintext_option()

    def check(self, *, by_proxy: bool) -> None:
        """Raise UsageError for options that cannot be used, or not with a proxy."""
        check_topic(self.topic)
        if by_proxy:
            self._check_for_proxy()
        elif self.message_group is not None:
            raise UsageError(
                "--message-group needs --endpoints",
                hint="use --shard-by FIELD with name servers",
            )
        check_user_properties(self.user_properties, instead=_OPTION_OF_PROPERTY)

    def _check_for_proxy(self) -> None:
        chooses = "a proxy chooses the queue; use --message-group to keep an order"
        creates = "a proxy creates no topics; create it with: rmq topic create"
        for flag, value, hint in (
            ("--queue", self.queue, chooses),
            ("--shard-by", self.shard_by, chooses),
            ("--create", self.create, creates),
            ("--trace", self.trace, "traces are written over name servers only"),
        ):
            if value:
                raise UsageError(
                    f"{flag} and --endpoints cannot be used together", hint=hint
                )
        if self.delay is not None and self.delay.level is not None:
            raise UsageError(
                "a proxy has no delay levels", hint="give a time, e.g. --delay 10s"
            )

    @property
    def user_properties(self) -> dict[str, str]:
        """The properties that `--property` adds to every message."""
        return dict(self.properties or ())

    def messages(self, common: Common) -> Messages:
        """The messages to send, with the tag, keys and properties of the options.

        Raises UsageError unless there is exactly one source.
        """
        properties = self.user_properties
        return (
            None
            if message is None
            else with_settings(
                message, tag=self.tag, keys=self.key or (), properties=properties
            )
            for message in self._sources(common)
        )

    def _sources(self, common: Common) -> Messages:
        body, lines = self.body, self.lines
        if body == "-" and lines is None:
            common.messages.info("sending the lines of stdin")
            body, lines = None, "-"
        given = [
            name
            for name, value in (
                ("BODY", body),
                ("--file", self.file or None),
                ("--jsonl", self.jsonl),
                ("--lines", lines),
            )
            if value is not None
        ]
        if len(given) > 1:
            raise UsageError(f"{' and '.join(given)} cannot be used together")
        # All of them, before a message of the first one is sent.
        for name in (*(self.file or ()), self.jsonl, lines):
            if name is not None and name != "-":
                check_readable(name)
        if body is not None:
            # Arguments that are not UTF-8 keep their bytes.
            return read_bodies([os.fsencode(body)], count=self.count or 1)
        if self.file:
            return read_files(self.file, count=self.count or 1)
        if not given:
            if is_terminal(sys.stdin):
                raise UsageError(
                    "nothing to send",
                    hint="write rmq send TOPIC BODY, or --lines -",
                )
            common.messages.info("sending the lines of stdin")
            lines = "-"
        if "-" in (self.jsonl, lines) and common.acl_file == "-":
            raise UsageError(
                "--acl-file and the messages cannot both be read from stdin"
            )
        found = read_lines(lines) if lines else read_records(self.jsonl or "-")
        return found if self.count is None else first(found, self.count)


@command_options(SendCommandOptions, fields=COLUMNS)
def send(common: Common, options: SendCommandOptions) -> None:
    """Send messages from an argument, lines, JSONL or files.

    Example: rmq send orders '{"id": 7}' --tag paid --key 7

    Without a BODY or a file, each line of stdin is sent as a message. Properties in
    JSON lines that clients and brokers set themselves (UNIQ_KEY, DELAY, REAL_TOPIC,
    ...) are not sent again. On a terminal, more than 20 results are shown as a summary,
    with a row for each result that is not SEND_OK. Once a message is stored, a broker
    that cannot be reached any more is waited for, for six times --timeout (30 seconds).
    With a proxy (--endpoints) the topic must exist, and the proxy chooses the queues.
    """
    common = common.with_endpoints(options.endpoints, plaintext=options.plaintext)
    options.check(by_proxy=bool(common.endpoints))
    _warn_of_keys(common, options.key or ())
    messages = options.messages(common)
    if options.rate:
        messages = paced(messages, per_second=options.rate, clock=SYSTEM_CLOCK)
    run = _send_to_proxy if common.endpoints else _send_to_brokers
    run(common, options, messages)


def _send_to_proxy(
    common: Common, options: SendCommandOptions, messages: Messages
) -> None:
    """Send through the proxy. Raises NotFoundError for an unknown topic."""
    from rmqcli.producer.proxy.send import ProxySend
    from rmqcli.proxy.session import PRODUCER, Session

    rng = random.Random()  # noqa: S311  # spreads load; not for secrets
    config = common.client_config()
    with closing(Session(config, client_type=PRODUCER, rng=rng)) as session:
        network = ProxySend(
            session,
            options.topic,
            message_group=options.message_group,
            delay_ms=options.delay.delay_ms if options.delay is not None else None,
            rng=rng,
        )
        network.prepare()
        _Job(common, options).run(messages, network)


def _send_to_brokers(
    common: Common, options: SendCommandOptions, messages: Messages
) -> None:
    """Send to the brokers of the topic, with traces where options want them."""
    from rmqcli.producer.remoting.send import RemotingSend
    from rmqcli.producer.remoting.target import find_target

    with ExitStack() as stack:
        client = stack.enter_context(common.open_client())
        traces = _traces(client.config, stack) if options.trace else None
        target = find_target(
            client, options.topic, options.queue or (), may_create=options.create
        )
        extra = {}
        if options.delay is not None:
            addresses = sorted(set(target.addresses.values()))
            extra = resolve_delay(client, options.delay, addresses)
        network = RemotingSend(
            client,
            target,
            extra_properties=extra,
            shard_by=options.shard_by,
            is_fixed=bool(options.queue),
            rng=random.Random(),  # noqa: S311  # spreads load; not for secrets
            traces=traces,
        )
        job = _Job(common, options, stored_again=network.stored_again)
        try:
            job.run(messages, network, client=client if target.is_new else None)
        except TransportError as error:
            client.raise_if_none_answers([error])
            raise


def _traces(config: ClientConfig, stack: ExitStack) -> SentTraces:
    """What writes traces, until `stack` is closed."""
    from rmqcli.producer.remoting.publisher import PRODUCER_GROUP
    from rmqcli.producer.remoting.trace import SentTraces, TraceDispatcher
    from rmqcli.trace.setting import TRACE_TOPIC

    dispatcher = TraceDispatcher(config, TRACE_TOPIC, clock=SYSTEM_CLOCK)
    dispatcher.start()
    stack.callback(dispatcher.close)
    return SentTraces(dispatcher, PRODUCER_GROUP, clock=SYSTEM_CLOCK)


class _Job:
    """One run: sends messages, writes rows and counts results."""

    def __init__(
        self,
        common: Common,
        options: SendCommandOptions,
        *,
        stored_again: StoredAgain | None = None,
    ) -> None:
        """Create it. `stored_again` has what a broker may have stored twice."""
        self._common = common
        self._options = options
        self._is_summary = (
            common.output == "table" and is_terminal(sys.stdout) and not options.rows
        )
        #: rows held back while there may be few enough to list all
        self._held: list[dict[str, object]] = []
        self._statuses: Counter[str] = Counter()
        self._queues: Counter[tuple[str, int]] = Counter()
        self._writer = RowWriter(
            columns=COLUMNS, fmt=common.output, color=common.use_color
        )
        self._stored_again = stored_again
        self._stored = self._left_out = 0
        #: the line of the first of the last messages none of which is stored
        self._resume_at: str | None = None
        self._is_cut = False
        self._first_error: RmqError | None = None
        #: whether stdout takes no more rows, and if input was left for that
        self._is_closed = self._is_unread = False
        #: why the rows could not be written; None if the reader of stdout has closed it
        self._output_error: OSError | None = None
        #: the line or file of the last message that was read
        self._last_source: str | None = None

    def run(
        self,
        messages: Iterable[OutgoingMessage | None],
        network: SendNetwork,
        *,
        client: Client | None = None,
    ) -> None:
        """Send `messages`; raise an error when not all of them are stored.

        `client` is given when the topic did not exist. It is used to look up which
        brokers have created the topic.
        """
        from rmqcli.cli.ui.progress import Progress
        from rmqcli.producer.send import Sender

        sender = Sender(network, say=self._common.messages.info)
        try:
            with Progress(self._common.messages, "sent") as progress:
                for outcomes in sender.send(self._until_closed(messages)):
                    with interrupts.deferred():  # stored messages are always reported
                        self._write(outcomes)
                    progress.update(self._stored)
        except KeyboardInterrupt:
            self._write(sender.abandon())
            self._finish(client, is_cut_short=True)
            raise
        except RmqError as error:
            self._finish(client, is_cut_short=True)
            if isinstance(error, UsageError) and self._stored:
                raise self._cut_short(error) from error
            raise
        self._finish(client, is_cut_short=self._is_unread)
        self._raise_failures(sender.given_up)
        if self._is_unread:
            raise self._without_reader()
        if self._output_error is not None:
            raise self._output_error

    def _until_closed(self, messages: Iterable[OutgoingMessage | None]) -> Messages:
        """Yield messages until stdout takes no more rows.

        The messages that were read before are sent, and count for the exit code.
        """
        for message in messages:
            if message is not None:
                self._last_source = message.source
            yield message
            if self._is_closed:
                self._is_unread = True
                return

    @contextmanager
    def _while_read(self) -> Iterator[None]:
        """Note that stdout takes no more rows, instead of ending for it.

        What is sent already is then counted and said; without that it is sent again.
        """
        try:
            yield
        except BrokenPipeError:
            self._is_closed = True
        except OSError as error:
            self._is_closed = True
            self._output_error = error

    def _write(self, outcomes: Sequence[SendOutcome]) -> None:
        rows = []
        is_table = self._common.output == "table" and not self._is_summary
        for outcome in outcomes:
            self._statuses[outcome.status] += 1
            is_stored = outcome.status in _STORED
            if is_stored:
                self._stored += 1
                self._resume_at = None
                queue = outcome.queue
                if queue is not None:
                    self._queues[queue.broker_name, queue.queue_id] += 1
            else:
                self._resume_at = self._resume_at or outcome.source
                self._first_error = self._first_error or outcome.error
            if is_stored and is_table and self._stored > TABLE_ROWS_MAX:
                self._left_out += 1
            else:
                rows.append(self._row(outcome))
        if self._is_summary:
            rows = self._hold_back(rows)
        self._put(rows)

    def _put(self, rows: list[dict[str, object]]) -> None:
        with self._while_read():
            if not self._is_closed:
                self._writer.write(rows)

    def _row(self, outcome: SendOutcome) -> dict[str, object]:
        """The row of an outcome. A table does not repeat the error that ends it."""
        row = row_of(COLUMNS, outcome)
        first = self._first_error
        is_last_word = first is not None and row["error"] == first.message
        if self._common.output == "table" and is_last_word:
            row["error"] = "see below"
        return row

    def _hold_back(self, rows: list[dict[str, object]]) -> list[dict[str, object]]:
        """Hold rows back for a summary; return the rows to write now.

        Rows are held while there are few enough to list them all. As soon as there are
        more, only those whose status is not SEND_OK are written.
        """
        self._held += rows
        if len(self._held) <= SUMMARY_ROWS_MAX and not self._is_cut:
            return []
        self._is_cut = True
        rows = [row for row in self._held if row["status"] != "SEND_OK"]
        self._held = []
        return rows

    def _finish(self, client: Client | None, *, is_cut_short: bool = False) -> None:
        """End the data on stdout, and write remarks on it to stderr."""
        self._put(self._held)
        self._held = []
        count = self._statuses.total()
        weak = self._stored - self._statuses["SEND_OK"]
        unknown = self._statuses["UNKNOWN"]
        if self._common.output == "table" and is_cut_short and not count:
            return  # the error says all; a table without rows would only be in its way
        with self._while_read():
            is_wanted = not self._is_cut or count > self._statuses["SEND_OK"]
            if is_wanted and not self._is_closed:
                self._writer.close()
        messages = self._common.messages
        if self._output_error is not None and self._stored:
            are = counted(self._stored, "message is", "messages are")
            messages.warn(f"{are} sent, and the results do not list all of them")
        if self._left_out:  # what stdout lacks is said even with --quiet
            messages.warn(
                f"{counted(self._left_out, 'sent message')} not listed;"
                " -o jsonl lists all"
            )
        if is_cut_short or count != 1:
            also = f", {unknown} unknown" if unknown else ""
            lost = count - self._stored - unknown
            messages.info(f"{self._stored} sent, {lost} failed{also}")
        if self._is_cut:
            self._say_where()
        options = ["--key", "MSG_ID", "--from", "-15m", "--no-follow"]
        look = command_line("rmq tail", self._options.topic, options=options)
        if unknown:
            messages.warn(
                f"{counted(unknown, 'message')} may or may not be stored, and"
                f" sending again may store a message twice; look for each with: {look}"
            )
        again = self._stored_again
        if again is not None and again.count:
            more = again.count - len(again.msg_ids)
            messages.warn(
                f"{counted(again.count, 'message')} may be stored twice,"
                " sent again after the connection to a broker was lost; look for each"
                f" with: {look}; {'ID' if again.count == 1 else 'IDs'}:"
                f" {', '.join(again.msg_ids)}{f' and {more:,} more' if more else ''}"
            )
        messages.warn_of_weak(weak)
        if client is not None and self._queues:
            self._say_created(client)

    def _say_where(self) -> None:
        """Say how many messages went to each queue, and how many had each result."""
        queues = sorted(self._queues.items())
        shown = ", ".join(f"{name}:{n} {count}" for (name, n), count in queues[:16])
        more = len(queues) - 16
        also = f" and {counted(more, 'more queue')}" if more > 0 else ""
        messages = self._common.messages
        if shown:
            messages.info(f"by queue: {shown}{also}")
        if len(self._statuses) > 1:
            found = sorted(self._statuses.items())
            messages.info("by result: " + ", ".join(f"{s} {n}" for s, n in found))
        messages.info("--rows lists each result, -o jsonl as data")

    def _say_created(self, client: Client) -> None:
        from rmqcli.producer.remoting.target import created_queues

        found = created_queues(
            client,
            self._options.topic,
            {broker_name for broker_name, _ in self._queues},
            timeout_ms=self._common.timeout_ms,
        )
        created = ", ".join(
            f"{name} created it with {counted(queues, 'queue')}"
            for name, queues in sorted(found.items())
        )
        self._common.messages.info(
            f"topic {self._options.topic} did not exist; "
            + (created or "its broker created it, and no name server shows it yet")
        )

    def _cut_short(self, error: UsageError) -> PartialError:
        """The error for an input of which the first messages are sent."""
        return PartialError(
            f"{error.message}; {counted(self._stored, 'message')} before it"
            f" {_be(self._stored)} sent, and nothing from there on",
            hint=error.hint or "correct it, then send the rest of the input",
        )

    def _without_reader(self) -> PartialError:
        """The error for input that was left because stdout took no more results."""
        why = "the reader of stdout has closed it"
        hint = "send the rest, and let the results be read to their end"
        if self._output_error is not None:
            from rmqcli.cli.ui.errors import describe

            why = describe(self._output_error).message
            hint = "send the rest, and write the results where there is room"
        rest = f"nothing after {self._last_source}" if self._last_source else "not all"
        return PartialError(
            f"{why}: {rest} is sent, {counted(self._stored, 'message')} before",
            hint=hint,
        )

    def _raise_failures(self, given_up: RmqError | None) -> None:
        if given_up is not None:
            resume = ""
            if self._resume_at is not None:
                resume = f"; nothing from {self._resume_at} on is known to be stored"
            server = "proxy" if self._common.endpoints else "broker"
            self._common.messages.warn(
                f"gave up: no {server} can be reached; the rest of the input was not"
                f" read{resume}"
            )
        total, unknown = self._statuses.total(), self._statuses["UNKNOWN"]
        lost = total - self._stored - unknown
        if total == self._stored:
            return
        first = self._first_error
        assert first is not None  # of the first that failed  # noqa: S101
        if not self._stored:
            if lost > 1:
                self._common.messages.warn(f"{counted(lost, 'message')} are not stored")
            raise first
        what = f"{lost:,} of {counted(total, 'message')} {_be(lost)} not stored"
        if not lost:
            what = (
                f"it is unknown whether {unknown:,} of {counted(total, 'message')}"
                f" {_be(unknown)} stored"
            )
        elif unknown:
            what += f", and it is unknown whether {unknown:,} {_be(unknown)}"
        raise PartialError(f"{what}: {first.message}", hint=first.hint)


def _be(count: int) -> str:
    return "is" if count == 1 else "are"


def _warn_of_keys(common: Common, keys: Sequence[str]) -> None:
    for key in keys:
        parts = key.split(" ")
        if len(parts) > 1:
            found = " and ".join(repr(part) for part in parts if part)
            common.messages.warn(
                f"--key {key!r}: RocketMQ separates keys by spaces, so brokers index it"
                f" as {found or 'nothing'}"
            )
