"""Runs the commands of a document as they stand, one after the other, in one shell.

What they find there: a cluster with some orders and a group that has consumed a part of
them, the files that they name, and a home folder of their own. The addresses in the
document are replaced by those of the cluster.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

from rmqcli.api.calls.offset import update_consumer_offset
from rmqcli.api.client import Client
from rmqcli.config import ClientConfig
from rmqcli.testing import Seed
from tests.kit.documents import ROOT, examples
from tests.kit.guard import MARK
from tests.kit.waiting import PATIENCE_S

#: For all commands of a document; a hang of one of them reaches it.
_LIMIT_S = 2 * PATIENCE_S

NAMESRV = "127.0.0.1:9876"
ENDPOINTS = "127.0.0.1:8081"
#: What is on the path as `rmq`.
_RMQ = Path(__file__).with_name("rmq.py")
#: Ends at the first command that fails, and names it.
_SHELL = """
set -e -o pipefail
trap 'echo "failed: $BASH_COMMAND" >&2' ERR
"""


def start_cluster(factory, home):
    """Start a cluster with 20 orders in 4 queues, and the group billing behind."""
    cluster = factory(proxy=True, store=home / "store")
    cluster.create_topic("orders", queues=4)
    cluster.create_topic("payments")
    cluster.create_topic("steps", attributes={"message.type": "FIFO"})
    for number in range(20):
        body = f'{{"id": {number}, "customer": {{"id": {40 + number}}}}}'
        order = Seed(
            body=body.encode(),
            tags=("New", "Paid", "Shipped")[number % 3],
            keys=[f"order-{number}"],
            properties={"region": ("eu-west", "us")[number % 2], "amount": str(number)},
        )
        cluster.send("orders", [order], queue_id=number % 4)
    cluster.send("payments", ['{"amount": 1.5, "currency": "EUR"}'])
    cluster.create_group("billing")
    cluster.send("%RETRY%billing", ["again"])
    cluster.create_topic("%DLQ%billing", queues=1)
    letter = Seed(body=b"{}", properties={"RETRY_TOPIC": "orders", "region": "us"})
    cluster.send("%DLQ%billing", [letter])
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        for queue_id in range(4):
            call = update_consumer_offset(
                "billing", "orders", queue_id, commit_offset=1
            )
            client.invoke(cluster.broker().address, call)
    return cluster


def write_files(document, home):
    """Write the files that the commands name: those of the document, and a few more."""
    for each in examples(document):
        if each.language in ("json", "toml") and each.note:
            path = home / each.note
            path.write_text(each.text, encoding="utf-8")
            path.chmod(0o600)
    charge = home / "charge.sh"
    charge.write_text("#!/bin/sh\ncat > charged\n")
    charge.chmod(0o700)
    (home / "orders.txt").write_text("a\nb\nc\n")
    (home / "invoice.pdf").write_bytes(b"%PDF")
    (home / "tmp").mkdir()
    bin_folder = home / "bin"
    bin_folder.mkdir()
    rmq = bin_folder / "rmq"
    rmq.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{_RMQ}" "$@"\n')
    rmq.chmod(0o700)
    (bin_folder / "python3").symlink_to(sys.executable)
    return bin_folder


def run_commands(document, cluster, home, *, spark=False):
    """Run the commands of a document in `home`; return the ended process.

    With `spark`, those that need Spark, too. The process has failed as soon as one of
    its commands has.
    """
    bin_folder = write_files(document, home)
    blocks = [
        each.text for each in examples(document)
        if each.language == "sh" and each.note in ("", "spark")[: 1 + spark]
        and not each.has_mark
    ]  # fmt: skip
    script = _SHELL + "".join(blocks)
    script = script.replace(NAMESRV, cluster.namesrv)
    if ENDPOINTS in script:
        script = script.replace(ENDPOINTS, cluster.endpoints)
    kept = ("LANG", "JAVA_HOME", "VIRTUAL_ENV", "SPARK_SUBMIT_OPTS", MARK)
    with subprocess.Popen(
        ["bash", "-c", script],
        cwd=home,
        env={
            **{name: os.environ[name] for name in kept if name in os.environ},
            "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(home),
            "TMPDIR": str(home / "tmp"),
            "PYTHONPATH": str(ROOT),
            "NAMESRV_ADDR": cluster.namesrv,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=_LIMIT_S)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def rmq_commands(text):
    """Return the words after each `rmq` in lines of a shell, without redirections."""
    found = []
    for line in text.replace("\\\n", "").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|<>;&")
        lexer.whitespace_split = True
        command: list[str] = []
        for word in [*lexer, "|"]:
            if word.strip("|<>;&"):
                command.append(word)
                continue
            while command and "=" in command[0]:  # variables
                command.pop(0)
            if command[:1] == ["rmq"]:
                found.append(command[1:])
            command = []
    return found
