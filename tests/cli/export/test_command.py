"""`rmq export`: what it refuses before it reads a message, and its output."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace

import pytest

from rmqcli.cli.export import table
from rmqcli.cli.export.command import (
    FIELDS,
    ExportCommandOptions,
    _finish,
    resume_command,
)
from rmqcli.cli.export.folders import parse_folder
from rmqcli.cli.export.report import summarise
from rmqcli.cli.main import run
from rmqcli.cli.options import Common
from rmqcli.spark.export.manifest import FileRow, PartResult, RunRecord
from rmqcli.spark.export.plan import ExportRequest
from rmqcli.spark.extent import QueueRange
from rmqcli.spark.tables.export import TableRun
from rmqcli.spark.tables.table import Commit
from rmqcli.transport.tls import TlsOptions


@pytest.fixture
def rmq(capfd):
    """Run `rmq` in this process; returns exit code, stdout, stderr."""

    def run_it(*arguments):
        code = run([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return code, out, err

    return run_it


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["--since-last", "--resume"],
            "--since-last and --resume cannot be used together",
        ),
        (
            ["--since-last", "--from", "0"],
            "--since-last and --from cannot be used together",
        ),
        (["--from", "yesterday"], "--from"),
        (["--rows-per-file", "0"], "--rows-per-file"),
        (["--partition-by", "week"], "'week' is not one of none, queue, date, hour"),
        (["--compression", "zip"], "'zip' is not one of"),
        (["--queue", "a:b"], "--queue"),
        (["--decode", "xml"], "--decode: 'xml' is not one of json, avro, protobuf"),
        (["--decode", "json"], "--decode=json needs a schema"),
        (["--schema", "x"], "--schema needs --decode json"),
        (["--infer", "5"], "--infer needs --decode json"),
        (["--decode", "json", "--schema", "/no/file"], "--schema: cannot read"),
        (["--decode", "protobuf:/no/file:M"], "--decode: cannot read /no/file"),
        (["--resume"], "nothing to resume"),
        (["--since-last"], "no finished export"),
    ],
)
def test_wrong_use_is_2_and_leaves_nothing(rmq, tmp_path, arguments, words):
    root = tmp_path / "out"
    root.mkdir()
    code, out, err = rmq("export", "orders", "--to-parquet", root, *arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert list(root.iterdir()) == []


_TARGETS = (
    "\nhint: give --to-parquet DIR, or --to-table TABLE with --format delta or iceberg"
)
_TABLE = "--to-table needs --format delta or --format iceberg"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ([], "--to-parquet is missing" + _TARGETS),
        (["--format", "delta"], "--to-table is missing" + _TARGETS),
        (
            ["--format", "orc"],
            "--format: 'orc' is not one of parquet, delta, iceberg",
        ),
        (["--to-table", "t"], _TABLE),
        (["--to-table", "t", "--format", "parquet"], _TABLE),
        (
            ["--to-table", "t", "--to-parquet", "p"],
            "--to-parquet and --to-table cannot be used together",
        ),
        (
            ["--to-parquet", "p", "--format", "iceberg"],
            (
                "--to-parquet writes Parquet files, not iceberg tables\n"
                "hint: give --to-table TABLE"
            ),
        ),
        (
            ["--to-parquet", "p", "--store", ".", "--master", "spark://h:1"],
            (
                "--store and --master spark://h:1 cannot be used together: only this"
                " machine can read the folder\n"
                "hint: leave --master out, or give local[*]"
            ),
        ),
    ],
)
def test_target_and_format_have_to_fit(rmq, arguments, error):
    assert rmq("export", "orders", *arguments) == (2, "", f"error: {error}\n")


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (
            ["--master", "local"],
            "the server of --remote has a master already: leave --master out",
        ),
        (
            ["--conf", "spark.a=b"],
            "start the server with the setting: leave --conf out",
        ),
        (
            ["--archives", "env.tar.gz"],
            "start the server with the archive: leave --archives out",
        ),
        (
            ["--store", "."],
            "only this machine can read the folder: leave --remote out",
        ),
    ],
)
def test_what_a_spark_connect_server_has_itself_is_2(rmq, arguments, hint):
    flags = ["--to-parquet", "p", "--remote", "sc://h"]
    assert rmq("export", "T", *flags, *arguments) == (
        *(2, ""),
        f"error: {arguments[0]} and --remote cannot be used together\nhint: {hint}\n",
    )


_PARTITIONS = "create the table with the columns and partitions that you need"


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (
            ["--rows-per-file", "5"],
            "set the sizes of files in the table's properties",
        ),
        (
            ["--bytes-per-file", "5MiB"],
            "set the sizes of files in the table's properties",
        ),
        (["--compression", "gzip"], "set it in the table's properties"),
        (["--partition-by", "date"], _PARTITIONS),
        (
            ["--resume"],
            "run the same command again: a run that was not committed left no rows",
        ),
        (["--remote", "sc://h"], "leave --remote out, or give a --master"),
        (
            ["--archives", "env.tar.gz"],
            "install the packages that the executors need in their Python",
        ),
    ],
)
def test_what_has_no_meaning_for_a_table_is_2(rmq, arguments, hint):
    table = ["--format", "delta", "--to-table", "./t"]
    assert rmq("export", "T", *table, *arguments) == (
        *(2, ""),
        (
            f"error: {arguments[0]} and --to-table cannot be used together\n"
            f"hint: {hint}\n"
        ),
    )


@pytest.mark.parametrize(
    ("arguments", "words", "hint"),
    [
        (
            ["--format", "iceberg", "--to-table", "lake.db.t"],
            "no catalog lake of Iceberg is configured for the table lake.db.t",
            (
                "give --conf"
                " spark.sql.catalog.lake=org.apache.iceberg.spark.SparkCatalog"
                " --conf spark.sql.catalog.lake.type=hadoop"
                " --conf spark.sql.catalog.lake.warehouse=FOLDER"
            ),
        ),
        (
            ["--format", "delta", "--to-table", "orders"],
            "orders is the name of a table, but Spark's built-in catalog forgets names",
            "for a folder write ./orders",
        ),
    ],
)
def test_a_table_without_a_catalog_is_2_before_spark_starts(
    rmq, closed_port, arguments, words, hint
):
    code, out, err = rmq("export", "T", "-n", closed_port, *arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert hint in err


def test_fields_of_help_are_the_keys_of_a_table_s_summary():
    queue = QueueRange(
        broker_name="b", queue_id=0, start=3, end=9, min_offset=0, max_offset=9
    )
    commit = Commit(version="4", rows=5, files=1, file_bytes=700)
    run = TableRun(run_id="20251009T085320Z-00c0ffee", queues=(queue,), commit=commit)
    summary = table.summarise(run, name="./t", kind="delta")
    assert summary == {
        "table": "./t",
        "format": "delta",
        "version": "4",
        "run_id": "20251009T085320Z-00c0ffee",
        "rows": 5,
        "files": 1,
        "bytes": 700,
        "offsets": 6,
        "queues": [{"broker_name": "b", "queue_id": 0, "from": 3, "to": 9}],
    }
    keys = {*summary, *summary["queues"][0]} - {"queues"}
    assert keys <= {column.name for column in FIELDS}
    nothing = table.summarise(replace(run, commit=None), name="t", kind="delta")
    assert (nothing["version"], nothing["run_id"]) == (None, None)
    assert [nothing[each] for each in ("rows", "files", "bytes", "offsets")] == [0] * 4


def test_topic_that_is_no_name_is_2(rmq, tmp_path):
    code, _, err = rmq("export", "../x", "--to-parquet", tmp_path / "out")
    assert code == 2
    assert "'../x' is not a valid topic name" in err


def test_directory_is_needed(rmq):
    code, _, err = rmq("export", "orders")
    assert code == 2
    assert "--to-parquet" in err


def test_unreachable_cluster_is_5_and_leaves_nothing(rmq, tmp_path, closed_port):
    root = tmp_path / "out"
    code, out, err = rmq("export", "orders", "--to-parquet", root, "-n", closed_port)
    assert (code, out) == (5, "")
    assert closed_port in err
    assert not root.exists()


def test_foreign_parquet_is_7_before_anything_is_asked(rmq, tmp_path, closed_port):
    (tmp_path / "theirs.parquet").write_bytes(b"PAR1")
    code, _, err = rmq("export", "orders", "--to-parquet", tmp_path, "-n", closed_port)
    assert code == 7
    assert "theirs.parquet, which rmq did not write" in err
    assert [path.name for path in tmp_path.iterdir()] == ["theirs.parquet"]


def test_error_is_an_object_with_json(rmq, tmp_path):
    code, _, err = rmq(
        "export", "orders", "--to-parquet", tmp_path, "--resume", "-o", "json"
    )
    error = json.loads(err)["error"]
    assert (error["kind"], error["exit_code"]) == ("UsageError", code)


def test_resume_command_can_be_pasted_and_holds_no_secret():
    common = Common(
        namesrv=("10.0.0.1:9876", "10.0.0.2:9876"),
        acl_file="/etc/rmq acl",
        tls=TlsOptions(ca_file="ca.pem"),
    )
    repeated = ["--master", "spark://h:7077"]
    text = resume_command(common, "%RETRY%g", "my dir", repeated=repeated)
    assert shlex.split(text) == [
        "rmq", "export", "%RETRY%g", "--to-parquet", "my dir", "--resume",
        "-n", "10.0.0.1:9876;10.0.0.2:9876", "--acl-file", "/etc/rmq acl",
        "--tls", "--tls-ca", "ca.pem", "--master", "spark://h:7077",
    ]  # fmt: skip


def test_resume_command_repeats_what_the_plan_does_not_hold():
    options = ExportCommandOptions(
        topic="t",
        to_parquet="out",
        master="spark://h:7077",
        allow_gaps=True,
        allow_undecodable=True,
    )
    assert options.flags_to_repeat() == [
        "--master", "spark://h:7077", "--allow-gaps", "--allow-undecodable",
    ]  # fmt: skip


def test_the_options_of_a_table_reach_the_library(tmp_path):
    schema = tmp_path / "a.avsc"
    field = {"name": "id", "type": "long"}
    schema.write_text(json.dumps({"type": "record", "name": "a", "fields": [field]}))
    plain = ExportCommandOptions(topic="t", to_table="lake.t", format="delta")
    found = table.table_options(plain, is_secret=False, note=print)
    assert (found.topic, found.target, found.format.name) == ("t", "lake.t", "delta")
    assert (found.is_secret, found.note) == (False, print)
    assert (found.master, found.conf, found.executor_timeout_ms) == (None, (), 120_000)
    assert found.packages[-3:] == ("lz4", "numpy", "pyarrow")
    options = replace(
        plain,
        decode=f"avro:{schema}",
        master="spark://h:7077",
        conf=[("spark.executor.memory", "2g")],
        executor_timeout=300_000,
    )
    found = table.table_options(options, is_secret=True, note=print)
    assert (found.is_secret, found.master) == (True, "spark://h:7077")
    assert found.conf == (("spark.executor.memory", "2g"),)
    assert found.executor_timeout_ms == 300_000
    assert found.packages[-1] == "fastavro"


def test_resume_command_repeats_the_settings_of_spark_without_secrets():
    options = ExportCommandOptions(
        topic="t",
        to_parquet="out",
        conf=[
            ("spark.executor.memory", "2g"),
            ("spark.authenticate.secret", "hunter2"),
        ],
        archives=["env.tar.gz#env"],
        executor_timeout=300_000,
    )
    assert options.flags_to_repeat() == [
        "--conf", "spark.executor.memory=2g",
        "--conf", "spark.authenticate.secret=VALUE",
        "--archives", "env.tar.gz#env",
        "--executor-timeout", "300000ms",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("setting", "marked"),
    [
        ("x", "^"),
        ("=1", "^^"),
        ("spark.x", "^^^^^^^"),
        ("park.x=1", "^^^^^^"),
        ("spark.x =1", "^^^^^^^^"),
        ("spark.master=local", "^^^^^^^^^^^^"),
    ],
)
def test_what_is_no_setting_of_spark_is_2(rmq, tmp_path, closed_port, setting, marked):
    code, _, err = rmq(
        "export", "T", "--to-parquet", tmp_path / "out", "-n", closed_port,
        "--conf", setting,
    )  # fmt: skip
    assert code == 2
    what, hint = (
        "not a setting of Spark",
        "write spark.NAME=VALUE, e.g. spark.executor.memory=2g",
    )
    if setting == "spark.master=local":
        what, hint = "the master has its own option", "give --master"
    lines = err.splitlines()
    assert lines[0] == f"error: --conf: '{setting}': {what}"
    assert lines[1:] == [f"{' ' * 16}{marked}", f"hint: {hint}"]


def test_resume_command_names_the_name_server_even_if_the_environment_changes():
    assert resume_command(Common(), "orders", "out") == (
        "rmq export orders --to-parquet out --resume -n 127.0.0.1:9876"
    )


def a_run(**part):
    """Return a run over one offset, whose message became a row; `part` overrides."""
    row = FileRow(
        path="x", start=0, end=1, rows=1, first_offset=0, last_offset=0,
        file_bytes=9, first_store_timestamp_ms=1, last_store_timestamp_ms=1,
        body_crc32=0,
    )  # fmt: skip
    counts = {"rows": 1, "undecodable": 0, "missing": (), "files": (row,), **part}
    queue = QueueRange(
        broker_name="b", queue_id=0, start=0, end=1, min_offset=0, max_offset=1
    )
    return RunRecord(
        run_id="20251009T085320Z-00c0ffee",
        finished_at_ms=0,
        request=ExportRequest(topic="t", from_position="0", to_position="9"),
        queues=(queue,),
        parts=(
            PartResult(
                index=0, broker_name="b", queue_id=0, start=0, end=1, filtered=0,
                **counts,
            ),
        ),
    )  # fmt: skip


def test_fields_of_help_are_the_keys_of_the_summary():
    summary = summarise(a_run(), root="/d")
    of_tables = {column.name for column in table.FIELDS}
    keys = {*summary, *summary["queues"][0]} - {"queues"}
    assert keys == {column.name for column in FIELDS} - of_tables - {"corrupt"}
    record = a_run(corrupt=1)
    request = replace(record.request, decode="json", decode_infer=1)
    summary = summarise(replace(record, request=request), root="/d")
    keys = {*summary, *summary["queues"][0]} - {"queues"}
    assert keys == {column.name for column in FIELDS} - of_tables


@pytest.mark.parametrize(
    ("part", "allowed", "code"),
    [
        ({}, {}, 0),
        ({"rows": 0, "undecodable": 1, "files": ()}, {}, 6),
        ({"rows": 0, "undecodable": 1, "files": ()}, {"gaps_allowed": True}, 6),
        ({"rows": 0, "undecodable": 1, "files": ()}, {"undecodable_allowed": True}, 0),
        ({"rows": 0, "missing": ((0, 1),), "files": ()}, {}, 6),
        ({"rows": 0, "missing": ((0, 1),), "files": ()}, {"gaps_allowed": True}, 0),
        (
            {"rows": 0, "missing": ((0, 1),), "files": ()},
            {"undecodable_allowed": True},
            6,
        ),
    ],
)
def test_what_is_not_in_the_files_is_6_until_it_is_allowed(capfd, part, allowed, code):
    record = replace(a_run(**part), **allowed)
    assert _finish(Common(output="json"), record, "out") == code
    out, err = capfd.readouterr()
    assert json.loads(out)["undecodable"] == record.undecodable
    assert ("could not be decoded" in err) == (record.undecodable > 0)
    assert ("--allow-undecodable" in err) == (
        record.undecodable > 0 and not record.undecodable_allowed
    )


@pytest.mark.parametrize("corrupt", [0, 1])
def test_bodies_that_do_not_fit_are_said_and_no_failure(capfd, corrupt):
    record = a_run(corrupt=corrupt)
    request = replace(record.request, decode="json", decode_schema="`id` bigint")
    record = replace(record, request=request)
    assert _finish(Common(output="json"), record, "out") == 0
    out, err = capfd.readouterr()
    assert json.loads(out)["corrupt"] == corrupt
    words = "1 of 1 bodies do not fit the schema; they are in the column _corrupt_body"
    assert (words in err) == (corrupt == 1)


def test_a_table_has_the_column_of_corrupt_bodies_only_with_decode(capfd):
    record = a_run()
    assert _finish(Common(output="table"), record, "out") == 0
    assert "CORRUPT" not in capfd.readouterr().out
    request = replace(record.request, decode="json", decode_schema="`id` bigint")
    assert _finish(Common(output="table"), replace(record, request=request), "out") == 0
    assert "CORRUPT" in capfd.readouterr().out


_PLACES = "folders on this machine and s3, gs and hdfs URLs\n"


@pytest.mark.parametrize(
    ("folder", "words"),
    [
        ("abfs://c/x", "rmq cannot write to abfs URLs, only to " + _PLACES),
        ("hdfs:/x", "two slashes are missing"),
        ("s3://", "the bucket is missing"),
        ("s3://b/x?endpoint=h", "s3:// has no option endpoint"),
        ("s3://AKIA:hidden@b/x", "a URL must not contain keys or passwords"),
        ("hdfs://127.0.0.1:1/x", "hdfs://127.0.0.1:1/x needs libhdfs and a Java"),
        ("https://h/x", "rmq cannot write to https URLs, only to " + _PLACES),
        ("file://host/x", "the file URL names another machine"),
        ("file://", "the URL has no path"),
        ("file:///", "the URL has no path"),
        ("file:///a%00b", "the URL has no path"),
    ],
)
def test_a_url_that_is_no_folder_of_this_machine_is_refused(
    rmq, tmp_path, monkeypatch, closed_port, folder, words
):
    monkeypatch.chdir(tmp_path)
    code, out, err = rmq("export", "T", "--to-parquet", folder, "-n", closed_port)
    assert (code, out) == (2, "")
    assert words in err
    assert "hidden" not in err
    if "rmq cannot write to" in words:
        assert err.endswith(
            "\nhint: export to a folder and copy it; for a folder with this name write"
            f" ./{folder}\n"
        )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("folder", "path"),
    [
        ("file:///tmp/a%20b%25", "/tmp/a b%"),
        ("file://localhost/tmp/x", "/tmp/x"),
        ("FILE:/tmp/x", "/tmp/x"),
        ("file:///tmp/%C3%BC", "/tmp/ü"),
        ("./s3a:/x", "./s3a:/x"),
        ("a%20b", "a%20b"),
        ("c:x", "c:x"),
    ],
)
def test_a_folder_is_taken_out_of_its_url(folder, path):
    assert parse_folder(folder) == path


@pytest.mark.parametrize(
    ("master", "words", "hint"),
    [
        ("foo://", "'foo://' is not a Spark master", "give spark://HOST:PORT"),
        ("sc://h:1", "sc://h:1 is a Spark Connect server", "give it as --remote"),
        ("yarn", "neither HADOOP_CONF_DIR nor", "set HADOOP_CONF_DIR"),
    ],
)
def test_what_is_no_master_is_2_before_anything_is_asked(
    rmq, tmp_path, closed_port, monkeypatch, master, words, hint
):
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    root = tmp_path / "out"
    code, out, err = rmq(
        "export", "T", "--to-parquet", root, "-n", closed_port, "--master", master
    )
    assert (code, out) == (2, "")
    error, advice = err.splitlines()
    assert words in error
    assert hint in advice
    assert not root.exists()


def test_an_absent_master_is_5_and_leaves_nothing(
    rmq, rmq_cluster, tmp_path, closed_port
):
    rmq_cluster.send(rmq_cluster.create_topic("T"), ["x"])
    root = tmp_path / "out"
    master = f"spark://{closed_port}"
    code, out, err = rmq(
        "export", "T", "--to-parquet", root, "-n", rmq_cluster.namesrv,
        "--master", master,
    )  # fmt: skip
    assert (code, out) == (5, "")
    error, advice = err.splitlines()[-2:]
    assert f"the Spark master {master} cannot be reached: " in error
    assert "connection refused" in error
    assert advice == "hint: start the master, or check --master"
    assert not root.exists()


def test_hints_name_the_flags_of_the_command(rmq, tmp_path):
    """The library's hints name arguments; those of the command name its flags."""
    code, _, err = rmq("export", "orders", "--to-parquet", tmp_path, "--since-last")
    assert code == 2
    assert "hint: export once without --since-last" in err
