"""Checks of name servers and brokers: who answers, and whether they agree.

Source: BrokerFastFailure, DefaultMessageStore.isOSPageCacheBusy, DefaultHAService,
RouteInfoManager.wipeWritePermOfBrokerByLock in apache/rocketmq.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from rmqcli.admin.brokers import thread_pool_queue
from rmqcli.admin.doctor.check import check, check_brokers, check_masters
from rmqcli.admin.doctor.checks.security import parse_version
from rmqcli.admin.doctor.facts import Fact, Facts, setting_number
from rmqcli.admin.doctor.model import (
    Findings,
    about,
    listed_by_value,
    named,
    problem,
    unknown,
    warning,
)
from rmqcli.errors import RmqError
from rmqcli.hint import command_line
from rmqcli.model import MASTER_ID, PERM_READ, PERM_WRITE
from rmqcli.units import counted, format_duration, format_size

if TYPE_CHECKING:
    from rmqcli.admin.brokers import BrokerDetail
    from rmqcli.wire.bodies.route import ClusterInfo

_SKEW_WARNING_MS: Final = 5_000
_SKEW_PROBLEM_MS: Final = 60_000
_MIB: Final = 1024 * 1024
#: MessageStoreConfig.haMaxGapNotInSync, before 5.0 haSlaveFallbehindMax
_BEHIND_BYTES_DEFAULT: Final = 256 * _MIB
_DISPATCH_WARNING_BYTES: Final = 64 * _MIB
_DISPATCH_PROBLEM_BYTES: Final = 1024 * _MIB
#: The first version that tells which slaves copy from a broker.
_SLAVES_TOLD: Final = (5, 0, 0)
_QUEUE_WARNING: Final = 0.5
_QUEUE_PROBLEM: Final = 0.8
#: Thread pools, and the setting after which BrokerFastFailure refuses what waits.
_POOLS: Final = {
    "send": "waitTimeMillsInSendQueue",
    "pull": "waitTimeMillsInPullQueue",
    "litePull": "waitTimeMillsInLitePullQueue",
    "ack": "waitTimeMillsInAckQueue",
    "query": "",
}
_PAGE_CACHE_BUSY_MS: Final = 1_000  # MessageStoreConfig.osPageCacheBusyTimeOutMills
#: Settings in which the brokers of a cluster should agree, because clients see them.
_SHARED_SETTINGS: Final = (
    "aclEnable",
    "authenticationEnabled",
    "authorizationEnabled",
    "autoCreateSubscriptionGroup",
    "autoCreateTopicEnable",
    "defaultTopicQueueNums",
    "deleteWhen",
    "enableMixedMessageType",
    "enablePropertyFilter",
    "enableRetryTopicV2",
    "fileReservedTime",
    "flushDiskType",
    "longPollingEnable",
    "maxMessageSize",
    "messageDelayLevel",
    "popConsumerKVServiceEnable",
    "recallMessageEnable",
    "timerMaxDelaySec",
    "timerWheelEnable",
    "traceTopicEnable",
    "transactionCheckInterval",
    "transactionCheckMax",
    "transactionTimeOut",
    "useServerSideResetOffset",
)


@check(
    "namesrv-answers", "every name server answers", Fact.NAMESRVS, judges_silence=True
)
def _namesrv_answers(facts: Facts) -> Findings:
    for address, found in facts.namesrvs.items():
        if isinstance(found.info, RmqError):
            yield problem(
                found.info.message,
                "clients that ask this name server first wait for it, and brokers"
                " cannot register there",
                command_line("rmq brokers", options=["--namesrv", address]),
                of=address,
            )


@check(
    "namesrv-agree",
    "name servers know the same brokers and topics",
    Fact.NAMESRVS,
    judges_silence=True,
)
def _namesrv_agree(facts: Facts) -> Findings:
    infos = {
        address: found.info
        for address, found in facts.namesrvs.items()
        if not isinstance(found.info, RmqError)
    }
    for address, found in facts.namesrvs.items():
        if isinstance(found.info, RmqError) and len(facts.namesrvs) > 1:
            yield unknown(f"it does not answer: {found.info.message}", of=address)
    addresses = {address: _addresses(info) for address, info in infos.items()}
    everywhere = set().union(*addresses.values())
    for address, known in addresses.items():
        missing = everywhere - known
        if missing:
            shown = named(f"{name} at {at}" for name, _, at in missing)
            yield problem(
                f"it does not know {shown}, which another name server does",
                "clients of this name server do not find these brokers",
                command_line("rmq brokers", options=["--namesrv", address]),
                of=address,
            )
    if len(infos) < 2:  # one has nothing to differ from
        return
    topics = {}
    for address in infos:
        listed = facts.namesrvs[address].topics
        if isinstance(listed, RmqError):
            yield unknown(f"it does not list its topics: {listed.message}", of=address)
        else:
            topics[address] = set(listed)
    all_topics = set().union(*topics.values())
    for address, known_topics in topics.items():
        absent = all_topics - known_topics
        if absent:
            yield warning(
                f"it does not know {counted(len(absent), 'topic')} that another name"
                f" server knows: {named(absent)}",
                "clients of this name server do not find these topics",
                command_line("rmq topics", options=["--namesrv", address]),
                of=address,
            )


def _addresses(info: ClusterInfo) -> set[tuple[str, int, str]]:
    return {
        (name, number, address)
        for name, broker in info.brokers.items()
        for number, address in broker.addresses.items()
    }


@check("broker-answers", "every broker answers", judges_silence=True)
def _broker_answers(facts: Facts) -> Findings:
    for detail in facts.brokers:
        if detail.row.error is None or detail.row.address in facts.reachable_at:
            continue
        yield problem(
            detail.row.error.message,
            "what is stored there cannot be read, and nothing can be sent to it from"
            " here",
            command_line("rmq broker show", detail.row.broker_name),
            of=detail.row.process_name,
        )
    for name, seen in sorted(facts.departed.items()):
        yield problem(
            f"{seen.as_error(name).message}; it was {seen.last_seen(facts.at_ms)}"
            + (f" at {seen.address}" if seen.address else ""),
            "what is stored there is missing from all numbers; if it was removed for"
            " good, let rmq forget it",
            "rmq lag --forget",
            of=name,
        )


@check(
    "broker-address",
    "brokers can be reached where they advertise themselves",
    judges_silence=True,
)
def _broker_address(facts: Facts) -> Findings:
    for detail in facts.brokers:
        found = facts.reachable_at.get(detail.row.address)
        if found is None:
            continue
        yield problem(
            f"it advertises {detail.row.address}, where it cannot be reached; it"
            f" answers at {found}",
            "clients from here find no broker; set its brokerIP1, or use an address"
            " map",
            command_line(
                "rmq doctor",
                options=["--address-map", f"{detail.row.address}={found}"],
            ),
            of=detail.row.process_name,
        )


@check("broker-master", "every broker has a master", judges_silence=True)
def _broker_master(facts: Facts) -> Findings:
    for name in facts.without_master():
        ids = named(map(str, facts.info.brokers[name].addresses))
        yield problem(
            f"no master is registered, only the slaves {ids}",
            "nothing can be sent to it, and its groups cannot commit offsets",
            command_line("rmq broker show", name),
            of=name,
        )


@check("broker-version", "brokers have the same version", works_without_master=True)
def _broker_versions(facts: Facts) -> Findings:
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for detail in facts.brokers:
        row = detail.row
        if row.version is not None:
            found[row.cluster][row.version].append(row.process_name)
    for cluster, versions in sorted(found.items()):
        if len(versions) > 1:
            shown = "; ".join(
                f"{version}: {named(names)}"
                for version, names in sorted(versions.items())
            )
            yield warning(
                shown,
                "brokers of one cluster behave differently while an upgrade is not"
                " finished",
                "rmq brokers",
                of=cluster,
            )


@check("broker-settings", "brokers of a cluster have the same settings", Fact.SETTINGS)
def _broker_settings(facts: Facts) -> Findings:
    clusters: dict[str, list[BrokerDetail]] = defaultdict(list)
    for detail in facts.masters():
        if detail.settings is not None:
            clusters[detail.row.cluster].append(detail)
    for cluster, details in sorted(clusters.items()):
        for name in _SHARED_SETTINGS:
            values: dict[str, list[str]] = defaultdict(list)
            for detail in details:
                value = (detail.settings or {}).get(name)
                if value is not None:  # a version that does not have the setting
                    values[value].append(detail.row.process_name)
            if len(values) > 1:
                yield warning(
                    f"{name} differs: {listed_by_value(values)}",
                    "what clients see depends on the broker that they use",
                    command_line(
                        "rmq broker config diff", options=["--cluster", cluster]
                    ),
                    of=cluster,
                )


@check_brokers("clock-skew", "clocks of brokers and this machine agree")
def _clock_skew(facts: Facts, detail: BrokerDetail) -> Findings:
    skew_ms = facts.clock_skew_ms.get(detail.row.address)
    if skew_ms is None:
        yield unknown("it does not report its time")
    elif abs(skew_ms) >= _SKEW_WARNING_MS:
        side = "ahead of" if skew_ms > 0 else "behind"
        make = problem if abs(skew_ms) >= _SKEW_PROBLEM_MS else warning
        yield make(
            f"its clock is {format_duration(abs(skew_ms))} {side} this machine's",
            "positions by time, ages and delivery times are off by as much; which"
            " of the two clocks is wrong, this does not tell",
            "chronyc tracking",
        )


@check(
    "slaves",
    "slaves copy what their masters store",
    Fact.SETTINGS,
    works_without_master=True,
)
def _slaves(facts: Facts) -> Findings:
    for detail in facts.masters():
        yield from about(detail.row.process_name, _slaves_of(facts, detail))
    limits = {
        detail.row.broker_name: _behind_limit_bytes(detail)
        for detail in facts.masters()
    }
    for detail in facts.brokers:
        row = detail.row
        if row.broker_id == MASTER_ID or row.error is not None:
            continue
        limit = limits.get(row.broker_name, _BEHIND_BYTES_DEFAULT)
        if row.behind_bytes is None:
            yield unknown("how far it is behind is not known", of=row.process_name)
        elif row.behind_bytes >= limit:
            yield problem(
                f"it is {format_size(row.behind_bytes)} behind its master",
                "if the master fails, these messages are missing",
                "rmq brokers -o json",
                of=row.process_name,
            )


def _slaves_of(facts: Facts, detail: BrokerDetail) -> Findings:
    row = detail.row
    registered = len(facts.info.brokers[row.broker_name].addresses) - 1
    role = (detail.settings or {}).get("brokerRole")
    if row.slaves is None:
        # Before 5.0 only the ends of the logs tell, which slaves are compared by.
        if role == "SYNC_MASTER" and not registered:
            yield from _alone(detail)
        elif (
            registered and (parse_version(row.version) or _SLAVES_TOLD) >= _SLAVES_TOLD
        ):
            yield unknown(f"its slaves: {row.slaves_reason}")
        return
    if row.sync_state is not None and row.sync_state.not_in_sync:
        gone = ", ".join(
            f"{each.broker_id} ({each.address}"
            f"{', gone' if each.is_alive is False else ''})"
            for each in row.sync_state.not_in_sync
        )
        yield warning(
            f"replicas that are not in its SyncStateSet: {gone}",
            "if the master fails, none of them takes its place without losing messages",
            "rmq brokers -o json",
        )
    if role == "SYNC_MASTER" and not row.slaves_in_sync:
        yield from _alone(detail)
    elif row.slaves < registered:
        yield problem(
            f"slaves that copy from it: {row.slaves} of {registered} registered",
            "if the master fails, the newest messages are missing",
            "rmq brokers",
        )
    elif row.slaves_in_sync is not None and row.slaves_in_sync < row.slaves:
        yield warning(
            f"slaves in sync: {row.slaves_in_sync} of {row.slaves}",
            "if the master fails, the newest messages are missing",
            "rmq brokers",
        )


def _alone(detail: BrokerDetail) -> Findings:
    acks = setting_number(detail, "inSyncReplicas")
    at_least = setting_number(detail, "minInSyncReplicas")
    make, gets = problem, "producers get SLAVE_NOT_AVAILABLE, or no success,"
    if acks is not None and max(acks, at_least or 1) <= 1:  # from 5.0 on
        make, gets = warning, "inSyncReplicas is 1: producers get SEND_OK"
    yield make(
        "it is a SYNC_MASTER, and no slave is in sync",
        f"{gets} for each message, which one disk stores",
        "rmq brokers",
    )


def _behind_limit_bytes(detail: BrokerDetail) -> int:
    for name in ("haMaxGapNotInSync", "haSlaveFallbehindMax"):
        value = setting_number(detail, name)
        if value is not None:
            return value
    return _BEHIND_BYTES_DEFAULT


@check_masters(
    "broker-permission", "brokers may be read and written", Fact.SETTINGS, Fact.ROUTES
)
def _broker_permission(facts: Facts, detail: BrokerDetail) -> Findings:
    name = detail.row.broker_name
    perm = setting_number(detail, "brokerPermission")
    if perm is not None and perm & (PERM_READ | PERM_WRITE) != (PERM_READ | PERM_WRITE):
        does = {PERM_READ: "is read only", PERM_WRITE: "is written only"}.get(
            perm & (PERM_READ | PERM_WRITE), "is neither read nor written"
        )
        yield warning(
            f"brokerPermission is {perm}: it {does}",
            "clients leave it out; that is right while it is drained",
            command_line(
                "rmq broker config set brokerPermission=6",
                options=["--broker", name],
            ),
        )
        return
    compared, without = _write_perms(facts, name)
    if compared and compared == without:
        topics = counted(compared, "topic")
        which = "its only topic" if compared == 1 else f"any of its {topics}"
        yield problem(
            f"the name server has no write permission for {which}",
            "nothing is sent to it since it was drained (wipeWritePerm); a restart"
            " of the broker undoes that, too",
            command_line("rmq broker undrain", name),
        )


def _write_perms(facts: Facts, broker_name: str) -> tuple[int, int]:
    """Count topics that the broker would write, and those that routes let nobody."""
    table = facts.topics.get(broker_name, {})
    if isinstance(table, RmqError):
        return 0, 0
    compared = without = 0
    for topic, route in facts.routes.items():
        if isinstance(route, RmqError):
            continue
        config = table.get(topic)
        queues = [q for q in route.queues if q.broker_name == broker_name]
        if config is None or not config.perm & PERM_WRITE or not queues:
            continue
        compared += 1
        without += not any(queue.is_writable for queue in queues)
    return compared, without


@check_brokers(
    "flow-control", "few requests wait for a thread of a broker", Fact.SETTINGS
)
def _flow_control(facts: Facts, detail: BrokerDetail) -> Findings:
    for pool, wait_setting in _POOLS.items():
        queue = thread_pool_queue(detail.runtime or {}, pool)
        if queue is None:
            if pool in ("send", "pull"):
                yield unknown(f"it does not report its {pool} queue")
            continue
        limit_ms = setting_number(detail, wait_setting) if wait_setting else None
        ratio = queue.size / queue.capacity
        waits = queue.head_wait_ms or 0
        is_late = queue.size > 0 and limit_ms is not None and waits >= limit_ms
        if ratio < _QUEUE_WARNING and not is_late:
            continue
        make = problem if ratio >= _QUEUE_PROBLEM or is_late else warning
        yield make(
            f"{queue.size:,} of {counted(queue.capacity, 'request')} wait for a"
            f" {pool} thread, the first for {format_duration(waits)}",
            "the broker refuses requests when the queue is full, or when they"
            " wait for too long (broker busy)",
            command_line("rmq broker show", detail.row.broker_name),
        )


@check_masters("page-cache", "messages are written without a wait", Fact.SETTINGS)
def _page_cache(facts: Facts, detail: BrokerDetail) -> Findings:
    lock_ms = detail.row.page_cache_lock_ms
    if lock_ms is None:
        yield unknown("it does not report its page-cache lock")
        return
    limit_ms = (
        setting_number(detail, "osPageCacheBusyTimeOutMills") or _PAGE_CACHE_BUSY_MS
    )
    if lock_ms * 2 < limit_ms:
        return
    make = problem if lock_ms >= limit_ms else warning
    yield make(
        f"a message has been written to the page cache for"
        f" {format_duration(lock_ms)}; the limit is {format_duration(limit_ms)}",
        "the broker refuses messages while its page cache is busy; look at the disk",
        command_line("rmq broker show", detail.row.broker_name),
    )


@check_masters("dispatch", "stored messages can be consumed at once")
def _dispatch(facts: Facts, detail: BrokerDetail) -> Findings:
    behind = detail.row.dispatch_behind_bytes
    if behind is None:
        yield unknown("it does not report what it has yet to dispatch")
    elif behind >= _DISPATCH_WARNING_BYTES:
        make = problem if behind >= _DISPATCH_PROBLEM_BYTES else warning
        yield make(
            f"{format_size(behind)} of its log are not in the consume queues",
            "consumers do not get these messages yet",
            command_line("rmq broker show", detail.row.broker_name),
        )


@check_masters(
    "long-polling", "brokers hold requests until messages come", Fact.SETTINGS
)
def _long_polling(facts: Facts, detail: BrokerDetail) -> Findings:
    if (detail.settings or {}).get("longPollingEnable") == "false":
        yield warning(
            "longPollingEnable is false",
            "consumers get messages up to shortPollingTimeMills late, and ask more"
            " often",
            command_line(
                "rmq broker config set longPollingEnable=true",
                options=["--broker", detail.row.broker_name],
            ),
        )


@check_masters("timers", "brokers can deliver at a given time", Fact.SETTINGS)
def _timers(facts: Facts, detail: BrokerDetail) -> Findings:
    if (detail.settings or {}).get("timerWheelEnable") == "false":
        yield warning(
            "timerWheelEnable is false",
            "consumers through a proxy receive nothing, and messages with a"
            " delivery time are refused; set it in the broker's file, and restart"
            " the broker",
            command_line(
                "rmq broker show", detail.row.broker_name, options=["--settings"]
            ),
        )
