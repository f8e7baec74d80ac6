"""A command that shows which cluster it would use, and how, instead of using it."""

from __future__ import annotations

from typing import Any

from rmqcli.cli.commands import CommandEntry
from rmqcli.cli.options import (
    Common,
    command_options,
    endpoints_option,
    plaintext_option,
    position_option,
    store_option,
)
from rmqcli.position import Position  # noqa: TC001  # Typer evaluates it

TABLE = (
    CommandEntry("probe", "tests.cli.profile.probe", "probe", "Show the cluster."),
    CommandEntry("direct", "tests.cli.profile.probe", "direct", "Without a proxy."),
)


@command_options(formats=("table", "json"))
def probe(
    common: Common,
    from_: Position | None = position_option("--from"),
    store: str | None = store_option(),
    endpoints: Any = endpoints_option(),
    plaintext: bool = plaintext_option(),
) -> None:
    """Show the cluster.

    Example: rmq probe
    """
    if store is None:
        common = common.with_endpoints_or_namesrv(endpoints, plaintext=plaintext)
    _show(common, from_)


@command_options(formats=("table", "json"))
def direct(common: Common) -> None:
    """Show the cluster, for a command that can use no proxy.

    Example: rmq direct
    """
    _show(common, None)


def _show(common: Common, start: object) -> None:
    config = common.client_config()
    keys = config.credentials
    print("servers", config.servers)
    print("keys", keys and (keys.access_key, keys.secret_key))
    print("tls", config.tls)
    print("plaintext", config.plaintext)
    print("address_map", config.address_map)
    print("output", common.output)
    print("start", start)
