"""`rmq`, and `python -m rmqcli`."""

from __future__ import annotations

import gc
import signal
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run `rmq`. Ctrl-C while it still loads ends it without a traceback."""
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


if __name__ == "__main__":
    main()
