"""Ids say who made them and when, and never repeat."""

from __future__ import annotations

import os
import random
from datetime import UTC, datetime

from rmqcli.producer.ids import ProxyMessageIds, UniqueIds
from rmqcli.testing.clock import ManualClock
from rmqcli.wire.ids import decode_unique_id

# Any moment in a month of 31 days: past 24.8 days the field exceeds 31 bits.
NOW_MS = 1_767_322_800_000


def test_an_id_says_where_and_when():
    clock = ManualClock(NOW_MS)
    ids = UniqueIds("10.0.0.9", clock=clock, rng=random.Random(1))
    first, second = decode_unique_id(ids.next_id()), decode_unique_id(ids.next_id())
    assert (first.ip, first.pid) == ("10.0.0.9", os.getpid() & 0xFFFF)
    assert (first.counter, second.counter) == (1, 2)
    assert first.since_month_start_ms == second.since_month_start_ms
    clock.advance(5)
    third = decode_unique_id(ids.next_id())
    assert third.since_month_start_ms == first.since_month_start_ms + 5


def test_the_time_of_an_id_begins_anew_with_the_month():
    first_of_march = (
        datetime.now(UTC)
        .astimezone()
        .replace(year=2026, month=3, day=1, hour=0, minute=0, second=0, microsecond=0)
    )
    clock = ManualClock(int(first_of_march.timestamp() * 1_000) - 1)
    ids = UniqueIds("10.0.0.9", clock=clock, rng=random.Random(1))
    since_ms = []
    for _ in range(3):
        since_ms.append(decode_unique_id(ids.next_id()).since_month_start_ms)
        clock.advance(1)
    assert since_ms == [28 * 86_400_000 - 1, 0, 1]


def test_an_id_of_an_ipv6_host_is_longer():
    clock = ManualClock(NOW_MS)
    ids = UniqueIds("fe80::1", clock=clock, rng=random.Random(1))
    assert len(ids.next_id()) == 56


def test_a_hundred_thousand_ids_in_two_milliseconds_differ():
    """The counter has 16 bits; it is the time that tells later rounds apart."""
    clock = ManualClock(NOW_MS)
    ids = UniqueIds("10.0.0.9", clock=clock, rng=random.Random(1))
    made = {ids.next_id() for _ in range(50_000)}
    clock.advance(1)
    made |= {ids.next_id() for _ in range(50_000)}
    assert len(made) == 100_000


def test_two_processes_with_one_pid_and_address_differ():
    clock = ManualClock(NOW_MS)
    one = UniqueIds("10.0.0.9", clock=clock, rng=random.Random(1))
    other = UniqueIds("10.0.0.9", clock=clock, rng=random.Random(2))
    assert one.next_id() != other.next_id()


def test_an_id_for_a_proxy_has_machine_process_seconds_since_2021_and_a_number():
    clock = ManualClock(NOW_MS)
    ids = ProxyMessageIds(clock=clock, rng=random.Random(1))
    first, second = ids.next_id(), ids.next_id()
    clock.advance(1_000)
    third = ids.next_id()
    assert (len(first), first[:2]) == (34, "01")
    assert first[14:18] == f"{os.getpid() & 0xFFFF:04X}"
    assert [each[18:] for each in (first, second, third)] == [
        "0968CEB000000000",
        "0968CEB000000001",
        "0968CEB100000002",
    ]
    assert first[:18] == second[:18] == third[:18]


def test_ids_for_a_proxy_of_two_machines_with_one_pid_differ():
    clock = ManualClock(NOW_MS)
    one = ProxyMessageIds(clock=clock, rng=random.Random(1))
    other = ProxyMessageIds(clock=clock, rng=random.Random(2))
    assert one.next_id() != other.next_id()
