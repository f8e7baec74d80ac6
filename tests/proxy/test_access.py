"""Clients and accounts: what a proxy with access control accepts and refuses.

The tests run on the embedded proxy, and on real ones in local mode.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

import pytest

from rmqcli import (
    Admin,
    ClientConfig,
    Consumer,
    Credentials,
    DeniedError,
    Message,
    Producer,
    ProducerMessage,
    SimpleConsumer,
)
from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.broker.proxy.options import ProxyOptions
from rmqcli.cli.main import run
from tests.kit import selection
from tests.kit.configuration import Account
from tests.kit.embedded import EMBEDDED
from tests.kit.waiting import wait_until

ADMIN = Account("admin", "admin-secret")
RIGHT = Credentials(ADMIN.name, ADMIN.secret)
#: May send to and receive from any topic, but has no rights to groups.
SENDER = Account("sender", "sender-secret")
RIGHTS = {"Topic:*": "Pub,Sub"}
#: The oldest and the newest version whose proxy knows accounts.
WITH_ACCOUNTS = ("5.3.3", "5.5.0")
SIGN = "calls must be signed: give the credentials argument"
CHECK = "check the credentials argument"

#: Credentials, the proxy's answer to them, and our hint.
REFUSED = [
    pytest.param(
        Credentials(ADMIN.name, "wrong"), "check signature failed.", CHECK, id="secret"
    ),
    pytest.param(
        Credentials("nobody", "x"), "User:nobody is not found.", CHECK, id="account"
    ),
    pytest.param(None, "username cannot be null.", SIGN, id="none"),
]


@dataclass(frozen=True)
class Guarded:
    """A cluster that serves the account ADMIN, with a topic and a group."""

    endpoints: str
    topic: str
    group: str

    def config(self, credentials):
        return ClientConfig(
            endpoints=(self.endpoints,), plaintext=True, credentials=credentials
        )


def pytest_generate_tests(metafunc):
    """Run each test on the embedded proxy, and on real ones of the chosen versions."""
    if "cluster" in metafunc.fixturenames:
        option = metafunc.config.getoption("--rmq-versions")
        real = [
            pytest.param(each, marks=pytest.mark.java)
            for each in selection.versions(option, WITH_ACCOUNTS)
            if each != EMBEDDED
        ]
        metafunc.parametrize(
            "cluster", [EMBEDDED, *real], indirect=True, scope="module"
        )


@pytest.fixture(scope="module")
def cluster(request, start_shared):
    if request.param == EMBEDDED:
        options = ProxyOptions(
            accounts={each.name: each.secret for each in (ADMIN, SENDER)},
            rights={ADMIN.name: {"*": "All"}, SENDER.name: RIGHTS},
        )
        with EmbeddedCluster(proxy=options) as made:
            yield made
        return
    made = start_shared(request.param, proxy=True, superuser=ADMIN)
    made.create_account(SENDER, RIGHTS)
    yield made


@pytest.fixture
def guarded(cluster):
    topic, group = f"T-{uuid.uuid4().hex[:12]}", f"G-{uuid.uuid4().hex[:12]}"
    cluster.create_topic(topic)
    config = ClientConfig(namesrv=(cluster.namesrv,), credentials=RIGHT)
    with Admin(client=config) as admin:
        admin.create_group(group)
    return Guarded(cluster.endpoints, topic, group)


@pytest.fixture
def rmq(guarded, capfd, monkeypatch):
    """Runs a command through the proxy; returns exit code, stdout and stderr."""

    def call(credentials, *arguments):
        for name in ("RMQ_ACCESS_KEY", "RMQ_SECRET_KEY"):
            monkeypatch.delenv(name, raising=False)
        if credentials is not None:
            monkeypatch.setenv("RMQ_ACCESS_KEY", credentials.access_key)
            monkeypatch.setenv("RMQ_SECRET_KEY", credentials.secret_key)
        capfd.readouterr()
        code = run([*arguments, "--endpoints", guarded.endpoints, "--plaintext"])
        return code, *capfd.readouterr()

    return call


def test_an_account_sends_and_receives(guarded):
    config = guarded.config(RIGHT)
    with Producer(client=config) as producer:
        producer.send(ProducerMessage(guarded.topic, b"a"))
        producer.submit(ProducerMessage(guarded.topic, b"b")).result()
    bodies = []
    with SimpleConsumer(guarded.group, guarded.topic, client=config) as consumer:

        def both():
            for message in consumer.receive(max_messages=16):
                bodies.append(message.body)
                consumer.ack(message)
            return len(bodies) == 2

        wait_until(both)
    assert sorted(bodies) == [b"a", b"b"]


def test_an_account_consumes(guarded):
    config = guarded.config(RIGHT)
    with Producer(client=config) as producer:
        producer.send(ProducerMessage(guarded.topic, b"a"))
    seen: list[Message] = []
    with Consumer(guarded.group, guarded.topic, seen.append, client=config):
        wait_until(lambda: seen)
    assert [each.body for each in seen] == [b"a"]


def send(guarded, config):
    with Producer(client=config) as producer:
        producer.send(ProducerMessage(guarded.topic, b"a"))


def receive(guarded, config):
    with SimpleConsumer(guarded.group, guarded.topic, client=config) as consumer:
        consumer.receive()


def consume(guarded, config):
    with Consumer(guarded.group, guarded.topic, client=config) as consumer:
        next(iter(consumer))


@pytest.mark.parametrize("use", [send, receive, consume])
@pytest.mark.parametrize(("credentials", "words", "hint"), REFUSED)
def test_a_call_that_no_account_signed_is_denied(
    guarded, use, credentials, words, hint
):
    config = guarded.config(credentials)
    with pytest.raises(DeniedError) as caught:
        use(guarded, config)
    error = caught.value
    assert (error.code, error.name, error.remark) == (40100, "UNAUTHORIZED", words)
    assert error.hint == hint


@pytest.mark.parametrize("use", [receive, consume])
def test_an_account_without_the_right_to_a_group_is_denied(guarded, use):
    config = guarded.config(Credentials(SENDER.name, SENDER.secret))
    send(guarded, config)
    with pytest.raises(DeniedError) as caught:
        use(guarded, config)
    error = caught.value
    assert (error.code, error.name) == (40100, "UNAUTHORIZED")
    assert f"User:sender has no permission to access Group:{guarded.group}" in (
        error.remark
    )
    assert error.hint == (
        "give the account the right with mqadmin createAcl, or use another account"
    )


def test_commands_with_an_account(guarded, rmq):
    assert rmq(RIGHT, "send", guarded.topic, "hello")[0] == 0
    words = ["consume", guarded.topic, "-g", guarded.group, "--count", "1", "-o", "raw"]
    code, out, _ = rmq(RIGHT, *words)
    assert (code, out) == (0, "hello\n")


@pytest.mark.parametrize("command", ["send", "consume", "tail"])
@pytest.mark.parametrize(("credentials", "words", "hint"), REFUSED)
def test_commands_without_one_exit_4(guarded, rmq, command, credentials, words, hint):
    arguments = {
        "send": ["send", guarded.topic, "hello"],
        "consume": ["consume", guarded.topic, "-g", guarded.group, "--count", "1"],
        "tail": ["tail", guarded.topic, "-g", guarded.group, "--count", "1"],
    }
    code, out, err = rmq(credentials, *arguments[command])
    assert (code, out) == (4, "")
    assert f"answered UNAUTHORIZED: {words}" in err
    flags = "--acl-file or RMQ_ACCESS_KEY and RMQ_SECRET_KEY"
    assert f"hint: {hint.replace('the credentials argument', flags)}" in err
