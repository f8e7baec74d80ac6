"""The folder in TMPDIR that takes what Spark keeps on the disk, and nobody else needs.

It goes with the export that made it. What a killed export left is removed by the next
one: a lock that dies with its owner tells whether somebody is still at work in it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

PREFIX: Final = "rmq-spark-"
_OWNER: Final = "owner.lock"


@contextlib.contextmanager
def scratch_folder() -> Iterator[str]:
    """A new folder for the time of the block; removes abandoned ones before."""
    remove_abandoned(tempfile.gettempdir())
    folder = tempfile.mkdtemp(prefix=PREFIX)
    try:
        handle = _own(folder)
        try:
            yield folder
        finally:
            os.close(handle)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_abandoned(temp: str) -> None:
    """Remove the scratch folders in `temp` that are this user's and have lost theirs.

    A folder without a lock file is left alone: it may just be coming into being.
    """
    try:
        names = os.listdir(temp)
    except OSError:
        return
    for name in names:
        if name.startswith(PREFIX):
            with contextlib.suppress(OSError):  # in use, somebody else's, or gone
                _remove_if_abandoned(os.path.join(temp, name))


def _own(folder: str) -> int:
    """Lock the folder, as `_remove_if_abandoned` looks at it; the open lock file."""
    new = os.path.join(folder, f"{_OWNER}.new")
    handle = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        # Where the file system has no locks the folder stays without a lock file.
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Named only now: under its name it is never seen without its lock.
            os.rename(new, os.path.join(folder, _OWNER))
    except BaseException:
        os.close(handle)
        raise
    return handle


def _remove_if_abandoned(folder: str) -> None:
    """Raises OSError when it is not abandoned, or not ours to remove."""
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        return
    lock = os.path.join(folder, _OWNER)
    handle = os.open(lock, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(handle)
