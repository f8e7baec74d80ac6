"""A read-only profile lets nothing change, a protected one nothing without its name."""

from __future__ import annotations

import pty
import re
from pathlib import Path

import pytest

import rmqcli.cli
from rmqcli.cli.commands import COMMANDS
from rmqcli.cli.main import run
from tests.cli.sample_command import TABLE

#: The commands that never change a cluster. A new command is not one until it says so.
READING = {
    "acl config",
    "acl explain",
    "acl rule list",
    "acl rule show",
    "acl user list",
    "acl user show",
    "check age",
    "check broker",
    "check dlq",
    "check lag",
    "check retention",
    "check topic",
    "broker config diff",
    "broker config get",
    "broker list",
    "broker show",
    "brokers",
    "bundle",
    "cluster",
    "definitions diff",
    "definitions export",
    "delayed",
    "dlq export",
    "dlq list",
    "dlq show",
    "doctor",
    "export",
    "exporter",
    "group list",
    "group members",
    "group show",
    "group stack",
    "groups",
    "lag",
    "mcp",
    "message find",
    "message show",
    "message trace",
    "nameserver config get",
    "nameserver kv get",
    "nameserver kv list",
    "producers",
    "retry show",
    "sql",
    "topic list",
    "topic show",
    "topics",
    "transactions",
}
#: Those that change one with some of their options, and options of both kinds.
SOMETIMES = {
    "topic attributes": (["t"], ["t", "+a=b"]),
    "copy": (["a", "b"], ["a", "b", "--execute"]),
    "dlq redrive": (["g"], ["g", "--execute"]),
    "retry flush": (["g"], ["g", "--execute"]),
    "import": (
        ["t", "--from-parquet", "d", "--dry-run"],
        ["t", "--from-parquet", "d"],
    ),
    "reset-offset": (
        ["g", "t", "--to", "earliest"],
        ["g", "t", "--undo", "--execute"],
    ),
    "top": ([], ["--allow-changes"]),
    "tail": (["t"], ["t", "--group", "g", "--endpoints", "127.0.0.1:1"]),
}
#: Those that change one whatever their options are, with arguments.
CHANGING = {
    "broker clean-expired-queues": [],
    "broker clean-unused-topics": [],
    "broker config set": ["a=1", "--broker", "b"],
    "bench consume": ["t", "--group", "g"],
    "bench latency": ["t"],
    "bench produce": ["t"],
    "acl rule copy": ["u", "--from", "broker-a"],
    "acl rule create": ["u", "*", "All"],
    "acl rule delete": ["u", "*"],
    "acl rule update": ["u", "*", "All"],
    "acl user copy": ["u", "--from", "broker-a"],
    "acl user create": ["u"],
    "acl user delete": ["u"],
    "acl user update": ["u", "--disable"],
    "consume": ["t", "--group", "g"],
    "broker drain": ["b"],
    "broker undrain": ["b"],
    "definitions apply": ["definitions.json"],
    "group create": ["g"],
    "group delete": ["g"],
    "group pause": ["g"],
    "group resume": ["g"],
    "group update": ["g", "--max-retries", "1"],
    "message recall": ["handle"],
    "message resend": ["id", "--to-group", "g"],
    "nameserver config set": ["a=1"],
    "nameserver kv delete": ["n", "k"],
    "nameserver kv put": ["n", "k", "v"],
    "send": ["t", "body"],
    "topic create": ["t"],
    "topic delete": ["t"],
    "topic permission": ["t", "r"],
    "topic update": ["t", "--perm", "r"],
}
#: Those that use no cluster.
AT_HOME = {
    "explain",
    "export-compact",
    "profile add",
    "profile edit",
    "profile list",
    "profile remove",
    "profile show",
    "profile use",
    "serve",
}

PROFILES = """\
use = "prod"
[profiles.prod]
namesrv = "127.0.0.1:1"
read_only = true
[profiles.proxy]
endpoints = "127.0.0.1:1"
read_only = true
[profiles.guarded]
namesrv = "127.0.0.1:1"
protected = true
"""


CLI = Path(rmqcli.cli.__file__).parent
_ASKING = r"(?<!def )\bconfirm(_by_name)?\("


def kinds():
    """Return the commands by what they say of changes."""
    found: dict[object, set[str]] = {}
    for entry in COMMANDS:
        command = entry.load()
        if command.has_common:
            kind = command.changes if isinstance(command.changes, bool) else "some"
            found.setdefault(kind if command.connects else None, set()).add(entry.path)
    return found


def test_only_these_commands_say_that_they_change_nothing():
    assert kinds() == {
        False: READING,
        True: set(CHANGING),
        "some": set(SOMETIMES),
        None: AT_HOME,
    }


def test_these_commands_ask_a_question_that_yes_answers():
    """The hint for a protected profile names `--yes` for them, too."""
    assert {entry.path for entry in COMMANDS if entry.load().asks} == {
        "copy",
        "broker clean-expired-queues",
        "broker clean-unused-topics",
        "broker config set",
        "broker drain",
        "broker undrain",
        "group pause",
        "group resume",
        "nameserver config set",
        "nameserver kv delete",
        "nameserver kv put",
        "acl rule copy",
        "acl rule create",
        "acl rule delete",
        "acl rule update",
        "acl user copy",
        "acl user create",
        "acl user delete",
        "acl user update",
        "definitions apply",
        "dlq redrive",
        "group delete",
        "message recall",
        "message resend",
        "reset-offset",
        "retry flush",
        "topic attributes",
        "topic delete",
        "topic permission",
        "topic update",
    }


def test_no_other_module_asks_a_question():
    callers = {
        source.relative_to(CLI).as_posix(): len(re.findall(_ASKING, text))
        for source in CLI.rglob("*.py")
        if re.search(_ASKING, text := source.read_text(encoding="utf-8"))
    }
    assert callers == {
        "copy.py": 1,
        "changes/clean.py": 2,
        "changes/consumption.py": 1,
        "changes/drain.py": 2,
        "changes/kv.py": 1,
        "changes/settings.py": 1,
        "changes/topics.py": 2,
        "definitions.py": 2,
        "dlq/sending.py": 1,
        "groups.py": 1,
        "message/recall.py": 1,
        "message/resend.py": 1,
        "profile/entries.py": 1,
        "reset_offset/command.py": 1,
        "topics.py": 2,
    }


@pytest.mark.parametrize(
    ("path", "words"),
    [
        *CHANGING.items(),
        *((path, words) for path, (_, words) in SOMETIMES.items()),
    ],
)
@pytest.mark.parametrize("more", [[], ["--yes"]])
def test_a_read_only_profile_refuses_every_change(write, capfd, path, words, more):
    write(PROFILES)
    named = ["--profile", "proxy"] if path == "tail" else []
    assert run([*path.split(), *words, *named, *more]) == 7
    err = capfd.readouterr().err
    assert " is read-only, and this command changes its cluster (" in err
    assert err.splitlines()[1].startswith("hint: its settings are in /")
    assert err.splitlines()[0].endswith("127.0.0.1:1): nothing was changed")


@pytest.mark.parametrize(
    "path", sorted({"topics", "lag", *SOMETIMES} - {"import", "top"})
)
def test_a_read_only_profile_lets_commands_read(write, capfd, path):
    """They get as far as the cluster, which does not answer; `top` needs a terminal."""
    write(PROFILES)
    words = SOMETIMES[path][0] if path in SOMETIMES else []
    assert run([path.split()[0], *path.split()[1:], *words]) == 5


@pytest.mark.parametrize(
    "typed", [["-n", "127.0.0.1:1"], ["--profile", "prod"], ["-n127.0.0.1:1", "--yes"]]
)
def test_typing_the_same_servers_is_no_way_around(write, typed):
    write(PROFILES)
    assert run(["topic", "delete", "t", *typed]) == 7


def test_a_new_command_is_refused_until_it_says_that_it_reads(write, capfd):
    """`sample` says nothing."""
    write(PROFILES)
    assert run(["sample", "rows"], table=TABLE) == 7


def test_a_protected_profile_needs_its_name(write, capfd, monkeypatch):
    write(PROFILES)
    words = ["topic", "create", "t", "--profile", "guarded", "--yes"]
    monkeypatch.setattr("sys.argv", ["rmq", *words])
    assert run(words) == 7
    assert capfd.readouterr().err == (
        "error: not confirmed: nothing was changed\n"
        "hint: run: rmq topic create t --profile guarded --yes --confirm guarded\n"
    )
    assert run([*words, "--confirm", "guarded"]) == 5  # on its way to the cluster
    monkeypatch.setattr("sys.argv", ["rmq", *words[:2], "--", "t"])
    assert run(["topic", "delete", "t", "--profile", "guarded"]) == 7
    assert capfd.readouterr().err.splitlines()[-1] == (
        "hint: run: rmq topic create --confirm guarded --yes -- t"
    )
    assert run(["topics", "--profile", "guarded"]) == 5


@pytest.mark.parametrize(
    ("typed", "code"),
    [("guarded\n", 5), ("y\n", 7), ("guarded \n", 7), ("Guarded\n", 7), ("\n", 7)],
)
def test_the_name_is_typed_on_a_terminal(write, capfd, monkeypatch, typed, code):
    write(PROFILES)
    ours, theirs = pty.openpty()
    with open(ours, "w") as keyboard, open(theirs) as terminal:
        monkeypatch.setattr("sys.stdin", terminal)
        keyboard.write(typed)
        keyboard.flush()
        assert run(["topic", "create", "t", "--profile", "guarded"]) == code
    assert capfd.readouterr().err.startswith(
        "profile guarded (namesrv 127.0.0.1:1) is protected, and this command changes"
        " its cluster.\nType guarded to confirm: "
    )


@pytest.mark.parametrize(
    ("typed", "used"),
    [
        (["--profile", "guarded", "--confirm", "prod"], "profile guarded"),
        (["--profile", "none", "--confirm", "prod"], "no profile"),
        (["-n", "127.0.0.1:2", "--confirm", "prod"], "no profile"),
    ],
)
def test_a_confirmation_for_another_profile_is_refused(write, capfd, typed, used):
    """Even by a command that reads: the user is mistaken about the cluster."""
    write(PROFILES)
    for words in (["topic", "delete", "t", "--yes"], ["topics"]):
        assert run([*words, *typed]) == 7
        assert capfd.readouterr().err == (
            f"error: --confirm names profile prod, but {used} is used: nothing was"
            " changed\n"
        )


def test_a_protected_profile_gets_no_load_even_if_it_is_named(write, capfd):
    path = write(PROFILES)
    words = ["bench", "latency", "t", "--profile", "guarded", "--confirm", "guarded"]
    assert run(words) == 7
    assert capfd.readouterr().err == (
        "error: profile guarded is protected, and a benchmark puts load on its cluster"
        " (namesrv 127.0.0.1:1): nothing was sent\n"
        f"hint: its settings are in {path}\n"
    )


def test_a_question_names_the_profile_and_its_servers(write, capfd, monkeypatch):
    write('[profiles.p]\nnamesrv = "127.0.0.1:1"\n')
    ours, theirs = pty.openpty()
    with open(ours, "w") as keyboard, open(theirs) as terminal:
        monkeypatch.setattr("sys.stdin", terminal)
        keyboard.write("n\n")
        keyboard.flush()
        assert run(["sample", "ask", "--profile", "p"], table=TABLE) == 7
    assert capfd.readouterr().err.startswith(
        "profile p (namesrv 127.0.0.1:1): Really? [y/N] "
    )


CLUSTERS = """\
use = "dev"
[profiles.dev]
namesrv = "127.0.0.1:1"
[profiles.ro]
namesrv = ["127.0.0.1:2", "10.0.0.1:2"]
read_only = true
[profiles.guarded]
namesrv = "127.0.0.1:3"
protected = true
[profiles.both]
namesrv = "127.0.0.1:4"
[profiles.both-ro]
namesrv = "127.0.0.1:4"
read_only = true
"""


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["-n", "127.0.0.1:2"], 7),
        (["-n", "localhost:2"], 7),
        (["-n", "[::1]:2"], 7),
        (["-n", "127.0.0.1:9,127.0.0.1:2"], 7),
        (["-n", "127.0.0.1:3"], 7),
        (["-n", "127.0.0.1:3", "--confirm", "guarded"], 5),
        # Asked for, or allowed by another profile, or nobody's.
        (["-n", "127.0.0.1:2", "--profile", "none"], 5),
        (["-n", "127.0.0.1:4"], 5),
        (["--profile", "both"], 5),
        (["-n", "127.0.0.1:5"], 5),
    ],
)
@pytest.mark.parametrize("used", ["dev", "ro"])
def test_servers_of_a_profile_are_not_changed_without_it(write, words, code, used):
    """However they are written, and whatever profile is in use."""
    write(CLUSTERS.replace('use = "dev"', f'use = "{used}"'))
    if code == 5:
        words = [*words, "--yes"]
    assert run(["topic", "create", "t", "--no-input", *words]) == code


@pytest.mark.parametrize("by", ["option", "variable"])
def test_a_project_forbids_changes_by_its_profile_however_that_is_named(
    write, tmp_path, monkeypatch, capfd, by
):
    write(CLUSTERS)
    folder = tmp_path / "shop"
    folder.mkdir()
    project = folder / ".rmq.toml"
    project.write_text('profile = "dev"\nread_only = true\n')
    monkeypatch.chdir(folder)
    words = ["--profile", "dev"] if by == "option" else []
    if by == "variable":
        monkeypatch.setenv("RMQ_PROFILE", "dev")
    assert run(["topic", "create", "t", *words]) == 7
    assert str(project) in capfd.readouterr().err
    assert run(["topic", "create", "t", "--profile", "both"]) == 5


@pytest.mark.parametrize("text", ["nonsense", 'profile = "nobody"', "x = 1", None])
@pytest.mark.parametrize(
    ("words", "variables"),
    [
        (["-n", "127.0.0.1:1"], {}),
        (["-n", "127.0.0.1:5"], {}),
        (["--profile", "dev"], {}),
        ([], {"RMQ_PROFILE": "dev"}),
        (["-n", "127.0.0.1:1"], {"RMQ_PROFILE": "dev"}),
        (["-n", "127.0.0.1:5"], {"RMQ_PROFILE": "dev"}),
    ],
)
def test_a_project_file_that_cannot_be_used_stops_changes_and_not_reading(
    write, tmp_path, monkeypatch, capfd, words, variables, text
):
    """What it forbade must not become possible because it is broken."""
    write(CLUSTERS)
    project = tmp_path / ".rmq.toml"
    if text is None:
        project.symlink_to("nowhere")
    else:
        project.write_text(text)
    monkeypatch.chdir(tmp_path)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert run(["topics", *words]) == 5
    error, *_ = capfd.readouterr().err.splitlines()
    assert error.startswith(f"warning: {project}: ")
    assert error.endswith("; the command goes on without it")
    assert run(["topic", "create", "t", "--yes", *words]) == 2
    error, hint = capfd.readouterr().err.splitlines()
    assert error.startswith(f"error: {project}: ")
    assert hint == (
        "hint: it may forbid changes; to change the cluster anyway, correct it"
    )
    around = ["-n", "127.0.0.1:5", "--profile", "none"]
    assert run(["topic", "create", "t", "--yes", *around]) == 5


@pytest.mark.parametrize("command", [["topics"], ["topic", "create", "t", "--yes"]])
def test_a_project_file_that_cannot_be_used_stops_a_command_that_names_no_cluster(
    write, tmp_path, monkeypatch, capfd, command
):
    write(CLUSTERS)
    (tmp_path / ".rmq.toml").write_text("nonsense")
    monkeypatch.chdir(tmp_path)
    assert run(command) == 2
    monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:5")
    assert run(command) == 2


def test_profiles_that_cannot_be_read_stop_changes_and_not_reading(write, capfd):
    path = write("[profiles.p\n")
    assert run(["topics", "-n", "127.0.0.1:1"]) == 5
    assert capfd.readouterr().err.startswith(
        f"warning: {path}: not valid TOML at line 1, column 12; the command goes on"
        " without it\n"
    )
    assert run(["topic", "create", "t", "--yes", "-n", "127.0.0.1:1"]) == 2


@pytest.mark.parametrize(
    ("servers", "code"),
    [
        ('namesrv = "localhost:5"', 2),
        ('namesrv = ["10.0.0.1:5", "127.0.0.1:5"]', 2),
        ('namesrv = "127.0.0.1:x"', 2),
        ("namesrv = 5", 2),
        ('namesrv = "127.0.0.1:6"', 5),
        ('endpoints = "127.0.0.1:5"', 5),
    ],
)
def test_a_profile_that_cannot_be_read_stops_changes_of_its_servers_and_not_reading(
    write, capfd, servers, code
):
    """What it forbade must not become possible by a mistake in another setting."""
    path = write(f"{CLUSTERS}[profiles.prod]\n{servers}\nreadonly = true\n")
    assert run(["topics", "-n", "127.0.0.1:5"]) == 5
    assert capfd.readouterr().err.startswith("error: cannot connect to 127.0.0.1:5")
    assert run(["topic", "create", "t", "--yes", "-n", "127.0.0.1:5"]) == code
    error, hint, *_ = capfd.readouterr().err.splitlines()
    if code == 2:
        assert error.startswith(f"error: {path}: profile prod: ")
        assert hint == (
            "hint: it may forbid changes; to change the cluster anyway, correct it"
        )
    around = ["-n", "127.0.0.1:5", "--profile", "none"]
    assert run(["topic", "create", "t", "--yes", *around]) == 5


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('profile = "ro"\n', 7),
        ('profile = "dev"\n', 7),
        ('profile = "two"\nread_only = true\n', 7),
        ('namesrv = ["127.0.0.1:6", "127.0.0.1:7"]\nread_only = true\n', 7),
        ('profile = "two"\n', 5),
    ],
)
@pytest.mark.parametrize("variable", ["", "both"])
def test_a_project_forbids_changes_by_one_of_its_servers(
    write, tmp_path, monkeypatch, text, code, variable
):
    write(
        CLUSTERS.replace('use = "dev"', "")
        + '[profiles.two]\nnamesrv = ["127.0.0.1:6", "127.0.0.1:8"]\n'
    )
    (tmp_path / ".rmq.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    if variable:
        monkeypatch.setenv("RMQ_PROFILE", variable)
    servers = {
        'profile = "ro"': "127.0.0.1:2",
        'profile = "dev"': "127.0.0.1:2",  # of ro, which comes after dev in the file
        "namesrv": "127.0.0.1:7",
    }
    server = next((servers[key] for key in servers if key in text), "127.0.0.1:6")
    assert run(["topic", "create", "t", "--yes", "-n", server]) == code


@pytest.mark.parametrize("server", ["127.0.0.1:1", "127.0.0.1:1;127.0.0.1:9"])
def test_a_project_forbids_changes_by_the_servers_of_a_variable_s_profile(
    write, tmp_path, monkeypatch, server
):
    write(CLUSTERS)
    (tmp_path / ".rmq.toml").write_text('profile = "dev"\nread_only = true\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RMQ_PROFILE", "dev")
    assert run(["topic", "create", "t", "--yes", "-n", server]) == 7


@pytest.mark.parametrize("option", ["--profile", "--where"])
def test_an_option_of_which_the_last_must_not_count_is_refused_twice(capfd, option):
    assert run(["tail", "t", option, "a", f"{option}=b"]) == 2
    assert f"option {option} is given twice" in capfd.readouterr().err
