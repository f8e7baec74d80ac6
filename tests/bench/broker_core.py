"""Measure the CPU time in which the broker's core stores messages, without sockets.

    python -m tests.bench.broker_core [--messages N] [--batch N] [--body-bytes N]

Prints JSON: microseconds of CPU time per message for single sends (310) and for batches
(320), from the decoded request to the decoded answer, best of `--rounds`. The store is
in memory.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import TYPE_CHECKING

from rmqcli.broker.core import Broker
from rmqcli.broker.effects import Peer
from rmqcli.broker.handlers import BROKER_REQUESTS
from rmqcli.broker.settings import BrokerSettings
from rmqcli.broker.state.broker import BrokerState
from rmqcli.clock import Now
from rmqcli.store.memory import MemoryStore
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.command import RemotingCommand
from rmqcli.wire.header import to_ext_fields
from rmqcli.wire.headers.send import SendMessageRequestHeaderV2
from rmqcli.wire.message.batch import BatchItem, encode_batch
from rmqcli.wire.message.properties import encode_properties

if TYPE_CHECKING:
    from collections.abc import Iterator

_NOW = Now(0, 1_700_000_000_000)
_PEER = Peer(1, "127.0.0.1:40001")


def request(number: int, body: bytes, *, is_batch: bool) -> RemotingCommand:
    """Return a send request like those of Java clients."""
    properties = {"UNIQ_KEY": f"FD0000000000000000000000{number:08X}", "WAIT": "true"}
    if not is_batch:
        properties |= {"KEYS": f"order-{number}", "TAGS": "TagA"}
    header = SendMessageRequestHeaderV2(
        producer_group="pg",
        topic="Bench",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=number % 4,
        sys_flag=0,
        born_timestamp=_NOW.epoch_ms,
        flag=0,
        properties=encode_properties(properties),
        reconsume_times=0,
        unit_mode=False,
        batch=is_batch,
        bname="broker-a",
    )
    code = RequestCode.SEND_BATCH_MESSAGE if is_batch else RequestCode.SEND_MESSAGE_V2
    return RemotingCommand(
        code=int(code),
        language=0,
        version=513,
        opaque=number,
        flag=0,
        ext_fields=to_ext_fields(header),
        body=body,
    )


def batches(count: int, size: int, body: bytes) -> Iterator[RemotingCommand]:
    """Yield batches of `size` messages, each of which has a key, a tag and an id."""
    for number in range(count):
        items = [
            BatchItem(
                body,
                {
                    "KEYS": f"order-{number}-{each}",
                    "TAGS": "TagA",
                    "UNIQ_KEY": f"FD000000000000000000{number:08X}{each:04X}",
                    "WAIT": "true",
                },
            )
            for each in range(size)
        ]
        yield request(number, encode_batch(items), is_batch=True)


def cpu_us(requests: list[RemotingCommand]) -> float:
    """Return the CPU time, in us, in which a new broker handles all requests."""
    broker = Broker(BrokerState(BrokerSettings(), MemoryStore(), _NOW), BROKER_REQUESTS)
    start = time.process_time()
    for each in requests:
        broker.handle(_PEER, each, _NOW)
    return (time.process_time() - start) * 1e6


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--batch", type=int, default=200)
    parser.add_argument("--body-bytes", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    body = b"x" * args.body_bytes
    single = [request(each, body, is_batch=False) for each in range(args.messages)]
    batch_count = max(1, args.messages // args.batch)
    batched = list(batches(batch_count, args.batch, body))
    single_us = min(cpu_us(single) for _ in range(args.rounds)) / len(single)
    batch_us = min(cpu_us(batched) for _ in range(args.rounds))
    print(
        json.dumps(
            {
                "messages": args.messages,
                "body_bytes": args.body_bytes,
                "batch": args.batch,
                "single_cpu_us": round(single_us, 2),
                "batch_cpu_us_a_message": round(
                    batch_us / (batch_count * args.batch), 2
                ),
            }
        )
    )


if __name__ == "__main__":
    main()
