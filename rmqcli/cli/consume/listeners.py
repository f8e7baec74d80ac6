"""The two listeners of `rmq consume`: one prints, one runs a command (`--exec`).

`Printer` uses the writers of `rmq tail`. A message is consumed once its line is written
and flushed. If that fails, because the reader has closed the pipe or the disk is full,
messages that were not written are not acknowledged.

`CommandRunner` runs a command for each message or batch; exit status 0 means consumed.
The command reads the message from stdin. Its environment describes the message, and
lacks the access keys of the cluster. It inherits stdout and stderr. Each command runs
in its own process group, so that Ctrl-C on a terminal reaches only this process, which
lets running commands end. If a command takes too long, its process group receives
SIGTERM, and then SIGKILL.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from contextlib import suppress
from dataclasses import field
from typing import TYPE_CHECKING, Any, cast

from rmqcli.admin.tail.batch import TailCounts
from rmqcli.admin.tail.filter import TailFilter
from rmqcli.cli.ui.escape import safe_json
from rmqcli.clock import SYSTEM_CLOCK, Deadline
from rmqcli.credentials import without_secrets
from rmqcli.dataclass import dataclass
from rmqcli.engine.listener import LeaveRest
from rmqcli.errors import DecodeError
from rmqcli.hint import command_line
from rmqcli.model import RETRY_GROUP_TOPIC_PREFIX, MessageQueue
from rmqcli.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from rmqcli.admin.tail.batch import Batcher
    from rmqcli.cli.consume.counts import Counts
    from rmqcli.cli.consume.failed import FailedDeliveries
    from rmqcli.cli.ui.records.output import Writer
    from rmqcli.engine.message import PulledMessage, UndecodableMessage
    from rmqcli.model import Message
    from rmqcli.wire.message.json import JsonWriter
    from rmqcli.wire.message.record import PartialMessage, Record

    #: Makes the record of a message that is not a record itself.
    AsRecord = Callable[[Any], PartialMessage]

#: How long `close` waits for a thread that is writing.
_CLOSE_WAIT_S = 1.0
#: Bytes of a value. Linux limits a variable, NAME=VALUE, to 128 KiB (MAX_ARG_STRLEN).
_VARIABLE_BYTES_MAX = 128 * 1024 - 64
#: How long a command may take to end after SIGTERM.
TERM_GRACE_MS = 5_000
_LOOK_MS = 20


@dataclass(slots=True, eq=False)
class Printer:
    """A listener that prints messages. It writes within `around_write()`.

    `as_record` makes the record of a message; None if messages are records.
    """

    writer: Writer
    counts: Counts
    around_write: Callable[[], AbstractContextManager[None]]
    as_record: AsRecord | None = field(default=None, kw_only=True)
    _batcher: Batcher[Any] = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __post_init__(self) -> None:
        self._batcher = self.writer.batcher(TailFilter(), TailCounts())

    def on_batch(self, messages: Sequence[Message], _context: object) -> bool:
        """Write messages of one queue. Raises LeaveRest if some were not written."""
        granted = self.counts.take(len(messages))
        shown = messages[:granted]
        if shown:
            records = _records(shown, self.as_record)
            self._write(shown[0].message_queue, records)
        if granted < len(messages):
            raise LeaveRest(granted)
        return True

    def on_undecodable(self, message: UndecodableMessage) -> None:
        """Write an error record in place of the message."""
        if not self.counts.take(1):
            raise LeaveRest
        self._write(message.message_queue, [message.failure], undecodable=1)

    def close(self) -> bool:
        """Write the end of the output; return False if a thread is stuck in a write."""
        if not self._lock.acquire(timeout=_CLOSE_WAIT_S):
            return False
        try:
            if self.counts.error is None:
                self.writer.close()
        finally:
            self._lock.release()
        return True

    def kill(self) -> None:
        """Do nothing: this listener has started no process."""

    def _write(
        self,
        queue: MessageQueue,
        messages: Sequence[Record],
        *,
        undecodable: int = 0,
    ) -> None:
        is_written = False
        try:
            with self._lock:
                if self.counts.error is None:
                    before = self._batcher.counts.undecodable
                    items = self._items(queue, messages)
                    undecodable += self._batcher.counts.undecodable - before
                    with self.around_write():
                        self.writer.write(items)
                    is_written = True
        except Exception as error:  # noqa: BLE001  # raised again where the command ends
            self.counts.end(error)
        finally:
            self.counts.settle(
                len(messages), consumed=is_written, undecodable=undecodable
            )
        if not is_written:
            raise LeaveRest

    def _items(self, queue: MessageQueue, messages: Sequence[Record]) -> list[Any]:
        """Return the items to write; a retry is shown under its original topic."""
        if not queue.topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            return self._batcher.items(queue, messages)
        items: list[Any] = []
        for message in messages:
            topic = getattr(message, "topic", queue.topic)
            origin = MessageQueue(topic, queue.broker_name, queue.queue_id)
            items += self._batcher.items(origin, [message])
        return items


@dataclass(slots=True, kw_only=True, eq=False)
class CommandRunner:
    """A listener that runs a command, for at most `timeout_ms` (None: no limit).

    `lines` makes what the command reads, unless it reads `raw` bodies. `failed` records
    why a delivery failed, and `warn` shows warnings. `as_record` is the same as for
    `Printer`.
    """

    arguments: list[str]
    raw: bool
    lines: JsonWriter
    timeout_ms: int | None
    counts: Counts
    failed: FailedDeliveries
    warn: Callable[[str], None]
    as_record: AsRecord | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _running: set[subprocess.Popen[bytes]] = field(default_factory=set, init=False)
    _is_killed: bool = field(default=False, init=False)

    def on_batch(self, messages: Sequence[Message], _context: object) -> bool:
        """Run the command. Raises LeaveRest if it did not receive some messages."""
        granted = self.counts.take(len(messages))
        if not granted:
            raise LeaveRest
        shown = messages[:granted]
        is_consumed = False
        try:
            is_consumed = self._run(shown)
        finally:
            self.counts.settle(granted, consumed=is_consumed)
        if not is_consumed:
            # A batch has one result, so messages beyond --count go back with it.
            self.counts.fail(granted)
            return False
        if granted < len(messages):
            raise LeaveRest(granted)
        return True

    def on_undecodable(self, message: UndecodableMessage) -> None:
        """Skip the message with a warning: a command could never read it."""
        queue, offset = message.message_queue, message.queue_offset
        if not self.counts.take(1):
            raise LeaveRest
        self.counts.settle(1, consumed=True, undecodable=1)
        options = ["--queue", f"{queue.broker_name}:{queue.queue_id}"]
        options += ["--from", f"{offset}", "--to", f"{offset + 1}", "-o", "jsonl"]
        show = command_line("rmq tail", queue.topic, options=options)
        self.warn(
            f"{queue} offset {offset} cannot be decoded and is skipped:"
            f" {message.failure.error}; show it with: {show}"
        )

    def close(self) -> bool:
        """Return True: there is no output to end."""
        return True

    def kill(self) -> None:
        """Send SIGTERM to all running commands, and start no more."""
        with self._lock:
            self._is_killed = True
            for process in self._running:
                _signal_group(process, signal.SIGTERM)

    def _run(self, messages: Sequence[Message]) -> bool:
        try:
            given = self._input(messages)
        except DecodeError as error:
            self.failed.explain(
                messages[0], f"its body cannot be read: {error.message}"
            )
            return False
        try:
            with self._lock:
                if self._is_killed:
                    raise LeaveRest
                process = subprocess.Popen(  # noqa: S603  # what the user typed
                    self.arguments,
                    stdin=subprocess.PIPE,
                    env=_environment(messages),
                    process_group=0,
                )
                self._running.add(process)
        except OSError as error:
            # The message did not cause this, and the next would fail, too.
            self.counts.end(error)
            raise LeaveRest from None
        limit_s = None if self.timeout_ms is None else self.timeout_ms / 1000
        is_late = False
        try:
            # The command need not read all of its input.
            process.communicate(given, timeout=limit_s)
        except subprocess.TimeoutExpired:
            is_late = True
            _end_group(process)
        finally:
            with self._lock:
                self._running.discard(process)
        reason = _failure(process.returncode)
        if is_late:
            limit = format_duration(self.timeout_ms or 0)
            reason = (
                f"the command ran longer than {limit} (--exec-timeout) and was"
                " terminated"
            )
        if reason is not None:
            for message in messages:
                self.failed.explain(message, reason)
        return reason is None

    def _input(self, messages: Sequence[Message]) -> bytes:
        if self.raw:
            return messages[0].body
        records = _records(messages, self.as_record)
        lines = [
            self.lines.lines(_queue_of(message), [record])[0] + "\n"
            for message, record in zip(messages, records, strict=True)
        ]
        return safe_json("".join(lines)).encode()


def _records(
    messages: Sequence[Message], as_record: AsRecord | None
) -> Sequence[Record]:
    if as_record is not None:
        return [as_record(each) for each in messages]
    return cast("Sequence[PulledMessage]", messages)  # over remoting


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Send SIGTERM to the command's process group, and SIGKILL when the command ends.

    SIGKILL is sent after TERM_GRACE_MS at the latest. The command is reaped only after
    it, because until then no other process group can get the same number.
    """
    _signal_group(process, signal.SIGTERM)
    grace, never = Deadline(SYSTEM_CLOCK, TERM_GRACE_MS), threading.Event()
    while not grace.is_over() and not _has_ended(process):
        SYSTEM_CLOCK.wait_ms(never, _LOOK_MS)
    _signal_group(process, signal.SIGKILL)
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()
    process.wait()


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_PID, process.pid, flags) is not None


def _signal_group(process: subprocess.Popen[bytes], signum: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signum)


def _failure(status: int) -> str | None:
    """Return why a command that ended with this status failed; None if it did not."""
    if not status:
        return None
    how = f"exit status {status}"
    if status < 0:
        how = f"signal {-status}"
        with suppress(ValueError):  # not a signal that Python knows
            how = f"signal {signal.Signals(-status).name}"
    return f"the command ended with {how}"


def _queue_of(message: Message) -> MessageQueue:
    """Return the queue of a message, with the topic that it was sent to."""
    queue = message.message_queue
    return MessageQueue(message.topic, queue.broker_name, queue.queue_id)


def _environment(messages: Sequence[Message]) -> dict[bytes, bytes]:
    """Return this process's variables without secrets, and those of the first message.

    A field that the message lacks is an empty variable.
    """
    first = messages[0]
    values: dict[str, object] = {
        "RMQ_TOPIC": first.topic,
        "RMQ_BROKER_NAME": first.broker_name,
        "RMQ_QUEUE_ID": first.queue_id,
        "RMQ_OFFSET": first.queue_offset,
        "RMQ_KEYS": first.keys,
        "RMQ_TAGS": first.tags,
        "RMQ_RECONSUME_TIMES": first.reconsume_times,
        "RMQ_COUNT": len(messages),
    }
    environ = {
        os.fsencode(name): os.fsencode(value)
        for name, value in without_secrets(os.environ).items()
    }
    return environ | {name.encode(): _variable(each) for name, each in values.items()}


def _variable(value: object) -> bytes:
    """Encode the value of a variable, which is empty for None.

    Zero bytes, which end a variable and which a peer may send, are removed. A value
    that is too long is cut.
    """
    text = "" if value is None else str(value).replace("\0", "")
    return text.encode("utf-8", "backslashreplace")[:_VARIABLE_BYTES_MAX]
