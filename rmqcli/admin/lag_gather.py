"""Reads what `compute_lag` needs from every broker, pipelined, under one deadline.

A broker that does not answer costs its own rows and nothing else: they become UNKNOWN,
its queues taken from the name server's routes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.admin.lag_assemble import Assembler, broker_failure
from rmqcli.admin.lag_broker import read_broker
from rmqcli.admin.lag_part import BrokerPart, SharedAnswers
from rmqcli.admin.lag_scripts import run_scripts
from rmqcli.admin.lag_values import light_value
from rmqcli.clock import Deadline
from rmqcli.errors import ConnectError, DeniedError, NotFoundError, RmqError
from rmqcli.model import RETRY_GROUP_TOPIC_PREFIX, retry_topic
from rmqcli.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from rmqcli.admin.lag import BrokerFailure, GroupReading
    from rmqcli.admin.lag_part import LagWish
    from rmqcli.api.client import Client
    from rmqcli.model import TopicRoute

#: What brokers may take of the time; the rest is for asking the name server about
#: those that did not answer.
_BROKER_SHARE = 0.9


@light_value
class LagReading:
    """Everything read at one moment. `missing`: named groups that no broker knows."""

    at_ms: int
    groups: list[GroupReading]
    missing: list[str]
    failures: list[BrokerFailure]


class LagGatherer:
    """Reads the groups of a wish, as often as wanted. Not safe across threads."""

    def __init__(self, client: Client, wish: LagWish) -> None:
        self._client = client
        self._wish = wish

    def read(self) -> LagReading:
        """Ask every master once.

        Raises TransportError when no name server answers or knows a broker, DeniedError
        when every broker refuses, NotFoundError when no broker has a topic of the wish.
        """
        client, wish = self._client, self._wish
        deadline = Deadline(
            client.clock, max(1, int(client.config.timeout_ms * _BROKER_SHARE))
        )
        at_ms = client.clock.epoch_ms()
        parts = self._parts()
        shared = SharedAnswers()
        run_scripts(
            client,
            [
                (
                    address,
                    read_broker(part, wish, shared, version=_version(client, address)),
                )
                for part in parts
                if (address := part.address) is not None
            ],
            deadline,
        )
        _raise_if_all_denied(parts)
        unknown = [g for g in wish.groups if not _is_known(g, parts)]
        failed = [part for part in parts if part.failure is not None]
        missing = [] if failed else unknown
        self._check_topics(parts)
        groups = self._groups(parts, missing)
        routes = self._routes(groups, parts, failed)
        groups = groups or sorted(_groups_of_retry_topics(routes))
        assembler = Assembler(parts, wish, shared, routes=routes, now_ms=at_ms)
        return LagReading(
            at_ms=at_ms,
            groups=[assembler.assemble(group) for group in groups],
            missing=missing,
            failures=[broker_failure(part) for part in failed],
        )

    def _parts(self) -> list[BrokerPart]:
        info = self._client.cluster_info(refresh=True)
        if not info.brokers:
            namesrv = self._client.config.namesrv[0]
            raise ConnectError(
                f"the name server {namesrv} knows no broker",
                address=namesrv,
                hint="is a broker running, and registered with this name server?",
            )
        parts = []
        for name, broker in sorted(info.brokers.items()):
            part = BrokerPart(broker_name=name, address=broker.master_address)
            if broker.master_address is None:
                # A slave's offsets are as old as its last copy: not the truth.
                part.failure = ConnectError(
                    f"{name} has no master now, only slaves", address=name
                )
            parts.append(part)
        return parts

    def _check_topics(self, parts: list[BrokerPart]) -> None:
        for topic in self._wish.topics:
            if all(p.failure is None and p.ends.get(topic) is None for p in parts):
                raise NotFoundError(
                    f"no broker has a topic {topic}",
                    code=int(ResponseCode.TOPIC_NOT_EXIST),
                    name=ResponseCode.TOPIC_NOT_EXIST.name,
                    hint="list topics with: rmq topics",
                )

    def _groups(self, parts: list[BrokerPart], missing: list[str]) -> list[str]:
        if self._wish.groups:
            named = dict.fromkeys(self._wish.groups)
            return [group for group in named if group not in missing]
        if self._wish.topics:
            return sorted({group for p in parts for group, _ in p.committed})
        return sorted({group for part in parts for group in part.known_groups})

    def _routes(
        self, groups: list[str], parts: list[BrokerPart], failed: list[BrokerPart]
    ) -> Mapping[str, TopicRoute | None]:
        """The routes of what a failed broker may have queues of.

        None: there is no such topic. A topic that is not in it: nobody told.
        """
        if not failed:
            return {}
        topics = {topic for part in parts for _, topic in part.committed}
        topics.update(map(retry_topic, groups), self._wish.topics)
        if not groups:
            from rmqcli.api.calls_namesrv import get_all_topic_list

            names = self._client.namesrv(get_all_topic_list())
            topics.update(n for n in names if n.startswith(RETRY_GROUP_TOPIC_PREFIX))
        routes = self._client.routes(sorted(topics))
        return {
            topic: None if isinstance(route, RmqError) else route
            for topic, route in routes.items()
            if not isinstance(route, RmqError) or isinstance(route, NotFoundError)
        }


def _version(client: Client, address: str) -> Callable[[], int]:
    return lambda: client.broker_version(address)


def _is_known(group: str, parts: Iterable[BrokerPart]) -> bool:
    return any(
        group in part.known_groups
        or group in part.connections
        or group in part.group_failures
        for part in parts
    )


def _raise_if_all_denied(parts: list[BrokerPart]) -> None:
    for part in parts:
        errors = [part.failure, *part.group_failures.values()]
        if not any(isinstance(error, DeniedError) for error in errors):
            return
    for error in (parts[0].failure, *parts[0].group_failures.values()):
        if isinstance(error, DeniedError):
            raise error


def _groups_of_retry_topics(routes: Mapping[str, TopicRoute | None]) -> Iterable[str]:
    """Groups by their retry topics: all that is left when no broker answers."""
    return (
        topic.removeprefix(RETRY_GROUP_TOPIC_PREFIX)
        for topic in routes
        if topic.startswith(RETRY_GROUP_TOPIC_PREFIX)
    )
