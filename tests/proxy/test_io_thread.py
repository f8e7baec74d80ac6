"""The thread of all proxy clients beside event loops of the program that use gRPC."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import grpc.aio
import pytest

from rmqcli.proxy.io_thread import IoThread, io_thread
from tests.kit.waiting import PATIENCE_S, wait_until


@pytest.fixture
def waiting_server():
    """A server whose answers wait for the event."""
    may_answer, calls = threading.Event(), threading.Semaphore(0)

    def wait(_request, _context):
        calls.release()
        may_answer.wait(PATIENCE_S)
        return b"answer"

    with ThreadPoolExecutor(30) as pool:
        server = grpc.server(pool)
        handler = grpc.method_handlers_generic_handler(
            "own.Slow", {"Wait": grpc.unary_unary_rpc_method_handler(wait)}
        )
        server.add_generic_rpc_handlers((handler,))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield f"127.0.0.1:{port}", may_answer, calls
        may_answer.set()
        server.stop(None).wait(PATIENCE_S)


def test_answers_for_a_closed_event_loop_of_the_program_are_no_errors(
    waiting_server, caplog
):
    """gRPC hands them to whatever loop it wakes, here to that of the proxy clients."""
    target, may_answer, calls = waiting_server
    thread = io_thread()

    async def call(count: int) -> list[Any]:
        channel = grpc.aio.insecure_channel(target)
        method: Any = channel.unary_unary("/own.Slow/Wait")
        return [channel, *(method(b"") for _ in range(count))]

    async def answered() -> bytes:
        async with grpc.aio.insecure_channel(target) as channel:
            method: Any = channel.unary_unary("/own.Slow/Wait")
            answer: bytes = await method(b"")
            return answer

    later = asyncio.run_coroutine_threadsafe(answered(), thread.loop)
    loop = asyncio.new_event_loop()
    unanswered = loop.run_until_complete(call(20))

    async def arrived() -> None:
        while not calls.acquire(blocking=False):
            await asyncio.sleep(0)

    for _ in range(21):
        loop.run_until_complete(asyncio.wait_for(arrived(), PATIENCE_S))
    loop.close()
    with caplog.at_level(logging.ERROR, logger="rmqcli"):
        may_answer.set()
        assert later.result(PATIENCE_S) == b"answer"
        again = asyncio.run_coroutine_threadsafe(answered(), thread.loop)
        assert again.result(PATIENCE_S) == b"answer"
    assert [each.getMessage() for each in caplog.records] == []
    del unanswered


def test_all_clients_share_a_thread_that_does_not_keep_the_process_alive():
    assert io_thread() is io_thread()
    (thread,) = [each for each in threading.enumerate() if each.name == "rmq-proxy"]
    assert thread.daemon


@pytest.mark.injects_exceptions
def test_the_thread_goes_on_after_a_mistake_and_tells_it(caplog):
    thread = IoThread()  # of this test alone, because it ends
    found = threading.Event()

    def fail():
        raise ValueError("a mistake")

    thread.post(fail)
    thread.post(sys.exit)  # ends a loop of asyncio
    thread.post(lambda: thread.call_later(1, found.set))
    wait_until(found.is_set)
    thread.post(thread.loop.stop)
    wait_until(lambda: not thread.loop.is_running())
    thread.loop.close()
    record, at_exit = caplog.records
    assert at_exit.getMessage() == "the proxy thread continues after an exception"
    assert record.levelno == logging.ERROR
    assert record.getMessage().startswith("the proxy thread continues after an error")
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "a mistake"
