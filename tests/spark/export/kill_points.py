"""Kill an export with SIGKILL before each of its calls to the disk, and resume it.

    python -m tests.spark.export.kill_points DIR PARTITION_BY [compact|s3|hdfs]

For every n, a forked child exports with a disk that kills the process at the n-th call,
and a second child resumes the export. The program ends, and prints n, when an export
needs at most n calls. A wrong row ends it with a traceback. It is a separate program
because a process that forks must have no busy threads, as pytest's process may have.
With `compact`, a compaction of several runs is killed, and the second child is the next
export. With `s3` or `hdfs`, an export into a remote storage is killed, and the calls
are those of pyarrow's file system.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys

from rmqcli.spark.export.compact import FileLimits, compact
from rmqcli.spark.export.disk import Disk
from rmqcli.spark.export.remote import RemoteStorage
from rmqcli.spark.export.target import parse_target
from tests.spark.export.inline import InlineRunner, expected, export_of, offsets_in
from tests.spark.export.sources import MadeCluster, MadeSource

# Offset 907 is the first offset of a new date.
QUEUES = {0: (900, 915), 1: (5, 9)}
REQUEST = {"rows_per_file": 10}


class KillingDisk(Disk):
    """Kills this process at the n-th call.

    It syncs nothing, because data of a killed process is not lost, only that of a
    machine that loses power.
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
    """Run `action` in a forked child; return its wait status."""
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


def export_three_times(path: str, partition_by: str) -> None:
    """Create an export with three runs, the last two of which can be merged."""
    export(path, 1_000_000, partition_by)
    for end in (920, 925):
        follow(path, end)


def follow(path: str, end: int) -> None:
    """Export the new messages, up to `end` in the first queue."""
    cluster = MadeCluster({**QUEUES, 0: (900, end)})
    export_of(path, cluster, since_last=True, allow_undecodable=True).run()


def compact_it(path: str, calls: int) -> None:
    limits = FileLimits(rows=20, file_bytes=1 << 30)
    compact(path, disk=KillingDisk(calls), limits=limits)


def check_followed(path: str) -> None:
    wanted = expected({**QUEUES, 0: (900, 930)})
    assert offsets_in(path) == [pair for pair in wanted if pair != (0, 903)]
    assert os.path.exists(os.path.join(path, "_SUCCESS"))
    assert sorted(os.listdir(os.path.join(path, "_rmq"))) in (
        ["lock", "manifest", "manifest.json", "runs"],
        ["lock", "manifest.json", "runs"],
    )


def kill_compactions(root: str, partition_by: str) -> int:
    """Kill a compaction before each of its calls; return the number of calls."""
    whole = os.path.join(root, "whole")
    export_three_times(whole, partition_by)
    before = offsets_in(whole)
    warm = shutil.copytree(whole, os.path.join(root, "warm"))
    compact_it(warm, 1_000_000)
    assert offsets_in(warm) == before
    for calls in range(1_000_000):
        path = shutil.copytree(whole, os.path.join(root, str(calls)))
        status = in_child(lambda: compact_it(path, calls))  # noqa: B023
        assert in_child(lambda: follow(path, 930)) == 0  # noqa: B023
        check_followed(path)
        if status == 0:
            return calls
        assert os.WIFSIGNALED(status), status
    return 0


def check(path: str) -> None:
    rows = [pair for pair in expected(QUEUES) if pair != (0, 903)]
    assert offsets_in(path) == rows, offsets_in(path)
    assert os.path.exists(os.path.join(path, "_SUCCESS"))
    assert not os.path.exists(os.path.join(path, "_rmq", "tmp"))


class KillingFileSystem:
    """A file system of pyarrow that kills this process at the n-th modifying call.

    It is a local folder that behaves like an object store: the folder of a file need
    not exist before the file is written.
    """

    def __init__(self, folder: str, calls: int) -> None:
        from pyarrow import fs

        self._inner = fs.SubTreeFileSystem(folder, fs.LocalFileSystem())
        self._left = calls

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def _spend(self) -> None:
        if not self._left:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1

    def open_output_stream(self, path):
        self._spend()
        self._inner.create_dir(os.path.dirname(path), recursive=True)
        return self._inner.open_output_stream(path)

    def delete_file(self, path):
        self._spend()
        self._inner.delete_file(path)

    def delete_dir(self, path):
        self._spend()
        self._inner.delete_dir(path)

    def move(self, source, target):
        self._spend()
        assert not os.path.exists(f"{self._inner.base_path}{target}")  # as in HDFS
        self._inner.move(source, target)
        self._spend()


def export_remote(folder: str, scheme: str, calls: int, partition_by: str) -> None:
    """Export to `out` in a bucket or in HDFS; a local folder stands in for both."""
    os.makedirs(folder, exist_ok=True)
    url = "s3://bucket/out" if scheme == "s3" else "hdfs://h:1/bucket/out"
    storage = RemoteStorage(
        parse_target(url),
        connect=lambda _: KillingFileSystem(os.path.dirname(folder), calls),
    )
    source = MadeSource(broken=frozenset({903}))
    export_of(
        url,
        MadeCluster(QUEUES, source),
        disk=storage,
        request={**REQUEST, "partition_by": partition_by},
        allow_undecodable=True,
    ).run()


def kill_remote(root: str, scheme: str, partition_by: str) -> int:
    """Kill an export before each of its calls; return the number of calls."""
    never = 1_000_000
    export_remote(os.path.join(root, "whole/bucket"), scheme, never, partition_by)
    for calls in range(never):
        path = os.path.join(root, str(calls), "bucket")
        status = in_child(lambda: export_remote(path, scheme, calls, partition_by))  # noqa: B023
        if status != 0:
            assert os.WIFSIGNALED(status), status
            again = in_child(lambda: export_remote(path, scheme, never, partition_by))  # noqa: B023
            assert again == 0
        check(os.path.join(path, "out"))
        assert os.listdir(os.path.join(path, "out", "_rmq", "locks")) == []
        if status == 0:
            return calls
    return 0


def main() -> None:
    root, partition_by = sys.argv[1:3]
    if sys.argv[3:] in (["s3"], ["hdfs"]):
        print(kill_remote(root, sys.argv[3], partition_by))
        return
    if sys.argv[3:] == ["compact"]:
        print(kill_compactions(root, partition_by))
        return
    never = 1_000_000
    # This imports the modules of an export here, so that no child imports them again.
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
