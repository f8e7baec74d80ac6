"""Copies a master's log to a slave, which may stay some messages behind.

Imitated: the same bytes at the same places; the master's topics, groups and consumer
offsets. Not imitated: HA connections, epochs, controllers.

Source: `DefaultHAService` and `SlaveSynchronize` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqcli.broker.message.copy import fields_as_stored
from rmqcli.wire.message.decode import decode_messages
from rmqcli.wire.message.properties import encode_properties
from rmqcli.wire.message.record import DecodeFailure, InnerMessage, StoredMessage

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.broker.state.broker import BrokerState
    from rmqcli.clock import Now

_INTERVAL_MS: Final = 20
_COPIED_AT_ONCE_MAX: Final = 2_000


class Replication:
    """Copies from one core to another every 20 ms. For the I/O thread."""

    def __init__(self, master: Callable[[], BrokerState], *, behind: int) -> None:
        self._master = master
        self._behind = behind
        #: (slave, end of the master's log, `behind`) when nothing was left to copy
        self._done: tuple[BrokerState, int, int] | None = None

    def attach(self, slave: BrokerState, now: Now) -> None:
        """Copy to `slave` now and from now on."""
        slave.timers.every(_INTERVAL_MS, now, lambda later: self.copy(slave, later))
        self.copy(slave, now)

    def set_behind(self, behind: int, slave: BrokerState) -> None:
        """Set how many messages the slave stays behind. Copied messages stay."""
        self._behind = behind
        self.copy(slave, slave.started)

    def copy(self, slave: BrokerState, _now: Now) -> None:
        """Copy the tables, and missing messages except the newest ones.

        At most about 2,000 messages are copied at once.
        """
        master = self._master()
        self._take_tables(master, slave)
        end = master.store.log_bounds()[1]
        master.slaves[slave.settings.address] = slave.store.log_bounds()[1]
        if self._done == (slave, end, self._behind):
            return
        at = slave.store.log_bounds()[1]
        ahead: list[StoredMessage] = []
        while at < end and len(ahead) < _COPIED_AT_ONCE_MAX + self._behind:
            record = master.store.message_at(at)
            if record is None:
                break
            ahead += _readable(record)
            at += len(record)
        for message in ahead[: max(0, len(ahead) - self._behind)]:
            _append(slave, message, tags_code=_tags_code(master, message))
        master.slaves[slave.settings.address] = slave.store.log_bounds()[1]
        if at >= end:
            self._done = (slave, end, self._behind)

    def detach(self, slave: BrokerState) -> None:
        """Tell the master that `slave` has gone."""
        self._master().slaves.pop(slave.settings.address, None)

    def _take_tables(self, master: BrokerState, slave: BrokerState) -> None:
        if slave.topics.all() != master.topics.all():
            slave.topics.load(master.topics.all().values())
            slave.topics.notify_changed()
        slave.groups.load(master.groups.all().values())
        slave.offsets.load(master.offsets.table())


def _tags_code(master: BrokerState, message: StoredMessage) -> int:
    """Return the tags code in the master's consume queue, which may be a due time."""
    units = master.store.units(message.topic, message.queue_id, message.queue_offset, 1)
    return units[0].tags_code if units else 0


def _readable(record: bytes) -> list[StoredMessage]:
    """The message of a record, or an inner batch as a whole; none if not readable."""
    for message in decode_messages(record):
        if isinstance(message, InnerMessage):
            return [message.record]
        if not isinstance(message, DecodeFailure):
            return [message]
    return []


def _append(slave: BrokerState, message: StoredMessage, *, tags_code: int) -> None:
    fields = fields_as_stored(message, properties=_properties(message))
    slave.store.append([fields], tags_codes=[tags_code])


def _properties(message: StoredMessage) -> dict[str, str] | bytes:
    """Return a message's properties as they must be appended.

    The result is the raw bytes if encoding the dict would give other bytes, because the
    commit log offsets of master and slave must agree.
    """
    properties = message.properties
    raw = message.raw_properties
    is_same = encode_properties(properties).encode("utf-8", "replace") == raw
    return properties if is_same else raw
