"""Measure `rmq exporter` over many groups of a real broker. Prints one JSON line each.

    python -m tests.bench.exporter [--groups 5000] [--topics 900] [--version 5.5.0]

Measured are how long a collection takes, what one costs the broker in CPU time, beside
what it uses without an exporter, how long scrapes take meanwhile, as Prometheus makes
them and without compression, beside answers that need no page (/healthz), and the
memory of the exporter. Then what scrapes would cost if each of them asked the brokers,
as with rocketmq-exporter, with `--scrapers` at a time: `rmq exporter --once`.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rmqcli.api.client import Client
from rmqcli.config import ClientConfig, parse_namesrv
from rmqcli.exporter.collect import CollectorOptions, MetricsCollector
from tests.bench.lag_many import write_config
from tests.kit import configuration
from tests.kit.cluster import RealCluster
from tests.kit.waiting import wait_until

#: How often the exporter collects.
INTERVAL_S = 12


def cpu_s(pid: int) -> float:
    """The CPU time of a process, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int, name: str) -> int:
    """VmRSS or VmHWM of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) // 1024
    return 0


def scrape(
    address: str, *, gzip: bool = True, path: str = "/metrics"
) -> tuple[float, int]:
    """Return the milliseconds and bytes of one scrape, as Prometheus sends it."""
    headers = {"Accept": "application/openmetrics-text;version=1.0.0"}
    if gzip:
        headers["Accept-Encoding"] = "gzip"
    began = time.perf_counter()
    connection = http.client.HTTPConnection(address, timeout=60)
    connection.request("GET", path, headers=headers)
    size = len(connection.getresponse().read())
    connection.close()
    return (time.perf_counter() - began) * 1000, size


def lines_of(address: str) -> list[str]:
    """Return the lines of the page."""
    connection = http.client.HTTPConnection(address, timeout=60)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    return text.splitlines()


def value_of(address: str, metric: str) -> float | None:
    """Return the value of a metric without labels; None before the first page."""
    for line in lines_of(address):
        if line.startswith(f"{metric} "):
            return float(line.split()[1])
    return None


def scrapes(
    address: str, seconds: float, *, gzip: bool = True, path: str = "/metrics"
) -> dict[str, object]:
    """Scrape for some time, ten times a second."""
    taken = []
    size = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        took_ms, size = scrape(address, gzip=gzip, path=path)
        taken.append(took_ms)
        time.sleep(0.1)
    taken.sort()
    return {
        "scrapes": len(taken),
        "p50_ms": round(statistics.median(taken), 1),
        "p99_ms": round(taken[min(len(taken) - 1, len(taken) * 99 // 100)], 1),
        "bytes": size,
    }


def main() -> None:
    """Write the files, start the broker on them and the exporter, measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=5000)
    parser.add_argument("--topics", type=int, default=900)
    parser.add_argument("--queues", type=int, default=8)
    parser.add_argument("--max-series", type=int, default=100_000)
    parser.add_argument("--scrapers", type=int, default=2)
    parser.add_argument("--version", default="5.5.0")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rmq-bench-") as folder:
        os.environ["XDG_STATE_HOME"] = folder
        directory = Path(folder)
        write_config(
            directory / f"store-{configuration.broker_name(0)}",
            groups=arguments.groups,
            topics=arguments.topics,
            queues=arguments.queues,
        )
        with RealCluster(arguments.version, directory) as cluster:
            measure(cluster, arguments)


def measure(cluster: RealCluster, arguments: argparse.Namespace) -> None:
    """Run the exporter and print what was measured."""
    command = [sys.executable, "-m", "rmqcli", "exporter", "-n", cluster.namesrv]
    command += ["--interval", f"{INTERVAL_S}s", "--timeout", "5m"]
    command += ["--max-series", str(arguments.max_series)]
    broker = cluster.broker_pid()
    with subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            address = url.removeprefix("http://").removesuffix("/metrics")
            total = "rocketmq_exporter_collections_total"
            wait_until(lambda: (value_of(address, total) or 0) >= 2)  # rates, too
            duration = "rocketmq_exporter_collection_duration_seconds"
            cycle_s = INTERVAL_S * (
                1 + (value_of(address, duration) or 0) // INTERVAL_S
            )
            before = cpu_s(broker), cpu_s(process.pid), value_of(address, total)
            found = scrapes(address, cycle_s)
            after = cpu_s(broker), cpu_s(process.pid), value_of(address, total)
            rounds = max(1.0, (after[2] or 0) - (before[2] or 0))
            result = {
                "groups": arguments.groups,
                "collection_s": value_of(address, duration),
                "series": sum(line[0] != "#" for line in lines_of(address)),
                "broker_cpu_s": round((after[0] - before[0]) / rounds, 2),
                "exporter_cpu_s": round((after[1] - before[1]) / rounds, 2),
                "rss_mb": memory_mb(process.pid, "VmRSS"),
                "peak_mb": memory_mb(process.pid, "VmHWM"),
            }
            print(json.dumps({**result, **found}), flush=True)
            healthz = scrapes(address, 3, path="/healthz")
            print(json.dumps({"without a page": healthz}), flush=True)
            plain = scrapes(address, 3, gzip=False)
            print(json.dumps({"without gzip": plain}), flush=True)
        finally:
            process.terminate()
            process.wait()
    before_s = cpu_s(broker)
    time.sleep(INTERVAL_S)  # as long as a collection and its pause
    alone = {"broker_cpu_s": round(cpu_s(broker) - before_s, 2)}
    print(json.dumps({"without an exporter": alone}), flush=True)
    before_s, began = cpu_s(broker), time.perf_counter()
    asking = [
        subprocess.Popen([*command, "--once"], stdout=subprocess.DEVNULL)
        for _ in range(arguments.scrapers)
    ]
    for each in asking:
        each.wait()
    by_scrape = {
        "scrapers": arguments.scrapers,
        "scrape_s": round(time.perf_counter() - began, 2),
        "broker_cpu_s": round(cpu_s(broker) - before_s, 2),
        "requests": arguments.scrapers * requests_of(cluster.namesrv),
    }
    print(json.dumps({"one scrape = all requests": by_scrape}), flush=True)


def requests_of(namesrv: str) -> int:
    """Return how many requests of one collection are answered."""
    config = ClientConfig(namesrv=parse_namesrv(namesrv), timeout_ms=300_000)
    with Client(config) as client:
        MetricsCollector(client, CollectorOptions()).collect()
        return client.remoting.counters.frames


if __name__ == "__main__":
    main()
