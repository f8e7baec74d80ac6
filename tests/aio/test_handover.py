"""What passes between a client's threads and the event loop."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest

from rmqcli import ConfigError
from rmqcli.aio import AsyncProducer
from rmqcli.aio.handover import BlockingCalls, Closing, EventLoop


def test_the_error_of_a_close_is_raised_for_each_that_waits_for_its_end():
    def fail():
        raise OSError("the disk is full")

    async def main():
        closing = Closing(EventLoop(), fail)
        return await asyncio.gather(
            closing.wait(), closing.wait(), return_exceptions=True
        )

    errors = asyncio.run(main())
    assert [str(each) for each in errors] == ["the disk is full"] * 2
    assert all(isinstance(each, OSError) for each in errors)


def test_actions_that_come_together_wake_the_loop_up_once():
    done: list[int] = []
    wake_ups: list[object] = []

    async def main():
        loop = EventLoop()
        wake_up = loop.loop.call_soon_threadsafe

        def counted(callback):
            wake_ups.append(callback)
            return wake_up(callback)

        vars(loop.loop)["call_soon_threadsafe"] = counted
        for round_ in range(3):
            for n in range(100):
                assert loop.post(partial(done.append, n))
            assert done == list(range(100)) * round_
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    asyncio.run(main())
    assert len(wake_ups) == 3
    assert done == list(range(100)) * 3


def test_a_close_that_hangs_does_not_keep_the_process():
    begun, may_end = threading.Event(), threading.Event()

    def close():
        begun.set()
        may_end.wait()

    async def main():
        closing = Closing(EventLoop(), close)
        begun.wait()
        (thread,) = [
            each for each in threading.enumerate() if each.name == "rmq-aio-close"
        ]
        may_end.set()
        await closing.wait()
        return thread.daemon, thread.is_alive()

    assert asyncio.run(main()) == (True, False)


def test_four_calls_of_a_client_block_at_the_same_time():
    """A thread begins with the call for which none is free."""
    may_end = threading.Event()

    async def main():
        calls = BlockingCalls(EventLoop())
        running = [asyncio.ensure_future(calls.run(may_end.wait)) for _ in range(6)]
        await asyncio.sleep(0)
        names = {each.name for each in threading.enumerate()}
        may_end.set()
        assert await asyncio.gather(*running) == [True] * 6
        await calls.close(lambda: None).wait()
        return {name for name in names if name.startswith("rmq-aio")}

    assert asyncio.run(main()) == {f"rmq-aio_{n}" for n in range(4)}


@pytest.mark.parametrize("count", [0, 1_000_001])
def test_as_many_messages_in_flight_as_a_producer_can_have(count):
    AsyncProducer(namesrv="127.0.0.1:1", in_flight_max=1)
    AsyncProducer(namesrv="127.0.0.1:1", in_flight_max=1_000_000)
    with pytest.raises(ConfigError, match=f"in_flight_max is {count}; it must be 1 to"):
        AsyncProducer(namesrv="127.0.0.1:1", in_flight_max=count)
