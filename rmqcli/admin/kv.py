"""The key-value store of name servers: texts by namespace and key.

Each name server has a store of its own, so changes go to all of them and are read back.
RocketMQ itself uses the namespace ORDER_TOPIC_CONFIG; no request lists namespaces.

Source: KVConfigManager, UpdateKvConfigCommand and DeleteKvConfigCommand.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING

from rmqcli.admin.brokers import ask_each, change_each, failed_word
from rmqcli.api.calls.namesrv_config import (
    delete_kv_config,
    get_kv_config,
    get_kvlist_by_namespace,
    put_kv_config,
)
from rmqcli.dataclass import dataclass
from rmqcli.errors import ChangeUnknownError, ConfigError, PartialError, RmqError

if TYPE_CHECKING:
    from rmqcli.api.client import Client


@dataclass(frozen=True, slots=True, kw_only=True)
class KVValues:
    """A namespace on one name server: values by key; None if it did not answer."""

    server: str
    values: dict[str, str] | None = field(default=None, hash=False)
    error: RmqError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KVResult:
    """One key on one name server: its value before, now, and what became of it.

    `result` is `changed`, `unchanged`, `deleted`, `failed` or `unknown`, and `planned`
    before the change; `new` is None without a value.
    """

    server: str
    namespace: str
    key: str
    old: str | None
    new: str | None
    result: str
    error: RmqError | None = None


def kv_values(client: Client, namespace: str) -> list[KVValues]:
    """Read the values of a namespace from each name server.

    Raises the first error when none of them answers.
    """
    _check_name("namespace", namespace)
    answers = ask_each(client, _servers(client), get_kvlist_by_namespace(namespace))
    found = [
        KVValues(server=server, error=answer)
        if isinstance(answer, RmqError)
        else KVValues(server=server, values=answer)
        for server, answer in answers.items()
    ]
    _raise_if_all_failed([each.error for each in found])
    return found


def plan_kv(
    client: Client, namespace: str, key: str, value: str | None
) -> list[KVResult]:
    """Plan to set a value on each name server, or with None to remove it.

    Raises the first error when no name server answers.
    """
    _check_name("namespace", namespace)
    _check_name("key", key)
    if value is not None:
        _check("value", value)
    answers = ask_each(client, _servers(client), get_kv_config(namespace, key))
    steps = []
    for server, answer in answers.items():
        step = KVResult(
            server=server,
            namespace=namespace,
            key=key,
            old=None,
            new=value,
            result="unchanged" if answer == value else "planned",
        )
        if isinstance(answer, RmqError):
            steps.append(replace(step, result="failed", error=answer))
        else:
            steps.append(replace(step, old=answer))
    _raise_if_all_failed([each.error for each in steps])
    return steps


def apply_kv(client: Client, steps: list[KVResult]) -> list[KVResult]:
    """Carry out what is planned, and read back each value."""
    planned = {step.server: step for step in steps if step.result == "planned"}
    if not planned:
        return steps
    first = next(iter(planned.values()))
    call = (
        delete_kv_config(first.namespace, first.key)
        if first.new is None
        else put_kv_config(first.namespace, first.key, first.new)
    )
    servers = {server: server for server in planned}
    written = change_each(client, servers, call)
    read = ask_each(client, servers, get_kv_config(first.namespace, first.key))
    return [
        _applied(step, written[step.server], read[step.server])
        if step.server in planned
        else step
        for step in steps
    ]


def _applied(
    step: KVResult, written: RmqError | None, read: str | RmqError | None
) -> KVResult:
    if isinstance(read, RmqError):
        error = written or ChangeUnknownError(
            f"{step.server} was told to change {step.key}, but did not show it"
            f" afterwards: {read.message}"
        )
        return replace(step, new=None, result=failed_word(error), error=error)
    if read == step.new:
        return replace(step, result="changed" if read is not None else "deleted")
    error = written or PartialError(
        f"{step.server} has another value of {step.key} afterwards"
    )
    return replace(step, new=read, result=failed_word(error), error=error)


def _check_name(what: str, text: str) -> None:
    if not text:
        raise ConfigError(f"the {what} must not be empty")
    _check(what, text)


def _check(what: str, text: str) -> None:
    """Raise ConfigError for a text that name servers would store in another form.

    They keep all characters, control characters and line ends among them.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError(
            f"the {what} {text!r} contains an unpaired surrogate, which name servers"
            " do not keep"
        ) from None


def _servers(client: Client) -> dict[str, str]:
    return {address: address for address in client.config.namesrv}


def _raise_if_all_failed(errors: list[RmqError | None]) -> None:
    if errors and all(errors) and errors[0] is not None:
        raise errors[0]
