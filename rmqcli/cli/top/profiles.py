"""The clusters that `rmq top` can show: the one in use, and those of the profiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.cli.configuration.choose import common_settings, in_project
from rmqcli.cli.configuration.file import read_config
from rmqcli.cli.options import CLUSTER_NAMES, make_common
from rmqcli.cli.top.cluster import NamedCluster
from rmqcli.errors import RmqError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqcli.cli.configuration.profile import Profile
    from rmqcli.cli.options import Common
    from rmqcli.config import ClientConfig


def cluster_in_use(common: Common, *, allow_changes: bool) -> NamedCluster:
    """Return the cluster that the command uses. Raises as `Common.client_config`."""
    config = common.client_config()
    profile = common.profile
    name = common.namesrv_text
    if profile is not None:
        name = profile.title if profile.is_project else profile.name
    cluster = NamedCluster(
        name=name,
        title=name if profile is None else profile.title,
        load=lambda: config,
        servers=f"namesrv {common.namesrv_text}",
        flags=tuple(common.flags_to_repeat() if common.typed & CLUSTER_NAMES else ()),
        allow_changes=allow_changes,
        rule="" if profile is None else _rule(profile),
    )
    cluster.config()
    return cluster


def clusters_of_profiles(
    common: Common, environ: Mapping[str, str], *, allow_changes: bool
) -> list[NamedCluster]:
    """Return the clusters of all profiles but the one that the command uses.

    With `allow_changes`, those of profiles that are neither read-only nor protected can
    be changed; for a protected one, its name is asked for only when a command begins.
    Raises ConfigError for a file of profiles that cannot be read.
    """
    config = read_config(environ)
    used = common.profile
    found = []
    for name in config.profiles:
        if used is not None and not used.is_project and used.name == name:
            continue
        try:
            profile = config.profile(name)
        except RmqError as error:
            found.append(_unusable(name, error))
            continue
        rule = ""
        try:
            profile = in_project(profile, environ)
        except RmqError as error:
            rule = f"not to be changed here: {error.message}"
        found.append(
            _cluster_of(
                profile,
                rule or _rule(profile),
                timeout_ms=common.timeout_ms,
                allow_changes=allow_changes,
            )
        )
    return found


def _cluster_of(
    profile: Profile, rule: str, *, timeout_ms: int, allow_changes: bool
) -> NamedCluster:
    settings = common_settings(profile, {}, frozenset())
    source = profile.credentials

    def load() -> ClientConfig:
        profile.check_files()
        return make_common(**settings, timeout=timeout_ms).client_config()

    return NamedCluster(
        name=profile.name,
        title=profile.title,
        load=load,
        servers=profile.servers,
        flags=("--profile", profile.name),
        allow_changes=allow_changes and not rule,
        rule=rule,
        asks=source is not None and source.kind == "command" and not profile.endpoints,
    )


def _unusable(name: str, error: RmqError) -> NamedCluster:
    def load() -> ClientConfig:
        raise error

    return NamedCluster(
        name=name, title=f"profile {name}", load=load, flags=("--profile", name)
    )


def _rule(profile: Profile) -> str:
    """Return what a profile says of changes."""
    if profile.read_only:
        return "read-only"
    return "protected" if profile.protected else ""
