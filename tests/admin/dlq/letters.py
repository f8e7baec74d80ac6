"""Makes dead letters, as consumers do, by sending messages back; and damaged ones."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from rmqcli.api.calls.client import consumer_send_msg_back
from rmqcli.api.calls.send import send_message
from rmqcli.api.client import Client
from rmqcli.config import ClientConfig
from rmqcli.wire.headers.client import ConsumerSendMsgBackRequestHeader
from rmqcli.wire.headers.send import SendMessageRequestHeaderV2
from rmqcli.wire.ids import decode_offset_msg_id

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqcli import Credentials


def client_of(
    cluster, *, timeout_ms: int = 5_000, credentials: Credentials | None = None
) -> Client:
    """Return a client of a cluster; the caller closes it."""
    return Client(
        ClientConfig(
            namesrv=(cluster.namesrv,), timeout_ms=timeout_ms, credentials=credentials
        )
    )


def send_damaged(cluster, topic: str, *, broker: str = "broker-a") -> None:
    """Send a message whose body says that it is compressed, and is not."""
    header = SendMessageRequestHeaderV2(
        producer_group="g",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=1,
        born_timestamp=1,
        flag=0,
        properties="",
        reconsume_times=0,
        unit_mode=False,
        max_reconsume_times=16,
        batch=False,
        bname=broker,
    )
    with client_of(cluster) as client:
        client.invoke(
            cluster.broker(broker).address, send_message(header, b"not compressed")
        )


def kill(
    cluster,
    group: str,
    topic: str,
    results: Iterable[object],
    *,
    delay_level: int = -1,
    credentials: Credentials | None = None,
) -> None:
    """Send messages back of which `results` tells the offset ids.

    With the delay level -1 the group gives up on them at once.
    """
    with client_of(cluster, credentials=credentials) as client:
        for result in results:
            place = decode_offset_msg_id(result.offset_msg_id)  # type: ignore[attr-defined]
            header = ConsumerSendMsgBackRequestHeader(
                offset=place.commit_log_offset,
                group=group,
                delay_level=delay_level,
                origin_msg_id=result.offset_msg_id,  # type: ignore[attr-defined]
                origin_topic=topic,
                unit_mode=False,
                max_reconsume_times=16,
            )
            client.invoke(place.host, consumer_send_msg_back(header))


def make_letters(cluster, group: str, topic: str, bodies: Iterable[str], **fields):
    """Send a message for each body, and let the group give up on it.

    Brokers take turns; each letter is in the queue of its broker.
    """
    from rmqcli import Producer, ProducerMessage

    with client_of(cluster) as client:
        queues = client.route(topic).write_queues()
    brokers = {queue.broker_name: queue for queue in queues}
    turns = itertools.cycle(brokers.values())
    with Producer(namesrv=cluster.namesrv) as producer:
        results = [
            producer.send(
                ProducerMessage(topic, body.encode(), **fields), queue=next(turns)
            )
            for body in bodies
        ]
    kill(cluster, group, topic, results)
    return results
