"""What a profile forbids: changes, or changes without its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.cli.configuration.file import read_config
from rmqcli.cli.configuration.places import project_path
from rmqcli.cli.configuration.profile import MAY_FORBID, may_have_one_of
from rmqcli.errors import RefusedError, RmqError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqcli.cli.configuration.profile import Profile


def check_profile(
    profile: Profile | None,
    *,
    changes: bool,
    confirmed: str | None,
    no_input: bool,
    asks: bool = False,
    is_load: bool = False,
) -> None:
    """Refuse a command that its profile forbids; ask for the name of a protected one.

    `changes` is whether the command changes the cluster, and `confirmed` the profile
    that `--confirm` names; `--yes` does not stand for it, but the hint of a refusal
    names both if the command `asks` a question of its own. A command that puts load on
    the cluster (`is_load`) is refused under a protected profile in any case. Raises
    RefusedError, also if `--confirm` names another profile than the one that is used.
    """
    if confirmed is not None and (profile is None or profile.name != confirmed):
        used = "no profile" if profile is None else profile.title
        raise RefusedError(
            f"--confirm names profile {confirmed}, but {used} is used: nothing was"
            " changed"
        )
    if profile is None or not changes:
        return
    if profile.read_only:
        raise RefusedError(
            f"{profile.title} is read-only, and this command changes its cluster"
            f" ({profile.servers}): nothing was changed",
            hint=f"its settings are in {' and '.join(_files(profile))}",
        )
    if profile.protected and is_load:
        raise RefusedError(
            f"{profile.title} is protected, and a benchmark puts load on its cluster"
            f" ({profile.servers}): nothing was sent",
            hint=f"its settings are in {' and '.join(_files(profile))}",
        )
    if profile.protected and confirmed is None:
        _ask_for_name(profile, ["--yes"] if asks else [], no_input=no_input)


def _files(profile: Profile) -> list[str]:
    """Return the files that may forbid changes of the profile's cluster."""
    project = None if profile.project is None else profile.project.path
    paths = profile.path, project, profile.restricted_by
    return [path for path in dict.fromkeys(paths) if path]


def profile_of_servers(
    namesrv: tuple[str, ...],
    endpoints: tuple[str, ...],
    environ: Mapping[str, str],
) -> Profile | None:
    """Return the profile that forbids changes of the cluster of some servers.

    It is for a command without a profile. None if no profile with one of the servers is
    read-only or protected, or if another one with one of them allows changes. The
    project of the folder counts, too. Raises ConfigError for the file of profiles, for
    that of the project, and for a profile that cannot be read and may be one of those.
    """
    config = read_config(environ)
    path = project_path()
    project = None
    if path is not None:
        from rmqcli.cli.configuration.project import read_project

        project = read_project(path, environ)
    found = [] if project is None else [project]
    for name in config.profiles:
        if project is not None and not project.is_project and name == project.name:
            continue  # the project may forbid more
        try:
            profile = config.profile(name)
        except RmqError as error:
            table = config.profiles[name]
            if may_have_one_of(table, "namesrv", namesrv) or may_have_one_of(
                table, "endpoints", endpoints
            ):
                error.hint = MAY_FORBID
                raise
            continue
        found.append(profile)
    found = [
        each
        for each in found
        if each.has_one_of("namesrv", namesrv)
        or each.has_one_of("endpoints", endpoints)
    ]
    if not all(each.read_only or each.protected for each in found):
        return None
    # The name of a protected one is an answer, so a read-only one is the last resort.
    return min(found, key=lambda each: each.read_only, default=None)


def _ask_for_name(profile: Profile, more: list[str], *, no_input: bool) -> None:
    from rmqcli.cli.ui.prompt import ask, is_name, this_command_with

    answer = ask(
        f"{profile.title} ({profile.servers}) is protected, and this command changes"
        f" its cluster.\nType {profile.name} to confirm: ",
        no_input=no_input,
        hint=f"run: {this_command_with(['--confirm', profile.name, *more])}",
    )
    if not is_name(answer, profile.name):
        raise RefusedError(
            f"not confirmed: {profile.name!r} was not typed, nothing was changed"
        )
