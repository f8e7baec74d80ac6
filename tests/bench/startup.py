"""Measure the start of `rmq`, as a multiple of a Python process that does nothing.

    python -m tests.bench.startup

Prints medians of 21 runs each, and of their CPU time, which is the figure to watch on a
busy machine. The last command's profile is in a file of profiles, which should add 2 ms
at most. The commands alternate, there and back (A B B A), so that a change of the
machine's load affects all of them alike. Modules are compiled before, as in an
installed `rmq`. The targets are 3.5 for `rmq --version` and 7 for `rmq lag GROUP`.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

from rmqcli.broker.cluster.embedded import EmbeddedCluster

RUNS = 21
GROUP = "G"


def run(command, environ):
    """Return the milliseconds that `command` takes, and those of its CPU time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.perf_counter()
    subprocess.run(
        command,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=True,
    )
    wall_s = time.perf_counter() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return wall_s * 1000, cpu_s * 1000


def measure(namesrv, environ):
    """Return the milliseconds of each run and of its CPU time, by command."""
    rmq = [sys.executable, "-m", "rmqcli"]
    config = os.path.join(environ["XDG_STATE_HOME"], "rmq")
    os.makedirs(config)
    with open(os.path.join(config, "config.toml"), "w", encoding="utf-8") as file:
        file.write(f'use = "p"\n[profiles.p]\nnamesrv = "{namesrv}"\n')
    with_profile = {**environ, "XDG_CONFIG_HOME": environ["XDG_STATE_HOME"]}
    commands = {
        "python -c pass": ([sys.executable, "-c", "pass"], environ),
        "rmq --version": ([*rmq, "--version"], environ),
        "rmq --help": ([*rmq, "--help"], environ),
        f"rmq lag {GROUP}": ([*rmq, "lag", GROUP, "-n", namesrv], environ),
        "by a profile": ([*rmq, "lag", GROUP], with_profile),
    }
    for command, variables in commands.values():
        run(command, variables)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    order = list(commands.items())
    for _ in range(RUNS):
        for name, (command, variables) in order:
            found[name].append(run(command, variables))
        order.reverse()
    return found


def main():
    """Print the medians and their ratios."""
    with tempfile.TemporaryDirectory() as folder, EmbeddedCluster(queues=4) as cluster:
        cluster.create_topic("T")
        cluster.create_group(GROUP)
        cluster.send("T", ["x"] * 100)
        environ = {
            **os.environ,
            "PYTHONPYCACHEPREFIX": os.path.join(folder, "compiled"),
            "XDG_STATE_HOME": os.path.join(folder, "state"),
            "XDG_CACHE_HOME": os.path.join(folder, "cache"),
            "XDG_CONFIG_HOME": os.path.join(folder, "no-config"),
        }
        for name in ("PYTHONDONTWRITEBYTECODE", "NAMESRV_ADDR", "RMQ_PROFILE"):
            environ.pop(name, None)
        found = measure(cluster.namesrv, environ)
    medians = {
        name: [statistics.median(each) for each in zip(*runs, strict=True)]
        for name, runs in found.items()
    }
    bare, _ = medians["python -c pass"]
    for name, (wall, cpu) in medians.items():
        print(f"{name:16} {wall:7.1f} ms  {wall / bare:5.2f} x  CPU {cpu:6.1f} ms")
    by_option, by_profile = medians[f"rmq lag {GROUP}"], medians["by a profile"]
    added = [other - one for one, other in zip(by_option, by_profile, strict=True)]
    print(f"a profile adds {added[0]:.1f} ms, CPU {added[1]:.1f} ms")


if __name__ == "__main__":
    main()
