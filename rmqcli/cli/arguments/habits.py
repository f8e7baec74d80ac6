"""What people type who know another tool, and what it is called here.

Where the meaning is the same, it works: COMMANDS, OPTIONS, and the rules below them.
For everything else HINTS name the right form. The other tools are RocketMQ's mqadmin,
kcat, rpk, Kafka's own scripts, and tail.
"""

from __future__ import annotations

import re

from rmqcli.cli.arguments.table import COMMANDS as GRAMMARS
from rmqcli.clock import SYSTEM_CLOCK

#: Commands that work: what is typed -> the command.
COMMANDS = {
    "broker describe": "broker show",
    "broker ls": "brokers",
    "brokers describe": "broker show",
    "brokers list": "brokers",
    "group describe": "group show",
    "group ls": "groups",
    "groups create": "group create",
    "groups delete": "group delete",
    "groups describe": "group show",
    "groups list": "groups",
    "produce": "send",
    "topic add": "topic create",
    "topic alter": "topic update",
    "topic consume": "tail",
    "topic describe": "topic show",
    "topic ls": "topics",
    "topic produce": "send",
    "topics create": "topic create",
    "topics delete": "topic delete",
    "topics describe": "topic show",
    "topics list": "topics",
}

#: Options that work: command and what is typed -> the option. A value follows as it is.
OPTIONS = {
    ("consume", "--from-beginning"): "--from first",
    ("lag", "-t"): "--topic",
    ("send", "-k"): "--key",
    ("send", "-c"): "--tag",
    ("tail", "--from-beginning"): "--from earliest",
    ("tail", "-c"): "--count",
    ("tail", "-f"): "--follow",
}

#: Options that give a command's argument of this name.
_SLOTS = {
    "-t": ("topic", "topics"),
    "--topic": ("topic", "topics"),
    "-g": ("group", "groups"),
    "--group": ("group", "groups"),
}

#: What is typed instead of a command -> what to type.
HINTS = {
    "-C": "to read messages: rmq tail TOPIC",
    "-L": "to list topics and brokers: rmq topics, rmq brokers",
    "-P": "to send messages: rmq send TOPIC",
    "-b": "name servers: --namesrv HOST:PORT",
    "-t": "to read messages: rmq tail TOPIC; to send: rmq send TOPIC",
    "brokerStatus": "rmq broker show BROKER",
    "getBrokerConfig": "rmq broker show BROKER --settings",
    "cluster": "rmq brokers",
    "clusterList": "rmq brokers",
    "consumer-groups": "to list groups: rmq groups; how far behind: rmq lag GROUP",
    "consumerConnection": "rmq group show GROUP",
    "consumerProgress": "rmq lag [GROUP]",
    "consumerStatus": "rmq lag GROUP --process-queues",
    "deleteSubGroup": "rmq group delete GROUP",
    "deleteTopic": "rmq topic delete TOPIC",
    "get": "to look at one thing: rmq topic show TOPIC, rmq group show GROUP",
    "message": "rmq tail TOPIC --key ID --from earliest --no-follow",
    "ping": "rmq brokers",
    "printMsg": "rmq tail TOPIC --from earliest --no-follow",
    "query": "rmq sql 'select * from TOPIC'",
    "queryMsgById": "rmq tail TOPIC --key ID --from earliest --no-follow",
    "queryMsgByKey": "rmq tail TOPIC --key KEY --from earliest --no-follow",
    "queryMsgByUniqueKey": "rmq tail TOPIC --key ID --from earliest --no-follow",
    "reset": "rmq reset-offset GROUP TOPIC --to POSITION",
    "resetOffsetByTime": "rmq reset-offset GROUP TOPIC --to @TIME",
    "sendMessage": "rmq send TOPIC BODY",
    "skipAccumulatedMessage": "rmq reset-offset GROUP TOPIC --to latest",
    "status": "rmq brokers",
    "topicList": "rmq topics",
    "topicRoute": "rmq topic show TOPIC",
    "topicStatus": "rmq topic show TOPIC",
    "updateSubGroup": "rmq group create GROUP, or rmq group update GROUP",
    "updateTopic": "rmq topic create TOPIC, or rmq topic update TOPIC",
}

#: An option that a command does not have -> what to type. Command "" is any.
FLAG_HINTS = {
    ("", "--bootstrap-server"): "name servers: --namesrv HOST:PORT",
    ("", "--brokers"): "name servers: --namesrv HOST:PORT",
    ("", "--group"): "rmq tail and rmq lag know groups: rmq lag GROUP",
    ("", "--json"): "the output format: -o json",
    ("", "--offset"): "the start position: --from POSITION",
    ("", "--list"): "leave it out: rmq topics, rmq groups and rmq brokers are lists",
    ("", "--max-messages"): "--count N",
    ("", "--partition"): "one queue: --queue BROKER:ID",
    ("", "-J"): "-o jsonl",
    ("", "-X"): "options are listed by --help",
    ("", "-b"): "name servers: --namesrv HOST:PORT",
    ("", "-p"): "one queue: --queue BROKER:ID",
    ("group create", "-c"): "--cluster CLUSTER",
    ("group create", "-b"): "--broker BROKER",
    ("group delete", "-c"): "--cluster CLUSTER",
    ("group delete", "-b"): "--broker BROKER",
    ("group update", "-c"): "--cluster CLUSTER",
    ("group update", "-b"): "--broker BROKER",
    ("lag", "--all-groups"): "leave it out: rmq lag shows all groups",
    ("lag", "--describe"): "leave it out: rmq lag GROUP shows each queue",
    ("reset-offset", "--by-duration"): "--to -2h",
    ("reset-offset", "--dry-run"): "leave it out: nothing changes without --execute",
    ("reset-offset", "--from-file"): "--apply FILE",
    ("reset-offset", "--shift-by"): "--shift N",
    ("reset-offset", "--to-current"): "--to group:GROUP",
    ("reset-offset", "--to-datetime"): "--to @2026-01-02T03:04:05Z",
    ("reset-offset", "--to-earliest"): "--to earliest",
    ("reset-offset", "--to-latest"): "--to latest",
    ("reset-offset", "--to-offset"): "--to OFFSET",
    ("spark package", "-o"): "the file to write: --out FILE",
    ("tail", "--tail"): "for the last N messages: --last N",
    ("tail", "-e"): "to end at the last message: --no-follow",
    ("topic create", "-b"): "--broker BROKER",
    ("topic create", "-c"): "--cluster CLUSTER",
    ("topic create", "-p"): "--queues N",
    ("topic create", "-r"): "--queues N",
    ("topic create", "-w"): "--queues N",
    ("topic create", "--partitions"): "--queues N",
}

#: Values that kcat's `-o` takes, and rpk's -> a position.
_STARTS = {
    "beginning": "earliest",
    "earliest": "earliest",
    "end": "latest",
    "latest": "latest",
    "start": "earliest",
}
_TIME_OF_DAY = re.compile(r"\d\d?:\d\d(:\d\d)?")


def slot_of(path: str, flag: str) -> str:
    """Return the argument of a command that an option gives; empty for none.

    `rmq lag -g billing` is `rmq lag billing`, as the command has an argument GROUP and
    no option -g.
    """
    grammar = GRAMMARS[path]
    if flag in grammar[1] or flag not in _SLOTS:
        return ""
    return next((row[0] for row in grammar[0] if row[0] in _SLOTS[flag]), "")


def is_since(path: str, flag: str) -> bool:
    """Whether it is `--since 15m` or `-s`, which is `--from -15m` here."""
    return flag == "--since" and "--from" in GRAMMARS[path][1]


def is_habit(path: str, word: str) -> bool:
    """Whether a word is an option that one of the tables replaces."""
    flag = word.partition("=")[0]
    return (path, flag) in OPTIONS or bool(slot_of(path, flag)) or is_since(path, flag)


def takes_value(path: str, flag: str) -> bool:
    """Whether a word follows a habitual option as its value."""
    if path not in GRAMMARS:
        return False
    option = OPTIONS.get((path, flag), "")
    row = GRAMMARS[path][1].get(option)
    if row is not None:
        return row[1] in ("store", "append")
    return bool(slot_of(path, flag)) or is_since(path, flag)


def hint_for_command(word: str) -> str:
    """Return what to type instead of a word that is no command; empty if unknown."""
    hint = HINTS.get(word, "")
    return f"write: {hint}" if hint.startswith("rmq ") else hint


def hint_for_flag(path: str, flag: str) -> str:
    """Return what to type instead of an option that the command does not have."""
    if path == "tail" and flag[1:].isdigit():
        return f"for the last {flag[1:]} messages: --last {flag[1:]}"
    hint = FLAG_HINTS.get((path, flag)) or FLAG_HINTS.get(("", flag), "")
    return f"write: {hint}" if hint[:1] == "-" else hint


def hint_for_value(path: str, option: str, value: str) -> str:
    """Return what to type instead of a value that an option does not take."""
    if path == "tail" and option == "--namesrv" and value.isdigit():
        return f"for the last {value} messages: --last {value}"
    if option == "--output" and value in _STARTS:
        return f"the start position: --from {_STARTS[value]}"
    if _TIME_OF_DAY.fullmatch(value):
        from datetime import datetime  # only when it was mistyped

        now_s = SYSTEM_CLOCK.epoch_ms() / 1000
        today = datetime.fromtimestamp(now_s).date()  # noqa: DTZ006  # local, as @TIME
        hour, _, rest = value.partition(":")
        return f"for today write @{today}T{hour:0>2}:{rest}"
    return ""
