"""Settings of brokers and of name servers: reading, comparing and changing them.

A server confirms every change, even of a setting that it does not have and to a value
that it does not accept. So the names in a plan are those that servers have, and after a
change each setting is read back. A changed setting is also written to the file of the
server, with all its other settings.

Source: Configuration, AdminBrokerProcessor.updateBrokerConfig and
DefaultRequestProcessor.updateConfig in apache/rocketmq.
"""

from __future__ import annotations

import re
from dataclasses import field, replace
from typing import TYPE_CHECKING, Final

from rmqcli.admin.brokers import change_many, failed_word, use_one_of
from rmqcli.admin.lag.memory import departed_errors
from rmqcli.api.broker_errors import not_found
from rmqcli.api.calls.config import get_broker_config, update_broker_config
from rmqcli.api.calls.namesrv_config import get_namesrv_config, update_namesrv_config
from rmqcli.dataclass import dataclass
from rmqcli.errors import (
    ChangeUnknownError,
    ConfigError,
    DeniedError,
    PartialError,
    RefusedError,
    RmqError,
)
from rmqcli.model import MASTER_ID
from rmqcli.names import similar

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from rmqcli.api.client import Client

#: What is shown in the place of a secret.
HIDDEN: Final = "(hidden)"
_SECRET_NAME: Final = re.compile(
    r"secret|passw|pwd|credential|(access|private|api)_?key|token|header|cookie|jaas|"
    r"initAuthenticationUser",
    re.IGNORECASE,
)
_SECRET_VALUE: Final = re.compile(r"\"?(secretKey|password)\"?\s*[:=]", re.IGNORECASE)
_PLAIN: Final = re.compile(r"(true|false|-?[0-9.]+)?", re.IGNORECASE)
#: Settings that brokers and name servers read when they start only.
_READ_AT_START: Final = re.compile(
    r"listenPort|fastListenPort|haListenPort"
    r"|brokerIP[12]|brokerRole|flushDiskType|storeType|messageDelayLevel|namesrvAddr"
    r"|rocketmqHome|(storePath|mappedFileSize|dLeger|metrics|controller|server|client"
    r"|tls|useEpoll|useTLS|kvConfigPath|configStorePath).*"
    r"|.*(Thread(Pool)?Nums?|ThreadPoolQueueCapacity|Threads)"
    r"|transientStorePool(Enable|Size)|enableDLegerCommitLog|enableControllerMode"
    r"|aclEnable|authenticationEnabled|authorizationEnabled|traceTopicEnable"
    r"|autoCreateTopicEnable|timerWheelEnable|flushConsumerOffsetInterval"
    r"|registerNameServerPeriod|haMasterAddress|enableScheduleAsyncDeliver"
)
#: By these name servers know a broker. One that is given another name while it runs
#: registers a second time, and its queues are in the routes twice.
_IDENTITY: Final = ("brokerName", "brokerClusterName", "brokerId")
#: Settings that differ because the brokers are different ones.
_OF_ONE_BROKER: Final = re.compile(
    r"brokerName|brokerId|brokerIP[12]|(fastL|haL|l)istenPort|storePath.*"
    r"|haMasterAddress|dLegerSelfId|bindAddress|brokerConfigPath"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownSettings:
    """The settings of one server as texts; None when it did not show them: see `error`.

    `server` is the name of a broker, which a master and its slaves share, or the
    address of a name server, which has no `broker_id`.
    """

    server: str
    address: str
    broker_id: int | None = None
    settings: dict[str, str] | None = field(default=None, hash=False)
    error: RmqError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingResult:
    """One setting of one server: what it was, what it is, and what became of it.

    `result` is `changed`, `unchanged` (it had the value before), `failed` or
    `unknown`, and `planned` before the change. `new` is the value that was asked for,
    and after a change what the server has; None when that is not known.
    """

    server: str
    address: str
    broker_id: int | None
    name: str
    old: str | None
    new: str | None
    result: str
    needs_restart: bool = False
    error: RmqError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsPlan:
    """What a change of settings would do; one step for each server and setting."""

    settings: dict[str, str] = field(hash=False)
    steps: tuple[SettingResult, ...]

    @property
    def changes(self) -> list[SettingResult]:
        """The steps that change something."""
        return [step for step in self.steps if step.result == "planned"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingValue:
    """A value of a setting that differs, and the servers that have it.

    `value` is None for servers that do not have the setting.
    """

    name: str
    value: str | None
    servers: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsDiff:
    """The settings in which servers differ, and those that did not show theirs."""

    values: tuple[SettingValue, ...]
    #: settings that differ because they tell brokers apart, and are left out
    left_out: tuple[str, ...]
    servers: tuple[str, ...]
    errors: dict[str, RmqError] = field(hash=False)


def is_secret(name: str, value: str) -> bool:
    """Whether a setting must not be shown. Pure."""
    if _PLAIN.fullmatch(value):
        return False
    return bool(_SECRET_NAME.search(name) or _SECRET_VALUE.search(value))


def shown_value(name: str, value: str | None) -> str | None:
    """Return the value, or `(hidden)` for a secret. Pure."""
    return HIDDEN if value is not None and is_secret(name, value) else value


def needs_restart(name: str) -> bool:
    """Whether servers are known to read the setting only when they start. Pure."""
    return bool(_READ_AT_START.fullmatch(name))


def broker_settings(
    client: Client, *, brokers: Collection[str] = (), cluster: str | None = None
) -> list[ShownSettings]:
    """Read the settings of the given brokers, masters and slaves; of all by default.

    Sorted by name and id. Brokers that have left the route come last, with an error,
    unless brokers are given or there are several clusters. Raises NotFoundError for a
    broker or a cluster that does not exist, and NoBrokerError when no broker answers.
    """
    info = client.cluster_info()
    if cluster is not None and cluster not in info.clusters:
        raise not_found("cluster", cluster, hint=use_one_of(info.clusters))
    for name in brokers:
        if name not in info.brokers:
            raise not_found("broker", name, hint=use_one_of(info.brokers))
    places = sorted(
        (broker.broker_name, broker_id, address)
        for broker in info.brokers.values()
        for broker_id, address in broker.addresses.items()
        if (not brokers or broker.broker_name in brokers)
        and cluster in (None, broker.cluster)
    )
    answers = client.ask_many(
        {place: (place[2], get_broker_config()) for place in places}
    )
    found = [
        _server(name, address, broker_id, answers[name, broker_id, address])
        for name, broker_id, address in places
    ]
    client.raise_if_none_answers(answers.values())
    if not brokers:
        found += [
            _server(name, error.address, MASTER_ID, error)
            for name, error in departed_errors(client).items()
        ]
    return found


def namesrv_settings(client: Client) -> list[ShownSettings]:
    """Read the settings of each name server that the client knows.

    Raises the first error when none of them shows its settings.
    """
    servers = client.config.namesrv
    answers = client.ask_many({each: (each, get_namesrv_config()) for each in servers})
    found = [_server(each, each, None, answers[each]) for each in servers]
    _raise_if_all_failed(found)
    return found


def _server(
    name: str, address: str, broker_id: int | None, answer: dict[str, str] | RmqError
) -> ShownSettings:
    return ShownSettings(
        server=name,
        address=address,
        broker_id=broker_id,
        settings=None if isinstance(answer, RmqError) else answer,
        error=answer if isinstance(answer, RmqError) else None,
    )


def _raise_if_all_failed(found: Sequence[ShownSettings]) -> None:
    errors = [each.error for each in found if each.error is not None]
    if errors and len(errors) == len(found):
        raise errors[0]


def check_names(found: Sequence[ShownSettings], names: Collection[str]) -> None:
    """Raise ConfigError for a setting that no server has.

    Nothing is raised while a server does not show its settings: it may have it.
    """
    known = {name for each in found for name in each.settings or ()}
    if any(each.settings is None for each in found):
        return
    for name in names:
        if name not in known:
            near = similar(name, known)
            meant = f"; did you mean {' or '.join(near)}?" if near else ""
            if any(name == each.server for each in found):
                meant = f"; {name} is a broker"
            raise ConfigError(f"no server has the setting {name}{meant}")


def plan_settings(
    found: Sequence[ShownSettings], settings: Mapping[str, str]
) -> SettingsPlan:
    """Plan to give the settings these values on each server; nothing is changed.

    A server that does not have a setting, or did not show its settings, is a failed
    step. Raises the error of the first server when none showed them, and ConfigError
    for a setting that no server has, the name, cluster and id of a broker, a secret,
    a value that servers do not keep as it is, and one that is neither true nor false
    where the present one is.
    """
    _raise_if_all_failed(found)
    check_names(found, settings)
    for name, value in settings.items():
        if name in _IDENTITY:
            raise ConfigError(
                f"{name} cannot be changed while a broker runs: name servers know the"
                " broker by it",
                hint="write it into the file of the broker, and restart it",
            )
        if _SECRET_NAME.search(name) and not _PLAIN.fullmatch(value):
            raise ConfigError(
                f"the setting {name} is a secret, which other users would see among the"
                " arguments of the command",
                hint="write it into the file of the server, and restart it",
            )
        if (fault := _fault_of(value)) is not None:
            raise ConfigError(f"the value of {name} {fault}")
    steps = [_planned(each, *setting) for each in found for setting in settings.items()]
    return SettingsPlan(settings=dict(settings), steps=tuple(steps))


def _fault_of(value: str) -> str | None:
    """Return why servers would not keep a value as it is; None if they do.

    They show their settings, and write them into their file, one a line and unescaped.
    """
    if "\n" in value or "\r" in value:
        return "has a line end, which servers do not keep"
    try:
        value.encode()
    except UnicodeEncodeError:
        return "contains an unpaired surrogate, which servers do not keep"
    return None


def _planned(server: ShownSettings, name: str, value: str) -> SettingResult:
    old = None if server.settings is None else server.settings.get(name)
    error = server.error
    if error is None and old is None:
        error = ConfigError(f"{server.server} has no setting {name}")
    if old is not None and old in ("true", "false") and value not in ("true", "false"):
        raise ConfigError(
            f"{name} is {old} on {server.server}, so {value!r} is not a value of it",
            hint="use true or false",
        )
    result = "failed" if error is not None else "planned"
    return SettingResult(
        server=server.server,
        address=server.address,
        broker_id=server.broker_id,
        name=name,
        old=old,
        new=value,
        result="unchanged" if old == value else result,
        needs_restart=needs_restart(name),
        error=error,
    )


def apply_settings(client: Client, plan: SettingsPlan) -> list[SettingResult]:
    """Change the settings that the plan changes, and read back all of them.

    The results have the order of the plan's steps. A setting that was changed by
    someone else since the plan was made is overwritten.
    """
    wanted: dict[tuple[str, bool], dict[str, str]] = {}
    for step in plan.changes:
        wanted.setdefault(_key(step), {})[step.name] = plan.settings[step.name]
    written = change_many(
        client,
        {
            key: (
                key[0],
                update_broker_config(values)
                if key[1]
                else update_namesrv_config(values),
            )
            for key, values in wanted.items()
        },
    )
    read = client.ask_many(
        {
            key: (key[0], get_broker_config() if key[1] else get_namesrv_config())
            for key in wanted
        },
    )
    return [
        _applied(step, written[_key(step)], read[_key(step)])
        if step.result == "planned"
        else step
        for step in plan.steps
    ]


def _key(step: SettingResult) -> tuple[str, bool]:
    """The address of a server, and whether it is a broker."""
    return step.address, step.broker_id is not None


def _applied(
    step: SettingResult, written: RmqError | None, read: dict[str, str] | RmqError
) -> SettingResult:
    if isinstance(read, RmqError):
        now = None
        error = written or ChangeUnknownError(
            f"{step.server} was told to change {step.name}, but did not show it"
            f" afterwards: {read.message}"
        )
    else:
        now = read.get(step.name)
        if now is not None and now.strip() == (step.new or "").strip():
            return replace(step, new=now, result="changed")
        if isinstance(written, DeniedError):
            written.hint = ""  # which is about topics
        if now == step.old:
            error = written or RefusedError(
                f"{step.server} confirmed the change of {step.name}, but did not accept"
                f" the value {step.new!r}"
            )
        else:
            error = written or PartialError(
                f"{step.server} was told to set {step.name} to {step.new!r}, and has"
                " another value now"
            )
    return replace(step, new=now, result=failed_word(error), error=error)


def diff_settings(
    found: Sequence[ShownSettings], *, with_all: bool = False
) -> SettingsDiff:
    """Compare the settings of servers with each other. Pure.

    Settings that tell brokers apart, such as ports and folders, are left out unless
    `with_all` is given, and so is the role of slaves. Secrets are compared but not
    shown. Raises ConfigError for fewer than two servers.
    """
    if len(found) < 2:
        raise ConfigError("there is only one server, and so nothing to compare it with")
    _raise_if_all_failed(found)
    read = {_title(each, found): each for each in found if each.settings is not None}
    names = sorted({name for each in read.values() for name in each.settings or ()})
    values: list[SettingValue] = []
    left_out = []
    for name in names:
        held: dict[str | None, list[str]] = {}
        for title, each in read.items():
            if name == "brokerRole" and each.broker_id and not with_all:
                continue
            held.setdefault((each.settings or {}).get(name), []).append(title)
        if len(held) < 2:
            continue
        if not with_all and _OF_ONE_BROKER.fullmatch(name):
            left_out.append(name)
            continue
        values += [
            SettingValue(
                name=name, value=shown_value(name, value), servers=tuple(servers)
            )
            for value, servers in held.items()
        ]
    return SettingsDiff(
        values=tuple(values),
        left_out=tuple(left_out),
        servers=tuple(read),
        errors={_title(e, found): e.error for e in found if e.error is not None},
    )


def _title(server: ShownSettings, found: Sequence[ShownSettings]) -> str:
    """Return the name of a server; with its id if others have the same name."""
    has_others = sum(each.server == server.server for each in found) > 1
    return f"{server.server}:{server.broker_id}" if has_others else server.server
