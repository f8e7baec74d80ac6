"""The entry point of `rmq` and of `python -m rmqcli`.

Modules that take time to load are imported when they are needed: `--version` loads
nothing of the command line, and a command loads `rmqcli.cli.main`.
"""

from __future__ import annotations

import sys
from typing import NoReturn

#: The number of new objects after which the garbage collector runs. With Python's
#: default of 700 it would run while modules are loaded.
_OBJECTS_PER_COLLECTION = 50_000


def main() -> NoReturn:
    """Run `rmq`. Ctrl-C while it is still loading ends it without a traceback."""
    if sys.argv[1:] == ["--version"] and _has_shown_version():
        sys.exit(0)
    import gc
    import signal

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.argv[1:2] == ["__complete"]:
        from rmqcli.cli.completion import names as complete_names

        complete_names.main(sys.argv[2:])
        sys.exit(0)
    # Nothing that is loaded at the start is ever freed, so collecting garbage among it,
    # and again among what a command loads, would waste 5 ms.
    gc.disable()
    from rmqcli.cli.main import main as run_main

    gc.freeze()
    gc.set_threshold(_OBJECTS_PER_COLLECTION, 10, 10)
    gc.enable()
    try:
        run_main()
    except SystemExit as end:
        _leave(end)
        raise


def _leave(end: SystemExit) -> None:
    """End the process at once; return when only the interpreter can end it properly.

    The interpreter would first tear down every module, which costs 5 ms. This function
    runs the functions of `atexit` and flushes the streams instead. It returns when
    other threads are running, when the exit code is not a number, and when a stream
    cannot be written.
    """
    import atexit
    import os
    import threading

    if threading.active_count() > 1 or not isinstance(end.code, int):
        return
    try:
        atexit._run_exitfuncs()  # noqa: SLF001  # as multiprocessing does
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except (OSError, ValueError):  # full, or closed: Python reports it
        return
    os._exit(end.code)


def _has_shown_version() -> bool:
    """Write the version; return whether that succeeded.

    If not, `rmqcli.cli.main` reports the error.
    """
    import os

    from rmqcli import __version__

    try:
        # Not through sys.stdout, which would keep what it could not write.
        os.write(sys.stdout.fileno(), f"rmq {__version__}\n".encode())
    except (AttributeError, OSError):  # closed, or full
        return False
    return True


if __name__ == "__main__":
    main()
