"""Subscriptions have the same meaning as in Java."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rmqcli.errors import UsageError
from rmqcli.wire.bodies.heartbeat import CheckClientRequestBody
from rmqcli.wire.body import encode_body
from rmqcli.wire.subscription import parse_subscription, tag_matches
from tests.golden_vectors import load
from tests.kit.rows import each_row


def of_kind(kind: str) -> list[Any]:
    return [
        pytest.param(case, id=f"{case['rocketmq']} {index}")
        for index, case in enumerate(load("ids"))
        if case["kind"] == kind
    ]


@each_row("case", of_kind("subscription") + of_kind("subscription_typed"))
def test_an_expression_is_read_as_java_reads_it(case):
    expected = case["expected"]
    kind = case.get("type", "TAG")
    if "error" in expected:
        with pytest.raises(UsageError):
            parse_subscription("T", case["expression"], expression_type=kind)
        return
    subscription = parse_subscription("T", case["expression"], expression_type=kind)
    assert subscription.topic == "T"
    assert subscription.sub_string == expected["sub_string"]
    assert sorted(subscription.tags_set) == sorted(expected["tags"])
    assert sorted(subscription.code_set) == sorted(expected["codes"])
    assert subscription.expression_type == expected["expression_type"]


@pytest.mark.parametrize(
    ("expression", "tags", "matches"),
    [
        ("*", None, True),
        (None, "A", True),
        ("A || B", "B", True),
        ("A || B", "C", False),
        ("A", None, False),  # a message without tags
        ("A", "A B", False),  # the whole text is compared
        ("Aa", "BB", False),  # the hashes are equal, so a broker lets it pass
        (" * ", "A", False),  # a tag with that name, not "all"
        (" ", "A", True),
    ],
)
def test_tag_matches(expression, tags, matches):
    assert tag_matches(parse_subscription("T", expression), tags) is matches


def test_sql_is_the_brokers_choice():
    subscription = parse_subscription("T", "a > 3", expression_type="SQL92")
    assert tag_matches(subscription, None)


def test_a_subscription_has_no_version_unless_one_is_given():
    for kind in ("TAG", "SQL92"):
        for expression in ("A", "A || B"):
            made = parse_subscription("T", expression, expression_type=kind)
            assert made.sub_version == 0
            given = parse_subscription(
                "T", expression, expression_type=kind, sub_version=7
            )
            assert given.sub_version == 7
    assert parse_subscription("T", "*").sub_version == 0


def test_a_subscription_to_be_checked_names_client_and_group():
    subscription = parse_subscription("T", "A", sub_version=5)
    body = encode_body(
        CheckClientRequestBody(
            client_id="c@1", group="g", subscription_data=subscription
        )
    )
    assert b" " not in body
    assert json.loads(body) == {
        "clientId": "c@1",
        "group": "g",
        "subscriptionData": {
            "classFilterMode": False,
            "codeSet": [65],
            "expressionType": "TAG",
            "subString": "A",
            "subVersion": 5,
            "tagsSet": ["A"],
            "topic": "T",
        },
    }
