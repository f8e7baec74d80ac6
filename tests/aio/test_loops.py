"""The clients in another event loop, and beside gRPC of the program's own."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import grpc
import grpc.aio
import pytest

from rmqcli import ProducerMessage
from rmqcli.aio import AsyncConsumer, AsyncProducer
from tests.aio.interrupting import eventually
from tests.kit.waiting import PATIENCE_S
from tests.producer.stored import bodies


async def sent_and_consumed(client):
    """Send fifty messages while a listener of the topic waits; return its bodies."""
    bodies: list[bytes] = []

    async def handle(message):
        await asyncio.sleep(0)
        bodies.append(message.body)

    async with (
        AsyncProducer(client=client) as producer,
        AsyncConsumer("g", "orders", handle, client=client),
    ):
        while not bodies:  # The group begins at the end of the queues, after a while.
            await producer.send(ProducerMessage("orders", b"first"))
            await asyncio.sleep(0.01)
        await asyncio.gather(
            *(producer.send(ProducerMessage("orders", b"%02d" % n)) for n in range(50))
        )
        await eventually(lambda: len(set(bodies)) == 51)
    return sorted(set(bodies) - {b"first"})


def test_messages_are_sent_and_consumed_in_uvloop(client):
    uvloop = pytest.importorskip("uvloop")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        bodies = runner.run(sent_and_consumed(client))
    assert bodies == [b"%02d" % n for n in range(50)]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_exit_in_a_listener_ends_uvloop(rmq_cluster, error):
    uvloop = pytest.importorskip("uvloop")
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.send("orders", [b"1"])

    async def handle(_message):
        raise error

    async def main():
        async with AsyncConsumer(
            "g",
            "orders",
            handle,
            consume_from="earliest",
            namesrv=rmq_cluster.namesrv,
        ) as consumer:
            await consumer.wait()

    with (
        pytest.raises(error),
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(main())


def test_the_program_may_use_grpc_in_the_same_loop(client):
    """Its calls, which wait in the loop, and those of the clients end."""

    async def echo(request, _context):
        await asyncio.sleep(0)
        return request

    async def main():
        server = grpc.aio.server()
        handler = grpc.method_handlers_generic_handler(
            "own.Echo", {"Echo": grpc.unary_unary_rpc_method_handler(echo)}
        )
        server.add_generic_rpc_handlers((handler,))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            call: Any = channel.unary_unary("/own.Echo/Echo")
            answers, bodies = await asyncio.gather(
                asyncio.gather(*(call(b"%d" % n) for n in range(50))),
                sent_and_consumed(client),
            )
        await server.stop(None)
        return answers, bodies

    answers, bodies = asyncio.run(main())
    assert answers == [b"%d" % n for n in range(50)]
    assert bodies == [b"%02d" % n for n in range(50)]


FORKING = """
import asyncio, os, sys
from rmqcli import ProducerMessage
from rmqcli.aio import AsyncAdmin, AsyncConsumer, AsyncProducer, AsyncSimpleConsumer

namesrv = sys.argv[1]

async def ignore(message):
    pass

async def used(producer, consumer, simple, admin):
    for call in (
        lambda: producer.send(ProducerMessage("orders", b"x")),
        simple.receive,
        admin.topics,
        consumer.close,
    ):
        try:
            await call()
            print("no error", flush=True)
        except Exception as error:
            print(f"{type(error).__name__}: {error}", flush=True)

async def main():
    async with (
        AsyncProducer(namesrv=namesrv) as producer,
        AsyncConsumer("g", "orders", ignore, namesrv=namesrv) as consumer,
        AsyncSimpleConsumer("s", "orders", namesrv=namesrv) as simple,
        AsyncAdmin(namesrv=namesrv) as admin,
    ):
        await producer.send(ProducerMessage("orders", b"before"))
        child = os.fork()
        if child == 0:
            asyncio._set_running_loop(None)
            asyncio.run(used(producer, consumer, simple, admin))
            os._exit(0)
        print("child", os.waitpid(child, 0)[1], flush=True)
        await producer.send(ProducerMessage("orders", b"after"))

asyncio.run(main())
"""


def test_a_forked_child_is_told_that_the_clients_are_not_its_own(rmq_cluster):
    rmq_cluster.create_topic("orders", queues=1)
    done = subprocess.run(
        [sys.executable, "-c", FORKING, rmq_cluster.namesrv],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.stdout.splitlines() == [
        *["UsageError: the client belongs to another event loop"] * 4,
        "child 0",
    ], done.stderr
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert bodies(rmq_cluster, "orders") == [b"after", b"before"]
