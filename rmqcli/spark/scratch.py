"""The folder in TMPDIR for what Spark keeps on the disk during a session.

The session that makes it removes it. The folder of a process that was killed is removed
by the next session: a lock that ends with its process tells whether a folder is in use.
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
    """Make a folder for the time of the block, after removing abandoned ones."""
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
    """Remove this user's scratch folders in `temp` whose process has ended.

    A folder without a lock file is left alone: its process may not have made it yet.
    """
    try:
        names = os.listdir(temp)
    except OSError:
        return
    for name in names:
        if name.startswith(PREFIX):
            with contextlib.suppress(OSError):  # in use, another's, or gone
                _remove_if_abandoned(os.path.join(temp, name))


def _own(folder: str) -> int:
    """Lock the folder for this process; return the open lock file."""
    new = os.path.join(folder, f"{_OWNER}.new")
    handle = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        # Without locks in the file system the folder stays without a lock file.
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Renamed only now, so that no process sees it under its name unlocked.
            os.rename(new, os.path.join(folder, _OWNER))
    except BaseException:
        os.close(handle)
        raise
    return handle


def _remove_if_abandoned(folder: str) -> None:
    """Raise OSError when its process is alive, or when it cannot be removed."""
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
