"""`rmq`, and `python -m rmqcli`."""

from __future__ import annotations

import signal
from typing import NoReturn


def main() -> NoReturn:
    """Run `rmq`. Ctrl-C while it still loads ends it without a traceback."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from rmqcli.cli.main import main as run_main

    run_main()


if __name__ == "__main__":
    main()
