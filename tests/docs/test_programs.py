"""The programs of the README and the guides work as they stand."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections import Counter
from pathlib import Path

import pytest

from rmqcli import Admin, Producer, ProducerMessage
from rmqcli.api.calls.offset import update_consumer_offset
from rmqcli.api.client import Client
from rmqcli.config import ClientConfig
from rmqcli.testing import Seed
from tests.admin.dlq.letters import kill
from tests.consumer.collecting import committed
from tests.kit.documents import program
from tests.kit.proxy.scripted import ScriptedProxy
from tests.kit.waiting import PATIENCE_S, wait_until

NAMESRV = "127.0.0.1:9876"


@pytest.fixture
def cluster(rmq_cluster_factory):
    cluster = rmq_cluster_factory(settings={"enable_property_filter": True})
    cluster.create_topic("orders")
    cluster.create_topic("payments")
    return cluster


def running(cluster, code, output):
    """Start an example with the cluster's address, which writes to a file."""
    return subprocess.Popen(
        [
            sys.executable,
            "-u",
            "-c",
            code.replace(NAMESRV, cluster.namesrv),
        ],
        env={
            **os.environ,
            "NAMESRV_ADDR": cluster.namesrv,
            "XDG_STATE_HOME": str(Path(output.name).parent),
        },
        stdout=output,
    )


def test_a_listener_of_one_message(cluster, tmp_path):
    shown = tmp_path / "shown"
    with (
        shown.open("wb") as output,
        running(cluster, program("library", "Consume with retries"), output) as process,
    ):

        def is_shown():
            cluster.send("orders", ["{skipped}"], tags="New")
            cluster.send("orders", ["{hello}"], tags="Paid")
            return "b'{hello}'" in shown.read_text()

        wait_until(is_shown)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == -signal.SIGINT
    assert "skipped" not in shown.read_text()
    assert sum(committed(cluster, "billing", "orders").values()) > 0


def test_a_listener_of_batches(cluster, tmp_path):
    cluster.send("orders", ['{"id":1}'] * 3, tags="Paid", queue_id=0)
    shown = tmp_path / "shown"
    with (
        shown.open("wb") as output,
        running(cluster, program("library", "Consume batches"), output) as process,
    ):
        wait_until(lambda: shown.read_text().count("\n") == 3)
        # print writes its arguments one by one, so lines of two listeners would mix.
        cluster.send(
            "payments",
            [Seed(body=b'{"a":%d}' % n, properties={"amount": str(n)}) for n in (5, 6)],
            queue_id=1,
        )
        wait_until(lambda: shown.read_text().count("\n") == 4)
        process.send_signal(signal.SIGINT)
        process.wait(20)
    assert Counter(shown.read_text().split()) == {
        "0": 4,
        "1": 3,
        "2": 1,
        "b'{\"id\":1}'": 3,
        "b'{\"a\":6}'": 1,
    }
    assert committed(cluster, "billing", "orders")[0] == 3


@pytest.mark.slow
def test_a_loop_over_a_consumer(cluster, tmp_path):
    cluster.send("orders", ["a", "b", "c"], queue_id=1)
    shown = finished(cluster, program("library", "Consume in a loop"), tmp_path)
    assert shown == ["1 0 b'a'", "1 1 b'b'", "1 2 b'c'"]
    assert committed(cluster, "report", "orders")[1] == 3


def test_dead_letters_that_a_program_sends_again(cluster, tmp_path):
    cluster.create_group("billing")
    cluster.create_topic("%DLQ%billing", queues=1)
    cluster.send(
        "%DLQ%billing",
        [
            Seed(body=body, properties={"RETRY_TOPIC": "orders"})
            for body in (b'{"a":1}', b'{"a":2}', b"{", b'{"a":1,"b":2}')
        ],
    )
    with Producer(namesrv=cluster.namesrv) as producer:
        waiting = producer.send(ProducerMessage("orders", b"x"))
    kill(cluster, "billing", "orders", [waiting], delay_level=18)
    shown = finished(cluster, program("dead-letters", "In Python"), tmp_path)
    left_out = (
        "{'its body could not be decoded': LeftOut(count=1, example='broker-a:0:2')}"
    )
    assert shown == [
        f"{{'orders': 2}} {left_out} ('broker-a:0:2',)",
        "2 [] False",
        "1 {}",
        "1 0 True",
    ]


def test_a_topic_that_a_program_copies(cluster, tmp_path):
    cluster.create_group("billing")
    cluster.create_topic("orders-copy")
    cluster.send("orders", ["a", "b", "c"], tags="Paid", queue_id=1)
    cluster.send("orders", ["d"], tags="Open", queue_id=2)
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        call = update_consumer_offset("billing", "orders", 1, commit_offset=2)
        client.invoke(cluster.broker().address, call)
    shown = finished(cluster, program("library", "Copy a topic"), tmp_path)
    assert shown == ["4 to read index {}", "3 of 3 True", "True"]
    assert committed(cluster, "billing", "orders-copy")[1] == 2


def test_a_transaction_with_a_database(cluster, tmp_path):
    """The message of a second order with the same key, which fails, is not sent."""
    code = program("library", "Store and send together")
    code = code.replace("shop.db", f"{tmp_path}/shop.db")
    assert finished(cluster, code, tmp_path) == ["COMMIT_MESSAGE"]
    with (tmp_path / "again").open("wb") as output:
        assert running(cluster, code, output).wait(PATIENCE_S) == 1
    with Admin(namesrv=cluster.namesrv) as admin:
        stored = admin.read("orders", from_="earliest", to="latest")
        assert [(each.keys, each.body) for each in stored] == [("7", b'{"id": 7}')]
        assert admin.open_transactions("orders").count == 1


@pytest.mark.slow
def test_messages_that_are_received_and_acknowledged(cluster, tmp_path):
    cluster.send("orders", ["a", "b", "c"], queue_id=1)
    shown = finished(cluster, program("library", "Receive and acknowledge"), tmp_path)
    assert shown == ["orders 1 b'a'", "orders 1 b'b'", "orders 1 b'c'"]
    assert committed(cluster, "billing", "orders")[1] == 3


def test_ten_thousand_messages(cluster, tmp_path):
    assert finished(cluster, program("library", "Produce"), tmp_path) == [
        "4 queues SEND_OK"
    ]
    ends = cluster.call(
        lambda: [
            cluster.broker().store.queue_bounds("orders", queue_id)[1]
            for queue_id in range(4)
        ]
    )
    assert sum(ends) == 10_000
    assert min(ends) > 0


def test_a_message_through_a_proxy(tmp_path):
    with ScriptedProxy() as proxy:
        code = program("library", "Produce through a proxy").replace(
            "127.0.0.1:8081", proxy.endpoints
        )
        process = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False
        )
        assert process.returncode == 0, process.stderr
        (request,) = proxy.asked("SendMessage")
    msg_id = request.messages[0].system_properties.message_id
    assert process.stdout.splitlines() == [f"{msg_id} SEND_OK"]
    assert process.stderr == ""


@pytest.mark.slow
def test_messages_consumed_through_a_proxy(rmq_cluster_factory, tmp_path):
    cluster = rmq_cluster_factory(proxy=True)
    cluster.create_topic("orders")
    cluster.send("orders", ["first"])
    code = program("library", "Consume through a proxy").replace(
        "127.0.0.1:8081", cluster.endpoints
    )
    shown = subprocess.run(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        check=True,
        cwd=tmp_path,
        timeout=PATIENCE_S,
    ).stdout
    assert shown == b"0 b'first'\n"


def test_lag_and_a_reset(cluster, tmp_path):
    cluster.create_group("billing")
    cluster.send("orders", [f"{n}" for n in range(8)], queue_id=0)
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        for queue_id in range(4):
            call = update_consumer_offset(
                "billing", "orders", queue_id, commit_offset=0
            )
            client.invoke(cluster.broker().address, call)
    shown = finished(cluster, program("library", "Administer"), tmp_path)
    assert shown[:4] == [
        "orders broker-a 0 8",
        "orders broker-a 1 0",
        "orders broker-a 2 0",
        "orders broker-a 3 0",
    ]
    assert shown[4].startswith("backup 2")
    assert shown[4].endswith("complete True")
    assert shown[5:] == ["0 5 b'5'", "0 6 b'6'", "0 7 b'7'"]
    assert committed(cluster, "billing", "orders")[0] == 8


def test_messages_are_chosen_by_a_condition(cluster, tmp_path):
    bodies = [b'{"id": 5}', b"no JSON", b'{"id": 6}', b'{"id": 7}']
    cluster.send("orders", [Seed(body=b, tags="Paid") for b in bodies], queue_id=0)
    cluster.send("orders", [Seed(body=b'{"id": 8}', tags="New")], queue_id=1)
    code = program("library", "Choose messages by a condition")
    shown = finished(cluster, code, tmp_path)
    assert shown == ["2 {'id': 6}", "3 {'id': 7}"]


def test_a_message_is_sent(cluster, tmp_path):
    assert finished(cluster, program("README", "Send"), tmp_path) == ["SEND_OK"]


def test_a_message_is_handled(cluster, tmp_path):
    cluster.send("orders", ["first"])
    shown = tmp_path / "shown"
    code = program("README", "Consume")
    with shown.open("wb") as output, running(cluster, code, output) as process:
        wait_until(lambda: shown.read_text() == "orders b'first'\n")
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == -signal.SIGINT


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "passed"),
    [
        (program("README", "Test"), 1),
        (program("testing", "A test with a fault"), 1),
        (program("testing", "A cluster that fails"), 1),
        (program("testing", "Hours in no time"), 1),
        (program("testing", "Clients of a proxy"), 2),
    ],
    ids=["readme", "fault", "restart", "clock", "proxy"],
)
def test_the_tests_of_programs_pass(code, passed, tmp_path):
    (tmp_path / "test_example.py").write_text(code, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    process = subprocess.run(
        [*command, "test_example.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stdout
    assert f"{passed} passed" in process.stdout


def test_an_asynchronous_listener_is_closed_by_ctrl_c(cluster, tmp_path):
    cluster.send("orders", ["a", "b", "c"], queue_id=1)
    shown = tmp_path / "shown"
    code = program("asyncio", "Consume with asyncio")
    with shown.open("wb") as output, running(cluster, code, output) as process:
        wait_until(lambda: shown.read_text().count("\n") == 3)
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE_S)
    assert sorted(shown.read_text().splitlines()) == [
        "1 0 b'a'",
        "1 1 b'b'",
        "1 2 b'c'",
    ]
    assert committed(cluster, "billing", "orders")[1] == 3


@pytest.mark.slow
def test_an_asynchronous_loop(cluster, tmp_path):
    cluster.send("orders", ["a", "b", "c"], queue_id=1)
    code = program("asyncio", "Consume in an asynchronous loop")
    assert finished(cluster, code, tmp_path) == ["1 0 b'a'", "1 1 b'b'", "1 2 b'c'"]
    assert committed(cluster, "report", "orders")[1] == 3


def test_a_thousand_messages_of_asynchronous_tasks(cluster, tmp_path):
    code = program("asyncio", "Send with asyncio")
    assert finished(cluster, code, tmp_path) == ["1000 SEND_OK"]


def test_an_asynchronous_admin(cluster, tmp_path):
    cluster.send("orders", ["a", "b"], queue_id=1)
    code = program("asyncio", "Query a cluster with asyncio")
    assert finished(cluster, code, tmp_path) == ["1 0 b'a'", "1 1 b'b'", "4 queues"]


@pytest.mark.slow
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_web_application_is_reloaded_and_ended_by_signals(cluster, tmp_path, loop):
    """Each life leaves its group: what was consumed once does not come again."""
    for module in ("fastapi", "uvicorn", loop):  # of the extra `dev`
        pytest.importorskip(module)
    shop = tmp_path / "shop.py"
    code = program("asyncio", "A web application").replace(NAMESRV, cluster.namesrv)
    shop.write_text(code, encoding="utf-8")
    shown = tmp_path / "shown"
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        with (
            shown.open("wb") as output,
            subprocess.Popen(
                [
                    *(sys.executable, "-m", "uvicorn", "shop:app", "--loop", loop),
                    *("--fd", str(sock.fileno()), "--app-dir", str(tmp_path)),
                    *("--reload", "--reload-dir", str(tmp_path)),
                ],
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=[sock.fileno()],
            ) as server,
        ):
            port = sock.getsockname()[1]
            assert posted(port, b"first")
            wait_until(lambda: "consumed first" in shown.read_text())
            # The next life has other code, so that it is known when it has begun.
            shop.write_text(code.replace("consumed", "again"), encoding="utf-8")
            wait_until(
                lambda: shown.read_text().count("Application startup complete") == 2
            )
            assert posted(port, b"second")
            wait_until(lambda: "again second" in shown.read_text())
            server.send_signal(signal.SIGTERM)
            server.wait(PATIENCE_S)
    lines = shown.read_text().splitlines()
    assert lines.count("consumed first") + lines.count("again first") == 1
    assert sum("Application shutdown complete" in line for line in lines) == 2
    assert "Traceback" not in shown.read_text()
    assert sum(committed(cluster, "billing", "orders").values()) == 2


def posted(port, body):
    """Post an order to a web application, and return the id of its message."""
    url = f"http://127.0.0.1:{port}/orders"
    request = urllib.request.Request(url, data=body, method="POST")
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        return json.load(answer)["msg_id"]


def finished(cluster, code, tmp_path):
    """Run a program to its end, and return the lines that it printed."""
    shown = tmp_path / "shown"
    with shown.open("wb") as output, running(cluster, code, output) as process:
        assert process.wait(PATIENCE_S) == 0
    return shown.read_text().splitlines()
