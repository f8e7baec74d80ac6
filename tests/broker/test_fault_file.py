"""Faults from a file: each is applied, and a misspelt one is an error."""

from __future__ import annotations

import json
import re

import pytest

from rmqcli.broker.fault_file import parse_faults, read_fault_file
from rmqcli.broker.faults import (
    Answer,
    Corrupt,
    DelayAnswer,
    Disconnect,
    Drop,
    Match,
    Reorder,
)
from rmqcli.errors import ConfigError
from tests.kit.rows import each_row


@pytest.mark.parametrize(
    ("entry", "action"),
    [
        ({"do": "answer", "answer_code": 14, "remark": "busy"}, Answer(14, "busy")),
        ({"do": "answer", "answer_code": "SYSTEM_BUSY"}, Answer(2)),
        ({"do": "drop-request"}, Drop(is_handled=False)),
        ({"do": "drop-answer"}, Drop(is_handled=True)),
        ({"do": "delay", "delay_ms": 500}, DelayAnswer(500)),
        ({"do": "reorder"}, Reorder()),
        ({"do": "disconnect"}, Disconnect(is_handled=False)),
        ({"do": "disconnect", "is_handled": True}, Disconnect(is_handled=True)),
        ({"do": "corrupt"}, Corrupt("header")),
        ({"do": "corrupt", "part": "body"}, Corrupt("body")),
    ],
)
def test_every_action_can_be_read(entry, action):
    (rule,) = parse_faults(json.dumps({"faults": [entry]}))
    assert rule.action == action
    assert (rule.match, rule.nth, rule.times) == (Match(), 1, None)


def test_a_fault_names_its_requests():
    (rule,) = parse_faults(
        '{"faults": [{"do": "reorder", "code": "PULL_MESSAGE", "broker": "broker-b",'
        ' "group": "g", "topic": "t", "queue_id": 0, "nth": 3, "times": 2}]}'
    )
    assert rule.match == Match(
        code=11, broker="broker-b", group="g", topic="t", queue_id=0
    )
    assert (rule.nth, rule.times) == (3, 2)


@each_row(
    ("text", "message"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "'faults' is not a list"),
        ('{"faults": {}}', "'faults' is not a list"),
        ('{"faults": [], "x": 1}', "unknown key 'x'"),
        ('{"faults": [7]}', "fault 1 is not an object"),
        ('{"faults": [{}]}', "fault 1: 'do' is not one of answer, "),
        ('{"faults": [{"do": "explode"}]}', "fault 1: 'do' is not one of"),
        (
            '{"faults": [{"do": "reorder"}, {"do": "delay"}]}',
            "fault 2: 'delay_ms' is m",
        ),
        (
            '{"faults": [{"do": "delay", "delay_ms": -1}]}',
            "'delay_ms' is not an integer",
        ),
        (
            '{"faults": [{"do": "delay", "delay_ms": true}]}',
            "'delay_ms' is not an integer",
        ),
        ('{"faults": [{"do": "delay", "delay_ms": 1, "nht": 3}]}', "unknown key 'nht'"),
        (
            '{"faults": [{"do": "reorder", "delay_ms": 1}]}',
            "unknown key 'delay_ms' for 'reorder'",
        ),
        ('{"faults": [{"do": "reorder", "code": "PUL"}]}', "no code named 'PUL'"),
        (
            '{"faults": [{"do": "reorder", "nth": 0}]}',
            "'nth' is not an integer from 1 to 2147483647",
        ),
        (
            '{"faults": [{"do": "reorder", "nth": 2147483648}]}',
            "'nth' is not an integer from 1 to 2147483647",
        ),
        (
            '{"faults": [{"do": "reorder", "times": 0}]}',
            "'times' is not an integer from 1 to",
        ),
        (
            '{"faults": [{"do": "reorder", "queue_id": -1}]}',
            "'queue_id' is not an integer from 0 to",
        ),
        ('{"faults": [{"do": "answer"}]}', "'answer_code' is missing"),
        ('{"faults": [{"do": "corrupt", "part": "x"}]}', "'part' is not one of"),
        ('{"faults": [{"do": "reorder", "topic": 7}]}', "'topic' is not a string"),
        ('{"faults": [{"do": "disconnect", "is_handled": 1}]}', "is not a boolean"),
    ],
)
def test_errors_name_the_fault_and_the_key(text, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        parse_faults(text)


def test_the_least_and_the_greatest_numbers_are_taken():
    (rule,) = parse_faults(
        '{"faults": [{"do": "delay", "delay_ms": 0, "code": 0, "nth": 2147483647,'
        ' "times": 1}]}'
    )
    assert rule.action == DelayAnswer(0)
    assert (rule.match, rule.nth, rule.times) == (Match(code=0), 2_147_483_647, 1)


def test_a_file_has_at_most_1000_faults():
    text = json.dumps({"faults": [{"do": "reorder"}] * 1_000})
    assert len(parse_faults(text)) == 1_000
    text = json.dumps({"faults": [{"do": "reorder"}] * 1_001})
    with pytest.raises(ConfigError, match="1001 faults exceed the limit of 1000"):
        parse_faults(text)


def test_a_file_of_faults_has_at_most_one_mebibyte(tmp_path):
    path = tmp_path / "faults.json"
    path.write_text('{"faults": []}'.ljust(1_048_576), encoding="utf-8")
    assert read_fault_file(path) == []
    path.write_text('{"faults": []}'.ljust(1_048_577), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"faults\.json exceed 1048576 bytes"):
        read_fault_file(path)


def test_errors_name_the_file(tmp_path):
    path = tmp_path / "faults.json"
    with pytest.raises(ConfigError, match=r"faults\.json: no such file"):
        read_fault_file(path)
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="are not UTF-8"):
        read_fault_file(path)
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"faults\.json: 'faults' is not a list"):
        read_fault_file(path)
    path.write_text('{"faults": [{"do": "reorder"}]}', encoding="utf-8")
    assert len(read_fault_file(path)) == 1
