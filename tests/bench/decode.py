"""Measure message decoding: `python -m tests.bench.decode [--records N]`.

Prints one JSON object: millions of messages per second of CPU time, best of all rounds.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from typing import TYPE_CHECKING

from rmqcli.wire.message.decode import StoredMessage, decode_messages
from rmqcli.wire.message.encode import MessageFields, encode_message

if TYPE_CHECKING:
    from collections.abc import Callable


def make_bodies(records: int, *, per_body: int, body_bytes: int) -> list[bytes]:
    """Return bodies of pull answers: `per_body` records with four properties each."""
    made = [
        encode_message(
            MessageFields(
                topic="TopicTest",
                body=b"x" * body_bytes,
                queue_id=3,
                queue_offset=offset,
                commit_log_offset=offset * 250,
                born_timestamp_ms=1_700_000_000_000 + offset,
                born_host="10.0.0.1:12345",
                store_timestamp_ms=1_700_000_000_123 + offset,
                store_host="10.0.0.2:10911",
                properties={
                    "UNIQ_KEY": f"0A00000100002A139A550000{offset:08X}",
                    "KEYS": f"order-{offset}",
                    "TAGS": "TagA",
                    "WAIT": "true",
                },
            )
        )
        for offset in range(records)
    ]
    return [
        b"".join(made[start : start + per_body])
        for start in range(0, records, per_body)
    ]


def best_rate(work: Callable[[], int], *, rounds: int) -> float:
    """Return millions of items per second of CPU time, in the best round."""
    best = 0.0
    for _ in range(rounds):
        gc.collect()
        started_ns = time.process_time_ns()
        items = work()
        best = max(best, items * 1000 / (time.process_time_ns() - started_ns))
    return round(best, 3)


def _decode_each(
    bodies: list[bytes], read: Callable[[StoredMessage], object] | None
) -> int:
    count = 0
    for body in bodies:
        messages = decode_messages(body)
        count += len(messages)
        if read is not None:
            for message in messages:
                assert isinstance(message, StoredMessage)
                read(message)
    return count


def _decode_columns(
    bodies: list[bytes], bodies_per_batch: int, columns: list[str] | None
) -> int:
    from rmqcli.wire.message.columns import decode_columns

    count = 0
    for start in range(0, len(bodies), bodies_per_batch):
        result = decode_columns(
            bodies[start : start + bodies_per_batch],
            topic="TopicTest",
            broker_name="broker-a",
            columns=columns,
        )
        count += result.batch.num_rows
    return count


def _read_all(message: StoredMessage) -> object:
    return (
        message.queue_id,
        message.queue_offset,
        message.commit_log_offset,
        message.born_timestamp_ms,
        message.store_timestamp_ms,
        message.topic,
        message.body,
        message.properties,
        message.tags,
        message.keys,
        message.msg_id,
        message.born_host,
        message.store_host,
        message.offset_msg_id,
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=50_000)
    parser.add_argument("--per-body", type=int, default=1000)
    parser.add_argument("--body-bytes", type=int, default=100)
    parser.add_argument(
        "--batch",
        type=int,
        default=10_000,
        help="Rows per batch when decoding into columns.",
    )
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    bodies = make_bodies(
        args.records, per_body=args.per_body, body_bytes=args.body_bytes
    )
    reads: dict[str, Callable[[StoredMessage], object] | None] = {
        "fixed_fields": None,
        "and_body": lambda message: message.body,
        "and_tags": lambda message: message.tags,
        "and_properties": lambda message: message.properties,
        "everything": _read_all,
    }
    result: dict[str, float] = {
        "bytes_per_record": round(sum(map(len, bodies)) / args.records, 1)
    }
    for name, read in reads.items():
        result[name] = best_rate(
            lambda read=read: _decode_each(bodies, read),  # type: ignore[misc]
            rounds=args.rounds,
        )
    for name, columns in (("columns", None), ("column_of_offsets", ["queue_offset"])):
        result[name] = best_rate(
            lambda columns=columns: _decode_columns(  # type: ignore[misc]
                bodies, args.batch // args.per_body, columns
            ),
            rounds=args.rounds,
        )
    print(json.dumps(result))


if __name__ == "__main__":
    main()
