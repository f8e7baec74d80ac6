"""`python -m tests.cli.sample_process`: `rmq` with the tests' own commands."""

from __future__ import annotations

from rmqcli.cli.main import main
from tests.cli.sample_command import TABLE

if __name__ == "__main__":
    main(TABLE)
