"""Completion offers the cluster's names quickly and silently, or offers none."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqcli.cli.completion import names as complete_names
from rmqcli.cli.completion.scripts import write_all
from rmqcli.cli.main import run

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """An empty home directory, so that tests do not share a cache."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "ZDOTDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("BASH_COMPLETION_USER_DIR", raising=False)
    # Generous, because machines may be busy: these tests do not check the speed.
    monkeypatch.setattr(complete_names, "BUDGET_S", 20)
    return tmp_path


@pytest.fixture
def cluster(rmq_cluster):
    for topic in ("orders", "payments"):
        rmq_cluster.create_topic(topic)
    flags = ["-g", "billing", "-n", rmq_cluster.namesrv, "--for", "1ms", "-q"]
    assert run(["consume", "orders", *flags]) == 0
    return rmq_cluster


def names(kind, address):
    return complete_names.choose(kind, complete_names.known_names(kind, address))


def test_topics_and_groups_come_from_the_name_server(cluster):
    assert {"orders", "payments"} <= set(names("topic", cluster.namesrv))
    assert not {"TBW102", "DefaultCluster", "DefaultCluster_REPLY_TOPIC"} & set(
        names("topic", cluster.namesrv)
    )
    assert names("-J", cluster.namesrv) == []
    assert not [name for name in names("topic", cluster.namesrv) if "%" in name]
    assert names("group", cluster.namesrv) == ["billing"]
    assert names("broker", cluster.namesrv) == ["broker-a"]
    # The lists are kept apart.
    assert names("group", cluster.namesrv) == ["billing"]
    assert names("broker", cluster.namesrv) == ["broker-a"]


def test_brokers_are_read_from_the_answer_of_java(peer):
    """Whose keys are numbers, which is not JSON."""
    body = (
        b'{"brokerAddrTable":{"b.1":{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:1"},'
        b'"brokerName":"b.1","cluster":"C"},"$(id)":{"brokerAddrs":{0:"10.0.0.3:1"},'
        b'"brokerName":"$(id)"},"-n":{"brokerName":"-n"}},"clusterAddrTable":{}}'
    )
    assert names("broker", peer(frame(body))) == ["b.1"]


def test_names_are_kept_for_a_while_and_then_asked_for_again(cluster, home):
    before = names("topic", cluster.namesrv)
    cluster.create_topic("later")
    assert names("topic", cluster.namesrv) == before
    (cache,) = home.rglob("*.json")
    old = cache.stat().st_mtime - 31
    os.utime(cache, (old, old))
    assert "later" in names("topic", cluster.namesrv)
    assert cache.stat().st_mode & 0o777 == 0o600


def test_while_nobody_answers_old_names_are_shown_and_ancient_ones_not(cluster, home):
    address = cluster.namesrv
    before = names("topic", address)
    cluster.close()
    (cache,) = home.rglob("*.json")
    now = cache.stat().st_mtime
    os.utime(cache, (now - 3_600, now - 3_600))
    assert names("topic", address) == before
    os.utime(cache, (now - 90_000, now - 90_000))
    assert names("topic", address) == []


@pytest.mark.parametrize(
    ("line", "address"),
    [
        ("rmq tail ", "1.2.3.4:5"),
        ("rmq tail -n h:1 ", "h:1"),
        ("rmq tail -nh:1 ", "h:1"),
        ("rmq tail --namesrv h:1;i:2 x", "h:1"),
        ("rmq tail --namesrv=h x", "h:9876"),
        ("rmq tail -n 'h:1;i:2' x", "h:1"),
        ("rmq tail --no-input", "1.2.3.4:5"),
    ],
)
def test_the_name_server_of_the_line_wins(monkeypatch, line, address):
    monkeypatch.setenv("NAMESRV_ADDR", "1.2.3.4:5;6.7.8.9:10")
    assert complete_names.find_namesrv(line) == address


@pytest.mark.parametrize(
    ("line", "address"),
    [
        ("rmq tail ", "used:1"),
        ("rmq tail --profile prod ", "prod:1"),
        ("rmq tail --profile=prod ", "prod:1"),
        ("rmq tail --profile none ", "127.0.0.1:9876"),
        ("rmq tail -n h:1 ", "h:1"),
        ("rmq tail --profile secure ", None),  # completion has no TLS
        ("rmq tail --profile cloud ", None),  # a proxy lists no topics
    ],
)
def test_names_are_those_of_the_profile_s_cluster(home, monkeypatch, line, address):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    write_profiles(home)
    assert complete_names.find_namesrv(line) == address


def test_profiles_are_offered(home, capfd):
    write_profiles(home)
    complete_names.main(["profile", "rmq lag --profile "])
    assert capfd.readouterr().out.split() == ["cloud", "prod", "secure", "used"]


def write_profiles(home):
    folder = home / ".config" / "rmq"
    folder.mkdir(parents=True)
    folder.joinpath("config.toml").write_text(
        'use = "used"\n[profiles.used]\nnamesrv = "used:1"\n'
        '[profiles.prod]\nnamesrv = "prod:1"\n'
        '[profiles.secure]\nnamesrv = "secure:1"\ntls = true\n'
        '[profiles.cloud]\nendpoints = "cloud:1"\n'
    )
    folder.joinpath("config.toml").chmod(0o600)


@pytest.fixture
def peer():
    """A name server that answers one request with the bytes that a test passes."""
    server = socket.create_server(("127.0.0.1", 0))
    answer: list[bytes] = []

    def serve():
        connection, _ = server.accept()
        with connection:
            connection.recv(65_536)
            connection.sendall(answer[0])

    thread = threading.Thread(target=serve)

    def start(data):
        answer.append(data)
        thread.start()
        return f"127.0.0.1:{server.getsockname()[1]}"

    yield start
    server.close()
    thread.join(10)


def frame(body, *, code=0):
    header = json.dumps({"code": code}).encode()
    data = len(header).to_bytes(4, "big") + header + body
    return len(data).to_bytes(4, "big") + data


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\xff\xff\xff\xff",
        frame(b'{"topicList":["a"]}')[:-3],
        frame(b'{"topicList":["a"]}', code=1),
        frame(b'{"topicList":7}'),
        frame(b"[]"),
        frame(b"not json"),
    ],
)
def test_an_answer_that_is_none_gives_no_names(peer, data):
    assert complete_names.known_names("topic", peer(data)) == []


def test_names_that_a_shell_would_obey_are_dropped(peer):
    body = json.dumps(
        {"topicList": ["ok", "$(id)", "`id`", "a b", "x\n", 7, "a" * 256]}
    )
    assert complete_names.known_names("topic", peer(frame(body.encode()))) == ["ok"]


def test_names_that_a_command_would_take_for_options_are_not_offered():
    """Whoever may create topics chooses the names that others' shells insert."""
    topics = ["-n", "--yes", "-rf", "a|b", "ok", "a-b_C9", "%RETRY%-g", "%RETRY%g-1"]
    topics += ["x\x1b[2J", "y\n", "z;id", "%RETRY%a|b", "%RETRY%"]
    assert complete_names.choose("topic", topics) == ["a-b_C9", "ok"]
    assert complete_names.choose("group", topics) == ["g-1"]


@given(st.lists(st.text(max_size=20)), st.sampled_from(["topic", "group", "broker"]))
def test_whatever_the_cluster_says_a_shell_gets_only_plain_words(names, kind):
    topics = [*names, *(f"%RETRY%{name}" for name in names)]
    for name in complete_names.choose(kind, topics):
        assert shlex.quote(name) == name
        assert not name.startswith("-")


def complete(*words, **environ):
    done = subprocess.run(
        [sys.executable, "-m", "rmqcli", "__complete", *words],
        cwd=ROOT,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    "words",
    [[], ["nonsense"], ["topic", "rmq tail -n 127.0.0.1:1 "], ["topic", "-n [x"]],
)
def test_every_error_is_silent(words):
    assert complete(*words, NAMESRV_ADDR="127.0.0.1:1") == (0, "", "")


def test_it_loads_neither_typer_nor_a_client():
    script = (
        "import sys; from rmqcli.cli.completion import names;"
        " print(*sorted(m for m in sys.modules if m.startswith('rmqcli')"
        " or m in ('typer', 'rich', 'click', 'subprocess', 'ssl', 'asyncio')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.split() == [
        "rmqcli",
        "rmqcli.cli",
        "rmqcli.cli.completion",
        "rmqcli.cli.completion.names",
        "rmqcli.files",
        "rmqcli.transport",
        "rmqcli.transport.topic_list",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["tail", "ord"], ["orders"]),
        (["tail", "orders", "pay"], ["payments"]),
        (["reset-offset", "bill"], ["billing"]),
        (["reset-offset", "billing", "ord"], ["orders"]),
        (["consume", "orders", "--group", "b"], ["billing"]),
        (["send", "orders", "pay"], []),
    ],
)
def test_bash_offers_names_of_the_rmq_that_is_typed(cluster, home, words, offered):
    """The names are in the cache, so the result does not depend on the speed."""
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    names("topic", cluster.namesrv)
    write_all(home / "files")
    program = home / "some venv" / "rmq"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m rmqcli "$@"\n')
    program.chmod(0o755)
    typed = [str(program), *words]
    quoted = " ".join(f"'{word}'" for word in typed)
    script = (
        f"source {home}/files/rmq.bash; COMP_WORDS=({quoted});"
        f" COMP_CWORD={len(typed) - 1}; COMP_LINE={' '.join(words)!r};"
        f" _rmq '{program}' '{words[-1]}'; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        cwd=ROOT,
        env={**os.environ, "NAMESRV_ADDR": cluster.namesrv},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert (done.stdout.split(), done.stderr) == (offered, "")


ZSH_LOOK = """
compdef() { :; }
compadd() { print -rl -- $names; }
source FILE
words=(PROGRAM) BUFFER='rmq ' rmq_program=PROGRAM
_arguments() {
  for spec in "$@"; do
    case $spec in 1:*) eval "${spec##*:}" ;; esac
  done
}
_rmq_reset_offset
"""


def test_zsh_looks_up_names_of_the_kind_that_is_wanted(cluster, home):
    """A space before the function's name keeps zsh from adding its own arguments."""
    if shutil.which("zsh") is None:
        pytest.skip("zsh is not installed")
    names("group", cluster.namesrv)
    write_all(home)
    text = (home / "_rmq").read_text().removesuffix('_rmq "$@"\n')
    (home / "_rmq").write_text(text)
    assert "'1:group: _rmq_names group'" in text
    program = home / "rmq"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m rmqcli "$@"\n')
    program.chmod(0o755)
    script = ZSH_LOOK.replace("FILE", str(home / "_rmq"))
    done = subprocess.run(
        ["zsh", "-f", "-c", script.replace("PROGRAM", str(program))],
        cwd=ROOT,
        env={**os.environ, "NAMESRV_ADDR": cluster.namesrv},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert (done.stdout.split(), done.stderr) == (["billing"], "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_can_read_its_file_of_all_commands(home, shell):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    write_all(home)
    name = "_rmq" if shell == "zsh" else f"rmq.{shell}"
    subprocess.run([shell, "-n", str(home / name)], check=True, timeout=60)


@pytest.fixture
def install(capsys, monkeypatch):
    """Runs `rmq completion install`; returns exit code and stderr."""
    monkeypatch.setenv("SHELL", "/usr/bin/zsh")
    # As on a machine without bash-completion, which loads the files of users.
    monkeypatch.setattr("rmqcli.cli.completion.command._BASH_COMPLETION", ())

    def run_it(*words):
        code = run(["completion", "install", *words])
        return code, capsys.readouterr().err

    return run_it


PLACES = {
    "bash": ".local/share/bash-completion/completions/rmq",
    "zsh": ".local/share/zsh/site-functions/_rmq",
    "fish": ".config/fish/completions/rmq.fish",
}


@pytest.mark.parametrize("shell", sorted(PLACES))
def test_install_writes_once_and_says_what_it_did(install, home, shell):
    path = home / PLACES[shell]
    code, err = install(shell)
    starts = {"bash": ".bashrc", "zsh": ".zshrc"}
    added = f"added 2 lines to {home}/{starts[shell]}\n" if shell in starts else ""
    new = f"start a new {shell} to use it\n"
    assert (code, err) == (0, f"wrote {path}\n{added}{new}")
    source = "_rmq" if shell == "zsh" else f"rmq.{shell}"
    assert path.read_text() == (ROOT / "completions" / source).read_text()
    before = {p: p.read_bytes() for p in home.rglob("*") if p.is_file()}
    loads = f"{home}/{starts[shell]} already loads it\n" if added else ""
    assert install(shell) == (0, f"{path} is up to date\n{loads}{new}")
    assert {p: p.read_bytes() for p in home.rglob("*") if p.is_file()} == before


def test_install_takes_the_shell_of_the_user_and_updates_an_old_file(install, home):
    path = home / PLACES["zsh"]
    path.parent.mkdir(parents=True)
    path.write_text(
        "# Generated by `python -m rmqcli.cli.completion.scripts completions`; old\n"
    )
    (home / ".zshrc").write_text("alias ll='ls -l'")
    code, err = install()
    assert code == 0
    assert f"updated {path}" in err
    assert f"added 2 lines to {home}/.zshrc" in err
    assert (home / ".zshrc").read_text() == (
        "alias ll='ls -l'\n# rmq completion\n"
        f"fpath=({path.parent} $fpath); autoload -Uz compinit && compinit\n"
    )


def test_install_leaves_a_file_of_somebody_else(install, home):
    path = home / PLACES["fish"]
    path.parent.mkdir(parents=True)
    path.write_text("complete -c rmq -a mine\n")
    assert install("fish") == (
        7,
        (
            f"error: {path} exists and was not written by rmq\n"
            "hint: move it away, then run this command again\n"
        ),
    )
    assert path.read_text() == "complete -c rmq -a mine\n"


def test_install_refuses_what_is_no_shell_of_ours(install, monkeypatch):
    assert install("tcsh")[0] == 2
    monkeypatch.setenv("SHELL", "/bin/dash")
    code, err = install()
    hint = "hint: name a shell: rmq completion install bash\n"
    assert code == 2
    assert err == f"error: 'dash' is not one of bash, zsh, fish\n{hint}"
    monkeypatch.delenv("SHELL")
    assert install() == (2, f"error: $SHELL is not set\n{hint}")
