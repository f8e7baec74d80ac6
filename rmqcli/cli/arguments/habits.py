"""What people type who know another tool, and what it is called here.

Where the meaning is the same, it works: COMMANDS, OPTIONS, and the rules below them.
For everything else HINTS name the right form. The other tools are RocketMQ's mqadmin,
kcat, rpk, kafkactl, Kafka's own scripts, and tail.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from rmqcli.cli.arguments.table import COMMANDS as GRAMMARS
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.hint import command_line
from rmqcli.units import counted

_NOUNS = ("broker", "group", "topic")
#: Commands that work: what is typed -> the command.
COMMANDS = {
    **{
        typed.format(noun): f"{noun} show"
        for noun in _NOUNS
        for typed in ("{} describe", "{} get", "describe {}", "show {}")
    },
    **{
        typed.format(noun): f"{noun}s"
        for noun in _NOUNS
        for typed in ("{} ls", "{}s list", "{}s ls", "list {}s", "get {}s")
    },
    "alter topic": "topic update",
    "create group": "group create",
    "create topic": "topic create",
    "delete group": "group delete",
    "delete topic": "topic delete",
    "message describe": "message show",
    "message get": "message show",
    "produce": "send",
    "profile create": "profile add",
    "profile delete": "profile remove",
    "profile ls": "profile list",
    "profile rm": "profile remove",
    "topic add": "topic create",
    "topic alter": "topic update",
    "topic consume": "tail",
    "topic produce": "send",
}

#: Options that work: command and what is typed -> the option. A value follows as it is.
OPTIONS = {
    ("consume", "--from-beginning"): "--from first",
    ("consume", "-G"): "--group",
    ("consume", "-c"): "--count",
    ("copy", "--until"): "--to",
    ("dlq show", "--until"): "--to",
    ("export", "--until"): "--to",
    ("lag", "-t"): "--topic",
    ("send", "-k"): "--key",
    ("send", "-c"): "--tag",
    ("tail", "--from-beginning"): "--from earliest",
    ("tail", "--until"): "--to",
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
    "--context": "a cluster by its name: --profile NAME",
    "-C": "to read messages: rmq tail TOPIC",
    "-G": "to consume in a group: rmq consume TOPIC --group GROUP",
    "-L": "to list topics and brokers: rmq topics, rmq brokers",
    "-P": "to send messages: rmq send TOPIC",
    "-b": "name servers: --namesrv HOST:PORT",
    "-t": "to read messages: rmq tail TOPIC; to send: rmq send TOPIC",
    "addWritePerm": "rmq broker undrain BROKER",
    "allocateMQ": "rmq lag GROUP",
    "brokerConsumeStats": "rmq lag [GROUP]",
    "brokerStatus": "rmq broker show BROKER",
    "checkMsgSendRT": "rmq bench produce TOPIC",
    "cleanExpiredCQ": "rmq broker clean-expired-queues",
    "cleanUnusedTopic": "rmq broker clean-unused-topics",
    "cloneGroupOffset": "rmq reset-offset GROUP TOPIC --to-group OTHER",
    "clusterList": "rmq cluster, or rmq brokers",
    "clusterAclConfigVersion": "rmq acl config",
    "clusterRT": "rmq bench produce TOPIC",
    "console": "to read messages: rmq tail TOPIC; to send: rmq send TOPIC",
    "console-consumer": "rmq tail TOPIC, or rmq consume TOPIC --group GROUP",
    "console-producer": "rmq send TOPIC --lines -",
    "consumeMessage": "rmq tail TOPIC",
    "consumer": "rmq consume TOPIC --group GROUP, or rmq group show GROUP",
    "consumer-groups": "to list groups: rmq groups; how far behind: rmq lag GROUP",
    "consumerConnection": "rmq group show GROUP",
    "consumerProgress": "rmq lag [GROUP]",
    "copyAcl": "rmq acl rule copy USER --from BROKER",
    "copyUser": "rmq acl user copy USER --from BROKER",
    "create": "rmq topic create TOPIC, or rmq group create GROUP",
    "createAcl": "rmq acl rule create USER RESOURCE ACTIONS",
    "createUser": "rmq acl user create USER",
    "delete": "rmq topic delete TOPIC, or rmq group delete GROUP",
    "consumerStatus": "rmq lag GROUP --process-queues; stacks: rmq group stack GROUP",
    "deleteAcl": "rmq acl rule delete USER RESOURCE",
    "deleteKvConfig": "rmq nameserver kv delete NAMESPACE KEY",
    "deleteSubGroup": "rmq group delete GROUP",
    "deleteTopic": "rmq topic delete TOPIC",
    "deleteUser": "rmq acl user delete USER",
    "describe": "to look at one thing: rmq topic show TOPIC, rmq group show GROUP",
    "exportConfigs": "rmq definitions export",
    "exportMetadata": "rmq definitions export",
    "exportMetrics": "rmq cluster -o json",
    "get": "to look at one thing: rmq topic show TOPIC, rmq group show GROUP",
    "getAcl": "rmq acl rule list USER",
    "getAccessConfigSubCommand": "rmq acl config",
    "getAclConfig": "rmq acl config",
    "getBrokerConfig": "rmq broker config get --broker BROKER",
    "getConsumerConfig": "rmq group show GROUP",
    "getConsumerStatus": "rmq lag GROUP",
    "getNamesrvConfig": "rmq nameserver config get",
    "getSyncStateSet": "rmq brokers -o json",
    "getUser": "rmq acl user show USER",
    "haStatus": "rmq brokers -o json",
    "kafka-broker-api-versions": "rmq brokers",
    "kafka-configs": "rmq topic show TOPIC, or rmq broker show BROKER --settings",
    "kafka-console-consumer": "rmq tail TOPIC, or rmq consume TOPIC --group GROUP",
    "kafka-console-producer": "rmq send TOPIC --lines -",
    "kafka-consumer-groups": "rmq groups, or rmq lag GROUP",
    "kafka-get-offsets": "rmq topic show TOPIC",
    "kafka-topics": "rmq topics, or rmq topic show TOPIC",
    "list": "to list them: rmq topics, rmq groups, rmq brokers",
    "listAcl": "rmq acl rule list",
    "listUser": "rmq acl user list",
    "message list": "rmq tail TOPIC, or rmq message find TOPIC --key KEY",
    "message ls": "rmq tail TOPIC, or rmq message find TOPIC --key KEY",
    "ls": "to list them: rmq topics, rmq groups, rmq brokers",
    "ping": "rmq brokers",
    "printMsg": "rmq tail TOPIC --from earliest --no-follow",
    "printMsgByQueue": "rmq tail TOPIC --queue BROKER:ID --from earliest --no-follow",
    "producer": "rmq producers --group GROUP",
    "producerConnection": "rmq producers --group GROUP",
    "query": "rmq sql 'select * from TOPIC'",
    "queryMsgById": "rmq message show ID",
    "queryMsgByKey": "rmq message find TOPIC --key KEY",
    "queryMsgByOffset": "rmq message show TOPIC@BROKER:QUEUE:OFFSET",
    "queryMsgByUniqueKey": "rmq message show ID --topic TOPIC",
    "queryMsgTraceById": "rmq message trace ID",
    "reset": "rmq reset-offset GROUP TOPIC --to POSITION",
    "resetOffsetByTime": "rmq reset-offset GROUP TOPIC --to @TIME",
    "resetOffsetByTimeOld": "rmq reset-offset GROUP TOPIC --to @TIME",
    "sendMessage": "rmq send TOPIC BODY",
    "sendMsgStatus": "rmq send TOPIC BODY",
    "show": "to look at one thing: rmq topic show TOPIC, rmq group show GROUP",
    "skipAccumulatedMessage": "rmq reset-offset GROUP TOPIC --to latest",
    "startMonitoring": "rmq lag --watch 10s",
    "statsAll": "rmq lag --sample 10s",
    "status": "rmq cluster",
    "topicClusterList": "rmq topic show TOPIC",
    "topicList": "rmq topics",
    "topicRoute": "rmq topic show TOPIC",
    "topicStatus": "rmq topic show TOPIC",
    "updateAcl": "rmq acl rule update USER RESOURCE ACTIONS",
    "updateBrokerConfig": "rmq broker config set NAME=VALUE --broker BROKER",
    "updateKvConfig": "rmq nameserver kv put NAMESPACE KEY VALUE",
    "updateNamesrvConfig": "rmq nameserver config set NAME=VALUE",
    "updateOrderConf": "rmq nameserver kv put ORDER_TOPIC_CONFIG TOPIC BROKER:N",
    "updateSubGroup": "rmq group create GROUP, or rmq group update GROUP",
    "updateSubGroupList": "rmq group create GROUP, or rmq group update GROUP",
    "updateTopic": "rmq topic create TOPIC, or rmq topic update TOPIC",
    "updateTopicList": "rmq topic create TOPIC, or rmq topic update TOPIC",
    "updateTopicPerm": "rmq topic permission TOPIC rw",
    "updateUser": "rmq acl user update USER",
    "wipeWritePerm": "rmq broker drain BROKER",
}

#: Commands of mqadmin that have none here; the guide has a reason for each.
_ONLY_MQADMIN = """
    addBroker checkRocksdbCqWriteProgress cleanBrokerMetadata deleteAccessConfig
    deleteAclConfig deleteExpiredCommitLog dumpCompactionLog electMaster
    exportMetadataInRocksDB exportPopRecord getBrokerEpoch getBrokerLiteInfo
    getColdDataFlowCtrInfo getControllerConfig getControllerMetaData getLiteClientInfo
    getLiteGroupInfo getLiteTopicInfo getParentTopicInfo queryCq remappingStaticTopic
    removeBroker removeColdDataFlowCtrGroupConfig resetMasterFlushOffset
    rocksDBConfigToJson setCommitLogReadAheadMode setConsumeMode switchTimerEngine
    triggerLiteDispatch updateAclConfig updateColdDataFlowCtrGroupConfig
    updateControllerConfig updateGlobalWhiteAddr updateStaticTopic
"""

#: An option that a command does not have -> what to type. Command "" is any.
FLAG_HINTS = {
    ("", "--bootstrap-server"): "name servers: --namesrv HOST:PORT",
    ("", "--brokers"): "name servers: --namesrv HOST:PORT",
    ("", "--context"): "a cluster by its name: --profile NAME",
    ("", "--group"): "rmq tail and rmq lag know groups: rmq lag GROUP",
    ("", "--json"): "the output format: -o json",
    ("", "--offset"): "the start position: --from POSITION",
    ("", "--list"): "leave it out: rmq topics, rmq groups and rmq brokers are lists",
    ("", "--max"): "--count N",
    ("", "--max-messages"): "--count N",
    ("", "--partition"): "one queue: --queue BROKER:ID",
    ("", "-J"): "-o jsonl",
    ("", "-X"): "options are listed by --help",
    ("", "-b"): "name servers: --namesrv HOST:PORT",
    ("", "-p"): "one queue: --queue BROKER:ID",
    ("group create", "-c"): "--cluster CLUSTER",
    ("group create", "-b"): "--broker BROKER",
    ("group create", "-r"): "--max-retries N",
    ("group create", "--retryMaxTimes"): "--max-retries N",
    ("group create", "--retry-max"): "--max-retries N",
    ("group delete", "-c"): "--cluster CLUSTER",
    ("group delete", "-b"): "--broker BROKER",
    ("group update", "-c"): "--cluster CLUSTER",
    ("group update", "-b"): "--broker BROKER",
    ("group update", "-r"): "--max-retries N",
    ("group update", "--retryMaxTimes"): "--max-retries N",
    ("group update", "--retry-max"): "--max-retries N",
    ("bench consume", "--messages"): "--count N",
    ("bench produce", "--messages"): "--count N",
    ("copy", "--dry-run"): "leave it out: nothing changes without --execute",
    ("dlq redrive", "--dry-run"): "leave it out: nothing changes without --execute",
    ("retry flush", "--dry-run"): "leave it out: nothing changes without --execute",
    ("definitions apply", "--execute"): "leave it out: it asks before it changes"
    " anything; without asking: --yes",
    ("consume", "--idle-timeout"): "to end after a time: --for DURATION",
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
    ("send", "--body"): "the body is an argument: rmq send TOPIC BODY",
    ("send", "-m"): "the body is an argument: rmq send TOPIC BODY",
    ("send", "--dry-run"): "to try it, send to a cluster of your own: rmq serve",
    ("spark package", "-o"): "the file to write: --out FILE",
    ("tail", "--lines"): "for the last N messages: --last N",
    ("tail", "--tail"): "for the last N messages: --last N",
    ("tail", "-f"): "to follow: --follow; for the last N messages: --last N",
    ("tail", "-e"): "to end at the last message: --no-follow",
    ("topic create", "-b"): "--broker BROKER",
    ("topic create", "-c"): "--cluster CLUSTER",
    ("topic create", "-p"): "--queues N",
    ("topic create", "-r"): "--queues N",
    ("topic create", "-w"): "--queues N",
    ("topic create", "--message-type"): "--attribute +message.type=FIFO",
    ("topic create", "--partitions"): "--queues N",
    ("topic create", "--type"): "--attribute +message.type=FIFO",
}

#: Lists that take no name -> what shows the one that was named.
_SHOW = {
    "broker list": "broker show",
    "brokers": "broker show",
    "dlq list": "dlq show",
    "group list": "group show",
    "groups": "group show",
    "topic list": "topic show",
    "topics": "topic show",
}

#: A number of messages where a number is wrong: `-20f` of tail, `-n 20` and `-n=20`.
# Texts, because a start needs none of them; `re` keeps those that were used.
_NUMBER = r"(?a:[-=]?(\d{1,9})f?)"

#: Values that kcat's `-o` takes, and rpk's -> a position.
_STARTS = {
    "beginning": "earliest",
    "earliest": "earliest",
    "end": "latest",
    "latest": "latest",
    "start": "earliest",
}
#: What is a file rather than a mistyped position: a path, or a name with an ending.
_FILE = r"/|\.[A-Za-z]+$"
_TOPIC = r"(?a:[A-Za-z%][\w%|-]*)"
_TIME_OF_DAY = r"\d\d?:\d\d(:\d\d)?"


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
    hint = HINTS.get(word.removesuffix(".sh"), "")
    if word in _ONLY_MQADMIN.split():
        hint = "why rmq does not have it: rmq help mqadmin"
    return f"write: {hint}" if hint.startswith("rmq ") else hint


def hint_for_extra(path: str, word: str) -> str:
    """Return what to type instead of an argument that the command does not take."""
    if path not in _SHOW:
        return ""
    return f"write: {command_line(f'rmq {_SHOW[path]}', word)}"


def command_of(path: str, known: Collection[str]) -> str:
    """Return the command that some words mean; the words if that is none of ours.

    The plural of what has commands works as the singular: `topics show` is `topic
    show`.
    """
    for typed in (path, path.replace("s ", " ", 1)):
        if typed in known or typed in COMMANDS:
            return typed if typed in known else COMMANDS[typed]
    return path


def _first_or_last(path: str, number: re.Match[str]) -> str:
    messages = counted(int(number[1]), "message")
    if path == "consume":
        return f"to end after {messages}: --count {number[1]}"
    return f"for the last {messages}: --last {number[1]}" if path == "tail" else ""


def hint_for_flag(path: str, flag: str) -> str:
    """Return what to type instead of an option that the command does not have."""
    if path == "tail" and (number := re.fullmatch(_NUMBER, flag)):
        return _first_or_last(path, number)
    hint = FLAG_HINTS.get((path, flag)) or FLAG_HINTS.get(("", flag), "")
    return f"write: {hint}" if hint[:1] == "-" else hint


def hint_for_value(path: str, option: str, value: str) -> str:
    """Return what to type instead of a value that an option does not take."""
    if option == "--namesrv" and (number := re.fullmatch(_NUMBER, value)):
        return _first_or_last(path, number)
    if path == "dlq export" and option == "--to" and re.search(_FILE, value):
        import shlex  # only when it was mistyped

        return f"the file to write: --to-jsonl {shlex.quote(value)}"
    if path == "copy" and option == "--to" and re.fullmatch(_TOPIC, value):
        command = command_line("rmq copy", "SOURCE_TOPIC", value)
        return f"to copy to topic {value}: {command}"
    if option == "--output" and value in _STARTS:
        return f"the start position: --from {_STARTS[value]}"
    if re.fullmatch(_TIME_OF_DAY, value):
        from datetime import datetime  # only when it was mistyped

        now_s = SYSTEM_CLOCK.epoch_ms() / 1000
        today = datetime.fromtimestamp(now_s).date()  # noqa: DTZ006  # local, as @TIME
        hour, _, rest = value.partition(":")
        return f"for today write @{today}T{hour:0>2}:{rest}"
    return ""
