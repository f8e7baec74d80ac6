"""A scripted member of a group, for tests of resets.

It speaks the protocol of clients: it sends one heartbeat, pulls nothing, and handles a
pushed reset (220) as the test defines.
"""

from __future__ import annotations

import threading

from rmqcli.wire.bodies.heartbeat import ConsumerData, HeartbeatData
from rmqcli.wire.bodies.offset import ResetOffsetBody
from rmqcli.wire.body import decode_body, encode_body
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.subscription import SubscriptionData
from tests.broker.wire_client import WireClient

_IS_ANSWER = 1
_IS_ONEWAY = 2

PUSH = "CONSUME_PASSIVELY"
PULL = "CONSUME_ACTIVELY"


class FakeMember:
    """A member that is online from its creation until `close`. A context manager.

    `on_push` is called with the pushed offset of each queue, and returns pairs (queue,
    offset) to commit in this order. Without it, the member ignores pushes.
    """

    def __init__(
        self,
        cluster,
        group="G",
        *,
        topics=("T",),
        broker="broker-a",
        client_id="10.0.0.1@1",
        consume_type=PUSH,
        message_model="CLUSTERING",
        on_push=None,
    ):
        self._group = group
        self._on_push = on_push
        #: the offsets of each push, in order of arrival
        self.pushes = []
        self._wire = WireClient(cluster.broker(broker).address)
        consumer = ConsumerData(
            group_name=group,
            consume_type=consume_type,
            message_model=message_model,
            consume_from_where="CONSUME_FROM_FIRST_OFFSET",
            subscriptions=tuple(SubscriptionData(topic=topic) for topic in topics),
        )
        heartbeat = HeartbeatData(client_id=client_id, consumers=(consumer,))
        self._wire.send(RequestCode.HEART_BEAT, body=encode_body(heartbeat))
        # A broker may notify the members of the new one before it answers.
        while not (answer := self._wire.receive()).flag & _IS_ANSWER:
            pass
        assert answer.code == 0, answer.remark
        self._thread = threading.Thread(target=self._serve, name="fake-member")
        self._thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def close(self):
        self._wire.sock.shutdown(2)
        self._thread.join()
        self._wire.sock.close()

    def _serve(self):
        while True:
            try:
                command = self._wire.receive()
            except (EOFError, OSError):
                return
            if command.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET:
                offsets = decode_body(ResetOffsetBody, command.body).offset_table
                self.pushes.append(offsets)
                for queue, offset in self._on_push(offsets) if self._on_push else ():
                    self.commit(queue, offset)

    def commit(self, queue, offset):
        """Commit an offset with a one-way request, as Java's clients do."""
        self._wire.send(
            RequestCode.UPDATE_CONSUMER_OFFSET,
            flag=_IS_ONEWAY,
            consumerGroup=self._group,
            topic=queue.topic,
            queueId=queue.queue_id,
            commitOffset=offset,
        )


def obey(offsets):
    """Do what a real client does with a push: commit the pushed offsets."""
    return list(offsets.items())
