"""Functions whose calls would not run their bodies are refused where they are given."""

from __future__ import annotations

import asyncio
import functools
import subprocess
import sys
import warnings
from typing import Any

import pytest

from rmqcli import (
    Admin,
    AllocateMessageQueueConsistentHash,
    Consumer,
    ConsumerConfig,
    Producer,
    ProducerMessage,
)
from rmqcli.checked import check_callback, check_returned
from tests.kit.rows import each_row
from tests.producer.stored import bodies


async def never_run(*_args, **_named):
    raise AssertionError


#: Without its type, of which a type checker would say what these tests say.
coroutine: Any = never_run


async def asynchronous_generator(*_args):
    yield


def generator(*_args):
    yield


class Methods:
    async def __call__(self, *_args):
        raise AssertionError("never run")

    async def method(self, *_args):
        raise AssertionError("never run")

    @classmethod
    async def of_class(cls, *_args):
        raise AssertionError("never run")

    @staticmethod
    async def static(*_args):
        raise AssertionError("never run")

    bound_early = functools.partialmethod(method, 1)


class Calling:
    """Its call runs a generator function that is not a method of its class's body."""

    __call__ = generator


def passed_on(function):
    @functools.wraps(function)
    async def wrapper(*args):
        return await function(*args)

    return wrapper


ASYNC = {
    "a function": coroutine,
    "a decorated function": passed_on(coroutine),
    "a bound method": Methods().method,
    "a method of a class": Methods.of_class,
    "a static method": Methods().static,
    "an object": Methods(),
    "a partial function": functools.partial(coroutine, 1),
    "a partial of a partial method": functools.partial(
        functools.partial(Methods().method, 1), 2
    ),
    "a partial of an object": functools.partial(Methods(), 1),
    "a method of partialmethod": Methods().bound_early,
    "an asynchronous generator": asynchronous_generator,
    "a generator": generator,
    "an object whose call is a generator": Calling(),
}


@functools.wraps(coroutine)
def run_to_its_end(*_args):
    """A plain function, although the one that it wraps is asynchronous."""


PLAIN = {
    "a function": run_to_its_end,
    "a lambda": lambda *_: None,
    "a method of C": [].append,
    "a function of C": print,
    "a class": Methods,
    "a partial": functools.partial(print, end=""),
    "nothing": None,
}


@each_row("function", ASYNC.values(), ids=ASYNC)
def test_a_function_that_a_call_does_not_run_is_a_type_error(function):
    with pytest.raises(TypeError, match=r"on_message .*(async def|generator)"):
        check_callback(function, "on_message")


@pytest.mark.parametrize("function", PLAIN.values(), ids=PLAIN)
def test_functions_that_a_call_runs_are_accepted(function):
    check_callback(function, "on_message")


def test_what_cannot_be_called_is_a_type_error():
    with pytest.raises(TypeError, match=r"on_failed is 'print', which is not callable"):
        check_callback("print", "on_failed")


def test_a_returned_coroutine_is_a_type_error_and_is_closed_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for made in (coroutine(), generator(), asynchronous_generator()):
            with pytest.raises(
                TypeError, match=r"listener returned an? .*generator|cor"
            ):
                check_returned(made, "the listener")
            del made
    loop = asyncio.new_event_loop()
    try:
        with pytest.raises(TypeError, match="the listener returned an awaitable"):
            check_returned(loop.create_future(), "the listener")
    finally:
        loop.close()
    for value in (None, True, "text", 5, object(), [1]):
        check_returned(value, "the listener")


LISTENERS = (
    "on_message",
    "on_batch",
    "on_undecodable",
    "on_failed",
    "on_start",
    "on_assigned",
    "on_revoked",
)


@pytest.mark.parametrize("name", LISTENERS)
def test_a_consumer_refuses_asynchronous_functions_when_it_is_made(name):
    with pytest.raises(TypeError, match="async def"):
        Consumer("g", "orders", **{name: coroutine})


def test_a_strategy_refuses_asynchronous_functions_when_it_is_made():
    class Strategy:
        name = "MINE"
        allocate: Any = coroutine

    with pytest.raises(TypeError, match=r"strategy\.allocate .*async def"):
        ConsumerConfig(strategy=Strategy())
    with pytest.raises(TypeError, match=r"hash_of .*async def"):
        AllocateMessageQueueConsistentHash(hash_of=coroutine)


def test_a_producer_refuses_asynchronous_functions_where_they_are_given(rmq_cluster):
    topic = rmq_cluster.create_topic("orders")
    message = ProducerMessage(topic, b"x")
    with pytest.raises(TypeError, match=r"on_check .*async def"):
        Producer("shop", on_check=coroutine)
    with Producer(
        "shop", namesrv=rmq_cluster.namesrv, on_check=lambda _: None
    ) as producer:
        with pytest.raises(TypeError, match=r"selector .*async def"):
            producer.send(message, selector=coroutine)
        with pytest.raises(TypeError, match=r"selector returned a coroutine"):
            producer.send(message, selector=lambda *_: coroutine())
        with pytest.raises(TypeError, match=r"execute .*async def"):
            producer.send_in_transaction(message, coroutine)
        assert bodies(rmq_cluster, topic) == []
        future = producer.submit(message)
        with pytest.raises(TypeError, match=r"callback .*async def"):
            future.add_done_callback(coroutine)
        future.result()


TYPED = """
from collections.abc import AsyncIterator
from rmqcli import Admin, ConsumeConcurrentlyStatus, Consumer, FailedDelivery, Message
from rmqcli import ProxyMessage, PulledMessage, SimpleConsumer
from rmqcli.engine.listener import ConsumeConcurrentlyContext

async def one(message: Message) -> None: ...
async def many(messages: list[Message], context: ConsumeConcurrentlyContext) -> bool:
    return True
async def each(message: Message) -> AsyncIterator[int]:
    yield 1
def plain(message: Message) -> bool: return True
def none(message: Message) -> None: ...
def status(
    messages: list[Message], context: ConsumeConcurrentlyContext
) -> ConsumeConcurrentlyStatus:
    return ConsumeConcurrentlyStatus.CONSUME_SUCCESS
class Called:
    async def __call__(self, message: Message) -> None: ...
def pulled(message: PulledMessage) -> None: ...
def every(message: Message, given: ProxyMessage | FailedDelivery) -> list[Message]:
    message.queue_offset + 1  # refused
    if isinstance(message, PulledMessage):
        message.commit_log_offset + message.queue_offset + message.sys_flag
    found: list[Message] = [message]
    found.append(given if isinstance(given, ProxyMessage) else given.message)
    found.extend(SimpleConsumer("g", "t").receive())
    found.extend(Admin().read("t"))
    found.append(next(iter(Consumer("g", "t"))))
    return found

Consumer("g", "t", pulled)  # refused
Consumer("g", "t", plain)
Consumer("g", "t", none)
Consumer("g", "t", lambda message: print(message))
Consumer("g", "t", on_batch=status)
Consumer("g", "t", one)  # refused
Consumer("g", "t", Called())  # refused
Consumer("g", "t", each)  # refused
Consumer("g", "t", on_batch=many)  # refused
Consumer("g", "t", plain, on_assigned=lambda queues: one(queues))  # refused
"""


@pytest.mark.slow
def test_mypy_accepts_plain_listeners_of_one_message_type_and_refuses_others(tmp_path):
    source = tmp_path / "program.py"
    source.write_text(TYPED)
    checked = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--no-error-summary"),
            *("--hide-error-context", str(source)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    wanted = [
        number
        for number, line in enumerate(TYPED.splitlines(), 1)
        if line.endswith("# refused")
    ]
    errors = [line for line in checked.stdout.splitlines() if ": error:" in line]
    assert sorted({int(line.split(":")[1]) for line in errors}) == wanted, errors


def test_a_call_without_an_argument_is_refused_in_python_s_own_words():
    """The name of the function was missing: "missing a required argument: 'group'"."""
    admin: Any = Admin()
    with pytest.raises(
        TypeError, match=r"^Admin\.lag\(\) missing 1 required .* 'group'$"
    ):
        admin.lag()
    with pytest.raises(
        TypeError, match=r"^Admin\.lag\(\) got an unexpected .* 'topic'$"
    ):
        admin.lag("billing", topic="orders")
