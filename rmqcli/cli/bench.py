"""`rmq bench`: how fast a cluster stores, delivers and passes on messages.

`rmqcli.benchmark.runs` measures. Here are the options, and how results are shown. What
was measured until an interrupt is shown, too; the exit code is then 130.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from rmqcli.cli.options import (
    MISSING,
    Common,
    argument,
    command_options,
    duration_option,
    option,
)
from rmqcli.cli.ui.escape import safe
from rmqcli.cli.ui.output import Column, emit_json, row_of
from rmqcli.dataclass import dataclass
from rmqcli.errors import NotFoundError, PartialError, RmqError, TextError, UsageError
from rmqcli.producer.pace import parse_rate
from rmqcli.units import counted, format_duration, format_size, parse_size_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.benchmark.result import BenchResult
    from rmqcli.benchmark.runs import Bench, Load
    from rmqcli.config import ClientConfig

_LOAD = "How much"
_how = partial(option, section="How")
DURATION_DEFAULT_MS = 10_000
WARM_UP_DEFAULT_MS = 1_000
#: No broker accepts a larger message.
_SIZE_MAX = 16 << 20
GROUP_DEFAULT = "rmq-bench-latency"

COLUMNS = (
    Column("kind", "produce, consume or latency"),
    Column("topic", "the topic"),
    Column("settings", "what was measured: size, threads, batch, acks and more"),
    Column("elapsed_ms", "how long was measured, without the warm-up"),
    Column("quiet_ms", "how long before the end the last message was counted"),
    Column("warm_up_messages", "messages that were stored or consumed in the warm-up"),
    Column("messages", "messages that were stored or consumed in that time"),
    Column("body_bytes", "bytes of their bodies"),
    Column("messages_per_s", "messages a second; null if nothing was measured"),
    Column("bytes_per_s", "bytes of bodies a second"),
    Column("statuses", "sends by status, such as SEND_OK or FLUSH_DISK_TIMEOUT"),
    Column("failed", "messages that failed"),
    Column("failures", "these by their reason"),
    Column("unknown", "failed messages that may be stored, because no answer came"),
    Column(
        "latency_us",
        "count, min, mean, p50, p90, p99, p99_9 and max, in microseconds; null if"
        " nothing was measured",
    ),
    Column("latency_of", "from what to what these are"),
    Column(
        "more", "what else was counted: sent, not_received, received_twice, not_stored"
    ),
    Column("cpu", "share of one core that rmq used; near 1, rmq was the limit"),
    Column("ended_by", "count, time, interrupt or error"),
)
_TABLE = (Column("measure"), Column("value"))


def _parse_body_size(text: str) -> int:
    size = parse_size_bytes(text)
    if not 1 <= size <= _SIZE_MAX:
        raise TextError(text, f"not between 1 and {format_size(_SIZE_MAX)}")
    return size


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """The options that all benchmarks have."""

    topic: str = argument(help="Topic to use.")
    count: int | None = option(min=1, section=_LOAD, help="End after N messages.")
    for_: int | None = duration_option(
        section=_LOAD, help="Measure this long (default: 10s, or --count)."
    )
    warm_up: int | None = duration_option(
        section=_LOAD,
        help="Time before that, not measured (default: 1s, or 0 with --count).",
    )

    def amount(self) -> dict[str, Any]:
        """Return the fields of a Load. Raises UsageError."""
        if self.for_ == 0:
            raise UsageError("--for must be greater than zero")
        duration_ms = self.for_
        if duration_ms is None and self.count is None:
            duration_ms = DURATION_DEFAULT_MS
        warm_up_ms = self.warm_up
        if warm_up_ms is None:
            warm_up_ms = 0 if self.count is not None else WARM_UP_DEFAULT_MS
        return {
            "topic": self.topic,
            "count": self.count,
            "duration_ms": duration_ms,
            "warm_up_ms": warm_up_ms,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SendBenchOptions(BenchOptions):
    """The options of benchmarks that send."""

    size: Any = _how(
        default=1024,
        parser=_parse_body_size,
        help="Size of a body: random bytes, not compressed.",
        show_default=False,
    )
    create: bool = _how(default=False, help="Create the topic if it does not exist.")


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchProduceOptions(SendBenchOptions):
    """The options of `rmq bench produce`."""

    rate: Any = _how(
        parser=parse_rate,
        help="Send at this rate (100/s) instead of as fast as possible.",
    )
    in_flight: int | None = _how(
        min=1, max=1_000_000, help="Messages that may wait for answers (default: 1024)."
    )
    threads: int | None = _how(
        min=1, max=1024, help="Instead, threads that each wait for every answer."
    )
    batch: int = _how(
        default=1, min=1, max=10_000, help="Messages in a request of a thread."
    )
    acks: str = _how(
        default="all",
        choices=("all", "none"),
        help="Wait for brokers' answers, or send one-way.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchConsumeOptions(BenchOptions):
    """The options of `rmq bench consume`."""

    group: str = _how("--group", "-g", default=MISSING, help="Group to join.")
    from_: str = _how(
        default="earliest",
        choices=("earliest", "latest"),
        help="Where a group begins that has committed nothing.",
    )
    threads: int = _how(default=20, min=1, max=1000, help="Number of consumer threads.")
    batch: int = _how(
        default=32,
        min=1,
        max=1024,
        help="Messages that the listener gets at once, at most.",
    )
    pull_batch: int = _how(
        default=32, min=1, max=1024, help="Messages that are pulled at once, at most."
    )
    orderly: bool = _how(default=False, help="Consume each queue in order.")


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchLatencyOptions(SendBenchOptions):
    """The options of `rmq bench latency`."""

    rate: Any = _how(
        default=100, parser=parse_rate, help="Send at this rate.", show_default=False
    )
    group: str = _how(
        "--group", "-g", default=GROUP_DEFAULT, help="Group that receives the messages."
    )


@command_options(BenchProduceOptions, fields=COLUMNS, is_load=True)
def produce(common: Common, options: BenchProduceOptions) -> None:
    """Measure how fast brokers store messages.

    Example: rmq bench produce bench --create --size 1KiB --for 30s
             rmq bench produce bench --threads 8 --batch 32 -o json

    The messages stay in the topic: use one that no one consumes. Requests are not
    retried. With --rate a latency begins when the message was due, so that a pause of a
    broker counts for all messages that it holds up. A benchmark is refused if a profile
    of the cluster is protected or read-only.
    """
    from rmqcli.benchmark.runs import ProduceBench, ProduceLoad

    amount = options.amount()
    threads = options.threads
    if threads is not None and options.in_flight is not None:
        raise UsageError("--threads and --in-flight cannot be used together")
    if options.acks == "none":
        if options.in_flight is not None or options.batch > 1:
            raise UsageError(
                "--acks none sends each message alone, and waits for nothing",
                hint="leave out --in-flight and --batch",
            )
        threads = threads or 1
    if options.batch > 1 and threads is None:
        raise UsageError(
            "--batch needs --threads",
            hint="without --threads, messages that wait share requests anyway",
        )
    load = ProduceLoad(
        **amount,
        size_bytes=options.size,
        rate_per_s=options.rate,
        threads=threads,
        in_flight=options.in_flight or 1024,
        batch=options.batch,
        acks=options.acks,
    )
    _run(common, ProduceBench, load, create=options.create)


@command_options(BenchConsumeOptions, fields=COLUMNS, is_load=True)
def consume(common: Common, options: BenchConsumeOptions) -> None:
    """Measure how fast a group consumes, with a listener that does nothing.

    Example: rmq bench consume bench --group bench --count 1000000

    The group commits what it has consumed: give it a group of its own. The latencies
    are the ages of messages, from their store time to the listener. A benchmark is
    refused if a profile of the cluster is protected or read-only.
    """
    from rmqcli.benchmark.runs import ConsumeBench, ConsumeLoad

    load = ConsumeLoad(
        **options.amount(),
        group=options.group,
        from_=options.from_,
        threads=options.threads,
        batch=options.batch,
        pull_batch=options.pull_batch,
        orderly=options.orderly,
    )
    _run(common, ConsumeBench, load)


@command_options(BenchLatencyOptions, fields=COLUMNS, is_load=True)
def latency(common: Common, options: BenchLatencyOptions) -> None:
    """Measure how long messages take from the sender to the listener.

    Example: rmq bench latency bench --create --rate 100/s --for 30s

    One process sends and receives, so the latencies depend on one clock. Its group
    stays, with its committed offsets. Other messages of the topic are ignored. A
    benchmark is refused if a profile of the cluster is protected or read-only.
    """
    from rmqcli.benchmark.runs import LatencyBench, LatencyLoad

    load = LatencyLoad(
        **options.amount(),
        size_bytes=options.size,
        rate_per_s=options.rate,
        group=options.group,
    )
    _run(common, LatencyBench, load, create=options.create)


def _check_topic(
    config: ClientConfig, topic: str, *, create: bool
) -> dict[str, RmqError]:
    """Raise NotFoundError unless the topic exists; create it if that is wanted.

    Returns the brokers that have left its route: what they would do is not measured.
    """
    from rmqcli.admin.brokers import have_left
    from rmqcli.admin.lag.memory import departed_errors_of
    from rmqcli.admin.topics import TopicChange, choose_masters, create_topic
    from rmqcli.api.client import Client
    from rmqcli.names import check_topic

    check_topic(topic)
    with Client(config) as client:
        try:
            client.route(topic)
        except NotFoundError as error:
            if not create:
                error.hint = "add --create to create it"
                raise
            masters = choose_masters(client, cluster=None, brokers=())
            steps = create_topic(client, topic, masters, TopicChange())
            failed = {s.server: s.error for s in steps if s.error is not None}
            for each in failed.values():
                if not have_left([each]):
                    raise each from None
            client.route(topic, refresh=True)
            return failed
        return departed_errors_of(client, [topic])


def _run(
    common: Common,
    make: Callable[[ClientConfig, Any], Bench],
    load: Load,
    *,
    create: bool = False,
) -> None:
    from rmqcli.cli.by_broker import raise_if_silent
    from rmqcli.cli.ui.progress import Progress

    config = common.client_config()
    departed = _check_topic(config, load.topic, create=create)
    bench = make(config, load)
    try:
        with Progress(common.messages, "messages", total=load.count) as progress:
            bench.run(progress.update)
    finally:
        found = bench.result()
        if found.messages or found.elapsed_ms or found.failed:
            _write(common, found)
    if bench.error is not None:
        raise bench.error
    lost = {
        "failed": found.failed,
        "not received": found.more.get("not_received"),
        "not stored": found.more.get("not_stored"),
    }
    parts = [f"{counted(n, 'message')} {what}" for what, n in lost.items() if n]
    if parts:
        raise PartialError(", ".join(parts))
    if not found.messages:
        raise _nothing_measured(found)
    raise_if_silent(departed)


def _write(common: Common, found: BenchResult) -> None:
    row = row_of(COLUMNS, found)
    if common.output == "json":
        emit_json(row)
    elif common.output == "table":
        lines = [{"measure": name, "value": value} for name, value in _lines(found)]
        common.write_table(lines, _TABLE)
    else:
        common.write_rows([row], COLUMNS)
    for text in _warnings(found):
        common.messages.warn(text)


def _nothing_measured(found: BenchResult) -> RmqError:
    error = RmqError("nothing was measured: no message ended in the time")
    if found.warm_up_messages:
        taken = counted(found.warm_up_messages, "message")
        error.hint = f"the warm-up took all {taken}; shorten it with --warm-up 0s"
    return error


def _warnings(found: BenchResult) -> list[str]:
    """Return why the rate may not be what was to be measured."""
    warnings = []
    if found.is_client_bound:
        warnings.append(
            f"rmq used {found.cpu:.0%} of a core: it may have been the limit, and not"
            " the cluster"
        )
    if found.has_run_dry:
        warnings.append(
            f"no message came in the last {format_duration(found.quiet_ms)}: the group"
            " had consumed all there were, and can be faster than this rate; end with"
            " --count, or store more messages before"
        )
    return warnings


def _lines(found: BenchResult) -> list[tuple[str, str]]:
    """Return what people want to know, as text."""
    settings = ", ".join(
        f"{name} {_setting(name, value)}"
        for name, value in found.settings.items()
        if value not in (None, False)
    )
    rate = found.messages_per_s
    size = format_size(int(found.bytes_per_s or 0))
    lines = [
        (found.kind, safe(found.topic)),
        ("settings", safe(settings)),
        ("measured", f"{format_duration(found.elapsed_ms)}, ended by {found.ended_by}"),
        ("messages", f"{found.messages:,}"),
        ("rate", "-" if rate is None else f"{rate:,.0f}/s, {size}/s"),
    ]
    if found.statuses:
        parts = (f"{count:,} {name}" for name, count in found.statuses.items())
        lines.append(("statuses", ", ".join(parts)))
    if found.failed:
        parts = (f"{count:,} {safe(why)}" for why, count in found.failures.items())
        lines.append(("failed", ", ".join(parts)))
    if found.unknown:
        lines.append(("unknown", f"{found.unknown:,} of these may be stored"))
    lines += [(name, f"{count:,}") for name, count in found.more.items()]
    if found.latency_us["count"]:
        for name, value in found.latency_us.items():
            if name != "count" and value is not None:
                lines.append((name.replace("_", "."), f"{value / 1000:,.3f} ms"))
    lines.append(("latency of", found.latency_of))
    if found.cpu is not None:
        lines.append(("cpu of rmq", f"{found.cpu:.0%} of a core"))
    return lines


def _setting(name: str, value: object) -> str:
    if name.endswith("_ms") and isinstance(value, int):
        return format_duration(value)
    if name == "size_bytes" and isinstance(value, int):
        return format_size(value)
    return str(value)
