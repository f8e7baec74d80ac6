"""Codes, languages and releases have Java's names."""

from __future__ import annotations

from rmqcli.wire.codes import (
    LanguageCode,
    ResponseCode,
    language_name,
    response_name,
)
from rmqcli.wire.version import CLIENT_VERSION, V5_2_0, version_name
from tests.kit.rows import each_row


@each_row(
    ("ordinal", "name"),
    [
        # From MQVersion.getVersionDesc of 4.6.0 to 5.5.0.
        (212, "4.0.0-SNAPSHOT"),
        (219, "4.0.3"),
        (224, "4.0.6-SNAPSHOT"),
        (229, "4.0.8"),
        (232, "4.1.0-SNAPSHOT"),
        (251, "4.1.9"),
        (252, "4.2.0-SNAPSHOT"),
        (269, "4.2.8"),
        (281, "4.3.4"),
        (295, "4.4.1"),
        (317, "4.5.2"),
        (333, "4.6.0"),
        (347, "4.6.7"),
        (372, "4.8.0-SNAPSHOT"),
        (390, "4.8.9-SNAPSHOT"),
        (407, "4.9.7"),
        (409, "4.9.8"),
        (412, "5.0.0-SNAPSHOT"),
        (413, "5.0.0"),
        (443, "5.1.5"),
        (457, "5.2.2"),
        (471, "5.2.9"),
        (472, "5.3.0-SNAPSHOT"),
        (479, "5.3.3"),
        (491, "5.3.9"),
        (513, "5.5.0"),
        # Numbers without a name: too old, HIGHER_VERSION, and invalid ones.
        (195, "195"),
        (0, "0"),
        (-1, "-1"),
        (612, "612"),
        (9999, "9999"),
    ],
)
def test_version_name(ordinal, name):
    assert version_name(ordinal) == name


def test_client_version_asks_for_strict_json_and_not_for_go_away():
    """From 401 on, routes are strict JSON; above 475 a server may answer GO_AWAY."""
    assert 401 <= CLIENT_VERSION <= 475
    assert version_name(V5_2_0) == "5.2.0"


def test_names_of_codes():
    """An unknown code stays a number, because brokers may be newer than this client."""
    assert response_name(26) == "SUBSCRIPTION_GROUP_NOT_EXIST"
    assert response_name(ResponseCode.TOPIC_NOT_EXIST) == "TOPIC_NOT_EXIST"
    assert response_name(209) == "POLLING_FULL"
    assert response_name(4242) == "4242"


def test_names_of_languages():
    """None is a language that the codec did not know."""
    assert language_name(LanguageCode.GO) == "GO"
    assert language_name(0) == "JAVA"
    assert language_name(99) == "99"
    assert language_name(None) == "unknown"
