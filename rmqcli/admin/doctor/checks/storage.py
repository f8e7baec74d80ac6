"""Checks of what brokers store, and for how long.

Source: DefaultMessageStore.CleanCommitLogService in apache/rocketmq: at
diskMaxUsedSpaceRatio expired files are deleted at once, at diskSpaceCleanForciblyRatio
files that are not expired, too, and at diskSpaceWarningLevelRatio messages are refused.
Before 5.0 the last two are properties of the JVM, which brokers do not show.
"""

from __future__ import annotations

from collections import defaultdict
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from rmqcli.admin.doctor.check import CheckEach, check, check_brokers
from rmqcli.admin.doctor.facts import Fact, Facts, setting_number
from rmqcli.admin.doctor.model import Findings, problem, unknown, warning
from rmqcli.hint import command_line
from rmqcli.units import HOUR_MS, counted, format_duration, format_rfc3339

if TYPE_CHECKING:
    from rmqcli.admin.brokers import BrokerDetail
    from rmqcli.admin.doctor.facts import Endangered
    from rmqcli.admin.lag.model import GroupLag

_EXPIRED_DELETED: Final = 75
_ALL_DELETED: Final = 85
_REFUSED: Final = 90
#: So near a line counts as near, in percent points.
_NEAR: Final = 5

_check_groups = CheckEach(attrgetter("lags"), attrgetter("group"))


@check_brokers("disk", "disks have room", Fact.SETTINGS)
def _disk(facts: Facts, detail: BrokerDetail) -> Findings:
    ratio = detail.row.disk_ratio
    if ratio is None:
        yield unknown("it does not report its disk")
        return
    if detail.row.commit_log_disk_ratio is None:
        yield unknown("it does not report the disk of its commit log")
    expired = setting_number(detail, "diskMaxUsedSpaceRatio") or _EXPIRED_DELETED
    forcibly = setting_number(detail, "diskSpaceCleanForciblyRatio") or _ALL_DELETED
    refused = setting_number(detail, "diskSpaceWarningLevelRatio") or _REFUSED
    expired = min(95, max(10, expired))  # as the broker bounds it
    used = ratio * 100
    make = problem
    if used >= refused - _NEAR:
        meaning = (
            f"at {refused} % it refuses messages; from {forcibly} % on it deletes"
            " the oldest messages, consumed or not"
        )
    elif used >= forcibly - _NEAR:
        meaning = f"at {forcibly} % it deletes the oldest messages, consumed or not"
    elif used >= expired - _NEAR:
        make = warning
        meaning = (
            f"at {expired} % it deletes expired messages at once, and at"
            f" {forcibly} % others, too"
        )
    else:
        return
    show = command_line("rmq broker show", detail.row.broker_name)
    yield make(f"its disk is {used:.0f} % full", meaning, show)


@check(
    "retention",
    "messages are consumed before retention deletes them",
    Fact.SETTINGS,
    Fact.LAGS,
)
def _retention(facts: Facts) -> Findings:
    for broker_name, group in sorted(facts.retention_unknown.items()):
        yield unknown(
            f"it does not show fileReservedTime, and group {group} has unread messages"
            " there",
            of=broker_name,
        )
    for group in sorted(facts.age_unknown):
        yield unknown("the age of its unread messages is not known", of=group)
    found: dict[tuple[str, str], list[Endangered]] = defaultdict(list)
    for each in facts.endangered:
        found[each.group, each.queue.topic or ""].append(each)
    for (group, topic), items in sorted(found.items()):
        counts = [each.count for each in items]
        known = [count for count in counts if count is not None]
        left_ms = min(each.reserved_ms - (each.queue.age_ms or 0) for each in items)
        # Where a broker did not tell how many, there is at least the oldest one.
        unknowns = len(counts) - len(known)
        count = sum(known) + unknowns
        number = counted(count, "unread message")
        if unknowns:
            number = f"at least {number}"
        oldest_ms = max(each.queue.age_ms or 0 for each in items)
        when = "at any time now"
        if left_ms > 0:
            at = format_rfc3339(facts.at_ms + left_ms)
            when = f"from {at} on, in {format_duration(left_ms)}"
        yield problem(
            f"{number} of {topic} {'is' if count == 1 else 'are'} near the end of the"
            f" retention of {items[0].reserved_ms // HOUR_MS} h; the oldest is"
            f" {format_duration(oldest_ms)} old",
            f"the broker deletes what is unread {when}",
            command_line("rmq lag", group),
            of=group,
        )


@_check_groups("expired-messages", "no group has missed deleted messages", Fact.LAGS)
def _expired(facts: Facts, lag: GroupLag) -> Findings:
    lost: dict[str, int] = defaultdict(int)
    for queue in lag.queues:
        if queue.expired:
            lost[queue.topic or ""] += queue.expired
    for topic, count in sorted(lost.items()):
        was, it = ("was", "it") if count == 1 else ("were", "them")
        make, but, advice = problem, "", "keep messages longer, or consume faster"
        if lag.reading.members is None and not lag.reading.members_unknown:
            make, but = warning, "; it has no member"
            advice = "delete it if it is not used any more"
        yield make(
            f"{counted(count, 'message')} of {topic} {was} deleted before the group"
            f" read {it}{but}",
            f"they are lost for this group; {advice}",
            command_line("rmq lag", lag.group),
        )
