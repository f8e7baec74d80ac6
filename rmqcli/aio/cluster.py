"""`connect`: asynchronous clients of one cluster, with one configuration.

```python
from rmqcli.aio import connect

async with connect("127.0.0.1:9876") as cluster:
    async with cluster.consumer("billing", "orders") as consumer:
        async for message in consumer:
            print(message.body)
```
"""

from __future__ import annotations

import functools
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Self, TypeVar

from rmqcli import cluster as sync
from rmqcli.admin.tail.filter import FilterArguments
from rmqcli.aio.admin import AsyncAdmin
from rmqcli.aio.consumer import AsyncConsumer
from rmqcli.aio.copy import AsyncCopy
from rmqcli.aio.producer import IN_FLIGHT_MAX, AsyncProducer
from rmqcli.aio.redrive import AsyncRedrive, AsyncRetryFlush
from rmqcli.aio.simple_consumer import AsyncSimpleConsumer
from rmqcli.checked import check_type, checks_arguments

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from typing import Unpack

    from rmqcli.aio.consumer import OnBatchAsync, OnMessageAsync
    from rmqcli.aio.handover import AsyncClient
    from rmqcli.config import ClientConfig
    from rmqcli.consumer.consumer import OnQueues
    from rmqcli.consumer.subscriptions import Topics
    from rmqcli.engine.config import ConsumerConfig
    from rmqcli.engine.message import UndecodableMessage
    from rmqcli.engine.reports import FailedDelivery, QueueStart
    from rmqcli.model import Message
    from rmqcli.position import Position
    from rmqcli.producer.config import ProducerConfig
    from rmqcli.producer.transactions import LocalTransactionState
    from rmqcli.transport.tls import TlsOptions
    from rmqcli.wire.acl import Credentials

Parameters = ParamSpec("Parameters")
Made = TypeVar("Made")
Form = TypeVar("Form")
Client = TypeVar("Client", bound="AsyncClient")


def connect(
    namesrv: str | None = None,
    *,
    endpoints: str | None = None,
    timeout_ms: int = 5_000,
    credentials: Credentials | None = None,
    tls: TlsOptions | None = None,
    plaintext: bool = False,
    address_map: Mapping[str, str] | None = None,
) -> AsyncCluster:
    """Return an `AsyncCluster`. Arguments and errors are those of `rmqcli.connect`."""
    return AsyncCluster(
        sync.connect(
            namesrv,
            endpoints=endpoints,
            timeout_ms=timeout_ms,
            credentials=credentials,
            tls=tls,
            plaintext=plaintext,
            address_map=address_map,
        )
    )


def _wrapped(
    method: Callable[Concatenate[sync.Cluster, Parameters], Made],
    form: Callable[[Made], Form],
) -> Callable[Concatenate[AsyncCluster, Parameters], Form]:
    """The method of AsyncCluster that makes the asynchronous form of what it makes."""

    @functools.wraps(method)
    def call(
        self: AsyncCluster, /, *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Form:
        return form(method(self._cluster, *args, **kwargs))

    return call


class AsyncCluster:
    """Creates asynchronous clients that share one configuration; see `connect`.

    Clients are started by `async with` or `start`. As an asynchronous context manager
    it closes, at the end, all clients that it has created and that are still open, the
    newest first.
    """

    def __init__(self, cluster: sync.Cluster) -> None:
        self._cluster = cluster
        #: the clients that it has created and that may be open
        self._made: list[AsyncClient] = []

    def __repr__(self) -> str:
        return f"Async{self._cluster!r}"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    @property
    def config(self) -> ClientConfig:
        """The configuration of all clients."""
        return self._cluster.config

    async def close(self) -> None:
        """Close all clients that were created and are still open. Idempotent."""
        made, self._made = self._made, []
        async with AsyncExitStack() as stack:
            for each in made:
                stack.push_async_callback(each.close)

    def _keep(self, client: Client) -> Client:
        """Return `client`, which the cluster will close; forget those that are."""
        self._made = [each for each in self._made if not each.is_closed]
        self._made.append(client)
        return client

    def admin(self, *, backups: Path | None = None) -> AsyncAdmin:
        """Create an AsyncAdmin. Raises UsageError when only a proxy is known."""
        self._cluster.need_namesrv("AsyncAdmin")
        admin = AsyncAdmin(client=self.config, backups=backups)
        return self._keep(admin)

    def producer(
        self,
        group: str | None = None,
        *,
        config: ProducerConfig | None = None,
        on_check: Callable[[Message], LocalTransactionState | None] | None = None,
        in_flight_max: int = IN_FLIGHT_MAX,
        trace: bool | str = False,
    ) -> AsyncProducer:
        """Create an AsyncProducer."""
        producer = AsyncProducer(
            group,
            client=self.config,
            config=config,
            on_check=on_check,
            in_flight_max=in_flight_max,
            trace=trace,
        )
        return self._keep(producer)

    def consumer(
        self,
        group: str,
        topics: Topics,
        on_message: OnMessageAsync | None = None,
        *,
        on_batch: OnBatchAsync | None = None,
        orderly: bool = False,
        consume_from: str | Position | None = None,
        concurrency: int | None = None,
        batch: int | None = None,
        config: ConsumerConfig | None = None,
        on_undecodable: Callable[[UndecodableMessage], None] | None = None,
        on_failed: Callable[[FailedDelivery], None] | None = None,
        on_start: Callable[[QueueStart], None] | None = None,
        on_assigned: OnQueues | None = None,
        on_revoked: OnQueues | None = None,
        trace: bool | str = False,
    ) -> AsyncConsumer:
        """Create an AsyncConsumer."""
        consumer = AsyncConsumer(
            group,
            topics,
            on_message,
            on_batch=on_batch,
            orderly=orderly,
            consume_from=consume_from,
            concurrency=concurrency,
            batch=batch,
            client=self.config,
            config=config,
            on_undecodable=on_undecodable,
            on_failed=on_failed,
            on_start=on_start,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            trace=trace,
        )
        return self._keep(consumer)

    def simple_consumer(
        self,
        group: str,
        topics: Topics,
        *,
        invisible_duration_ms: int = 30_000,
        orderly: bool = False,
        consume_from: str | Position = "latest",
        trace: bool | str = False,
    ) -> AsyncSimpleConsumer:
        """Create an AsyncSimpleConsumer."""
        consumer = AsyncSimpleConsumer(
            group,
            topics,
            invisible_duration_ms=invisible_duration_ms,
            orderly=orderly,
            consume_from=consume_from,
            client=self.config,
            trace=trace,
        )
        return self._keep(consumer)

    redrive = _wrapped(sync.Cluster.redrive, AsyncRedrive)
    flush_retries = _wrapped(sync.Cluster.flush_retries, AsyncRetryFlush)

    @checks_arguments(FilterArguments=FilterArguments)
    def copy(
        self,
        source_topic: str,
        target_topic: str,
        *,
        to: AsyncCluster | None = None,
        from_: str | Position = "earliest",
        until: str | Position = "latest",
        log: Path | None = None,
        **conditions: Unpack[FilterArguments],
    ) -> AsyncCopy:
        """Create an AsyncCopy. Arguments and errors are those of `Cluster`."""
        check_type(to, (AsyncCluster, type(None)), "to")
        return AsyncCopy(
            self._cluster.copy(
                source_topic,
                target_topic,
                to=None if to is None else to._cluster,  # noqa: SLF001  # same class
                from_=from_,
                until=until,
                log=log,
                **conditions,
            )
        )
