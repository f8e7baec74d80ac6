"""Messages that a `ScriptedProxy` delivers, with long polling."""

from __future__ import annotations

import threading
from contextlib import contextmanager

from rmqcli.proxy.io_thread import io_thread
from rmqcli.wire.protobuf import service_pb2 as service
from tests.kit.proxy.scripted import OK, status
from tests.kit.waiting import PATIENCE_S

PART = service.ReceiveMessageResponse


class Inbox:
    """Answers receives with messages that were put in, or with none after a wait."""

    def __init__(self, proxy):
        self._changed = threading.Condition()
        self._numbers: list[int] = []
        self._is_over = False
        self._is_sent = threading.Event()
        #: the number of receives that wait for a message
        self.waiting = 0
        proxy.answers["ReceiveMessage"] = self._answer

    def put(self, *numbers):
        with self._changed:
            self._numbers += numbers
            self._changed.notify_all()

    @contextmanager
    def unread(self, *numbers):
        """Deliver messages that clients of this process read only afterwards."""
        go_on = threading.Event()

        def hold_up() -> None:
            go_on.wait(PATIENCE_S)

        io_thread().post(hold_up)
        try:
            self.put(*numbers)
            assert self._is_sent.wait(PATIENCE_S)
            yield
        finally:
            go_on.set()

    def end(self):
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def _answer(self, request, context):
        with self._changed:
            self.waiting += 1
            self._changed.wait_for(
                lambda: self._numbers or self._is_over,
                request.long_polling_timeout.seconds,
            )
            self.waiting -= 1
            taken = self._numbers[: request.batch_size]
            del self._numbers[: request.batch_size]
        if not taken:
            yield PART(status=status("MESSAGE_NOT_FOUND"))
            return
        context.add_callback(self._is_sent.set)
        yield PART(status=OK)
        for number in taken:
            part = PART()
            part.message.topic.name = request.message_queue.topic.name
            part.message.body = b"%d" % number
            system = part.message.system_properties
            system.receipt_handle = f"handle {number}"
            system.message_id = f"id {number}"
            system.delivery_attempt = 2
            yield part
