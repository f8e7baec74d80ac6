"""The settings that a proxy sends to a client: retries, sizes and times, all bounded.

A server could ask for a retry after a year or for a billion attempts, so every value is
kept within the limits of this module.

Source: Settings in definition.proto; ClientSettings, RetryPolicy in
apache/rocketmq-clients; GrpcClientSettingsManager in apache/rocketmq.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from rmqcli.dataclass import dataclass
from rmqcli.proxy.message import milliseconds

if TYPE_CHECKING:
    from rmqcli.wire.protobuf import definition_pb2 as pb

_ATTEMPTS_MAX: Final = 1_000
_DELAYS_MAX: Final = 64
_DELAY_MS_MAX: Final = 24 * 3_600 * 1_000
_BODY_BYTES: Final = (1, 16 << 20)
_RECEIVE_BATCH: Final = (1, 1_024)
_POLLING_MS: Final = (1_000, 5 * 60 * 1_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How many attempts are made, and how long to wait between two attempts.

    `delays_ms` has the delay after the first attempt, after the second, and so on; the
    last delay is used after all later attempts.
    """

    max_attempts: int
    delays_ms: tuple[int, ...]

    def delay_ms(self, attempt: int) -> int:
        """The milliseconds to wait after attempt number `attempt`, from 1."""
        return self.delays_ms[min(max(attempt, 1), len(self.delays_ms)) - 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """The proxy's latest settings, or the defaults of RocketMQ's proxies before that.

    `fifo`, `receive_batch_size` and `long_polling_ms` are settings of consumers,
    `max_body_bytes` and `validate_message_type` are settings of producers.
    """

    retry: RetryPolicy
    max_body_bytes: int = 4 << 20
    validate_message_type: bool = True
    fifo: bool = False
    receive_batch_size: int = 32
    long_polling_ms: int = 20_000


PRODUCER_DEFAULTS: Final = ServerSettings(
    retry=RetryPolicy(max_attempts=3, delays_ms=(10, 20, 40, 80, 160, 320, 640, 1_000))
)
CONSUMER_DEFAULTS: Final = ServerSettings(
    retry=RetryPolicy(
        max_attempts=17,
        delays_ms=tuple(
            seconds * 1_000
            for seconds in (
                *(1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540),
                *(600, 1_200, 1_800, 3_600, 7_200),
            )
        ),
    )
)


def merged(known: ServerSettings, said: pb.Settings) -> ServerSettings:
    """`known` updated by a proxy's settings; values that they omit are kept."""
    found = known
    if said.HasField("backoff_policy"):
        found = replace(found, retry=_retry(said.backoff_policy, known.retry))
    if said.HasField("publishing"):
        publishing = said.publishing
        found = replace(found, validate_message_type=publishing.validate_message_type)
        if publishing.max_body_size > 0:
            size = _inside(publishing.max_body_size, _BODY_BYTES)
            found = replace(found, max_body_bytes=size)
    if said.HasField("subscription"):
        subscription = said.subscription
        if subscription.HasField("fifo"):
            found = replace(found, fifo=subscription.fifo)
        if subscription.receive_batch_size > 0:
            batch = _inside(subscription.receive_batch_size, _RECEIVE_BATCH)
            found = replace(found, receive_batch_size=batch)
        if subscription.HasField("long_polling_timeout"):
            polling = _inside(
                milliseconds(subscription.long_polling_timeout), _POLLING_MS
            )
            found = replace(found, long_polling_ms=polling)
    return found


def _retry(policy: pb.RetryPolicy, known: RetryPolicy) -> RetryPolicy:
    attempts = known.max_attempts
    if policy.max_attempts > 0:
        attempts = min(policy.max_attempts, _ATTEMPTS_MAX)
    delays = known.delays_ms
    kind = policy.WhichOneof("strategy")
    if kind == "customized_backoff" and policy.customized_backoff.next:
        steps = policy.customized_backoff.next[:_DELAYS_MAX]
        delays = tuple(_delay(milliseconds(each)) for each in steps)
    elif kind == "exponential_backoff":
        backoff = policy.exponential_backoff
        delays = _exponential(
            _delay(milliseconds(backoff.initial)),
            _delay(milliseconds(backoff.max)),
            float(backoff.multiplier),
        )
    return RetryPolicy(max_attempts=attempts, delays_ms=delays)


def _exponential(initial_ms: int, max_ms: int, multiplier: float) -> tuple[int, ...]:
    delays = [min(initial_ms, max_ms)]
    if not 1.0 < multiplier <= 1_000.0:  # also excludes NaN
        return tuple(delays)
    delay = float(initial_ms)
    while delay < max_ms and len(delays) < _DELAYS_MAX:
        delay *= multiplier
        delays.append(int(min(delay, max_ms)))
    return tuple(delays)


def _delay(value_ms: int) -> int:
    return _inside(value_ms, (0, _DELAY_MS_MAX))


def _inside(value: int, bounds: tuple[int, int]) -> int:
    low, high = bounds
    return max(low, min(int(value), high))
