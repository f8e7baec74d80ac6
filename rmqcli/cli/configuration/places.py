"""Where files of profiles are. Every command looks there, so it loads little."""

from __future__ import annotations

import os
from collections.abc import Mapping

from rmqcli.files import xdg_folder

PROJECT_FILE = ".rmq.toml"
#: In place of a profile's name: no profile at all.
NO_PROFILE = "none"


def config_path(environ: Mapping[str, str]) -> str | None:
    """Return the path of the user's file; None without a home directory.

    It is `$XDG_CONFIG_HOME/rmq/config.toml`.
    """
    folder = xdg_folder(environ, "XDG_CONFIG_HOME", ".config")
    return None if folder is None else os.path.join(folder, "rmq", "config.toml")


def project_path() -> str | None:
    """Return the path of the project file of the current folder, if there is one.

    It is the `.rmq.toml` of the nearest folder, from the current one upwards, that has
    such a file.
    """
    try:
        folder = os.getcwd()
    except OSError:  # the folder was removed
        return None
    while True:
        path = os.path.join(folder, PROJECT_FILE)
        if os.path.lexists(path):
            return path
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above


def has_config(environ: Mapping[str, str]) -> bool:
    """Whether there may be a profile in use; for most users there is none."""
    path = config_path(environ)
    return (path is not None and os.path.lexists(path)) or project_path() is not None
