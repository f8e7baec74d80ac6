"""`rmq tail` shortens large bodies on a terminal, but leaves them recognisable."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rmqcli.broker.cluster.embedded import EmbeddedCluster
from tests.kit.records import checked_records

ROOT = Path(__file__).parents[3]
SIZE = 3_000_000
#: A few screens of text, in characters.
SHOWN_MAX = 20_000


def on_a_terminal(*arguments):
    """Run `rmq` with a terminal as stdout; return what it writes there."""
    ours, theirs = pty.openpty()
    shown = bytearray()

    def read():
        try:
            while data := os.read(ours, 1 << 16):
                shown.extend(data)
        except OSError:  # no process has the terminal open any more
            pass

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "rmqcli", *arguments],
            cwd=ROOT,
            stdout=theirs,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            timeout=120,
            check=False,
        )
    finally:
        os.close(theirs)
    reader.join(60)
    os.close(ours)
    assert done.returncode == 0, done.stderr
    return bytes(shown).decode().replace("\r\n", "\n")


@pytest.fixture(scope="module")
def cluster():
    bodies = [
        b"first\n" + b"\n" * (SIZE - 6),
        b"second\n" + b"x" * (SIZE - 7),
        b"third\n" + "é".encode() * ((SIZE - 6) // 2),
        json.dumps({"fourth": "x" * (SIZE - 13)}, separators=(",", ":")).encode(),
        b"[" * 900 + b"]" * 900,
        json.dumps([6] * 1_300, separators=(",", ":")).encode(),
    ]
    with EmbeddedCluster(queues=1) as cluster:
        cluster.create_topic("T")
        for body in bodies:
            cluster.send("T", [body])
        yield cluster, bodies


@pytest.mark.slow
@pytest.mark.parametrize("output", [[], ["-o", "pretty"], ["-o", "hex"]])
@pytest.mark.parametrize("number", range(4))
def test_a_large_body_is_cut_and_the_note_says_how_to_see_it_whole(
    cluster, number, output
):
    place = ["--from", str(number), "--to", str(number + 1), *output]
    shown = on_a_terminal("tail", "T", "-n", cluster[0].namesrv, *place)
    assert len(shown) < SHOWN_MAX
    assert shown.count("\n") < 250
    word = ("first", "second", "third", "fourth")[number]
    assert word in shown
    note = shown.splitlines()[-1]
    assert note.startswith("... (2,99")
    assert note.endswith(" of 3,000,000 bytes left out; -o raw writes all of them)")
    assert "\\x" not in shown  # no character was cut in two


@pytest.mark.parametrize("number", [4, 5])
def test_json_that_would_fill_screens_when_laid_out_is_shown_as_it_came(
    cluster, number
):
    _, bodies = cluster
    place = ["--from", str(number), "--to", str(number + 1)]
    shown = on_a_terminal("tail", "T", "-n", cluster[0].namesrv, *place)
    assert len(shown) < SHOWN_MAX
    _, *lines = shown.splitlines()
    assert "".join(line.removeprefix("  ") for line in lines) == bodies[number].decode()


@pytest.mark.slow
@pytest.mark.parametrize("number", range(4))
def test_a_record_on_a_terminal_has_a_cut_body_and_says_so(cluster, number):
    place = ["--from", str(number), "--to", str(number + 1), "-o", "jsonl"]
    for decode in ([], ["--decode", "json"]):
        shown = on_a_terminal("tail", "T", "-n", cluster[0].namesrv, *place, *decode)
        assert len(shown) < SHOWN_MAX
        [record] = checked_records(shown.splitlines())
        assert record["truncated"] is True
        assert record.get("value") is None
        assert 4090 < len(record["body"].encode()) <= 4096
        assert record["body_encoding"] == "utf-8"


@pytest.mark.parametrize("letter", ["v", "x", "y"])
def test_a_body_in_a_template_is_cut_on_a_terminal(cluster, letter):
    place = ["--from", "2", "--to", "3", "--format", f"%{letter}\\n"]
    shown = on_a_terminal("tail", "T", "-n", cluster[0].namesrv, *place)
    assert len(shown) < SHOWN_MAX
    assert shown.endswith("... (2,995,904 bytes more)\n")


@pytest.mark.slow
@pytest.mark.parametrize("number", range(6))
def test_raw_is_the_whole_body(cluster, number):
    command = [sys.executable, "-m", "rmqcli", "tail", "T", "-o", "raw"]
    place = ["--from", str(number), "--to", str(number + 1)]
    done = subprocess.run(
        [*command, *place, "-n", cluster[0].namesrv],
        cwd=ROOT,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == cluster[1][number] + b"\n"


@pytest.mark.slow
def test_hex_that_goes_to_a_file_is_whole(cluster):
    command = [sys.executable, "-m", "rmqcli", "tail", "T", "-o", "hex"]
    done = subprocess.run(
        [*command, "--from", "1", "--to", "2", "-n", cluster[0].namesrv],
        cwd=ROOT,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert len(done.stdout.splitlines()) == 1 + SIZE // 16


def test_a_template_without_a_newline_leaves_no_line_open(cluster):
    """The summary followed the last body: `second42 shown, 2 read`."""
    place = ["--from", "0", "--to", "2", "-n", cluster[0].namesrv]
    assert on_a_terminal("tail", "T", *place, "--format", "%o,") == "0,1,\n"
    assert on_a_terminal("tail", "T", *place, "--format", r"%o\n") == "0\n1\n"
