"""Runs `rmq consume`: checks the topics, joins the group, waits, and leaves.

The main thread waits and writes to stderr; messages are consumed in the consumer's
threads.
"""

from __future__ import annotations

import contextlib
import gc
import os
import shlex
import shutil
import sys
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

from rmqcli.admin.brokers import ask_each
from rmqcli.api.broker_errors import not_found
from rmqcli.api.calls.config import (
    get_all_subscription_group_config,
    get_broker_config,
    get_subscription_group_config,
)
from rmqcli.api.client import Client
from rmqcli.cli.consume.counts import Counts
from rmqcli.cli.consume.failed import FailedDeliveries
from rmqcli.cli.consume.listeners import CommandRunner, Printer
from rmqcli.cli.consume.start import Starts, read_committed, read_min_offsets
from rmqcli.cli.consume.status import Status
from rmqcli.cli.selection import readable_queues, subscriptions_of, writer_of
from rmqcli.cli.ui.messages import is_terminal
from rmqcli.cli.ui.records.proxied import ProxyRecord
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.consumer.consumer import Consumer
from rmqcli.dataclass import dataclass
from rmqcli.engine.config import ConsumerConfig, MessageModel
from rmqcli.errors import (
    ConfigError,
    ExitCode,
    NotFoundError,
    PartialError,
    RmqError,
    UnsupportedError,
)
from rmqcli.hint import command_line
from rmqcli.model import dlq_topic
from rmqcli.position import AtTime, Earliest, Latest, Position
from rmqcli.units import format_duration
from rmqcli.wire.message.json import JsonWriter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import tzinfo

    from rmqcli.cli.consume.command import ConsumeOptions
    from rmqcli.cli.options import Common
    from rmqcli.model import MessageQueue

#: How long messages in progress may take to finish when the consumer leaves.
DRAIN_MS: Final = 30_000
#: After this long without an answer, a broker is asked whether it still answers.
_PROBE_MS: Final = 3_000
#: Time between two updates of the status.
_LOOK_MS: Final = 500
#: New objects after which Python collects garbage. With its default of 700 it traverses
#: the cached messages again and again, which costs a fifth of the speed with 1,024
#: queues.
_GC_THRESHOLD: Final = 50_000
#: A generous limit for the end of a command that has exceeded --exec-timeout.
_KILL_MS: Final = 60_000
_CONSUME_TIMEOUT_MS: Final = 15 * 60 * 1_000  # consumeTimeout
_CONSUME_TIMEOUT_MS_MAX: Final = 24 * 60 * 60 * 1_000
#: Default batch size if messages are printed, without --count and --orderly.
_LINES: Final = 32


class _Member(Consumer):
    """A consumer that says how its close went."""

    @property
    def is_confirmed(self) -> bool:
        """False after a close whose commits or acks were not all confirmed."""
        return self._backend.is_confirmed

    @property
    def refused(self) -> Mapping[MessageQueue, RmqError]:
        """After a close: queues from which nothing could be received, and why."""
        return self._backend.refused


class _Counted(_Member):
    """A consumer for --count.

    It consumes in turn: else the last messages could be granted before an earlier one.
    """

    _shares_slow_pulls = False

    def __init__(self, counts: Counts, *args: Any, **options: Any) -> None:
        self._counts = counts
        super().__init__(*args, **options)

    def _wanted(self) -> int | None:
        return self._counts.wanted()


@dataclass(frozen=True, slots=True)
class StartAt:
    """The value of `--from`; `text` is the same position for `reset-offset --to`."""

    position: Position = field(default_factory=Latest)
    text: str = "latest"

    @property
    def echo(self) -> str:
        """The time with its zone, which `show_times` shows; "" for other positions."""
        return self.position.echo if isinstance(self.position, AtTime) else ""

    def in_zone(self, tz: tzinfo) -> StartAt:
        """Return the same start, with a time without a zone as one of `tz`."""
        if not isinstance(self.position, AtTime):
            return self
        return StartAt(self.position.in_zone(tz), self.text)


def config_of(options: ConsumeOptions) -> ConsumerConfig:
    """Return the settings of the engine."""
    model = MessageModel.BROADCASTING if options.broadcast else MessageModel.CLUSTERING
    return ConsumerConfig(
        message_model=model,
        consume_threads=options.consume_threads,
        consume_message_batch_max_size=_batch_size(options),
        pull_batch_size=options.pull_batch,
        max_reconsume_times=options.max_retries,
        await_termination_ms=DRAIN_MS,
        consume_timeout_ms=_consume_timeout_ms(options),
        probe_broker_interval_ms=_PROBE_MS,
    )


def _consume_timeout_ms(options: ConsumeOptions) -> int:
    """Return after how long a message is sent back although its listener still runs.

    With `--exec` that is longer than the command may run, up to 24 h, because otherwise
    the message would be consumed twice.
    """
    if options.exec_ is None:
        return _CONSUME_TIMEOUT_MS
    if options.exec_timeout is None:
        return _CONSUME_TIMEOUT_MS_MAX
    longest_ms: int = options.exec_timeout + _KILL_MS
    return min(max(_CONSUME_TIMEOUT_MS, longest_ms), _CONSUME_TIMEOUT_MS_MAX)


def _batch_size(options: ConsumeOptions) -> int:
    if options.batch is not None:
        return options.batch
    is_free = options.exec_ is None and options.count is None and not options.orderly
    return _LINES if is_free else 1


def run_consume(common: Common, options: ConsumeOptions) -> None:
    """Consume until there is a reason to end.

    Raises KeyboardInterrupt after a signal, once everything is committed.
    """
    run = _Run(common, options)
    run.check()
    thresholds = gc.get_threshold()
    gc.set_threshold(_GC_THRESHOLD)
    try:
        run.consume()
    except BaseException as error:
        run.leave(error)
        raise
    finally:
        gc.set_threshold(*thresholds)
    run.leave()


class _Run:
    """One run of the command."""

    def __init__(self, common: Common, options: ConsumeOptions) -> None:
        self._common = common
        self._options = options
        self._counts = counts = Counts(options.count, failures_max=options.failures_max)
        self._client_config = common.client_config()
        self._by_proxy = bool(common.endpoints)
        self._has_joined = False
        self._failed = FailedDeliveries(options.group, counts, self._client_config)
        config = config_of(options)
        # A line that is redrawn would disturb the output of a command on a terminal.
        in_place = options.exec_ is None or not is_terminal(sys.stdout)
        self.status = Status(
            common.messages,
            counts,
            pull_threshold_for_queue=config.pull_threshold_for_queue,
            in_place=in_place,
            by_proxy=self._by_proxy,
        )
        self._starts = None if self._by_proxy else _starts(options, counts)
        self._listener = self._make_listener()
        make = _Member if options.count is None else partial(_Counted, counts)
        self._consumer = make(
            options.group,
            subscriptions_of(options),
            on_batch=self._listener.on_batch,
            orderly=options.orderly,
            consume_from=None
            if self._by_proxy
            else (options.from_ or StartAt()).position,
            config=config,
            client=self._client_config,
            on_undecodable=self._listener.on_undecodable,
            on_failed=self._failed.on_failed,
            on_start=None if self._starts is None else self._starts.on_start,
            trace=options.trace,
        )

    def _make_listener(self) -> Printer | CommandRunner:
        options = self._options
        as_record = ProxyRecord if self._by_proxy else None
        if options.exec_ is None:
            writer = writer_of(self._common, options)
            return Printer(
                writer, self._counts, self.status.paused, as_record=as_record
            )
        arguments = ["/bin/sh", "-c", options.exec_]
        if not options.shell:
            arguments = shlex.split(options.exec_)
            program = arguments[0]
            if shutil.which(program) is None:
                raise ConfigError(
                    f"--exec: program {program} not found",
                    hint="check that it exists and is executable, or add --shell for"
                    " shell syntax",
                )
        return CommandRunner(
            arguments=arguments,
            raw=options.exec_input == "raw",
            lines=JsonWriter(options.decode),
            timeout_ms=options.exec_timeout,
            counts=self._counts,
            failed=self._failed,
            warn=self.status.warn,
            as_record=as_record,
        )

    def check(self) -> None:
        """Check topics and group, and read its offsets, before the consumer joins.

        Through a proxy, `Consumer.start` checks the topics and the group.
        """
        options = self._options
        if self._starts is None:
            return
        with Client(self._client_config) as client:
            for topic in options.topic_names:
                readable_queues(client, topic)
            lossy = _check_group(client, options.group, options.topic_names)
            if lossy and not options.broadcast and not options.orderly:
                self.status.warn(
                    f"messages that fail are lost: group {options.group} has no retry"
                    f" queue at {', '.join(lossy)}"
                )
            if not options.broadcast:
                self._starts.committed = read_committed(
                    client, options.group, options.topic_names
                )
            if options.from_ is not None and options.from_.position == Earliest():
                self._starts.min_offsets = read_min_offsets(client, options.topic_names)

    def consume(self) -> None:
        """Join the group, and wait until there is a reason to end."""
        options, counts, status = self._options, self._counts, self.status
        started_ms = SYSTEM_CLOCK.monotonic_ms()
        try:
            self._consumer.start()
        except RmqError as error:
            if options.sql is not None:
                from rmqcli.admin.tail.sql import explain_sql

                raise explain_sql(error) from None
            raise
        self._has_joined = True
        by = f" through {self._common.endpoints[0]}" if self._by_proxy else ""
        status.say(f"joined group {options.group} as {self._consumer.client_id}{by}")
        while not counts.ended.is_set():
            wait_ms = _LOOK_MS
            if options.for_ is not None:
                spent_ms = SYSTEM_CLOCK.monotonic_ms() - started_ms
                if spent_ms >= options.for_:
                    return
                wait_ms = min(wait_ms, options.for_ - spent_ms)
            if self._starts is not None:
                self._starts.say(status)
            self._failed.say(status)
            status.look(self._consumer)
            counts.has_news.wait(wait_ms / 1000)
            counts.has_news.clear()

    def leave(self, error: BaseException | None = None) -> None:
        """Finish messages in progress, commit, leave the group, and show a summary.

        `error` is the exception that ended the run, if any. Raises the error of a
        listener, or one for failed deliveries. Exits the process at once if messages in
        progress do not finish, or after a second interrupt.
        """
        counts, status = self._counts, self.status
        is_interrupted = isinstance(error, KeyboardInterrupt)
        try:
            if is_interrupted:
                status.say(
                    "finishing messages in progress; press Ctrl-C again to abandon them"
                )
            counts.drain()
            self._consumer.close(timeout_ms=DRAIN_MS)
        except KeyboardInterrupt:
            status.warn("stopped at once: messages in progress will be delivered again")
            self._leave_at_once(ExitCode.INTERRUPTED)
        is_stuck = counts.at_work > 0 or not self._listener.close()
        status.clear()
        if self._starts is not None:
            self._starts.say(status, is_last=True)
        self._failed.close(status)
        if self._has_joined:
            status.say_owned()
            status.say(status.summary())
        if is_stuck:
            status.warn(
                f"stopped after {format_duration(DRAIN_MS)} with messages still in"
                " progress: they will be consumed again"
            )
            code = ExitCode.INTERRUPTED if is_interrupted else ExitCode.FAILED
            self._leave_at_once(code)
        if counts.error is not None:
            raise counts.error
        failure = counts.failure()
        if error is None and failure is None and not self._consumer.is_confirmed:
            raise PartialError(
                "not every message that was consumed is known to be committed: the"
                f" group {self._options.group} may receive some again",
                hint="see where it stands with:"
                f" {command_line('rmq lag', self._options.group)}",
            )
        refused = self._consumer.refused
        if error is None and failure is None and refused:
            queue, first = next(iter(refused.items()))
            raise PartialError(
                f"nothing could be received from {queue.broker_name}: {first.message}",
                hint=first.hint,
            )
        if error is None and failure is not None:
            if failure.hint == "" and counts.has_dead_letters():
                options = ["--from", "earliest", "--to", "latest"]
                if self._by_proxy:
                    options += ["--namesrv", "HOST:PORT"]
                letters = dlq_topic(self._options.group)
                read = command_line("rmq tail", letters, options=options)
                failure.hint = f"read the dead letters with: {read}"
            raise failure

    def _leave_at_once(self, code: ExitCode) -> NoReturn:
        """Exit at once: Python's own exit would wait for threads that do not end."""
        self._counts.end()
        self._listener.kill()
        os._exit(code)


def _check_group(client: Client, group: str, topics: Iterable[str]) -> list[str]:
    """Return the brokers of the topics at which the group has no retry queue.

    Raises NotFoundError if one neither has nor creates the group: it would refuse each
    pull, or not even tell the group's members. What a broker does not answer is not
    checked.
    """
    at: dict[str, str] = {}
    for route in map(client.route, topics):
        for queue in route.read_queues():
            with contextlib.suppress(RmqError):
                at[queue.broker_name] = client.master_of(route, queue.broker_name)
    found = ask_each(client, at, get_subscription_group_config(group))
    older = {n: at[n] for n, e in found.items() if isinstance(e, UnsupportedError)}
    refusing = [n for n, each in found.items() if isinstance(each, NotFoundError)]
    known = ask_each(client, older, get_all_subscription_group_config())
    settings = ask_each(client, older, get_broker_config())
    for name, groups in known.items():
        config = settings[name]
        if isinstance(groups, RmqError):
            continue
        if group in groups:
            found[name] = groups[group]
        elif (
            not isinstance(config, RmqError)
            and config.get("autoCreateSubscriptionGroup") == "false"
        ):
            refusing.append(name)
    if refusing:
        raise not_found(
            "group",
            group,
            meant=f"clients cannot create groups at {', '.join(refusing)}",
            hint=f"create it with: rmq group create {shlex.quote(group)}",
        )
    return [
        name
        for name, each in found.items()
        if not isinstance(each, RmqError) and each.retry_queue_nums < 1
    ]


def _starts(options: ConsumeOptions, counts: Counts) -> Starts:
    start = options.from_ or StartAt()
    names = options.group, options.topic_names[0]
    return Starts(
        counts,
        position=start.position,
        is_typed=options.from_ is not None,
        reset_hint=command_line(
            "rmq reset-offset", *names, options=["--to", start.text]
        ),
        is_local=options.broadcast,
    )
