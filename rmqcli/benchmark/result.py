"""What a benchmark has measured, and the counting of it."""

from __future__ import annotations

import resource
import threading
from collections import Counter
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final

from rmqcli.benchmark.latencies import Latencies
from rmqcli.clock import monotonic_us
from rmqcli.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

#: More kinds of failures than this are not told apart.
_FAILURES_MAX: Final = 20
#: From here on, the process that measures is what was measured.
CLIENT_BUSY: Final = 0.9
#: A group to which no message came for this long at the end, and for this share of the
#: time, had consumed all there were.
RUN_DRY_MS: Final = 1_000
RUN_DRY_SHARE: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchResult:
    """What a benchmark has measured after its warm-up, whole or up to an interrupt.

    `settings` says what was measured. `messages` are those that were stored or
    consumed in that time; `statuses` counts those that were sent by their status, with
    those whose answer came after the end, as `latency_us` does. `failures` counts the
    others by their reason, and `unknown` those of them that may be stored, because no
    answer came. `latency_us` has percentiles; its values are None if nothing was
    measured, and `latency_of` says from what to what, or why there is nothing. `cpu` is
    the share of one core that this process used. `ended_by` is count, time, interrupt
    or error. `quiet_ms` is how long before the end the last message was counted.
    `warm_up_messages` are the messages that were stored or consumed in the warm-up.
    """

    kind: str
    topic: str
    settings: Mapping[str, Any] = field(hash=False)
    elapsed_ms: int
    quiet_ms: int
    warm_up_messages: int
    messages: int
    body_bytes: int
    statuses: Mapping[str, int] = field(hash=False)
    failures: Mapping[str, int] = field(hash=False)
    unknown: int
    latency_us: Mapping[str, int | float | None] = field(hash=False)
    latency_of: str
    cpu: float | None
    ended_by: str
    more: Mapping[str, int] = field(default_factory=dict, hash=False)

    @property
    def failed(self) -> int:
        """How many messages failed."""
        return sum(self.failures.values())

    @property
    def messages_per_s(self) -> float | None:
        """Messages in a second; None if nothing was measured."""
        return _per_s(self.messages, self.elapsed_ms)

    @property
    def bytes_per_s(self) -> float | None:
        """Bytes of bodies in a second; None if nothing was measured."""
        return _per_s(self.body_bytes, self.elapsed_ms)

    @property
    def has_run_dry(self) -> bool:
        """Whether a group waited at the end, so that its rate says too little."""
        quiet_ms = self.quiet_ms
        is_long = quiet_ms >= RUN_DRY_MS
        is_long = is_long and quiet_ms >= self.elapsed_ms * RUN_DRY_SHARE
        return self.kind == "consume" and is_long

    @property
    def is_client_bound(self) -> bool:
        """Whether this process, and not the cluster, may have been the limit."""
        return self.cpu is not None and self.cpu >= CLIENT_BUSY


def _per_s(amount: int, elapsed_ms: int) -> float | None:
    return round(amount * 1000 / elapsed_ms, 1) if elapsed_ms > 0 else None


class Meter:
    """Counts in any threads. What ends in the warm-up is not counted.

    A latency that begins in the warm-up does not count, either. What was under way at
    the end counts for latencies, and not for rates: without it the slowest messages
    would be missing.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latencies = Latencies()
        self._statuses: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._messages = 0
        self._bytes = 0
        self._unknown = 0
        self._begin_us: int | None = None
        self._end_us: int | None = None
        self._last_us: int | None = None
        self._warm_up_messages = 0
        self._cpu_s = 0.0
        #: all that were stored or consumed, in the warm-up too
        self.done = 0

    def begin(self) -> None:
        """Begin to count: the warm-up is over. Later calls change nothing."""
        with self._lock:
            if self._begin_us is None:
                self._begin_us = monotonic_us()
                self._cpu_s = _cpu_s()

    def end(self) -> None:
        """Note when counting ended; later calls change nothing."""
        with self._lock:
            if self._end_us is None:
                self._end_us = monotonic_us()
                self._cpu_s = _cpu_s() - self._cpu_s

    def add(
        self,
        messages: int,
        body_bytes: int,
        *,
        since_us: int | None = None,
        duration_us: int | None = None,
        status: str | None = None,
    ) -> None:
        """Count messages that were stored or consumed.

        Their latency is `duration_us`, or the time since `since_us`, if one is given.
        """
        now_us = monotonic_us()
        with self._lock:
            self.done += messages
            if self._begin_us is None:
                self._warm_up_messages += messages
                return
            if since_us is not None and since_us >= self._begin_us:
                duration_us = now_us - since_us
            if status is not None:
                self._statuses[status] += messages
            if duration_us is not None:
                self._latencies.add(duration_us, messages)
            if self._end_us is None:
                self._messages += messages
                self._bytes += body_bytes
                self._last_us = now_us

    def fail(self, reason: str, messages: int = 1, *, is_unknown: bool = False) -> None:
        """Count messages that failed, in the warm-up too."""
        with self._lock:
            if reason not in self._failures and len(self._failures) >= _FAILURES_MAX:
                reason = "other reasons"
            self._failures[reason] += messages
            if is_unknown:
                self._unknown += messages

    def result(
        self,
        kind: str,
        topic: str,
        settings: Mapping[str, Any],
        *,
        latency_of: str,
        ended_by: str,
        more: Mapping[str, int] | None = None,
    ) -> BenchResult:
        """Return what was counted so far."""
        self.end()
        with self._lock:
            begin_us, end_us = self._begin_us, self._end_us
            elapsed_us = quiet_us = 0
            if begin_us is not None and end_us is not None:
                elapsed_us = end_us - begin_us
                quiet_us = end_us - (self._last_us or begin_us)
            return BenchResult(
                kind=kind,
                topic=topic,
                settings=settings,
                elapsed_ms=elapsed_us // 1000,
                quiet_ms=quiet_us // 1000,
                warm_up_messages=self._warm_up_messages,
                messages=self._messages,
                body_bytes=self._bytes,
                statuses=dict(self._statuses),
                failures=dict(self._failures),
                unknown=self._unknown,
                latency_us=self._latencies.summary(),
                latency_of=latency_of,
                cpu=round(self._cpu_s * 1e6 / elapsed_us, 2) if elapsed_us else None,
                ended_by=ended_by,
                more=dict(more or {}),
            )


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
