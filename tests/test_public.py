"""What `from rmqcli import ...` gives: names, errors, speed, and `connect`."""

from __future__ import annotations

import ast
import copy
import dataclasses
import inspect
import json
import pickle
import re
import subprocess
import sys
from typing import Any

import pytest

import rmqcli
import rmqcli.aio
import rmqcli.testing
from rmqcli import ClientConfig, ConfigError, UsageError, connect, errors
from rmqcli.engine.message import PulledItem, PulledRecord
from tests.consumer.collecting import FROM_FIRST
from tests.kit.rows import each_row
from tests.kit.waiting import wait_until

#: Type checkers do not see this list: they go by the imports in the package.
PUBLIC: list[str] = vars(rmqcli)["__all__"]


def test_importing_the_package_loads_nothing_else_of_it():
    code = "import json, sys, rmqcli; print(json.dumps(sorted(sys.modules)))"
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    loaded = json.loads(process.stdout)
    assert [name for name in loaded if name.startswith("rmqcli")] == ["rmqcli"]


def test_every_public_name_exists_and_is_documented():
    for name in PUBLIC:
        each = getattr(rmqcli, name)
        if name != "__version__":
            assert inspect.getdoc(each), name
    assert dir(rmqcli) == sorted(PUBLIC)


def test_type_checkers_find_every_public_name_where_it_is_loaded_from():
    tree = ast.parse(inspect.getsource(rmqcli))
    imports = [each for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)]
    declared = {
        name.asname: each.module
        for each in imports
        for name in each.names
        if name.asname
    }
    assert declared == rmqcli._HOMES


def test_every_public_method_is_documented():
    for kind in (
        rmqcli.Consumer,
        rmqcli.SimpleConsumer,
        rmqcli.Producer,
        rmqcli.Admin,
        rmqcli.Cluster,
    ):
        for name, method in vars(kind).items():
            if not name.startswith("_") and callable(method):
                assert method.__doc__, f"{kind.__name__}.{name}"


def test_the_whole_error_tree_is_public():
    tree = {
        name
        for name, each in vars(errors).items()
        if isinstance(each, type) and issubclass(each, errors.RmqError)
    }
    assert tree <= set(PUBLIC)


@pytest.mark.parametrize(
    "error",
    [
        errors.SendUnknownError("m", address="a:1", msg_ids=("x", "y"), hint="h"),
        errors.AckError("m", failures=(), hint="h"),
        errors.TimeLimitError("m", hint="h"),
        errors.PartialError("m", hint="h"),
        errors.ChangeUnknownError("m", hint="h"),
    ],
)
def test_errors_can_be_pickled(error):
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert vars(copy) == vars(error)


def test_one_configuration_serves_producers_consumers_and_an_admin(rmq_cluster):
    with connect(rmq_cluster.namesrv) as cluster:
        with cluster.admin() as admin:
            admin.create_topic("orders", queue_nums=1)
        with cluster.consumer("billing", "orders") as consumer:
            producer = cluster.producer()
            producer.start()
            wait_until(lambda: consumer.offsets())
            producer.send(rmqcli.ProducerMessage("orders", b"hello"))
            assert next(iter(consumer)).body == b"hello"
    with pytest.raises(UsageError, match="the producer is closed"):
        producer.send(rmqcli.ProducerMessage("orders", b"late"))


@pytest.mark.parametrize(
    ("namesrv", "environ", "expected"),
    [
        ("a:1; b:2", {"NAMESRV_ADDR": "c:3"}, ("a:1", "b:2")),
        (None, {"NAMESRV_ADDR": "c:3;d:4;"}, ("c:3", "d:4")),
        (None, {"NAMESRV_ADDR": ""}, ("127.0.0.1:9876",)),
        (None, {}, ("127.0.0.1:9876",)),
    ],
)
def test_name_servers_are_those_of_the_argument_then_of_the_environment(
    namesrv, environ, expected
):
    assert ClientConfig.from_env(environ, namesrv=namesrv).namesrv == expected


@pytest.mark.parametrize(
    ("namesrv", "environ", "why"),
    [
        (" ; ", {}, "namesrv is ' ; ': no name server in it"),
        (None, {"NAMESRV_ADDR": ";"}, "NAMESRV_ADDR is ';': no name server"),
    ],
)
def test_addresses_without_a_server_are_refused(namesrv, environ, why):
    with pytest.raises(ConfigError, match=why):
        ClientConfig.from_env(environ, namesrv=namesrv)


def test_everything_that_a_program_gets_has_a_short_repr_without_secrets(rmq_cluster):
    """Also of messages with long bodies, keys and properties."""
    body = b"sesame" * 100_000
    topic = rmq_cluster.create_topic("orders", queues=1)
    config = ClientConfig(
        namesrv=rmq_cluster.namesrv,
        credentials=rmqcli.Credentials("rocketmq2", "sesame-secret"),
    )
    message = rmqcli.ProducerMessage(
        topic, body, keys=["k1"], properties={"a": "sesame" * 100}
    )
    shown: list[object] = [config, message, connect(rmq_cluster.namesrv)]
    contexts: list[object] = []

    def listener(messages, context):
        contexts.extend([context, *messages])

    admin = rmqcli.Admin(client=config)
    producer = rmqcli.Producer("shop", client=config)
    consumer = rmqcli.Consumer(
        "g",
        topic,
        on_batch=listener,
        client=config,
        config=rmqcli.ConsumerConfig(consume_from_where=FROM_FIRST),
    )
    simple = rmqcli.SimpleConsumer("s", topic, client=config)
    with admin, producer, consumer, simple:
        result = producer.send(message)
        wait_until(lambda: contexts)
        shown += [admin, producer, consumer, simple, result, *contexts]
        shown += [result.queue, *admin.read(topic), *simple.receive(1)]
        shown += [admin.lag("g"), admin.lag("g").topics[0], rmq_cluster]
        shown += [*admin.lag("g").queues]
        assert repr(admin) == f"Admin(namesrv={rmq_cluster.namesrv!r})"
        assert repr(consumer) == (
            f"Consumer('g', ['orders'], namesrv={rmq_cluster.namesrv!r}, open)"
        )
    assert repr(message) == (
        "ProducerMessage(topic='orders', body_bytes=600000, keys=('k1',),"
        " properties=['a'])"
    )
    for each in shown:
        text = repr(each)
        assert len(text) < 500, text
        assert "sesame" not in text
        assert " object at 0x" not in text


@pytest.mark.parametrize("module", [rmqcli, rmqcli.aio, rmqcli.testing])
def test_no_public_class_shows_where_it_is_in_memory(module):
    """But for classes without instances of their own, and what Spark shows."""
    kinds = {name: getattr(module, name) for name in module.__all__}
    plain = [
        name
        for name, kind in kinds.items()
        if inspect.isclass(kind)
        and kind.__repr__ is object.__repr__
        and not getattr(kind, "_is_protocol", False)
    ]
    assert plain == (["Position", "RocketMQDataSource"] if module is rmqcli else [])


def test_a_lag_shows_what_it_is(rmq_cluster):
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.create_group("billing")
    rmq_cluster.send("orders", ["a"])
    with rmqcli.Admin(namesrv=rmq_cluster.namesrv) as admin:
        admin.apply_reset(admin.plan_reset("billing", "orders", to="earliest"))
        lag = admin.lag("billing")
    shown = (
        "GroupLag(group='billing', state=<GroupState.STOPPED: 'STOPPED'>, total_lag=1,"
        f" reason=None, age_ms={lag.age_ms}, topics=1, queues=1)"
    )
    assert repr(lag) == shown
    assert repr(lag.topics[0]).startswith("TopicLag(topic='orders', lag=1, known_lag=1")


@each_row(
    "client",
    [
        rmqcli.Admin(),
        rmqcli.Consumer("g", "orders"),
        rmqcli.Producer(),
        rmqcli.SimpleConsumer("g", "orders"),
        rmqcli.aio.AsyncAdmin(),
        rmqcli.aio.AsyncConsumer("g", "orders"),
        rmqcli.aio.AsyncProducer(),
        rmqcli.aio.AsyncSimpleConsumer("g", "orders"),
    ],
    ids=lambda client: type(client).__name__,
)
@each_row("way", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_client_cannot_be_copied_or_pickled(client, way):
    """A process pool or Spark said "cannot pickle '_thread.RLock' object"."""
    name = type(client).__name__
    with pytest.raises(
        TypeError, match=rf"^{name}\(.*cannot be copied or pickled; create"
    ):
        way(client)


def test_values_are_compared_by_what_they_hold():
    """A program that looked whether a lag had changed always saw a change."""
    values = [
        each
        for name in PUBLIC
        if dataclasses.is_dataclass(each := getattr(rmqcli, name))
    ]
    assert len(values) > 80
    assert [each.__name__ for each in values if each.__eq__ is object.__eq__] == []


def test_a_lag_that_has_not_changed_is_the_same(rmq_cluster):
    rmq_cluster.create_topic("orders")
    rmq_cluster.create_group("billing")
    with rmqcli.Admin(namesrv=rmq_cluster.namesrv) as admin:
        admin.apply_reset(admin.plan_reset("billing", "orders", to="latest"))
        before = admin.lag("billing")
        assert admin.lag("billing") == before
        assert admin.lags() == admin.lags()
        rmq_cluster.send("orders", ["a"])
        assert admin.lag("billing") != before


def test_strategies_are_compared_and_shown_by_their_settings():
    default = rmqcli.ConsumerConfig()
    assert default == rmqcli.ConsumerConfig()
    assert "strategy=AllocateMessageQueueAveragely()," in repr(default)
    assert {
        rmqcli.AllocateMessageQueueConsistentHash(5),
        rmqcli.AllocateMessageQueueConsistentHash(5),
        rmqcli.AllocateMessageQueueConsistentHash(6),
        rmqcli.AllocateMessageQueueAveragely(),
    } == {
        rmqcli.AllocateMessageQueueAveragely(),
        rmqcli.AllocateMessageQueueConsistentHash(6),
        rmqcli.AllocateMessageQueueConsistentHash(5),
    }
    rooms = rmqcli.AllocateMessageQueueByMachineRoom(["b"])
    assert repr(rooms) == (
        "AllocateMessageQueueByMachineRoom(rooms=frozenset({'b'}), like_4_6=False)"
    )


def test_a_text_names_servers_wherever_a_list_does():
    config = ClientConfig(namesrv="127.0.0.1:9")
    assert config.namesrv == ("127.0.0.1:9",)
    assert config == ClientConfig(namesrv=["127.0.0.1:9"])
    assert ClientConfig(endpoints="a:1;b:2").endpoints == ("a:1", "b:2")
    assert ClientConfig().namesrv == ("127.0.0.1:9876",)
    assert dataclasses.replace(config, timeout_ms=7).timeout_ms == 7
    assert pickle.loads(pickle.dumps(config)) == config
    with pytest.raises(TypeError, match="namesrv is 5, an int; it must be a str or an"):
        ClientConfig(namesrv=5)  # type: ignore[arg-type]  # as a program may
    with pytest.raises(ConfigError, match="namesrv is '': no name server"):
        ClientConfig(namesrv="")
    with pytest.raises(ValueError, match="namesrv is empty"):
        ClientConfig(namesrv=())


@pytest.mark.parametrize(
    "kind",
    [
        PulledRecord,
        PulledItem,
        rmqcli.PulledMessage,
        rmqcli.ProxyMessage,
        rmqcli.ReceivedMessage,
    ],
)
def test_a_message_of_any_protocol_has_what_a_message_has(kind):
    fields = {name for name in vars(rmqcli.Message) if not name.startswith("_")}
    assert {"topic", "body", "queue_offset", "reconsume_times"} < fields
    assert fields <= set(dir(kind))


def test_keys_may_be_a_list():
    keys = ["k1", "k2"]
    message = rmqcli.ProducerMessage("orders", b"x", keys=keys)
    keys.append("k3")
    assert message.key_list == ("k1", "k2")
    assert message.all_properties()["KEYS"] == "k1 k2"
    assert hash(message) == hash(
        rmqcli.ProducerMessage("orders", b"x", keys=("k1", "k2"))
    )


#: How each client is made, and a call that needs it to be started.
CLIENTS: dict[str, tuple[Any, Any]] = {
    "Producer": (rmqcli.Producer, lambda each: each.queues("orders")),
    "Consumer": (
        lambda **given: rmqcli.Consumer("g", "orders", **given),
        lambda each: next(each.messages()),
    ),
    "SimpleConsumer": (
        lambda **given: rmqcli.SimpleConsumer("g", "orders", **given),
        lambda each: each.receive(await_ms=0),
    ),
    "Admin": (rmqcli.Admin, lambda each: each.topics()),
}


@pytest.mark.parametrize("name", CLIENTS)
def test_every_client_is_started_once_by_start_or_with(rmq_cluster, rmq_topic, name):
    """The constructor contacts no server."""
    rmq_cluster.create_topic("orders")
    make, call = CLIENTS[name]
    make(namesrv="127.0.0.1:1")
    client = make(namesrv=rmq_cluster.namesrv)
    with pytest.raises(UsageError, match="not started"):
        call(client)
    client.start()
    with pytest.raises(UsageError, match="can be started only once"):
        client.start()
    with client:
        pass
    with pytest.raises(UsageError, match="can be started only once"):
        client.start()
    if name != "Consumer":  # a closed consumer has no more messages
        with pytest.raises(UsageError, match="is closed"):
            call(client)


def test_a_cluster_s_clients_take_what_their_classes_take():
    """But for what the cluster knows: its servers, and the clock."""
    known = {"self", "namesrv", "endpoints", "client", "clock"}
    for kind, make in (
        (rmqcli.Consumer, rmqcli.Cluster.consumer),
        (rmqcli.Producer, rmqcli.Cluster.producer),
        (rmqcli.SimpleConsumer, rmqcli.Cluster.simple_consumer),
        (rmqcli.Admin, rmqcli.Cluster.admin),
    ):
        wanted, found = (
            {
                name: (each.default, each.kind, each.annotation)
                for name, each in inspect.signature(function).parameters.items()
                if name not in known
            }
            for function in (kind.__init__, make)
        )
        assert found == wanted, kind


#: Words of annotations that are not names of rmqcli.
_PYTHON = {
    *("None", "Self", "bool", "bytes", "dict", "int", "list", "object", "str"),
    *(
        "tuple",
        "float",
        "frozenset",
        "Any",
        "Callable",
        "Future",
        "Iterator",
        "Mapping",
    ),
    *("Collection", "Iterable", "Sequence", "Path", "ClassVar", "property"),
}


def test_whatever_the_clients_return_is_public():
    missing = set()
    for kind in (
        rmqcli.Admin,
        rmqcli.Consumer,
        rmqcli.Producer,
        rmqcli.SimpleConsumer,
        rmqcli.Cluster,
    ):
        for name, each in vars(kind).items():
            if not name.startswith("_") and inspect.isfunction(each):
                returned = str(inspect.signature(each).return_annotation)
                words = set(re.findall(r"[A-Za-z_]\w*", returned))
                missing |= words - _PYTHON - set(PUBLIC)
    assert missing == set()


#: What programs only hand back to the Admin, and the evidence behind a lag.
_OPAQUE = {
    *("Connection", "GroupReading", "MethodKey", "ResetMethod", "Target"),
    *(
        "LetterRanges",
        "RedriveRequest",
        "FlushRequest",
        "CopyRequest",
        "CopyIdentity",
        "Noted",
    ),
    *(
        "Action",
        "Kind",
        "PlanMode",
        "Result",
        "Settings",
        "Value",
    ),  # words, and JSON values
}


def test_the_fields_of_public_values_are_public():
    known = _PYTHON | _OPAQUE | set(PUBLIC)
    missing = set()
    for name in PUBLIC:
        kind = getattr(rmqcli, name)
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            for field in dataclasses.fields(kind):
                words = set(re.findall(r"[A-Za-z_]\w*", str(field.type)))
                missing |= {f"{name}.{each}" for each in words - known}
    assert missing == set()
