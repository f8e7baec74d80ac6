"""Damage a record between others, as a broken disk does."""

from __future__ import annotations

from rmqcli.api.calls.pull import pull_message
from rmqcli.api.client import Client
from rmqcli.config import ClientConfig
from rmqcli.testing import faults
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.message.decode import StoredMessage, decode_messages


def damage_record(cluster, queue, text):
    """Let the broker answer every pull with the queue's records, one of them damaged.

    It is the only record of the queue that has the text.
    """
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        call = pull_message(queue, 0, max_msg_nums=32)
        body = bytearray(client.invoke(client.reader_of(queue), call).body)
    records = [
        each for each in decode_messages(bytes(body)) if isinstance(each, StoredMessage)
    ]
    (wanted,) = [
        each
        for each in records
        if text.encode() in body[each.at : each.at + each.store_bytes]
    ]
    body[wanted.at + 4 : wanted.at + 8] = b"\0\0\0\0"  # the magic code
    end = str(len(records))
    fields = {"suggestWhichBrokerId": "0", "minOffset": "0"}
    cluster.faults.add(
        faults.answer(
            0,
            ext_fields=fields | {"nextBeginOffset": end, "maxOffset": end},
            body=bytes(body),
        ),
        code=RequestCode.PULL_MESSAGE,
        broker=queue.broker_name,
        topic=queue.topic,
    )
