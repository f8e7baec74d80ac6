"""Measure `rmq top` over many groups. Prints one JSON line.

    python -m tests.bench.top [--groups 2300] [--seconds 60]

It runs in a terminal of 80 x 24 against an embedded cluster in another process, whose
files are written before it starts. `import_ms` is what Python takes to load the screen,
`first_paint_ms` the time from there to the first frame, which means little on a busy
machine; `first_paint_cpu_ms` is the CPU time from the start of Python to that frame.
`cpu_share` is the share of one core from the first table of groups on, and `peak_mib`
the most memory until then. With `--walk` all views are shown after that, one after
another, and `walk_peak_mib` is the most memory with them.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from pathlib import Path

from tests.bench.lag_many import write_config

_TICKS = os.sysconf("SC_CLK_TCK")
#: The keys of the views, and how long each is shown.
_WALK = (("2", 14), ("3", 8), ("4", 14), ("5", 14), ("1", 35))
_IMPORT = (
    "import time; t = time.perf_counter(); import rmqcli.cli.top.command;"
    "import rmqcli.cli.top.app; print(int((time.perf_counter() - t) * 1000))"
)


def cpu_s(pid: int) -> float:
    """Return the CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def peak_mib(pid: int) -> int:
    """Return the most memory that a process has had."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) // 1024
    raise ValueError("no VmHWM")


class _Output:
    """What a process writes to its terminal, read all the time."""

    def __init__(self, ours: int) -> None:
        self._ours = ours
        self._seen = b""
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while True:
            try:
                self._seen += os.read(self._ours, 65_536)
            except OSError:
                return

    def wait(self, wanted: bytes) -> None:
        """Wait until `wanted` was written."""
        while wanted not in self._seen:
            select.select([], [], [], 0.001)


def main() -> None:
    """Start the cluster and the screen, measure, and end both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=2300)
    parser.add_argument("--topics", type=int, default=900)
    parser.add_argument("--queues", type=int, default=8)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--walk", action="store_true")
    arguments = parser.parse_args()
    imports = [
        int(subprocess.check_output([sys.executable, "-c", _IMPORT])) for _ in range(3)
    ]
    with tempfile.TemporaryDirectory(prefix="rmq-bench-") as folder:
        store = Path(folder, "store")
        write_config(
            store,
            groups=arguments.groups,
            topics=arguments.topics,
            queues=arguments.queues,
        )
        server = subprocess.Popen(
            [
                *(sys.executable, "-m", "rmqcli", "serve", "--store", str(store)),
                *("--listen", "127.0.0.1:0"),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert server.stdout is not None
        try:
            namesrv = next(
                line.split()[1] for line in server.stdout if line.startswith("namesrv")
            )
            print(json.dumps(measure(arguments, namesrv, min(imports))), flush=True)
        finally:
            server.send_signal(signal.SIGINT)
            server.wait()


def measure(
    arguments: argparse.Namespace, namesrv: str, import_ms: int
) -> dict[str, object]:
    """Run the screen in a terminal and measure it."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "rmqcli", "top", "-n", namesrv, "--timeout", "30s"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color", "LANG": "C.UTF-8"},
    )
    os.close(theirs)
    output = _Output(ours)
    try:
        output.wait(b"rmq top")
        painted_ms = int((time.perf_counter() - began) * 1000)
        painted_cpu_ms = int(cpu_s(process.pid) * 1000)
        output.wait(b"bench-group-")
        table_ms = int((time.perf_counter() - began) * 1000)
        then, used = time.perf_counter(), cpu_s(process.pid)
        time.sleep(arguments.seconds)
        share = (cpu_s(process.pid) - used) / (time.perf_counter() - then)
        found = {
            "groups": arguments.groups,
            "import_ms": import_ms,
            "first_paint_ms": painted_ms - import_ms,
            "first_paint_cpu_ms": painted_cpu_ms,
            "first_table_ms": table_ms,
            "cpu_share": round(share, 3),
            "peak_mib": peak_mib(process.pid),
        }
        if arguments.walk:
            for key, shown_s in _WALK:
                os.write(ours, key.encode())
                time.sleep(shown_s)
            found["walk_peak_mib"] = peak_mib(process.pid)
        return found
    finally:
        os.write(ours, b"q")
        process.wait()
        os.close(ours)


if __name__ == "__main__":
    main()
