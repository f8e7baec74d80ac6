"""`rmq profile edit`: the user's file of profiles in an editor, checked afterwards."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rmqcli.cli.configuration.file import parse_config
from rmqcli.cli.configuration.places import NO_PROFILE
from rmqcli.cli.options import Common, command_options
from rmqcli.cli.profile.change import locked_config
from rmqcli.cli.ui.messages import is_terminal
from rmqcli.cli.ui.prompt import read_line
from rmqcli.errors import ConfigError, RefusedError, UsageError

#: What a new file begins with.
_TEMPLATE = """\
# use = "dev"                       # the profile that commands use

# [profiles.dev]
# namesrv = "127.0.0.1:9876"
# credentials_file = "dev.acl"      # beside this file, mode 0600
"""


@command_options(connects=False)
def edit(common: Common) -> None:
    """Edit the file of profiles in your editor.

    Example: rmq profile edit

    The editor is that of VISUAL or EDITOR, else vi. What it saved is checked, every
    profile of it, and replaces the file only then.
    """
    if common.no_input or not is_terminal(sys.stdin):
        raise RefusedError(
            "an editor needs a terminal: nothing was changed",
            hint="change the file with rmq profile add, use and remove",
        )
    with locked_config(os.environ) as file:
        folder = tempfile.mkdtemp(prefix=".edit-", dir=os.path.dirname(file.path))
        try:
            draft = Path(folder, "config.toml")
            draft.write_text(file.text or _TEMPLATE, encoding="utf-8")
            draft.chmod(0o600)
            text = _edited(common, draft)
            if text == (file.text or _TEMPLATE):
                common.messages.info("nothing was changed")
            else:
                file.write(text)
                common.messages.info(f"{file.path} is changed")
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _edited(common: Common, draft: Path) -> str:
    """Have the user edit the draft until it is valid; return its text."""
    while True:
        _run_editor(draft)
        try:
            return _checked(draft)
        except UsageError as error:
            common.messages.error(error.message, hint=error.hint)
            sys.stderr.write("Edit it again? [Y/n] ")
            sys.stderr.flush()
            answer = read_line()
            if answer.strip().lower() not in ("", "y", "yes") or not answer:
                raise RefusedError("nothing was changed") from error


def _run_editor(draft: Path) -> None:
    text = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        words = shlex.split(text)
        code = subprocess.run([*words, draft], check=False).returncode  # noqa: S603
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise RefusedError(
            f"cannot start the editor {text}: {reason.lower()}; nothing was changed",
            hint="set EDITOR",
        ) from error
    if code:
        raise RefusedError(
            f"the editor {words[0]} ended with exit code {code}: nothing was changed"
        )


def _checked(draft: Path) -> str:
    """Return the text of the draft. Raises UsageError for a fault of any profile."""
    try:
        text = draft.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise RefusedError("the editor removed the file: nothing was changed") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{draft}: not UTF-8 text") from None
    config = parse_config(text, str(draft))
    for name in config.profiles:
        config.profile(name)
    if config.use is not None and config.use != NO_PROFILE:
        config.profile(config.use)
    return text
