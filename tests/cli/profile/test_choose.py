"""A command uses the cluster that was named, as a whole, or refuses."""

from __future__ import annotations

import pytest

from rmqcli.cli.main import run

PROD_TLS = "TlsOptions(ca_file='{}/ca.pem', insecure=False, "


def test_without_a_file_nothing_changes(probe, monkeypatch):
    assert probe()[1]["servers"] == "namesrv='127.0.0.1:9876'"
    monkeypatch.setenv("NAMESRV_ADDR", "env:1")
    assert probe() == (
        0,
        {
            "servers": "namesrv='env:1'",
            "keys": "None",
            "tls": "None",
            "plaintext": "False",
            "address_map": "()",
            "output": "table",
            "start": "None",
        },
        "",
    )


def test_the_profile_in_use_is_used(profiles, probe):
    code, shown, err = probe()
    assert (code, err) == (0, "")
    assert shown["servers"] == "namesrv='dev:1'"
    assert shown["output"] == "json"


@pytest.mark.parametrize("by", ["option", "variable"])
def test_a_named_profile_is_used_as_a_whole(profiles, probe, monkeypatch, by):
    if by == "variable":
        monkeypatch.setenv("RMQ_PROFILE", "prod")
    code, shown, err = probe(*(["--profile", "prod"] if by == "option" else []))
    assert (code, err) == (0, "")
    assert shown.pop("tls").startswith(PROD_TLS.format(profiles.parent))
    assert shown == {
        "servers": "namesrv='prod-a:1;prod-b:1'",
        "keys": "('prod-user', 'prod-secret')",
        "plaintext": "False",
        "address_map": "(('172.18.0.3:10911', '127.0.0.1:10911'),)",
        "output": "table",
        "start": "None",
    }


@pytest.mark.parametrize("before", [True, False])
def test_the_option_stands_before_or_after_the_command(profiles, probe, before):
    words = ["--profile", "prod"]
    words = [*words, "probe"] if before else ["probe", *words]
    assert probe(*words[1:], command=words[0])[1]["servers"] == (
        "namesrv='prod-a:1;prod-b:1'"
    )


@pytest.mark.parametrize(
    ("variable", "value", "servers"),
    [
        ("NAMESRV_ADDR", "env:1", "namesrv='env:1'"),
        ("ROCKETMQ_ENDPOINTS", "env:8081", "endpoints='env:8081'"),
    ],
)
def test_the_environment_beats_the_profile_in_use_with_a_warning(
    profiles, probe, monkeypatch, variable, value, servers
):
    """Nothing of the profile reaches the other servers."""
    profiles.write_text(profiles.read_text().replace('"dev"', '"prod"', 1))
    monkeypatch.setenv(variable, value)
    code, shown, err = probe()
    assert code == 0
    assert shown["servers"] == servers
    assert (shown["keys"], shown["tls"]) == ("None", "None")
    assert (shown["address_map"], shown["output"]) == ("()", "table")
    assert err == (
        f"warning: {variable} {value} is used, not profile prod"
        " (namesrv prod-a:1;prod-b:1), which rmq profile use chose\n"
    )


def test_the_same_servers_in_the_environment_leave_the_profile_in_use(
    profiles, probe, monkeypatch
):
    monkeypatch.setenv("NAMESRV_ADDR", "dev:1")
    code, shown, err = probe()
    assert (code, shown["output"], err) == (0, "json", "")


def test_a_typed_profile_beats_the_environment(profiles, probe, monkeypatch):
    monkeypatch.setenv("NAMESRV_ADDR", "env:1")
    monkeypatch.setenv("ROCKETMQ_ENDPOINTS", "env:8081")
    monkeypatch.setenv("RMQ_PROFILE", "dev")
    _, shown, err = probe("--profile", "prod")
    assert (shown["servers"], err) == ("namesrv='prod-a:1;prod-b:1'", "")
    _, shown, err = probe("--profile", "cloud")
    assert (shown["servers"], err) == ("endpoints='cloud:8081'", "")
    assert shown["plaintext"] == "True"


@pytest.mark.parametrize(
    ("variable", "value"),
    [("NAMESRV_ADDR", "env:1"), ("ROCKETMQ_ENDPOINTS", "e:1"), ("NAMESRV_ADDR", "x y")],
)
def test_two_variables_that_disagree_are_refused(
    profiles, probe, monkeypatch, variable, value
):
    monkeypatch.setenv("RMQ_PROFILE", "prod")
    monkeypatch.setenv(variable, value)
    code, shown, err = probe()
    assert (code, shown) == (2, {})
    assert variable in err


def test_the_message_names_both_variables(profiles, probe, monkeypatch):
    monkeypatch.setenv("RMQ_PROFILE", "dev")
    monkeypatch.setenv("NAMESRV_ADDR", "env:1")
    assert probe()[2] == (
        "error: RMQ_PROFILE=dev has other servers (namesrv dev:1) than NAMESRV_ADDR"
        " env:1\nhint: unset one of them, or give --profile dev\n"
    )


@pytest.mark.parametrize(
    "typed", [["-n", "other:1"], ["-n", "prod-a:1"], ["--endpoints", "prod-a:1"]]
)
def test_a_typed_profile_and_other_typed_servers_are_refused(profiles, probe, typed):
    code, shown, err = probe("--profile", "prod", *typed)
    assert (code, shown) == (2, {})
    names = {"-n": "--namesrv", "--endpoints": "--endpoints"}
    assert err == (
        "error: --profile prod has other servers (namesrv prod-a:1;prod-b:1) than"
        f" {names[typed[0]]} {typed[1]}\nhint: give only one of them\n"
    )


def test_a_typed_profile_and_its_own_servers_agree(profiles, probe):
    _, shown, err = probe("--profile", "prod", "-n", "prod-b:1,prod-a:1")
    assert shown["keys"] == "('prod-user', 'prod-secret')"
    assert err == ""


@pytest.mark.parametrize("by", ["use", "variable"])
@pytest.mark.parametrize("typed", [["-n", "other:1"], ["--endpoints", "other:1"]])
def test_typed_servers_take_nothing_from_a_profile(
    profiles, probe, monkeypatch, by, typed
):
    if by == "variable":
        monkeypatch.setenv("RMQ_PROFILE", "prod")
    else:
        profiles.write_text(profiles.read_text().replace('"dev"', '"prod"', 1))
    code, shown, err = probe(*typed)
    assert (code, err) == (0, "")
    assert "other:1" in shown["servers"]
    assert (shown["keys"], shown["tls"]) == ("None", "None")
    assert (shown["address_map"], shown["output"]) == ("()", "table")


def test_keys_of_the_environment_are_not_sent_to_a_profile_s_servers(
    profiles, probe, monkeypatch
):
    monkeypatch.setenv("RMQ_ACCESS_KEY", "someone")
    monkeypatch.setenv("RMQ_SECRET_KEY", "secret")
    _, shown, err = probe()
    assert shown["keys"] == "None"
    assert err == (
        "warning: RMQ_ACCESS_KEY is not used: profile dev has no credentials; to use it"
        ' there, set credentials = "environment"\n'
    )
    _, shown, err = probe("--profile", "prod")
    assert (shown["keys"], err) == ("('prod-user', 'prod-secret')", "")


def test_a_profile_may_ask_for_the_keys_of_the_environment(write, probe, monkeypatch):
    write('[profiles.ci]\nnamesrv = "ci:1"\ncredentials = "environment"\n')
    code, _, err = probe("--profile", "ci")
    assert code == 2
    assert err == (
        "error: credentials of profile ci: RMQ_ACCESS_KEY and RMQ_SECRET_KEY are not"
        " set\n"
    )
    monkeypatch.setenv("RMQ_ACCESS_KEY", "someone")
    monkeypatch.setenv("RMQ_SECRET_KEY", "secret")
    assert probe("--profile", "ci")[1]["keys"] == "('someone', 'secret')"


def test_credentials_come_from_a_file_beside_the_profiles(write, probe):
    path = write('[profiles.p]\nnamesrv = "p:1"\ncredentials_file = "p.acl"\n')
    code, _, err = probe("--profile", "p")
    assert code == 2
    assert f"credentials of profile p: {path.parent}/p.acl: no such file" in err
    file = path.with_name("p.acl")
    file.write_text("user\nsecret\n")
    file.chmod(0o644)
    code, _, err = probe("--profile", "p")
    assert code == 2
    assert "other users can read or write it (mode 0644)" in err
    file.chmod(0o600)
    assert probe("--profile", "p")[1]["keys"] == "('user', 'secret')"


@pytest.mark.parametrize(
    ("command", "keys", "error"),
    [
        ("""["printf", "a\\\\nb c\\\\n"]""", "('a', 'b c')", ""),
        ("'printf \"accessKey: a\\\\nsecretKey: b\"'", "('a', 'b')", ""),
        ('"false"', None, "false ended with exit code 1"),
        ('"/no/such"', None, "/no/such: no such file or directory"),
        ('"echo one"', None, "echo: no access key and secret key found"),
    ],
)
def test_credentials_come_from_a_command(write, probe, command, keys, error):
    write(f'[profiles.p]\nnamesrv = "p:1"\ncredentials_command = {command}\n')
    code, shown, err = probe("--profile", "p")
    assert (code, shown.get("keys")) == ((0, keys) if keys else (2, None))
    assert error in err


def test_typed_options_override_single_settings(profiles, probe, tmp_path):
    file = tmp_path / "other.acl"
    file.write_text("other\nsecret\n")
    file.chmod(0o600)
    _, shown, _ = probe(
        *("--profile", "prod", "--acl-file", str(file), "--tls-insecure"),
        *("--address-map", "172.18.0.4:1=127.0.0.1:2", "-o", "json"),
    )
    assert shown["keys"] == "('other', 'secret')"
    assert shown["tls"].startswith("TlsOptions(ca_file=None, insecure=True, ")
    assert shown["address_map"] == (
        "(('172.18.0.3:10911', '127.0.0.1:10911'), ('172.18.0.4:1', '127.0.0.1:2'))"
    )
    assert shown["output"] == "json"


def test_a_command_that_needs_name_servers_does_not_fall_back_to_the_default(
    profiles, probe
):
    code, shown, err = probe("--profile", "cloud", command="direct")
    assert (code, shown) == (2, {})
    assert "needs a name server, and profile cloud names a proxy" in err


def test_none_is_no_profile(profiles, probe, monkeypatch):
    assert probe("--profile", "none")[1]["servers"] == "namesrv='127.0.0.1:9876'"
    monkeypatch.setenv("RMQ_PROFILE", "none")
    monkeypatch.setenv("NAMESRV_ADDR", "env:1")
    _, shown, err = probe()
    assert (shown["servers"], err) == ("namesrv='env:1'", "")


def test_a_profile_s_time_zone_is_that_of_times_without_one(write, probe):
    write('[profiles.p]\nnamesrv = "p:1"\ntime_zone = "Asia/Tokyo"\n')
    _, shown, err = probe("--profile", "p", "--from", "@2026-01-02T03:04")
    assert shown["start"] == "@2026-01-02T03:04:00+09:00 (Asia/Tokyo)"
    assert err == "--from: 2026-01-02T03:04:00+09:00 (Asia/Tokyo)\n"
    _, shown, _ = probe("--profile", "p", "--from", "@2026-01-02T03:04Z")
    assert shown["start"] == "@2026-01-02T03:04:00Z"


def test_a_missing_file_of_tls_is_named(write, probe):
    path = write('[profiles.p]\nnamesrv = "p:1"\ntls_cert = "c"\ntls_key = "k.pem"\n')
    (path.parent / "c").touch()
    code, _, err = probe("--profile", "p")
    assert code == 2
    assert f"profile p: tls_key: {path.parent}/k.pem: no such file" in err


def test_an_unknown_profile_is_named_with_the_nearest(profiles, probe):
    code, _, err = probe("--profile", "prd")
    assert code == 2
    assert "profile prd does not exist; did you mean prod?" in err


def test_a_profile_is_not_found_where_there_is_none(probe, config_file):
    assert probe("--profile", "p") == (
        *(2, {}),
        (
            f"error: profile p does not exist: {config_file} has no profiles\n"
            "hint: add it: rmq profile add p --namesrv HOST:PORT\n"
        ),
    )


def test_a_folder_needs_no_profile(write, probe, monkeypatch, tmp_path):
    write("this is not TOML")
    assert probe("--store", str(tmp_path))[0] == 0
    assert run(["lag", "--store", str(tmp_path), "--profile", "x"]) == 2


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ("list --profile prod", "--profile"),
        ("show -n dev:1", "--namesrv"),
        ("show prod --tls", "--tls"),
        ("show prod --tls-server-name x", "--tls-server-name"),
        ("use prod --acl-file x", "--acl-file"),
        ("use prod --address-map a:1=b:1", "--address-map"),
        ("remove prod --confirm prod", "--confirm"),
        ("add p -n p:1 --timeout 1s", "--timeout"),
        ("add p -n p:1 --profile dev", "--profile"),
    ],
)
def test_a_command_without_a_cluster_refuses_its_options(
    profiles, capfd, words, option
):
    before = profiles.read_text()
    assert run(["profile", *words.split()]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert f"{option} has no effect: this command connects to no cluster" in err
    assert profiles.read_text() == before
