"""Headers of users and rules of access control (5.3).

Codes 3001 to 3010.

Source: the classes of the same names in apache/rocketmq.
"""

from __future__ import annotations

from rmqcli.wire.fields import declared
from rmqcli.wire.header import Header


@declared
class CreateUserRequestHeader(Header):
    """Create a user (3001); the body is a UserWithPassword."""

    username: str


@declared
class UpdateUserRequestHeader(Header):
    """Change what the body names of a user (3002)."""

    username: str


@declared
class DeleteUserRequestHeader(Header):
    """Delete a user with all rules (3003)."""

    username: str


@declared
class GetUserRequestHeader(Header):
    """Query one user (3004); the answer has no body for an unknown one."""

    username: str


@declared
class ListUsersRequestHeader(Header):
    """List the users whose names contain a text (3005)."""

    filter: str | None = None


@declared
class CreateAclRequestHeader(Header):
    """Add rules, or replace those of the same resources (3006)."""

    subject: str


@declared
class UpdateAclRequestHeader(Header):
    """Does the same as 3006 (3007)."""

    subject: str


@declared
class DeleteAclRequestHeader(Header):
    """Delete the rule of a resource, or all rules of a subject (3008)."""

    subject: str
    policy_type: str | None = None
    resource: str | None = None


@declared
class GetAclRequestHeader(Header):
    """Query the rules of a subject (3009)."""

    subject: str


@declared
class ListAclsRequestHeader(Header):
    """List rules by texts in their subjects and resources (3010)."""

    subject_filter: str | None = None
    resource_filter: str | None = None
