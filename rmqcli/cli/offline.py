"""`--store DIR`: a command reads a broker's folder as it reads a cluster.

The folder is served in this process, and the command is pointed at it: what is shown,
and how, is the same.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from rmqcli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqcli.cli.options import Common

#: Options about a connection, by their parameters: a folder needs none.
_OF_CLUSTERS: Final = (
    "namesrv",
    "acl_file",
    "tls",
    "tls_ca",
    "tls_server_name",
    "tls_cert",
    "tls_key",
    "tls_insecure",
)

#: Why a folder's groups have no members that could be shown.
MEMBERS_UNKNOWN: Final = "members are unknown: a folder was read, not its broker"


@contextmanager
def read_from(common: Common, store: str | None) -> Iterator[Common]:
    """What the command is to work with: `common`, or a folder behind it.

    The environment's NAMESRV_ADDR gives way to a folder; a typed name server does
    not. Raises UsageError for that, StoreError for a folder that cannot be read.
    """
    if store is None:
        yield common
        return
    for name in _OF_CLUSTERS:
        if name not in common.typed:
            continue
        flag = "--" + name.replace("_", "-")
        raise UsageError(
            f"--store and {flag} cannot be used together",
            hint="--store reads a folder, without its cluster",
        )
    from pathlib import Path

    from rmqcli.broker.cluster.offline import StoreServer

    folder = Path(store).expanduser()
    with StoreServer(folder) as server:
        yield replace(
            common,
            namesrv=(server.namesrv,),
            tls=None,
            acl_file=None,
            store=str(folder),
        )
