"""Printing what is consumed, with the writers of `rmq tail`.

A message counts as consumed once its line is written and flushed. When that fails, for
nobody reads any more or the disk is full, nothing is acknowledged that was not written.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from rmqcli.admin.tail.batch import TailCounts
from rmqcli.admin.tail.filter import make_filter
from rmqcli.engine.listener import LeaveRest
from rmqcli.model import RETRY_GROUP_TOPIC_PREFIX, MessageQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rmqcli.cli.consume.tally import Tally
    from rmqcli.cli.ui.records.output import Writer
    from rmqcli.engine.message import Message, MessageItem, UndecodableMessage
    from rmqcli.wire.message.record import DecodeFailure, StoredMessage

#: How long `close` waits for a thread that is in the middle of writing.
_CLOSE_WAIT_S = 1.0


class Printer:
    """A listener that prints. `before_write` is called before something is written."""

    def __init__(
        self, writer: Writer, tally: Tally, before_write: Callable[[], None]
    ) -> None:
        self._writer = writer
        self._batcher = writer.batcher(make_filter(), TailCounts())
        self._tally = tally
        self._before_write = before_write
        self._lock = threading.Lock()

    def on_batch(
        self, messages: Sequence[Message | MessageItem], _context: object
    ) -> bool:
        """Write messages of one queue; raises LeaveRest for those that are not."""
        granted = self._tally.take(len(messages))
        shown = messages[:granted]
        if shown:
            self._write(shown[0].message_queue, shown)
        if granted < len(messages):
            raise LeaveRest(granted)
        return True

    def on_undecodable(self, message: UndecodableMessage) -> None:
        """Write its error record in its place."""
        if not self._tally.take(1):
            raise LeaveRest
        self._write(message.message_queue, [message.failure], undecodable=1)

    def close(self) -> bool:
        """Write what belongs at the end; False when a thread is stuck in writing."""
        if not self._lock.acquire(timeout=_CLOSE_WAIT_S):
            return False
        try:
            if self._tally.error is None:
                self._writer.close()
        finally:
            self._lock.release()
        return True

    def kill(self) -> None:
        """Nothing of ours outlives this process."""

    def _write(
        self,
        queue: MessageQueue,
        messages: Sequence[StoredMessage | DecodeFailure],
        *,
        undecodable: int = 0,
    ) -> None:
        is_written = False
        try:
            with self._lock:
                if self._tally.error is None:
                    self._before_write()
                    self._writer.write(self._items(queue, messages))
                    is_written = True
        except Exception as error:  # noqa: BLE001  # raised again where the command ends
            self._tally.end(error)
        finally:
            self._tally.settle(
                len(messages), consumed=is_written, undecodable=undecodable
            )
        if not is_written:
            raise LeaveRest

    def _items(
        self, queue: MessageQueue, messages: Sequence[StoredMessage | DecodeFailure]
    ) -> list[Any]:
        """What the writer writes; a retry goes by the topic that it was sent to."""
        if not queue.topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            return self._batcher.items(queue, messages)
        items: list[Any] = []
        for message in messages:
            topic = getattr(message, "topic", queue.topic)
            origin = MessageQueue(topic, queue.broker_name, queue.queue_id)
            items += self._batcher.items(origin, [message])
        return items
