"""The ids that a producer gives its messages (UNIQ_KEY), in Java's formats.

Source: MessageClientIDSetter in apache/rocketmq.
"""

from __future__ import annotations

import itertools
import os
import struct
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rmqcli.wire.ids import UniqueId, encode_unique_id, since_month_start_ms

if TYPE_CHECKING:
    import random

    from rmqcli.clock import Clock

_TAIL_DIGITS = 12
_COUNTER_MASK = 0xFFFF
_SECONDS_AND_COUNTER = struct.Struct(">II")
_UINT32_MAX = 0xFFFFFFFF
_SECONDS_OF_2021 = 1_609_459_200


class UniqueIds:
    """Creates ids that no other process creates, in this machine's time zone.

    Java distinguishes the processes of a machine by pid and the class loader's hash.
    Here a random number replaces the hash, because containers share pids and addresses.
    """

    def __init__(self, ip: str, *, clock: Clock, rng: random.Random) -> None:
        self._clock = clock
        self._tz = datetime.now(UTC).astimezone().tzinfo or UTC
        self._counter = 0
        self._now_ms = self._second = -1
        #: of the month of `_second`; months begin with a whole second
        self._month_start_ms = 0
        #: all of an id but its counter, in the millisecond `_now_ms`
        self._head = ""
        self._prefix = encode_unique_id(
            UniqueId(
                ip=ip,
                pid=os.getpid(),
                class_loader_hash=rng.getrandbits(32),
                since_month_start_ms=0,
                counter=0,
            )
        )[:-_TAIL_DIGITS]

    def next_id(self) -> str:
        """A new id."""
        now_ms = self._clock.epoch_ms()
        if now_ms != self._now_ms:
            self._now_ms = now_ms
            if now_ms // 1_000 != self._second:
                self._second = now_ms // 1_000
                since_ms = since_month_start_ms(now_ms, tz=self._tz)
                self._month_start_ms = now_ms - since_ms
            since_ms = (now_ms - self._month_start_ms) & _UINT32_MAX
            self._head = f"{self._prefix}{since_ms:08X}"
        self._counter = (self._counter + 1) & _COUNTER_MASK
        return f"{self._head}{self._counter:04X}"


class ProxyMessageIds:
    """Creates ids of version 1, like the gRPC clients of RocketMQ: 34 digits.

    An id contains 6 bytes for the machine, here random because containers share
    addresses, 2 bytes of the process id, the seconds since 2021, and a counter.

    Source: MessageIdCodec in apache/rocketmq-clients.
    """

    def __init__(self, *, clock: Clock, rng: random.Random) -> None:
        self._clock = clock
        machine = rng.getrandbits(48).to_bytes(6, "big")
        process = (os.getpid() & _COUNTER_MASK).to_bytes(2, "big")
        self._prefix = "01" + (machine + process).hex().upper()
        self._counter = itertools.count()

    def next_id(self) -> str:
        """A new id. Thread-safe."""
        seconds = self._clock.epoch_ms() // 1_000 - _SECONDS_OF_2021
        number = next(self._counter)
        tail = _SECONDS_AND_COUNTER.pack(seconds & _UINT32_MAX, number & _UINT32_MAX)
        return self._prefix + tail.hex().upper()
