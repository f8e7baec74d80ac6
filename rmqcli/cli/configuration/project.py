"""A project file: the cluster of a folder, which somebody else may have written.

It is the `.rmq.toml` of the nearest folder, from the current one upwards, that has one.
It names a profile of the user, or servers of its own, and never holds secrets or
commands. Before credentials of the user are sent to servers that such a file names, and
before a file of another user is followed at all, the user is asked; the answer holds
for this content of this file.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from typing import Any

from rmqcli.cli.configuration.file import (
    PROFILES,
    USE,
    read_config,
    read_with_status,
    table_of,
    written_by_others,
)
from rmqcli.cli.configuration.profile import (
    SECRETS,
    Profile,
    Project,
    check_defaults,
    is_name,
    read_profile,
)
from rmqcli.errors import ConfigError, RefusedError, UsageError
from rmqcli.files import replace_file, state_folder

_PROFILE = "profile"
#: The settings that a project file may have beside the name of a profile.
_BESIDE = ("output", "time_zone", "read_only", "protected")


def read_project(path: str, environ: Mapping[str, str]) -> Profile:
    """Return the profile that a project file stands for.

    Raises ConfigError for a file that cannot be used, UsageError for the name of a
    profile that does not exist.
    """
    try:
        text, status = read_with_status(path)
    except FileNotFoundError:  # a symbolic link to nothing
        raise ConfigError(f"{path}: no such file or directory") from None
    if status.st_mode & 0o002:
        raise written_by_others(path, stat.S_IMODE(status.st_mode))
    table = table_of(text, path, environ)
    _check(table, path)
    project = Project(path, text, status.st_uid not in (os.geteuid(), 0))
    if _PROFILE not in table:
        folder = os.path.basename(os.path.dirname(path))
        name = folder if is_name(folder) else "project"
        profile = read_profile(name, table, path=path, is_project=True)
        return profile.replace(project=project)
    beside = {key: value for key, value in table.items() if key != _PROFILE}
    try:
        check_defaults(beside)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}", hint=error.hint) from error
    try:
        profile = read_config(environ).profile(table[_PROFILE])
    except UsageError as error:  # the user typed no profile
        raise UsageError(f"{path}: {error.message}", hint=error.hint) from None
    return profile.replace(
        project=project,
        output=beside.get("output", profile.output),
        time_zone=beside.get("time_zone", profile.time_zone),
        read_only=profile.read_only or beside.get("read_only", False),
        protected=profile.protected or beside.get("protected", False),
    )


def _check(table: Mapping[str, Any], path: str) -> None:
    """Raise ConfigError for what a project file must not have."""
    for key in table:
        what = ""
        if key in SECRETS:
            what = f"{key} is a secret, which a project file must not hold"
        elif key == "credentials_command":
            what = "a project file must not name a command"
        if what:
            raise ConfigError(
                f"{path}: {what}",
                hint="put it into a profile, and name that: profile = NAME",
            )
        if key in (USE, PROFILES):
            raise ConfigError(
                f"{path}: a project file has no {key}",
                hint="it has the settings of one profile, or: profile = NAME",
            )
    if _PROFILE not in table:
        return
    if not isinstance(table[_PROFILE], str):
        raise ConfigError(f"{path}: {_PROFILE} must be the name of a profile")
    others = [key for key in table if key not in (_PROFILE, *_BESIDE)]
    if others:
        raise ConfigError(
            f"{path}: {_PROFILE} and {others[0]} cannot be used together",
            hint="servers and their settings are those of the profile",
        )


def check_trust(
    profile: Profile,
    *,
    acl_file: str | None,
    certificate: str | None,
    no_input: bool,
    warn: Callable[[str], None],
) -> None:
    """Ask whether a project file may do what it does, unless that was allowed before.

    `acl_file` and `certificate` are those that the command uses. Raises RefusedError
    unless the answer is yes.
    """
    what = _at_risk(profile, acl_file, certificate)
    if profile.project is None or what is None:
        return
    path = profile.project.path
    from hashlib import sha256  # only for a question

    digest = sha256(f"{path}\0{profile.project.text}".encode()).hexdigest()
    # Other credentials are another question.
    key = sha256(f"{digest}\0{what}".encode()).hexdigest()
    folder = state_folder(os.environ, "projects")
    if folder is not None and os.path.exists(os.path.join(folder, key)):
        return
    from rmqcli.cli.ui.prompt import ask

    answer = ask(
        f"{path} {what}.\nAllow this, as long as the file stays as it is? [y/N] ",
        no_input=no_input,
        hint="run a command here on a terminal once, or name a --profile",
        refused=f"{path} {what}, which nobody has allowed",
    )
    if answer.strip().lower() not in ("y", "yes"):
        raise RefusedError(f"{path} was not allowed: nothing was done")
    if folder is None:
        return
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        replace_file(os.path.join(folder, key), f"{path}\n".encode(), mode=0o600)
    except OSError as error:
        where = error.filename or folder
        warn(f"the answer is not remembered: {where}: {error.strerror}")


def _at_risk(
    profile: Profile, acl_file: str | None, certificate: str | None
) -> str | None:
    """Say what the project file does that the user must allow; None for nothing."""
    if profile.is_project:
        given = []
        if acl_file is not None:
            given.append(f"the credentials of {acl_file}")
        elif profile.credentials is not None:
            given.append(f"the credentials of {profile.credentials}")
        if certificate is not None:
            given.append(f"the certificate {certificate}")
        if given:
            return f"sends {' and '.join(given)} to {profile.servers}"
    if profile.project is not None and profile.project.is_foreign:
        return f"belongs to another user, and chooses {profile.servers}"
    return None
