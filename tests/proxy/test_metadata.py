"""The metadata of calls, and the settings that a client states about itself."""

from __future__ import annotations

import pytest

from rmqcli.config import ClientConfig
from rmqcli.proxy.endpoints import parse_endpoints
from rmqcli.proxy.metadata import MetadataMaker, host_name
from rmqcli.proxy.session import PRODUCER, PUSH_CONSUMER, Session
from rmqcli.testing import ManualClock
from rmqcli.wire.acl import Credentials
from rmqcli.wire.protobuf import definition_pb2 as pb
from rmqcli.wire.subscription import parse_subscription

AT_2026_01_02_03_04_05 = 1_767_323_045_999
FIXED = [
    ("x-mq-client-id", "c1"),
    ("x-mq-language", "PYTHON"),
    ("x-mq-client-version", "5.1.0"),
    ("x-mq-protocol", "v2"),
]


def test_calls_are_numbered_and_name_their_client():
    maker = MetadataMaker("c1", credentials=None, clock=ManualClock())
    assert list(maker.make()) == [*FIXED, ("x-mq-request-id", "c1:1")]
    assert list(maker.make()) == [*FIXED, ("x-mq-request-id", "c1:2")]


@pytest.mark.parametrize("token", [None, "", "token"])
def test_a_signature_covers_the_date_in_utc(token):
    maker = MetadataMaker(
        "c1",
        credentials=Credentials("key", "secret", token),
        clock=ManualClock(AT_2026_01_02_03_04_05),
    )
    session_token = [("x-mq-session-token", token)] if token else []
    assert list(maker.make()) == [
        *FIXED,
        *session_token,
        ("x-mq-request-id", "c1:1"),
        ("x-mq-date-time", "20260102T030405Z"),
        (
            "authorization",
            (
                "MQv2-HMAC-SHA1 Credential=key, SignedHeaders=x-mq-date-time,"
                " Signature=B8233E003C697C8C4218A6AFC2BC397A08E8F645"
            ),
        ),
    ]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("box", "box"),
        ("", "localhost"),
        ("b\u00f6x", "localhost"),
        ("b\x00x", "localhost"),
        ("x" * 64, "x" * 64),
        ("x" * 65, "x" * 64),
    ],
)
def test_a_host_s_name_is_printable_ascii(monkeypatch, name, shown):
    monkeypatch.setattr("socket.gethostname", lambda: name)
    assert host_name() == shown


# --- what a client states about itself ---

CONFIG = ClientConfig(endpoints=("127.0.0.1:8081",), plaintext=True, timeout_ms=2_500)
SERVER = parse_endpoints(("127.0.0.1:9", "127.0.0.2:10"))
ENDPOINTS = pb.Endpoints(
    scheme=pb.AddressScheme.IPv4,
    addresses=[
        pb.Address(host="127.0.0.1", port=9),
        pb.Address(host="127.0.0.2", port=10),
    ],
)


def stated(monkeypatch, **options):
    """The settings of a client on a host named `box` that runs Plan9."""
    monkeypatch.setattr("platform.system", lambda: "Plan9")
    monkeypatch.setattr("socket.gethostname", lambda: "box")
    session = Session(CONFIG, **options)
    try:
        command = session.settings_command(SERVER)
    finally:
        session.close()
    assert command.WhichOneof("command") == "settings"
    assert not command.HasField("status")
    return command.settings


def common(client_type):
    return pb.Settings(
        client_type=client_type,
        access_point=ENDPOINTS,
        request_timeout={"seconds": 2, "nanos": 500_000_000},
        user_agent=pb.UA(
            language=pb.Language.PYTHON,
            version="5.1.0",
            platform="Plan9",
            hostname="box",
        ),
    )


def test_a_producer_states_its_topics_and_the_largest_body(monkeypatch):
    session = Session(CONFIG, client_type=PRODUCER)
    session.topics = ("orders", "payments")
    monkeypatch.setattr("platform.system", lambda: "Plan9")
    monkeypatch.setattr("socket.gethostname", lambda: "box")
    expected = common(pb.ClientType.PRODUCER)
    expected.publishing.max_body_size = 4_194_304
    expected.publishing.validate_message_type = True
    expected.publishing.topics.add().name = "orders"
    expected.publishing.topics.add().name = "payments"
    assert session.settings_command(SERVER).settings == expected
    session.close()


@pytest.mark.parametrize("fifo", [False, True])
def test_a_consumer_states_its_group_and_filters(monkeypatch, fifo):
    expected = common(pb.ClientType.PUSH_CONSUMER)
    subscription = expected.subscription
    subscription.group.name = "billing"
    subscription.fifo = fifo
    subscription.long_polling_timeout.FromMilliseconds(20_000)
    for topic, kind, expression in (
        ("orders", pb.FilterType.TAG, "a || b"),
        ("payments", pb.FilterType.SQL, "a > 1"),
        ("all", pb.FilterType.TAG, "*"),
    ):
        entry = subscription.subscriptions.add()
        entry.topic.name = topic
        entry.expression.type = kind
        entry.expression.expression = expression
    found = stated(
        monkeypatch,
        client_type=PUSH_CONSUMER,
        group="billing",
        subscriptions={
            "orders": parse_subscription("orders", "a || b"),
            "payments": parse_subscription(
                "payments", "a > 1", expression_type="SQL92"
            ),
            "all": parse_subscription("all", "*"),
        },
        fifo=fifo,
    )
    assert found == expected


def test_a_client_s_messages_are_not_in_order_unless_it_says_so(monkeypatch):
    found = stated(monkeypatch, client_type=PUSH_CONSUMER)
    assert found.subscription.HasField("fifo")
    assert not found.subscription.fifo
    assert found.subscription.group.name == ""
