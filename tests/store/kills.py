"""Kills a writing process again and again: nothing acknowledged may be lost.

    python -m tests.store.kills --kills 100

A child process appends batches and calls `flush` before each acknowledgement, like a
broker with synchronous flush. It is killed at a random moment, and then the folder is
opened again.
"""

from __future__ import annotations

import argparse
import os
import random
import select
import signal
import struct
import tempfile
import time
from pathlib import Path

from rmqcli.store.disk_store import DiskStore
from tests.store.folders import TINY, message, number_of, stored

QUEUES = 3
#: The number of a batch's first message, and the count of its messages.
_ACKNOWLEDGED = struct.Struct(">qi")


def write_until_killed(folder, first, seed, out):
    """Append batches for ever, acknowledging each once it is flushed. Never returns."""
    rng = random.Random(seed)
    store = DiskStore(folder, TINY)
    while True:
        count = rng.choice((1, 1, 1, 2, 7, 60))
        batch = [
            message(number, queue_id=number % QUEUES)
            for number in range(first, first + count)
        ]
        store.append(batch, tags_codes=[65] * count)
        store.flush()
        os.write(out, _ACKNOWLEDGED.pack(first, count))
        first += count


def kill_once(folder, first, seed):
    """Run a child until it is killed; return the numbers that it acknowledged."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        write_until_killed(folder, first, seed, writing)
    os.close(writing)
    rng = random.Random(seed + 1)
    data = b""
    # Wait for its first acknowledgement, so that each child has written something.
    data += os.read(reading, 1 << 16)
    # Not select(), which refuses the numbers of a process with many open files.
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    until = time.monotonic() + rng.uniform(0, 0.05)
    while (left := until - time.monotonic()) > 0:
        if poll.poll(left * 1000):
            data += os.read(reading, 1 << 16)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    while more := os.read(reading, 1 << 16):
        data += more
    os.close(reading)
    whole = len(data) - len(data) % _ACKNOWLEDGED.size
    return [
        number
        for start, count in _ACKNOWLEDGED.iter_unpack(data[:whole])
        for number in range(start, start + count)
    ]


def numbers_stored(store):
    """Return the numbers of the messages in the queues, after checking each one."""
    numbers = set()
    for queue_id in range(QUEUES):
        low, high = store.queue_bounds("orders", queue_id) or (0, 0)
        units = store.units("orders", queue_id, low, high - low)
        assert low == 0
        assert len(units) == high
        found = stored(store.read_units(units))
        assert [each.queue_offset for each in found] == list(range(high))
        for unit, each in zip(units, found, strict=True):
            number = number_of(each)
            assert number not in numbers, f"message {number} is there twice"
            assert each.commit_log_offset == unit.commit_log_offset
            assert each.raw_body == message(number).body
            numbers.add(number)
    return numbers


def check(folder, acknowledged):
    """Open the store, check messages and index; return the number to continue with."""
    store = DiskStore(folder, TINY)
    try:
        numbers = numbers_stored(store)
        missing = set(acknowledged) - numbers
        assert not missing, f"acknowledged and lost: {sorted(missing)[:10]}"
        for number in sorted(numbers)[-20:]:
            found = store.query_index(
                "orders", f"order-{number}", begin_ms=0, end_ms=2**62, count_max=9
            )
            assert len(found) == 1, f"message {number} has index entries {found}"
    finally:
        if len(acknowledged) % 2:
            store.close()
        else:
            store.abandon()
    return max(numbers, default=-1) + 1


def run(folder, *, kills, seed):
    """Kill `kills` children in turn; return how many messages were acknowledged."""
    acknowledged = []
    following = 0
    for number in range(kills):
        acknowledged += kill_once(folder, following, seed + number)
        following = check(folder, acknowledged)
    return len(acknowledged)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    print(f"seed {options.seed}")
    with tempfile.TemporaryDirectory(prefix="rmq-kills-") as directory:
        count = run(Path(directory), kills=options.kills, seed=options.seed)
    print(f"{options.kills} kills, {count} messages acknowledged, none lost")


if __name__ == "__main__":
    main()
