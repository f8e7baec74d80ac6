"""Decides which profile a command uses, and gives the command its settings.

A source of servers is used as a whole: an option, a variable of the environment, or a
profile. The first one in this order counts:

    --profile, --namesrv or --endpoints
    RMQ_PROFILE, NAMESRV_ADDR or ROCKETMQ_ENDPOINTS
    the project file of the current folder
    the profile that `rmq profile use` has chosen
    the default name server, 127.0.0.1:9876

Servers that are typed, or in the environment, and that are exactly those of the profile
in use leave it in use: they name the same cluster. Credentials, TLS settings and the
address map of a profile go to the servers of this profile only, and the credentials of
the environment go to a profile's servers only if the profile says so. Options that are
typed override single settings.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rmqcli.cli.configuration.file import read_config
from rmqcli.cli.configuration.places import NO_PROFILE, project_path
from rmqcli.cli.configuration.profile import MAY_FORBID, Profile, Record
from rmqcli.config import (
    ENDPOINTS_VARIABLE,
    NAMESRV_DEFAULT,
    NAMESRV_VARIABLE,
    parse_endpoints,
    parse_namesrv,
)
from rmqcli.credentials import ENV_ACCESS_KEY
from rmqcli.errors import RmqError, TextError, UsageError

PROFILE_VARIABLE = "RMQ_PROFILE"
#: The parameters of options that name servers, with their variables and parsers.
_SERVERS: tuple[tuple[str, str, Callable[[str], tuple[str, ...]]], ...] = (
    ("namesrv", NAMESRV_VARIABLE, parse_namesrv),
    ("endpoints", ENDPOINTS_VARIABLE, parse_endpoints),
)
_TLS = ("tls", "tls_ca", "tls_server_name", "tls_cert", "tls_key", "tls_insecure")


class Chosen(Record):
    """The profile that a command uses."""

    profile: Profile
    #: what has chosen it, e.g. "--profile"
    by: str


class _Named(Record):
    """Servers that an option or a variable names."""

    #: the option or the variable
    by: str
    #: "namesrv" or "endpoints"
    kind: str
    #: None for a variable whose value is not valid
    addresses: tuple[str, ...] | None

    def are_of(self, profile: Profile) -> bool:
        return self.addresses is not None and profile.has_servers(
            self.kind, self.addresses
        )

    def __str__(self) -> str:
        return f"{self.by} {';'.join(self.addresses or ())}".strip()


def with_profile(
    given: Mapping[str, Any],
    own: Mapping[str, Any],
    typed: frozenset[str],
    *,
    formats: Sequence[str],
    may_use_proxy: bool,
    warn: Callable[[str], None],
    changes: Callable[[], bool],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the common options and the own options of a command with its profile.

    The common option `profile` is then the Profile, or None. `formats` are the output
    formats of the command, `may_use_proxy` is whether it has `--endpoints`, and
    `changes` whether it changes the cluster. Raises as `choose`.
    """
    values = {**own, **given}
    chosen = choose(values, typed, os.environ, warn, changes)
    if chosen is None:
        return {**given, "profile": None}, dict(own)
    profile = chosen.profile
    profile.check_files()
    if (
        profile.credentials is None
        and given.get("acl_file") is None
        and os.environ.get(ENV_ACCESS_KEY)
    ):
        warn(
            f"{ENV_ACCESS_KEY} is not used: {profile.title} has no credentials;"
            ' to use it there, set credentials = "environment"'
        )
    settings = common_settings(profile, given, typed)
    if "output" not in typed and profile.output in formats:
        settings["output"] = profile.output
    if not may_use_proxy:
        return settings, dict(own)
    return settings, _own_settings(profile, own, typed)


def choose(
    values: Mapping[str, Any],
    typed: frozenset[str],
    environ: Mapping[str, str],
    warn: Callable[[str], None],
    changes: Callable[[], bool] = lambda: False,
) -> Chosen | None:
    """Return the profile that a command uses; None if it uses none.

    `values` are its options by parameter, and `typed` the parameters that were typed.
    `warn` is told that the environment takes precedence over the profile in use. Raises
    UsageError if two sources of the same rank name different servers, or for an
    unknown profile, and ConfigError for a file or profile that cannot be used. A
    command with an option that says which cluster it uses goes on without a profile in
    use or a project file that cannot be used, unless it changes the cluster: what those
    forbid is not known.
    """
    name = values.get("profile")
    options = [
        _Named(f"--{kind}", kind, values[kind])
        for kind, _, _ in _SERVERS
        if kind in typed
    ]
    variables = list(_of_environment(environ))
    if name == NO_PROFILE:
        return None
    if name is not None:
        profile = read_config(environ).profile(name)
        by = "--profile" if "profile" in typed else PROFILE_VARIABLE
        if "profile" in typed:
            _refuse_others(f"--profile {name}", profile, options)
        elif not options:
            _refuse_others(f"{PROFILE_VARIABLE}={name}", profile, variables)
        try:
            profile = in_project(profile, environ)
        except RmqError as error:
            _go_on_without(error, changes, warn)
        chosen: Chosen | None = Chosen(profile, by)
        if "profile" in typed or not options:
            return chosen
    else:
        try:
            chosen = _in_use(environ)
        except RmqError as error:
            if not options:
                raise
            _go_on_without(error, changes, warn)
            chosen = None
    if chosen is None:
        return None
    named = options or variables
    other = next((each for each in named if not each.are_of(chosen.profile)), None)
    if other is None:
        return chosen
    if not options:
        warn(
            f"{other} is used, not {chosen.profile.title}"
            f" ({chosen.profile.servers}), which {chosen.by} chose"
        )
    return None


def _in_use(environ: Mapping[str, str]) -> Chosen | None:
    project = project_path()
    if project is not None:
        from rmqcli.cli.configuration.project import read_project

        return Chosen(read_project(project, environ), project)
    config = read_config(environ)
    if config.use is None or config.use == NO_PROFILE:
        return None
    return Chosen(config.profile(config.use), "rmq profile use")


def _go_on_without(
    error: RmqError, changes: Callable[[], bool], warn: Callable[[str], None]
) -> None:
    """Warn of a file that cannot be used; raise the error for a change."""
    if changes():
        error.hint = MAY_FORBID
        raise error
    warn(f"{error.message}; the command goes on without it")


def in_project(profile: Profile, environ: Mapping[str, str]) -> Profile:
    """Return a profile with what the project of the folder forbids for it, too."""
    path = project_path()
    if path is None:
        return profile
    from rmqcli.cli.configuration.project import read_project

    found = read_project(path, environ)
    if found.is_project or found.name != profile.name:
        return profile
    return profile.replace(
        read_only=found.read_only, protected=found.protected, restricted_by=path
    )


def _of_environment(environ: Mapping[str, str]) -> list[_Named]:
    found = []
    for kind, variable, parse in _SERVERS:
        if not environ.get(variable):
            continue
        try:
            addresses: tuple[str, ...] | None = parse(environ[variable])
        except TextError:
            addresses = None
        found.append(_Named(variable, kind, addresses))
    return found


def _refuse_others(source: str, profile: Profile, named: list[_Named]) -> None:
    """Raise UsageError if servers are named that are not those of the profile."""
    for each in named:
        if not each.are_of(profile):
            raise UsageError(
                f"{source} has other servers ({profile.servers}) than {each}",
                hint=(
                    "give only one of them"
                    if each.by.startswith("-")
                    else f"unset one of them, or give --profile {profile.name}"
                ),
            )


def common_settings(
    profile: Profile, given: Mapping[str, Any], typed: frozenset[str]
) -> dict[str, Any]:
    """Return the common options of a command that uses a profile.

    `given` are the values of the common options. Those that were typed override the
    settings of the profile.
    """
    settings = dict(given)
    settings["profile"] = profile
    settings["namesrv"] = profile.namesrv or (NAMESRV_DEFAULT,)
    own = {name: getattr(profile, name) for name in _TLS}
    typed_tls = typed.intersection(_TLS)
    if "tls_insecure" in typed_tls:
        own["tls_ca"] = None
    if "tls_ca" in typed_tls:
        own["tls_insecure"] = False
    if "plaintext" in typed:
        own = dict.fromkeys(_TLS)
    if typed_tls & {"tls_cert", "tls_key"}:  # a pair
        own["tls_cert"] = own["tls_key"] = None
    settings |= {name: own[name] for name in _TLS if name not in typed_tls}
    pairs = dict(profile.address_map) | dict(given.get("address_map") or ())
    settings["address_map"] = list(pairs.items())
    return settings


def _own_settings(
    profile: Profile, own: Mapping[str, Any], typed: frozenset[str]
) -> dict[str, Any]:
    """Return a command's own options with the proxy of the profile, or without one.

    It is for a command with `--endpoints`. Without typed servers, a proxy that only the
    environment names must not be used.
    """
    settings = dict(own)
    if "endpoints" not in typed:
        settings["endpoints"] = profile.endpoints or None
    if "plaintext" not in typed and not typed.intersection(_TLS):
        settings["plaintext"] = profile.plaintext
    return settings
