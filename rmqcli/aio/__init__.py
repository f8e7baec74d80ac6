"""Clients for programs that use asyncio: `async with` and `await`, one event loop.

- `AsyncProducer`: sends messages, as `rmqcli.Producer` does.
- `AsyncSimpleConsumer`: receives and acknowledges messages, as `rmqcli.SimpleConsumer`.

They use the synchronous clients, whose thread does the network's work. What it finishes
is handed over to the event loop in batches; see `handover`. A client belongs to the
loop that runs when it is started, and its methods may be called in that loop only.
Errors, settings and messages are those of `rmqcli`.
"""

from rmqcli.aio.producer import AsyncProducer
from rmqcli.aio.simple_consumer import AsyncSimpleConsumer

__all__ = ["AsyncProducer", "AsyncSimpleConsumer"]
