"""Simulates a cluster and its consumers, one history for each seed.

`python -m tests.simulation --seeds 1-20 --hours 24`. Many engines and the
embedded broker's cores run in one thread under a virtual clock, with faults; every
hour the cluster is healed and must come to rest. The exit status is 1 if a check
failed; the command that repeats the failure is printed.
"""

from __future__ import annotations

import argparse
import functools
import json
import logging
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from rmqcli import tasks
from rmqcli.clock import SYSTEM_CLOCK
from tests.simulation.cluster import Plan, SimCluster
from tests.simulation.faults import Faults
from tests.simulation.schedule import Schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_CYCLE_MS: Final = 3_600_000
_SLICE_MS: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of one seed. `duplicates` counts repeated successes, which may happen.

    `trimmed` and `skipped` count messages that were deleted, or skipped by a reset,
    before they were consumed.
    """

    seed: int
    mode: str
    hours: float
    history: str
    violations: list[str]
    events: int
    faults: int
    produced: int
    dead: int
    trimmed: int
    skipped: int
    duplicates: int
    failures: int
    settled_ms_max: int
    wall_ms: int


def simulate(
    plan: Plan,
    *,
    hours: float,
    with_faults: bool = True,
    trace: Callable[[str], None] | None = None,
) -> Result:
    """Simulate one seed, and heal the cluster each hour; stop at the first violation.

    An exception that the engine survived is a violation, too.
    """
    mode = "orderly" if plan.is_orderly else "concurrent"
    began_ms = SYSTEM_CLOCK.monotonic_ms()
    schedule = Schedule(f"{plan.seed} {mode}", trace=trace)
    cluster = SimCluster(plan, schedule)
    checker, faults = cluster.checker, Faults(cluster)
    defects = _Defects(checker.violation)
    defects.listen()
    end_ms = int(hours * 3_600_000)
    settled_ms_max = 0
    for _ in range(plan.members):
        cluster.join()
    while schedule.now_ms < end_ms and not checker.violations:
        cluster.produce()
        if with_faults:
            faults.begin()
        cycle_end_ms = min(end_ms, schedule.now_ms + _CYCLE_MS)
        while schedule.now_ms < cycle_end_ms and not checker.violations:
            schedule.run_until(min(cycle_end_ms, schedule.now_ms + _SLICE_MS))
        faults.end()
        if not checker.violations:
            cluster.heal()
            settled_ms_max = max(settled_ms_max, cluster.settle() or 0)
    if not checker.violations:
        cluster.close()
    if not with_faults and checker.duplicates:
        checker.violation(f"{checker.duplicates} duplicates without any fault")
    defects.end()
    return Result(
        seed=plan.seed,
        mode=mode,
        hours=hours,
        history=schedule.history_hash(),
        violations=checker.violations,
        events=schedule.events,
        faults=faults.count,
        produced=cluster.produced,
        dead=checker.dead,
        trimmed=checker.trimmed,
        skipped=checker.skipped,
        duplicates=checker.duplicates,
        failures=checker.failures,
        settled_ms_max=settled_ms_max,
        wall_ms=SYSTEM_CLOCK.monotonic_ms() - began_ms,
    )


class _Defects(logging.Handler):
    """Passes exceptions that the engine survived and logged to `violation`."""

    def __init__(self, violation: Callable[[str], None]) -> None:
        super().__init__(logging.ERROR)
        self._violation = violation
        self._logger = logging.getLogger(tasks.__name__)
        self._level_before = self._logger.level

    def listen(self) -> None:
        """Start to receive log records, whatever the level of other loggers is."""
        self._logger.setLevel(logging.ERROR)
        self._logger.addHandler(self)

    def end(self) -> None:
        """Restore the logger."""
        self._logger.removeHandler(self)
        self._logger.setLevel(self._level_before)

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        self._violation(self.format(record))


def main(argv: Sequence[str] | None = None) -> int:
    """Simulate what the arguments ask for, and return the exit status."""
    options = _parser().parse_args(argv)
    results = []
    for result in _results(options):
        results.append(result)
        if options.output == "text":
            _print(_line(result))
        if result.violations and options.output == "text":
            for violation in result.violations:
                _print(f"  {violation}")
            _print(f"  repeat with: {_replay(result, options)}")
    failed = [each for each in results if each.violations]
    if options.output == "json":
        summary = {
            "seeds": len(results),
            "failed": [_replay(each, options) for each in failed],
            "results": [asdict(each) for each in results],
        }
        _print(json.dumps(summary, indent=2))
    return 1 if failed else 0


def _results(options: argparse.Namespace) -> Iterator[Result]:
    """Yield the results of the plans in order, with `jobs` processes at work."""
    run = functools.partial(
        simulate,
        hours=options.hours,
        with_faults=not options.calm,
        trace=_to_stderr if options.trace else None,
    )
    # Logs about injected faults are only useful in a trace.
    level = logging.DEBUG if options.trace else logging.CRITICAL
    if options.jobs <= 1:
        _log_from(level)
        yield from map(run, _plans(options))
        return
    with ProcessPoolExecutor(
        options.jobs,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_log_from,
        initargs=(level,),
    ) as pool:
        yield from pool.map(run, _plans(options))


def _log_from(level: int) -> None:
    logging.basicConfig(level=level)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation", description=__doc__
    )
    parser.add_argument("--seeds", default="1-5", help="one seed, or FIRST-LAST")
    parser.add_argument("--hours", type=float, default=24.0, help="virtual hours")
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--orderly", dest="modes", action="store_const", const=(True,))
    modes.add_argument(
        "--concurrent", dest="modes", action="store_const", const=(False,)
    )
    modes.add_argument(
        "--both", dest="modes", action="store_const", const=(False, True)
    )
    parser.add_argument("--members", type=int, default=4)
    parser.add_argument(
        "--queues",
        type=int,
        default=16,
        help="number of queues on all brokers together",
    )
    parser.add_argument("--brokers", type=int, default=2)
    parser.add_argument("--rate", type=float, default=0.5, help="messages per second")
    parser.add_argument(
        "--jobs", type=int, default=1, help="number of seeds to run in parallel"
    )
    parser.add_argument("--resets", action="store_true", help="also reset offsets")
    parser.add_argument(
        "--async", dest="is_async", action="store_true", help="listeners are coroutines"
    )
    parser.add_argument("--calm", action="store_true", help="inject no faults")
    parser.add_argument(
        "--trace", action="store_true", help="print the history to stderr"
    )
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    parser.set_defaults(modes=(False, True))
    return parser


def _plans(options: argparse.Namespace) -> Iterator[Plan]:
    first, _, last = options.seeds.partition("-")
    for seed in range(int(first), int(last or first) + 1):
        for is_orderly in options.modes:
            yield Plan(
                seed=seed,
                is_orderly=is_orderly,
                members=options.members,
                queues=options.queues,
                brokers=options.brokers,
                messages_per_s=options.rate,
                has_resets=options.resets,
                is_async=options.is_async,
            )


def _line(result: Result) -> str:
    state = "FAILED" if result.violations else "ok"
    return (
        f"seed {result.seed} {result.mode} {state} {result.history}"
        f" messages={result.produced} duplicates={result.duplicates}"
        f" failures={result.failures} dead={result.dead} trimmed={result.trimmed}"
        f" skipped={result.skipped}"
        f" faults={result.faults} events={result.events}"
        f" settled_ms={result.settled_ms_max} wall_ms={result.wall_ms}"
    )


def _replay(result: Result, options: argparse.Namespace) -> str:
    calm = " --calm" if options.calm else ""
    resets = " --resets" if options.resets else ""
    resets += " --async" if options.is_async else ""
    return (
        f"python -m tests.simulation --seeds {result.seed} --{result.mode}"
        f" --hours {options.hours:g} --members {options.members}"
        f" --queues {options.queues} --brokers {options.brokers}"
        f" --rate {options.rate:g}{resets}{calm}"
    )


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _to_stderr(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    # Processes of --jobs cannot import what the module __main__ defines.
    from tests.simulation import __main__ as importable

    sys.exit(importable.main())
