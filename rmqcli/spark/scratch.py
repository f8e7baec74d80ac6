"""The temporary folder, below TMPDIR, for the files that Spark writes during a session.

The session that creates the folder removes it. If its process was killed, the next
session removes the folder: a lock, which ends with its process, tells whether a folder
is in use.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from typing import TYPE_CHECKING, Final

from rmqcli.files import open_locked

if TYPE_CHECKING:
    from collections.abc import Iterator

PREFIX: Final = "rmq-spark-"
_OWNER: Final = "owner.lock"


@contextlib.contextmanager
def scratch_folder() -> Iterator[str]:
    """Create a folder for the duration of the block, after removing abandoned ones."""
    remove_abandoned(tempfile.gettempdir())
    folder = tempfile.mkdtemp(prefix=PREFIX)
    try:
        handle = _own(folder)
        try:
            yield folder
        finally:
            if handle is not None:
                os.close(handle)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_abandoned(temp: str) -> None:
    """Remove the scratch folders in `temp` of this user's processes that have ended.

    A folder without a lock file is kept: its process may not have created it yet.
    """
    try:
        names = os.listdir(temp)
    except OSError:
        return
    for name in names:
        if name.startswith(PREFIX):
            with contextlib.suppress(OSError):  # in use, of another user, or removed
                _remove_if_abandoned(os.path.join(temp, name))


def _own(folder: str) -> int | None:
    """Lock the folder for this process; return the open lock file, if there is one."""
    # If the file system has no locks, the folder stays without a lock file.
    with contextlib.suppress(OSError):
        new = os.path.join(folder, f"{_OWNER}.new")
        handle = open_locked(new, os.O_CREAT | os.O_EXCL, mode=0o600)
        # It is renamed only now, so that no process sees an unlocked lock file.
        os.rename(new, os.path.join(folder, _OWNER))
        return handle
    return None


def _remove_if_abandoned(folder: str) -> None:
    """Remove a folder if it is this user's and its process has ended.

    Raises OSError when the process is alive or the lock file cannot be opened.
    """
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        return
    handle = open_locked(os.path.join(folder, _OWNER), 0)
    try:
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(handle)
