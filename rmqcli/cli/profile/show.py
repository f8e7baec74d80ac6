"""`rmq profile list` and `rmq profile show`."""

from __future__ import annotations

import os
from typing import Any

from rmqcli.cli.by_broker import show_list
from rmqcli.cli.configuration.choose import PROFILE_VARIABLE, choose
from rmqcli.cli.configuration.file import NO_HOME, read_config
from rmqcli.cli.configuration.profile import Profile
from rmqcli.cli.options import Common, argument, command_options
from rmqcli.cli.ui.output import Column, emit_json, empty_row, write_rows
from rmqcli.errors import ConfigError, UsageError

COLUMNS = (
    Column("name", "name of the profile", title="PROFILE"),
    Column("in_use", "whether commands use it now", title="IN USE"),
    Column("namesrv", "its name servers", priority=15),
    Column("endpoints", "or the addresses of its proxy", priority=20),
    Column("credentials", "where its credentials come from, or null", priority=50),
    Column(
        "tls",
        "whether connections to its name servers and brokers use TLS",
        priority=40,
    ),
    Column("read_only", "whether changes are refused", title="READ ONLY", priority=25),
    Column("protected", "whether changes must be confirmed with its name", priority=30),
    Column("error", "why it cannot be used, or null", priority=10),
)
SHOW_COLUMNS = (
    *(column for column in COLUMNS if column.name not in ("in_use", "error")),
    Column("plaintext", "whether the proxy is used without TLS"),
    Column("tls_ca", "file with the CAs that are trusted"),
    Column("tls_cert", "file with the client's certificate"),
    Column("tls_key", "file with the key of that certificate"),
    Column("tls_server_name", "host name in the servers' certificates"),
    Column("tls_insecure", "whether any certificate is accepted"),
    Column("addresses", "advertised addresses, and where they are reached"),
    Column("output", "default output format"),
    Column("time_zone", "zone of times that are typed without one"),
    Column("chosen_by", "what has chosen it; null for a profile that was named"),
    Column("path", "file with its settings"),
)


@command_options(fields=COLUMNS, connects=False)
def list_(common: Common) -> None:
    """List profiles, and which of them commands use.

    Example: rmq profile list
    """
    config = read_config(os.environ)
    used = _name_in_use()
    rows = []
    for name in config.profiles:
        row = empty_row(COLUMNS, name=name, in_use=name == used)
        try:
            found = shown_fields(config.profile(name))
        except ConfigError as error:
            row["error"] = error.message
        else:
            row |= {key: found[key] for key in row if key in found}
        rows.append(row)
    none = f"no profiles in {config.path}" if config.path else NO_HOME
    show_list(common, rows, COLUMNS, none=none)


def _name_in_use() -> str | None:
    """Return the name of the profile that commands use now, if that can be told."""
    try:
        values = {"profile": os.environ.get(PROFILE_VARIABLE) or None}
        chosen = choose(values, frozenset(), os.environ, lambda _: None)
    except UsageError:  # such as an unknown profile in use
        return None
    if chosen is None or chosen.profile.is_project:
        return None
    return chosen.profile.name


@command_options(fields=SHOW_COLUMNS, connects=False)
def show(
    common: Common,
    name: str | None = argument(
        default=None, metavar="[PROFILE]", help="Profile (default: the one in use)."
    ),
) -> None:
    """Show a profile, or which one commands use and why.

    Example: rmq profile show prod

    Secrets are not shown.
    """
    by = None
    if name is None:
        values = {"profile": os.environ.get(PROFILE_VARIABLE) or None}
        chosen = choose(values, frozenset(), os.environ, common.messages.warn)
        if chosen is None:
            common.messages.info("commands use no profile")
            if common.output == "json":
                emit_json(None)
            return
        profile, by = chosen.profile, chosen.by
    else:
        profile = read_config(os.environ).profile(name)
    data = {**shown_fields(profile), "chosen_by": by}
    row = {column.name: data[column.name] for column in SHOW_COLUMNS}
    if common.output == "json":
        emit_json(row)
    elif common.output == "table":
        lines = [
            {"setting": key, "value": value}
            for key, value in row.items()
            if value is not None and value != {}
        ]
        write_rows(lines, columns=_TABLE, fmt="table", color=common.use_color)
    else:
        write_rows([row], columns=SHOW_COLUMNS, fmt=common.output)


_TABLE = (Column("setting"), Column("value"))


def shown_fields(profile: Profile) -> dict[str, Any]:
    """Return what is shown of a profile: all settings, without secrets."""
    found = {name: getattr(profile, name) for name in Profile.__annotations__}
    source = profile.credentials
    return found | {
        "namesrv": ";".join(profile.namesrv) or None,
        "endpoints": ";".join(profile.endpoints) or None,
        "credentials": None if source is None else str(source),
        "tls": profile.uses_tls,
        "addresses": dict(profile.address_map),
    }
