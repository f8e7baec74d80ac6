"""Clients for programs that use asyncio: `async with` and `await`, one event loop.

- `connect`: all of the following, with one configuration.
- `AsyncAdmin`: queries a cluster and changes it, as `rmqcli.Admin` does.
- `AsyncConsumer`: a member of a group, as `rmqcli.Consumer`, with an `async def`
  listener or `async for`.
- `AsyncCopy`: copies the messages of a topic, as `rmqcli.Copy` does.
- `AsyncProducer`: sends messages, as `rmqcli.Producer` does.
- `AsyncRedrive`: sends dead letters again, as `rmqcli.Redrive` does.
- `AsyncRetryFlush`: delivers now what waits for a group, as `rmqcli.RetryFlush` does.
- `AsyncSimpleConsumer`: receives and acknowledges messages, as `rmqcli.SimpleConsumer`.

They use the synchronous clients, whose thread does the network's work. What it finishes
is handed over to the event loop in batches; see `handover`. A client belongs to the
loop that runs when it is started, and its methods may be called in that loop only.
Errors, settings and messages are those of `rmqcli`.
"""

from rmqcli.aio.admin import AsyncAdmin
from rmqcli.aio.cluster import AsyncCluster, connect
from rmqcli.aio.consumer import AsyncConsumer
from rmqcli.aio.copy import AsyncCopy
from rmqcli.aio.producer import AsyncProducer
from rmqcli.aio.redrive import AsyncRedrive, AsyncRetryFlush
from rmqcli.aio.simple_consumer import AsyncSimpleConsumer

__all__ = [
    "AsyncAdmin",
    "AsyncCluster",
    "AsyncConsumer",
    "AsyncCopy",
    "AsyncProducer",
    "AsyncRedrive",
    "AsyncRetryFlush",
    "AsyncSimpleConsumer",
    "connect",
]
