"""Measure the speed of the embedded broker. Prints one JSON line for each figure.

    python -m tests.bench.broker [--only start|sends|batches|pulls|latency|held|folder]
        [--store DIR] [--flush async|sync] [--seconds 3] [--messages 5000000]

The broker is a separate process of `rmq serve`, and keeps messages in memory unless
--store is given. This process is the client; it writes prepared frames and only counts
answers. The figure to watch is `broker_us`, the broker's CPU time for each message,
because the rate depends on the load of the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import NamedTuple

from rmqcli.wire.command import RemotingCommand, decode_command, encode_command
from rmqcli.wire.frame import Frame, FrameBuffer
from rmqcli.wire.message.batch import BatchItem, encode_batch
from rmqcli.wire.message.decode import DecodeFailure, decode_messages

TOPIC = "bench"
BODY = b"x" * 128
QUEUES = 8
IN_FLIGHT = 128


class Served(NamedTuple):
    """A running `rmq serve`; `ready_ms` passed until its name server answered.

    `address` is that of the first broker.
    """

    process: subprocess.Popen[str]
    address: str
    ready_ms: float

    def cpu_s(self):
        with open(f"/proc/{self.process.pid}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_mib(self):
        with open(f"/proc/{self.process.pid}/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


@contextmanager
def served(*options):
    """Run `rmq serve` on free ports, and wait until its name server answers."""
    command = [sys.executable, "-m", "rmqcli", "serve", "--listen", "127.0.0.1:0"]
    began = time.perf_counter()
    process = subprocess.Popen(
        [*command, "-o", "jsonl", "-q", "--queues", str(QUEUES), *options],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        names = json.loads(process.stdout.readline())
        broker = json.loads(process.stdout.readline())
        with Client(names["address"]) as client:
            client.sock.sendall(frame(106))
            client.receive(1)
        ready_ms = (time.perf_counter() - began) * 1000
        yield Served(process, broker["address"], ready_ms)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)


class Client:
    """One connection, which raises RuntimeError for an answer that is not a success."""

    def __init__(self, address):
        host, _, port = address.rpartition(":")
        self.sock = socket.create_connection((host, int(port)), 30)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = FrameBuffer()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def frames(self):
        """Read once from the socket, and return the complete frames."""
        room = self.buffer.writable()
        count = self.sock.recv_into(room)
        room.release()
        if not count:
            raise EOFError("the broker closed the connection")
        return self.buffer.wrote(count)

    def receive(self, count):
        """Read at least `count` answers, and check that they are successes."""
        found: list[Frame] = []
        while len(found) < count:
            found += self.frames()
        for each in found:
            if not each.header.startswith(b'{"code":0,'):
                raise RuntimeError(each.header.decode())
        return found

    def pump(self, requests):
        """Send all requests, at most `IN_FLIGHT` at a time.

        Returns the number of bytes in the answers' bodies.
        """
        waiting, total = 0, 0
        pending = iter(requests)
        is_more = True
        while is_more or waiting:
            burst = []
            while is_more and waiting < IN_FLIGHT:
                request = next(pending, None)
                if request is None:
                    is_more = False
                    break
                burst.append(request)
                waiting += 1
            if burst:
                self.sock.sendall(b"".join(burst))
            for answer in self.receive(1):
                total += len(answer.body)
                waiting -= 1
        return total


def frame(code, body=b"", **ext_fields):
    fields = {key: str(value) for key, value in ext_fields.items()}
    return encode_command(RemotingCommand(code, ext_fields=fields, body=body))


def send_fields(queue_id, *, batch):
    return {
        "a": "bench-producer",
        "b": TOPIC,
        "c": "TBW102",
        "d": QUEUES,
        "e": queue_id,
        "f": 0,
        "g": 1_700_000_000_000,
        "h": 0,
        "i": "UNIQ_KEY\x017F000001000000000000000000000001\x02WAIT\x01true\x02",
        "j": 0,
        "k": "false",
        "m": "true" if batch else "false",
    }


def single_send(queue_id, body=BODY):
    return frame(310, body, **send_fields(queue_id, batch=False))


def batch_send(queue_id, count):
    item = BatchItem(
        body=BODY, properties={"UNIQ_KEY": "7F000001000000000000000000000001"}
    )
    return frame(320, encode_batch([item] * count), **send_fields(queue_id, batch=True))


def pull(queue_id, offset, *, suspend_ms=0, count=32):
    return frame(
        11,
        consumerGroup="bench-group",
        topic=TOPIC,
        queueId=queue_id,
        queueOffset=offset,
        maxMsgNums=count,
        sysFlag=6 if suspend_ms else 4,
        commitOffset=0,
        suspendTimeoutMillis=suspend_ms,
        subscription="*",
        subVersion=0,
        expressionType="TAG",
    )


def report(name, **figures):
    print(json.dumps({"bench": f"broker.{name}", **figures, "cpus": os.cpu_count()}))


def report_rate(name, broker, client, requests, *, messages):
    """Send the requests; report messages per second and the broker's CPU time."""
    cpu, began = broker.cpu_s(), time.perf_counter()
    body_bytes = client.pump(requests)
    seconds = time.perf_counter() - began
    report(
        name,
        messages=messages,
        messages_per_s=round(messages / seconds),
        broker_us=round((broker.cpu_s() - cpu) / messages * 1e6, 2),
        body_bytes=body_bytes,
    )


def bench_start(_args, options):
    from rmqcli.broker.cluster.embedded import EmbeddedCluster

    ready = []
    for _ in range(5):
        with served(*options) as broker:
            ready.append(broker.ready_ms)
    in_process = []
    for _ in range(10):
        began = time.perf_counter()
        with EmbeddedCluster() as cluster, Client(cluster.namesrv) as client:
            client.sock.sendall(frame(106))
            client.receive(1)
            in_process.append((time.perf_counter() - began) * 1000)
    report(
        "start",
        ready_ms_median=round(sorted(ready)[2]),
        in_process_ms_median=round(sorted(in_process)[5], 1),
    )


def bench_sends(args, options):
    with served(*options) as broker, Client(broker.address) as client:
        frames = [single_send(queue) for queue in range(QUEUES)]
        client.pump(frames)
        count = int(10_000 * args.seconds)
        requests = (frames[n % QUEUES] for n in range(count))
        report_rate("sends", broker, client, requests, messages=count)


def bench_batches(args, options):
    with served(*options) as broker, Client(broker.address) as client:
        frames = [batch_send(queue, 200) for queue in range(QUEUES)]
        client.pump(frames)
        count = int(300 * args.seconds)
        requests = (frames[n % QUEUES] for n in range(count))
        report_rate("batches", broker, client, requests, messages=count * 200)


def bench_pulls(args, options):
    each = 20_000
    with served(*options) as broker, Client(broker.address) as client:
        frames = [batch_send(queue, 200) for queue in range(QUEUES)]
        client.pump(frames[n % QUEUES] for n in range(each // 200 * QUEUES))
        requests = [
            pull(queue, offset)
            for queue in range(QUEUES)
            for offset in range(0, each, 32)
        ]
        rounds = max(1, int(args.seconds))
        report_rate(
            "pulls", broker, client, requests * rounds, messages=each * QUEUES * rounds
        )


def bench_latency(args, options):
    """Measure the time from a send to the answer of a held pull, at 1,000 sends/s."""
    with (
        served(*options) as broker,
        Client(broker.address) as producer,
        Client(broker.address) as consumer,
    ):
        producer.pump([single_send(0)])
        consumer.sock.sendall(pull(0, 1, suspend_ms=15_000))
        count = int(1_000 * args.seconds)
        latencies_ms = consume_paced(producer, consumer, count=count)
    latencies_ms.sort()
    report(
        "latency",
        messages=count,
        p50_ms=round(latencies_ms[count // 2], 3),
        p99_ms=round(latencies_ms[count * 99 // 100], 3),
        max_ms=round(latencies_ms[-1], 3),
    )


def consume_paced(producer, consumer, *, count):
    latencies_ms: list[float] = []
    began, sent = time.perf_counter(), 0
    while len(latencies_ms) < count:
        due = began + sent / 1_000
        wait_s = max(0, due - time.perf_counter()) if sent < count else 5
        ready, _, _ = select.select([producer.sock, consumer.sock], [], [], wait_s)
        if consumer.sock in ready:
            for answer in consumer.frames():
                now_ns = time.perf_counter_ns()
                latencies_ms += [
                    (now_ns - int(message.body)) / 1e6
                    for message in decode_messages(answer.body)
                    if not isinstance(message, DecodeFailure)
                ]
                after = decode_command(answer).ext_fields["nextBeginOffset"]
                consumer.sock.sendall(pull(0, after, suspend_ms=15_000))
        if producer.sock in ready:
            producer.frames()
        if sent < count and time.perf_counter() >= due:
            body = b"%d" % time.perf_counter_ns()
            producer.sock.sendall(single_send(0, body))
            sent += 1
    return latencies_ms


def bench_held(args, options):
    with served(*options) as broker, Client(broker.address) as client:
        client.pump([single_send(queue) for queue in range(QUEUES)])
        clients = [Client(broker.address) for _ in range(1_000)]
        for number, each in enumerate(clients):
            each.sock.sendall(pull(number % QUEUES, 1, suspend_ms=600_000))
        rest(1)
        cpu, began = broker.cpu_s(), time.perf_counter()
        rest(max(10, args.seconds))
        used = (broker.cpu_s() - cpu) / (time.perf_counter() - began)
        answered = len(select.select([each.sock for each in clients], [], [], 0)[0])
        report(
            "held",
            pulls=len(clients),
            answered=answered,
            idle_cpu_percent=round(used * 100, 2),
            rss_mib=round(broker.rss_mib()),
        )
        for each in clients:
            each.sock.close()


def bench_folder(args, options):
    """Measure the opening of a folder with many messages: after a stop, and a kill."""
    if "--store" not in options:
        return report("folder", skipped="needs --store")
    frames = [batch_send(queue, 200) for queue in range(QUEUES)]
    with served(*options) as broker, Client(broker.address) as client:
        cpu = broker.cpu_s()
        client.pump(frames[n % QUEUES] for n in range(args.messages // 200))
        fill_cpu_s = broker.cpu_s() - cpu
    with served(*options) as broker, Client(broker.address) as client:
        clean_ms, clean_cpu_s = broker.ready_ms, broker.cpu_s()
        client.pump(frames)
        broker.process.kill()
        broker.process.wait()
    with served(*options) as broker:
        return report(
            "folder",
            messages=args.messages,
            fill_cpu_s=round(fill_cpu_s, 1),
            clean_ms=round(clean_ms),
            clean_cpu_s=round(clean_cpu_s, 2),
            killed_ms=round(broker.ready_ms),
            killed_cpu_s=round(broker.cpu_s(), 2),
        )


def rest(seconds):
    select.select([], [], [], seconds)


BENCHES = {
    "start": bench_start,
    "sends": bench_sends,
    "batches": bench_batches,
    "pulls": bench_pulls,
    "latency": bench_latency,
    "held": bench_held,
    "folder": bench_folder,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=BENCHES, action="append")
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--store")
    parser.add_argument("--messages", type=int, default=5_000_000)
    parser.add_argument("--flush", choices=("async", "sync"))
    args = parser.parse_args()
    options = ["--flush", args.flush] if args.flush else []
    for name in args.only or BENCHES:
        folder = []
        if args.store:
            folder = ["--store", os.path.join(args.store, name)]
        BENCHES[name](args, [*folder, *options])


if __name__ == "__main__":
    main()
