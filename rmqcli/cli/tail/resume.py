"""The command that continues where an interrupted `rmq tail` stopped."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqcli.model import MessageQueue

#: Flags that the command leaves out, together with their values.
_START_FLAGS: Final = ("--from", "--from-queue", "--last", "--count")


def same_command() -> str:
    """The command as it was typed, for messages that cannot be shown in part."""
    return shlex.join(["rmq", *sys.argv[1:]])


def resume_command(
    starts: Mapping[MessageQueue, str], *, count_left: int | None
) -> str:
    """The command that continues from the given position of each queue.

    `count_left` is how many messages of `--count` are left; None without `--count`.
    """
    words = _without(sys.argv[1:], _START_FLAGS)
    if count_left is not None:
        words += ["--count", str(max(1, count_left))]
    if len(starts) == 1:
        return shlex.join(["rmq", *words, "--from", *starts.values()])
    for queue, start in sorted(starts.items()):
        words += ["--from-queue", f"{queue}={start}"]
    return shlex.join(["rmq", *words])


def _without(words: list[str], flags: tuple[str, ...]) -> list[str]:
    kept = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word in flags:
            skip = True
        elif not word.startswith(tuple(f"{flag}=" for flag in flags)):
            kept.append(word)
    return kept
