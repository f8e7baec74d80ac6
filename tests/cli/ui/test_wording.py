"""Hints name arguments and calls in the library, and flags and commands in `rmq`."""

from __future__ import annotations

import ast
import copy
import functools
import pickle
import re
from itertools import pairwise
from pathlib import Path

import pytest

import rmqcli
from rmqcli import Admin, NotFoundError, RefusedError, connect
from rmqcli.cli.arguments.declared import all_flags, parameters_of
from rmqcli.cli.commands import COMMANDS as RMQ_COMMANDS
from rmqcli.cli.main import run
from rmqcli.cli.ui.errors import describe
from rmqcli.cli.ui.wording import COMMANDS, FLAGS, with_flags
from rmqcli.hint import Argument, Blank, ForPrograms, Hint, LibraryCall, Setting
from rmqcli.model import MessageQueue
from tests.kit.rows import each_row

PACKAGE = Path(rmqcli.__file__).parent
#: Packages whose texts only users of the command line see.
_COMMAND_LINE = {"cli", "demo", "__main__.py"}
#: Texts with flags of Spark, protoc or hadoop, and a job's name and description.
_NOT_HINTS = {
    "write the descriptor set with protoc --include_imports",
    "write one with protoc --include_imports --descriptor_set_out=FILE orders.proto",
    (
        "write protobuf:FILE:MESSAGE, where FILE is a descriptor set: protoc"
        " --include_imports --descriptor_set_out=FILE orders.proto"
    ),
    (
        "set HADOOP_HOME and JAVA_HOME, and set CLASSPATH to the output of"
        " `hadoop classpath --glob`"
    ),
    "--conf",
    "rmq export",
    "rmq export ",
    "rmq sql",
    "', which rmq did not write'",
}

#: Packages whose texts are not for users: what peers sent, files of a store.
_FOR_PEERS = {"broker", "store", "wire"}
#: What follows a number that was not counted with its noun. "messages/s" is a unit.
_PLURAL = re.compile(
    r" (?:(?:dead|delayed|finished|name|stored|system) )?(?:brokers|files|groups"
    r"|letters|members|messages|offsets|queues|records|requests|rows|servers|tasks"
    r"|topics)\b(?!/)"
)
#: Constants, which are greater than one, and ids of queues.
_NO_COUNT = re.compile(r"^_?[A-Z_]+$|queue_id$")
#: The parts of hints for which the command line has words of its own.
_PARTS = {"Setting": FLAGS, "Argument": FLAGS, "LibraryCall": COMMANDS}


SETTINGS = (Setting("perm", 6), Setting("brokers", ["b"]))
QUEUE = MessageQueue("T", "b", 3)


@each_row(
    ("hint", "library", "command_line"),
    [
        (
            Hint("list groups with: ", LibraryCall("Admin.groups")),
            "list groups with: Admin.groups()",
            "list groups with: rmq groups",
        ),
        (
            Hint("see: ", LibraryCall("Admin.topic", "a b")),
            "see: Admin.topic('a b')",
            "see: rmq topic show 'a b'",
        ),
        (
            Hint("add ", Setting("force", True), ", or wait"),
            "add force=True, or wait",
            "add --force, or wait",
        ),
        (Hint("try ", Setting("tls", None)), "try tls=None", "try without --tls"),
        (
            Hint("for some: ", Setting("brokers", ["a", "b c"])),
            "for some: brokers=['a', 'b c']",
            "for some: --broker a --broker 'b c'",
        ),
        (
            Hint("name one: ", Setting("cluster", "a b")),
            "name one: cluster='a b'",
            "name one: --cluster 'a b'",
        ),
        (
            Hint("with ", Setting("ca_file", Blank("FILE"))),
            "with ca_file=FILE",
            "with --tls-ca FILE",
        ),
        (
            Hint(Setting("queues", Blank("[QUEUE]")), Setting("to", Blank("OFFSET+1"))),
            "queues=[QUEUE], to=OFFSET+1",
            "--queue BROKER:ID --to OFFSET+1",
        ),
        (
            Hint(Setting("queues", QUEUE), Setting("to", "18")),
            f"queues=[{QUEUE!r}], to='18'",
            "--queue b:3 --to 18",
        ),
        (
            Hint("such as ", Setting("delay_ms", 90_000)),
            "such as delay_ms=90000",
            "such as --delay 1m30s",
        ),
        (
            Hint("wait with ", Setting("executor_timeout_ms", Blank("MS"))),
            "wait with executor_timeout_ms=MS",
            "wait with --executor-timeout DURATION",
        ),
        (
            Hint("try a smaller ", Argument("rows_per_file")),
            "try a smaller rows_per_file",
            "try a smaller --rows-per-file",
        ),
        (
            Hint("check ", Argument("endpoints"), " or ROCKETMQ_ENDPOINTS"),
            "check the endpoints argument or ROCKETMQ_ENDPOINTS",
            "check --endpoints or ROCKETMQ_ENDPOINTS",
        ),
        (
            Hint("create it", ForPrograms(", or use start(wait_for_cluster=True)")),
            "create it, or use start(wait_for_cluster=True)",
            "create it",
        ),
        # what a user typed, and other texts, are not read
        ("run: rmq x --sql \"to='a'\"",) * 3,
        ("files in out/cluster='a'",) * 3,
    ],
)
def test_a_hint_is_worded_for_programs_and_for_the_command_line(
    hint, library, command_line
):
    assert hint == library
    assert with_flags(hint) == command_line


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        (
            Hint("see: ", LibraryCall("Admin.topic", "-T")),
            "see: rmq topic show -n a:1 -- -T",
        ),
        (
            Hint("do: ", LibraryCall("Admin.update_topic", "-T"), " ", *SETTINGS),
            "do: rmq topic update -n a:1 --perm rw --broker b -- -T",
        ),
        (
            Hint("do: ", LibraryCall("Admin.topic", "-T"), ", or wait"),
            "do: rmq topic show -n a:1 -- -T, or wait",
        ),
    ],
)
def test_a_name_that_is_like_an_option_comes_after_the_options(hint, expected):
    """The command was refused: option -T does not exist."""
    assert with_flags(hint, ["-n", "a:1"]) == expected


def test_a_hint_is_the_same_after_it_was_pickled_or_put_into_another():
    inner = Hint("add ", Setting("force", True))
    for copied in (
        pickle.loads(pickle.dumps(inner)),
        copy.copy(inner),
        pickle.loads(pickle.dumps(RefusedError("x", hint=inner))).hint,
    ):
        assert copied == "add force=True"
        assert copied.parts == inner.parts
    assert with_flags(Hint(inner, ", or wait")) == "add --force, or wait"


def test_an_error_becomes_text_with_flags():
    hint = Hint("add ", Setting("remove_offsets", True))
    assert describe(RefusedError("not done", hint=hint)).hint == "add --remove-offsets"


@functools.cache
def _nodes():
    """What these tests ask about, of all modules: reading those takes seconds.

    Returns (module, node) of the calls that make parts of hints, of f-strings, and of
    texts that are not docstrings.
    """
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        docs = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        found += [
            (path.relative_to(PACKAGE), node)
            for node in nodes
            if isinstance(node, ast.JoinedStr)
            or (isinstance(node, ast.Call) and getattr(node.func, "id", "") in _PARTS)
            or (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and id(node) not in docs
            )
        ]
    return found


def _calls(name):
    """The calls of a class in the library: the place and the arguments of each."""
    return [
        (f"{module}:{node.lineno}", node.args)
        for module, node in _nodes()
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == name
    ]


@pytest.mark.slow
def test_a_number_that_can_be_one_is_counted_with_its_noun():
    """`1 queues, not 8`: `rmqcli.units.counted` chooses between the two forms."""
    assert [
        f"{module}:{value.lineno}"
        for module, node in _nodes()
        if isinstance(node, ast.JoinedStr) and module.parts[0] not in _FOR_PEERS
        for value, text in pairwise(node.values)
        if isinstance(value, ast.FormattedValue)
        and isinstance(text, ast.Constant)
        and _PLURAL.match(str(text.value))
        and not _NO_COUNT.search(ast.unparse(value.value))
    ] == []


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "known"), _PARTS.items())
def test_the_command_line_has_words_for_all_that_hints_name(kind, known):
    found = _calls(kind)
    assert found
    assert [
        f"{place}: {arguments[0].value}"
        for place, arguments in found
        if arguments[0].value not in known
    ] == []


def test_every_flag_and_command_of_a_hint_exists():
    texts = {*FLAGS.values(), *COMMANDS.values()}
    named = {flag for text in texts for flag in re.findall(r"--[a-z-]+", text)}
    commands = [each.path for each in RMQ_COMMANDS]
    flags = {
        flag for each in RMQ_COMMANDS for flag in all_flags(parameters_of(each.load()))
    }
    assert named - flags == set()
    words = {text.removeprefix("rmq ") for text in texts if text.startswith("rmq ")}
    assert [
        each for each in words if not any(each.startswith(path) for path in commands)
    ] == []


@pytest.mark.slow
def test_no_plain_text_of_the_library_names_an_argument_with_its_value():
    """Such a text would be shown as it is on the command line."""
    named = "|".join(FLAGS)
    found = [
        f"{module}:{node.lineno}: {node.value!r}"
        for module, node in _texts()
        if " " in node.value
        and re.search(
            rf"(?<![\w/.=;\[-])({named})=('|True|None|\[|[A-Z])|\bAdmin\.[a-z]"
            rf"|\bthe ({named}) argument\b",
            node.value,
        )
    ]
    assert found == []


@pytest.mark.slow
def test_the_command_of_every_call_exists():
    """Every method of Admin that a hint names exists."""
    named = {args[0].value for _, args in _calls("LibraryCall")}
    methods = {name.removeprefix("Admin.") for name in named if "Admin." in name}
    assert {"topics", "groups", "brokers", "create_group"} <= methods
    assert [each for each in methods if not callable(getattr(Admin, each, None))] == []


@pytest.mark.slow
def test_no_text_of_the_library_names_a_flag_or_a_command():
    found = [
        f"{module}:{node.lineno}: {node.value!r}"
        for module, node in _texts()
        # A finding has a command line to try, in a field of its own.
        if module.parts[:2] != ("admin", "doctor")
        and re.search(r"(?<![\w-])--[a-z]|\brmq (?!did )[a-z]", node.value)
        and node.value not in _NOT_HINTS
        and not node.value.startswith("#!/bin/sh")
    ]
    assert found == []


def _texts():
    """The string constants of the library that are not docstrings."""
    return [
        (module, node)
        for module, node in _nodes()
        if isinstance(node, ast.Constant) and module.parts[0] not in _COMMAND_LINE
    ]


@pytest.mark.parametrize(
    ("ask", "arguments", "library", "command_line"),
    [
        (
            lambda connected: connected.admin().__enter__().group("nope"),
            ["group", "show", "nope"],
            "list groups with: Admin.groups()",
            "list groups with: rmq groups",
        ),
        (
            lambda connected: connected.admin().__enter__().topic("nope"),
            ["topic", "show", "nope"],
            "list topics with: Admin.topics()",
            "list topics with: rmq topics",
        ),
        (
            lambda connected: (
                connected.admin().__enter__().update_group("G", consume_enable=False)
            ),
            ["group", "update", "G", "--no-consume"],
            "create it with: Admin.create_group('G')",
            "create it with: rmq group create G",
        ),
    ],
)
def test_the_library_and_the_command_line_say_the_same(
    rmq_cluster, capsys, ask, arguments, library, command_line
):
    with (
        connect(rmq_cluster.namesrv) as connected,
        pytest.raises(NotFoundError) as caught,
    ):
        ask(connected)
    assert caught.value.hint == library
    assert run([*arguments, "-n", rmq_cluster.namesrv]) == 3
    assert f"hint: {command_line}\n" in capsys.readouterr().err


def test_arguments_of_a_refused_deletion(rmq_cluster, capsys):
    """RocketMQ 5 restores a deleted group whose offsets were kept, so it is refused."""
    rmq_cluster.create_group("G")
    with connect(rmq_cluster.namesrv) as connected, connected.admin() as admin:
        with pytest.raises(RefusedError) as caught:
            admin.delete_group("G", remove_offsets=False)
        assert caught.value.hint == "add remove_offsets=True"
    assert run(["group", "delete", "G", "--yes", "-n", rmq_cluster.namesrv]) == 7
    assert "hint: add --remove-offsets\n" in capsys.readouterr().err


def test_arguments_to_skip_all_messages_up_to_one(rmq_cluster, capsys):
    rmq_cluster.create_topic("T", queues=1)
    rmq_cluster.create_group("G")
    rmq_cluster.send("T", ["x"] * 3)
    queue = MessageQueue("T", "broker-a", 0)
    with connect(rmq_cluster.namesrv) as connected, connected.admin() as admin:
        message = admin.message_at(queue, 2)
        with pytest.raises(RefusedError) as caught:
            admin.plan_reset("G", "T", past_message=message.offset_msg_id)
        assert caught.value.hint == f"to skip those too: queues=[{queue!r}], to='3'"
        planned = admin.plan_reset("G", "T", queues=[queue], to="3")
        assert [each.target for each in planned.plan.queues] == [3]
    words = ["G", "T", "--past-message", message.offset_msg_id]
    assert run(["reset-offset", *words, "-n", rmq_cluster.namesrv]) == 7
    err = capsys.readouterr().err
    assert "hint: to skip those too: --queue broker-a:0 --to 3\n" in err
