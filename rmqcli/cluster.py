"""`connect`: producers, consumers and an Admin of one cluster, with one configuration.

```python
from rmqcli import connect

with connect("127.0.0.1:9876") as cluster:
    with cluster.consumer("billing", "orders") as consumer:
        for message in consumer:
            print(message.body)
```
"""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

from rmqcli.admin.tail.filter import FilterArguments, parse_filter
from rmqcli.checked import check_type, checks_arguments
from rmqcli.config import NAMESRV_VARIABLE, ClientConfig
from rmqcli.errors import UsageError
from rmqcli.position import position_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from typing import Unpack

    from rmqcli.admin.admin import Admin
    from rmqcli.consumer.consumer import Consumer, OnBatch, OnMessage, OnQueues
    from rmqcli.consumer.simple.consumer import SimpleConsumer
    from rmqcli.consumer.subscriptions import Topics
    from rmqcli.copy.library import Copy
    from rmqcli.engine.config import ConsumerConfig
    from rmqcli.engine.message import UndecodableMessage
    from rmqcli.engine.reports import FailedDelivery, QueueStart
    from rmqcli.model import Message, MessageQueue
    from rmqcli.position import Position
    from rmqcli.producer.config import ProducerConfig
    from rmqcli.producer.producer import Producer
    from rmqcli.producer.transactions import LocalTransactionState
    from rmqcli.redrive.library import Redrive, RetryFlush
    from rmqcli.transport.tls import TlsOptions
    from rmqcli.wire.acl import Credentials

    Client = TypeVar("Client", Admin, Consumer, Producer, SimpleConsumer)


@checks_arguments()
def connect(
    namesrv: str | None = None,
    *,
    endpoints: str | None = None,
    timeout_ms: int = 5_000,
    credentials: Credentials | None = None,
    tls: TlsOptions | None = None,
    plaintext: bool = False,
    address_map: Mapping[str, str] | None = None,
) -> Cluster:
    """Return a `Cluster` that is reached by its name servers or through a proxy.

    `namesrv` and `endpoints` are both `host:port;host:port`. Without `namesrv` the name
    servers are those of the environment variable NAMESRV_ADDR, or else 127.0.0.1:9876.
    With `endpoints`, or with the environment variable ROCKETMQ_ENDPOINTS when `namesrv`
    is not given, producers, consumers and simple consumers speak gRPC to a proxy. They
    use TLS unless `plaintext` is set. An Admin needs name servers: `Cluster.admin`
    raises UsageError when only a proxy is known.

    `timeout_ms` bounds each request. `tls` says how certificates are verified;
    connections to name servers and brokers use TLS only when it is given. `address_map`
    maps addresses that brokers advertise to those that can be reached from here; see
    ClientConfig. Nothing is opened here: each client opens its own connections when it
    is started or first used.

    Raises ConfigError for an address list that names no server, for `namesrv` together
    with `endpoints` and `plaintext` together with `tls`, and for a `timeout_ms` that is
    not positive; and TypeError for values of a wrong type.
    """
    config = ClientConfig.from_env(
        os.environ,
        namesrv=namesrv,
        timeout_ms=timeout_ms,
        credentials=credentials,
        tls=tls,
        endpoints=endpoints,
        plaintext=plaintext,
        address_map=address_map or {},
    )
    is_named = namesrv is not None or bool(os.environ.get(NAMESRV_VARIABLE))
    return Cluster(config, has_namesrv=is_named or not config.endpoints)


class Cluster:
    """Creates clients that share one configuration. Any thread may call its methods.

    As a context manager it closes, at the end, all clients that it has created and that
    are still open, the newest first.
    """

    def __init__(self, config: ClientConfig, *, has_namesrv: bool = True) -> None:
        """Create a cluster; nothing is opened.

        `has_namesrv` is False when only a proxy is known and the name servers of
        `config` are merely the default.
        """
        self.config = config
        self._has_namesrv = has_namesrv
        #: the clients that it has created and that may be open
        self._made: list[Admin | Consumer | Producer | SimpleConsumer] = []

    def __repr__(self) -> str:
        return f"Cluster({self.config.servers})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all clients that were created and are still open. Idempotent."""
        made, self._made = self._made, []
        with ExitStack() as stack:
            for each in made:
                stack.callback(each.close)

    def _keep(self, client: Client) -> Client:
        """Return `client`, which the cluster will close; forget those that are."""
        # Single calls of the list only, as other threads may make clients, too.
        for each in [each for each in self._made if each.is_closed]:
            with suppress(ValueError):
                self._made.remove(each)
        self._made.append(client)
        return client

    def admin(self, *, backups: Path | None = None) -> Admin:
        """Create an Admin, to be started by `with` or `start`; see Admin.

        `backups` is the folder of the backups that resets save. Raises UsageError when
        only a proxy is known.
        """
        self.need_namesrv("Admin")
        from rmqcli.admin.admin import Admin

        admin = Admin(client=self.config, backups=backups)
        return self._keep(admin)

    def producer(
        self,
        group: str | None = None,
        *,
        config: ProducerConfig | None = None,
        on_check: Callable[[Message], LocalTransactionState | None] | None = None,
        trace: bool | str = False,
    ) -> Producer:
        """Create a Producer, to be started by `with` or `start`; see Producer."""
        from rmqcli.producer.producer import Producer

        producer = Producer(
            group, client=self.config, config=config, on_check=on_check, trace=trace
        )
        return self._keep(producer)

    def consumer(
        self,
        group: str,
        topics: Topics,
        on_message: OnMessage | None = None,
        *,
        on_batch: OnBatch | None = None,
        orderly: bool = False,
        consume_from: str | Position | None = None,
        consume_threads: int | None = None,
        batch: int | None = None,
        config: ConsumerConfig | None = None,
        on_undecodable: Callable[[UndecodableMessage], None] | None = None,
        on_failed: Callable[[FailedDelivery], None] | None = None,
        on_start: Callable[[QueueStart], None] | None = None,
        on_assigned: OnQueues | None = None,
        on_revoked: OnQueues | None = None,
        trace: bool | str = False,
    ) -> Consumer:
        """Create a Consumer, to be started by `with` or `start`; see Consumer."""
        from rmqcli.consumer.consumer import Consumer

        consumer = Consumer(
            group,
            topics,
            on_message,
            on_batch=on_batch,
            orderly=orderly,
            consume_from=consume_from,
            consume_threads=consume_threads,
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
    ) -> SimpleConsumer:
        """Create a SimpleConsumer, to be started by `with` or `start`.

        See SimpleConsumer.
        """
        from rmqcli.consumer.simple.consumer import SimpleConsumer

        consumer = SimpleConsumer(
            group,
            topics,
            invisible_duration_ms=invisible_duration_ms,
            orderly=orderly,
            consume_from=consume_from,
            client=self.config,
            trace=trace,
        )
        return self._keep(consumer)

    @checks_arguments(Path=Path, FilterArguments=FilterArguments)
    def redrive(
        self,
        group: str,
        *,
        to: str = "origin",
        from_: str | Position | None = None,
        until: str | Position | None = None,
        last: int | None = None,
        queues: Collection[MessageQueue] = (),
        again: bool = False,
        log: Path | None = None,
        **conditions: Unpack[FilterArguments],
    ) -> Redrive:
        """Create a Redrive: `plan` says what it would send, `execute` sends.

        The arguments are the options of `rmq dlq redrive`: `to` is "origin", "retry" or
        a topic; `queues` are queues of the dead letters, all if there are none; the
        conditions are those of FilterArguments.
        `log` is the file of what was sent; None for that of the command. Raises
        UsageError when only a proxy is known, and TextError for a text that is wrong.
        """
        self.need_namesrv("Redrive")
        from rmqcli.model import dlq_topic
        from rmqcli.queue_selector import selectors_of
        from rmqcli.redrive.library import Redrive
        from rmqcli.redrive.redrive import RedriveRequest

        wanted = parse_filter(**conditions)
        start, end = (
            None if each is None else position_of(each) for each in (from_, until)
        )
        request = RedriveRequest(
            group=group,
            filter=wanted,
            to=to,
            start=start,
            end=end,
            last=last,
            selectors=selectors_of(dlq_topic(group), queues),
            again=again,
        )
        return Redrive(self.config, request, log=log)

    @checks_arguments(Path=Path)
    def flush_retries(
        self,
        group: str,
        *,
        topic: str | None = None,
        limit: int | None = None,
        again: bool = False,
        log: Path | None = None,
    ) -> RetryFlush:
        """Create a RetryFlush: `plan` says what it would copy, `execute` copies.

        The arguments are the options of `rmq retry flush`. `log` is the file of what
        was copied; None for that of the command. Raises UsageError when only a proxy is
        known.
        """
        self.need_namesrv("RetryFlush")
        from rmqcli.redrive.flush import FlushRequest
        from rmqcli.redrive.library import RetryFlush

        request = FlushRequest(group=group, topic=topic, limit=limit, again=again)
        return RetryFlush(self.config, request, log=log)

    @checks_arguments(Path=Path, FilterArguments=FilterArguments)
    def copy(
        self,
        source_topic: str,
        target_topic: str,
        *,
        to: Cluster | None = None,
        from_: str | Position = "earliest",
        until: str | Position = "latest",
        log: Path | None = None,
        **conditions: Unpack[FilterArguments],
    ) -> Copy:
        """Create a Copy: `plan` says what it would copy, and how; `execute` copies.

        The arguments are the options of `rmq copy`: `to` is the cluster of
        `target_topic`, with credentials of its own (None: this one). `from_` counts for
        queues of which the log has no position. The conditions are those of
        FilterArguments. `log` is the file of what was copied; None for that of the
        command. Raises UsageError when only a proxy is known, and TextError for a text
        that is wrong.
        """
        check_type(to, (Cluster, type(None)), "to")
        self.need_namesrv("Copy")
        if to is not None:
            to.need_namesrv("Copy")
        from rmqcli.copy.copy import CopyRequest
        from rmqcli.copy.library import Copy

        wanted = parse_filter(**conditions)
        request = CopyRequest(
            source_topic=source_topic,
            target_topic=target_topic,
            filter=wanted,
            chosen_by=str(wanted),
            start=position_of(from_),
            end=position_of(until),
        )
        target = None if to is None else to.config
        return Copy(self.config, request, target=target, log=log)

    def need_namesrv(self, what: str) -> None:
        """Raise UsageError when no name servers were configured.

        The default name server need not belong to the cluster of the proxy.
        """
        if not self._has_namesrv:
            raise UsageError(
                f"{what} needs name servers, but only proxy endpoints are configured",
                hint="set NAMESRV_ADDR",
            )
