"""Signatures equal those of Java's client, which Java's brokers verify."""

from __future__ import annotations

import pytest

from rmqcli.errors import ConfigError
from rmqcli.wire.acl import Credentials, content_to_sign, sign, signature
from tests.golden_vectors import from_base64, load
from tests.kit.rows import each_row

GOLDEN = load("acl")
REQUESTS = [case for case in GOLDEN if "ext_fields_unsigned" in case]
BARE = [case for case in GOLDEN if "ext_fields_unsigned" not in case]


def test_there_are_vectors():
    assert len(REQUESTS) > 100
    assert len(BARE) >= 20


@each_row("case", REQUESTS, ids=lambda c: f"{c['rocketmq']} {c['name']}")
def test_requests_are_signed_as_by_java(case):
    """Content and signature are equal, and nothing else is changed."""
    fields = case["ext_fields_unsigned"]
    body = from_base64(case["body_b64"])
    credentials = Credentials(
        case["access_key"], case["secret_key"], case["security_token"]
    )
    unsigned = {
        k: v for k, v in fields.items() if k not in ("AccessKey", "SecurityToken")
    }

    signed = sign(unsigned, body, credentials)

    assert content_to_sign(fields, body) == from_base64(case["expected_content_b64"])
    assert signed == {**fields, "Signature": case["expected_signature"]}
    assert sign(signed, body, credentials) == signed


#: Brokers disagree on whether they sign this field, so it is never sent with a key.
DISPUTED = "_UNIQUE_KEY_QUERY"
UNDISPUTED = [case for case in REQUESTS if DISPUTED not in case["ext_fields_unsigned"]]


@each_row("case", UNDISPUTED, ids=lambda c: f"{c['rocketmq']} {c['name']}")
def test_what_is_signed_is_what_clients_sign_and_brokers_of_that_version_check(case):
    content = content_to_sign(
        case["ext_fields_unsigned"], from_base64(case["body_b64"])
    )
    if "server_content_b64" in case:  # 4.x
        assert content == from_base64(case["server_content_b64"])
    assert signature(content, case["secret_key"]) == case["client_hook_signature"]


def test_a_query_by_unique_key_is_signed_differently_by_clients_and_brokers():
    """This is why `sign` must not be given that field."""
    disputed = [case for case in REQUESTS if case not in UNDISPUTED]
    assert any(
        case["client_hook_signature"] != case["expected_signature"] for case in disputed
    )
    assert any(
        case.get("server_content_b64", case["expected_content_b64"])
        != case["expected_content_b64"]
        for case in disputed
    )


@each_row("case", BARE, ids=lambda c: f"{c['rocketmq']} {c['name']}")
def test_hmac(case):
    """Keys and contents may be any text; without a key Java throws."""
    content, key = case["content"].encode(), case["secret_key"]

    if key:
        assert signature(content, key) == case["expected_signature"]
    else:
        assert case["expected_signature"] == {"error": "AclException"}
        with pytest.raises(ConfigError):
            Credentials("ak", key)


def test_vectors_of_the_protocol_notes():
    """Fields are sorted by name, capitals first, and include the token; the body
    follows."""
    fields = {"topic": "T", "queueId": "1", "committed": "true"}

    signed = sign(fields, b"body", Credentials("rocketmq2", "12345678", "tok"))

    assert signed["Signature"] == "NbYlIWKGnDSIr7OO/nop9AIj/uo="
    assert sign({}, b"", Credentials("ak", "sk")) == {
        "AccessKey": "ak",
        "Signature": "AL2pakQ4gJnpWeA42COL+SacNKk=",
    }


def test_names_beyond_the_first_plane_are_ordered_as_in_java():
    """U+1F600 is D83D DE00 in UTF-16, which comes before U+FF01."""
    assert content_to_sign({"\uff01": "b", "\U0001f600": "a"}, b"") == b"ab"


def test_secrets_are_not_shown():
    """`repr` and `str` show neither the secret key nor the token."""
    credentials = Credentials("ak", "canary-secret", "canary-token")

    assert repr(credentials) == "Credentials(access_key='ak')"
    assert "canary" not in f"{credentials} {[credentials]}"
