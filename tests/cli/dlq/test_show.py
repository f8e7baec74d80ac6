"""`rmq dlq show` and `rmq dlq export`: what is in the letters, and how many have it."""

from __future__ import annotations

import json

import pytest

from rmqcli import Admin
from rmqcli.cli.dlq.export import LetterExportOptions
from rmqcli.cli.export.command import ExportCommandOptions
from rmqcli.cli.main import run
from rmqcli.position import AtOffset, Earliest
from rmqcli.testing import Seed, faults
from rmqcli.wire.codes import RequestCode
from tests.admin.dlq.letters import make_letters

BODIES = ['{"error": {"code": 7}}', '{"error": {"code": 7}}', '{"error": "x"}', "no"]


@pytest.fixture(autouse=True)
def _state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(params=[6, 2], ids=["readable", "write-only"])
def cluster(rmq_cluster_factory, request):
    """Two brokers; letters are read by pulls, or one by one."""
    cluster = rmq_cluster_factory(brokers=2, queues=1)
    cluster.create_topic("orders")
    cluster.create_group("billing")
    cluster.create_topic("%DLQ%billing", queues=1, perm=request.param)
    return cluster


def rmq(cluster, capsys, *words):
    capsys.readouterr()
    code = run(["dlq", *words, "-n", cluster.namesrv, "-o", "json"])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else None, err


def test_a_letter_says_where_it_came_from_and_how_often_it_failed(cluster, capsys):
    (sent,) = make_letters(
        cluster, "billing", "orders", ["a"], tags="T", properties={"region": "eu"}
    )
    code, (row,), err = rmq(cluster, capsys, "show", "billing")
    assert code == 0, err
    assert (row["letter"], row["topic"]) == ("broker-a:0:0", "%DLQ%billing")
    assert (row["origin_topic"], row["origin_msg_id"]) == (
        "orders",
        sent.offset_msg_id,
    )
    assert (row["origin_queue"], row["origin_offset"]) == ("orders@broker-a:0", 0)
    # No log of redrives is on this machine; another may have one.
    assert (row["deliveries"], row["redriven"], row["redriven_times"]) == (1, None, 0)
    assert (row["msg_id"], row["tags"], row["body"]) == (sent.msg_id, "T", "a")
    assert row["properties"]["region"] == "eu"
    assert rmq(cluster, capsys, "show", "%DLQ%billing")[1] == [row]


@pytest.mark.parametrize("words", [["show"], ["show", "--by", "tag"], ["export"]])
def test_letters_that_expire_meanwhile_make_the_answer_partial(
    rmq_cluster, capsys, tmp_path, words
):
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.create_group("billing")
    rmq_cluster.create_topic("%DLQ%billing", queues=1)
    make_letters(rmq_cluster, "billing", "orders", "ab")
    store = rmq_cluster.broker().state.store
    end = store.log_bounds()[1]
    make_letters(rmq_cluster, "billing", "orders", "z")
    store.trim(None, end)
    first = faults.answer(0, ext_fields={"offset": "0"})
    rmq_cluster.faults.add(first, code=RequestCode.GET_MIN_OFFSET)
    if words == ["export"]:
        words = ["export", "--to-jsonl", str(tmp_path / "letters.jsonl")]
    name, *options = words
    code, _, err = rmq(
        rmq_cluster, capsys, name, "billing", *options, "--from", "earliest"
    )
    assert code == 6, err
    assert "1 read, 2 missing" in err
    assert "2 letters of the range are not stored any more" in err


def test_an_id_that_leads_to_another_message_is_not_believed(cluster, capsys):
    """Once the first message is removed, its place in the log may hold another one."""
    (other,) = make_letters(cluster, "billing", "orders", ["a"])
    properties = {"RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": other.offset_msg_id}
    cluster.send("%DLQ%billing", [Seed(body=b"b", properties=properties)])
    code, rows, err = rmq(cluster, capsys, "show", "billing")
    assert code == 0, err
    (row,) = [row for row in rows if row["body"] == "b"]
    assert row["origin_msg_id"] == other.offset_msg_id
    assert (row["origin_queue"], row["origin_offset"]) == (None, None)


@pytest.mark.parametrize(
    ("by", "counts"),
    [
        ("value.error.code", {"7": 2, None: 2}),
        ("value.error", {'{"code":7}': 2, "x": 1, None: 1}),
        ("tag", {"T": 4}),
        ("property:region", {"eu": 4}),
        ("property:other", {None: 4}),
    ],
)
def test_letters_are_counted_by_a_value(cluster, capsys, by, counts):
    make_letters(
        cluster, "billing", "orders", BODIES, tags="T", properties={"region": "eu"}
    )
    code, rows, err = rmq(cluster, capsys, "show", "billing", "--by", by)
    assert code == 0, err
    assert {row["value"]: row["count"] for row in rows} == counts
    assert all(row["oldest"] <= row["newest"] for row in rows)
    assert all(row["example"].startswith("broker-") for row in rows)


def test_values_that_are_equal_are_counted_as_one(cluster, capsys):
    bodies = ['{"v": {"b": "ü", "a": 1}}', '{"v":{"a":1,"b":"\\u00fc"}}']
    make_letters(cluster, "billing", "orders", bodies)
    code, (row,), err = rmq(cluster, capsys, "show", "billing", "--by", "value.v")
    assert (code, err) == (0, "1 value, 2 read\n")
    assert (row["value"], row["count"]) == ('{"a":1,"b":"ü"}', 2)


@pytest.mark.parametrize("by", ["topic", "property:", "value", "value.", "value..a"])
def test_other_values_are_a_usage_error(cluster, capsys, by):
    code, _, err = rmq(cluster, capsys, "show", "billing", "--by", by)
    error = json.loads(err)["error"]
    assert code == 2
    assert (error["message"].splitlines()[0], error["hint"]) == (
        f"--by: '{by}': not a value",
        "write tag, property:NAME or value.PATH, such as value.error.code",
    )


@pytest.mark.parametrize("command", ["show", "redrive", "export"])
def test_the_last_0_letters_are_refused_by_the_name_of_the_option(capsys, command):
    code = run(
        ["dlq", command, "billing", "--last", "0", "-n", "127.0.0.1:1", "-o", "json"]
    )
    assert code == 2
    error = json.loads(capsys.readouterr().err)["error"]
    assert error["message"] == "--last: '0': must be at least 1"


def test_values_beyond_the_limit_are_counted_together(cluster, capsys, monkeypatch):
    monkeypatch.setattr("rmqcli.cli.dlq.show.VALUES_MAX", 2)
    for tag in "aabcd":
        make_letters(cluster, "billing", "orders", ["x"], tags=tag)
    code, rows, err = rmq(cluster, capsys, "show", "billing", "--by", "tag")
    assert [(row["value"], row["count"]) for row in rows] == [
        ("(other values)", 2),
        ("a", 2),
        ("b", 1),
    ]
    assert (code, err) == (0, "3 values, 5 read\n")


def test_all_letters_are_not_said_to_be_only_the_last(cluster, capsys):
    """As many as are shown at most were called the last of more."""
    cluster.send("%DLQ%billing", ["x"] * 100, broker="broker-a")
    cluster.send("%DLQ%billing", ["x"] * 99, broker="broker-b")
    code, rows, err = rmq(cluster, capsys, "show", "billing")
    assert (code, len(rows), err) == (0, 199, "199 shown, 199 read\n")


def test_without_options_the_last_letters_are_shown_and_it_is_said(cluster, capsys):
    cluster.send("%DLQ%billing", ["x"] * 101, broker="broker-a")
    code, rows, err = rmq(cluster, capsys, "show", "billing")
    assert (code, len(rows), rows[0]["letter"]) == (0, 100, "broker-a:0:1")
    assert err == (
        "only the last of each broker; --from earliest: all\n100 shown, 100 read\n"
    )
    code, rows, err = rmq(cluster, capsys, "show", "billing", "--from", "earliest")
    assert (code, len(rows)) == (0, 101)
    assert err.endswith("101 shown, 101 read\n")
    assert "only the last" not in err


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        ([], "give one of --to-jsonl FILE and --to-parquet DIR", None),
        (
            ["--to-jsonl", "f", "--to-parquet", "d"],
            "give one of --to-jsonl FILE and --to-parquet DIR",
            None,
        ),
        *(
            (
                ["--to-parquet", "d", *more],
                "--to-parquet can be used with --from, --to, --queue and --tag only",
                "use --to-jsonl, or select rows of the files",
            )
            for more in (
                ["--sql", "a = 1"],
                ["--key", "k"],
                ["--grep", "x"],
                ["--property", "a=b"],
                ["--last", "1"],
                ["--decode", "json"],
            )
        ),
        (
            ["--to-jsonl", "/no/such/file"],
            "/no/such/file cannot be written: No such file or directory",
            None,
        ),
    ],
)
def test_an_export_that_cannot_be_made_is_refused(cluster, capsys, words, error, hint):
    code, out, err = rmq(cluster, capsys, "export", "billing", *words)
    told = json.loads(err.splitlines()[-1])["error"]
    assert (code, out) == (1 if "written" in error else 2, None)
    assert (told["message"], told["hint"]) == (error, hint)


def test_the_filters_of_tail_choose_letters(cluster, capsys):
    make_letters(cluster, "billing", "orders", ["a"], keys="k1")
    make_letters(cluster, "billing", "orders", ["b"], keys="k2")
    for flags, bodies in [
        (["--key", "k2"], ["b"]),
        (["--grep", "a"], ["a"]),
        (["--grep", "a", "--not"], ["b"]),
        (["--property", "KEYS=k*", "--from", "1"], ["b"]),
        (["--to", "1"], ["a"]),
        (["--last", "1"], ["b"]),
    ]:
        code, rows, err = rmq(cluster, capsys, "show", "billing", *flags)
        assert (code, [row["body"] for row in rows]) == (0, bodies), err


def test_a_silent_broker_leaves_a_partial_result(cluster, capsys):
    make_letters(cluster, "billing", "orders", "ab")
    cluster.faults.add(faults.disconnect(), broker="broker-b")
    code, rows, err = rmq(cluster, capsys, "show", "billing")
    assert (code, [row["body"] for row in rows]) == (6, ["a"])
    assert "%DLQ%billing@broker-b:0 was not read to its end" in err


def test_an_export_is_the_lines_of_tail(cluster, capsys, tmp_path):
    make_letters(cluster, "billing", "orders", "ab")
    file = tmp_path / "letters.jsonl"
    code, done, err = rmq(cluster, capsys, "export", "billing", "--to-jsonl", str(file))
    assert (code, done["rows"]) == (0, 2), err
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert sorted(row["body"] for row in rows) == ["a", "b"]
    assert {row["topic"] for row in rows} == {"%DLQ%billing"}
    assert done["bytes"] == file.stat().st_size


def test_an_export_replaces_no_file(cluster, capsys, tmp_path):
    make_letters(cluster, "billing", "orders", "a")
    file = tmp_path / "letters.jsonl"
    file.write_text("mine")
    code, _, err = rmq(cluster, capsys, "export", "billing", "--to-jsonl", str(file))
    assert code == 7
    assert json.loads(err)["error"]["message"] == f"{file} exists: nothing was written"
    assert file.read_text() == "mine"


def test_an_export_that_is_not_complete_leaves_no_file(cluster, capsys, tmp_path):
    make_letters(cluster, "billing", "orders", "ab")
    cluster.faults.add(faults.disconnect(), broker="broker-b")
    file = tmp_path / "letters.jsonl"
    do = ["export", "billing", "--to-jsonl", str(file)]
    code, _, err = rmq(cluster, capsys, *do)
    assert code == 6
    assert "was not written" in err
    assert list(tmp_path.glob("*letters*")) == list(tmp_path.glob(".rmq-*")) == []


def test_letters_have_values_and_are_chosen_by_them(cluster, capsys):
    make_letters(cluster, "billing", "orders", BODIES)
    flags = ["--decode", "json", "--where", "value.error.code = 7"]
    code, rows, err = rmq(cluster, capsys, "show", "billing", *flags)
    assert code == 0, err
    assert [each["value"] for each in rows] == [{"error": {"code": 7}}] * 2
    code, rows, _ = rmq(cluster, capsys, "show", "billing", "--decode", "json")
    assert [each["decode_error"] for each in rows if each["value"] is None] == [
        "not JSON: expected a value at line 1, column 1"
    ]
    code, rows, _ = rmq(cluster, capsys, "show", "billing")
    assert "value" not in rows[0]
    by = ["--by", "value.error.code", *flags]
    _, counts, _ = rmq(cluster, capsys, "show", "billing", *by)
    assert [(each["value"], each["count"]) for each in counts] == [("7", 2)]
    code, _, err = rmq(cluster, capsys, "show", "billing", "--where", "valu = 1")
    assert (code, "--where" in err) == (2, True)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("raw", "a\n"),
        ("hex", "%DLQ%billing@broker-a:0 0  1 byte\n0000"),
        ("pretty", "%DLQ%billing@broker-a:0 0"),
    ],
)
def test_letters_are_shown_as_tail_shows_messages(cluster, capsys, output, expected):
    make_letters(cluster, "billing", "orders", ["a"])
    capsys.readouterr()
    words = ["dlq", "show", "billing", "-n", cluster.namesrv, "-o", output]
    code = run(words)
    out, err = capsys.readouterr()
    assert (code, out[: len(expected)]) == (0, expected)
    assert "1 shown" in err
    assert run([*words, "--by", "tag"]) == 2


def test_an_export_takes_an_expression_and_says_what_it_could_not_decode(
    cluster, capsys, tmp_path
):
    make_letters(cluster, "billing", "orders", ['{"a":1}', "{", '{"a":2}'])
    file = tmp_path / "letters.jsonl"
    where = ["--decode", "json", "--where", "value.a = 2"]
    code, done, err = rmq(
        cluster, capsys, "export", "billing", "--to-jsonl", str(file), *where
    )
    assert (code, done["rows"]) == (0, 1), err
    (line,) = [json.loads(line) for line in file.read_text().splitlines()]
    assert (line["body"], line["value"]) == ('{"a":2}', {"a": 2})
    assert "1 written, 3 read, 1 without a value" in err


def seeded(cluster):
    """Two letters on each broker, with the property n of 0 and 1."""
    for broker in ("broker-a", "broker-b"):
        cluster.send(
            "%DLQ%billing",
            [
                Seed(body=f"{broker[-1]}{n}".encode(), properties={"n": str(n)})
                for n in range(2)
            ],
            broker=broker,
        )


def test_queues_choose_letters(cluster, capsys, tmp_path):
    seeded(cluster)
    one = ["billing", "--queue", "broker-b:0"]
    code, rows, err = rmq(cluster, capsys, "show", *one)
    assert (code, sorted(row["body"] for row in rows)) == (0, ["b0", "b1"]), err
    file = tmp_path / "letters.jsonl"
    code, done, err = rmq(cluster, capsys, "export", *one, "--to-jsonl", str(file))
    assert (code, done["rows"]) == (0, 2), err
    code, plan, err = rmq(cluster, capsys, "redrive", *one, "--to", "orders")
    assert (code, plan["read"], plan["queues"]) == (0, 2, ["broker-b:0"]), err
    assert "only letters with --queue broker-b:0" in err
    code, _, err = rmq(cluster, capsys, "show", "billing", "--queue", "broker-c:0")
    assert code == 3
    assert "queue broker-c:0 does not exist" in err


def test_sql_chooses_letters_where_they_can_be_pulled(cluster, capsys, tmp_path):
    seeded(cluster)
    some = ["billing", "--sql", "n > 0"]
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.update_topic("%DLQ%billing", perm=2)
        code, rows, err = rmq(cluster, capsys, "show", *some)
        assert (code, rows) == (1, None)
        assert "is write-only on broker-a, and a broker filters by SQL only" in err
        admin.update_topic("%DLQ%billing", perm=6)
    code, rows, err = rmq(cluster, capsys, "show", *some)
    assert (code, sorted(row["body"] for row in rows)) == (0, ["a1", "b1"]), err
    file = tmp_path / "letters.jsonl"
    code, done, err = rmq(cluster, capsys, "export", *some, "--to-jsonl", str(file))
    assert (code, done["rows"]) == (0, 2), err
    code, plan, err = rmq(cluster, capsys, "redrive", *some, "--to", "orders")
    assert (code, plan["targets"]) == (0, [{"topic": "orders", "count": 2}]), err
    assert (plan["queues"], plan["chosen_by"]) == (None, "--sql n > 0")
    assert "only letters with --sql n > 0" in err
    do = ["redrive", *some, "--to", "orders", "--execute", "--yes"]
    code, done, err = rmq(cluster, capsys, *do)
    assert (code, done["sent"]) == (0, 2), err
    for command in (["show"], ["redrive"]):
        code, rows, err = rmq(cluster, capsys, *command, "billing", "--sql", "n >>> 0")
        assert (code, rows) == (2, None)
        assert "the expression is not valid SQL92" in err
    code, _, err = rmq(cluster, capsys, "show", *some, "--tag", "A")
    assert code == 2
    assert "--tag and --sql cannot be used together" in err


def test_letters_of_a_broker_that_does_not_check_the_sql_are_not_read(cluster, capsys):
    seeded(cluster)
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.update_topic("%DLQ%billing", perm=6)
    cluster.faults.add(
        faults.disconnect(), code=RequestCode.CHECK_CLIENT_CONFIG, broker="broker-b"
    )
    code, rows, err = rmq(cluster, capsys, "show", "billing", "--sql", "n >= 0")
    assert (code, sorted(row["body"] for row in rows)) == (6, ["a0", "a1"])
    assert "%DLQ%billing@broker-b:0 was not read to its end" in err
    do = ["redrive", "billing", "--sql", "n >= 0", "--to", "orders"]
    code, plan, err = rmq(cluster, capsys, *do)
    assert (code, [each["queue"] for each in plan["unread"]]) == (
        6,
        ["%DLQ%billing@broker-b:0"],
    )


def test_an_export_to_parquet_is_one_of_the_letters_topic(tmp_path):
    letters = LetterExportOptions(
        group="billing",
        from_=Earliest(),
        to=AtOffset(7),
        queue=["1"],
        tag="Paid",
        to_parquet=str(tmp_path),
    )
    assert letters.of_topic(str(tmp_path)) == ExportCommandOptions(
        topic="%DLQ%billing",
        to_parquet=str(tmp_path),
        from_=Earliest(),
        to=AtOffset(7),
        queue=["1"],
        tag="Paid",
    )
