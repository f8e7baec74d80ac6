r"""Every command can show names and texts of peers that have control characters.

A name server returns a broker whose name has a lone surrogate (in JSON: `\ud800`), DEL
and a C1 control; messages have DEL, C1 and more in every field. Each form of output is
valid UTF-8; on terminals, on stderr and in JSON, control characters are escaped.
"""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import sys
import threading

import pytest

from rmqcli.api.calls.offset import update_consumer_offset
from rmqcli.api.client import Client
from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.broker.cluster.seeding import Seed
from rmqcli.cli.main import prepare_stdout, run
from rmqcli.config import ClientConfig
from rmqcli.transport.remoting import RemotingClient
from rmqcli.wire.command import RemotingCommand
from tests.transport.peer import Peer

#: The odd name as a name server writes it in JSON; it replaces broker-a.
ODD = b"b-\\ud800x\\udc80\\u007f\\u009b\\u001b[2J"
SHOWN = r"b-\ud800x\udc80\x7f\x9b\x1b[2J"
IN_JSON = "b-\ud800x\udc80\x7f\x9b\x1b[2J"


def odd_names(namesrv):
    """Return a script for Peer: a relay that puts the odd name into the answers."""

    def script(connection):
        with RemotingClient() as client:
            for request in connection.requests():
                asked = RemotingCommand(
                    request.code, ext_fields=request.ext_fields, body=request.body
                )
                answer = client.invoke(namesrv, asked, timeout_ms=5_000)
                connection.answer(
                    request,
                    code=answer.code,
                    remark=answer.remark,
                    ext_fields=answer.ext_fields,
                    body=(answer.body or b"").replace(b"broker-a", ODD),
                )

    return script


@pytest.fixture(scope="module")
def address():
    """The address of the odd name server of a cluster.

    Topic T has one message, and group G has committed an offset there.
    """
    with EmbeddedCluster(queues=1) as cluster:
        cluster.create_topic("T")
        seed = Seed(
            body=b"{\x7f\xc2\x9b",
            tags="t\x7f",
            keys="k\x9b",
            properties={"odd\x7f": "\ufffe\x9b"},
        )
        cluster.send("T", [seed])
        cluster.create_group("G")
        with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
            call = update_consumer_offset("G", "T", 0, commit_offset=0)
            client.invoke(cluster.broker().address, call)
        with Peer(odd_names(cluster.namesrv)) as peer:
            yield peer.address


def rmq(address, *arguments):
    """Run `rmq` without a terminal; return exit code, stdout as bytes, and stderr."""
    out, err = io.BytesIO(), io.BytesIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", io.TextIOWrapper(out))
        patch.setattr(
            sys, "stderr", io.TextIOWrapper(err, "utf-8", errors="backslashreplace")
        )
        prepare_stdout()
        code = run([*arguments, "-n", address])
        sys.stdout.flush()
        sys.stderr.flush()
        return code, out.getvalue(), err.getvalue().decode()


def on_a_terminal(address, *arguments):
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
    with (
        open(theirs, "w", encoding="utf-8") as stdout,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(sys, "stdout", stdout)
        prepare_stdout()
        assert run([*arguments, "-n", address]) == 0
    reader.join(60)
    os.close(ours)
    return bytes(shown).decode().replace("\r\n", "\n")


def controls(text):
    return sorted(
        {c for c in text if (ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160}
    )


WHOLE = ["--from", "earliest", "--to", "latest"]
TEMPLATE = r"%t|%b|%q|%o|%i|%g|%k|%p|%p{TAGS}|%h|%v|%j\n"
COMMANDS = [
    ["tail", "T", *WHOLE, "-o", "pretty"],
    ["tail", "T", *WHOLE, "-o", "table"],
    ["tail", "T", *WHOLE, "-o", "json"],
    ["tail", "T", *WHOLE, "-o", "jsonl"],
    ["tail", "T", *WHOLE, "-o", "hex"],
    ["tail", "T", *WHOLE, "-o", "csv"],
    ["tail", "T", *WHOLE, "--format", TEMPLATE],
    *(["lag", "G", "-o", form] for form in ("table", "json", "jsonl", "csv")),
    *(["topics", "-o", form] for form in ("table", "csv")),
    *(["topic", "show", "T", "-o", form] for form in ("table", "json")),
    *(["brokers", "-o", form] for form in ("table", "json", "csv")),
    *(["groups", "-o", form] for form in ("table", "jsonl")),
    *(["group", "show", "G", "-o", form] for form in ("table", "json")),
    *(["reset-offset", "G", "T", "--to", "latest", "-o", f] for f in ("table", "json")),
]


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_every_command_shows_them_in_every_form(address, arguments):
    code, out, err = rmq(address, *arguments)
    assert code == 0, err
    out.decode()  # raises unless it is UTF-8
    assert controls(err) == []
    assert "Traceback" not in err
    if arguments[-1] in ("json", "jsonl"):
        text = out.decode()
        assert controls(text) == []
        for document in text.splitlines() if arguments[-1] == "jsonl" else [text]:
            json.loads(document)


@pytest.mark.parametrize("arguments", [*COMMANDS[:9], COMMANDS[-1]], ids=" ".join)
def test_no_control_character_of_theirs_reaches_a_terminal(address, arguments):
    shown = on_a_terminal(address, *arguments, "--color", "never")
    assert controls(shown) == []
    assert "\u2028" not in shown


def test_the_name_is_there_in_each_form(address):
    _, out, _ = rmq(address, "tail", "T", *WHOLE, "--format", "%b")
    assert out == b"b-\\ud800x\\udc80\x7f\xc2\x9b\x1b[2J"  # not escaped in a pipe
    shown = on_a_terminal(address, "tail", "T", *WHOLE, "--format", "%b")
    assert shown == f"{SHOWN}\n"
    _, out, _ = rmq(address, "tail", "T", *WHOLE, "--format", r"%j\n")
    assert json.loads(out)["broker_name"] == IN_JSON
    _, out, _ = rmq(address, "tail", "T", *WHOLE, "-o", "jsonl")
    assert json.loads(out)["broker_name"] == IN_JSON
    assert b"\\u007f\\u009b\\u001b" in out
    _, out, _ = rmq(address, "brokers", "-o", "json")
    assert [row["broker_name"] for row in json.loads(out)] == [IN_JSON]
    _, out, _ = rmq(address, "brokers")
    assert SHOWN in out.decode()
    _, out, _ = rmq(address, "brokers", "-o", "csv")
    (row,) = csv.DictReader(io.StringIO(out.decode()))
    assert row["broker_name"] == "b-\\ud800x\\udc80\x7f\x9b\x1b[2J"


def test_errors_as_json_escape_them_too(address, capfd):
    place = ["--queue", "b-\x7f\x9b:9", "-o", "json", "-n", address]
    assert run(["tail", "T", *WHOLE, *place]) == 3
    err = capfd.readouterr().err.splitlines()[-1]
    assert controls(err) == []
    assert "\\u007f\\u009b" in err
    assert json.loads(err)["error"]["kind"] == "NotFoundError"
