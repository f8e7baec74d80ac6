"""`rmq completion install`: the completion file where the user's shell looks for it."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated

from rmqcli.cli.options import argument, command_options
from rmqcli.cli.ui.messages import Messages
from rmqcli.errors import RefusedError, RmqError, UsageError

SHELLS = ("bash", "zsh", "fish")
_MARK = "# rmq completion"
#: Where the package bash-completion lies, which loads files of users by itself.
_BASH_COMPLETION = (
    "/usr/share/bash-completion/bash_completion",
    "/etc/bash_completion",
    "/usr/local/etc/profile.d/bash_completion.sh",
    "/opt/homebrew/etc/profile.d/bash_completion.sh",
)


@command_options(has_common=False)
def install(
    shell: Annotated[
        str | None,
        argument(metavar="SHELL", help="bash, zsh or fish.  [default: that of $SHELL]"),
    ] = None,
) -> None:
    """Install completion of commands, topics and groups for your shell.

    Example: rmq completion install bash

    Writes one file in your home and, for zsh or where bash does not load it by itself,
    two lines in .zshrc or .bashrc. Run it again at any time: what is there is updated.
    """
    name = shell or os.path.basename(os.environ.get("SHELL", ""))
    if name not in SHELLS:
        what = (
            f"{name!r} is not one of bash, zsh, fish" if name else "$SHELL is not set"
        )
        raise UsageError(what, hint="name it: rmq completion install bash")
    from rmqcli.cli.completion.scripts import render_all  # loads every command

    messages = Messages()
    file = "_rmq" if name == "zsh" else f"rmq.{name}"
    path = _place(name, Path.home())
    try:
        messages.info(_write(path, render_all()[file]))
        start = _start_lines(name, path)
        if start is not None:
            messages.info(_add_lines(*start))
    except OSError as error:
        raise RmqError(f"{error.filename or path}: {error.strerror}") from error
    messages.info(f"open a new {name} to use it")


def _place(shell: str, home: Path) -> Path:
    data = Path(os.environ.get("XDG_DATA_HOME") or home / ".local/share")
    if shell == "bash":
        user = os.environ.get("BASH_COMPLETION_USER_DIR")
        folder = Path(user) if user else data / "bash-completion"
        return folder / "completions" / "rmq"
    if shell == "zsh":
        return data / "zsh" / "site-functions" / "_rmq"
    config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    return config / "fish" / "completions" / "rmq.fish"


def _write(path: Path, content: str) -> str:
    """Write the file, unless it is there as it should be; say what was done."""
    before = None
    if path.exists():
        before = path.read_text(encoding="utf-8", errors="replace")
        if before == content:
            return f"{path} is up to date"
        if "rmqcli.cli.complet" not in before[:500]:
            raise RefusedError(
                f"{path} is there and not of rmq", hint="move it away and run it again"
            )
    path.parent.mkdir(parents=True, exist_ok=True)
    temp = path.with_name(f".{path.name}.{os.getpid()}")
    temp.write_text(content, encoding="utf-8")
    temp.replace(path)
    return f"{'wrote' if before is None else 'updated'} {path}"


def _start_lines(shell: str, path: Path) -> tuple[Path, str] | None:
    """The start file that must load it, and the line for that; None: none must."""
    if shell == "fish":
        return None
    if shell == "zsh":
        folder = shlex.quote(str(path.parent))
        rc = Path(os.environ.get("ZDOTDIR") or Path.home()) / ".zshrc"
        return rc, f"fpath=({folder} $fpath); autoload -Uz compinit && compinit"
    if any(os.path.exists(each) for each in _BASH_COMPLETION):
        return None
    quoted = shlex.quote(str(path))
    return Path.home() / ".bashrc", f"[ -r {quoted} ] && . {quoted}"


def _add_lines(path: Path, line: str) -> str:
    """Put the line at the end of a start file, once; say what was done."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    if line in text.splitlines():
        return f"{path} loads it already"
    gap = "" if not text or text.endswith("\n") else "\n"
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{gap}{_MARK}\n{line}\n")
    return f"added 2 lines to {path}"
