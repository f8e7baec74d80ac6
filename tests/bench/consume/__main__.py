"""Measure one consumer, compared with Java's DefaultMQPushConsumer. Prints JSON.

    python -m tests.bench.consume [--version 5.5.0] [--messages 2000000] [--queues 8]
        [--mode concurrent|batch32|orderly] [--namesrv HOST:PORT --topic T]

Both consumers have their defaults, and bodies have 128 bytes. The broker is warmed up
by reading everything once, without measuring. Then Java, ours, ours and Java run, each
in a new group from the first offset, with one line of output each. At the end come the
medians, the ratios of ours to Java's, and the targets. On a busy machine, the figure to
watch is messages per second of CPU time.
"""

from __future__ import annotations

import argparse
import json
import statistics

from tests.bench.consume.members import (
    JAVA,
    MODES,
    ORDER,
    OURS,
    filled,
    measured,
)

#: Targets for the ratios of our figures to Java's; START_S_MAX is one for ours alone.
REACH = {
    "concurrent": {"messages_per_s": 1.0, "messages_per_cpu_s": 1.8},
    "batch32": {"messages_per_s": 1.05},
    "orderly": {"messages_per_s": 0.9},
}
START_S_MAX = 0.5


def summary(mode: str, runs: dict[str, list[dict[str, float]]]) -> dict[str, object]:
    """Return medians and ratios, and whether the targets are reached."""
    medians = {
        who: {name: statistics.median(r[name] for r in each) for name in each[0]}
        for who, each in runs.items()
    }
    ratios = {
        name: round(medians[OURS][name] / medians[JAVA][name], 3)
        for name in ("messages_per_s", "messages_per_cpu_s")
    }
    reach = REACH[mode]
    return {
        "bench": "consume",
        "mode": mode,
        "median": medians,
        "ours_to_java": ratios,
        "reach": {**reach, "start_s": START_S_MAX},
        "is_reached": {
            **{name: ratios[name] >= wanted for name, wanted in reach.items()},
            "start_s": medians[OURS]["start_s"] <= START_S_MAX,
        },
    }


def main() -> None:
    """Warm up the broker, measure in turns, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", default="5.5.0")
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--queues", type=int, default=8)
    parser.add_argument("--mode", choices=MODES, action="append")
    parser.add_argument(
        "--rounds", type=int, default=1, help="Number of A B B A rounds."
    )
    parser.add_argument("--only", choices=(JAVA, OURS))
    parser.add_argument("--namesrv")
    parser.add_argument("--topic", default="bench")
    options = parser.parse_args()
    order = [who for who in ORDER * options.rounds if options.only in (None, who)]
    with filled(options) as at:
        measured(order[0], at, mode="batch32", messages=options.messages)
        for mode in options.mode or MODES:
            runs: dict[str, list[dict[str, float]]] = {}
            for who in order:
                run = measured(who, at, mode=mode, messages=options.messages)
                print(json.dumps({"who": who, "mode": mode, **run}), flush=True)
                runs.setdefault(who, []).append(run)
            if len(runs) > 1:
                print(json.dumps(summary(mode, runs)), flush=True)


if __name__ == "__main__":
    main()
