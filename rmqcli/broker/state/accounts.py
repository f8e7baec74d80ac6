"""The users and rules of a broker, in memory only.

Source: LocalAuthenticationMetadataProvider, LocalAuthorizationMetadataProvider and Acl
in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rmqcli.wire.bodies.acl import PolicyEntryInfo, UserWithPassword

USERS_MAX: Final = 10_000
#: Rules of one user.
RULES_MAX: Final = 10_000

CUSTOM: Final = "Custom"
DEFAULT: Final = "Default"


class AccountTable:
    """Users by name, and the rules of each by policy type and resource."""

    def __init__(self) -> None:
        self.users: dict[str, UserWithPassword] = {}
        #: subject -> (policy type, resource) -> entry
        self.rules: dict[str, dict[tuple[str, str], PolicyEntryInfo]] = {}
