"""What a log's record says that its queue's entry must be.

For recovery, which makes lost entries again, and for readers of a folder whose broker
died before it wrote them.

Source: `CommitLog.checkMessageAndReturnSize` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqcli.store.log_scan import names_of
from rmqcli.wire.ids import tags_code
from rmqcli.wire.message_sys_flag import (
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    transaction_type,
)

if TYPE_CHECKING:
    from rmqcli.store.log_scan import ScannedRecord

_SCHEDULE_TOPIC: Final = b"SCHEDULE_TOPIC_XXXX"  # TopicValidator.RMQ_SYS_SCHEDULE_TOPIC
_KEPT_MAX: Final = 65_536


class EntryMaker:
    """Topics and tags codes of records, each worked out once."""

    def __init__(self, delay_levels_ms: tuple[int, ...]) -> None:
        self._delay_levels_ms = delay_levels_ms
        self._tags_codes: dict[bytes, int] = {}
        self._topics: dict[bytes, str] = {}

    def topic(self, record: ScannedRecord) -> str:
        """The topic's name."""
        found = self._topics.get(record.topic)
        if found is None:
            if len(self._topics) >= _KEPT_MAX:
                self._topics.clear()
            found = self._topics[record.topic] = text_of(record.topic)
        return found

    def tags_code(self, record: ScannedRecord) -> int | None:
        """As when it was put: the tags' hash, or when a delayed message is due.

        None for half messages and rollbacks, which have no entry.
        """
        transaction = transaction_type(record.sys_flag)
        if transaction in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK):
            return None
        queue_id = record.queue_id
        levels = self._delay_levels_ms
        if record.topic == _SCHEDULE_TOPIC and 0 <= queue_id < len(levels):
            return record.store_timestamp_ms + levels[queue_id]
        tags = names_of(record.properties)[0]
        code = self._tags_codes.get(tags)
        if code is None:
            if len(self._tags_codes) >= _KEPT_MAX:
                self._tags_codes.clear()
            code = self._tags_codes[tags] = tags_code(text_of(tags))
        return code


def text_of(value: bytes) -> str:
    """The characters of a name; what is no UTF-8 becomes a mark."""
    return value.decode("utf-8", "replace")
