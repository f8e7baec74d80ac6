"""The words of the command line for what hints of the library name.

A `Hint` has the arguments and calls that it names as data. Here each argument becomes
its flag, and each call the command that does the same. Every name in a hint has to be
in one of the two tables, which a test checks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqcli.hint import Argument, Blank, ForPrograms, Hint, LibraryCall, Setting
from rmqcli.model import MessageQueue
from rmqcli.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqcli.hint import Part, Value

#: The library's calls, and the commands that do the same.
COMMANDS: Final = {
    "Admin.accounts": "rmq acl user list",
    "Admin.backups": "rmq reset-offset --list-backups",
    "Admin.brokers": "rmq brokers",
    "Admin.create_group": "rmq group create",
    "Admin.create_topic": "rmq topic create",
    "Admin.definitions": "rmq definitions export",
    "Admin.delayed": "rmq delayed",
    "Admin.dead_letters": "rmq dlq list",
    "Admin.group": "rmq group show",
    "Admin.groups": "rmq groups",
    "Admin.lag": "rmq lag",
    "Admin.messages_by_key": "rmq message find --key",
    "Admin.read": "rmq tail",
    "Admin.resume_group": "rmq group resume",
    "Admin.topic": "rmq topic show",
    "Admin.topics": "rmq topics",
    "Admin.update_group": "rmq group update",
    "Admin.update_topic": "rmq topic update",
    "Consumer.queues": "rmq group show",
    "LagMemory.forget": "--forget",
    "Producer.queues": "rmq topic show",
    "write_plan": "rmq reset-offset GROUP TOPIC --to POS --out P.json",
}
#: The library's arguments whose flags have the same name.
_SAME_NAME: Final = """
    address_map allow_gaps allow_incomplete allow_undecodable archives cluster conf
    decode endpoints force group include_retry master message_group namesrv order
    orderly other_cluster perm plaintext prune remap_queues remote remove_offsets resume
    rows_per_file since_last state tag tls to topic trace_topic
"""
#: The library's arguments, and the flags that do the same.
FLAGS: Final = {
    **{name: f"--{name.replace('_', '-')}" for name in _SAME_NAME.split()},
    "allow_unencrypted": "--allow-unencrypted-keys",
    "attributes": "--attribute",
    "brokers": "--broker",
    "ca_file": "--tls-ca",
    "credentials": "--acl-file or RMQ_ACCESS_KEY and RMQ_SECRET_KEY",
    "consume_message_orderly": "--orderly",
    "delay_level": "--delay",
    "delay_ms": "--delay",
    "executor_timeout_ms": "--executor-timeout",
    "from_position": "--from",
    "insecure": "--tls-insecure",
    "kinds": "--only",
    "may_create": "--create",
    "queue_nums": "--queues",
    "queues": "--queue",
    "timeout_ms": "--timeout",
    "topics": "the topics",
}


def with_flags(text: str, cluster: Sequence[str] = ()) -> str:
    """Return a text with flags and commands in the places of arguments and calls.

    `cluster` are the flags with which the commands reach the cluster. A text that is
    not a Hint is returned unchanged.
    """
    if not isinstance(text, Hint):
        return text
    words, before = "", None
    last = ""  # an argument like an option, which comes after the options
    for part in text.parts:
        if last and isinstance(part, str) and part != " ":
            words, last = words.rstrip() + last, ""
        if isinstance(before, Setting) and isinstance(part, Setting):
            words += " "
        words += _word(part)
        if isinstance(part, LibraryCall):
            if COMMANDS[part.name].startswith("rmq "):
                words += "".join(f" {_quoted(each)}" for each in cluster)
            if part.argument is not None and part.argument.startswith("-"):
                last = f" -- {_quoted(part.argument)}"
        before = part
    return words.rstrip() + last if last else words


def _word(part: Part) -> str:
    match part:
        case Setting(name, value):
            return _flag(name, value)
        case Argument(name):
            return FLAGS[name]
        case LibraryCall(name, argument):
            if argument is None or argument.startswith("-"):
                return COMMANDS[name]
            return f"{COMMANDS[name]} {_quoted(argument)}"
        case ForPrograms():
            return ""
    return part


def _flag(name: str, value: Value) -> str:
    flag = FLAGS[name]
    if value is True:
        return flag
    if value is None or value is False:
        return f"without {flag}"
    if isinstance(value, dict):
        texts = [f"+{key.removeprefix('+')}={text}" for key, text in value.items()]
        return " ".join(f"{flag} {_quoted(text)}" for text in texts)
    if isinstance(value, list):
        return " ".join(f"{flag} {_quoted(each)}" for each in value)
    if isinstance(value, Blank):
        is_duration = name.endswith("_ms")
        shown = "BROKER:ID" if name == "queues" else value.text
        return f"{flag} {'DURATION' if is_duration else shown}"
    if isinstance(value, MessageQueue):
        return f"{flag} {_quoted(value.broker_name)}:{value.queue_id}"
    if name.endswith("_ms"):
        return f"{flag} {format_duration(int(value))}"
    if name == "perm":
        from rmqcli.admin.topics import perm_text  # for one hint

        return f"{flag} {perm_text([int(value)])}"
    return f"{flag} {_quoted(str(value))}"


def _quoted(text: str) -> str:
    import shlex  # for the few hints that contain a name

    return shlex.quote(text)
