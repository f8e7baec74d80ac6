"""The proxy's clients: their settings, their telemetry streams, and who is online.

Imitated: settings are kept per client id and outlive stream and connection; a client
without a heartbeat for 120 s is forgotten; each topic of a producer is its producer
group. As with a proxy in cluster mode, brokers do not know the consumers.
Not imitated: proxies that exchange their clients' heartbeats.

Source: `GrpcClientSettingsManager`, `GrpcChannelManager`, `GrpcClientChannel` in
apache/rocketmq.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Final, Protocol

from rmqcli.broker.attributes import LITE_QUOTA
from rmqcli.broker.proxy.status import ProxyError, internal_error
from rmqcli.log import get_logger
from rmqcli.wire.bodies.config import SubscriptionGroupConfig
from rmqcli.wire.protobuf import definition_pb2 as pb
from rmqcli.wire.protobuf import service_pb2 as service

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rmqcli.broker.proxy.routes import ProxyRoutes
    from rmqcli.clock import Clock

logger = get_logger(__name__)

BATCH_SIZE: Final = 32  # grpcClientConsumerLongPollingBatchSize
POLLING_MS_MAX: Final = 20_000  # grpcClientConsumerMaxLongPollingTimeoutMillis
CONSUMER_TYPES: Final = frozenset(
    {
        pb.ClientType.PUSH_CONSUMER,
        pb.ClientType.LITE_PUSH_CONSUMER,
        pb.ClientType.SIMPLE_CONSUMER,
    }
)

_LITE_QUOTA: Final = 2_000
_INT32_MAX: Final = (1 << 31) - 1
_BODY_BYTES_MAX: Final = 4 * 1024 * 1024
_PRODUCER_ATTEMPTS: Final = 3
_EXPIRED_MS: Final = 120_000  # channelExpiredTimeout
_CLIENTS_MAX: Final = 20_000
_SETTINGS_BYTES_MAX: Final = 256 * 1024
#: The most commands that wait for a client to read; further ones are dropped.
_UNREAD_MAX: Final = 256
_ANSWER_TIMEOUT_MS: Final = 5_000  # grpcProxyRelayRequestTimeoutInSeconds
#: CustomizedRetryPolicy: 1s 5s 10s 30s, 1-10m, 20m 30m, 1h 2h.
RETRY_MS: Final = (
    *(1_000, 5_000, 10_000, 30_000),
    *(minutes * 60_000 for minutes in range(1, 11)),
    *(1_200_000, 1_800_000, 3_600_000, 7_200_000),
)


class StreamWriter(Protocol):
    """The end of a telemetry stream to which the proxy writes."""

    async def write(self, message: service.TelemetryCommand) -> None:
        """Send one command; wait until the client has room for it."""


class TelemetryStream:
    """One telemetry stream of a client, on which several tasks may write."""

    def __init__(self, writer: StreamWriter) -> None:
        self._writer = writer
        self._lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    async def write(self, command: service.TelemetryCommand) -> None:
        """Send a command; wait while the client does not read."""
        async with self._lock:
            await self._writer.write(command)

    def push(self, command: service.TelemetryCommand) -> bool:
        """Send a command in the background; False if too many commands wait already."""
        if len(self._tasks) >= _UNREAD_MAX:
            return False
        task = asyncio.get_running_loop().create_task(self._push(command))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def _push(self, command: service.TelemetryCommand) -> None:
        try:
            await self.write(command)
        except Exception as error:  # noqa: BLE001  # whatever gRPC raises when the stream has ended
            logger.debug("telemetry command lost: %s", error)

    def close(self) -> None:
        """Drop the commands that wait."""
        for task in self._tasks:
            task.cancel()


class KnownClient:
    """One client id: its settings, its newest stream, its groups."""

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        #: the settings that the client sent; None if it has sent none
        self.settings: pb.Settings | None = None
        self.stream: TelemetryStream | None = None
        #: groups of a consumer, topics of a producer
        self.groups: set[str] = set()
        #: time of the last heartbeat or settings, in monotonic ms
        self.seen_ms = 0


class Clients:
    """All clients of the proxy, for its event loop.

    The functions in `on_leave` are called with client id and group, for each group of a
    client that leaves or expires; those in `on_gone` are then called with the client.
    """

    def __init__(self, routes: ProxyRoutes, clock: Clock) -> None:
        self._routes = routes
        self._clock = clock
        self._clients: dict[str, KnownClient] = {}
        #: topic -> ids of producers, in the order in which they get transaction checks
        self._producers: dict[str, list[str]] = {}
        self._nonces = itertools.count()
        self._answers: dict[str, asyncio.Future[service.TelemetryCommand]] = {}
        self._arrived = asyncio.Event()
        self.on_leave: list[Callable[[str, str], None]] = []
        self.on_gone: list[Callable[[KnownClient], None]] = []

    # --- clients and their groups ---

    def find(self, client_id: str) -> KnownClient | None:
        """Return a client, or None if it has sent neither settings nor a heartbeat."""
        return self._clients.get(client_id)

    def ids(self) -> list[str]:
        """The ids of all clients, sorted."""
        return sorted(self._clients)

    def is_online(self, client_id: str, group: str) -> bool:
        """Whether the client is a member of the group."""
        client = self._clients.get(client_id)
        return client is not None and group in client.groups

    def alive(self, client_id: str) -> KnownClient:
        """Record that a client is alive, and return it; a new client is added.

        Raises ProxyError(TOO_MANY_REQUESTS) when there are too many clients.
        """
        client = self._clients.get(client_id)
        if client is None:
            if len(self._clients) >= _CLIENTS_MAX:
                raise ProxyError(pb.Code.TOO_MANY_REQUESTS, "too many clients")
            client = self._clients[client_id] = KnownClient(client_id)
        client.seen_ms = self._clock.monotonic_ms()
        return client

    def join(self, client: KnownClient, group: str) -> None:
        """Record that a client is a member of a consumer group."""
        client.groups.add(group)

    def join_producers(self, client: KnownClient, topic: str) -> None:
        """Record that a client is a producer of a topic."""
        client.groups.add(topic)
        members = self._producers.setdefault(topic, [])
        if client.client_id not in members:
            members.append(client.client_id)

    def leave(self, client_id: str) -> None:
        """Forget a client, its settings and its groups."""
        client = self._clients.pop(client_id, None)
        if client is None:
            return
        for group in client.groups:
            members = self._producers.get(group)
            if members is not None and client_id in members:
                members.remove(client_id)
                if not members:
                    del self._producers[group]
            for each in self.on_leave:
                each(client_id, group)
        for gone in self.on_gone:
            gone(client)

    def expire(self) -> None:
        """Forget clients without a heartbeat for 120 s."""
        now_ms = self._clock.monotonic_ms()
        for client in list(self._clients.values()):
            if now_ms - client.seen_ms > _EXPIRED_MS:
                self.leave(client.client_id)

    def topics_of_producers(self) -> list[str]:
        """The topics that have producers."""
        return list(self._producers)

    def producer_of(self, topic: str) -> KnownClient | None:
        """Return the next producer of the topic that has a stream, in turn, or None."""
        members = self._producers.get(topic, [])
        for _ in range(len(members)):
            members.append(members.pop(0))
            client = self._clients.get(members[-1])
            if client is not None and client.stream is not None:
                return client
        return None

    # --- settings ---

    @staticmethod
    def check_size(settings: pb.Settings) -> None:
        """Raise ProxyError(BAD_REQUEST) for settings that are too large."""
        if settings.ByteSize() > _SETTINGS_BYTES_MAX:
            raise ProxyError(
                pb.Code.BAD_REQUEST, f"settings exceed {_SETTINGS_BYTES_MAX} bytes"
            )

    def keep(self, client: KnownClient, settings: pb.Settings) -> None:
        """Store a client's settings; a consumer's are merged over a group's defaults.

        They have passed `check_size`.
        """
        if settings.HasField("subscription"):
            kept = _with_group(pb.Settings(), SubscriptionGroupConfig(group_name=""))
            kept.MergeFrom(settings)
        else:
            kept = settings
        client.settings = kept
        self._arrived.set()
        self._arrived = asyncio.Event()

    async def settings_of(self, client_id: str) -> pb.Settings | None:
        """Return the client's settings, completed with the server's values, or None."""
        client = self._clients.get(client_id)
        if client is None or client.settings is None:
            return None
        settings = pb.Settings()
        settings.CopyFrom(client.settings)
        if settings.HasField("publishing"):
            _fill_producer(settings)
        elif settings.HasField("subscription"):
            config = await self._routes.group(settings.subscription.group.name)
            if config is not None:
                settings = _with_group(settings, config)
        settings.metric.CopyFrom(pb.Metric(on=False))
        return settings

    async def wait_for_settings(self, client_id: str, timeout_ms: int) -> None:
        """Wait until the client has sent its settings, for `timeout_ms` at most.

        RocketMQ's proxy does not wait. The official Python client (5.1.2) may request
        messages some ms before it sends its settings.
        """
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while True:
                    client = self._clients.get(client_id)
                    if client is not None and client.settings is not None:
                        return
                    await self._arrived.wait()
        except TimeoutError:
            return

    # --- requests to a client ---

    async def stack_trace(self, client_id: str) -> service.TelemetryCommand:
        """Request the stack traces of a client's threads; return its answer.

        Raises ProxyError when the client has no stream, or does not answer within 5 s.
        """
        command = service.TelemetryCommand()
        question = command.print_thread_stack_trace_command
        return await self._question(client_id, command, question)

    async def verify(
        self, client_id: str, message: pb.Message
    ) -> service.TelemetryCommand:
        """Have a client consume a message for a test; return its answer.

        Raises ProxyError as `stack_trace` does.
        """
        command = service.TelemetryCommand()
        question = command.verify_message_command
        question.message.CopyFrom(message)
        return await self._question(client_id, command, question)

    async def _question(
        self,
        client_id: str,
        command: service.TelemetryCommand,
        question: service.PrintThreadStackTraceCommand | service.VerifyMessageCommand,
    ) -> service.TelemetryCommand:
        """Send `command`, whose part `question` gets a new nonce, and wait."""
        client = self._clients.get(client_id)
        if client is None or client.stream is None:
            raise ProxyError(
                pb.Code.NOT_FOUND, f"client {client_id} has no telemetry stream"
            )
        nonce = question.nonce = str(next(self._nonces))
        answer = asyncio.get_running_loop().create_future()
        self._answers[nonce] = answer
        try:
            client.stream.push(command)
            return await asyncio.wait_for(answer, _ANSWER_TIMEOUT_MS / 1000)
        except TimeoutError:
            raise ProxyError(
                pb.Code.REQUEST_TIMEOUT,
                f"no answer from {client_id} in {_ANSWER_TIMEOUT_MS} ms",
            ) from None
        finally:
            del self._answers[nonce]

    def answered(self, nonce: str, command: service.TelemetryCommand) -> None:
        """Pass a client's answer to the call that waits for it; drop it otherwise."""
        answer = self._answers.get(nonce)
        if answer is not None and not answer.done():
            answer.set_result(command)


def _fill_producer(settings: pb.Settings) -> None:
    """Set the server's values for a producer.

    Source: GrpcClientSettingsManager.mergeProducerData.
    """
    backoff = pb.ExponentialBackoff(multiplier=2)
    backoff.initial.FromMilliseconds(10)
    backoff.max.FromMilliseconds(1_000)
    settings.backoff_policy.max_attempts = _PRODUCER_ATTEMPTS
    settings.backoff_policy.exponential_backoff.CopyFrom(backoff)
    settings.publishing.validate_message_type = True
    settings.publishing.max_body_size = _BODY_BYTES_MAX


def _with_group(settings: pb.Settings, config: SubscriptionGroupConfig) -> pb.Settings:
    """Set the values that a group's settings determine.

    Source: GrpcClientSettingsManager.mergeSubscriptionData.
    """
    subscription = settings.subscription
    subscription.receive_batch_size = BATCH_SIZE
    subscription.long_polling_timeout.FromMilliseconds(POLLING_MS_MAX)
    subscription.fifo = config.consume_message_orderly
    subscription.lite_subscription_quota = lite_quota(config)
    subscription.max_lite_topic_size = 64
    settings.backoff_policy.CopyFrom(_backoff_of(config))
    return settings


def lite_quota(config: SubscriptionGroupConfig) -> int:
    """Return how many lite topics one client of a group may subscribe.

    Raises ProxyError for a number that RocketMQ cannot read.
    """
    text = config.attributes.get(LITE_QUOTA)
    quota = _LITE_QUOTA if text is None else int(text)
    if quota > _INT32_MAX:
        raise internal_error("integer overflow")
    return quota


def _backoff_of(config: SubscriptionGroupConfig) -> pb.RetryPolicy:
    policy = pb.RetryPolicy(max_attempts=config.retry_max_times + 1)
    given = config.retry_policy
    given = given if isinstance(given, dict) else {}
    if given.get("type") == "EXPONENTIAL":
        exponential = given.get("exponentialRetryPolicy")
        exponential = exponential if isinstance(exponential, dict) else {}
        backoff = pb.ExponentialBackoff(
            multiplier=_number(exponential.get("multiplier"), 2)
        )
        backoff.initial.FromMilliseconds(_number(exponential.get("initial"), 5_000))
        backoff.max.FromMilliseconds(_number(exponential.get("max"), 7_200_000))
        policy.exponential_backoff.CopyFrom(backoff)
    else:
        customized = given.get("customizedRetryPolicy")
        steps = customized.get("next") if isinstance(customized, dict) else None
        policy.customized_backoff.CopyFrom(_steps(steps or RETRY_MS))
    return policy


def _steps(delays_ms: Iterable[object]) -> pb.CustomizedBackoff:
    backoff = pb.CustomizedBackoff()
    for delay_ms in delays_ms:
        backoff.next.add().FromMilliseconds(_number(delay_ms, 0))
    return backoff


def _number(value: object, default: int) -> int:
    return value if isinstance(value, int) and 0 <= value < 1 << 40 else default
