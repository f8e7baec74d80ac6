"""`-o schema` prints the JSON Schema of the records of a command."""

from __future__ import annotations

import json

import pytest

from rmqcli.cli.main import run
from tests.kit.records import SCHEMA


@pytest.mark.parametrize("command", ["tail", "consume"])
def test_o_schema_prints_the_schema_of_a_record_without_a_topic(command, capfd):
    assert run([command, "-o", "schema"]) == 0
    out, err = capfd.readouterr()
    assert json.loads(out) == SCHEMA
    assert err == ""


def test_a_command_without_a_schema_refuses_it(capfd):
    assert run(["lag", "-o", "schema"]) == 2
    assert "'schema' is not one of table, json, jsonl, csv" in capfd.readouterr().err
