"""Requests of producers as a Java client of 5.5.0 makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.broker.profiles import profile_of
from rmqcli.broker.settings import BrokerSettings
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.headers.send import SendMessageRequestHeaderV2
from rmqcli.wire.message.properties import encode_properties

if TYPE_CHECKING:
    from rmqcli.wire.command import RemotingCommand
    from tests.broker.driving import Driver

BORN_MS = 1_699_999_999_500
UNIQ_KEY = "FD0000000000000000000000000000023D145FFD2B2767D160DA0000"


def like(version: str) -> BrokerSettings:
    """Settings of a broker with a version's profile."""
    return BrokerSettings(profile=profile_of(version))


def send_header(
    topic: str = "T",
    properties: dict[str, str | None] | None = None,
    *,
    queue_id: int = 0,
    sys_flag: int = 0,
    reconsume_times: int | None = 0,
    max_reconsume_times: int | None = None,
    default_topic: str = "TBW102",
    batch: bool = False,
) -> SendMessageRequestHeaderV2:
    """The header of requests 310 and 320."""
    return SendMessageRequestHeaderV2(
        producer_group="pg",
        topic=topic,
        default_topic=default_topic,
        default_topic_queue_nums=4,
        queue_id=queue_id,
        sys_flag=sys_flag,
        born_timestamp=BORN_MS,
        flag=0,
        properties=encode_properties(properties or {}),
        reconsume_times=reconsume_times,
        unit_mode=False,
        max_reconsume_times=max_reconsume_times,
        batch=batch,
    )


def send(
    driver: Driver,
    topic: str = "T",
    properties: dict[str, str | None] | None = None,
    *,
    body: bytes = b"hello",
    queue_id: int = 0,
    sys_flag: int = 0,
) -> RemotingCommand:
    """Send one message, and return the answer."""
    header = send_header(topic, properties, queue_id=queue_id, sys_flag=sys_flag)
    answer = driver.ask(RequestCode.SEND_MESSAGE_V2, header, body=body)
    assert answer is not None
    return answer
