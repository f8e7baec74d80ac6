"""Sends calls to name servers and brokers, and knows their routes and versions.

The caller's thread does the I/O, and only one thread at a time uses a client.

- The name server that answered last is asked first; the others follow within the same
  deadline. "Topic does not exist" is an answer, a refusal is a reason to ask the next.
- Every answer contains its sender's version, so the version of a broker is usually
  known before it is needed. A call that needs a newer broker fails at once, because a
  broker before 4.9.2 does not answer a code that it does not know.

Source: MQClientInstance, MQClientAPIImpl, PullAPIWrapper in apache/rocketmq.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Self, TypeVar

from rmqcli.api.broker_errors import error_of, lost_broker
from rmqcli.api.calls.namesrv import get_broker_cluster_info, get_route_info_by_topic
from rmqcli.api.peers import Peers
from rmqcli.api.routes import RouteCache, reading_address
from rmqcli.api.runner import run_task, run_tasks
from rmqcli.clock import SYSTEM_CLOCK, Deadline
from rmqcli.errors import (
    BrokerError,
    ConfigError,
    DeadlineError,
    NoBrokerError,
    NotFoundError,
    RmqError,
    StaticTopicError,
    TransportError,
    UnsupportedError,
)
from rmqcli.hint import Argument, Hint
from rmqcli.tasks import All, Request, unexpected
from rmqcli.transport.loop import PendingReply
from rmqcli.transport.options import TransportOptions
from rmqcli.transport.remoting import RemotingClient
from rmqcli.units import counted, listed
from rmqcli.wire.codes import RequestCode, ResponseCode
from rmqcli.wire.command import RemotingCommand
from rmqcli.wire.version import version_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from rmqcli.api.call import Call
    from rmqcli.clock import Clock
    from rmqcli.config import ClientConfig
    from rmqcli.model import BrokerData, MessageQueue, TopicRoute
    from rmqcli.tasks import Pending, Task
    from rmqcli.wire.bodies.route import ClusterInfo

K = TypeVar("K")
T = TypeVar("T")

#: A route or list of brokers of this age is asked for again, see `Client.renew_old`.
_RENEWED_AFTER_MS = 30_000  # pollNameServerInterval
#: Requests that a broker passes on to a member: the answer has the member's version.
_RELAYED = frozenset(
    (RequestCode.GET_CONSUMER_RUNNING_INFO, RequestCode.CONSUME_MESSAGE_DIRECTLY)
)
#: At most this many brokers are named in an error.
_SILENT_LISTED = 3
#: How often a name server is asked whose tables changed while it wrote them down.
_WRITE_TRIES = 3
#: Requests that every name server answers, and no broker.
_OF_EVERY_NAMESRV = frozenset(
    {
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    }
)


def _has_changed(error: RmqError) -> bool:
    """Whether a name server could not write an answer down, because it changed.

    Name servers turn their tables into JSON without a lock, so a topic that is being
    created makes other questions fail for a moment.
    """
    return (
        isinstance(error, BrokerError)
        and error.code == ResponseCode.SYSTEM_ERROR
        and "JSONException" in error.remark
    )


def _not_a_namesrv(message: str, *, other: str) -> ConfigError:
    return ConfigError(
        message,
        hint=f"give the address of a name server, not of a {other}; its port is 9876 by"
        " default",
    )


def _with_roles(route: TopicRoute, info: ClusterInfo) -> TopicRoute:
    """The route with its brokers as in `info`, where slaves have their own ids."""
    brokers = tuple(info.brokers.get(b.broker_name, b) for b in route.brokers)
    return replace(route, brokers=brokers)


class PendingCall(PendingReply[T]):
    """The result of one call. It always ends, because every request has a deadline.

    The result is the parsed answer. The error is a TransportError when no answer came,
    a BrokerError or UnsupportedError when the peer refused, and a WireError when the
    answer cannot be read.
    """

    __slots__ = ("_peers", "call", "silent")

    def __init__(
        self, address: str, call: Call[T], timeout_ms: int, peers: Peers
    ) -> None:
        super().__init__(address, call.code, timeout_ms)
        self.call = call
        self._peers = peers
        #: where, and as what, to note that no answer came in time; None: nowhere
        self.silent: tuple[dict[object, RmqError], object] | None = None

    def answered(self, answer: RemotingCommand) -> None:
        """Note the peer's version, read the answer, and end."""
        call = self.call
        if call.code not in _RELAYED:
            self._peers.versions[self.address] = answer.version
        failure: RmqError
        if answer.code not in call.ok_codes:
            failure = error_of(
                answer,
                what=str(call.what),
                address=self.address,
                fields=call.ext_fields,
            )
        else:
            try:
                result = call.parse(answer)
            except RmqError as error:
                failure = error
                if not error.hint:
                    error.hint = f"the answer came from {self.address}"
            except Exception as error:  # noqa: BLE001  # a defect must not leave it open
                failure = unexpected(error)
            else:
                self.succeed(result)
                return
            failure.may_be_done = True  # the peer's code says so
        super().fail(failure)

    def fail(self, error: RmqError) -> None:
        """End with an error of the transport."""
        self._peers.explain(error)
        if self.silent is not None and isinstance(error, DeadlineError):
            noted, what = self.silent
            noted[what] = error
        super().fail(error)


class Client:
    """A client of one cluster, which it finds through the name servers."""

    def __init__(
        self,
        config: ClientConfig,
        *,
        clock: Clock = SYSTEM_CLOCK,
        remoting: RemotingClient | None = None,
    ) -> None:
        """Create a client; nothing is opened.

        `remoting` sends the requests; it is given for a network without sockets.
        """
        self.config = config
        self.clock = clock
        self.remoting = remoting or RemotingClient(
            TransportOptions(
                tls=config.tls,
                credentials=config.credentials,
                connect_timeout_ms=min(config.timeout_ms, 3_000),
                address_map=dict(config.address_map),
            ),
            clock=clock,
        )
        #: name servers, the one that answered last first
        self._namesrvs = list(config.namesrv)
        self.known_routes = RouteCache()
        #: called at least once a second while `run_tasks` waits, in the same thread; it
        #: must not use the client
        self.on_turn: Callable[[], None] | None = None
        self._cluster_info: ClusterInfo | None = None
        #: topic (None: the list of brokers) -> when it was asked for, monotonic
        self._asked_ms: dict[str | None, int] = {}
        #: those of them that are asked for again when they are next needed
        self._old: set[str | None] = set()
        #: address or question -> why there was no answer; None: it is asked again, see
        #: `ask_silent_once`
        self._silent: dict[object, RmqError] | None = None
        self._peers = Peers(dict(config.address_map))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection. Idempotent."""
        self.remoting.close()

    @contextmanager
    def ask_silent_once(self) -> Iterator[None]:
        """Let requests in the block fail at once to whom did not answer one in time.

        Otherwise a command that asks a broker for one thing after the other waits for
        it each time. Where a request has a limit of its own, which may be short, only
        the same question counts as one without an answer.
        """
        silent = self._silent
        self._silent = {} if silent is None else silent
        try:
            yield
        finally:
            self._silent = silent

    def submit(
        self,
        address: str,
        call: Call[T],
        *,
        timeout_ms: int | None = None,
        on_done: Callable[[PendingCall[T]], None] | None = None,
    ) -> PendingCall[T]:
        """Send `call`; the result ends with the parsed answer, or with an error.

        Never blocks. The result ends, and `on_done` is called, only later: in the
        thread that waits or polls. When the call needs a version and the peer's is not
        known yet, the peer is asked for it first. With `timeout_ms` None the timeout of
        the client applies.

        Raises UnsupportedError when the peer is known to be too old, and the errors of
        `RemotingClient.post`.
        """
        noted = None
        if self._silent is not None:
            question = (address, call.code, *sorted(call.ext_fields.items()))
            for known in (address, question):
                if known in self._silent:
                    error = copy(self._silent[known])
                    error.may_be_done = False  # this call is not sent
                    raise error
            noted = (self._silent, address if timeout_ms is None else question)
        limit_ms = self.config.timeout_ms if timeout_ms is None else timeout_ms
        pending = PendingCall(address, call, limit_ms, self._peers)
        pending.silent = noted
        if on_done is not None:
            pending.on_done(on_done)  # type: ignore[arg-type]  # it gets this object
        if call.needs_version:
            self._post_if_supported(pending)
        else:
            self._post(pending)
        return pending

    def _post(self, pending: PendingCall[T]) -> None:
        call = pending.call
        command = RemotingCommand(call.code, ext_fields=call.ext_fields, body=call.body)
        self.remoting.post(pending, command)

    def _post_if_supported(self, pending: PendingCall[T]) -> None:
        """Post a call that needs a version, once the peer's version is known."""
        if pending.address in self._peers.versions and self._is_supported(pending):
            self._post(pending)
            return
        from rmqcli.api.calls.config import get_broker_runtime_info

        deadline = Deadline(self.clock, pending.timeout_ms)

        def answered(info: Pending[dict[str, str]]) -> None:
            failed = info.outcome()
            is_known = pending.address in self._peers.versions  # by a refusal, too
            if isinstance(failed, RmqError) and not is_known:
                failed.may_be_done = False  # the call itself was not sent
                pending.fail(failed)
                return
            pending.timeout_ms = max(1, deadline.left_ms())
            try:
                self._post_if_supported(pending)
            except RmqError as error:
                pending.fail(error)

        self.submit(
            pending.address, get_broker_runtime_info(), timeout_ms=pending.timeout_ms
        ).on_done(answered)

    def send_oneway(self, address: str, call: Call[T]) -> None:
        """Send a call without an answer. It is lost when it cannot be delivered.

        Raises the errors of `RemotingClient.send_oneway`.
        """
        command = RemotingCommand(call.code, ext_fields=call.ext_fields, body=call.body)
        self.remoting.send_oneway(address, command)

    def invoke(
        self, address: str, call: Call[T], *, timeout_ms: int | None = None
    ) -> T:
        """Send `call` and wait; return the parsed answer or raise the error."""
        pending = self.submit(address, call, timeout_ms=timeout_ms)
        self.remoting.wait((pending,))
        return pending.result()

    def ask(self, address: str, call: Call[T]) -> T:
        """Do as `invoke` with a call that changes nothing.

        Raises NoBrokerError when no broker of the cluster answers.
        """
        try:
            return self.invoke(address, call)
        except TransportError as error:
            self.raise_if_none_answers([error])
            raise

    def gather(self, pendings: Iterable[PendingCall[T]]) -> list[T | RmqError]:
        """Wait for all calls; return the outcomes in order, errors as values."""
        everything = list(pendings)
        self.remoting.wait(everything)
        return [pending.outcome() for pending in everything]

    def ask_many(
        self,
        questions: Mapping[K, tuple[str, Call[T]]],
        *,
        timeout_ms: int | None = None,
    ) -> dict[K, T | RmqError]:
        """Send calls to addresses at the same time; errors are values in the result."""
        requests = [Request(*each, timeout_ms) for each in questions.values()]
        return dict(zip(questions, run_tasks(self, requests), strict=True))

    def poll(self, timeout_ms: int) -> int:
        """Do I/O once, for at most `timeout_ms`; return how many requests ended."""
        return self.remoting.poll(timeout_ms)

    def ask_namesrvs(
        self,
        call: Call[T],
        *,
        timeout_ms: int | None = None,
        needs_all_for_not_found: bool = False,
    ) -> Task[T]:
        """Ask the name servers one after the other until one answers.

        `timeout_ms` (None: that of the client) is shared by all of them, so that a name
        server that does not answer leaves time for the others. NotFoundError is an
        answer; with `needs_all_for_not_found` only when no other name server returns
        anything else. Any other error that a name server returns counts when none of
        them answers. One whose tables changed while it wrote them down is asked again,
        after the others. An address that is not that of a name server counts as one
        that returns an error, a ConfigError. When no name server can be reached, the
        error names all of them.
        """
        deadline = Deadline(
            self.clock, self.config.timeout_ms if timeout_ms is None else timeout_ms
        )
        errors: list[TransportError] = []
        not_found: NotFoundError | None = None
        refused: RmqError | None = None
        namesrvs = list(self._namesrvs)
        for tried, address in enumerate(namesrvs):
            share_ms = max(1, deadline.left_ms() // (len(namesrvs) - tried))
            try:
                answer: T = yield Request(address, call, share_ms)
            except TransportError as error:
                errors.append(error)
                if error.is_grpc:
                    refused = refused or _not_a_namesrv(
                        f"{address} is a gRPC server, as proxies are, not a name"
                        " server",
                        other="proxy",
                    )
            except StaticTopicError:
                raise
            except UnsupportedError:
                if call.code not in _OF_EVERY_NAMESRV:
                    raise
                from rmqcli.api.calls.config import get_broker_runtime_info

                try:
                    yield Request(address, get_broker_runtime_info(), share_ms)
                except RmqError:
                    what = (
                        f"{address} is not a name server: it does not know the"
                        f" request for {call.what}"
                    )
                else:
                    what = f"{address} is a broker, not a name server"
                refused = refused or _not_a_namesrv(what, other="broker")
            except NotFoundError as error:
                self._prefer(address)
                if not needs_all_for_not_found:
                    raise
                not_found = not_found or error
            except RmqError as error:
                if _has_changed(error) and namesrvs.count(address) < _WRITE_TRIES:
                    namesrvs.append(address)
                else:
                    refused = refused or error
            else:
                self._prefer(address)
                return answer
        raise refused or not_found or self._no_namesrv(errors)

    def namesrv(self, call: Call[T], *, timeout_ms: int | None = None) -> T:
        """Ask the name servers and wait. Raises as `ask_namesrvs` does."""
        return run_task(self, self.ask_namesrvs(call, timeout_ms=timeout_ms))

    def ask_route(
        self, topic: str, *, timeout_ms: int | None = None
    ) -> Task[TopicRoute]:
        """Ask the name servers for a topic's route, as `ask_namesrvs` does.

        A name server knows a topic only while a broker of the topic is registered, so
        "does not exist" counts only if a broker is registered. Raises NotFoundError
        then, and NoBrokerError otherwise.

        A slave that acts for its dead master has its own id here, and not the master's:
        its offsets are copies that may be behind.
        """
        call = get_route_info_by_topic(topic)
        try:
            route = yield from self.ask_namesrvs(call, timeout_ms=timeout_ms)
            if not route.may_have_acting_master:
                return route
            info = yield from self._ask_cluster_info(timeout_ms=timeout_ms)
            return _with_roles(route, info)
        except NotFoundError:
            # A name server that refuses this request has told nothing about brokers.
            with suppress(BrokerError):
                yield from self._ask_cluster_info(timeout_ms=timeout_ms)
            raise

    def ask_routes(
        self, topics: Iterable[str]
    ) -> Task[dict[str, TopicRoute | RmqError]]:
        """Ask for the routes of many topics as `ask_route` does, with errors as values.

        The brokers are asked for once, for all topics that need it.
        """
        names = list(dict.fromkeys(topics))
        answers = yield All(
            [self.ask_namesrvs(get_route_info_by_topic(each)) for each in names]
        )
        routes: dict[str, TopicRoute | RmqError]
        routes = dict(zip(names, answers, strict=True))
        if not any(
            isinstance(each, NotFoundError)
            if isinstance(each, RmqError)
            else each.may_have_acting_master
            for each in routes.values()
        ):
            return routes
        (info,) = yield All([self._ask_cluster_info()])
        for name, route in routes.items():
            if isinstance(route, NotFoundError):
                if isinstance(info, RmqError) and not isinstance(info, BrokerError):
                    routes[name] = info
            elif not isinstance(route, RmqError) and route.may_have_acting_master:
                routes[name] = (
                    info if isinstance(info, RmqError) else _with_roles(route, info)
                )
        return routes

    def _ask_cluster_info(self, *, timeout_ms: int | None = None) -> Task[ClusterInfo]:
        info = yield from self.ask_namesrvs(
            get_broker_cluster_info(), timeout_ms=timeout_ms
        )
        if not info.brokers:
            one = len(self._namesrvs) == 1
            address = ";".join(self.config.namesrv)
            raise NoBrokerError(
                f"no broker is registered with the name server{'' if one else 's'}"
                f" {address}",
                address=address,
                hint="start a broker, or check its setting namesrvAddr",
            )
        return info

    def renew_old(self) -> None:
        """Ask again for routes and brokers that are 30 s old, when next needed.

        A program that keeps a client open calls this before each thing that it asks.
        Until then what is known stays: what is under way does not end because its
        broker is not registered while it restarts.
        """
        before_ms = self.clock.monotonic_ms() - _RENEWED_AFTER_MS
        for each, asked_ms in self._asked_ms.items():
            if asked_ms <= before_ms:
                self._old.add(each)

    def _is_known(self, topic: str) -> bool:
        return topic not in self._old and self.known_routes.get(topic) is not None

    def _note_asked(self, topic: str | None) -> None:
        self._asked_ms[topic] = self.clock.monotonic_ms()
        self._old.discard(topic)

    def route(self, topic: str, *, refresh: bool = False) -> TopicRoute:
        """Return a topic's route, from the cache unless `refresh`.

        Raises NotFoundError for an unknown topic, NoBrokerError without any broker.
        """
        is_known = not refresh and self._is_known(topic)
        found = self.known_routes.get(topic) if is_known else None
        if found is None:
            found = run_task(self, self.ask_route(topic))
            self.remember(topic, found)
        return found

    def routes(
        self, topics: Iterable[str], *, refresh: bool = False
    ) -> dict[str, TopicRoute | RmqError]:
        """Return the routes of many topics, with errors as values.

        Routes that are not in the cache, or with `refresh` all, are requested at the
        same time.
        """
        wanted = list(dict.fromkeys(topics))
        missing = [each for each in wanted if refresh or not self._is_known(each)]
        asked = run_task(self, self.ask_routes(missing)) if missing else {}
        for topic, outcome in asked.items():
            if not isinstance(outcome, RmqError):
                self.remember(topic, outcome)
        return {
            topic: asked[topic] if topic in asked else self.route(topic)
            for topic in wanted
        }

    def cluster_info(self, *, refresh: bool = False) -> ClusterInfo:
        """Return every broker of every cluster, from the cache unless `refresh`.

        There is at least one. Raises NoBrokerError when the name server knows none.
        """
        if self._cluster_info is None or refresh or None in self._old:
            known = self._cluster_info
            self._cluster_info = info = run_task(self, self._ask_cluster_info())
            self._note_asked(None)
            self._replace_brokers(
                () if known is None else known.brokers.values(), info.brokers.values()
            )
        return self._cluster_info

    def raise_if_none_answers(self, answers: Iterable[object]) -> None:
        """Raise NoBrokerError if `answers` show that no broker of the cluster answers.

        They have the errors of the brokers that were asked. Nothing is raised when a
        broker of the cluster answered, refused, or was not asked, such as after the
        time limit.
        """
        silent = {
            e.address: e
            for e in answers
            if isinstance(e, TransportError)
            and not (isinstance(e, DeadlineError) and not e.was_asked)
        }
        if not silent:
            return
        brokers: list[str] = []
        for name, broker in sorted(self.cluster_info().brokers.items()):
            addresses = [a for a in broker.addresses.values() if a in silent]
            if not addresses:
                return
            shown = ", ".join(map(self._peers.shown, addresses))
            brokers.append(f"{name} ({shown})")
        first = next(iter(silent.values()))
        raise NoBrokerError(
            f"no broker answers: {listed(brokers, _SILENT_LISTED)}",
            address=";".join(silent),
            hint=first.hint or "check that the brokers run",
        ) from first

    def masters(self) -> dict[str, str]:
        """Return broker name -> master address, of every broker that has a master."""
        return {
            name: broker.master_address
            for name, broker in sorted(self.cluster_info().brokers.items())
            if broker.master_address is not None
        }

    def master_of(self, route: TopicRoute, broker_name: str) -> str:
        """Return the address of the master of `broker_name`.

        Raises NotFoundError when it has none.
        """
        broker = route.broker(broker_name)
        if broker is None or broker.master_address is None:
            raise lost_broker(
                f"broker {broker_name} of topic {route.topic} currently has no master"
            )
        return broker.master_address

    def reader_of(self, queue: MessageQueue) -> str:
        """Return the address to pull `queue` from: the master's, or else a slave's.

        Raises NotFoundError when the topic's route has no address of the broker.
        """
        broker = self.route(queue.topic).broker(queue.broker_name)
        found = None if broker is None else reading_address(broker)
        if found is None:
            raise lost_broker(
                f"broker {queue.broker_name} of topic {queue.topic} is not in the"
                " topic's route"
            )
        return found[1]

    def known_version(self, address: str) -> int | None:
        """The MQVersion ordinal of the peer's last answer; None before one came."""
        return self._peers.versions.get(address)

    def broker_version(self, address: str) -> int:
        """The MQVersion ordinal of the peer, which is asked if it is not known yet."""
        if address not in self._peers.versions:
            from rmqcli.api.calls.config import get_broker_runtime_info

            try:
                self.invoke(address, get_broker_runtime_info())
            except BrokerError:  # a refusal tells the version, too
                if address not in self._peers.versions:
                    raise
        return self._peers.versions[address]

    def _is_supported(self, pending: PendingCall[T]) -> bool:
        """Return whether the peer knows the call, and False if it is to be asked again.

        A broker that is too old may be upgraded: a call is refused for as long as a
        route is believed. Raises UnsupportedError.
        """
        address, call = pending.address, pending.call
        version = self._peers.versions[address]
        if version >= call.needs_version:
            return True
        now_ms = self.clock.monotonic_ms()
        refused_ms = self._peers.too_old_ms.setdefault(address, now_ms)
        if now_ms - refused_ms >= _RENEWED_AFTER_MS:
            self._peers.too_old_ms.pop(address, None)
            return False
        raise UnsupportedError(
            f"{call.what}: {address} runs RocketMQ {version_name(version)};"
            f" the request needs {version_name(call.needs_version)} or later"
        )

    def remember(self, topic: str, route: TopicRoute) -> None:
        """Keep a route that was not fetched by `route`."""
        known = self.known_routes.remember(route)
        self._note_asked(topic)
        self._replace_brokers(() if known is None else known.brokers, route.brokers)

    def forget(self, topic: str) -> None:
        """Forget a topic's route, and the brokers that no other route names."""
        known = self.known_routes.forget(topic)
        self._asked_ms.pop(topic, None)
        self._old.discard(topic)
        if known is not None:
            self._replace_brokers(known.brokers, ())

    def _replace_brokers(
        self, known: Iterable[BrokerData], brokers: Iterable[BrokerData]
    ) -> None:
        """Note the brokers of a new route; disconnect from those without a route."""
        gone = self._peers.replace(known, brokers)
        gone = [each for each in gone if each not in self._namesrvs]
        if gone:
            self.remoting.forget(gone)

    def _prefer(self, address: str) -> None:
        self._namesrvs.remove(address)
        self._namesrvs.insert(0, address)

    def _no_namesrv(self, errors: list[TransportError]) -> TransportError:
        last = errors[-1]
        hint = last.hint or Hint("check ", Argument("namesrv"), " or NAMESRV_ADDR")
        if len(errors) == 1:
            last.hint = hint
            return last
        reasons = "; ".join(error.message for error in errors)
        return type(last)(
            f"none of {counted(len(errors), 'name server')} answered: {reasons}",
            address=last.address,
            hint=hint,
        )
