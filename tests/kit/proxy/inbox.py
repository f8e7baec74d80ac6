"""Messages that a `ScriptedProxy` delivers, with long polling."""

from __future__ import annotations

import threading

from rmqcli.wire.protobuf import service_pb2 as service
from tests.kit.proxy.scripted import OK, status

PART = service.ReceiveMessageResponse


class Inbox:
    """Answers receives with messages that were put in, or with none after a wait."""

    def __init__(self, proxy):
        self._changed = threading.Condition()
        self._numbers: list[int] = []
        self._is_over = False
        #: the number of receives that wait for a message
        self.waiting = 0
        proxy.answers["ReceiveMessage"] = self._answer

    def put(self, *numbers):
        with self._changed:
            self._numbers += numbers
            self._changed.notify_all()

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
