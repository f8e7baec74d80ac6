"""Hints name arguments and calls in the library, and flags and commands in `rmq`."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import rmqcli
from rmqcli import Admin, NotFoundError, RefusedError, connect
from rmqcli.cli.main import run
from rmqcli.cli.ui.errors import describe
from rmqcli.cli.ui.hints import with_flags
from rmqcli.model import MessageQueue

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


@pytest.mark.parametrize(
    ("library", "command_line"),
    [
        ("list groups with: Admin.groups()", "list groups with: rmq groups"),
        ("see: Admin.topic('T')", "see: rmq topic show T"),
        ("see: Admin.topic('a b')", "see: rmq topic show 'a b'"),
        ("add force=True, or wait", "add --force, or wait"),
        ("name one: cluster='C'", "name one: --cluster C"),
        ("try tls=None", "try without --tls"),
        ("with ca_file=FILE, or not", "with --tls-ca FILE, or not"),
        ("or insecure=True", "or --tls-insecure"),
        ("queues=[QUEUE], to=OFFSET+1", "--queue BROKER:ID --to OFFSET+1"),
        (f"queues=[{MessageQueue('T', 'b', 3)!r}], to='18'", "--queue b:3 --to 18"),
        ("try a smaller rows_per_file", "try a smaller --rows-per-file"),
        ("add may_create=True", "add --create"),
        (
            "check the credentials argument",
            "check --acl-file or RMQ_ACCESS_KEY and RMQ_SECRET_KEY",
        ),
        (
            "check the endpoints argument or ROCKETMQ_ENDPOINTS",
            "check --endpoints or ROCKETMQ_ENDPOINTS",
        ),
        # texts without arguments or calls of the library
        ("check namesrv or NAMESRV_ADDR", "check namesrv or NAMESRV_ADDR"),
        ("start(wait_for_cluster=True)", "start(wait_for_cluster=True)"),
        ("files in out/cluster='a'", "files in out/cluster='a'"),
        # a command of the command line with the user's arguments
        ("run: rmq x --sql \"to='a'\"", "run: rmq x --sql \"to='a'\""),
    ],
)
def test_arguments_and_calls_become_flags_and_commands(library, command_line):
    assert with_flags(library) == command_line


def test_an_error_becomes_text_with_flags():
    failure = describe(RefusedError("not done", hint="add remove_offsets=True"))
    assert failure.hint == "add --remove-offsets"


def test_the_command_of_every_call_exists():
    """Every method of Admin that a hint names exists."""
    source = "".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    named = set(re.findall(r"[:a-z] Admin\.(\w+)\(", source))
    assert {"topics", "groups", "brokers", "create_group"} <= named
    assert [name for name in named if not callable(getattr(Admin, name, None))] == []


def test_no_text_of_the_library_names_a_flag_or_a_command():
    found = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}: {node.value!r}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.relative_to(PACKAGE).parts[0] not in _COMMAND_LINE
        for node in _texts(ast.parse(path.read_text()))
        if re.search(r"(?<![\w-])--[a-z]|\brmq (?!did )[a-z]", node.value)
        and node.value not in _NOT_HINTS
        and not node.value.startswith("#!/bin/sh")
    ]
    assert found == []


def _texts(tree):
    """Return the string constants of a module that are not docstrings."""
    nodes = list(ast.walk(tree))
    docs = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    return [
        node
        for node in nodes
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in docs
    ]


@pytest.mark.parametrize(
    ("ask", "arguments", "library", "command_line"),
    [
        (
            lambda connected: connected.admin().group("nope"),
            ["group", "show", "nope"],
            "list groups with: Admin.groups()",
            "list groups with: rmq groups",
        ),
        (
            lambda connected: connected.admin().topic("nope"),
            ["topic", "show", "nope"],
            "list topics with: Admin.topics()",
            "list topics with: rmq topics",
        ),
        (
            lambda connected: connected.admin().update_group("G", consume_enable=False),
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
