"""The options that every command has."""

from __future__ import annotations

import io
import sys

import pytest

from rmqcli.cli.main import run
from rmqcli.cli.options import Common, command_options, make_common, read_int
from rmqcli.cli.tail.command import parse_rate
from rmqcli.cli.ui.output import Column
from rmqcli.config import ClientConfig, parse_namesrv
from rmqcli.errors import TextError
from rmqcli.transport.tls import TlsOptions
from rmqcli.wire.acl import Credentials
from tests.cli.sample_command import TABLE
from tests.kit.rows import each_row
from tests.kit.terminal import Terminal


@pytest.mark.parametrize(
    "text", ["1_0", " 10", "+1", "\uff11\uff10", "10\n", "", "-", "1.0"]
)
def test_a_whole_number_has_only_plain_digits(capfd, text):
    """`1_0` was read as 10, and so were digits of other scripts."""
    with pytest.raises(TextError, match="not a whole number"):
        read_int(text, None, None)
    assert run(["tail", "orders", f"--last={text}", "-n", "127.0.0.1:9"]) == 2
    assert "cannot connect" not in capfd.readouterr().err


def test_a_whole_number_is_read_between_its_bounds():
    assert (read_int("10", 1, 10), read_int("-5", None, None)) == (10, -5)
    with pytest.raises(TextError, match="must be from 1 to 10"):
        read_int("9" * 400, 1, 10)


@pytest.mark.parametrize(
    "text", ["1_0/s", "\uff11\uff10/s", " 10/s", "nan/s", "inf/s", "1__0"]
)
def test_a_rate_has_only_plain_digits(text):
    with pytest.raises(TextError, match="not a rate"):
        parse_rate(text)


@pytest.mark.parametrize(("text", "rate"), [("0.5/s", 0.5), ("1e3", 1000), ("7/s", 7)])
def test_a_rate_may_have_a_fraction(text, rate):
    assert parse_rate(text) == rate


@pytest.fixture
def common_line(capfd):
    """Runs the sample command, which prints its common options in two lines."""

    def run_it(*arguments):
        code = run(["sample", "common", *arguments], table=TABLE)
        out, err = capfd.readouterr()
        assert code == 0, err
        return out.splitlines()

    return run_it


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("127.0.0.1:9876", ("127.0.0.1:9876",)),
        ("a:1;b:2", ("a:1", "b:2")),
        (" a:1 ; b:2 ;", ("a:1", "b:2")),
        ("a:1,b:2", ("a:1", "b:2")),
        (" a:1 , b:2 ; c ,", ("a:1", "b:2", "c:9876")),
        ("a:1;a:1", ("a:1",)),
        ("namesrv.example.com", ("namesrv.example.com:9876",)),
        ("[::1]:1;[fe80::1]", ("[::1]:1", "[fe80::1]:9876")),
        ("a:09876", ("a:9876",)),
    ],
)
def test_namesrv_is_read_as_in_mqadmin(text, addresses):
    assert parse_namesrv(text) == addresses


@each_row(
    ("text", "part"),
    [
        ("", ""),
        (";", ";"),
        ("a:x", "x"),
        ("ok:1;a:0", "0"),
        ("a:65536", "65536"),
        ("a:99999999999", "99999999999"),
        (":9876", ":"),
        ("http://a:1", "http://a"),
        ("a b:1", "a b"),
        ("::1", "::1"),
        ("a:1\x1b", "1\x1b"),
        ("a:\u0661", "\u0661"),  # an Arabic digit
    ],
)
def test_namesrv_points_at_what_is_wrong(text, part):
    with pytest.raises(TextError) as caught:
        parse_namesrv(text)
    error = caught.value
    assert text[error.start : error.end] == part or part in (":", "::1")


@pytest.mark.parametrize(
    ("text", "what", "hint"),
    [
        (
            "ipv4:127.0.0.1:8081",  # gRPC's name of a target
            "not a host name",
            "write HOST:PORT, or several separated by commas",
        ),
        (
            "::1",
            "an IPv6 address needs brackets",
            "write [ADDRESS]:PORT, such as [::1]:9876",
        ),
        (
            "fe80::1:8081",
            "an IPv6 address needs brackets",
            "write [ADDRESS]:PORT, such as [::1]:9876",
        ),
    ],
)
def test_the_hint_for_an_address_with_colons_names_one_that_can_be_used(
    text, what, hint
):
    """It was to write [ipv4:127.0.0.1]:8081, and [:]:1 for ::1."""
    with pytest.raises(TextError) as caught:
        parse_namesrv(text)
    assert caught.value.message.splitlines()[0].endswith(f": {what}")
    assert caught.value.hint == hint


def test_namesrv_comes_from_the_flag_then_the_environment(common_line, monkeypatch):
    monkeypatch.setenv("NAMESRV_ADDR", "env:1;env2:2")
    assert common_line()[0].startswith("('env:1', 'env2:2') ")
    assert common_line("-n", "flag:1")[0].startswith("('flag:1',) ")
    monkeypatch.delenv("NAMESRV_ADDR")
    assert common_line()[0].startswith("('127.0.0.1:9876',) ")


@pytest.mark.parametrize(
    ("variable", "command"),
    [("NAMESRV_ADDR", ["lag"]), ("ROCKETMQ_ENDPOINTS", ["tail", "T"])],
)
def test_an_error_in_a_variable_of_the_environment_names_it(
    capfd, monkeypatch, variable, command
):
    monkeypatch.setenv(variable, ";")
    assert run(command) == 2
    assert f"error: {variable}: ';': no " in capfd.readouterr().err


@pytest.mark.parametrize("typed", [["-n", ";"], ["-n;"], ["--namesrv=;"]])
def test_an_error_in_a_typed_value_names_the_option(capfd, monkeypatch, typed):
    monkeypatch.setenv("NAMESRV_ADDR", ";")
    assert run(["lag", *typed]) == 2
    assert "error: --namesrv: ';': no name server" in capfd.readouterr().err


def test_values_are_parsed(common_line):
    assert common_line("--timeout", "1m30s")[0].split()[1] == "90000"
    second = common_line(
        "--idle-timeout",
        "500ms",
        "--size",
        "4MiB",
        "--from",
        "-2h",
        "--queue",
        "b-1:3",
        "--queue",
        "0",
        "--",
        "-x",
    )[1]
    assert second == (
        "500 4194304 -2h [QueueSelector(broker_name='b-1', queue_id=3), "
        "QueueSelector(broker_name=None, queue_id=0)] ['-x']"
    )


@pytest.mark.parametrize(
    ("flags", "shown"),
    [
        (["--tls"], "TlsOptions(ca_file=None, insecure=False"),
        (["--tls-ca", "ca.pem"], "TlsOptions(ca_file='ca.pem', insecure=False"),
        (["--tls-insecure"], "TlsOptions(ca_file=None, insecure=True"),
    ],
)
def test_any_tls_option_means_tls(common_line, flags, shown):
    assert shown in common_line(*flags)[0]


def test_a_certificate_that_is_not_checked_needs_no_authority(capsys):
    words = ["--tls-insecure", "--tls-ca", "ca.pem", "-n", "127.0.0.1:1"]
    assert run(["topics", *words]) == 2
    error = "error: --tls-insecure and --tls-ca cannot be used together\n"
    assert capsys.readouterr().err == error


def test_tls_is_off_by_default(common_line):
    assert common_line()[0].endswith(" None")


def test_quiet_leaves_warnings(capfd):
    run(["sample", "common", "-q"], table=TABLE)
    assert capfd.readouterr().err == "warning: a warning\n"
    run(["sample", "common"], table=TABLE)
    assert capfd.readouterr().err == "an info\nwarning: a warning\n"


def test_output_help_lists_the_fields_without_running(capfd):
    """`-o help` needs none of the command's arguments."""
    assert run(["sample", "-o", "help"], table=TABLE) == 0
    out, err = capfd.readouterr()
    assert out.splitlines()[0] == "name   name of the thing"
    assert err == ""


def test_no_option_takes_a_secret(capfd):
    """Secrets come from a file, stdin or the environment, never from argv."""
    run(["sample", "--help"], table=TABLE)
    help_text = capfd.readouterr().out
    for word in ("password", "secret-key", "access-key", "token"):
        assert f"--{word}" not in help_text


def test_the_first_parameter_must_be_common():
    with pytest.raises(TypeError, match="not `common`"):

        @command_options()
        def wrong(topic: str, common: Common) -> None:
            """No."""


def test_client_config_carries_what_was_given(tmp_path):
    secret = tmp_path / "acl"
    secret.write_text("me\nc4n4ry\n")
    secret.chmod(0o600)
    common = Common(
        namesrv=("a:1", "b:2"), timeout_ms=7, acl_file=str(secret), tls=TlsOptions()
    )
    config = common.client_config()
    assert config == ClientConfig(
        namesrv=("a:1", "b:2"),
        timeout_ms=7,
        credentials=Credentials("me", "c4n4ry"),
        tls=TlsOptions(),
    )
    assert "c4n4ry" not in repr(config)
    assert "c4n4ry" not in repr(common)


def test_a_client_can_be_opened_and_closed():
    with Common(namesrv=("127.0.0.1:1",)).open_client() as client:
        assert client.config.namesrv == ("127.0.0.1:1",)


def test_a_secret_file_that_is_open_to_others_is_one_line(tmp_path, capfd):
    secret = tmp_path / "acl"
    secret.write_text("me\nc4n4ry\n")
    secret.chmod(0o644)
    code = run(["sample", "connect", "--acl-file", str(secret)], table=TABLE)
    out, err = capfd.readouterr()
    assert (code, out) == (2, "")
    assert err == (
        f"error: {secret}: other users can read or write it (mode 0644)\n"
        f"hint: run: chmod 600 {secret}\n"
    )


@pytest.mark.parametrize(
    "command",
    ["lag", "reset-offset", "export", "topics", "topic create", "groups", "brokers"],
)
def test_a_command_that_cannot_use_a_proxy_says_why(capfd, command):
    assert run([*command.split(), "--endpoints", "127.0.0.1:8081"]) == 2
    out, err = capfd.readouterr()
    assert (out, err) == (
        "",
        (
            f"error: rmq {command} does not support --endpoints: it needs a name server"
            "\nhint: give --namesrv HOST:PORT\n"
        ),
    )


COMMANDS_OF_NAMESRV = [
    "lag",
    "lag g",
    "reset-offset g T --to latest",
    "export T --to-parquet ./no-such-folder",
    "topics",
    "topic create T",
    "topic delete T --yes",
    "groups",
    "group show g",
    "group create g",
    "brokers",
]


@pytest.mark.parametrize("command", COMMANDS_OF_NAMESRV)
def test_endpoints_of_the_environment_do_not_say_where_the_name_server_is(
    capfd, monkeypatch, command
):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    monkeypatch.setenv("ROCKETMQ_ENDPOINTS", "127.0.0.1:1")
    assert run(command.split()) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.splitlines()[-2:] == [
        "error: this command needs a name server, and ROCKETMQ_ENDPOINTS names a proxy",
        "hint: give --namesrv HOST:PORT, or set NAMESRV_ADDR",
    ]


@pytest.mark.parametrize(
    ("variable", "value", "what"),
    [
        ("NAMESRV_ADDR", ";", "no name server in it"),
        ("ROCKETMQ_ENDPOINTS", "a:b", "the port is not a number"),
    ],
)
def test_an_error_in_a_variable_names_the_variable(
    capfd, monkeypatch, variable, value, what
):
    for each in ("NAMESRV_ADDR", "ROCKETMQ_ENDPOINTS"):
        monkeypatch.delenv(each, raising=False)
    monkeypatch.setenv(variable, value)
    assert run(["tail", "orders"]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.splitlines()[0] == f"error: {variable}: '{value}': {what}"


@pytest.mark.parametrize("is_typed", [True, False])
def test_with_a_name_server_endpoints_of_the_environment_change_nothing(
    rmq_cluster, capfd, monkeypatch, is_typed
):
    monkeypatch.setenv("ROCKETMQ_ENDPOINTS", "127.0.0.1:1")
    flags = ["-n", rmq_cluster.namesrv] if is_typed else []
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    if not is_typed:
        monkeypatch.setenv("NAMESRV_ADDR", rmq_cluster.namesrv)
    assert run(["brokers", "-o", "jsonl", *flags]) == 0
    assert '"broker_name":"broker-a"' in capfd.readouterr().out


def test_a_folder_needs_no_address(tmp_path, capfd, monkeypatch):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    monkeypatch.setenv("ROCKETMQ_ENDPOINTS", "127.0.0.1:1")
    (tmp_path / "commitlog").mkdir()
    run(["topics", "--store", str(tmp_path)])
    assert "ROCKETMQ_ENDPOINTS" not in capfd.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        "tail orders",
        "tail orders --from earliest --to latest",
        "consume orders --group billing",
        "copy orders orders-copy",
        "dlq show billing",
        "dlq redrive billing",
        "dlq export billing --to-jsonl letters.jsonl",
        "export orders --to-parquet out",
        "export orders --to-table iceberg:lake.orders",
    ],
)
@pytest.mark.parametrize("expression", ["A && B", "A | B", "not A", "A || !B"])
def test_an_operator_that_tag_expressions_lack_is_refused(command, expression, capfd):
    """Brokers took `A && B` for a single tag, and nothing was found."""
    words = [*command.split(), "--tag", expression, "-n", "127.0.0.1:9"]
    assert run(words) == 2
    assert capfd.readouterr().err == (
        f"error: '{expression}' is not a list of tags\nhint: try 'TagA || TagB'\n"
    )


def test_the_tags_that_are_sent_may_have_any_characters(capfd):
    from rmqcli.testing import EmbeddedCluster

    with EmbeddedCluster() as cluster:
        cluster.create_topic("orders")
        words = ["send", "orders", "x", "--tag", "A && B", "-n", cluster.namesrv]
        assert run(words) == 0, capfd.readouterr().err


@pytest.mark.parametrize(
    ("shown_on", "no_color", "is_coloured"),
    [
        ("stderr", "", True),
        ("stderr", "1", False),
        ("stdout", "", False),  # stderr may be a file
    ],
)
def test_a_table_has_the_colours_of_the_stream_that_it_is_written_to(
    monkeypatch, shown_on, no_color, is_coloured
):
    """A plan on stderr had colours when stdout was a terminal."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", no_color)
    streams = {"stdout": io.StringIO(), "stderr": io.StringIO(), shown_on: Terminal()}
    for name, stream in streams.items():
        monkeypatch.setattr(sys, name, stream)
    state = Column("state", states={"SKIP": "bad"})
    rows = [{"name": "a", "state": "SKIP"}]
    make_common().write_table(rows, [Column("name"), state], stream=sys.stderr)
    written = streams["stderr"].getvalue()
    assert "SKIP" in written
    assert ("\x1b[" in written) == is_coloured
