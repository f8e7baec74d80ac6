"""Measure the ProcessQueue: `python -m tests.bench.process_queue [--messages N]`.

Prints one JSON object: millions of messages per second of CPU time, best of all rounds.
Only the calls of the ProcessQueue are measured; the messages are created before.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import time
from typing import TYPE_CHECKING

from rmqcli.engine.process_queue import ProcessQueue
from rmqcli.model import MessageQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

QUEUE = MessageQueue("orders", "broker-a", 0)
CACHED_RUNS = 31  # 992 messages, about what flow control lets in


class Message:
    """A message as small as a stored one."""

    __slots__ = ("body_bytes", "queue_offset")

    def __init__(self, queue_offset: int) -> None:
        self.queue_offset = queue_offset
        self.body_bytes = 128


Runs = list[list[Message]]


def make_runs(messages: int, per_run: int) -> Runs:
    """Return messages of one queue, in runs as pulls return them."""
    return [
        [Message(offset) for offset in range(start, start + per_run)]
        for start in range(0, messages, per_run)
    ]


def _put_and_remove(puts: Runs, removes: Sequence[Sequence[Message]]) -> None:
    """Put and remove in turn, with `CACHED_RUNS` times 32 messages cached."""
    queue: ProcessQueue[Message] = ProcessQueue(QUEUE, 0)
    ahead = CACHED_RUNS * 32 // len(puts[0])
    for run in puts[:ahead]:
        queue.put_message(run)
    each = len(removes) // len(puts) or 1
    at = 0
    for run in puts[ahead:]:
        queue.put_message(run)
        for batch in removes[at : at + each]:
            queue.remove_message(batch, 0)
        at += each
    for batch in removes[at:]:
        queue.remove_message(batch, 0)
    assert not queue.msg_count
    assert not queue.msg_size_bytes


def _shuffled(runs: Runs, *, together: int) -> list[list[Message]]:
    """Return batches of one message, shuffled within each `together` runs."""
    numbers = random.Random(7)
    batches = []
    for start in range(0, len(runs), together):
        group = [[m] for run in runs[start : start + together] for m in run]
        numbers.shuffle(group)
        batches += group
    return batches


def _take_and_commit(runs: Runs, count: int) -> None:
    queue: ProcessQueue[Message] = ProcessQueue(QUEUE, 0)
    for run in runs[:CACHED_RUNS]:
        queue.put_message(run)
    for run in runs[CACHED_RUNS:]:
        queue.put_message(run)
        for _ in range(0, len(run), count):
            queue.take_messages(count, 0)
            queue.commit()
    while queue.take_messages(count, 0):
        queue.commit()
    assert not queue.msg_count


def best_rate(work: Callable[[], None], messages: int, *, rounds: int) -> float:
    """Return millions of messages per second of CPU time, in the best round."""
    best = 0.0
    for _ in range(rounds):
        gc.collect()
        started_ns = time.process_time_ns()
        work()
        best = max(best, messages * 1000 / (time.process_time_ns() - started_ns))
    return round(best, 3)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=320_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    messages = max(options.messages // 320, CACHED_RUNS) * 320
    runs = make_runs(messages, 32)
    ones = make_runs(messages, 1)
    copies = [list(run) for run in runs]
    halves = [half for run in runs for half in (run[:16], run[16:])]
    by_four = [run[n::4] for run in runs for n in range(4)]
    in_order = [[m] for run in runs for m in run]
    random_order = _shuffled(runs, together=10)
    works: dict[str, Callable[[], None]] = {
        "runs_of_32": lambda: _put_and_remove(runs, runs),
        "runs_of_32_removed_as_other_lists": lambda: _put_and_remove(runs, copies),
        "runs_of_32_removed_by_halves": lambda: _put_and_remove(runs, halves),
        "runs_of_32_removed_as_four_threads_do": lambda: _put_and_remove(runs, by_four),
        "runs_of_32_removed_one_by_one": lambda: _put_and_remove(runs, in_order),
        "runs_of_32_removed_at_random": lambda: _put_and_remove(runs, random_order),
        "runs_of_1": lambda: _put_and_remove(ones, ones),
        "orderly_take_32_and_commit": lambda: _take_and_commit(runs, 32),
        "orderly_take_1_and_commit": lambda: _take_and_commit(runs, 1),
    }
    rates = {
        name: best_rate(work, messages, rounds=options.rounds)
        for name, work in works.items()
    }
    print(json.dumps({"unit": "M messages per CPU second", **rates}, indent=2))


if __name__ == "__main__":
    main()
