"""Translates hints of the library into the flags and commands of the command line.

The library's errors and warnings name its arguments and calls. Here these are replaced
by the flags and commands that do the same:

    list groups with: Admin.groups()          list groups with: rmq groups
    add force=True                            add --force
    queues=[QUEUE], to=OFFSET+1               --queue BROKER:ID --to OFFSET+1
    check the endpoints argument              check --endpoints

A text that already contains a command comes from the command line and may quote what
the user typed, so it is returned unchanged.
"""

from __future__ import annotations

import re
from typing import Final

#: The library's calls, and the commands that do the same. A call has one string as
#: its argument, or none.
_CALLS: Final = {
    "Admin.backups": "rmq reset-offset --list-backups",
    "Admin.brokers": "rmq brokers",
    "Admin.create_group": "rmq group create",
    "Admin.create_topic": "rmq topic create",
    "Admin.groups": "rmq groups",
    "Admin.read": "rmq tail",
    "Admin.topic": "rmq topic show",
    "Admin.topics": "rmq topics",
    "Admin.update_group": "rmq group update",
    "Admin.update_topic": "rmq topic update",
    "LagMemory.forget": "--forget",
    "write_plan": "rmq reset-offset GROUP TOPIC --to POS --out P.json",
}
#: The library's arguments, and the flags that do the same in every command that has
#: them.
_ARGUMENTS: Final = {
    "allow_gaps": "--allow-gaps",
    "allow_incomplete": "--allow-incomplete",
    "allow_undecodable": "--allow-undecodable",
    "allow_unencrypted": "--allow-unencrypted-keys",
    "bytes_per_file": "--bytes-per-file",
    "ca_file": "--tls-ca",
    "archives": "--archives",
    "cluster": "--cluster",
    "conf": "--conf",
    "credentials": "--acl-file or RMQ_ACCESS_KEY and RMQ_SECRET_KEY",
    "delay_ms": "--delay",
    "endpoints": "--endpoints",
    "executor_timeout_ms": "--executor-timeout",
    "force": "--force",
    "from_position": "--from",
    "include_retry": "--include-retry",
    "insecure": "--tls-insecure",
    "master": "--master",
    "may_create": "--create",
    "message_group": "--message-group",
    "min_partitions": "--min-partitions",
    "namesrv": "--namesrv",
    "other_cluster": "--other-cluster",
    "plaintext": "--plaintext",
    "queues": "--queue",
    "remap_queues": "--remap-queues",
    "remote": "--remote",
    "remove_offsets": "--remove-offsets",
    "resume": "--resume",
    "rows_per_file": "--rows-per-file",
    "since_last": "--since-last",
    "state": "--state",
    "tls": "--tls",
    "to": "--to",
}

# Patterns are compiled on first use, so that a start need not wait for it.
_STRING: Final = r"""'[^']*'|"[^"]*\""""
_CALL: Final = rf"(?<![\w.])([\w.]+)\(({_STRING})?\)"
#: A value is a string, True, None, a list with one queue, or a word in capitals that
#: stands for one.
_ARGUMENT: Final = (
    rf"(?<![\w/.=-])({'|'.join(_ARGUMENTS)})="
    rf"({_STRING}|True|None|\[[^]]*]|[A-Z][A-Z+:]*)"
)
_ARGUMENT_LIST: Final = rf"{_ARGUMENT}(?:, {_ARGUMENT})*"
_BARE: Final = rf"\b({'|'.join(name for name in _ARGUMENTS if '_' in name)})\b(?!=)"
_NAMED: Final = rf"\bthe ({'|'.join(_ARGUMENTS)}) argument\b"
_QUEUE: Final = rf"broker_name=({_STRING}), queue_id=(\d+)"


def with_flags(text: str) -> str:
    """Replace the library's arguments and calls in `text` by flags and commands.

    A text without any of them is returned unchanged.
    """
    if "rmq " in text:
        return text
    text = re.sub(_CALL, _command, text)
    text = re.sub(_ARGUMENT_LIST, _flags, text)
    text = re.sub(_NAMED, lambda found: _ARGUMENTS[found[1]], text)
    return re.sub(_BARE, lambda found: _ARGUMENTS[found[1]], text)


def _command(found: re.Match[str]) -> str:
    command = _CALLS.get(found[1])
    if command is None:
        return found[0]
    return command if found[2] is None else f"{command} {_word(found[2])}"


def _flags(found: re.Match[str]) -> str:
    return " ".join(
        _flag(each[1], each[2]) for each in re.finditer(_ARGUMENT, found[0])
    )


def _flag(name: str, value: str) -> str:
    flag = _ARGUMENTS[name]
    if value == "True":
        return flag
    if value == "None":
        return f"without {flag}"
    if value.startswith("["):
        queue = re.search(_QUEUE, value)
        named = f"{_word(queue[1])}:{queue[2]}" if queue else "BROKER:ID"
        return f"{flag} {named}"
    is_string = value.startswith(("'", '"'))
    return f"{flag} {_word(value) if is_string else value}"


def _word(literal: str) -> str:
    """Turn the literal of a Python string into a word for the shell."""
    import ast  # for the few hints that contain one
    import shlex

    return shlex.quote(str(ast.literal_eval(literal)))
