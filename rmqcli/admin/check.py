"""Measures what `rmq check` compares with thresholds: a value for each subject.

A value that is not known is None with a reason, and `at_least` is what is known of it:
a group whose lag is unknown in one queue may be behind by too much in the others. A
name that does not exist is measured, too, with that as the reason, because a check that
silently checks less than it was told to is worse than none.

So the record of `rmq lag` is used, and kept: a broker that has died leaves the route
after two minutes, and what it had would be gone from every value.

`measure_behaviour` needs no thresholds: it keeps what it reads, and judges each group
by a window of such samples (`rmqcli.admin.lag.behaviour`).
"""

from __future__ import annotations

import os
from dataclasses import replace
from enum import IntEnum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from rmqcli.admin.brokers import ask_each, read_brokers, reader_addresses, split_answers
from rmqcli.admin.lag.assemble import LagQuery
from rmqcli.admin.lag.behaviour import History, observe
from rmqcli.admin.lag.gather import LagGatherer
from rmqcli.admin.lag.history import HistoryFolder, history_directory
from rmqcli.admin.lag.memory import departed_brokers, departed_brokers_of, open_memory
from rmqcli.admin.lag.model import GroupState, compute_lag
from rmqcli.admin.mistakes import explain_missing
from rmqcli.api.broker_errors import not_found
from rmqcli.api.calls.config import get_broker_config, get_subscription_group_names
from rmqcli.api.calls.namesrv import get_all_topic_list
from rmqcli.api.calls.stats import get_topic_stats_info
from rmqcli.api.positions import broker_clock
from rmqcli.dataclass import dataclass
from rmqcli.errors import NotFoundError, PartialError, RmqError
from rmqcli.model import is_system_group
from rmqcli.units import HOUR_MS, MINUTE_MS, counted, read_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rmqcli.admin.lag.model import GroupLag
    from rmqcli.api.client import Client

#: What decides how soon a stall is found, and how slow a message may be.
BEHAVIOUR_WINDOW_MS: Final = 10 * MINUTE_MS

_GLOB = frozenset("*?[")
_NO_MESSAGE: Final = "no message is stored"


class MonitorStatus(IntEnum):
    """The result of a check: what plugins of Nagios exit with."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


#: The worst last. Something that is known to be critical is not hidden by what is not
#: known of others.
_ORDER = (
    MonitorStatus.OK,
    MonitorStatus.WARNING,
    MonitorStatus.UNKNOWN,
    MonitorStatus.CRITICAL,
)


#: Of what is not here, such as BROADCAST, nothing is known.
_STATUS_OF_VERDICT: Final = {
    GroupState.OK: MonitorStatus.OK,
    GroupState.BEHIND: MonitorStatus.OK,
    GroupState.GROWING: MonitorStatus.WARNING,
    GroupState.AHEAD: MonitorStatus.WARNING,
    GroupState.STOPPED: MonitorStatus.CRITICAL,
    GroupState.STALLED: MonitorStatus.CRITICAL,
    GroupState.REWOUND: MonitorStatus.CRITICAL,
    GroupState.EXPIRED: MonitorStatus.CRITICAL,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The value of one subject: messages, milliseconds or per cent.

    With a `verdict` the status follows from that, and not from thresholds.

    `value` is None if it is not known, and `reason` says why; `at_least` is what it is
    at least, if that is known. `is_lost` means that the worst has happened already,
    such as messages that retention has deleted unread. `is_left_out` is a group that a
    glob has chosen and that has no such value: one that never consumed, or whose
    members keep their offsets themselves. By its name it would be unknown.
    `is_doubtful` is a value that may hide messages, and `reason` says why: at best a
    warning.
    """

    subject: str
    value: float | None
    reason: str | None = None
    at_least: float | None = None
    is_lost: bool = False
    is_left_out: bool = False
    is_doubtful: bool = False
    verdict: GroupState | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """From which value on the status changes; None for never.

    With `is_low_bad` a value is too small, such as the time that is left, not too big.
    """

    warning: float | None = None
    critical: float | None = None
    is_low_bad: bool = False

    def status(self, measured: Measurement) -> MonitorStatus:
        """Return the status of one measurement. Pure."""
        if measured.verdict is not None:
            return _STATUS_OF_VERDICT.get(measured.verdict, MonitorStatus.UNKNOWN)
        known = measured.at_least if measured.value is None else measured.value
        reached = MonitorStatus.OK
        if measured.is_lost or self._is_reached(self.critical, known):
            reached = MonitorStatus.CRITICAL
        elif measured.is_doubtful or self._is_reached(self.warning, known):
            reached = MonitorStatus.WARNING
        if measured.value is None and reached is not MonitorStatus.CRITICAL:
            return MonitorStatus.UNKNOWN
        return reached

    def _is_reached(self, threshold: float | None, value: float | None) -> bool:
        if threshold is None or value is None:
            return False
        return value <= threshold if self.is_low_bad else value >= threshold


def _unknown(
    subject: str,
    reason: str | None,
    *,
    at_least: float | None = None,
    is_lost: bool = False,
) -> Measurement:
    return Measurement(
        subject=subject, value=None, reason=reason, at_least=at_least, is_lost=is_lost
    )


def worst_status(statuses: Iterable[MonitorStatus]) -> MonitorStatus:
    """Return the worst of some statuses, or UNKNOWN without any."""
    return max(statuses, key=severity, default=MonitorStatus.UNKNOWN)


def severity(status: MonitorStatus) -> int:
    """Return how bad a status is among all; 0 is OK."""
    return _ORDER.index(status)


def measure_lag(client: Client, patterns: Sequence[str]) -> list[Measurement]:
    """Measure how many messages wait for each group."""
    return _of_groups(client, patterns, _lag)


def measure_behaviour(
    client: Client, patterns: Sequence[str], *, window_ms: int = BEHAVIOUR_WINDOW_MS
) -> list[Measurement]:
    """Judge each group by a window of samples, of which this call adds one.

    The value is the group's lag. Samples are kept in the user's state folder. Where
    that is impossible, nothing is known of a group that is not already known to be bad.
    """
    directory = history_directory(os.environ)
    folder = None
    if directory is not None:
        folder = HistoryFolder(directory, client.config.namesrv, window_ms=window_ms)

    def judge(lag: GroupLag) -> Measurement:
        history, unusable = History(), None
        if folder is not None:
            history, unusable = folder.load(lag.group)
        history, behaviour = observe(
            history, lag, at_ms=client.clock.epoch_ms(), window_ms=window_ms
        )
        fault: str | None = "the history cannot be kept: there is no home directory"
        if folder is not None:
            fault = folder.save(lag.group, history)
        verdict, reasons = behaviour.verdict, [behaviour.reason]
        status = _STATUS_OF_VERDICT.get(verdict, MonitorStatus.UNKNOWN)
        if fault is not None and severity(status) < severity(MonitorStatus.UNKNOWN):
            verdict, reasons = GroupState.UNKNOWN, []
        elif verdict is GroupState.UNKNOWN and unusable is not None:
            reasons.append(f"the history begins anew, because {unusable}")
        reasons.append(fault)
        if not any(reasons) and lag.total_lag is None:
            reasons.append(lag.reason)
        return Measurement(
            subject=lag.group,
            value=lag.total_lag,
            reason="; ".join(filter(None, reasons)) or None,
            at_least=lag.known_lag,
            verdict=verdict,
        )

    measured = _of_groups(client, patterns, judge)
    if folder is not None:
        folder.clean(now_ms=client.clock.epoch_ms())
    return measured


def measure_age(client: Client, patterns: Sequence[str]) -> list[Measurement]:
    """Measure how old the oldest unread message of each group is, in milliseconds."""
    return _of_groups(client, patterns, _age)


def measure_retention(client: Client, patterns: Sequence[str]) -> list[Measurement]:
    """Measure for how many milliseconds the oldest unread message is still kept.

    The value of a group without unread messages is infinite.
    """
    reserved: dict[str, int] = {}
    answers = ask_each(client, client.masters(), get_broker_config())
    for name, settings in split_answers(answers)[0].items():
        hours = read_count(settings.get("fileReservedTime"), digits_max=9)
        if hours is not None:
            reserved[name] = hours * HOUR_MS
    return _of_groups(client, patterns, lambda lag: _left(lag, reserved))


def measure_letters(client: Client, patterns: Sequence[str]) -> list[Measurement]:
    """Count the dead letters of each group."""
    from rmqcli.admin.dlq.listing import list_letters

    listed = list_letters(client)
    found = {each.group: each for each in listed.groups}
    names, reasons = _existing_groups(client)
    names.update(found)
    for name, error in listed.errors.items():
        reasons = reasons or f"{name}: {error.message}"
    chosen = _chosen_groups(names, patterns)
    if not chosen and reasons:  # there may be groups
        raise PartialError(reasons)
    measured = []
    for group in chosen:
        letters = found.get(group)
        if group not in names:
            reason = reasons or _explained(client, not_found("group", group))
            measured.append(_unknown(group, reason))
        elif letters is None and reasons:
            measured.append(_unknown(group, reasons))
        elif letters is None:
            measured.append(Measurement(subject=group, value=0))
        else:
            measured.append(
                Measurement(
                    subject=group,
                    value=letters.count,
                    reason=letters.reason,
                    at_least=letters.known_count,
                )
            )
    return measured + _unseen(measured, patterns, reasons)


def measure_topics(client: Client, patterns: Sequence[str]) -> list[Measurement]:
    """Measure how long ago the newest message of each topic was stored.

    In milliseconds, by the clocks of the brokers.
    """
    names: set[str] = set()
    if any(map(_is_glob, patterns)):
        from rmqcli.admin.topics import topic_kind

        info = client.cluster_info()
        names = {
            topic
            for topic in client.namesrv(get_all_topic_list())
            if topic_kind(topic, info) == "normal"
        }
    topics = _chosen(names, patterns)
    routes = client.routes(topics)
    asked_ms = client.clock.epoch_ms()
    details = read_brokers(
        client, client.cluster_info().brokers.values(), with_settings=False
    )
    answered_ms = client.clock.epoch_ms()
    now_ms: dict[str, int] = {}
    clockless: dict[str, RmqError] = {}
    for detail in details:
        if detail.row.error is not None:
            clockless[detail.row.broker_name] = detail.row.error
        if detail.runtime is not None:  # the master first
            clock = broker_clock(
                detail.runtime, asked_ms=asked_ms, answered_ms=answered_ms
            )
            now_ms.setdefault(detail.row.broker_name, clock.epoch_ms)
    questions = {}
    for topic, route in routes.items():
        if not isinstance(route, RmqError):
            for name, address in reader_addresses(route.brokers).items():
                questions[topic, name] = address, get_topic_stats_info(topic)
    answers = client.ask_many(questions)
    measured = []
    for topic, route in routes.items():
        if isinstance(route, RmqError):
            measured.append(_unknown(topic, _explained(client, route)))
            continue
        ages: list[int] = []
        reason = None
        for (of_topic, name), answer in answers.items():
            if of_topic != topic or isinstance(answer, NotFoundError):
                continue
            if isinstance(answer, RmqError):
                reason = f"{name}: {answer.message}"
                continue
            times = [
                each.last_update_timestamp
                for each in answer.values()
                if each.max_offset > each.min_offset
            ]
            newest_ms = max(times, default=0)
            if times and newest_ms <= 0:
                reason = f"{name}: it does not tell when a message was stored"
            elif times and name not in now_ms:
                error = clockless.get(name)
                why = "" if error is None else f": {error.message}"
                reason = f"{name}: its clock is not known{why}"
            elif times:
                ages.append(max(0, now_ms[name] - newest_ms))
        # A broker that does not answer may have a newer message.
        if reason is None and not ages:
            gone = departed_brokers_of(client, [topic]).items()
            left = (f"{name}: {seen.as_error(name).message}" for name, seen in gone)
            reason = next(left, _NO_MESSAGE)
        measured.append(
            Measurement(
                subject=topic,
                value=min(ages) if ages and reason is None else None,
                reason=reason,
                is_lost=reason is _NO_MESSAGE,
            )
        )
    return measured


def measure_brokers(client: Client, patterns: Sequence[str]) -> list[Measurement]:
    """Measure how full the disk of each broker process is, in per cent.

    A process that does not answer is lost, and so is one that has left the route within
    the last week, and a master in whose place name servers list only slaves.
    """
    info = client.cluster_info(refresh=True)
    departed = departed_brokers(client, info.brokers)
    names = _chosen({*info.brokers, *departed}, patterns)
    details = read_brokers(
        client,
        [info.brokers[name] for name in names if name in info.brokers],
        with_settings=False,
    )
    measured = [
        _unknown(name, _explained(client, not_found("broker", name)))
        for name in names
        if name not in info.brokers and name not in departed
    ]
    measured += [
        _unknown(name, departed[name].as_error(name).message, is_lost=True)
        for name in names
        if name in departed
    ]
    measured += [
        _unknown(name, "no master is registered, only slaves", is_lost=True)
        for name in names
        if name in info.brokers and info.brokers[name].master_address is None
    ]
    for detail in details:
        row = detail.row
        percent = None if row.disk_ratio is None else row.disk_ratio * 100
        reason: str | None = None
        if row.error is not None:
            reason = row.error.message
        elif percent is None:
            reason = "it does not report its disk"
        elif row.commit_log_disk_ratio is None:
            reason = "it does not report the disk of its commit log"
        measured.append(
            Measurement(
                subject=row.process_name,
                value=percent if reason is None else None,
                reason=reason,
                at_least=percent,
                is_lost=row.error is not None,
            )
        )
    return measured


def _explained(client: Client, error: RmqError) -> str:
    """Say what an error says, and which name was probably meant."""
    if not isinstance(error, NotFoundError):
        return error.message
    try:
        return explain_missing(client, error).message
    except PartialError as departed:
        return departed.message


def _is_glob(pattern: str) -> bool:
    return not _GLOB.isdisjoint(pattern)


def _chosen(names: set[str], patterns: Sequence[str]) -> list[str]:
    """Return the names that patterns match, and those that are given, sorted."""
    chosen = {pattern for pattern in patterns if not _is_glob(pattern)}
    for pattern in patterns:
        if _is_glob(pattern):
            chosen.update(name for name in names if fnmatchcase(name, pattern))
    return sorted(chosen)


def _chosen_groups(names: Iterable[str], patterns: Sequence[str]) -> list[str]:
    """Do as `_chosen`; globs match no system groups, as they match no such topics."""
    return _chosen({name for name in names if not is_system_group(name)}, patterns)


def _existing_groups(client: Client) -> tuple[set[str], str]:
    """Return all groups, and why there may be more, or an empty text."""
    addresses = reader_addresses(client.cluster_info().brokers.values())
    answers = ask_each(client, addresses, get_subscription_group_names())
    told, errors = split_answers(answers)
    names = {group for groups in told.values() for group in groups}
    reasons = [f"{name}: {error.message}" for name, error in errors.items()]
    return names, reasons[-1] if reasons else ""


def _of_groups(
    client: Client,
    patterns: Sequence[str],
    measure: Callable[[GroupLag], Measurement],
) -> list[Measurement]:
    is_named = not any(map(_is_glob, patterns))
    query = LagQuery(groups=tuple(dict.fromkeys(patterns)) if is_named else ())
    reading = LagGatherer(client, query, open_memory(client)).read(accept_silence=True)
    found = {each.group: each for each in reading.groups}
    if not found and not is_named and reading.failures:
        first = reading.failures[0]  # there may be groups
        raise PartialError(f"{first.broker_name}: {first.message}")
    # Which groups a broker had that has left the route is remembered.
    listed = client.cluster_info().brokers
    failures = [each for each in reading.failures if each.broker_name in listed]
    silent = f"{failures[0].broker_name}: {failures[0].message}" if failures else ""
    measured = []
    for group in _chosen_groups(found, patterns):
        if group not in found:
            reason = silent or _explained(client, not_found("group", group))
            measured.append(_unknown(group, reason))
            continue
        lag = compute_lag(found[group])
        has_value = bool(lag.queues) and lag.state is not GroupState.BROADCAST
        if group in patterns or has_value or lag.reading.failures:
            measured.append(measure(lag))
        else:
            measured.append(replace(_unknown(group, lag.reason), is_left_out=True))
    return measured + _unseen(measured, patterns, silent)


def _unseen(
    measured: Sequence[Measurement], patterns: Sequence[str], silent: str
) -> list[Measurement]:
    """Return what is not known of globs: the groups of a broker that is silent.

    `silent` says which broker is, and why. Nothing is added where a group is unknown
    already.
    """
    if not silent or any(
        each.value is None and not each.is_left_out for each in measured
    ):
        return []
    reason = f"there may be more groups: {silent}"
    return [_unknown(pattern, reason) for pattern in patterns if _is_glob(pattern)]


def _lag(lag: GroupLag) -> Measurement:
    return Measurement(
        subject=lag.group,
        value=lag.total_lag,
        reason=lag.reason or lag.doubt,
        at_least=lag.known_lag,
        is_doubtful=lag.doubt is not None,
    )


def _age(lag: GroupLag) -> Measurement:
    if lag.total_lag == 0:
        return _known(lag, 0)
    waiting = [queue for queue in lag.queues if queue.lag]
    untold = [queue for queue in waiting if queue.age_ms is None]
    if lag.total_lag is None or untold:
        reason = lag.reason or (
            f"the age is unknown in {counted(len(untold), 'queue')} of {len(waiting)}"
        )
        return _unknown(lag.group, reason, at_least=lag.known_age_ms)
    return _known(lag, lag.age_ms)


def _left(lag: GroupLag, reserved: dict[str, int]) -> Measurement:
    """Measure the time that is left before the first unread message is deleted."""
    expired = sum(queue.expired or 0 for queue in lag.queues)
    if expired:
        lost = f"{counted(expired, 'message was', 'messages were')} deleted unread"
        return Measurement(subject=lag.group, value=0, reason=lost, is_lost=True)
    left: list[int] = []
    reason = lag.reason if lag.total_lag is None else None
    for queue in lag.queues:
        if not queue.lag:
            continue
        if queue.age_ms is None:
            reason = reason or "the age of its unread messages is unknown"
        elif queue.broker_name not in reserved:
            reason = reason or f"{queue.broker_name} does not show fileReservedTime"
        else:
            left.append(max(0, reserved[queue.broker_name] - queue.age_ms))
    if reason is not None:
        return _unknown(lag.group, reason, at_least=min(left, default=None))
    return _known(lag, min(left, default=float("inf")))


def _known(lag: GroupLag, value: float | None) -> Measurement:
    """Return a value of a group, which is doubtful where its lag is."""
    return Measurement(
        subject=lag.group,
        value=value,
        reason=lag.doubt,
        is_doubtful=lag.doubt is not None,
    )
