"""`AsyncAdmin`: what `Admin` does, from coroutines.

```python
from rmqcli.aio import AsyncAdmin

async with AsyncAdmin(namesrv="127.0.0.1:9876") as admin:
    print((await admin.lag("billing")).total_lag)
    async for message in admin.read("orders", from_="-1h"):
        print(message.queue_offset, message.body)
```

| thread | runs | ended by |
|---|---|---|
| the event loop's | the methods | the program |
| rmq-aio_0 for the calls, another for each `read` | all I/O | close(), the read's end |
| rmq-aio-close | the close | the end of the close |
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from rmqcli.admin.admin import Admin
from rmqcli.aio.handover import AsyncClient, BlockingCalls, awaited
from rmqcli.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
    from pathlib import Path

    from rmqcli.clock import Clock
    from rmqcli.config import ClientConfig
    from rmqcli.engine.message import PulledMessage, UndecodableMessage
    from rmqcli.model import MessageQueue
    from rmqcli.position import Position

#: How much a read hands over to the event loop at once.
_MESSAGES_MAX: Final = 500
_BYTES_MAX: Final = 1024 * 1024


class AsyncAdmin(AsyncClient):
    """Queries a cluster and changes it. For the event loop that started it.

    The arguments, and those of all methods, are those of `Admin`, and so are results
    and errors. Calls run one after the other. A call that is cancelled before it has
    begun does nothing; one that has begun continues, its result is dropped, and the
    next call waits for its end.
    """

    def __init__(
        self,
        *,
        namesrv: str | None = None,
        client: ClientConfig | None = None,
        backups: Path | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__("AsyncAdmin")
        self._make = partial(
            Admin, namesrv=namesrv, client=client, backups=backups, clock=clock
        )
        self._client = self._admin = self._make()

    async def start(self) -> None:
        """Start the admin. It contacts no server before the first request.

        Raises UsageError when it was started or closed before.
        """
        self._admin.start()
        self._enter_loop(threads_max=1)

    async def close(self) -> None:
        """Close every connection, after the call that is under way. Idempotent.

        A close that is cancelled continues; another call waits for its end. Reads that
        are open continue.
        """
        if self._loop is None:
            self._admin.close()
            return
        self._loop.check()
        if self._closing is None:
            self._closing = self._calls.close_after_calls(self._admin.close)
        await self._closing.wait()

    lag = awaited(Admin.lag)
    lags = awaited(Admin.lags)
    explain_lag = awaited(Admin.explain_lag)
    plan_reset = awaited(Admin.plan_reset)
    backups = awaited(Admin.backups)
    plan_undo = awaited(Admin.plan_undo)
    apply_reset = awaited(Admin.apply_reset)
    undo_reset = awaited(Admin.undo_reset)
    topics = awaited(Admin.topics)
    topic_counts = awaited(Admin.topic_counts)
    topic = awaited(Admin.topic)
    create_topic = awaited(Admin.create_topic)
    update_topic = awaited(Admin.update_topic)
    delete_topic = awaited(Admin.delete_topic)
    groups = awaited(Admin.groups)
    group = awaited(Admin.group)
    member_stacks = awaited(Admin.member_stacks)
    producers = awaited(Admin.producers)
    open_transactions = awaited(Admin.open_transactions)
    delayed = awaited(Admin.delayed)
    plan_resend = awaited(Admin.plan_resend)
    apply_resend = awaited(Admin.apply_resend)
    plan_recall = awaited(Admin.plan_recall)
    apply_recall = awaited(Admin.apply_recall)
    dead_letters = awaited(Admin.dead_letters)
    read_dead_letters = awaited(Admin.read_dead_letters)
    retries = awaited(Admin.retries)
    create_group = awaited(Admin.create_group)
    update_group = awaited(Admin.update_group)
    pause_group = awaited(Admin.pause_group)
    resume_group = awaited(Admin.resume_group)
    delete_group = awaited(Admin.delete_group)
    definitions = awaited(Admin.definitions)
    plan_definitions = awaited(Admin.plan_definitions)
    apply_definitions = awaited(Admin.apply_definitions)
    accounts = awaited(Admin.accounts)
    explain_access = awaited(Admin.explain_access)
    plan_user = awaited(Admin.plan_user)
    plan_rule = awaited(Admin.plan_rule)
    plan_acl_deletion = awaited(Admin.plan_acl_deletion)
    plan_acl_copy = awaited(Admin.plan_acl_copy)
    brokers = awaited(Admin.brokers)
    cluster = awaited(Admin.cluster)
    doctor = awaited(Admin.doctor)
    broker = awaited(Admin.broker)
    broker_settings = awaited(Admin.broker_settings)
    namesrv_settings = awaited(Admin.namesrv_settings)
    compare_broker_settings = awaited(Admin.compare_broker_settings)
    plan_broker_settings = awaited(Admin.plan_broker_settings)
    plan_namesrv_settings = awaited(Admin.plan_namesrv_settings)
    apply_settings = awaited(Admin.apply_settings)
    kv_values = awaited(Admin.kv_values)
    put_kv = awaited(Admin.put_kv)
    delete_kv = awaited(Admin.delete_kv)
    clean_expired_queues = awaited(Admin.clean_expired_queues)
    clean_unused_topics = awaited(Admin.clean_unused_topics)
    plan_drain = awaited(Admin.plan_drain)
    apply_drain = awaited(Admin.apply_drain)
    drain_progress = awaited(Admin.drain_progress)
    undrain_broker = awaited(Admin.undrain_broker)
    queues = awaited(Admin.queues)
    message_at = awaited(Admin.message_at)
    message_by_id = awaited(Admin.message_by_id)
    find_messages = awaited(Admin.find_messages)
    message_outcome = awaited(Admin.message_outcome)
    message_trace = awaited(Admin.message_trace)
    messages_by_key = awaited(Admin.messages_by_key)

    async def read(
        self,
        topic: str,
        *,
        from_: str | Position = "earliest",
        to: str | Position = "now",
        queues: Sequence[MessageQueue] | None = None,
        sub_expression: str = "*",
        where: str | None = None,
        decode: str | None = None,
        on_undecodable: Callable[[UndecodableMessage], None] | None = None,
    ) -> AsyncGenerator[PulledMessage, None]:
        """Iterate over the messages of a range with `async for`; see `Admin.read`.

        Each read has connections and a thread of its own, in which `on_undecodable` is
        called, so that other calls and reads may run meanwhile. A loop that is left by
        `break` ends it soon, `aclose` at once; a read that is cancelled is over.
        """
        loop = self._opened()
        admin = self._make()
        admin.start()
        messages = admin.read(
            topic,
            from_=from_,
            to=to,
            queues=queues,
            sub_expression=sub_expression,
            where=where,
            decode=decode,
            on_undecodable=on_undecodable,
        )
        portions = _portions(messages)
        calls = BlockingCalls(loop, threads_max=1)
        try:
            while portion := await calls.run(partial(next, portions, None)):
                for message in portion:
                    yield message
        finally:
            await calls.close_after_calls(admin.close).wait()


def _portions(messages: Iterator[PulledMessage]) -> Iterator[list[PulledMessage]]:
    """The messages in lists; an error comes after the messages that came before it."""
    portion: list[PulledMessage] = []
    size = 0
    try:
        for message in messages:
            portion.append(message)
            size += message.body_bytes
            if len(portion) == _MESSAGES_MAX or size >= _BYTES_MAX:
                yield portion
                portion, size = [], 0
    except Exception:
        if portion:
            yield portion
        raise
    if portion:
        yield portion
