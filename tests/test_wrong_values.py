"""What a program gets for a wrong value: a TypeError or a ConfigError, by its class."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import pytest

from rmqcli import (
    Admin,
    ClientConfig,
    ConfigError,
    ConnectError,
    Consumer,
    ConsumerConfig,
    Credentials,
    DeadlineError,
    MessageQueue,
    Producer,
    ProducerConfig,
    ProducerMessage,
    RmqError,
    SimpleConsumer,
    TextError,
    TlsOptions,
    TransportError,
    UsageError,
    connect,
    parse_decode,
    sql,
)
from tests.kit.rows import each_row

if TYPE_CHECKING:
    from collections.abc import Callable

QUEUE = MessageQueue("orders", "broker-a", 0)


def consumer(**given):
    return Consumer(**{"group": "g", "topics": "orders", "on_message": print, **given})


def simple(**given):
    return SimpleConsumer(**{"group": "g", "topics": "orders", **given})


def expression(text):
    return sql("orders", text)


def message(**given):
    return ProducerMessage(**{"topic": "orders", "body": b"x", **given})


#: What makes the value, an argument, and a value that it cannot have.
WRONG_VALUES = [
    (ClientConfig, "namesrv", ""),
    (ClientConfig, "namesrv", ()),
    (ClientConfig, "endpoints", ";"),
    (ClientConfig, "timeout_ms", 0),
    (ClientConfig, "timeout_ms", 10**12),
    (connect, "namesrv", ";"),
    (connect, "endpoints", ";"),
    (connect, "timeout_ms", -1),
    (Credentials, "access_key", ""),
    (ConsumerConfig, "consume_threads", 0),
    (ConsumerConfig, "pull_batch_size", 1_025),
    (ConsumerConfig, "instance_name", "a b"),
    (ProducerConfig, "send_msg_timeout_ms", 0),
    (ProducerConfig, "compress_level", 10),
    (Producer, "group", "a b"),
    (Producer, "namesrv", ""),
    (consumer, "group", ""),
    (consumer, "group", "a b"),
    (consumer, "topics", ()),
    (consumer, "topics", "a b"),
    (consumer, "topics", {"orders": "||"}),
    (consumer, "topics", {"orders": " "}),  # no message was delivered
    (consumer, "topics", {"orders": " || "}),
    (consumer, "topics", {"orders": sql("payments", "a > 5")}),
    (parse_decode, "text", "jsn"),
    (parse_decode, "text", "registry:http://127.0.0.1:8081"),
    (consumer, "namesrv", ""),
    (consumer, "endpoints", ";"),
    (simple, "group", ""),
    (simple, "topics", []),
    (simple, "invisible_duration_ms", 999),
    (simple, "namesrv", ""),
    (Admin, "namesrv", ""),
    (message, "topic", ""),
    (message, "topic", "a b"),
    (message, "keys", "a b"),
    (message, "properties", {"KEYS": "x"}),
    (message, "flag", 2**31),
    (message, "message_group", ""),
    (message, "delay_level", 2**31),
    (message, "delay_ms", 0),
    (message, "deliver_at_ms", -1),
    (message, "deliver_at_ms", 1_767_322_800),  # seconds: it was delivered at once
]

WRONG_TYPES = [
    (ClientConfig, "namesrv", 9876),
    (ClientConfig, "endpoints", 8081),
    (ClientConfig, "timeout_ms", "5s"),
    (ClientConfig, "timeout_ms", True),
    (ClientConfig, "credentials", "key:secret"),
    (ClientConfig, "tls", True),
    (ClientConfig, "plaintext", "yes"),
    (connect, "timeout_ms", 1.5),
    (connect, "tls", "ca.pem"),
    (Credentials, "access_key", 7),
    (Credentials, "security_token", b"x"),
    (TlsOptions, "ca_file", 7),
    (TlsOptions, "insecure", "yes"),
    (ConsumerConfig, "consume_threads", "20"),
    (ConsumerConfig, "consume_threads", None),
    (ConsumerConfig, "strategy", "AVG"),
    (ConsumerConfig, "message_model", "CLUSTERING"),
    (ProducerConfig, "compress_level", "5"),
    (ProducerConfig, "linger_ms", 0.5),
    (ProducerConfig, "retry_another_broker_when_not_store_ok", 1),
    (ProducerConfig, "create_topic_key", 1),
    (Producer, "group", 1),
    (Producer, "config", {}),
    (Producer, "client", "127.0.0.1:9876"),
    (Producer, "namesrv", ["127.0.0.1:9876"]),
    (Producer, "endpoints", 8081),
    (Producer, "on_check", "print"),
    (consumer, "group", None),
    (consumer, "topics", None),
    (consumer, "topics", {"orders": None}),
    (consumer, "topics", [1]),
    (consumer, "on_message", "print"),
    (consumer, "config", {"consume_threads": 1}),
    (consumer, "client", "127.0.0.1:9876"),
    (consumer, "namesrv", 9876),
    (consumer, "orderly", "yes"),
    (consumer, "on_failed", 1),
    (consumer, "on_assigned", []),
    (simple, "group", 1),
    (simple, "topics", 1),
    (simple, "invisible_duration_ms", "30s"),
    (simple, "orderly", None),
    (simple, "client", {}),
    (Admin, "client", "127.0.0.1:9876"),
    (Admin, "namesrv", 9876),
    (message, "topic", b"orders"),
    (message, "body", "text"),
    (message, "tags", 1),
    (message, "keys", 1),
    (message, "keys", [1]),
    (message, "properties", [("a", "b")]),
    (message, "properties", {"a": 1}),
    (message, "flag", "1"),
    (message, "delay_level", "3"),
    (message, "delay_ms", 1.5),
    (message, "deliver_at_ms", True),
    (message, "message_group", 1),
    (expression, "text", 5),
    (parse_decode, "text", 5),
]


def _given(make, name, value):
    if make is Credentials:
        return {"access_key": "key", "secret_key": "secret", name: value}
    return {name: value}


@each_row(("make", "name", "value"), WRONG_VALUES)
def test_a_value_that_cannot_be_used_is_a_config_error(make, name, value):
    with pytest.raises(ConfigError) as caught:
        make(**_given(make, name, value))
    assert isinstance(caught.value, ValueError)


@each_row(("make", "name", "value"), WRONG_TYPES)
def test_a_value_of_a_wrong_type_is_a_type_error(make, name, value):
    with pytest.raises(TypeError):
        make(**_given(make, name, value))


#: What a program makes, with the arguments that it needs besides the one in question.
MADE: dict[Callable[..., object], dict[str, object]] = {
    ClientConfig: {},
    connect: {},
    Credentials: {"access_key": "key", "secret_key": "secret"},
    TlsOptions: {},
    ConsumerConfig: {},
    ProducerConfig: {},
    Producer: {},
    Consumer: {"group": "g", "topics": "orders"},
    SimpleConsumer: {"group": "g", "topics": "orders"},
    Admin: {},
    ProducerMessage: {"topic": "orders", "body": b"x"},
}

#: Every argument of these, except for the clock, which only tests give.
EVERY_ARGUMENT_OF_WHAT_IS_MADE = [
    pytest.param(make, name, id=f"{getattr(make, '__name__', '')}-{name}")
    for make in MADE
    for name in inspect.signature(make).parameters
    if name != "clock"
]


@each_row(("make", "name"), EVERY_ARGUMENT_OF_WHAT_IS_MADE)
def test_an_object_of_no_use_is_a_type_error_as_any_argument(make, name):
    with pytest.raises(TypeError):
        make(**{**MADE[make], name: object()})


@pytest.mark.parametrize(
    "make", [Producer, consumer, simple, Admin], ids=lambda each: each.__name__
)
def test_a_configuration_and_addresses_exclude_each_other(make):
    with pytest.raises(ConfigError, match="namesrv and client cannot be used together"):
        make(namesrv="127.0.0.1:9876", client=ClientConfig())
    if make is not Admin:
        with pytest.raises(ConfigError, match="endpoints and client cannot be used"):
            make(endpoints="127.0.0.1:8081", client=ClientConfig())


@pytest.mark.parametrize(
    "given",
    [
        {"namesrv": "127.0.0.1:9876", "endpoints": "127.0.0.1:8081"},
        {"plaintext": True, "tls": TlsOptions()},
    ],
)
def test_settings_that_exclude_each_other_are_a_config_error(given):
    with pytest.raises(ConfigError, match="cannot be used together"):
        connect(**given)


def test_secrets_are_not_in_the_message_about_their_type():
    with pytest.raises(TypeError) as caught:
        Credentials("key", b"sesame")  # type: ignore[arg-type]  # wrong on purpose
    assert str(caught.value) == "secret_key is a bytes; it must be a str"


#: Calls of a started client, and the error that each raises before anything is sent.
WRONG_ARGUMENTS = [
    (lambda each: each.send(message(), timeout_ms=0), ConfigError),
    (lambda each: each.send(message(), timeout_ms="3s"), TypeError),
    (lambda each: each.send(message(), queue=QUEUE, selector=max), ConfigError),
    (lambda each: each.send(message(), selector="hash"), TypeError),
    (lambda each: each.submit(message(), timeout_ms=-1), ConfigError),
    (lambda each: each.send_batch([]), ConfigError),
    (lambda each: each.send_batch([message(), message(topic="b")]), ConfigError),
    (lambda each: each.send_oneway(message(body=b"")), ConfigError),
]


@pytest.mark.parametrize(("call", "expected"), WRONG_ARGUMENTS)
def test_wrong_arguments_of_a_producer_s_methods(rmq_cluster, call, expected):
    rmq_cluster.create_topic("orders")
    with (
        Producer(namesrv=rmq_cluster.namesrv) as producer,
        pytest.raises(expected) as caught,
    ):
        call(producer)
    assert isinstance(caught.value, ValueError | TypeError)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda each: each.receive(33), ConfigError),
        (lambda each: each.receive("1"), TypeError),
        (lambda each: each.receive(await_ms=-1), ConfigError),
        (lambda each: each.receive(invisible_duration_ms=1), ConfigError),
        (lambda each: each.ack(["id"]), TypeError),
        (lambda each: each.change_invisible("id", 1_000), TypeError),
        (lambda each: each.subscribe("a b"), ConfigError),
        (lambda each: each.unsubscribe("orders"), ConfigError),
    ],
)
def test_wrong_arguments_of_a_simple_consumer_s_methods(rmq_cluster, call, expected):
    with (
        SimpleConsumer("g", "orders", namesrv=rmq_cluster.namesrv) as started,
        pytest.raises(expected),
    ):
        call(started)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda each: each.plan_reset("g", "t"), ConfigError),
        (lambda each: each.plan_reset("g", "t", to="x"), TextError),
        (lambda each: each.plan_reset("g", "t", to=5), TypeError),
        (lambda each: each.plan_reset("a b", "t", shift=1), ConfigError),
        (lambda each: next(each.read("orders", from_="yesterday")), TextError),
        (lambda each: next(each.read("orders", sub_expression="||")), ConfigError),
        (lambda each: next(each.read("orders", where="tags = ")), TextError),
        (lambda each: next(each.read("orders", decode="json")), UsageError),
        (lambda each: each.read_dead_letters("g", where="valu = 1"), TextError),
        (lambda each: each.read_dead_letters("g", where="", decode="jsn"), TextError),
        (lambda each: each.create_topic("a b"), ConfigError),
        (lambda each: each.create_topic("t", perm=9), ConfigError),
        (lambda each: each.create_topic("t", queue_nums="8"), TypeError),
        (lambda each: each.create_group("g", retry_max_times="x"), TypeError),
        (lambda each: each.plan_undo("g", "orders", other_cluster=True), ConfigError),
    ],
)
def test_wrong_arguments_of_an_admin_s_methods(rmq_cluster, call, expected):
    rmq_cluster.create_topic("orders")
    with Admin(namesrv=rmq_cluster.namesrv) as admin, pytest.raises(expected):
        call(admin)


#: An argument of each name that a method accepts, to reach the check of another one.
GOOD = {
    "backup_id": "b",
    "execute": lambda _message, _result: None,
    "group": "g",
    "key": "k",
    "message": ProducerMessage("orders", b"x"),
    "messages": (),
    "queue": QUEUE,
    "queue_offset": 0,
    "recall_handle": "h",
    "topic": "orders",
}


def _methods(kind):
    return [
        (name, method)
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    ]


EVERY_ARGUMENT_OF_A_METHOD = [
    pytest.param(kind, method, name, id=f"{kind.__name__}.{method}-{name}")
    for kind in (Admin, Consumer, Producer, SimpleConsumer)
    for method, function in _methods(kind)
    for name, each in list(inspect.signature(function).parameters.items())[1:]
    if each.annotation != "object" and each.kind is not each.VAR_KEYWORD
]


@pytest.fixture(scope="module")
def started_clients():
    """One client of each kind; nothing is sent to a server before the checks."""
    nowhere = "127.0.0.1:1"
    with (
        Admin(namesrv=nowhere) as admin,
        Producer("p", namesrv=nowhere, on_check=lambda _message: None) as producer,
        SimpleConsumer("g", "orders", namesrv=nowhere) as simple_consumer,
    ):
        push = Consumer("g", "orders", print, namesrv=nowhere)
        yield {type(each): each for each in (admin, producer, simple_consumer, push)}


@each_row(("kind", "method", "name"), EVERY_ARGUMENT_OF_A_METHOD)
def test_an_object_of_no_use_is_a_type_error_as_any_argument_of_a_method(
    started_clients, kind, method, name
):
    call = getattr(started_clients[kind], method)
    needed = {
        each: GOOD.get(each, "?")
        for each, parameter in inspect.signature(call).parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind is not parameter.VAR_KEYWORD
    }
    with pytest.raises(TypeError):
        call(**{**needed, name: object()})


def test_a_text_is_no_collection_of_names():
    with Admin(namesrv="127.0.0.1:1") as admin, pytest.raises(TypeError) as caught:
        admin.create_topic("orders", brokers="broker-a")
    assert str(caught.value) == (
        "brokers is 'broker-a', a str; it must be a Collection or None"
    )


def test_errors_have_the_bases_that_python_has_for_them():
    refused = ConnectError("refused", address="127.0.0.1:9")
    silent = DeadlineError("silent", address="127.0.0.1:9")
    assert isinstance(refused, ConnectionError)
    assert isinstance(refused, TransportError)
    assert isinstance(silent, TimeoutError)
    assert isinstance(silent, RmqError)
    assert (str(refused), refused.address, refused.errno) == (
        "refused",
        "127.0.0.1:9",
        None,
    )
    assert issubclass(ConfigError, (UsageError, ValueError))
    assert issubclass(TextError, ConfigError)


def test_a_server_that_is_not_there_is_a_connection_error():
    with Admin(namesrv="127.0.0.1:1") as admin, pytest.raises(ConnectionError):
        admin.topics()
