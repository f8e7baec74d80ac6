"""SIGKILL before each call to the disk, then resume: run as a process of its own.

    python -m tests.spark.export.kill_points DIR PARTITION_BY

Forks a child for every n: it exports with a disk that kills the process at the n-th
call, and a second child resumes. Ends when an export needs fewer than n calls. Prints
n. Any wrong row ends it with a traceback. (Forking needs a process whose threads do
nothing, so pytest's own is not used.)
"""

from __future__ import annotations

import os
import signal
import sys

from rmqcli.spark.export.disk import Disk
from tests.spark.export.inline import InlineRunner, expected, export_of, offsets_in
from tests.spark.export.sources import MadeCluster, MadeSource

# Offset 907 is the first one of a new date.
QUEUES = {0: (900, 915), 1: (5, 9)}
REQUEST = {"rows_per_file": 10}


class KillingDisk(Disk):
    """Kills this process at the n-th call.

    Nothing is synced: what a killed process wrote stays, only a power cut takes it.
    """

    def __init__(self, calls: int) -> None:
        self.left = calls

    def _spend(self) -> None:
        if not self.left:
            os.kill(os.getpid(), signal.SIGKILL)
        self.left -= 1

    def create(self, path):
        self._spend()
        return super().create(path)

    def sync(self, file):
        self._spend()
        file.flush()

    def replace(self, source, target):
        self._spend()
        super().replace(source, target)
        self._spend()

    def sync_folder(self, path):
        self._spend()

    def remove(self, path):
        self._spend()
        super().remove(path)

    def make_folders(self, root, relative):
        self._spend()
        return super().make_folders(root, relative)


def in_child(action) -> int:
    """Run `action` in a fork; return the wait status."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            action()
            code = 0
        finally:
            if code:
                sys.excepthook(*sys.exc_info())
            os._exit(code)
    return os.waitpid(child, 0)[1]


def export(path: str, calls: int, partition_by: str) -> None:
    cluster = MadeCluster(QUEUES, MadeSource(broken=frozenset({903})))
    request = {**REQUEST, "partition_by": partition_by}
    runner = InlineRunner()
    export_of(
        path,
        cluster,
        disk=KillingDisk(calls),
        request=request,
        runner=runner,
        allow_undecodable=True,
    ).run()


def check(path: str) -> None:
    rows = [pair for pair in expected(QUEUES) if pair != (0, 903)]
    assert offsets_in(path) == rows, offsets_in(path)
    assert os.path.exists(os.path.join(path, "_SUCCESS"))
    assert not os.path.exists(os.path.join(path, "_rmq", "tmp"))


def main() -> None:
    root, partition_by = sys.argv[1:]
    never = 1_000_000
    # So that what an export imports is imported here, and not once more in each child.
    export(os.path.join(root, "whole"), never, partition_by)
    for calls in range(never):
        path = os.path.join(root, str(calls))
        status = in_child(lambda: export(path, calls, partition_by))  # noqa: B023
        if status == 0:
            check(path)
            print(calls)
            return
        assert os.WIFSIGNALED(status), status
        assert in_child(lambda: export(path, never, partition_by)) == 0  # noqa: B023
        check(path)


if __name__ == "__main__":
    main()
