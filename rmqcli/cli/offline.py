"""`--store DIR`: a command reads a broker's folder in the same way as a cluster.

A name server and a broker in this process serve the folder, and the command uses them.
So its output is the same as with a cluster.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from rmqcli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqcli.cli.options import Common

#: Why no members are shown for the groups of a folder.
MEMBERS_UNKNOWN: Final = (
    "members are unknown: a broker's folder was read, not a running broker"
)


@contextmanager
def read_from(common: Common, store: str | None) -> Iterator[Common]:
    """Yield `common`, or with `store` a copy of it that uses the served folder.

    A folder takes precedence over NAMESRV_ADDR in the environment. Raises UsageError if
    an option about connections was typed, too, e.g. `--namesrv`, and StoreError for a
    folder that cannot be read.
    """
    if store is None:
        yield common
        return
    from rmqcli.cli.options import COMMON_DECLARATIONS, SERVER_NAMES

    for name in COMMON_DECLARATIONS:
        if name in common.typed & (SERVER_NAMES | {"profile"}):
            raise UsageError(
                f"--store and --{name.replace('_', '-')} cannot be used together",
                hint="--store reads a folder and connects to no cluster",
            )
    from pathlib import Path

    from rmqcli.broker.cluster.offline import StoreServer

    folder = Path(store).expanduser()
    with StoreServer(folder) as server:
        yield replace(
            common,
            namesrv=(server.namesrv,),
            tls=None,
            address_map=(),
            acl_file=None,
            profile=None,
            store=str(folder),
        )
