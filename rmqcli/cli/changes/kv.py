"""`rmq nameserver kv get`, `put`, `delete` and `list`: the store of name servers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from rmqcli.cli.by_broker import (
    ERROR_COLUMN,
    RESULT_COLUMN,
    nothing_found,
    raise_if_silent,
    show_list,
    show_results,
)
from rmqcli.cli.confirm import confirm
from rmqcli.cli.options import Common, argument, command_options
from rmqcli.cli.ui.escape import safe
from rmqcli.cli.ui.output import Column, row_of
from rmqcli.hint import command_line
from rmqcli.names import similar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqcli.admin.kv import KVResult

#: The namespace of RocketMQ itself.
_OWN_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"
_SERVER = Column("server", "address of the name server")
VALUE_COLUMNS = (
    _SERVER,
    Column("key", value=lambda _: None),
    Column("value", "null where a name server has none", value=lambda _: None),
    ERROR_COLUMN,
)
RESULT_COLUMNS = (
    _SERVER,
    Column("namespace", title=None),
    Column("key"),
    Column("old", "value before; null for none"),
    Column("new", "value now; null for none"),
    RESULT_COLUMN,
    ERROR_COLUMN,
)


_NAMESPACE = partial(
    argument, metavar="NAMESPACE", help="Namespace of the key, e.g. ORDER_TOPIC_CONFIG."
)
_KEY = argument(metavar="KEY", help="Key of the value.")


@command_options(fields=VALUE_COLUMNS, changes=False)
def list_values(
    common: Common, namespace: str = _NAMESPACE(default=_OWN_NAMESPACE)
) -> None:
    """List the values that name servers store in a namespace.

    Example: rmq nameserver kv list ORDER_TOPIC_CONFIG

    Name servers do not tell which namespaces they have. RocketMQ itself uses
    ORDER_TOPIC_CONFIG, for the queues of ordered topics. Of any other namespace without
    a value the exit code is 3.
    """
    from rmqcli.admin.kv import kv_values

    with common.open_client() as client:
        found = kv_values(client, namespace)
    if namespace != _OWN_NAMESPACE and all(each.values == {} for each in found):
        is_meant = similar(namespace, [_OWN_NAMESPACE])
        meant = f"; did you mean {_OWN_NAMESPACE}?" if is_meant else ""
        raise nothing_found(f"no name server has a value in {namespace}{meant}")
    rows = []
    for each in found:
        row = row_of(VALUE_COLUMNS, each)
        if each.values is None:
            rows.append(row)
        for key, value in sorted((each.values or {}).items()):
            rows.append({**row, "key": key, "value": value})
    errors = {each.server: each.error for each in found if each.error is not None}
    show_list(
        common,
        rows,
        VALUE_COLUMNS,
        none=f"no values in {safe(namespace)}",
        is_complete=not errors,
    )
    raise_if_silent(errors)


@command_options(fields=VALUE_COLUMNS, changes=False)
def get_value(common: Common, namespace: str = _NAMESPACE(), key: str = _KEY) -> None:
    """Show the value of a key on each name server.

    Example: rmq nameserver kv get ORDER_TOPIC_CONFIG orders
    """
    from rmqcli.admin.kv import kv_values

    with common.open_client() as client:
        found = kv_values(client, namespace)
    errors = {each.server: each.error for each in found if each.error is not None}
    if not errors and all(key not in (each.values or {}) for each in found):
        raise nothing_found(
            f"no name server has a value for {key} in {namespace}",
            hint="list the keys with: "
            + command_line("rmq nameserver kv list", namespace),
        )
    rows = [
        row_of(VALUE_COLUMNS, each)
        | {"key": key, "value": (each.values or {}).get(key)}
        for each in found
    ]
    show_list(common, rows, VALUE_COLUMNS, none="")
    raise_if_silent(errors)


@command_options(fields=RESULT_COLUMNS, asks=True)
def put_value(
    common: Common,
    namespace: str = _NAMESPACE(),
    key: str = _KEY,
    value: str = argument(help="Value to store."),
) -> None:
    """Store a value on every name server, and read it back.

    Example: rmq nameserver kv put ORDER_TOPIC_CONFIG orders broker-a:8

    Only the name servers of --namesrv are known here: name all of them.
    """
    _change(common, namespace, key, value)


@command_options(fields=RESULT_COLUMNS, asks=True)
def delete_value(
    common: Common, namespace: str = _NAMESPACE(), key: str = _KEY
) -> None:
    """Remove a value from every name server.

    Example: rmq nameserver kv delete ORDER_TOPIC_CONFIG orders
    """
    _change(common, namespace, key, None)


def _change(common: Common, namespace: str, key: str, value: str | None) -> None:
    from rmqcli.admin.kv import apply_kv, plan_kv

    with common.open_client() as client:
        steps = plan_kv(client, namespace, key, value)
        planned = [step for step in steps if step.result == "planned"]
        if planned:
            _show_plan(common, planned)
            does = "removes" if value is None else "sets"
            confirm(
                common,
                f"This {does} {safe(key)} in {safe(namespace)} on"
                f" {', '.join(step.server for step in planned)}.",
            )
        elif all(step.result == "unchanged" for step in steps):
            has = "no such value" if value is None else "this value"
            common.messages.info(f"nothing was changed: the name servers have {has}")
        steps = apply_kv(client, steps)
    show_results(common, steps, RESULT_COLUMNS)


def _show_plan(common: Common, steps: Sequence[KVResult]) -> None:
    for step in steps:
        old = "has no value" if step.old is None else f"is {step.old or 'empty'}"
        new = "will have none" if step.new is None else f"will be {step.new or 'empty'}"
        common.messages.info(f"{step.server}: {step.key} {old}, {new}")
