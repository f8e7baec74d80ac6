"""What is given to a method of an asynchronous client reaches the client behind it."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from rmqcli import MessageQueue, ProducerMessage
from rmqcli.aio import AsyncAdmin, AsyncConsumer, AsyncProducer, AsyncSimpleConsumer
from tests.aio.interrupting import run_clean

#: What a call needs beside the argument that is tried.
NEEDED: dict[str, Any] = {
    "topic": "orders",
    "message": ProducerMessage("orders", b"1"),
    "messages": [ProducerMessage("orders", b"1")],
    "execute": lambda _message, _result: None,
    "recall_handle": "handle",
    "queue": MessageQueue("orders", "broker-a", 0),
    "offset": 0,
    "invisible_duration_ms": 1_000,
}


def made(kind, cluster):
    arguments: dict[str, Any] = {"namesrv": cluster.namesrv}
    if kind in (AsyncConsumer, AsyncSimpleConsumer):
        arguments |= {"group": "g", "topics": "orders", "consume_from": "earliest"}
    if kind is AsyncProducer:
        arguments |= {"group": "g", "on_check": lambda _message: None}
    return kind(**arguments)


def tried(kind):
    """Each argument of each method; test_admin has those of all others of AsyncAdmin.

    A selector takes any object as its `arg`.
    """
    return [
        (method, name)
        for method, function in inspect.getmembers(kind, inspect.isfunction)
        for name in list(inspect.signature(function).parameters)[1:]
        if not method.startswith("_")
        and "__mutmut_" not in method
        and (kind is not AsyncAdmin or method == "read")
        and name != "arg"
    ]


async def refuses(client, method, name):
    """Whether a method refuses an object of no use as this argument."""
    call = getattr(client, method)
    needed = {
        key: NEEDED[key]
        for key, each in inspect.signature(call).parameters.items()
        if each.default is inspect.Parameter.empty
    }
    try:
        called = call(**{**needed, name: object()})
        if hasattr(called, "__anext__"):
            await anext(called)
        elif inspect.isawaitable(called):
            await called
    except TypeError:
        return True
    return False


@pytest.mark.parametrize(
    "kind", [AsyncConsumer, AsyncProducer, AsyncSimpleConsumer, AsyncAdmin]
)
def test_each_argument_reaches_the_client(rmq_cluster, kind):
    """The client refuses an object of no use, so it has been given it."""
    rmq_cluster.create_topic("orders", queues=1)
    calls = tried(kind)
    assert calls

    async def main():
        taken = []
        async with made(kind, rmq_cluster) as client:
            for method, name in calls:
                if method != "start" and not await refuses(client, method, name):
                    taken.append((method, name))
        for method, name in calls:
            if method == "start":
                client = made(kind, rmq_cluster)
                if not await refuses(client, method, name):
                    taken.append((method, name))
                await client.close()
        return taken

    assert run_clean(main) == []


@pytest.mark.parametrize("kind", [AsyncConsumer, AsyncProducer, AsyncSimpleConsumer])
def test_a_close_with_a_wrong_limit_changes_nothing(rmq_cluster, kind):
    """The client could not be closed any more, and kept its threads and connections."""
    rmq_cluster.create_topic("orders", queues=1)
    limit: Any = "1s"

    async def main():
        async with made(kind, rmq_cluster) as client:
            with pytest.raises(TypeError, match="timeout_ms is '1s'"):
                await client.close(timeout_ms=limit)
            if kind is AsyncProducer:
                await client.send(NEEDED["message"])
            elif kind is AsyncSimpleConsumer:
                await client.receive(await_ms=0)
            else:
                await client.commit()

    run_clean(main)
