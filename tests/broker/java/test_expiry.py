"""Which connections a broker closes when heartbeats no longer name a group."""

from __future__ import annotations

import json
import select
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from rmqcli.broker.cluster.embedded import EmbeddedCluster
from tests.broker.wire_client import WireClient

if TYPE_CHECKING:
    from rmqcli.wire.command import RemotingCommand

pytestmark = [pytest.mark.rmq_versions("5.5.0"), pytest.mark.slow]

#: A group expires after 120 s, and a broker looks every 10 s.
EXPIRED_S = 135
BEAT_S = 20


class Member:
    """A client that sends heartbeats on one connection."""

    def __init__(self, address: str, client_id: str) -> None:
        self._client = WireClient(address)
        self._id = client_id

    def beat(self, *, producers=(), consumers=()) -> None:
        data = {
            "clientID": self._id,
            "producerDataSet": [{"groupName": each} for each in producers],
            "consumerDataSet": [
                {
                    "groupName": each,
                    "consumeType": "CONSUME_PASSIVELY",
                    "messageModel": "CLUSTERING",
                    "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                    "subscriptionDataSet": [],
                    "unitMode": False,
                }
                for each in consumers
            ],
        }
        with suppress(ConnectionError, EOFError):  # `is_closed` shows it
            opaque = self._client.send(34, body=json.dumps(data).encode())
            while not self._is_answer(self._client.receive(), opaque):
                pass  # a notice of the group's change

    def _is_answer(self, command: RemotingCommand, opaque: int) -> bool:
        return command.is_response and command.opaque == opaque

    def is_closed(self) -> bool:
        sock = self._client.sock
        while select.select([sock], [], [], 0)[0]:
            try:
                if not sock.recv(1 << 16):
                    return True
            except ConnectionError:
                return True
        return False

    def close(self) -> None:
        self._client.sock.close()


def closed_of(address: str) -> list[str]:
    """Let groups expire; return which connections the broker closed."""
    names = ("one heartbeat", "later heartbeat", "later producer")
    together, later, producer = members = [Member(address, each) for each in names]
    together.beat(producers=["p1"], consumers=["c1"])
    later.beat(producers=["p2"])
    later.beat(consumers=["c2"])
    producer.beat(producers=["p3"])
    producer.beat(producers=["p3", "p4"])
    end = time.monotonic() + EXPIRED_S
    while (left := end - time.monotonic()) > 0:
        together.beat(consumers=["c1"])
        later.beat(consumers=["c2"])
        producer.beat(producers=["p3"])
        select.select([], [], [], min(left, BEAT_S))
    closed = [
        name for name, member in zip(names, members, strict=True) if member.is_closed()
    ]
    for member in members:
        member.close()
    return sorted(closed)


def test_a_group_that_joined_with_a_later_heartbeat_costs_the_connection(real_cluster):
    """Groups that joined with one heartbeat stay as long as one of them is named."""
    with EmbeddedCluster() as ours, ThreadPoolExecutor() as pool:
        addresses = (real_cluster.broker_address(), ours.broker().address)
        found = list(pool.map(closed_of, addresses))

    assert found == [["later heartbeat", "later producer"]] * 2
