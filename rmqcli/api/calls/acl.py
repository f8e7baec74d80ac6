"""Requests that read and change a broker's users and rules.

Source: AdminBrokerProcessor of the broker (5.3 and later; access control 2.0), and of
4.4 to 5.2 (1.0).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from rmqcli.api.call import make_call, nothing
from rmqcli.errors import BodyError
from rmqcli.wire import fastjson
from rmqcli.wire.bodies.acl import AclConfig, AclInfo, UserInfo, UserWithPassword
from rmqcli.wire.body import Body, decode_body, encode_body, from_json, to_object
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.headers import acl as headers
from rmqcli.wire.version import V5_3_0

if TYPE_CHECKING:
    from rmqcli.api.call import Call

BodyT = TypeVar("BodyT", bound=Body)


def list_users() -> Call[list[UserInfo]]:
    """All users, without their passwords."""
    return make_call(
        RequestCode.AUTH_LIST_USER,
        lambda answer: _listed(UserInfo, answer.body),
        what="list of users",
        header=headers.ListUsersRequestHeader(),
        needs_version=V5_3_0,
    )


def get_user_with_password(username: str) -> Call[UserWithPassword | None]:
    """One user with its password; None for an unknown one."""
    return make_call(
        RequestCode.AUTH_GET_USER,
        lambda answer: (
            decode_body(UserWithPassword, answer.body) if answer.body else None
        ),
        what=f"user {username}",
        header=headers.GetUserRequestHeader(username=username),
        needs_version=V5_3_0,
    )


def create_user(user: UserWithPassword) -> Call[None]:
    """Create a user. A broker refuses one that exists."""
    return make_call(
        RequestCode.AUTH_CREATE_USER,
        nothing,
        what=f"creation of user {user.username}",
        header=headers.CreateUserRequestHeader(username=user.username),
        body=encode_body(user),
        needs_version=V5_3_0,
    )


def update_user(user: UserWithPassword) -> Call[None]:
    """Change what is not None of a user that exists."""
    return make_call(
        RequestCode.AUTH_UPDATE_USER,
        nothing,
        what=f"change of user {user.username}",
        header=headers.UpdateUserRequestHeader(username=user.username),
        body=encode_body(user),
        needs_version=V5_3_0,
    )


def delete_user(username: str) -> Call[None]:
    """Delete a user and its rules; succeeds for an unknown one, too."""
    return make_call(
        RequestCode.AUTH_DELETE_USER,
        nothing,
        what=f"deletion of user {username}",
        header=headers.DeleteUserRequestHeader(username=username),
        needs_version=V5_3_0,
    )


def list_acls() -> Call[list[AclInfo]]:
    """The rules of all subjects."""
    return make_call(
        RequestCode.AUTH_LIST_ACL,
        lambda answer: _listed(AclInfo, answer.body),
        what="list of rules",
        header=headers.ListAclsRequestHeader(),
        needs_version=V5_3_0,
    )


def put_acl(acl: AclInfo) -> Call[None]:
    """Add rules to those of a subject; those of the same resources are replaced."""
    return make_call(
        RequestCode.AUTH_CREATE_ACL,
        nothing,
        what=f"rules of {acl.subject}",
        header=headers.CreateAclRequestHeader(subject=acl.subject),
        body=encode_body(acl),
        needs_version=V5_3_0,
    )


def delete_acl(subject: str, *, policy_type: str, resource: str) -> Call[None]:
    """Delete the rule of a resource."""
    return make_call(
        RequestCode.AUTH_DELETE_ACL,
        nothing,
        what=f"deletion of the rule of {subject} for {resource}",
        header=headers.DeleteAclRequestHeader(
            subject=subject, policy_type=policy_type, resource=resource
        ),
        needs_version=V5_3_0,
    )


def get_acl_config() -> Call[AclConfig]:
    """The accounts of access control 1.0, without their secret keys (before 5.3)."""
    return make_call(
        RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
        lambda answer: decode_body(AclConfig, answer.body),
        what="accounts of access control 1.0",
    )


def _listed(cls: type[BodyT], body: bytes) -> list[BodyT]:
    """Read a list of objects; without any, an answer has no body."""
    if not body:
        return []
    found = fastjson.loads(body)
    if not isinstance(found, list):
        raise BodyError(f"{cls.__name__}: the body is not a list")
    return [from_json(cls, to_object(each, cls.__name__)) for each in found]
