"""Taking a broker out of use: no new messages, and all that it has is consumed.

Name servers are told to list the broker's topics without the write permission. So
producers, which fetch routes every 30 s, send to other brokers; the broker itself still
takes what arrives. It is drained when nothing has arrived for longer than producers
keep a route, and no group has anything left to read. Nothing here lasts: a name server
that restarts, and a topic that is created or changed on the broker, bring the
permission back, which each look at the progress shows.

Source: RouteInfoManager.operateWritePermOfBroker,
AdminBrokerProcessor.updateBrokerConfig and BrokerController.registerBrokerAll in
apache/rocketmq.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import field, replace
from typing import TYPE_CHECKING, Final

from rmqcli.admin.brokers import ask_each, change_each, failed_word
from rmqcli.admin.lag.assemble import LagQuery
from rmqcli.admin.lag.gather import LagGatherer
from rmqcli.admin.lag.model import compute_lag
from rmqcli.admin.positions import check_group_names
from rmqcli.admin.topics import topic_kind
from rmqcli.admin.transactions import HALF_TOPIC, SCANNED_MAX, open_transactions_of
from rmqcli.api.broker_errors import not_found, unanswered
from rmqcli.api.calls.config import (
    get_all_topic_config,
    get_broker_config,
    get_broker_runtime_info,
    update_broker_config,
)
from rmqcli.api.calls.namesrv import get_broker_cluster_info, get_route_info_by_topic
from rmqcli.api.calls.namesrv_config import (
    add_write_perm_of_broker,
    wipe_write_perm_of_broker,
)
from rmqcli.api.calls.stats import get_topic_stats_info
from rmqcli.dataclass import dataclass
from rmqcli.engine.queue_lag import LagState
from rmqcli.errors import ChangeUnknownError, NotFoundError, PartialError, RmqError
from rmqcli.model import PERM_READ, PERM_WRITE, is_system_group
from rmqcli.units import counted, listed, read_count

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from rmqcli.api.client import Client
    from rmqcli.model import TopicRoute
    from rmqcli.wire.bodies.config import TopicConfig

#: Producers fetch routes every 30 s (pollNameServerInterval), then requests may wait.
SETTLE_MS: Final = 40_000
_RW: Final = PERM_READ | PERM_WRITE
_PERMISSION: Final = "brokerPermission"
#: More names than this are not listed in a text.
_LISTED_MAX: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainStep:
    """One name server: what became of it, and the broker's topics that it lists.

    `result` is `changed`, `unchanged`, `failed` or `unknown`, and `planned` before the
    change. `writable` counts the topics that producers may send to at the broker; None,
    like `topics`, when the name server did not tell.
    """

    server: str
    result: str
    topics: int | None = None
    writable: int | None = None
    error: RmqError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainPlan:
    """What taking the write permission from a broker would do.

    `only_here` are topics that no other broker takes messages for: their producers
    fail. `ordered` are those whose producers may be told a fixed list of queues, and go
    on. `other_namesrvs` are name servers of the broker that are not asked here, None if
    the broker did not tell them.
    """

    broker_name: str
    address: str
    steps: tuple[DrainStep, ...]
    only_here: tuple[str, ...]
    ordered: tuple[str, ...]
    other_namesrvs: tuple[str, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadGroup:
    """A group with messages to read on the broker, or of which that is not known.

    `lag` counts them; None with a `reason` when it is not known. `has_members` is None
    when it is not known whether anyone reads.
    """

    group: str
    lag: int | None
    has_members: bool | None
    topics: tuple[str, ...]
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainProgress:
    """How far a drain is. What is not known is None, and in `unknown` with a reason;
    what was skipped is None, too.

    `arrived` counts the messages since the look before, `arriving` those by topic;
    both are None at the first one. Nothing has arrived for `quiet_ms`, with the write
    permission off at every name server. `delayed` are messages that wait for their
    delivery time. `open_transactions` are neither committed nor rolled back: a producer
    could not end them without the broker.
    """

    broker_name: str
    steps: tuple[DrainStep, ...]
    arrived: int | None
    arriving: dict[str, int] = field(hash=False)
    unread: tuple[UnreadGroup, ...]
    delayed: int | None
    open_transactions: int | None
    quiet_ms: int
    settle_ms: int
    unknown: tuple[str, ...] = ()
    #: when this was read, by the monotonic clock, and what the next look compares with
    at_ms: int = 0
    ends: dict[str, int] = field(default_factory=dict, hash=False, repr=False)

    @property
    def is_write_off(self) -> bool:
        """Whether every name server lists the broker without the write permission."""
        return all(step.writable == 0 for step in self.steps)

    @property
    def blockers(self) -> list[str]:
        """Why it is not safe to stop the broker, one sentence each; empty if it is."""
        found = [
            f"{step.server} lists {counted(step.writable, 'topic')} of it with the"
            " write permission"
            for step in self.steps
            if step.writable
        ]
        if self.arrived is None:
            found.append("whether messages arrive is not known yet")
        elif self.arrived:
            names = _listed(self.arriving)
            found.append(f"{counted(self.arrived, 'message')} arrived, in {names}")
        elif self.quiet_ms < self.settle_ms:
            found.append(
                f"nothing has arrived for {self.quiet_ms // 1000} s, of"
                f" {self.settle_ms // 1000} s (producers keep routes for 30 s)"
            )
        found += [_unread_text(each) for each in self.unread]
        if self.delayed:
            waiting = counted(
                self.delayed, "delayed message waits", "delayed messages wait"
            )
            found.append(f"{waiting} there")
        if self.open_transactions:
            are_open = counted(
                self.open_transactions, "transaction is open", "transactions are open"
            )
            found.append(f"{are_open} there")
        return found + list(self.unknown)

    @property
    def is_safe(self) -> bool:
        """Whether the broker can be stopped: nothing arrives, and nothing is unread."""
        return not self.blockers


def _unread_text(group: UnreadGroup) -> str:
    if group.lag is None:
        return f"what {group.group} has to read there is not known: {group.reason}"
    who = "" if group.has_members is not False else ", and no member is online"
    return (
        f"{group.group} has {counted(group.lag, 'message')} to read there, of"
        f" {_listed(group.topics)}{who}"
    )


def _listed(names: Collection[str]) -> str:
    return listed(sorted(names), _LISTED_MAX)


def plan_drain(client: Client, broker_name: str) -> DrainPlan:
    """Look at what taking the write permission from a broker would do.

    Raises NotFoundError for a broker that no name server knows, the error of a broker
    that does not answer, and that of the first name server when none answers.
    """
    address, configs = _topics_of(client, broker_name)
    routes = _routes(client, configs)
    steps = _steps(broker_name, routes, "planned")
    info = client.cluster_info()
    known = _first_answer(routes)
    only_here = [
        topic
        for topic, route in known.items()
        if topic_kind(topic, info) == "normal"
        and {q.broker_name for q in route.queues if q.perm & PERM_WRITE}
        == {broker_name}
    ]
    return DrainPlan(
        broker_name=broker_name,
        address=address,
        steps=tuple(
            replace(step, result="unchanged") if step.writable == 0 else step
            for step in steps
        ),
        only_here=tuple(sorted(only_here)),
        ordered=tuple(sorted(name for name, each in configs.items() if each.order)),
        other_namesrvs=_other_namesrvs(client, address),
    )


def apply_drain(client: Client, plan: DrainPlan) -> list[DrainStep]:
    """Take the write permission from the broker's topics; read back every route."""
    asked = {s.server: s.server for s in plan.steps if s.result == "planned"}
    if not asked:
        return list(plan.steps)
    # Before the change: a broker that stops in between cannot be asked afterwards.
    _, configs = _topics_of(client, plan.broker_name)
    call = wipe_write_perm_of_broker(plan.broker_name)
    written = change_each(client, asked, call)
    read = _routes(client, configs, asked)
    steps = {s.server: s for s in _steps(plan.broker_name, read, "changed")}
    return [
        _outcome(
            replace(steps[each.server], result="changed"),
            written[each.server],
            wants_write=False,
        )
        if each.server in asked
        else each
        for each in plan.steps
    ]


def _outcome(
    step: DrainStep, written: object, *, wants_write: bool, missing: int = 0
) -> DrainStep:
    """Return the step with its result: what was read back counts, not the answer.

    The result of `step` is `changed` if its name server was to change.
    """
    refused = written if isinstance(written, RmqError) else None
    if step.error is not None:
        error = refused or step.error
        if refused is None and step.result == "changed":
            error = ChangeUnknownError(
                f"{step.server} was told to change the write permission, but did not"
                f" show it afterwards: {error.message}",
                hint=error.hint,
            )
        return replace(step, result=failed_word(error), error=error)
    if missing or (not wants_write and step.writable):
        wrong = counted(missing or step.writable or 0, "topic")
        error = refused or PartialError(
            f"{step.server} still lists {wrong} of the broker"
            f" {'without' if wants_write else 'with'} the write permission"
        )
        return replace(step, result=failed_word(error), error=error)
    return step


def plan_undrain(client: Client, broker_name: str) -> list[DrainStep]:
    """Return what `undrain_broker` would do; nothing is changed."""
    address, configs = _topics_of(client, broker_name)
    expected, _ = _expected(client, address, configs)
    routes = _routes(client, configs)
    _first_answer(routes)
    wrong = _differences(broker_name, routes, expected)
    return [
        replace(step, result="planned") if wrong.get(step.server) else step
        for step in _steps(broker_name, routes, "unchanged")
    ]


def undrain_broker(client: Client, broker_name: str) -> list[DrainStep]:
    """Give the topics of a broker the permissions back that the broker has for them.

    Request 327 gives every topic both permissions, RocketMQ's own, too. So it is used
    where none has only one of them, and the user's have both; otherwise, and for name
    servers before 4.9.2, the broker is made to register its topics again, by writing
    its own brokerPermission, unchanged. Routes are read back; those of RocketMQ's own
    topics do not count. Raises the errors of `plan_drain`.
    """
    address, configs = _topics_of(client, broker_name)
    expected, permission = _expected(client, address, configs)
    before = _routes(client, configs)
    _first_answer(before)
    wrong = _differences(broker_name, before, expected)
    asked = {name: name for name, topics in wrong.items() if topics}
    added: dict[str, int | RmqError] = {}
    own = {each.perm & permission & _RW for each in configs.values()}
    # Every broker of 5.x has a topic of its own with neither, which no client uses.
    if asked and own <= {0, _RW} and all(perm == _RW for perm in expected.values()):
        # The versions are known, because the name servers have answered.
        added = change_each(client, asked, add_write_perm_of_broker(broker_name))
    after = _routes(client, configs)
    written: RmqError | None = None
    if any(_differences(broker_name, after, expected).values()):
        call = update_broker_config({_PERMISSION: str(permission)})
        written = change_each(client, {broker_name: address}, call)[broker_name]
        after = _routes(client, configs)
    left = _differences(broker_name, after, expected)
    # A name server that refused does not matter, because the broker was asked then; one
    # that did not answer may still be at it.
    lost = {n: e for n, e in added.items() if isinstance(e, ChangeUnknownError)}
    return [
        _outcome(
            replace(step, result="changed" if wrong.get(step.server) else "unchanged"),
            written or lost.get(step.server),
            wants_write=True,
            missing=len(left.get(step.server, ())),
        )
        for step in _steps(broker_name, after, "changed")
    ]


def _expected(
    client: Client, address: str, configs: Mapping[str, TopicConfig]
) -> tuple[dict[str, int], int]:
    """Return the permissions that the broker registers, and its own for all topics.

    RocketMQ's own topics, which have other rules, are not among the former. Raises the
    error of a broker that does not tell: its own permission may be written back.
    """
    shown = client.invoke(address, get_broker_config())
    permission = read_count(shown.get(_PERMISSION))
    if permission is None:
        permission = _RW
    info = client.cluster_info()
    perms = {
        name: each.perm & permission & _RW
        for name, each in configs.items()
        if topic_kind(name, info) != "system"
    }
    return perms, permission


def _differences(
    broker_name: str,
    routes: Mapping[str, dict[str, TopicRoute] | RmqError],
    expected: Mapping[str, int],
) -> dict[str, list[str]]:
    """Return the topics that each name server lists with other permissions."""
    return {
        server: [
            topic
            for topic, route in found.items()
            for queue in route.queues
            if queue.broker_name == broker_name
            and topic in expected
            and queue.perm & _RW != expected[topic]
        ]
        for server, found in routes.items()
        if not isinstance(found, RmqError)
    }


def drain_progress(
    client: Client,
    broker_name: str,
    *,
    since: DrainProgress | None = None,
    skip_groups: Collection[str] = (),
    skip_delayed: bool = False,
    skip_transactions: bool = False,
    settle_ms: int = SETTLE_MS,
) -> DrainProgress:
    """Look at what still arrives at a broker, and who has something left to read.

    `since` is the look before, without which it is not known what arrives. Groups in
    `skip_groups` may have something left, with `skip_delayed` delayed messages may
    wait, and with `skip_transactions` transactions may be open. Raises the errors of
    `plan_drain`, and at the first look NotFoundError for a group of `skip_groups` that
    does not exist.
    """
    if since is None:
        check_group_names(client, skip_groups)
    at_ms = client.clock.monotonic_ms()
    address, configs = _topics_of(client, broker_name)
    steps = _steps(broker_name, _routes(client, configs), "unchanged")
    runtime = client.invoke(address, get_broker_runtime_info())
    unknown = [
        f"{step.server} {unanswered(step.error.message)}"
        for step in steps
        if step.error is not None
    ]
    arrived, arriving = None, {}
    ends, silent = _ends(client, address, configs)
    unknown += [
        f"whether messages of {topic} arrive: {error.message}"
        for topic, error in sorted(silent.items())[:_LISTED_MAX]
    ]
    if read_count(runtime.get("dispatchBehindBytes")):
        unknown.append("messages that have arrived are not in their queues yet")
    quiet_ms = 0
    if since is not None:
        # What silent brokers have is not what has arrived.
        ends |= {topic: since.ends[topic] for topic in silent if topic in since.ends}
        arriving = {
            topic: end - since.ends.get(topic, 0)
            for topic, end in ends.items()
            if end > since.ends.get(topic, 0)
        }
        arrived = sum(arriving.values())
        if since.is_write_off:
            quiet_ms = since.quiet_ms + at_ms - since.at_ms
    is_quiet = not arrived and all(step.writable == 0 for step in steps)
    shown = ask_each(client, {broker_name: address}, get_broker_config())[broker_name]
    delayed = None
    if not skip_delayed and _tells_timers(shown):
        delayed = _delayed(runtime)
    if delayed is None and not skip_delayed:
        unknown.append("how many delayed messages wait there is not known")
    transactions = None if skip_transactions else 0
    if HALF_TOPIC in configs and not skip_transactions:
        half = open_transactions_of(
            client, broker_name, address, scanned_max=SCANNED_MAX
        )
        transactions = None if half.errors else half.count
        unknown += [
            f"how many transactions are open there is not known: {error.message}"
            for error in half.errors.values()
        ]
    unread, failures = _unread(client, broker_name, skip_groups)
    return DrainProgress(
        broker_name=broker_name,
        steps=tuple(steps),
        arrived=arrived,
        arriving=arriving,
        unread=unread,
        delayed=delayed,
        open_transactions=transactions,
        quiet_ms=quiet_ms if is_quiet else 0,
        settle_ms=settle_ms,
        unknown=(*unknown, *failures),
        at_ms=at_ms,
        ends=ends,
    )


def _topics_of(
    client: Client, broker_name: str
) -> tuple[str, Mapping[str, TopicConfig]]:
    """Return the address of the broker's master, and the topics that it has."""
    broker = client.cluster_info().brokers.get(broker_name)
    if broker is None:
        raise not_found("broker", broker_name)
    address = broker.master_address
    if address is None:
        raise PartialError(
            f"broker {broker_name} has no master now, so its topics are not known"
        )
    return address, client.ask(address, get_all_topic_config())


def _routes(
    client: Client, topics: Iterable[str], servers: Iterable[str] | None = None
) -> dict[str, dict[str, TopicRoute] | RmqError]:
    """Return the routes of topics by name server; without topics that it does not know.

    A name server that does not answer has its error.
    """
    asked = list(client.config.namesrv if servers is None else servers)
    # A name server that does not answer is not asked for each topic.
    alive = ask_each(client, {s: s for s in asked}, get_broker_cluster_info())
    found: dict[str, dict[str, TopicRoute] | RmqError] = {
        server: answer if isinstance(answer, RmqError) else {}
        for server, answer in alive.items()
    }
    answers = client.ask_many(
        {
            (server, topic): (server, get_route_info_by_topic(topic))
            for server, each in found.items()
            if not isinstance(each, RmqError)
            for topic in topics
        },
    )
    for (server, topic), answer in answers.items():
        known = found[server]
        if isinstance(known, RmqError) or isinstance(answer, NotFoundError):
            continue
        if isinstance(answer, RmqError):
            found[server] = answer
        else:
            known[topic] = answer
    return found


def _first_answer(
    routes: Mapping[str, dict[str, TopicRoute] | RmqError],
) -> dict[str, TopicRoute]:
    """Return the routes of the first name server that answered; raise if none did."""
    for found in routes.values():
        if not isinstance(found, RmqError):
            return found
    raise next(each for each in routes.values() if isinstance(each, RmqError))


def _steps(
    broker_name: str,
    routes: Mapping[str, dict[str, TopicRoute] | RmqError],
    result: str,
) -> list[DrainStep]:
    steps = []
    for server, found in routes.items():
        if isinstance(found, RmqError):
            steps.append(DrainStep(server=server, result="failed", error=found))
            continue
        perms = [
            queue.perm
            for route in found.values()
            for queue in route.queues
            if queue.broker_name == broker_name
        ]
        writable = sum(bool(perm & PERM_WRITE) for perm in perms)
        steps.append(
            DrainStep(
                server=server, result=result, topics=len(perms), writable=writable
            )
        )
    return steps


def _other_namesrvs(client: Client, address: str) -> tuple[str, ...] | None:
    shown = ask_each(client, {address: address}, get_broker_config())[address]
    known = "" if isinstance(shown, RmqError) else shown.get("namesrvAddr", "")
    ours = set(client.config.namesrv)
    others = tuple(each for each in known.split(";") if each and each not in ours)
    return others if known else None


def _ends(
    client: Client, address: str, configs: Mapping[str, TopicConfig]
) -> tuple[dict[str, int], dict[str, RmqError]]:
    """Return the sum of the max offsets of each topic, or why it is not known."""
    answers = client.ask_many(
        {topic: (address, get_topic_stats_info(topic)) for topic in configs}
    )
    ends, silent = {}, {}
    for topic, answer in answers.items():
        if isinstance(answer, NotFoundError):
            continue  # deleted in the meantime
        if isinstance(answer, RmqError):
            silent[topic] = answer
        else:
            ends[topic] = sum(offset.max_offset for offset in answer.values())
    return ends, silent


def _unread(
    client: Client, broker_name: str, skipped: Collection[str]
) -> tuple[tuple[UnreadGroup, ...], list[str]]:
    reading = LagGatherer(client, LagQuery(groups=(), topics=())).read()
    found = []
    for lag in map(compute_lag, reading.groups):
        queues = [
            queue
            for queue in lag.queues
            if queue.broker_name == broker_name
            and queue.lag != 0
            and queue.state is not LagState.BROADCAST
        ]
        # RocketMQ's own groups never reach their ends: that which revives what POP
        # handed out commits the last check point, not the acknowledgements behind it.
        # What they wait for is in the lag of POP's groups, and asked about elsewhere.
        if not queues or lag.group in skipped or is_system_group(lag.group):
            continue
        unknown = next((q.reason or q.state for q in queues if q.lag is None), None)
        members = lag.reading.members
        found.append(
            UnreadGroup(
                group=lag.group,
                lag=None if unknown else sum(queue.lag or 0 for queue in queues),
                has_members=None
                if members is None and lag.reading.members_unknown is not None
                else members is not None,
                topics=tuple(dict.fromkeys(q.topic for q in queues if q.topic)),
                reason=None if unknown is None else str(unknown),
            )
        )
    failures = [
        f"what groups have to read there is not known: {each.message}"
        for each in reading.failures
        if each.broker_name == broker_name
    ]
    return tuple(sorted(found, key=lambda each: each.group)), failures


def _tells_timers(settings: Mapping[str, str] | RmqError) -> bool:
    """Whether the runtime info counts a broker's timers: not those kept in RocksDB.

    A broker that does not show its settings may keep them there.
    """
    if isinstance(settings, RmqError):
        return False
    return settings.get("timerRocksDBEnable") != "true"


def _delayed(runtime: Mapping[str, str]) -> int | None:
    """Return how many messages wait in delay levels and timers; None if not known."""
    count: Counter[str] = Counter()
    for name, text in runtime.items():
        if name.startswith("scheduleMessageOffset_"):
            at, _, end = text.partition(",")
            first, last = read_count(at), read_count(end)
            if first is None or last is None:
                return None
            count["levels"] += max(0, last - first)
    for name in ("timerCongestNum", "timerOffsetBehind"):  # in the wheel, and not yet
        waiting = read_count(runtime.get(name, "0"))
        if waiting is None:
            return None
        count["timers"] += waiting
    return count.total()
