"""Measure the gain of handing the engine off to consume threads. Prints JSON.

    python -m tests.bench.consume.engine_thread [--version 5.5.0] [--messages 2000000]
        [--queues 8] [--mode concurrent|batch32|orderly] [--rounds 1]
        [--namesrv HOST:PORT --topic T]

The listener only counts, and bodies have 128 bytes. For each mode, the plain engine
thread runs, then the leasing one twice, then the plain one, each in a new group from
the first offset, with one line of output each. At the end come the ratios of the
medians, leasing to plain.
"""

from __future__ import annotations

import argparse
import json
import statistics

from tests.bench.consume.members import MODES, OURS, MemberProcess, figures, filled

PLAIN, LEASING = "plain", "leasing"
#: A B B A: drift (heat, page cache, the broker's compiler) affects both alike.
ORDER = (PLAIN, LEASING, LEASING, PLAIN)


def main() -> None:
    """Measure in turns, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", default="5.5.0")
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--queues", type=int, default=8)
    parser.add_argument("--mode", choices=MODES, action="append")
    parser.add_argument(
        "--rounds", type=int, default=1, help="Number of A B B A rounds."
    )
    parser.add_argument("--namesrv")
    parser.add_argument("--topic", default="bench")
    options = parser.parse_args()
    with filled(options) as at:
        for mode in options.mode or MODES:
            runs: dict[str, list[dict[str, float]]] = {PLAIN: [], LEASING: []}
            for name in ORDER * options.rounds:
                settings = {"messages": options.messages, "plain": name == PLAIN}
                with MemberProcess(OURS, at, MODES[mode] | settings) as member:
                    run = figures(member.until_done())
                print(json.dumps({"engine_thread": name, "mode": mode, **run}))
                runs[name].append(run)
            ratios = {
                figure: round(
                    statistics.median(run[figure] for run in runs[LEASING])
                    / statistics.median(run[figure] for run in runs[PLAIN]),
                    2,
                )
                for figure in ("messages_per_s", "messages_per_cpu_s")
            }
            print(json.dumps({"mode": mode, "leasing_to_plain": ratios}), flush=True)


if __name__ == "__main__":
    main()
