"""`--decode`: records also have the values of their bodies."""

from __future__ import annotations

import csv
import gzip
import io
import json

import pytest

from rmqcli.cli.main import run
from tests.kit.records import body_of, checked_records
from tests.wire.message.bodies import BODIES

WHOLE = ["--from", "earliest", "--to", "latest"]


@pytest.fixture
def rmq(rmq_cluster, capfdbinary):
    def call(*arguments, code=0):
        returned = run([*arguments, "-n", rmq_cluster.namesrv])
        out, err = capfdbinary.readouterr()
        assert returned == code, err.decode()
        return out.decode(), err.decode()

    return call


@pytest.fixture
def topic(rmq_cluster):
    topic = rmq_cluster.create_topic("T", queues=1)
    rmq_cluster.send(topic, BODIES)
    return topic


def test_a_value_is_added_and_the_body_stays(rmq, topic):
    plain = checked_records(rmq("tail", topic, *WHOLE, "-o", "jsonl")[0].splitlines())
    out, _ = rmq("tail", topic, *WHOLE, "-o", "jsonl", "--decode", "json")
    decoded = checked_records(out.splitlines())
    values = {
        body_of(each): (each.pop("value"), each.pop("decode_error", None))
        for each in decoded
    }
    assert decoded == plain
    assert values[b'{"id": 1, "amount": 1.5}'] == ({"id": 1, "amount": 1.5}, None)
    assert values[b"null"] == (None, None)
    assert values[b"[NaN]"] == (None, "not JSON: NaN is not a JSON value")
    assert values[b"\x00\xff"] == (None, "not JSON: not UTF-8 at byte 1")


@pytest.mark.parametrize("decode", [[], ["--decode", "json"]], ids=["plain", "json"])
def test_a_topic_that_is_sent_again_has_the_same_bodies(
    rmq, rmq_cluster, topic, tmp_path, decode
):
    lines, _ = rmq("tail", topic, *WHOLE, "-o", "jsonl", *decode)
    file = tmp_path / "records.jsonl"
    file.write_text(lines)
    copy = rmq_cluster.create_topic("Copy", queues=1)
    rmq("send", copy, "--jsonl", str(file), "-o", "jsonl")
    copies = checked_records(rmq("tail", copy, *WHOLE, "-o", "jsonl")[0].splitlines())
    assert [body_of(each) for each in copies] == BODIES


def test_csv_has_the_columns_of_the_value_only_with_a_decoder(rmq, rmq_cluster):
    topic = rmq_cluster.create_topic("One", queues=1)
    rmq_cluster.send(topic, [b'{"a": 1}'])
    out, _ = rmq("tail", topic, *WHOLE, "-o", "csv", "--decode", "json")
    [row] = csv.DictReader(io.StringIO(out))
    assert (row["value"], row["decode_error"]) == ('{"a":1}', "")
    out, _ = rmq("tail", topic, *WHOLE, "-o", "csv")
    [row] = csv.DictReader(io.StringIO(out))
    assert "value" not in row
    assert row["body"] == '{"a": 1}'


def test_a_template_and_a_command_get_the_value_too(rmq, rmq_cluster):
    topic = rmq_cluster.create_topic("One", queues=1)
    rmq_cluster.send(topic, [b'{"a": 1}'])
    out, _ = rmq("tail", topic, *WHOLE, "--format", "%j", "--decode", "json")
    assert json.loads(out)["value"] == {"a": 1}
    flags = ["-g", "g", "--from", "first", "--count", "1", "--decode", "json"]
    out, _ = rmq("consume", topic, *flags, "--exec", "jq .value.a")
    assert out == "1\n"
    out, _ = rmq("consume", topic, *flags[:1], "h", *flags[2:])
    assert checked_records(out.splitlines())[0]["value"] == {"a": 1}


def test_a_value_of_another_format_names_it_and_the_body_is_sent_again(
    rmq, rmq_cluster, tmp_path
):
    bodies = [gzip.compress(b'{"a": 1}'), b'{"a": 1}', b"7"]
    topic = rmq_cluster.create_topic("Zipped", queues=1)
    rmq_cluster.send(topic, bodies)
    flags = ["--decode", "gzip+json", "-o", "jsonl"]
    lines, _ = rmq("tail", topic, *WHOLE, *flags)
    records = checked_records(lines.splitlines())
    assert [body_of(each) for each in records] == bodies
    assert [
        (each["value"], each["value_format"], each.get("decode_error"))
        for each in records
    ] == [
        ({"a": 1}, "gzip+json", None),
        (None, "gzip+json", "not gzip: the bytes do not begin as gzip's"),
        (None, "gzip+json", "not gzip: the body ends too early"),
    ]
    out, _ = rmq("message", "show", f"{topic}@broker-a:0:0", *flags)
    assert json.loads(out)["value"] == {"a": 1}
    out, _ = rmq("consume", topic, "-g", "g", "--from", "first", "--count", "1", *flags)
    assert checked_records(out.splitlines())[0]["value"] == {"a": 1}
    file = tmp_path / "records.jsonl"
    file.write_text(lines)
    copy = rmq_cluster.create_topic("Copy", queues=1)
    rmq("send", copy, "--jsonl", str(file), "-o", "jsonl")
    copies = checked_records(rmq("tail", copy, *WHOLE, "-o", "jsonl")[0].splitlines())
    assert [body_of(each) for each in copies] == bodies


@pytest.mark.parametrize("output", ["raw", "hex", "table"])
@pytest.mark.parametrize("command", ["tail", "consume"])
def test_a_format_without_a_place_for_values_is_refused(rmq, command, output):
    group = ["-g", "g"] if command == "consume" else []
    _, err = rmq(command, "T", *group, "--decode", "json", "-o", output, code=2)
    said = (
        f"--decode and -o {output} cannot be used together",
        "use -o jsonl, json, csv or pretty, which show the values",
    )
    assert err == "error: {}\nhint: {}\n".format(*said)


def test_a_command_that_reads_raw_bodies_gets_no_values(rmq):
    flags = ["-g", "g", "--exec", "cat", "--exec-input", "raw", "--decode", "json"]
    _, err = rmq("consume", "T", *flags, code=2)
    assert err.startswith(
        "error: --decode and --exec-input raw cannot be used together\n"
    )
