"""`python -m tests.kit.up`: a real RocketMQ in the foreground, to try things on.

Fetches the version with Maven the first time, starts name server and broker on free
ports of 127.0.0.1, fills a topic, prints what to type next, and ends with Ctrl-C.
"""

from __future__ import annotations

import argparse
import signal
import tempfile
import threading
from pathlib import Path

from tests.kit.artefacts import VERSIONS
from tests.kit.cluster import RealCluster
from tests.kit.java_program import fill

#: For big fills: fewer, larger files.
_BIG_CONF = {"mappedFileSizeCommitLog": 1 << 30, "mappedFileSizeConsumeQueue": 6000000}
_BIG_FROM = 200_000


def main() -> None:
    """Parse, start, fill, wait for a signal, stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", choices=VERSIONS, default=VERSIONS[-1])
    parser.add_argument("--brokers", type=int, default=1)
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--queues", type=int, default=8)
    parser.add_argument("--messages", type=int, default=2000)
    parser.add_argument("--body-bytes", type=int, default=128)
    parser.add_argument("--heap-mb", type=int, default=512)
    parser.add_argument(
        "--proxy",
        action="store_true",
        help="run the broker inside a proxy, which serves gRPC (5.x)",
    )
    options = parser.parse_args()
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    conf = _BIG_CONF if options.messages >= _BIG_FROM else {}
    with (
        tempfile.TemporaryDirectory(prefix="rmq-up-") as directory,
        RealCluster(
            options.version,
            Path(directory),
            brokers=options.brokers,
            conf=conf,
            heap_mb=options.heap_mb,
            proxy=options.proxy,
        ) as cluster,
    ):
        cluster.create_topic(options.topic, queues=options.queues)
        if options.messages:
            fill(
                cluster, options.topic, options.messages, body_bytes=options.body_bytes
            )
        print(f"RocketMQ {options.version} is up; in another terminal:", flush=True)
        print(f"  export NAMESRV_ADDR={cluster.namesrv}", flush=True)
        if options.proxy:
            print(f"  export ROCKETMQ_ENDPOINTS={cluster.endpoints}", flush=True)
        print(f"  rmq tail {options.topic} --last 3 --no-follow", flush=True)
        print("Ctrl-C ends it.", flush=True)
        over.wait()


if __name__ == "__main__":
    main()
