"""Hints with a command, and questions, name the profile."""

from __future__ import annotations

import json
import shlex

import pytest

from rmqcli.cli.configuration.profile import Profile
from rmqcli.cli.export.command import resume_command
from rmqcli.cli.main import run
from rmqcli.cli.options import Common
from rmqcli.hint import with_options
from rmqcli.transport.tls import TlsOptions
from tests.cli.sample_command import TABLE

PROD = Profile(
    "prod", "/config.toml", ("a:1",), tls=True, address_map=(("b:1", "c:1"),)
)


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ([], "run: rmq sample ask --profile dev --yes"),
        (["--profile", "prod"], "run: rmq sample ask --profile prod --yes"),
        (["-n", "other:1"], "run: rmq sample ask -n other:1 --yes"),
        (["--profile", "none"], "run: rmq sample ask --profile none --yes"),
    ],
)
def test_the_command_that_confirms_is_for_the_same_profile(
    profiles, monkeypatch, capfd, typed, hint
):
    words = ["sample", "ask", *typed]
    monkeypatch.setattr("sys.argv", ["rmq", *words, "--no-input"])
    assert run([*words, "--no-input"], table=TABLE) == 7
    last = capfd.readouterr().err.splitlines()[-1]
    assert last == f"hint: {hint}" or json.loads(last)["error"]["hint"] == hint


def test_the_command_that_resumes_an_export_is_for_the_same_profile():
    common = Common(
        namesrv=("a:1",), profile=PROD, tls=TlsOptions(), address_map=(("b:1", "c:1"),)
    )
    words = "rmq export orders --to-parquet out --resume --profile prod"
    assert resume_command(common, "orders", "out") == words


def test_what_was_typed_beside_the_profile_is_repeated():
    common = Common(
        namesrv=("a:1",),
        profile=PROD,
        tls=TlsOptions(insecure=True),
        acl_file="x.acl",
        address_map=(("b:1", "c:1"), ("d:1", "e:1")),
        typed=frozenset({"tls_insecure", "acl_file", "address_map"}),
    )
    assert resume_command(common, "orders", "out") == (
        "rmq export orders --to-parquet out --resume --profile prod"
        " --address-map d:1=e:1 --acl-file x.acl --tls-insecure"
    )


def test_the_command_that_undoes_a_reset_is_for_the_same_profile(
    write, rmq_cluster, capfd
):
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.create_group("billing")
    rmq_cluster.send("orders", ["1", "2"])
    write(f'[profiles.here]\nnamesrv = "{rmq_cluster.namesrv}"\n')
    reset = ["reset-offset", "billing", "orders", "--profile", "here"]
    assert run([*reset, "--to", "latest", "--execute", "--yes"]) == 0
    err = capfd.readouterr().err
    (undo,) = [line for line in err.splitlines() if line.startswith("to undo: ")]
    assert undo.startswith(
        "to undo: rmq reset-offset billing orders --profile here --undo "
    )
    assert run([*undo.split()[3:], "--yes"]) == 0


def test_the_command_that_undoes_a_reset_can_be_pasted_for_names_like_options(
    rmq_cluster, capfd
):
    """It was refused: option -billing does not exist."""
    rmq_cluster.create_topic("-orders", queues=1)
    rmq_cluster.create_group("-billing")
    rmq_cluster.send("-orders", ["1", "2"])
    reset = ["reset-offset", "--to", "latest", "--execute", "--yes"]
    reset += ["-n", rmq_cluster.namesrv, "--", "-billing", "-orders"]
    assert run(reset) == 0
    err = capfd.readouterr().err
    (undo,) = [line for line in err.splitlines() if line.startswith("to undo: ")]
    words = shlex.split(undo.removeprefix("to undo: rmq "))
    assert run(with_options(words, ["--yes"])) == 0


def test_an_error_points_to_the_profile_and_not_to_options(write, capfd):
    write('[profiles.gone]\nnamesrv = "127.0.0.1:1"\n')
    assert run(["topics", "--profile", "gone"]) == 5
    assert "hint: check the servers of profile gone\n" in capfd.readouterr().err
