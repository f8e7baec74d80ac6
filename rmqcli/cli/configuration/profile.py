"""One profile: a cluster as a whole, checked.

A profile holds the servers of one cluster, the credentials, the TLS settings and the
address map that belong to them, and defaults for commands that use the cluster. Its
credentials are read only when a client is opened.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Self, dataclass_transform

from rmqcli.cli.configuration.places import NO_PROFILE
from rmqcli.config import (
    ClientConfig,
    parse_address_mapping,
    parse_endpoints,
    parse_namesrv,
)
from rmqcli.errors import ConfigError, RmqError, TextError, UsageError

if TYPE_CHECKING:
    from rmqcli.wire.acl import Credentials

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_NAME_HINT = "a name has up to 64 letters, digits, dots, underscores and hyphens"

#: Keys of secrets, which a project file must not hold.
SECRETS = ("access_key", "secret_key", "security_token")
_SOURCES = ("credentials_file", "credentials_command", "credentials")
_TLS_FILES = ("tls_ca", "tls_cert", "tls_key")
_TEXTS = (*SECRETS, "credentials_file", "credentials", *_TLS_FILES)
_MORE_TEXTS = ("tls_server_name", "output", "time_zone")
_SWITCHES = ("plaintext", "tls", "tls_insecure", "read_only", "protected")
#: The keys of a profile.
KEYS = (
    *("namesrv", "endpoints", "addresses", "credentials_command"),
    *_TEXTS,
    *_MORE_TEXTS,
    *_SWITCHES,
)
#: The hint of an error in a file or a profile, for a command that changes a cluster.
MAY_FORBID = "it may forbid changes; to change the cluster anyway, correct it"
#: The values of `--output` of any command.
OUTPUTS = ("auto", "pretty", "table", "json", "jsonl", "raw", "hex", "csv")


@dataclass_transform(frozen_default=True)
class Record:
    """A dataclass to the type checker; treat as immutable.

    Python needs 1 ms to make a real one, or a NamedTuple, and a start makes five.
    """

    def __init__(self, *values: Any, **named: Any) -> None:
        self.__dict__.update(zip(type(self).__annotations__, values, strict=False))
        self.__dict__.update(named)

    def replace(self, **values: Any) -> Self:
        """Return a copy with other values."""
        return type(self)(**{**self.__dict__, **values})


class CredentialsSource(Record):
    """Where a profile's credentials come from. `repr` shows no secret."""

    #: "file", "command", "keys" or "environment"
    kind: str
    #: the path, the words of the command, or the Credentials
    value: Any = None

    def __str__(self) -> str:
        match self.kind:
            case "file":
                return f"file {self.value}"
            case "command":
                return f"command {self.value[0]}"
            case "keys":
                return "keys in the profile"
        return "RMQ_ACCESS_KEY and RMQ_SECRET_KEY"

    def load(self, profile: str) -> Credentials:
        """Read the credentials. Raises ConfigError, which names the profile."""
        from rmqcli.credentials import load_credentials

        if self.kind == "keys":
            found: Credentials = self.value
            return found
        try:
            if self.kind == "command":
                return _from_command(self.value)
            path = self.value if self.kind == "file" else None
            loaded = load_credentials(path, environ=os.environ, stdin=None)
        except ConfigError as error:
            raise ConfigError(
                f"credentials of {profile}: {error.message}", hint=error.hint
            ) from error
        if loaded is None:
            raise ConfigError(
                f"credentials of {profile}: RMQ_ACCESS_KEY and RMQ_SECRET_KEY are not"
                " set"
            )
        return loaded


def _have_one_in_common(some: tuple[str, ...], others: tuple[str, ...]) -> bool:
    return not _written_alike(some).isdisjoint(_written_alike(others))


def _written_alike(addresses: Iterable[str]) -> set[str]:
    """Return addresses so that one of this machine is written in one way only."""
    found = set()
    for each in addresses:
        host, colon, port = each.lower().rpartition(":")
        if host in ("localhost", "[::1]"):
            host = "127.0.0.1"
        found.add(f"{host}{colon}{port}")
    return found


class Project(Record):
    """The project file that a profile comes from."""

    path: str
    #: its whole content
    text: str
    #: whether it belongs to another user
    is_foreign: bool


class Profile(Record):
    """The settings of a profile."""

    name: str
    #: the file that has the settings
    path: str
    namesrv: tuple[str, ...] = ()
    endpoints: tuple[str, ...] = ()
    plaintext: bool = False
    credentials: CredentialsSource | None = None
    tls: bool = False
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_server_name: str | None = None
    tls_insecure: bool = False
    #: pairs of an advertised and a reachable address; see ClientConfig
    address_map: tuple[tuple[str, str], ...] = ()
    output: str | None = None
    #: the zone of times that are typed without one; None: this machine's
    time_zone: str | None = None
    read_only: bool = False
    protected: bool = False
    #: whether a project's file, and not the user's, has the servers
    is_project: bool = False
    #: the project file that has the servers, or that names the profile
    project: Project | None = None
    #: a project file that was not chosen, and may forbid more for this profile
    restricted_by: str | None = None

    @property
    def title(self) -> str:
        """How messages name it: `profile prod`."""
        return f"{'project' if self.is_project else 'profile'} {self.name}"

    @property
    def servers(self) -> str:
        """Its servers, as `namesrv a:9876` or `endpoints a:8081`."""
        if self.endpoints:
            return f"endpoints {';'.join(self.endpoints)}"
        return f"namesrv {';'.join(self.namesrv)}"

    @property
    def uses_tls(self) -> bool:
        """Whether connections to its name servers and brokers use TLS."""
        return (
            self.tls
            or self.tls_insecure
            or any((self.tls_ca, self.tls_cert, self.tls_server_name))
        )

    def has_servers(self, kind: str, addresses: tuple[str, ...]) -> bool:
        """Whether its servers are these; `kind` is "namesrv" or "endpoints"."""
        own = self.endpoints if kind == "endpoints" else self.namesrv
        return _written_alike(own) == _written_alike(addresses)

    def has_one_of(self, kind: str, addresses: tuple[str, ...]) -> bool:
        """Whether one of these is its server; `kind` is "namesrv" or "endpoints"."""
        own = self.endpoints if kind == "endpoints" else self.namesrv
        return _have_one_in_common(own, addresses)

    def load_credentials(self) -> Credentials | None:
        """Read its credentials; None if it has none. Raises ConfigError."""
        if self.credentials is None:
            return None
        return self.credentials.load(self.title)

    def check_files(self) -> None:
        """Raise ConfigError unless the files of its TLS settings can be read."""
        from rmqcli.files import check_readable

        for key in _TLS_FILES:
            path = getattr(self, key)
            if path is None:
                continue
            try:
                check_readable(path)
            except UsageError as error:
                raise ConfigError(
                    f"{self.title}: {key}: {error.message}", hint=f"see: {self.path}"
                ) from error


def is_name(name: str) -> bool:
    """Whether a profile can have this name."""
    return name != NO_PROFILE and _NAME.fullmatch(name) is not None


def check_name(name: str) -> str:
    """Return the name of a profile. Raises UsageError for one that cannot be."""
    if name == NO_PROFILE:
        raise UsageError(f"{name} is no name of a profile: it stands for no profile")
    if _NAME.fullmatch(name) is None:
        raise UsageError(f"{name!r} is no name of a profile", hint=_NAME_HINT)
    return name


def read_profile(
    name: str, table: object, *, path: str, is_project: bool = False
) -> Profile:
    """Check the settings of a profile, as TOML has them.

    Paths are relative to the folder of `path`, the file that has the settings. Raises
    ConfigError, which names the file, the profile and the key, and quotes no secret.
    """
    where = path if is_project else f"{path}: profile {name}"
    try:
        return _read(name, table, path, is_project=is_project)
    except RmqError as error:
        raise ConfigError(f"{where}: {error.message}", hint=error.hint) from error


def _read(name: str, table: object, path: str, *, is_project: bool) -> Profile:
    if not is_project:
        check_name(name)
    if not isinstance(table, Mapping):
        raise ConfigError("is not a table")
    check_defaults(table)
    namesrv = _servers(table, "namesrv")
    endpoints = _servers(table, "endpoints")
    if bool(namesrv) == bool(endpoints):
        raise ConfigError(
            "namesrv and endpoints cannot be used together"
            if namesrv
            else "has neither namesrv nor endpoints",
            hint="a profile names the name servers of a cluster, or a proxy of it",
        )
    _check_pairs(table, endpoints)
    plain: dict[str, Any] = {
        **{key: table.get(key, False) for key in _SWITCHES},
        **{key: table.get(key) for key in _MORE_TEXTS},
    }
    for key in _TLS_FILES:
        plain[key] = table.get(key) and _path(path, table[key])
    return Profile(
        name=name,
        path=path,
        namesrv=namesrv,
        endpoints=endpoints,
        credentials=_credentials(table, path),
        address_map=_address_map(table.get("addresses", {})),
        is_project=is_project,
        **plain,
    )


def check_defaults(table: Mapping[str, object]) -> None:
    """Raise ConfigError for a setting of a wrong type, or a wrong default."""
    for key, value in table.items():
        _check_type(key, value)
    if table.get("output", "auto") not in OUTPUTS:
        raise ConfigError(
            f"output: {table['output']!r} is not one of {', '.join(OUTPUTS)}"
        )
    zone = table.get("time_zone")
    if isinstance(zone, str):
        find_zone(zone)


def _check_type(key: str, value: object) -> None:
    if key not in KEYS:
        from rmqcli.names import similar

        near = similar(key, KEYS)
        hint = f"did you mean {' or '.join(near)}?" if near else ""
        raise ConfigError(f"{key} is no setting of a profile", hint=hint)
    kind: type[Any] = str
    noun = "text"
    if key in _SWITCHES:
        kind, noun = bool, "true or false"
    elif key == "addresses":
        kind, noun = Mapping, "a table"
    elif key in ("namesrv", "endpoints", "credentials_command"):
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            return
        noun = "text or a list of texts"
    if not isinstance(value, kind):
        raise ConfigError(f"{key} must be {noun}")
    if value == "":
        raise ConfigError(f"{key} is empty")


def _check_pairs(table: Mapping[str, Any], endpoints: tuple[str, ...]) -> None:
    tls = [key for key in table if key.startswith("tls") and table[key]]
    for present, one, other in (
        (table.get("plaintext") and not endpoints, "plaintext", "namesrv"),
        (table.get("plaintext") and tls, "plaintext", "".join(tls[:1])),
        (table.get("tls_insecure") and "tls_ca" in table, "tls_insecure", "tls_ca"),
        (endpoints and table.get("addresses"), "addresses", "endpoints"),
    ):
        if present:
            raise ConfigError(f"{one} and {other} cannot be used together")
    if "tls_key" in table and "tls_cert" not in table:
        raise ConfigError("tls_key needs tls_cert")
    if table.get("tls") is False and len(tls) > 0:
        raise ConfigError(f"{tls[0]} needs tls, which is false")


def _servers(table: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = table.get(key)
    if value is None:
        return ()
    text = value if isinstance(value, str) else ";".join(value)
    parse = parse_namesrv if key == "namesrv" else parse_endpoints
    try:
        return parse(text)
    except TextError as error:
        raise ConfigError(f"{key}: {error.message}", hint=error.hint) from error


def may_have_one_of(table: object, kind: str, addresses: tuple[str, ...]) -> bool:
    """Whether one of these may be a server of a profile that `read_profile` refuses."""
    if not isinstance(table, Mapping) or not addresses:
        return False
    try:
        own = _servers(table, kind)
    except (RmqError, TypeError):  # not a list of texts
        return True
    return _have_one_in_common(own, addresses)


def _address_map(table: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    pairs = []
    for advertised, reachable in table.items():
        if not isinstance(reachable, str):
            raise ConfigError(f"addresses: {advertised} must be text")
        pairs.append(parse_address_mapping(f"{advertised}={reachable}"))
    return ClientConfig(address_map=pairs).address_map  # checks them together


def find_zone(name: str) -> Any:
    """Return the zone of a name such as Europe/Berlin. Raises ConfigError."""
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    # ZoneInfoNotFoundError is a KeyError; an odd name is a ValueError or an OSError.
    except (KeyError, ValueError, OSError):
        raise ConfigError(
            f"time_zone: {name!r} is not a time zone", hint="for example Europe/Berlin"
        ) from None


def _credentials(table: Mapping[str, Any], path: str) -> CredentialsSource | None:
    given = [key for key in _SOURCES if key in table]
    keys = [key for key in SECRETS if key in table]
    given += keys[:1]
    if len(given) > 1:
        raise ConfigError(f"{given[0]} and {given[1]} cannot be used together")
    if not given:
        return None
    match given[0]:
        case "credentials_file":
            return CredentialsSource("file", _path(path, table["credentials_file"]))
        case "credentials_command":
            return CredentialsSource("command", _words(table["credentials_command"]))
        case "credentials":
            if table["credentials"] != "environment":
                raise ConfigError(
                    'credentials must be "environment"',
                    hint="for a file or a command: credentials_file or"
                    " credentials_command",
                )
            return CredentialsSource("environment")
    missing = [key for key in SECRETS[:2] if key not in table]
    if missing:
        raise ConfigError(f"{missing[0]} is missing")
    from rmqcli.wire.acl import Credentials

    credentials = Credentials(
        table["access_key"], table["secret_key"], table.get("security_token")
    )
    return CredentialsSource("keys", credentials)


def _words(value: str | list[str]) -> tuple[str, ...]:
    import shlex  # only when a profile has a command

    try:
        words = shlex.split(value) if isinstance(value, str) else value
    except ValueError as error:
        raise ConfigError(f"credentials_command: {str(error).lower()}") from None
    if not words or not words[0]:
        raise ConfigError("credentials_command is empty")
    return tuple(words)


def _path(config: str, path: str) -> str:
    return os.path.join(os.path.dirname(config), os.path.expanduser(path))


@cache  # a second client of one command does not ask the user again
def _from_command(words: tuple[str, ...]) -> Credentials:
    """Run a command that prints what a file with credentials contains.

    It may ask the user for a password, so it has the terminal and no time limit.
    """
    import subprocess  # only for profiles with a command

    from rmqcli.credentials import FILE_BYTES_MAX, parse_credentials, without_secrets

    try:
        done = subprocess.run(  # noqa: S603  # the user's own command
            words,
            stdout=subprocess.PIPE,
            env=without_secrets(os.environ),
            check=False,
        )
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"{words[0]}: {reason.lower()}") from error
    if done.returncode:
        raise ConfigError(f"{words[0]} ended with exit code {done.returncode}")
    if len(done.stdout) > FILE_BYTES_MAX:
        raise ConfigError(f"{words[0]}: too large for credentials")
    try:
        text = done.stdout.decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{words[0]}: not UTF-8 text") from None
    return parse_credentials(text, source=words[0])
