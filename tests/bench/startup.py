"""Measure the start of `rmq`, as a multiple of a Python process that does nothing.

    python -m tests.bench.startup

Prints medians of 21 runs each. The last command's profile is in a file of profiles,
which should add 2 ms at most. The commands alternate, so that a change of the
machine's load affects all of them alike. Modules are compiled before, as in an
installed `rmq`. The targets are 3.5 for `rmq --version` and 7 for `rmq lag GROUP`.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time

from rmqcli.broker.cluster.embedded import EmbeddedCluster

RUNS = 21
GROUP = "G"


def run(command, environ):
    """Return the milliseconds that `command` takes."""
    begun = time.perf_counter()
    subprocess.run(
        command,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=True,
    )
    return (time.perf_counter() - begun) * 1000


def measure(namesrv, environ):
    """Return the milliseconds of each run, by command."""
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
    found: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(RUNS):
        for name, (command, variables) in commands.items():
            found[name].append(run(command, variables))
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
    bare, *_ = medians = [statistics.median(each) for each in found.values()]
    for name, median in zip(found, medians, strict=True):
        print(f"{name:16} {median:7.1f} ms  {median / bare:5.2f} x")


if __name__ == "__main__":
    main()
