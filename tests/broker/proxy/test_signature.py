"""Signatures: a cluster with accounts takes signed calls only."""

from __future__ import annotations

import hashlib
import hmac

import pytest

from rmqcli.broker.proxy.options import ProxyOptions
from tests.kit.grpc_client import code_of, consumer_settings

DATE = "20260101T000000Z"


def signed(key="user", secret="secret", date=DATE, upper=True, word="MQv2-HMAC-SHA1"):
    digest = hmac.new(secret.encode(), date.encode(), hashlib.sha1).hexdigest()
    digest = digest.upper() if upper else digest
    return {
        "x-mq-date-time": date,
        "authorization": f"{word} Credential={key}, SignedHeaders=x-mq-date-time, "
        f"Signature={digest}",
    }


@pytest.fixture
def guarded(start):
    cluster = start(proxy=ProxyOptions(accounts={"user": "secret"}))
    cluster.create_topic("T")
    return cluster


@pytest.mark.parametrize(
    ("metadata", "code"),
    [
        (signed(), "OK"),
        (signed(upper=False), "OK"),
        (signed(date="hello", word="ANY"), "OK"),
        (signed(key="user/region/x"), "OK"),
        ({}, "UNAUTHORIZED"),
        ({"authorization": "garbage"}, "UNAUTHORIZED"),
        ({"authorization": "A Credential=user, Signature=zz"}, "UNAUTHORIZED"),
        (signed(key="nobody"), "UNAUTHORIZED"),
        (signed(secret="wrong"), "UNAUTHORIZED"),
        ({**signed(), "x-mq-date-time": "other"}, "UNAUTHORIZED"),
        ({**signed(), "x-mq-date-time": None}, "UNAUTHORIZED"),
        ({"x-mq-client-id": None}, "UNAUTHORIZED"),
        ({**signed(), "x-mq-client-id": None}, "CLIENT_ID_REQUIRED"),
    ],
)
def test_a_call_must_be_signed(guarded, connect, metadata, code):
    assert code_of(connect(guarded, metadata=metadata).route("T")) == code


def test_streams_must_be_signed(guarded, connect):
    client = connect(guarded)
    answer = client.telemetry(consumer_settings("G", "T")).answer
    assert code_of(answer) == "UNAUTHORIZED"
    received = client.receive("G", "T")
    assert (received.code, received.kinds) == ("UNAUTHORIZED", ["status"])


def test_without_accounts_a_signature_is_ignored(cluster, connect):
    cluster.create_topic("T")
    client = connect(cluster, metadata={"authorization": "garbage"})
    assert code_of(client.route("T")) == "OK"
