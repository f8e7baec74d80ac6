"""What people type who know other tools works, or the error names the right form."""

from __future__ import annotations

import re
import shlex

import pytest

from rmqcli.cli.arguments import habits
from rmqcli.cli.arguments.arrange import arrange
from rmqcli.cli.arguments.table import COMMANDS as GRAMMARS
from rmqcli.cli.commands import COMMANDS
from rmqcli.cli.main import run
from tests.kit.rows import each_row

PATHS = [entry.path for entry in COMMANDS]


@each_row(
    ("typed", "ours"),
    [
        ("-n h:1 lag", "lag -n h:1"),
        ("-n h:1 -o json -vv topic show T", "topic show -n h:1 -o json -vv T"),
        ("--timeout=1s -q topics --all", "topics --timeout=1s -q --all"),
        ("alter topic T --queues 8", "topic update T --queues 8"),
        ("broker ls", "brokers"),
        ("brokers ls", "brokers"),
        ("broker get B", "broker show B"),
        ("message get ID", "message show ID"),
        ("message describe ID", "message show ID"),
        ("topic get T", "topic show T"),
        ("group get G", "group show G"),
        ("topics ls", "topics"),
        ("groups ls", "groups"),
        ("brokers list", "brokers"),
        ("brokers describe B", "broker show B"),
        ("brokers show B", "broker show B"),
        ("groups describe G", "group show G"),
        ("groups create G", "group create G"),
        ("groups delete G", "group delete G"),
        ("groups members G", "group members G"),
        ("topics describe T", "topic show T"),
        ("topics create T", "topic create T"),
        ("topics alter T", "topic update T"),
        ("topics delete T", "topic delete T"),
        ("topics permission T rw", "topic permission T rw"),
        ("topics show T", "topic show T"),
        ("topic alter T", "topic update T"),
        ("group describe G", "group show G"),
        ("group ls", "groups"),
        ("groups list -o json", "groups -o json"),
        ("create group G", "group create G"),
        ("create topic T", "topic create T"),
        ("delete group G", "group delete G"),
        ("delete topic T", "topic delete T"),
        ("describe broker B", "broker show B"),
        ("describe group -g G", "group show G"),
        ("describe topic T", "topic show T"),
        ("show broker B", "broker show B"),
        ("show group G", "group show G"),
        ("show topic T", "topic show T"),
        ("get topics -o json", "topics -o json"),
        ("get groups", "groups"),
        ("get brokers", "brokers"),
        ("list brokers", "brokers"),
        ("list groups", "groups"),
        ("-n h:1 list topics", "topics -n h:1"),
        ("produce T x", "send T x"),
        ("profile create p", "profile add p"),
        ("profile delete p", "profile remove p"),
        ("profile ls -o json", "profile list -o json"),
        ("profile rm p", "profile remove p"),
        ("topic add T", "topic create T"),
        ("topic consume T", "tail T"),
        ("topic describe T", "topic show T"),
        ("topic ls", "topics"),
        ("topic produce T x", "send T x"),
        ("topics list", "topics"),
        ("tail -f T", "tail --follow T"),
        ("tail T --from-beginning", "tail --from earliest T"),
        ("tail T -c 5", "tail --count 5 T"),
        ("tail -t T", "tail T"),
        ("tail T --since 15m", "tail --from -15m T"),
        ("tail T --since=2h", "tail --from -2h T"),
        ("tail T --from -1h --until -5m", "tail --from -1h --to -5m T"),
        ("tail T --until=now", "tail --to now T"),
        ("copy A B --until now", "copy --to now A B"),
        ("dlq show G --until now", "dlq show --to now G"),
        ("dlq redrive G --until now", "dlq redrive G --until now"),
        ("export T --until now", "export --to now T"),
        ("tail T --since @2026-01-02", "tail --from @2026-01-02 T"),
        ("sql 'select 1' --since 1d", "sql --from -1d 'select 1'"),
        ("consume T -g G --from-beginning", "consume -g G --from first T"),
        ("consume T -g G -c 5", "consume -g G --count 5 T"),
        ("consume -t T -g G", "consume -g G T"),
        ("consume T -G G", "consume --group G T"),
        ("send -t T -k K -c A hello", "send --key K --tag A T hello"),
        ("send --topic T hello", "send T hello"),
        ("lag -g G", "lag G"),
        ("lag --group=G -t T", "lag --topic T G"),
        ("lag -g G -g H -o json", "lag -o json G H"),
        ("topic show -t T", "topic show T"),
        ("topic create -t T --queues 4", "topic create --queues 4 T"),
        ("topic delete -t T", "topic delete T"),
        ("group show -g G", "group show G"),
        ("group delete -g G", "group delete G"),
        ("reset-offset -t T -g G --to latest", "reset-offset --to latest G T"),
        ("reset-offset G -t T --to latest", "reset-offset --to latest G T"),
        ("export -t T --to-parquet d", "export --to-parquet d T"),
        # the value of another option is no habit
        ("tail T --grep -f", "tail --grep -f T"),
        ("send T -- -f", "send T -- -f"),
        ("send -t T -- -x", "send -- T -x"),
    ],
)
def test_it_works(typed, ours):
    assert arrange(shlex.split(typed), PATHS) == shlex.split(ours)


def test_every_row_that_works_leads_to_a_command_or_an_option():
    assert set(habits.COMMANDS.values()) <= set(PATHS)
    assert not set(habits.COMMANDS) & set(PATHS)
    for (path, typed), option in habits.OPTIONS.items():
        assert option.split()[0] in GRAMMARS[path][1]
        assert typed not in GRAMMARS[path][1]


def test_every_hint_names_commands_and_options_that_exist():
    for hint in habits.HINTS.values():
        for words, options in re.findall(
            r"rmq ([a-z-]+(?: [a-z][a-z-]+){0,2})([^,;]*)", hint
        ):
            named = words.split()
            path = next(
                found
                for length in (3, 2, 1)
                if (found := " ".join(named[:length])) in PATHS
            )
            known = GRAMMARS[path][1]
            assert set(re.findall(r" (--[a-z-]+)", options)) <= set(known), hint


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("tail T -n 5", "for the last 5 messages: --last 5"),
        ("tail T -n5", "for the last 5 messages: --last 5"),
        ("tail -n 5 T", "for the last 5 messages: --last 5"),
        ("tail T -1", "for the last 1 message: --last 1"),
        ("tail T -5", "for the last 5 messages: --last 5"),
        ("lag -n 5", "write HOST:PORT, or several separated by commas"),
        ("tail T -20f", "for the last 20 messages: --last 20"),
        ("tail -1f T", "for the last 1 message: --last 1"),
        ("tail T -fn 5", "to follow: --follow; for the last N messages: --last N"),
        ("tail -n=5 T", "for the last 5 messages: --last 5"),
        ("tail T -n -5", "for the last 5 messages: --last 5"),
        ("tail T -n +5", "write HOST:PORT, or several separated by commas"),
        ("tail -n=h:1 T", "write HOST:PORT, or several separated by commas"),
        ("consume T -g G -n 5", "to end after 5 messages: --count 5"),
        ("consume T -g G -n 1", "to end after 1 message: --count 1"),
        ("tail T -e", "to end at the last message: --no-follow"),
        ("tail T -b h:1", "name servers: --namesrv HOST:PORT"),
        ("topics --bootstrap-server h:1", "name servers: --namesrv HOST:PORT"),
        ("topics --brokers h:1", "name servers: --namesrv HOST:PORT"),
        ("dlq export G --to f.jsonl", "the file to write: --to-jsonl f.jsonl"),
        ("dlq export G --to ./f", "the file to write: --to-jsonl ./f"),
        ("topics --json", "the output format: -o json"),
        ("topics --context p", "a cluster by its name: --profile NAME"),
        ("--context p topics", "a cluster by its name: --profile NAME"),
        (
            "send T --dry-run x",
            "to try it, send to a cluster of your own: rmq serve",
        ),
        ("export T --offset 5", "the start position: --from POSITION"),
        ("tail T -X a=b", "options are listed by --help"),
        ("topics --group G", "rmq tail and rmq lag know groups: rmq lag GROUP"),
        ("spark package -o f.zip", "the file to write: --out FILE"),
        ("topic create T -c C", "write: --cluster CLUSTER"),
        ("topic create T -b B", "write: --broker BROKER"),
        ("topic create T -r 4", "write: --queues N"),
        ("topic create T -w 4", "write: --queues N"),
        ("topic create T -p 4", "write: --queues N"),
        ("topic create T --partitions 4", "write: --queues N"),
        ("group create G -c C", "write: --cluster CLUSTER"),
        ("group create G -b B", "write: --broker BROKER"),
        ("group update G -c C", "write: --cluster CLUSTER"),
        ("group update G -b B", "write: --broker BROKER"),
        ("group create G -r 3", "write: --max-retries N"),
        ("group create G --retryMaxTimes 3", "write: --max-retries N"),
        ("group update G -r 3", "write: --max-retries N"),
        ("group update G --retryMaxTimes 3", "write: --max-retries N"),
        ("group update G --retry-max 3", "write: --max-retries N"),
        ("group delete G -c C", "write: --cluster CLUSTER"),
        ("group delete G -b B", "write: --broker BROKER"),
        ("tail T -20", "for the last 20 messages: --last 20"),
        ("tail T --tail 5", "for the last N messages: --last N"),
        ("tail T -o beginning", "the start position: --from earliest"),
        ("tail T -o end", "the start position: --from latest"),
        ("tail T -p 0", "one queue: --queue BROKER:ID"),
        ("send T --partition 0 x", "one queue: --queue BROKER:ID"),
        ("tail T -J", "write: -o jsonl"),
        ("consume T -g G --max-messages 1", "write: --count N"),
        ("consume T -g G --max 1", "write: --count N"),
        ("topic create T --type FIFO", "write: --attribute +message.type=FIFO"),
        ("topic create T --message-type FIFO", "write: --attribute +message.type=FIFO"),
        ("send T --lines --tag B", "if it is the value, write: --lines=--tag"),
        ("send T B --tag --key=3", "if it is the value, write: --tag=--key=3"),
        (
            "topics --list",
            "leave it out: rmq topics, rmq groups and rmq brokers are lists",
        ),
        ("lag --all-groups", "leave it out: rmq lag shows all groups"),
        ("lag G --describe", "leave it out: rmq lag GROUP shows each queue"),
        ("reset-offset G T --to-earliest", "write: --to earliest"),
        ("reset-offset G T --to-latest", "write: --to latest"),
        ("reset-offset G T --to-current", "write: --to group:GROUP"),
        ("reset-offset G T --to-offset 5", "write: --to OFFSET"),
        (
            "reset-offset G T --to-datetime 2026-01-02T03:04:05.000",
            "write: --to @2026-01-02T03:04:05Z",
        ),
        ("reset-offset G T --shift-by -5", "write: --shift N"),
        ("reset-offset G T --by-duration PT1H", "write: --to -2h"),
        ("reset-offset G T --from-file f", "write: --apply FILE"),
        (
            "reset-offset G T --to latest --dry-run",
            "leave it out: nothing changes without --execute",
        ),
        (
            "definitions apply f --execute",
            "leave it out: it asks before it changes anything; without asking: --yes",
        ),
        ("copy T U --dry-run", "leave it out: nothing changes without --execute"),
        ("dlq redrive G --dry-run", "leave it out: nothing changes without --execute"),
        ("retry flush G --dry-run", "leave it out: nothing changes without --execute"),
        (
            "copy T --to orders-2",
            "to copy to topic orders-2: rmq copy SOURCE_TOPIC orders-2",
        ),
        ("bench produce T --messages 5", "write: --count N"),
        ("bench consume T --messages 5", "write: --count N"),
        (
            "consumer-groups",
            "to list groups: rmq groups; how far behind: rmq lag GROUP",
        ),
        ("-b h:1 lag", "name servers: --namesrv HOST:PORT"),
        ("-t T -C", "to read messages: rmq tail TOPIC; to send: rmq send TOPIC"),
        ("import T", "write: rmq import TOPIC --from-parquet DIR"),
        ("consume T", "write: rmq consume TOPIC... --group GROUP"),
        (
            "send T hello world",
            "a text with blanks needs quotes; see: rmq send --help",
        ),
        ("topics ord*", "write: rmq topic show 'ord*'"),
        (
            "topic O",
            "to show what has this name: rmq topic show O; commands: rmq topic --help",
        ),
        ("reset-offset G --undo", "write: rmq reset-offset G TOPIC --undo"),
        ("topics a b", "write: rmq topic show a"),
        ("groups G", "write: rmq group show G"),
        ("group list G", "write: rmq group show G"),
        ("brokers B", "write: rmq broker show B"),
        ("dlq list G", "write: rmq dlq show G"),
        ("cluster C", "see: rmq cluster --help"),
        ("consume T -g G --idle-timeout 5s", "to end after a time: --for DURATION"),
        ("lag --explian", "did you mean --explain?"),
        ("lagg", "did you mean lag?"),
        ("topic shwo T", "did you mean show?"),
        ("reset-offset -t T --to latest", "see: rmq reset-offset --help"),
        ("-C -t T", "to read messages: rmq tail TOPIC"),
        ("-G G T", "to consume in a group: rmq consume TOPIC --group GROUP"),
        ("-P -t T", "to send messages: rmq send TOPIC"),
        ("console -t T", "to read messages: rmq tail TOPIC; to send: rmq send TOPIC"),
        ("list", "to list them: rmq topics, rmq groups, rmq brokers"),
        ("ls", "to list them: rmq topics, rmq groups, rmq brokers"),
        (
            "describe",
            "to look at one thing: rmq topic show TOPIC, rmq group show GROUP",
        ),
        (
            "show orders",
            "to look at one thing: rmq topic show TOPIC, rmq group show GROUP",
        ),
        ("-L -b h:1", "to list topics and brokers: rmq topics, rmq brokers"),
    ],
)
def test_the_error_names_the_right_form(capfd, typed, hint):
    assert run(shlex.split(typed)) == 2
    out, err = capfd.readouterr()
    assert out == ""
    last = err.splitlines()[-1]
    assert last == f"hint: {hint}" or last.endswith(f" does not exist; {hint}")


@pytest.mark.parametrize(
    ("typed", "ours"),
    [
        ("brokerStatus", "rmq broker show BROKER"),
        ("cloneGroupOffset", "rmq reset-offset GROUP TOPIC --to-group OTHER"),
        ("clusterList", "rmq cluster, or rmq brokers"),
        ("console-consumer", "rmq tail TOPIC, or rmq consume TOPIC --group GROUP"),
        ("console-producer", "rmq send TOPIC --lines -"),
        ("consumeMessage", "rmq tail TOPIC"),
        ("consumer", "rmq consume TOPIC --group GROUP, or rmq group show GROUP"),
        ("consumerConnection", "rmq group show GROUP"),
        ("consumerProgress", "rmq lag [GROUP]"),
        ("create", "rmq topic create TOPIC, or rmq group create GROUP"),
        ("delete", "rmq topic delete TOPIC, or rmq group delete GROUP"),
        (
            "consumerStatus",
            "rmq lag GROUP --process-queues; stacks: rmq group stack GROUP",
        ),
        ("producerConnection", "rmq producers --group GROUP"),
        ("deleteSubGroup", "rmq group delete GROUP"),
        ("deleteTopic", "rmq topic delete TOPIC"),
        ("getBrokerConfig", "rmq broker config get --broker BROKER"),
        ("updateBrokerConfig", "rmq broker config set NAME=VALUE --broker BROKER"),
        ("wipeWritePerm", "rmq broker drain BROKER"),
        ("getConsumerConfig", "rmq group show GROUP"),
        ("getConsumerStatus", "rmq lag GROUP"),
        ("kafka-broker-api-versions", "rmq brokers"),
        ("kafka-configs", "rmq topic show TOPIC, or rmq broker show BROKER --settings"),
        (
            "kafka-console-consumer",
            "rmq tail TOPIC, or rmq consume TOPIC --group GROUP",
        ),
        (
            "kafka-console-consumer.sh",
            "rmq tail TOPIC, or rmq consume TOPIC --group GROUP",
        ),
        ("kafka-console-producer", "rmq send TOPIC --lines -"),
        ("kafka-consumer-groups", "rmq groups, or rmq lag GROUP"),
        ("kafka-get-offsets", "rmq topic show TOPIC"),
        ("kafka-topics", "rmq topics, or rmq topic show TOPIC"),
        ("kafka-topics.sh", "rmq topics, or rmq topic show TOPIC"),
        ("ping", "rmq brokers"),
        ("printMsg", "rmq tail TOPIC --from earliest --no-follow"),
        (
            "printMsgByQueue",
            "rmq tail TOPIC --queue BROKER:ID --from earliest --no-follow",
        ),
        ("query", "rmq sql 'select * from TOPIC'"),
        ("queryMsgById", "rmq message show ID"),
        ("queryMsgByKey", "rmq message find TOPIC --key KEY"),
        ("queryMsgByOffset", "rmq message show TOPIC@BROKER:QUEUE:OFFSET"),
        ("queryMsgByUniqueKey", "rmq message show ID --topic TOPIC"),
        ("reset", "rmq reset-offset GROUP TOPIC --to POSITION"),
        ("resetOffsetByTime", "rmq reset-offset GROUP TOPIC --to @TIME"),
        ("resetOffsetByTimeOld", "rmq reset-offset GROUP TOPIC --to @TIME"),
        ("sendMessage", "rmq send TOPIC BODY"),
        ("sendMsgStatus", "rmq send TOPIC BODY"),
        ("skipAccumulatedMessage", "rmq reset-offset GROUP TOPIC --to latest"),
        ("startMonitoring", "rmq lag --watch 10s"),
        ("statsAll", "rmq lag --sample 10s"),
        ("status", "rmq cluster"),
        ("topicClusterList", "rmq topic show TOPIC"),
        ("topicList", "rmq topics"),
        ("topicRoute", "rmq topic show TOPIC"),
        ("topicStatus", "rmq topic show TOPIC"),
        ("updateSubGroup", "rmq group create GROUP, or rmq group update GROUP"),
        ("updateSubGroupList", "rmq group create GROUP, or rmq group update GROUP"),
        ("updateTopic", "rmq topic create TOPIC, or rmq topic update TOPIC"),
        ("updateTopicList", "rmq topic create TOPIC, or rmq topic update TOPIC"),
        ("updateTopicPerm", "rmq topic permission TOPIC rw"),
    ],
)
def test_the_error_names_the_command(capfd, typed, ours):
    assert run([typed, "-n", "h:1"]) == 2
    assert capfd.readouterr().err == (
        f"error: command {typed} does not exist\nhint: write: {ours}\n"
    )


@pytest.mark.parametrize(
    ("typed", "ours"),
    [
        ("acl list", "rmq acl user list or rmq acl rule list"),
        ("nameserver list", "rmq nameserver kv list"),
    ],
)
def test_a_command_that_is_one_level_deeper_is_named(capfd, typed, ours):
    assert run([*typed.split(), "-n", "h:1"]) == 2
    assert capfd.readouterr().err == (
        f"error: command list does not exist\nhint: write: {ours}\n"
    )


@pytest.mark.parametrize(
    ("words", "said"), [("b", "argument: b"), ("b c", "arguments: b c")]
)
def test_arguments_that_are_too_many_are_named(capfd, words, said):
    assert run(shlex.split(f"send T a {words}")) == 2
    assert capfd.readouterr().err.splitlines()[0] == f"error: unexpected {said}"


def test_a_time_without_a_day_is_not_taken_for_today(capfd):
    """The hint has today's date: that of the machine's clock, as in `@TIME`."""
    assert run(["tail", "T", "--from", "9:05:00", "-n", "h:1"]) == 2
    last = capfd.readouterr().err.splitlines()[-1]
    assert re.fullmatch(r"hint: for today write @\d{4}-\d\d-\d\dT09:05:00", last)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["message", "7F01"], "write: rmq message show 7F01"),
        (["message", "orders@a:0:7"], "write: rmq message show orders@a:0:7"),
        (["message", "a;b"], "write: rmq message show 'a;b'"),
        (["message", "\x1b[2J"], "write: rmq message show '\\x1b[2J'"),
    ],
)
def test_a_message_without_a_verb_is_shown_how_to_be_shown(capfd, words, hint):
    assert run(words) == 2
    assert capfd.readouterr().err.splitlines()[1] == f"hint: {hint}"


def test_a_mistyped_verb_of_message_names_the_right_one(capfd):
    assert run(["message", "fnd", "orders"]) == 2
    assert "did you mean find?" in capfd.readouterr().err


@pytest.mark.parametrize("typed", ["--help lag", "-h lag", "-v --help lag -o json"])
def test_help_before_a_command_is_the_help_of_the_command(capfd, typed):
    """It said: command lag does not exist; did you mean lag?"""
    assert run(shlex.split(typed)) == 0
    out, err = capfd.readouterr()
    assert out.startswith("Usage: rmq lag [OPTIONS] [GROUP]...\n")
    assert err == ""


def test_help_after_a_group_of_commands_is_its_help(capfd):
    for name in ("topic", "nameserver kv"):
        assert run([*name.split(), "help"]) == 0
        assert capfd.readouterr().out.startswith(f"Usage: rmq {name} COMMAND")


@pytest.mark.parametrize("typed", ["--help topic shwo", "--help lagg"])
def test_help_before_a_mistyped_command_names_the_right_one(capfd, typed):
    assert run(shlex.split(typed)) == 2
    assert "did you mean " in capfd.readouterr().err


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("--verison", "option --verison does not exist; did you mean --version?"),
        ("-V", "option -V does not exist\nhint: see: rmq --help"),
        ("--tiemout 5s", "option --tiemout does not exist; did you mean --timeout?"),
    ],
)
def test_an_option_before_the_command_that_does_not_exist_is_one_sentence(
    capfd, typed, said
):
    assert run(shlex.split(typed)) == 2
    assert capfd.readouterr().err == f"error: {said}\n"


@pytest.mark.parametrize("words", ["lag --watch", "tail T --last"])
def test_an_option_without_its_value_is_named(capfd, words):
    flag = words.split()[-1]
    assert run(words.split()) == 2
    assert capfd.readouterr().err.splitlines() == [
        f"error: option '{flag}' requires an argument",
        f"hint: see: rmq {words.split()[0]} --help",
    ]
