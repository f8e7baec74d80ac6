"""Measure whether the memory of `rmq tail` stays flat over long ranges. Prints JSON.

    python -m tests.bench.tail_memory [--messages 2000000] [--namesrv HOST:PORT]

Reads an eighth, a quarter, half and all of the range. The peak must not grow with it.
"""

from __future__ import annotations

import argparse
import json

from tests.bench.tail import QUEUES, measured, topic_of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", default="5.5.0")
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--namesrv")
    parser.add_argument("--topic", default="bench")
    options = parser.parse_args()
    with topic_of(options) as (namesrv, topic):
        for share in (8, 4, 2, 1):
            in_queue = options.messages // QUEUES // share
            result = measured(
                [topic, "-n", namesrv, "--from", "earliest", "--to", f"+{in_queue}"]
            )
            line = {"messages": in_queue * QUEUES, "peak_mib": result["peak_mib"]}
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
