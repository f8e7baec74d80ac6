"""What a Cluster makes takes all that the classes of its clients take."""

from __future__ import annotations

import asyncio
import gc
import inspect
import re
import weakref
from typing import Any

import pytest

import rmqcli
from rmqcli import (
    Admin,
    Consumer,
    Copy,
    MessageQueue,
    Producer,
    Redrive,
    SimpleConsumer,
    UsageError,
    aio,
)
from rmqcli.aio import (
    AsyncAdmin,
    AsyncConsumer,
    AsyncCopy,
    AsyncProducer,
    AsyncRedrive,
    AsyncSimpleConsumer,
)
from tests.kit.rows import each_row

#: What a cluster gives to its clients itself, and what only tests give.
OF_THE_CLUSTER = {"client", "namesrv", "endpoints", "clock"}

MADE = [
    (rmqcli.Cluster, "admin", Admin),
    (rmqcli.Cluster, "consumer", Consumer),
    (rmqcli.Cluster, "producer", Producer),
    (rmqcli.Cluster, "simple_consumer", SimpleConsumer),
    (aio.AsyncCluster, "admin", AsyncAdmin),
    (aio.AsyncCluster, "consumer", AsyncConsumer),
    (aio.AsyncCluster, "producer", AsyncProducer),
    (aio.AsyncCluster, "simple_consumer", AsyncSimpleConsumer),
]

NEEDED = {"group": "g", "topics": "orders"}


def arguments(function):
    """The arguments of a function with their kinds and defaults, without `self`."""
    return {
        name: (each.kind, each.default)
        for name, each in inspect.signature(function).parameters.items()
        if name not in OF_THE_CLUSTER | {"self"}
    }


def ids(each):
    return getattr(each, "__name__", each)


@pytest.mark.parametrize(("cluster", "method", "kind"), MADE, ids=ids)
def test_a_client_of_a_cluster_takes_the_arguments_of_its_class(cluster, method, kind):
    assert arguments(getattr(cluster, method)) == arguments(kind)


@each_row(
    ("cluster", "method", "name"),
    [
        (cluster, method, name)
        for cluster, method, kind in MADE
        for name in arguments(kind)
    ],
    ids=ids,
)
def test_each_argument_reaches_the_client(cluster, method, name):
    """The client refuses an object of no use, so it has been given it."""
    connect = rmqcli.connect if cluster is rmqcli.Cluster else aio.connect
    made = connect("127.0.0.1:1")
    call = getattr(made, method)
    needed = {key: value for key, value in NEEDED.items() if key in arguments(call)}
    with pytest.raises(TypeError):
        call(**{**needed, name: object()})


@pytest.mark.parametrize(("cluster", "method", "kind"), MADE, ids=ids)
def test_a_client_of_a_cluster_has_its_servers_and_is_closed_with_it(
    cluster, method, kind
):
    config: dict[str, Any] = {"namesrv": "10.0.0.1:9876", "timeout_ms": 1_234}

    def make(made):
        call = getattr(made, method)
        needed: dict[str, Any] = {
            key: each for key, each in NEEDED.items() if key in arguments(call)
        }
        if kind is Consumer:
            needed["on_message"] = print
        return call(**needed)

    if cluster is rmqcli.Cluster:
        with rmqcli.connect(**config) as made:
            client = make(made)
            assert (made.config.namesrv, made.config.timeout_ms) == (
                ("10.0.0.1:9876",),
                1_234,
            )
        shown = repr(client)
        with pytest.raises(UsageError):
            client.start()
    else:

        async def main():
            async with aio.connect(**config) as made:
                client = make(made)
                assert made.config.timeout_ms == 1_234
            with pytest.raises(UsageError):
                await client.start()
            return repr(client)

        shown = asyncio.run(main())
    assert "10.0.0.1:9876" in shown


def test_a_cluster_keeps_no_client_that_is_closed(rmq_cluster):
    """A program that made an Admin for each question never gave one back."""
    rmq_cluster.create_topic("orders")

    def made(cluster):
        yield cluster.admin()
        yield cluster.producer()
        yield cluster.consumer("g", "orders")
        yield cluster.simple_consumer("s", "orders")

    def left(references):
        gc.collect()
        return [each() for each in references if each() is not None]

    gone = []
    with rmqcli.connect(rmq_cluster.namesrv) as cluster:
        for client in made(cluster):
            with client:
                gone.append(weakref.ref(client))
            assert client.is_closed
        del client
        last = cluster.admin()
        assert left(gone) == []
        last.start()
        assert not last.is_closed
    assert last.is_closed

    async def main():
        gone = []
        async with aio.connect(rmq_cluster.namesrv) as cluster:
            for client in made(cluster):
                async with client:
                    gone.append(weakref.ref(client))
                assert client.is_closed
            del client
            last = cluster.admin()
            assert left(gone) == []
            await last.start()
            assert not last.is_closed
        assert last.is_closed

    asyncio.run(main())


def test_both_kinds_of_clusters_are_reached_in_the_same_way():
    parameters = inspect.signature(rmqcli.connect).parameters
    assert inspect.signature(aio.connect).parameters == parameters
    for connect in (rmqcli.connect, aio.connect):
        for name in parameters:
            with pytest.raises(TypeError):
                connect(**dict[str, Any]({name: object()}))
        assert connect("127.0.0.1:1").config.timeout_ms == 5_000


def public(kind):
    """The names that programs may use, and the functions behind them."""
    return {name: each for name, each in vars(kind).items() if not name.startswith("_")}


def test_every_public_method_of_a_cluster_has_its_asynchronous_form():
    """Admin's are compared in tests/aio/test_admin.py."""
    of_sync = public(rmqcli.Cluster).keys() - {"need_namesrv"}  # for the other class
    assert public(aio.AsyncCluster).keys() == of_sync | {"config"}


@pytest.mark.parametrize("method", ["redrive", "copy"])
def test_what_a_cluster_plans_and_executes_has_the_same_arguments_in_both_forms(method):
    assert arguments(getattr(aio.AsyncCluster, method)) == arguments(
        getattr(rmqcli.Cluster, method)
    )


#: Arguments of `redrive` and `copy`, and values that are not their defaults. Those that
#: a request does not hold, `log` and the other cluster of `copy`, are not among them.
CHOSEN: dict[str, dict[str, Any]] = {
    "from_": {"from_": "-5m"},
    "until": {"until": "-1m"},
    "last": {"last": 3},
    "queues": {"queues": [MessageQueue("%DLQ%billing", "broker-a", 1)]},
    "tag": {"tag": "A"},
    "sql": {"sql": "a = 1"},
    "key": {"key": "k"},
    "properties": {"properties": {"colour": "re*"}},
    "pattern": {"pattern": "x+"},
    "where": {"where": "tags = 'A'"},
    "decode": {"where": "value.n = 1", "decode": "json"},
    "again": {"again": True},
    "to": {"to": "retry"},
}


@pytest.mark.parametrize("method", ["redrive", "copy"])
def test_each_argument_of_a_plan_gets_into_its_request_in_both_forms(method):
    names = {"redrive": ["billing"], "copy": ["orders", "orders-2"]}[method]
    of_request = arguments(getattr(rmqcli.Cluster, method)).keys() - {"log"}
    if method == "copy":
        of_request -= {"to"}  # a cluster

    cases: dict[str, dict[str, Any]] = {"": {}, **CHOSEN}

    def requests(connect):
        make = getattr(connect("127.0.0.1:1"), method)
        return {
            name: re.sub(" at 0x[0-9a-f]+", "", repr(make(*names, **chosen).request))
            for name, chosen in cases.items()
            if name in of_request | {""}
        }

    found = requests(rmqcli.connect)
    assert requests(aio.connect) == found
    assert found.keys() == {"", *of_request} - {"group", "source_topic", "target_topic"}
    assert len(set(found.values())) == len(found)


@pytest.mark.parametrize(
    ("method", "names"), [("redrive", ["g"]), ("copy", ["a", "b"])]
)
@pytest.mark.parametrize("connect", [rmqcli.connect, aio.connect], ids=["sync", "aio"])
def test_a_condition_that_does_not_exist_or_has_a_wrong_type_is_refused(
    connect, method, names
):
    """A misspelt condition that went unnoticed would move every message."""
    make = getattr(connect("127.0.0.1:1"), method)
    with pytest.raises(
        TypeError, match=rf"Cluster\.{method}\(\) got an unexpected .* 'tags'$"
    ):
        make(*names, tags="A")
    with pytest.raises(
        TypeError, match=r"^tag is 3, an int; it must be a str or None$"
    ):
        make(*names, tag=3)


@pytest.mark.parametrize(
    ("sync", "form"), [(Redrive, AsyncRedrive), (Copy, AsyncCopy)], ids=ids
)
def test_plans_and_runs_have_the_same_methods_in_both_forms(sync, form):
    assert public(form).keys() - {"request"} == public(sync).keys() - {"request"}
    for name, method in public(sync).items():
        if inspect.isfunction(method):
            assert arguments(getattr(form, name)) == arguments(method)
            assert inspect.iscoroutinefunction(getattr(form, name)), name


@each_row(
    ("kind", "name"),
    [
        (kind, name)
        for _, _, kind in MADE
        for name in ("namesrv", "endpoints")
        if name in inspect.signature(kind).parameters
    ],
    ids=ids,
)
def test_a_client_has_the_servers_that_it_is_given(kind, name):
    parameters = arguments(kind)
    needed: dict[str, Any] = {k: v for k, v in NEEDED.items() if k in parameters}
    if kind is Consumer:
        needed["on_message"] = print
    assert "10.0.0.1:1234" in repr(kind(**needed, **{name: "10.0.0.1:1234"}))


@pytest.mark.parametrize(
    "make", [lambda c: c.copy("a", "b", log="x"), lambda c: c.redrive("g", log="x")]
)
def test_the_log_of_a_copy_or_a_redrive_is_a_path(make):
    with pytest.raises(TypeError, match="log is 'x', a str; it must be a Path or None"):
        make(rmqcli.connect("127.0.0.1:9"))
