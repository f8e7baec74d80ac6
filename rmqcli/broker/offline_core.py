"""The core of one broker over a folder that it may only read.

Imitated: everything that reads. Refused (16): everything that would change something,
and what only a running broker knows: clients. Nothing of its own runs: no delivery of
delayed messages, no checks of transactions.

Source: `AdminBrokerProcessor`, for what is asked; no broker of RocketMQ is read-only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from rmqcli.agenda import Agenda
from rmqcli.broker.answers import answer_to
from rmqcli.broker.core import Broker
from rmqcli.broker.offline_tables import (
    clear_tables,
    load_tables,
    settings_of,
    tables_stamp,
)
from rmqcli.broker.pull_check import FLAG_COMMIT_OFFSET
from rmqcli.broker.record_properties import properties_of_record
from rmqcli.broker.request import Reply, Request
from rmqcli.store.read_only import ReadOnlyStore
from rmqcli.wire.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from rmqcli.broker.effects import Effect, Peer
    from rmqcli.broker.manners import Manners
    from rmqcli.broker.namesrv import NameServer
    from rmqcli.broker.server_port import Core
    from rmqcli.now import Now
    from rmqcli.store.message_store import MessageStore
    from rmqcli.wire.command import RemotingCommand

_PULLS: Final = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)

BROKER_READS: Final = frozenset(
    {
        *_PULLS,
        RequestCode.CHECK_CLIENT_CONFIG,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.GET_EARLIEST_MSG_STORETIME,
        RequestCode.VIEW_MESSAGE_BY_ID,
        RequestCode.QUERY_MESSAGE,
        RequestCode.GET_ALL_TOPIC_CONFIG,
        RequestCode.GET_BROKER_CONFIG,
        RequestCode.GET_BROKER_RUNTIME_INFO,
        RequestCode.GET_ALL_CONSUMER_OFFSET,
        RequestCode.GET_ALL_DELAY_OFFSET,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.GET_TOPIC_STATS_INFO,
        RequestCode.GET_CONSUME_STATS,
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
        RequestCode.QUERY_CONSUME_TIME_SPAN,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        RequestCode.QUERY_CONSUME_QUEUE,
        RequestCode.QUERY_TOPICS_BY_CONSUMER,
        RequestCode.GET_TOPIC_CONFIG,
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
    }
)
NAMESRV_READS: Final = frozenset(
    {
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.GET_TOPICS_BY_CLUSTER,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        RequestCode.GET_KV_CONFIG,
        RequestCode.GET_KVLIST_BY_NAMESPACE,
    }
)

#: How often a folder is looked at for messages that held pulls wait for.
ARRIVALS_INTERVAL_MS: Final = 200
#: Of more new messages in one queue the rest is found by the checks of held pulls.
_ARRIVALS_MAX: Final = 1_000
#: The tables' files are looked at no more often than this.
_TABLES_INTERVAL_MS: Final = 500


class ReadOnlyCore:
    """A core that answers only some request codes; the others are refused with 16."""

    def __init__(self, core: Core, manners: Manners, codes: Collection[int]) -> None:
        self._core = core
        self._manners = manners
        self._codes = codes

    def handle(
        self, peer: Peer, command: RemotingCommand, now: Now, *, is_binary: bool = False
    ) -> list[Effect]:
        """Let the core take a command that reads."""
        if command.code in self._codes and not command.is_response:
            return self._core.handle(peer, command, now, is_binary=is_binary)
        if command.is_response:
            return []
        remark = f"read from a folder: nothing here can do request {command.code}"
        reply = Reply(ResponseCode.NO_PERMISSION, remark)
        request = Request(peer, command, now, is_binary)
        answer = answer_to(request, reply, self._manners)
        return [] if answer is None else [answer]

    def closed(self, peer: Peer, now: Now) -> list[Effect]:
        """A connection is gone."""
        return self._core.closed(peer, now)

    def run_due(self, now: Now) -> list[Effect]:
        """Do what is due."""
        return self._core.run_due(now)

    def next_due_ms(self) -> int | None:
        """When that is (monotonic)."""
        return self._core.next_due_ms()


class FolderBroker(ReadOnlyCore):
    """A broker over the folder `folder`. `name` None: the one that its topics tell.

    Raises StoreError when the folder cannot be read.
    """

    def __init__(
        self, folder: Path, now: Now, *, name: str | None, address: str
    ) -> None:
        self._store = ReadOnlyStore(folder)
        try:
            self._stamp = tables_stamp(self._store.config)
            settings = settings_of(self._store.config, name=name, address=address)
            # What writes is never asked for: MessageStore's other half is not needed.
            store = cast("MessageStore", self._store)
            self._broker = Broker(settings, store, now)
            # Whatever the broker planned to do by itself would write.
            self._broker.agenda = Agenda()
            clear_tables(self._broker)
            load_tables(self._broker, self._store)
        except BaseException:
            self._store.close()
            raise
        super().__init__(self._broker, settings.manners, BROKER_READS)
        self._looked_ms = now.monotonic_ms
        self._is_planned = False
        #: queues that pulls wait for, each with the offset that comes next
        self._awaited: dict[tuple[str, int], int] = {}

    def announce(self, names: NameServer, now: Now) -> None:
        """Tell a name server of the topics, now and whenever they change."""
        self._broker.on_topics_changed = lambda: names.register(self._broker, now)
        names.register(self._broker, now)

    def close(self) -> None:
        """Let go of the files. Idempotent."""
        self._store.close()

    def handle(
        self, peer: Peer, command: RemotingCommand, now: Now, *, is_binary: bool = False
    ) -> list[Effect]:
        """Answer what reads, from the tables that the folder has now."""
        self._refresh_tables(now)
        if command.code not in _PULLS or command.is_response:
            return super().handle(peer, command, now, is_binary=is_binary)
        fields = command.ext_fields
        flags = fields.get("sysFlag", "")
        if flags.isdecimal() and int(flags) & FLAG_COMMIT_OFFSET:
            fields["sysFlag"] = str(int(flags) & ~FLAG_COMMIT_OFFSET)
        before = len(self._broker.holds)
        effects = super().handle(peer, command, now, is_binary=is_binary)
        if len(self._broker.holds) > before:
            # It was held, so its header was read: these are numbers.
            key = fields["topic"], int(fields["queueId"])
            self._awaited.setdefault(key, int(fields["queueOffset"]))
            self._plan_look(now)
        return effects

    def _refresh_tables(self, now: Now) -> None:
        if now.monotonic_ms - self._looked_ms < _TABLES_INTERVAL_MS:
            return
        self._looked_ms = now.monotonic_ms
        stamp = tables_stamp(self._store.config)
        if stamp == self._stamp:
            return
        load_tables(self._broker, self._store)
        self._stamp = stamp
        self._broker.on_topics_changed()

    def _plan_look(self, now: Now) -> None:
        if not self._is_planned:
            self._is_planned = True
            at_ms = now.monotonic_ms + ARRIVALS_INTERVAL_MS
            self._broker.agenda.at(at_ms, self._look)

    def _look(self, now: Now) -> None:
        """Wake the pulls that wait for what was written since the last look."""
        self._is_planned = False
        for (topic, queue_id), known in list(self._awaited.items()):
            end = (self._store.queue_bounds(topic, queue_id) or (0, 0))[1]
            units = self._store.units(
                topic, queue_id, known, min(max(end - known, 0), _ARRIVALS_MAX)
            )
            for offset, unit in enumerate(units, known):
                record = self._store.read(unit.commit_log_offset, unit.size_bytes)
                self._broker.holds.arrived(
                    topic,
                    queue_id,
                    offset,
                    unit.tags_code,
                    {} if record is None else properties_of_record(record),
                    now,
                )
            self._awaited[topic, queue_id] = max(end, known)
        if len(self._broker.holds):
            self._plan_look(now)
        else:
            self._awaited.clear()
