"""A name server and a broker in one scripted peer, whose queues a test defines."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rmqcli.wire.codes import RequestCode
from rmqcli.wire.message.decode import StoredMessage, decode_messages
from rmqcli.wire.message.encode import MessageFields, encode_message

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rmqcli.wire.command import RemotingCommand
    from tests.transport.peer import PeerConnection

FOUND, NO_NEW, NO_MATCHED, ILLEGAL = 0, 19, 20, 21


def record(queue_offset: int, *, queue_id: int = 0, store_ms: int = 0) -> bytes:
    """Return a stored message whose body is `queue_id:queue_offset`."""
    return encode_message(
        MessageFields(
            topic="T",
            body=b"%d:%d" % (queue_id, queue_offset),
            queue_id=queue_id,
            queue_offset=queue_offset,
            commit_log_offset=queue_offset * 1_000 + queue_id,
            store_timestamp_ms=store_ms or 1_700_000_000_000 + queue_offset,
        )
    )


def answer_fields(
    code: int, next_begin: int, *, low: int = 0, high: int = 0, suggest: int = 0
) -> dict[str, object]:
    """Return an answer to a pull: its code, its header and an empty body."""
    numbers = {
        "suggestWhichBrokerId": suggest,
        "nextBeginOffset": next_begin,
        "minOffset": low,
        "maxOffset": high,
    }
    return {
        "code": code,
        "ext_fields": {name: str(number) for name, number in numbers.items()},
        "body": b"",
    }


@dataclass
class ScriptedBroker:
    """A script for `Peer`. Every route has one broker, with `addresses` by broker id.

    `override`, if set, may answer a pull itself: it gets the queue id, the offset and
    the number of the pull, counted from 1, and returns the fields of the answer or
    None.
    """

    queues: dict[int, int]  # queue id -> max offset
    low: int = 0
    batch: int = 32
    addresses: dict[int, str] = field(default_factory=dict)
    override: Callable[[int, int, int], dict[str, object] | None] | None = None
    #: makes the bytes of the record at a queue id and an offset
    make_record: Callable[[int, int], bytes] = lambda queue_id, offset: record(
        offset, queue_id=queue_id
    )
    pulls: int = 0
    groups: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, connection: PeerConnection) -> None:
        for request in connection.requests():
            if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
                fields: dict[str, object] = {"ext_fields": {}, "body": self._route()}
            elif request.code == RequestCode.GET_MAX_OFFSET:
                high = self.queues[int(request.ext_fields["queueId"])]
                fields = {"ext_fields": {"offset": str(high)}, "body": b""}
            elif request.code == RequestCode.GET_MIN_OFFSET:
                fields = {"ext_fields": {"offset": str(self.low)}, "body": b""}
            elif request.code == RequestCode.SEARCH_OFFSET_BY_TIMESTAMP:
                found = self._search(request.ext_fields)
                fields = {"ext_fields": {"offset": str(found)}, "body": b""}
            elif request.code == RequestCode.CHECK_CLIENT_CONFIG:
                told = self.override and self.override(0, 0, 0)
                fields = told or {"ext_fields": {}, "body": b""}
            elif request.code == RequestCode.GET_BROKER_RUNTIME_INFO:
                fields = {"ext_fields": {}, "body": b'{"table":{}}'}
            else:
                fields = self._pull(request)
            connection.answer(request, **fields)

    def _route(self) -> bytes:
        table = ",".join(f'"{i}":"{a}"' for i, a in self.addresses.items())
        count = max(self.queues) + 1
        return (
            '{"brokerDatas":[{"brokerAddrs":{' + table + '},"brokerName":"b-a",'
            '"cluster":"C"}],"queueDatas":[{"brokerName":"b-a","perm":6,'
            f'"readQueueNums":{count},"topicSysFlag":0,"writeQueueNums":{count}}}]}}'
        ).encode()

    def _search(self, ext: Mapping[str, str]) -> int:
        """The first offset that is stored at a time or later, or the queue's end."""
        queue_id, high = int(ext["queueId"]), self.queues[int(ext["queueId"])]
        for offset in range(self.low, high):
            (stored,) = decode_messages(self.make_record(queue_id, offset))
            assert isinstance(stored, StoredMessage)
            if stored.store_timestamp_ms >= int(ext["timestamp"]):
                return offset
        return high

    def _pull(self, request: RemotingCommand) -> dict[str, object]:
        ext = request.ext_fields
        queue_id, offset = int(ext["queueId"]), int(ext["queueOffset"])
        with self.lock:
            self.pulls += 1
            self.groups.add(ext["consumerGroup"])
            assert not int(ext["sysFlag"]) & 1, "a pull that commits"
            turn = self.pulls
        if self.override is not None:
            told = self.override(queue_id, offset, turn)
            if told is not None:
                return told
        high = self.queues[queue_id]
        if offset < self.low:
            return answer_fields(ILLEGAL, self.low, low=self.low, high=high)
        if offset >= high:
            return answer_fields(NO_NEW, offset, low=self.low, high=high)
        end = min(high, offset + min(self.batch, int(ext["maxMsgNums"])))
        found = answer_fields(FOUND, end, low=self.low, high=high)
        found["body"] = b"".join(
            self.make_record(queue_id, o) for o in range(offset, end)
        )
        return found
