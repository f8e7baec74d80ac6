"""Measure the requests per second of one connection, for several sizes of answers.

    python -m tests.bench.transport [--requests 30000] [--in-flight 48] [--body 8192]

Prints one JSON line per size. The peer is a separate process that answers every frame
with a prepared pull answer. The client is what is measured, so the peer must not be the
slower side. The figure to watch is `us_per_request`, the CPU time of this process.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import struct
import subprocess
import sys
import time
from collections import deque
from typing import TYPE_CHECKING

from rmqcli.transport.remoting import RemotingClient
from rmqcli.wire.command import RemotingCommand

if TYPE_CHECKING:
    from rmqcli.transport.loop import PendingReply

PULL_FIELDS = {
    "consumerGroup": "TOOLS_CONSUMER",
    "topic": "bench",
    "queueId": "3",
    "queueOffset": "123456",
    "maxMsgNums": "32",
    "sysFlag": "4",
    "commitOffset": "0",
    "suspendTimeoutMillis": "0",
    "subscription": "*",
    "subVersion": "0",
    "expressionType": "TAG",
}


def serve(body_bytes: int) -> None:
    """Answer each frame of the first client, with as little work as possible."""
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    sock, _ = listener.accept()
    body = b"x" * body_bytes
    header_start = (
        b'{"code":0,"extFields":{"suggestWhichBrokerId":"0","maxOffset":"2000000",'
        b'"nextBeginOffset":"123488","minOffset":"0"},"flag":1,"language":"JAVA",'
        b'"remark":"FOUND","serializeTypeCurrentRPC":"JSON","version":513,"opaque":'
    )
    pending = b""
    while data := sock.recv(1 << 18):
        pending += data
        answers: list[bytes] = []
        start = 0
        while len(pending) - start >= 4:
            (length,) = struct.unpack_from(">i", pending, start)
            if len(pending) - start < 4 + length:
                break
            at = pending.index(b'"opaque":', start) + 9
            header = header_start + pending[at : pending.index(b",", at)] + b"}"
            length_word = 4 + len(header) + len(body)
            answers += (struct.pack(">iI", length_word, len(header)), header, body)
            start += 4 + length
        pending = pending[start:]
        sock.sendall(b"".join(answers))


def drive(address: str, *, requests: int, in_flight: int) -> float:
    """Keep `in_flight` requests under way until `requests` are answered."""
    client = RemotingClient()
    command = RemotingCommand(11, ext_fields=PULL_FIELDS)
    window: deque[PendingReply[RemotingCommand]] = deque()
    started = time.perf_counter()
    for _ in range(requests):
        if len(window) == in_flight:
            first = window.popleft()
            if not first.is_done:
                client.wait((first,))
            first.result()
        window.append(client.submit(address, command, timeout_ms=30_000))
    client.wait(window)
    seconds = time.perf_counter() - started
    client.close()
    return seconds


def measure(args: argparse.Namespace, *, body_bytes: int) -> None:
    """Run with bodies of one size against a new peer, and print the figures."""
    command = [
        sys.executable,
        "-m",
        "tests.bench.transport",
        "--serve",
        str(body_bytes),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as peer:
        assert peer.stdout is not None
        address = f"127.0.0.1:{int(peer.stdout.readline())}"
        cpu = time.process_time()
        seconds = drive(
            address,
            requests=args.requests,
            in_flight=args.in_flight,
        )
        cpu = time.process_time() - cpu
    figures = {
        "bench": "transport",
        "in_flight": args.in_flight,
        "body_bytes": body_bytes,
        "requests_per_s": round(args.requests / seconds),
        "us_per_request": round(cpu / args.requests * 1e6, 1),
        "mib_per_s": round(args.requests * body_bytes / seconds / 2**20),
        "cpus": os.cpu_count(),
    }
    print(json.dumps(figures))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=30_000)
    parser.add_argument("--in-flight", type=int, default=48)
    parser.add_argument("--body", type=int, action="append")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve is not None:
        serve(args.serve)
        return
    for body_bytes in args.body or (128, 8192, 65536):
        measure(args, body_bytes=body_bytes)


if __name__ == "__main__":
    main()
