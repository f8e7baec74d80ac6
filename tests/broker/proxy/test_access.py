"""Access control: a proxy with accounts serves calls that are signed and permitted."""

from __future__ import annotations

import pytest

from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.broker.proxy.options import ProxyOptions
from rmqcli.errors import UsageError
from rmqcli.wire.protobuf import service_pb2 as s
from tests.broker.proxy.access import (
    ADMIN,
    READER,
    RIGHTS,
    TABLE,
    TOPIC,
    WRITER,
    said,
    signed,
)
from tests.kit.proxy.raw_client import code_of, message, resource

ACCOUNTS = {each.name: each.secret for each in (ADMIN, *RIGHTS)}
ALL_RIGHTS = {ADMIN.name: {"*": "All"}, **{k.name: v for k, v in RIGHTS.items()}}


@pytest.fixture(scope="module")
def guarded():
    options = ProxyOptions(accounts=ACCOUNTS, rights=ALL_RIGHTS)
    with EmbeddedCluster(proxy=options) as cluster:
        cluster.create_topic(TOPIC)
        yield cluster


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLE)
def test_a_call_must_be_signed_and_allowed(guarded, name):
    row = TABLE[name]
    assert row.ask(guarded.endpoints) == row.expected


def test_a_subscription_to_lite_topics_needs_group_and_topic(guarded, connect):
    """5.5.0 looks only at calls that name lite topics."""
    request = s.SyncLiteSubscriptionRequest(
        topic=resource(TOPIC), group=resource("G"), lite_topic_set=["a"]
    )
    writer = connect(guarded, metadata=signed(WRITER))
    reader = connect(guarded, metadata=signed(READER))
    assert said(writer.call("SyncLiteSubscription", request)) == (
        "UNAUTHORIZED: User:writer has no permission to access Group:G from 127.0.0.1,"
        " no matched policies."
    )
    assert said(reader.call("SyncLiteSubscription", request)) == (
        "ILLEGAL_TOPIC: lite group G is expected to bind topic null, but actual is T"
    )


def test_without_rights_each_account_may_do_everything(start, connect):
    cluster = start(proxy=ProxyOptions(accounts=ACCOUNTS))
    cluster.create_topic(TOPIC)
    client = connect(cluster, metadata=signed(WRITER))
    assert said(client.route(TOPIC)) == "OK"
    assert code_of(client.send()) == "MESSAGE_CORRUPTED"


def test_without_accounts_a_signature_is_ignored(cluster, connect):
    cluster.create_topic("T")
    client = connect(cluster, metadata={"authorization": "garbage"})
    assert code_of(client.route("T")) == "OK"


def test_the_nearest_entry_decides(start, connect):
    rights = {"*": "Deny", "Topic:*": "Sub", "Topic:a*": "Deny", "Topic:ab*": "Pub"}
    rights |= {"Topic:abc": "Deny", "Topic:x": "Sub"}
    options = ProxyOptions(
        accounts={WRITER.name: WRITER.secret}, rights={WRITER.name: rights}
    )
    cluster = start(proxy=options)
    for topic in ("abd", "abc", "ax", "x"):
        cluster.create_topic(topic)
    client = connect(cluster, metadata=signed(WRITER))
    found = {t: code_of(client.send(message(t))) for t in ("abd", "abc", "ax", "x")}
    assert found == {
        "abd": "OK",
        "abc": "UNAUTHORIZED",
        "ax": "UNAUTHORIZED",
        # `*` decides: no more specific entry is about sending.
        "x": "UNAUTHORIZED",
    }
    assert {t: code_of(client.route(t)) for t in ("abd", "abc", "ax", "x")} == {
        "abd": "OK",
        "abc": "UNAUTHORIZED",
        "ax": "UNAUTHORIZED",
        "x": "OK",
    }


@pytest.mark.parametrize(
    ("rights", "words"),
    [
        ({"nobody": {"*": "All"}}, "'nobody', which is not an account"),
        ({"writer": {"orders": "Pub"}}, "'orders' is not a topic or a group"),
        ({"writer": {"Topic:": "Pub"}}, "'Topic:' is not a topic or a group"),
        ({"writer": {"Topic:a*b": "Pub"}}, "'Topic:a\\*b' is not a topic or a group"),
        ({"writer": {"Topic:a": "PUB"}}, "to Topic:a: 'PUB' is not an action"),
        ({"writer": {"Topic:a": "Pub,Deny"}}, "'Pub,Deny' is not an action"),
    ],
)
def test_rights_that_cannot_be_read_are_refused(rights, words):
    with pytest.raises(UsageError, match=words):
        ProxyOptions(accounts={WRITER.name: WRITER.secret}, rights=rights)
