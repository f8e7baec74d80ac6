"""Security checks: known vulnerabilities, access control and TLS.

Source: rocketmq.apache.org/security and security.apache.org/projects/rocketmq for the
known vulnerabilities; BrokerConfig and AuthConfig in apache/rocketmq.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from rmqcli.admin.doctor.check import check, check_brokers
from rmqcli.admin.doctor.facts import Fact, Facts
from rmqcli.admin.doctor.model import Findings, unknown, warning
from rmqcli.dataclass import dataclass
from rmqcli.errors import DeniedError, RmqError
from rmqcli.hint import command_line

if TYPE_CHECKING:
    from rmqcli.admin.brokers import BrokerDetail

Version = tuple[int, ...]

_BROKER: Final = "broker"
_NAMESRV: Final = "name server"
#: The first version with authentication and authorization (ACL 2.0).
_ACL_2: Final = (5, 3, 0)
#: The first version without the old access control (aclEnable).
_NO_ACL_1: Final = (5, 3, 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Vulnerability:
    """A published vulnerability of `servers`.

    Each of `ranges` is [first version, first fixed version).
    """

    name: str
    what: str
    ranges: tuple[tuple[Version, Version], ...]
    servers: frozenset[str]

    def fix_for(self, version: Version) -> Version | None:
        """Return the version that fixes it, or None if `version` does not have it."""
        for first, fixed in self.ranges:
            if first <= version < fixed:
                return fixed
        return None


VULNERABILITIES: Final = (
    Vulnerability(
        name="CVE-2023-33246",
        what="remote command execution through a change of settings",
        ranges=(((0,), (4, 9, 6)), ((5, 0, 0), (5, 1, 1))),
        servers=frozenset((_BROKER, _NAMESRV)),
    ),
    Vulnerability(
        name="CVE-2023-37582",
        what="remote command execution through settings of the name server",
        ranges=(((0,), (4, 9, 7)), ((5, 0, 0), (5, 1, 2))),
        servers=frozenset((_NAMESRV,)),
    ),
    Vulnerability(
        name="CVE-2024-23321",
        what="users may learn the administrator's account",
        ranges=(((4, 5, 2), (5, 3, 0)),),
        servers=frozenset((_BROKER,)),
    ),
    Vulnerability(
        name="CVE-2019-17572",
        what="files outside of the store through names of topics",
        ranges=(((4, 2, 0), (4, 6, 1)),),
        servers=frozenset((_BROKER,)),
    ),
)


def parse_version(text: str | None) -> Version | None:
    """Return the numbers of `4.9.7` or `5.0.0-SNAPSHOT`; None without three."""
    match = re.match(r"(\d{1,4})\.(\d{1,4})\.(\d{1,4})(?:\D|$)", text or "")
    return None if match is None else tuple(map(int, match.groups()))


@check(
    "known-cves",
    "no server has a published vulnerability",
    Fact.NAMESRVS,
    works_without_master=True,
)
def _known_cves(facts: Facts) -> Findings:
    servers = [
        (_BROKER, detail.row.process_name, detail.row.version)
        for detail in facts.brokers
        if detail.row.error is None
    ]
    servers += [
        (_NAMESRV, address, found.version)
        for address, found in facts.namesrvs.items()
        if not isinstance(found.info, RmqError)
    ]
    for kind, subject, text in servers:
        version = parse_version(text)
        if version is None:
            yield unknown(f"the version of the {kind} is not known", of=subject)
            continue
        found_here = [
            (each, fixed)
            for each in VULNERABILITIES
            if kind in each.servers and (fixed := each.fix_for(version)) is not None
        ]
        if found_here:
            names = ", ".join(each.name for each, _ in found_here)
            whats = "; ".join(each.what for each, _ in found_here)
            newest = max(fixed for _, fixed in found_here)
            yield warning(
                f"the {kind} runs RocketMQ {text}, which has {names}",
                f"{whats}; upgrade to {'.'.join(map(str, newest))} or later",
                command_line("rmq nameserver config get", options=["-n", subject])
                if kind == _NAMESRV
                else "rmq brokers",
                of=subject,
            )


@check_brokers("access-control", "brokers ask for accounts and check rights")
def _access_control(facts: Facts, detail: BrokerDetail) -> Findings:
    settings = detail.settings
    if settings is None:
        if not isinstance(detail.settings_error, DeniedError):
            reason = detail.settings_error and detail.settings_error.message
            yield unknown(f"it does not show its settings: {reason}")
        return  # a broker that denies has access control
    version = parse_version(detail.row.version)
    if version is None:
        yield unknown("its version is not known")
        return
    has_old = settings.get("aclEnable") == "true"
    if has_old and version < _NO_ACL_1:
        return
    has_accounts = settings.get("authenticationEnabled") == "true"
    has_rights = settings.get("authorizationEnabled") == "true"
    if has_accounts and has_rights:
        return
    if has_accounts:
        evidence = "authenticationEnabled is true, and authorizationEnabled false"
        meaning = "every account may do everything"
    elif has_old:
        evidence = "aclEnable is true, which has no effect from 5.3.3 on"
        meaning = "any client that reaches its port may administer it; use ACL 2.0"
    else:
        names = "authenticationEnabled" if version >= _ACL_2 else "aclEnable"
        evidence = f"it asks for no account: {names} is not true"
        meaning = "any client that reaches its port may read, change and delete"
    yield warning(
        evidence,
        meaning,
        command_line("rmq broker show", detail.row.broker_name, options=["--settings"]),
    )


@check_brokers("encryption", "connections over a network are encrypted")
def _encryption(facts: Facts, detail: BrokerDetail) -> Findings:
    host = detail.row.address.rpartition(":")[0].strip("[]")
    is_loopback = host in ("localhost", "::1") or host.startswith("127.")
    if facts.config.tls is None and not is_loopback:
        yield warning(
            f"it answers at {detail.row.address} without TLS",
            "others on the network can read messages and replay requests",
            "rmq doctor --only encryption --tls",
        )
