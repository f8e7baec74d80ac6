"""Users and rules of access control: 2.0 (5.3 and later), and 1.0 (before 5.3).

Brokers send passwords and secret keys in the clear. They are not declared where they
are not needed, so that they are dropped when a body is read; where one is, `repr` does
not show it.

Source: UserInfo, AclInfo; ClusterAclVersionInfo, AclConfig, PlainAccessConfig in
apache/rocketmq.
"""

from __future__ import annotations

from dataclasses import field

from rmqcli.wire.body import Body
from rmqcli.wire.fields import declared


@declared
class UserInfo(Body):
    """A user without its password, as in the answers to 3004 and 3005."""

    username: str
    user_type: str | None = None  # Super or Normal
    user_status: str | None = None  # enable or disable


@declared
class UserWithPassword(Body):
    """A user for 3001 and 3002, or one whose password is to be compared or copied."""

    username: str
    password: str | None = field(default=None, repr=False)
    user_type: str | None = None
    user_status: str | None = None


@declared
class PolicyEntryInfo(Body):
    """What is allowed or denied for one resource."""

    resource: str
    actions: list[str] = field(default_factory=list)
    source_ips: list[str] | None = None
    decision: str | None = None  # Allow or Deny


@declared
class PolicyInfo(Body):
    """The entries of one type: Custom, or Default for what no Custom entry matches."""

    policy_type: str | None = None
    entries: list[PolicyEntryInfo] = field(default_factory=list)


@declared
class AclInfo(Body):
    """All rules of a subject, `User:NAME`."""

    subject: str
    policies: list[PolicyInfo] = field(default_factory=list)


@declared
class PlainAccessConfig(Body):
    """An account of ACL 1.0, without its secret key."""

    access_key: str
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: list[str] | None = None
    group_perms: list[str] | None = None


@declared
class AclConfig(Body):
    """The answer to GET_BROKER_CLUSTER_ACL_CONFIG (54)."""

    global_white_addrs: list[str] | None = None
    plain_access_configs: list[PlainAccessConfig] | None = None
