"""How fast a group of one consumes, beside Java's DefaultMQPushConsumer. Prints JSON.

    python -m tests.bench.consume [--version 5.5.0] [--messages 2000000] [--queues 8]
        [--mode concurrent|batch32|orderly] [--namesrv HOST:PORT --topic T]

Defaults, bodies of 128 bytes. The broker is warmed by one read of everything, not
measured; then Java, ours, ours, Java, each in a new group from the first offset, one
line each; at last the medians, ours to Java's, and what is to be reached. On a busy
machine messages per CPU second is the figure to watch.
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

#: What is to be reached: ours to Java's. `start_s` is in seconds and of ours.
REACH = {
    "concurrent": {"messages_per_s": 1.0, "messages_per_cpu_s": 1.8},
    "batch32": {"messages_per_s": 1.05},
    "orderly": {"messages_per_s": 0.9},
}
START_S_MAX = 0.5


def summary(mode: str, runs: dict[str, list[dict[str, float]]]) -> dict[str, object]:
    """Medians, ratios, and whether what is to be reached was."""
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
    """Warm, measure in turns, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", default="5.5.0")
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--queues", type=int, default=8)
    parser.add_argument("--mode", choices=MODES, action="append")
    parser.add_argument("--rounds", type=int, default=1, help="of A B B A")
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
