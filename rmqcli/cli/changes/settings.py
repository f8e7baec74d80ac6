"""`rmq broker config get`, `set` and `diff`, `rmq nameserver config get` and `set`.

A change is shown with the present values, confirmed, made, and read back from each
server.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from rmqcli.cli.by_broker import (
    ERROR_COLUMN,
    RESULT_COLUMN,
    raise_if_silent,
    show_list,
    show_results,
)
from rmqcli.cli.confirm import confirm
from rmqcli.cli.options import (
    Common,
    argument,
    brokers_option,
    command_options,
    option,
    switch,
)
from rmqcli.cli.ui.output import Column, number_column, row_of
from rmqcli.dataclass import dataclass
from rmqcli.errors import UsageError
from rmqcli.units import counted

if TYPE_CHECKING:
    from rmqcli.admin.settings import SettingResult, SettingsPlan, ShownSettings
    from rmqcli.api.client import Client

#: More changes than this are not listed before they are confirmed.
_LISTED_MAX = 20


def _shown(result: SettingResult, value: str | None) -> str | None:
    from rmqcli.admin.settings import shown_value

    return shown_value(result.name, value)


_BROKER = (
    Column(
        "broker_name",
        "broker; a master and its slaves share the name",
        title="BROKER",
        value=lambda found: found.server,
    ),
    number_column("broker_id", "0 is the master", "ID"),
    Column("address", "its address", title=None),
)
_NAMESRV = Column("server", "address of the name server")
_VALUES = (
    Column("name", "name of the setting", value=lambda _: None),
    Column("value", "its value; (hidden) for a secret", value=lambda _: None),
    ERROR_COLUMN,
)
_RESULTS = (
    Column("name", "name of the setting"),
    Column("old", "value before", value=lambda found: _shown(found, found.old)),
    Column("new", "value now", value=lambda found: _shown(found, found.new)),
    RESULT_COLUMN,
    Column(
        "needs_restart",
        "whether the server is known to read the setting only when it starts",
        title=None,
    ),
    ERROR_COLUMN,
)
BROKER_VALUES = (*_BROKER, *_VALUES)
BROKER_RESULTS = (*_BROKER, *_RESULTS)
NAMESRV_VALUES = (_NAMESRV, *_VALUES)
NAMESRV_RESULTS = (_NAMESRV, *_RESULTS)
DIFF_COLUMNS = (
    Column("name", "name of the setting"),
    Column("value", "(hidden) for a secret; null where a broker does not have it"),
    Column(
        "brokers",
        "brokers with this value, NAME:ID where several have a name",
        value=lambda found: found.servers,
        shorten=True,
    ),
)


def _parse_setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(
            f"{text!r} is not NAME=VALUE", hint="for example fileReservedTime=48"
        )
    return name, value


_NAMES = argument(default=None, metavar="NAME", help="Settings to show (default: all).")
_SETTINGS = partial(
    argument,
    metavar="NAME=VALUE",
    parser=_parse_setting,
    help="Settings with new values.",
)
_CLUSTER = partial(
    option,
    "--cluster",
    metavar="CLUSTER",
    help="All brokers of this cluster, masters and slaves.",
)


@command_options(fields=BROKER_VALUES, changes=False)
def get_broker(
    common: Common,
    names: list[str] | None = _NAMES,
    cluster: str | None = _CLUSTER(),
    broker: list[str] | None = brokers_option(),
) -> None:
    """Show settings of brokers, masters and slaves.

    Example: rmq broker config get fileReservedTime flushDiskType

    Passwords and keys are shown as (hidden). Brokers show settings only to those who
    may administer the cluster.
    """
    from rmqcli.admin.settings import broker_settings

    with common.open_client() as client:
        found = broker_settings(client, brokers=broker or (), cluster=cluster)
    _show_values(common, found, names or (), BROKER_VALUES)


@command_options(fields=NAMESRV_VALUES, changes=False)
def get_namesrv(common: Common, names: list[str] | None = _NAMES) -> None:
    """Show settings of name servers.

    Example: rmq nameserver config get orderMessageEnable
    """
    from rmqcli.admin.settings import namesrv_settings

    with common.open_client() as client:
        found = namesrv_settings(client)
    _show_values(common, found, names or (), NAMESRV_VALUES)


def _show_values(
    common: Common,
    found: Sequence[ShownSettings],
    names: Sequence[str],
    columns: Sequence[Column],
) -> None:
    from rmqcli.admin.brokers import denial_of
    from rmqcli.admin.settings import check_names, shown_value

    check_names(found, names)
    rows = []
    for server in found:
        row = row_of(columns, server)
        settings = server.settings
        if settings is None:
            rows.append(row)
            continue
        for name in names or sorted(settings):
            value = shown_value(name, settings.get(name))
            rows.append({**row, "name": name, "value": value})
    show_list(common, rows, columns, none="no settings")
    errors = {each.server: each.error for each in found if each.error}
    raise_if_silent(errors, denial_of(each.error for each in found))


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfigOptions:
    """The options of `rmq broker config set`."""

    settings: list[Any] = _SETTINGS()
    cluster: str | None = _CLUSTER()
    broker: list[str] | None = brokers_option()


@command_options(BrokerConfigOptions, fields=BROKER_RESULTS, asks=True)
def set_broker(common: Common, options: BrokerConfigOptions) -> None:
    """Change settings of brokers, and read them back.

    Example: rmq broker config set fileReservedTime=48 --cluster DefaultCluster

    The present values are shown first, and the change must be confirmed. A setting that
    no broker has is refused. Each broker also writes all its settings into its file; it
    reads some of them only when it starts, which is said where it is known.
    """
    from rmqcli.admin.settings import broker_settings

    if bool(options.cluster) == bool(options.broker):
        raise UsageError(
            "name either the brokers or a cluster",
            hint="add --broker BROKER or --cluster CLUSTER",
        )
    settings = _given(options.settings)
    with common.open_client() as client:
        found = broker_settings(
            client, brokers=options.broker or (), cluster=options.cluster
        )
        _change(common, client, found, settings, BROKER_RESULTS)


@command_options(fields=NAMESRV_RESULTS, asks=True)
def set_namesrv(common: Common, settings: list[Any] = _SETTINGS()) -> None:
    """Change settings of all name servers, and read them back.

    Example: rmq nameserver config set orderMessageEnable=true

    As rmq broker config set does it for brokers. Only the name servers of --namesrv are
    known here: name all of them.
    """
    from rmqcli.admin.settings import namesrv_settings

    with common.open_client() as client:
        found = namesrv_settings(client)
        _change(common, client, found, _given(settings), NAMESRV_RESULTS)


def _given(settings: Sequence[tuple[str, str]]) -> dict[str, str]:
    given = dict(settings)
    if len(given) < len(settings):
        raise UsageError("a setting is given twice")
    return given


def _change(
    common: Common,
    client: Client,
    found: Sequence[ShownSettings],
    settings: dict[str, str],
    columns: Sequence[Column],
) -> None:
    from rmqcli.admin.settings import apply_settings, plan_settings

    plan = plan_settings(found, settings)
    if plan.changes:
        _show_plan(common, plan)
        confirm(common, f"This changes {counted(len(plan.changes), 'setting')}.")
    elif all(step.result == "unchanged" for step in plan.steps):
        common.messages.info("nothing was changed: the settings have these values")
    results = apply_settings(client, plan)
    show_results(common, results, columns)


def _show_plan(common: Common, plan: SettingsPlan) -> None:
    for step in plan.changes[:_LISTED_MAX]:
        old, new = _shown(step, step.old), _shown(step, step.new)
        title = f"{step.server}:{step.broker_id}" if step.broker_id else step.server
        common.messages.info(f"{title}: {step.name} is {old}, will be {new}")
    more = len(plan.changes) - _LISTED_MAX
    if more > 0:
        common.messages.info(f"and {counted(more, 'other change')}")
    for step in plan.steps:
        if step.error is not None:
            common.messages.warn(step.error.message)
    for name in dict.fromkeys(s.name for s in plan.changes if s.needs_restart):
        common.messages.warn(f"{name} takes effect when the server is restarted")


@command_options(fields=DIFF_COLUMNS, changes=False)
def diff(
    common: Common,
    cluster: str | None = _CLUSTER(),
    broker: list[str] | None = brokers_option(),
    show_all: bool = switch(
        "--all", help="Include ports, folders and names of brokers."
    ),
) -> None:
    """Show in which settings brokers differ.

    Example: rmq broker config diff

    There is a row for each value, with the brokers that have it. Passwords and keys are
    compared, and shown as (hidden).
    """
    from rmqcli.admin.settings import broker_settings, diff_settings

    with common.open_client() as client:
        found = broker_settings(client, brokers=broker or (), cluster=cluster)
    result = diff_settings(found, with_all=show_all)
    rows = [row_of(DIFF_COLUMNS, each) for each in result.values]
    show_list(
        common,
        rows,
        DIFF_COLUMNS,
        none=f"no differences between {', '.join(result.servers)}",
        is_complete=not result.errors,
    )
    if result.left_out:
        common.messages.info(
            f"not shown: {counted(len(result.left_out), 'setting')} that are different"
            " for each broker; --all shows them"
        )
    raise_if_silent(result.errors)
