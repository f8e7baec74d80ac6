"""`rmq export --remote` in a secured setup: TLS, a token, S3, and typed columns."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow.dataset as ds
import pytest

from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.spark.export.executors import PACKAGES
from rmqcli.spark.export.storage import storage_of
from tests.acceptance.command import rmq
from tests.kit.object_stores import ENVIRONMENT, s3_server
from tests.kit.spark_cluster import ConnectServer, bare_python, executors_path
from tests.spark.test_connect_server import pytestmark as of_connect
from tests.transport.test_tls import CA, CERTS, server_context

pytest.importorskip("moto", reason="the extra dev has moto")
# The markers are named here, where `pytest -m java` and others look for them.
pytestmark = [
    pytest.mark.java,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.nightly,
    *of_connect,
]

TOKEN = "let-me-in"


@contextlib.contextmanager
def tls_before(port: int):
    """Accept TLS at a new port, and forward it to `port` in plain text."""
    context = server_context()
    context.set_alpn_protocols(["h2"])
    loop = asyncio.new_event_loop()

    async def copy(reader, writer):
        with contextlib.suppress(OSError, ssl.SSLError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def relay(reader, writer):
        there = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(copy(reader, there[1]), copy(there[0], writer))

    listening = loop.run_until_complete(
        asyncio.start_server(relay, "127.0.0.1", 0, ssl=context)
    )
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        listening.close()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


@pytest.fixture(scope="module")
def store():
    with s3_server() as server:
        server.make_bucket("exports")
        yield server


@pytest.fixture(scope="module")
def server(tmp_path_factory, store):
    """A server whose executors have the keys of the store and whose clients need its
    token."""
    folder = tmp_path_factory.mktemp("connect")
    with ConnectServer(
        folder / "spark",
        path=[executors_path(folder / "lib", packages=PACKAGES)],
        python=bare_python(),
        env={**ENVIRONMENT, "SPARK_CONNECT_AUTHENTICATE_TOKEN": TOKEN},
    ) as server:
        yield server


@pytest.fixture(scope="module")
def front(server):
    """The port that accepts TLS."""
    with tls_before(int(server.url.rpartition(":")[2])) as port:
        yield port


@pytest.fixture
def cluster():
    with EmbeddedCluster(queues=2) as cluster:
        cluster.create_topic("orders", queues=2)
        bodies = [json.dumps({"id": n, "total": n * 1.5}) for n in range(20)]
        cluster.send("orders", [*bodies, "not JSON"])
        yield cluster


def export(cluster, folder, remote, *words, code=0, **env):
    """Export the topic with a Connect server; return the command's output."""
    done = rmq(
        *("export", "orders", "--to-parquet", str(folder), "--remote", remote, *words),
        *("-o", "json"),
        namesrv=cluster.namesrv,
        expect=(code,),
        JAVA_HOME="/no/such",
        **{**ENVIRONMENT, "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": CA, **env},
    )
    return done.stderr.decode()


def ids_in(table):
    """Return the decoded ids, sorted; -1 stands for the body that is not JSON."""
    values = table.column("value").to_pylist()
    return sorted(-1 if value is None else value["id"] for value in values)


def test_typed_columns_reach_an_object_store_through_tls(
    cluster, store, front, monkeypatch
):
    url = store.url("exports/typed")
    remote = f"sc://127.0.0.1:{front}/;use_ssl=true;token={TOKEN}"
    export(cluster, url, remote, "--decode", "json", "--infer", "20")
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    storage: Any = storage_of(url, {})
    folder = storage.target.inner(storage.root_of(url))
    table = ds.dataset(folder, filesystem=storage._fs, format="parquet").to_table(
        use_threads=False
    )
    assert ids_in(table) == [-1, *range(20)]
    assert table.column("_corrupt_body").to_pylist().count(b"not JSON") == 1


def test_the_token_may_come_from_the_environment(cluster, front, server, tmp_path):
    token = {"SPARK_CONNECT_AUTHENTICATE_TOKEN": TOKEN}
    export(cluster, tmp_path / "tls", f"sc://127.0.0.1:{front}", **token)
    plain = server.url.replace("127.0.0.1", "localhost")
    export(cluster, tmp_path / "plain", plain, **token)
    for name in ("tls", "plain"):
        rows = ds.dataset(tmp_path / name, format="parquet").to_table()
        assert rows.num_rows == 21


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (";use_ssl=true;token=wrong", "Invalid authentication token"),
        (";use_ssl=true", "No authentication token provided"),
    ],
)
def test_a_client_without_the_token_is_told_so(cluster, front, tmp_path, given, said):
    words = export(cluster, tmp_path / "out", f"sc://127.0.0.1:{front}/{given}", code=4)
    assert f"refuses this client: {said}" in words
    assert "wrong" not in words
    assert not (tmp_path / "out" / "_rmq").exists()


def test_clients_without_tls_and_without_the_ca_are_told_what_to_set(
    cluster, front, tmp_path
):
    """Both run at the same time, because PySpark retries for half a minute."""
    roots = {"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(CERTS / "elsewhere.pem")}
    tls = f"sc://127.0.0.1:{front}/;use_ssl=true;token={TOKEN}"
    plain = f"sc://127.0.0.1:{front}"
    with ThreadPoolExecutor() as threads:
        without_ca = threads.submit(
            export, cluster, tmp_path / "tls", tls, code=5, **roots
        )
        without_tls = threads.submit(export, cluster, tmp_path / "out", plain, code=5)
    reason = "has a certificate that is not accepted: unable to get local issuer"
    assert reason in without_ca.result()
    assert "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH" in without_ca.result()
    assert "_InactiveRpcError" not in without_tls.result()
    assert "use_ssl=true if and only if the server uses TLS" in without_tls.result()
