"""`rmq explain`: every code that rmq can show has a meaning."""

from __future__ import annotations

import json
import re

import grpc
import pytest

from rmqcli.api.broker_errors import error_of
from rmqcli.cli.arguments.table import COMMANDS
from rmqcli.cli.explain import meanings
from rmqcli.cli.main import run
from rmqcli.errors import BrokerError, ExitCode
from rmqcli.wire.codes import ResponseCode
from rmqcli.wire.command import RemotingCommand
from rmqcli.wire.protobuf import definition_pb2 as pb
from tests.cli.test_one_cause import path_of
from tests.test_startup import modules_after


def explained(capsys, *words):
    """Return the exit code, the meanings, and stderr."""
    code = run(["explain", *words, "-o", "json"])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else None, err


@pytest.mark.parametrize(
    ("kind", "codes"),
    [
        ("exit code", {(code.value, code.name) for code in ExitCode}),
        ("response code", {(code.value, code.name) for code in ResponseCode}),
        ("proxy code", {(number, name) for name, number in pb.Code.items()}),
        ("gRPC status", {(code.value[0], code.name) for code in grpc.StatusCode}),
    ],
)
def test_every_code_has_one_meaning(kind, codes):
    found = [
        (each.code, each.name)
        for each in meanings()
        if each.kind == kind and each.said_by not in ("rmq check", "rmq doctor")
    ]
    assert len(found) == len(codes)
    assert set(found) == codes


def test_codes_of_rmq_alone_have_no_meaning_as_an_answer_of_a_server():
    """Java's servers never answer 3001 or 3002, though they are response codes."""
    own = [
        each.code
        for each in meanings()
        if (each.kind, each.said_by) == ("response code", "rmq")
    ]
    answers = [RemotingCommand(code=code) for code in own]
    errors = [error_of(answer, what="x", address="h:1") for answer in answers]
    assert own == [3001, 3002]
    assert [(type(each), each.hint) for each in errors] == [(BrokerError, "")] * 2


def test_the_commands_that_meanings_name_exist():
    texts = [f"{each.cause} {each.advice}" for each in meanings()]
    named = {words for text in texts for words in re.findall(r"rmq ([a-z ]+)", text)}
    assert "group stack " in named
    assert all(path_of(words.strip()) in COMMANDS for words in named - {"help "})


def test_a_number_shows_all_that_it_means(capsys):
    code, found, err = explained(capsys, "4")
    assert code == 0, err
    assert [(each["kind"], each["name"]) for each in found] == [
        ("exit code", "DENIED"),
        ("response code", "TRANSACTION_FAILED"),
        ("gRPC status", "DEADLINE_EXCEEDED"),
    ]


def test_codes_of_controllers_are_explained(capsys):
    """2007 was an unknown code."""
    code, found, err = explained(capsys, "2007")
    assert code == 0, err
    assert [(each["name"], each["said_by"]) for each in found] == [
        ("CONTROLLER_NOT_LEADER", "a controller")
    ]


def test_exit_codes_of_monitors_are_told_from_the_others(capsys):
    code, found, err = explained(capsys, "2")
    assert code == 0, err
    assert [(each["said_by"], each["name"]) for each in found[:3]] == [
        ("rmq", "USAGE"),
        ("rmq check", "CRITICAL"),
        ("rmq doctor", "PROBLEM"),
    ]


def test_what_rmq_and_grpc_say_themselves_is_not_said_to_be_a_server_s(capsys):
    """A client without a connection was said to have heard so from a proxy."""
    code, found, err = explained(capsys, "NO_MESSAGE")
    assert (code, found[0]["said_by"]) == (0, "rmq or a broker"), err
    code, found, err = explained(capsys, "UNAVAILABLE")
    said = [each["said_by"] for each in found if each["kind"] == "gRPC status"]
    assert (code, said) == (0, ["a proxy, or gRPC in the client"]), err


@pytest.mark.parametrize("name", ["TOPIC_NOT_FOUND", "topic-not-found", "40402"])
def test_a_name_or_a_number_finds_a_proxy_s_code(capsys, name):
    code, (found,), err = explained(capsys, name)
    assert code == 0, err
    assert found == {
        "code": 40402,
        "name": "TOPIC_NOT_FOUND",
        "kind": "proxy code",
        "said_by": "a proxy",
        "meaning": "The topic does not exist.",
        "cause": "A misspelt name, or no broker that has the topic is registered. A"
        " proxy creates no topics.",
        "advice": "Create it with: rmq topic create TOPIC",
    }


def test_the_text_says_who_says_it_what_causes_it_and_what_to_try(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["explain", "17"]) == 0
    assert capsys.readouterr().out == (
        "17 TOPIC_NOT_EXIST: response code, said by a broker or a name server\n"
        "  means: The topic does not exist.\n"
        "  cause: A misspelt name, or no broker that has the topic is registered.\n"
        "  try: List the topics with: rmq topics\n"
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("NO_PERMISION", "code NO_PERMISION does not exist; did you mean NO_PERMISS"),
        ("999", "code 999 does not exist"),
        ("-1", "-1"),
    ],
)
def test_an_unknown_code_is_a_usage_error(capsys, text, words):
    code, found, err = explained(capsys, text)
    assert (code, found) == (2, None)
    assert words in err


def test_it_starts_without_grpc_and_asks_no_server(monkeypatch):
    monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:1")
    code, modules = modules_after(["explain", "17"])
    assert code == 0
    slow = ("grpc", "google", "rmqcli.transport", "rmqcli.api")
    assert not {name for name in modules if name.startswith(slow)}
