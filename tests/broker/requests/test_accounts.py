"""Users and rules of access control, as mqadmin manages them (3001 to 3010)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rmqcli.broker.settings import BrokerSettings
from rmqcli.broker.state import accounts
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.headers.acl import (
    CreateAclRequestHeader,
    CreateUserRequestHeader,
    DeleteAclRequestHeader,
    DeleteUserRequestHeader,
    GetAclRequestHeader,
    GetUserRequestHeader,
    ListAclsRequestHeader,
    ListUsersRequestHeader,
    UpdateUserRequestHeader,
)
from tests.broker.driving import Driver, need

DENIED = 16
UNSET = "not set any response code"
RULE: dict[str, Any] = {"resource": "Topic:T", "actions": ["Pub"], "decision": "Allow"}


@pytest.fixture
def driver():
    return Driver(BrokerSettings(authentication_enabled=True))


def asked(driver, code, header, body=None):
    """The code and the remark of an answer, and its body as JSON."""
    data = b"" if body is None else json.dumps(body).encode()
    answer = need(driver.ask(code, header, body=data))
    return answer.code, answer.remark, json.loads(bytes(answer.body) or b"null")


def create_user(driver, name="u", **fields):
    body = {"username": name, "password": "p", **fields}
    header = CreateUserRequestHeader(username=name)
    return asked(driver, RequestCode.AUTH_CREATE_USER, header, body)


def update_user(driver, name="u", **fields):
    header = UpdateUserRequestHeader(username=name)
    body = {"username": name, **fields}
    return asked(driver, RequestCode.AUTH_UPDATE_USER, header, body)


def user(driver, name="u"):
    header = GetUserRequestHeader(username=name)
    return asked(driver, RequestCode.AUTH_GET_USER, header)[2]


def users(driver, text=None):
    header = ListUsersRequestHeader(filter=text)
    found = asked(driver, RequestCode.AUTH_LIST_USER, header)[2]
    return [each["username"] for each in found or []]


def create_acl(driver, *entries, kind="Custom", subject="User:u"):
    policies = [{"policyType": kind, "entries": list(entries)}]
    body = {"subject": subject, "policies": policies}
    header = CreateAclRequestHeader(subject=subject)
    return asked(driver, RequestCode.AUTH_CREATE_ACL, header, body)


def delete_acl(driver, *, subject="User:u", resource=None, kind=None):
    header = DeleteAclRequestHeader(
        subject=subject, policy_type=kind, resource=resource
    )
    return asked(driver, RequestCode.AUTH_DELETE_ACL, header)


def rules(driver, subject="User:u"):
    """The resources of each policy type."""
    header = GetAclRequestHeader(subject=subject)
    found = asked(driver, RequestCode.AUTH_GET_ACL, header)[2]
    return found and {
        policy["policyType"]: [each["resource"] for each in policy["entries"]]
        for policy in found["policies"]
    }


def subjects(driver, text=None):
    header = ListAclsRequestHeader(subject_filter=text)
    found = asked(driver, RequestCode.AUTH_LIST_ACL, header)[2]
    return [each["subject"] for each in found or []]


def test_a_user_is_created_changed_and_deleted(driver):
    assert create_user(driver) == (0, UNSET, None)
    assert user(driver) == {
        "username": "u",
        "password": "p",
        "userType": "Normal",
        "userStatus": "enable",
    }
    assert create_user(driver) == (DENIED, "The user is existed", None)
    assert update_user(driver, userType="SUPER") == (0, UNSET, None)
    assert update_user(driver, userStatus="Disable", userType="odd")[0] == 0
    assert update_user(driver, password="q")[0] == 0
    assert user(driver) == {
        "username": "u",
        "password": "q",
        "userType": "Super",
        "userStatus": "disable",
    }
    assert update_user(driver, "v") == (DENIED, "The user is not exist", None)
    create_acl(driver, RULE)
    for _ in range(2):
        header = DeleteUserRequestHeader(username="u")
        deleted = asked(driver, RequestCode.AUTH_DELETE_USER, header)
        assert deleted == (0, UNSET, None)
    assert user(driver) is None
    create_user(driver)
    assert rules(driver) is None


def test_a_new_user_has_the_words_that_rocketmq_writes(driver):
    create_user(driver, "a", userType="super", userStatus="DISABLE")
    create_user(driver, "b", userType="odd", userStatus="odd")
    assert [user(driver, "a")[each] for each in ("userType", "userStatus")] == [
        "Super",
        "disable",
    ]
    assert [user(driver, "b")[each] for each in ("userType", "userStatus")] == [
        "Normal",
        "enable",
    ]
    blank = create_user(driver, "c", password="")
    assert blank == (DENIED, "password can not be blank", None)


def test_users_are_listed_in_order_by_a_part_of_their_names(driver):
    assert users(driver) == []
    for name in ("bob", "alice", "rob"):
        create_user(driver, name)
    assert users(driver) == ["alice", "bob", "rob"]
    assert users(driver, "ob") == ["bob", "rob"]
    assert users(driver, "x") == []


def test_rules_are_added_replaced_and_deleted(driver):
    create_user(driver)
    assert rules(driver) is None
    assert create_acl(driver, RULE, {**RULE, "resource": "Group:g"})[0] == 0
    create_acl(driver, {**RULE, "resource": "*"}, kind="DEFAULT")
    create_acl(driver, {**RULE, "actions": ["SUB", "odd", "get"], "decision": "deny"})
    assert rules(driver) == {"Custom": ["Topic:T", "Group:g"], "Default": ["*"]}
    header = GetAclRequestHeader(subject="User:u")
    found = asked(driver, RequestCode.AUTH_GET_ACL, header)[2]
    assert found["policies"][0]["entries"][0] == {
        "resource": "Topic:T",
        "actions": ["Sub", "Get"],
        "decision": "Deny",
    }
    assert delete_acl(driver, resource="*") == (0, UNSET, None)  # a Default one
    assert delete_acl(driver, resource="Topic:T") == (0, UNSET, None)
    assert rules(driver) == {"Custom": ["Group:g"], "Default": ["*"]}
    delete_acl(driver, resource="*", kind="Default")
    assert subjects(driver) == ["User:u"]
    delete_acl(driver, resource="Group:g")
    assert (rules(driver), subjects(driver)) == (None, [])
    create_acl(driver, RULE, {**RULE, "resource": "Cluster:c"})
    delete_acl(driver)
    assert rules(driver) is None


def test_subjects_are_listed_in_order_by_a_part_of_their_names(driver):
    for name in ("bob", "alice", "rob"):
        create_user(driver, name)
        create_acl(driver, RULE, subject=f"User:{name}")
    assert subjects(driver) == ["User:alice", "User:bob", "User:rob"]
    assert subjects(driver, "ob") == ["User:bob", "User:rob"]


@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        ({"resource": "Topic"}, "The resource is null."),
        ({"resource": "Queue:q"}, "The resource is null."),
        ({"actions": []}, "The actions is empty."),
        ({"actions": ["odd"]}, "The actions is empty."),
        ({"sourceIps": ["10.0.0.0/8", "10.0.0"]}, "The source ip is invalid."),
        ({"decision": None}, "The decision is null or illegal."),
        ({"decision": "maybe"}, "The decision is null or illegal."),
        ({"resource": "namespace:n"}, None),
        ({"resource": "*"}, None),
        ({"sourceIps": ["10.0.0.1/8", "::1"]}, None),
        ({"sourceIps": []}, None),
    ],
)
def test_a_rule_has_a_resource_actions_addresses_and_a_decision(
    driver, changes, remark
):
    create_user(driver)
    code, said, _ = create_acl(driver, {**RULE, **changes})
    assert (code, said) == ((0, UNSET) if remark is None else (DENIED, remark))
    assert (rules(driver) is None) == (remark is not None)


def test_rules_are_of_a_user_that_exists(driver):
    create_user(driver)
    assert create_acl(driver) == (DENIED, "The policy entries is empty.", None)
    unknown = create_acl(driver, RULE, subject="User:v")
    assert unknown == (DENIED, "The subject of User:v is not exist.", None)
    assert delete_acl(driver) == (DENIED, "The acl is not exist.", None)
    gone = delete_acl(driver, subject="User:v")
    assert gone == (DENIED, "The subject is not exist.", None)
    header = GetAclRequestHeader(subject="User:v")
    of_nobody = asked(driver, RequestCode.AUTH_GET_ACL, header)
    assert of_nobody == (DENIED, "The subject is not exist.", None)


def test_users_and_rules_are_bounded(driver, monkeypatch):
    monkeypatch.setattr("rmqcli.broker.requests.accounts.USERS_MAX", 2)
    monkeypatch.setattr("rmqcli.broker.requests.accounts.RULES_MAX", 2)
    assert (accounts.USERS_MAX, accounts.RULES_MAX) == (10_000, 10_000)
    codes = [create_user(driver, name)[0] for name in ("u", "v", "w")]
    assert codes == [0, 0, DENIED]
    groups = [{**RULE, "resource": f"Group:{n}"} for n in range(3)]
    assert create_acl(driver, *groups)[0] == DENIED
    assert create_acl(driver, *groups[:2])[0] == 0
    assert create_acl(driver, groups[2])[0] == DENIED
    assert rules(driver) == {"Custom": ["Group:0", "Group:1"]}


def test_a_broker_without_access_control_answers_as_a_real_one():
    driver = Driver()
    later = "An system error occurred, please try again later."
    assert create_user(driver) == (1, later, None)
    code, remark, _ = create_acl(driver, RULE)
    assert code == 1
    assert remark == (
        "java.lang.IllegalStateException: The authorizationMetadataProvider is not"
        " configured."
    )
