"""What people type who know another tool, and what it is called here.

Where the meaning is the same, it works: COMMANDS, OPTIONS, and the rules below them.
For everything else HINTS name the right form. The other tools are RocketMQ's mqadmin,
kcat, rpk, Kafka's own scripts, and tail.
"""

from __future__ import annotations

from rmqcli.cli.arguments.table import COMMANDS as GRAMMARS

#: Commands that work: what is typed -> the command.
COMMANDS = {
    "broker describe": "broker show",
    "broker ls": "brokers",
    "brokers list": "brokers",
    "group describe": "group show",
    "group ls": "groups",
    "groups list": "groups",
    "produce": "send",
    "topic add": "topic create",
    "topic consume": "tail",
    "topic describe": "topic show",
    "topic ls": "topics",
    "topic produce": "send",
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
    "brokerStatus": "rmq broker show BROKER",
    "getBrokerConfig": "rmq broker show BROKER --settings",
    "cluster": "rmq brokers",
    "clusterList": "rmq brokers",
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
    ("", "-X"): "options are listed by --help",
    ("", "-b"): "name servers: --namesrv HOST:PORT",
    ("group create", "-c"): "--cluster CLUSTER",
    ("group create", "-b"): "--broker BROKER",
    ("group delete", "-c"): "--cluster CLUSTER",
    ("group delete", "-b"): "--broker BROKER",
    ("group update", "-c"): "--cluster CLUSTER",
    ("group update", "-b"): "--broker BROKER",
    ("spark package", "-o"): "the file to write: --out FILE",
    ("tail", "-e"): "to end at the last message: --no-follow",
    ("topic create", "-b"): "--broker BROKER",
    ("topic create", "-c"): "--cluster CLUSTER",
    ("topic create", "-p"): "--queues N",
    ("topic create", "-r"): "--queues N",
    ("topic create", "-w"): "--queues N",
    ("topic create", "--partitions"): "--queues N",
}


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
    return f"write: {hint}" if hint.startswith("-") else hint


def hint_for_value(path: str, option: str, value: str) -> str:
    """Return what to type instead of a value that an option does not take."""
    if path == "tail" and option == "--namesrv" and value.isdigit():
        return f"for the last {value} messages: --last {value}"
    return ""
