"""`rmq`, and `python -m rmqcli`.

What costs time is imported when it is needed: `--version` loads nothing of the command
line, and any other command loads `rmqcli.cli.main`.
"""

from __future__ import annotations

import sys
from typing import NoReturn


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
    # Nothing that is loaded now ever goes away: looking for garbage in it costs 5 ms.
    gc.disable()
    from rmqcli.cli.main import main as run_main

    gc.freeze()
    gc.enable()
    run_main()


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
