"""`rmq`, and `python -m rmqcli`.

What costs time is imported when it is needed: `--version` loads nothing of the command
line, and any other command loads `rmqcli.cli.main`.
"""

from __future__ import annotations

import sys
from typing import NoReturn

#: New objects after which the collector looks for garbage; Python's own 700 would make
#: it run while modules are loaded.
_OBJECTS_PER_COLLECTION = 50_000


def main() -> NoReturn:
    """Run `rmq`. Ctrl-C while it still loads ends it without a traceback."""
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
    # Nothing that is loaded at the start ever goes away: looking for garbage in it, and
    # again in what a command loads, costs 5 ms.
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
    """End the process at once; return where only the interpreter can end it.

    It would take every module apart first, which costs 5 ms. What was registered to
    happen at the end happens here, and threads that must end are waited for.
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
    except (OSError, ValueError):  # full, or closed: the interpreter reports it
        return
    os._exit(end.code)


def _has_shown_version() -> bool:
    """Write the version; False where that fails, which `rmqcli.cli.main` reports."""
    from rmqcli import __version__

    try:
        sys.stdout.write(f"rmq {__version__}\n")
        sys.stdout.flush()
    except (AttributeError, OSError):  # closed, or full
        return False
    return True


if __name__ == "__main__":
    main()
