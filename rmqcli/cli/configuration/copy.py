"""A parsed copy of a file of settings, because Python's parser of TOML loads slowly.

The copy is a JSON file in `$XDG_CACHE_HOME/rmq/settings`, with the text that was
parsed. It answers for exactly this text only, so it never answers for a file that was
changed. A text that may hold a key has no copy. Everything odd about a copy, such as
another owner, or other users who can read it, means that there is none.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from zlib import crc32

from rmqcli.cli.configuration.profile import SECRETS
from rmqcli.files import folder_fault, replace_file, xdg_folder

#: In JSON a character of the text has up to six bytes.
_BYTES_MAX = 16 << 20
#: Projects may be in any number of folders.
_FILES_MAX = 64


def parsed_copy(
    text: str, path: str, environ: Mapping[str, str]
) -> dict[str, Any] | None:
    """Return what was kept for this text of the file `path`; None if nothing was."""
    try:
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(_copy_path(path, environ), flags), "rb") as file:
            status = os.fstat(file.fileno())
            if (
                not stat.S_ISREG(status.st_mode)
                or stat.S_IMODE(status.st_mode) & 0o077
                or status.st_uid != os.geteuid()
            ):
                return None
            copy = json.loads(file.read(_BYTES_MAX))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(copy, dict) or copy.get("text") != text:
        return None
    table = copy.get("table")
    return table if isinstance(table, dict) else None


def keep_copy(
    table: dict[str, Any], text: str, path: str, environ: Mapping[str, str]
) -> None:
    """Keep the table that a text was parsed to, if it may be kept and can be."""
    # A name in quotes may be spelled with escapes.
    if any(each in text for each in (*SECRETS, "\\")):
        return
    copy = {"text": text, "table": table}
    # A date is no JSON (TypeError), and a folder may belong to another user.
    with suppress(OSError, ValueError, TypeError, RecursionError):
        data = json.dumps(copy, allow_nan=False)
        name = _copy_path(path, environ)
        folder = os.path.dirname(name)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        if folder_fault(folder) is None:
            replace_file(name, data.encode(), mode=0o600, is_synced=False)


def _copy_path(path: str, environ: Mapping[str, str]) -> str:
    """Return where the copy is; two files may share one. Raises OSError without one."""
    folder = xdg_folder(environ, "XDG_CACHE_HOME", ".cache")
    if folder is None:
        raise FileNotFoundError
    number = crc32(path.encode(errors="surrogateescape")) % _FILES_MAX
    return os.path.join(folder, "rmq", "settings", f"{number}.json")
