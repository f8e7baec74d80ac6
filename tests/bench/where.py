"""Measure `--where`: `python -m tests.bench.where [--records N]`.

Prints one JSON object: messages per second of CPU time, best of all rounds, for reading
stored messages without a condition, and with one on properties, and on JSON bodies. The
messages are decoded each time, as `rmq tail` does with what a broker sent.
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from rmqcli.admin.tail.where import parse_where
from rmqcli.decode import parse_decode
from rmqcli.wire.message.decode import StoredMessage, decode_messages
from rmqcli.wire.message.encode import MessageFields, encode_message
from tests.bench.decode import best_rate

if TYPE_CHECKING:
    from collections.abc import Callable

CONDITIONS = {
    "none": "TRUE",
    "fields": "tags = 'TagA' AND queue_offset > 5",
    "properties": "properties.region = 'eu' AND properties.amount > 5",
    "values": "value.customer.id > 50 AND value.state IN ('NEW', 'PAID')",
}


def make_chunks(records: int, *, per_chunk: int) -> list[bytes]:
    """Return bodies of pull answers with orders of about 120 bytes each."""
    made = [
        encode_message(
            MessageFields(
                topic="orders",
                body=json.dumps(
                    {
                        "id": number,
                        "customer": {"id": number % 100, "name": "customer"},
                        "state": ("NEW", "PAID", "SENT")[number % 3],
                        "lines": [{"sku": "A-1", "count": 2}],
                    }
                ).encode(),
                queue_offset=number,
                properties={
                    "UNIQ_KEY": f"0A00000100002A139A550000{number:08X}",
                    "TAGS": "TagA",
                    "region": ("eu", "us")[number % 2],
                    "amount": str(number % 20),
                },
            )
        )
        for number in range(records)
    ]
    return [
        b"".join(made[start : start + per_chunk])
        for start in range(0, records, per_chunk)
    ]


def main() -> None:
    """Print the rates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    chunks = make_chunks(options.records, per_chunk=32)
    decode = parse_decode("json")
    rates = {}
    for name, text in CONDITIONS.items():
        where = parse_where(text, decode=decode)

        def read(
            matches: Callable[[StoredMessage], bool] = where.matches,
            count: int = options.records,
        ) -> int:
            chosen = 0
            for chunk in chunks:
                for message in decode_messages(chunk):
                    if isinstance(message, StoredMessage) and matches(message):
                        chosen += 1
            assert chosen
            return count

        rates[name] = round(best_rate(read, rounds=options.rounds) * 1_000_000)
    print(json.dumps({"messages_per_s_of_cpu": rates}))


if __name__ == "__main__":
    main()
