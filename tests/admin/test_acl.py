"""Which rule of access control decides: as brokers of 5.5.0 do it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqcli.admin.acl import check_access, check_password, decide
from rmqcli.admin.definitions.model import parts_of_rule, rule_name
from rmqcli.admin.definitions.read import accounts_of
from rmqcli.errors import ConfigError
from rmqcli.wire.bodies.acl import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from tests.admin.access_cases import CASES, rules_of
from tests.kit.rows import each_row

USER: dict[str, Any] = {"user_type": "Normal", "user_status": "enable"}
ALLOW: dict[str, Any] = {"actions": ["Pub"], "decision": "Allow", "source_ips": []}


@each_row("case", CASES, ids=" ".join)
def test_a_rule_decides_as_on_brokers(case):
    user, resource, action = case
    found = decide(USER, rules_of(user), resource, action, "127.0.0.1")
    rule = None if found.rule is None else parts_of_rule(found.rule)[1]
    assert (found.is_allowed, rule) == CASES[case]


def test_no_rule_is_asked_about_some_users():
    rules = {rule_name("u", "Topic:t"): ALLOW}
    disabled = {**USER, "user_status": "disable"}
    assert decide(None, rules, "Topic:t", "Pub", None).is_allowed is False
    found = decide(disabled, rules, "Topic:t", "Pub", None)
    assert (found.is_allowed, found.reason) == (False, "the user is disabled")
    found = decide({**USER, "user_type": "Super"}, {}, "Topic:t", "Pub", None)
    assert (found.is_allowed, found.reason) == (True, "super users may do everything")


@pytest.mark.parametrize(
    ("other", "allowed"),
    [
        ({}, None),  # without the rule, nothing matches
        ({rule_name("u", "Topic:*"): ALLOW}, True),  # allowed from everywhere
    ],
)
def test_without_an_address_a_rule_for_some_may_decide(other, allowed):
    limited = {**ALLOW, "source_ips": ["10.0.0.0/8"]}
    rules = {rule_name("u", "Topic:t"): limited, **other}
    assert decide(USER, rules, "Topic:t", "Pub", None).is_allowed is allowed


@given(
    st.lists(st.sampled_from(["Topic:t", "Topic:t*", "Topic:*", "*", "Group:t"])),
    st.lists(st.booleans(), min_size=5, max_size=5),
)
def test_the_order_of_rules_does_not_matter(resources, denied):
    rules = [
        (rule_name("u", name), {**ALLOW, "decision": "Deny" if deny else "Allow"})
        for name, deny in zip(dict.fromkeys(resources), denied, strict=False)
    ]
    forwards = decide(USER, dict(rules), "Topic:t", "Pub", None)
    backwards = decide(USER, dict(reversed(rules)), "Topic:t", "Pub", None)
    assert forwards == backwards


@pytest.mark.parametrize(
    ("resource", "action", "source_ip", "said"),
    [
        ("orders", "Pub", None, "must be * or Cluster, Namespace, Topic, Group"),
        ("Topic:or*", "Pub", None, "must be a single one, without an asterisk"),
        ("*", "Pub", None, "must be a single one, without an asterisk"),
        ("Topic:orders", "All", None, "'All' is not one of Pub, Sub"),
        ("Topic:orders", "Pub", "here", "'here' is not an IP address"),
    ],
)
def test_what_no_request_can_be_is_refused(resource, action, source_ip, said):
    with pytest.raises(ConfigError) as caught:
        check_access(resource, action, source_ip)
    assert said in caught.value.message


@pytest.mark.parametrize("password", ["", "  ", "a\nb", "x" * 1_001])
def test_a_password_that_cannot_be_used_is_not_quoted(password):
    with pytest.raises(ConfigError) as caught:
        check_password(password)
    assert caught.value.message == (
        "the password must have 1 to 1,000 characters, and no control characters"
    )


def test_accounts_whose_names_no_file_has_are_named():
    entry = PolicyEntryInfo(resource="Topic:t", actions=["Sub", "Pub"])
    found = accounts_of(
        [UserInfo(username="a b"), UserInfo(username="u", user_type="Super")],
        [
            AclInfo(subject=subject, policies=[PolicyInfo(entries=[entry])])
            for subject in ("User:u", "Role:u")
        ],
    )
    assert found.users == {"u": {"user_type": "Super", "user_status": "enable"}}
    assert found.rules == {
        "User:u Topic:t": {
            "actions": ["Pub", "Sub"],
            "source_ips": [],
            "decision": "Deny",
        }
    }
    assert found.left_out == (
        "user 'a b', because of its name",
        "the rule of 'Role:u' for 'Topic:t', because of its name",
    )
