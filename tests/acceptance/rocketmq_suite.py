"""Runs RocketMQ's own integration tests against a cluster of another process.

    python -m tests.acceptance.rocketmq_suite [--on embedded|5.5.0] [CLASS ...]

The tests come from RocketMQ's jar of tests, which Maven fetches once. They are made to
start their servers themselves: `java/IntegrationTestBase.java` takes the place of the
class that does so. A test that needs more of a broker's inside than that class gives is
skipped. CLASS is a name below `org.apache.rocketmq.test`; without one, those run that a
real broker passes. Prints what does not pass, and a count for each class.
Exits with 1 when a test fails, or a class runs none.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rmqcli.broker.cluster.embedded import EmbeddedCluster
from tests.kit.artefacts import COPY_GOAL, cache_root, made_once, run_tool
from tests.kit.cluster import RealCluster

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

VERSION: Final = "5.5.0"
_JAVA: Final = Path(__file__).resolve().parent / "java"
_TIMEOUT_S: Final = 600
_BROKERS: Final = 3

#: What a real broker of VERSION passes, run as this program runs it. OffsetResetIT is
#: not among them: it compares offsets that are not read at the same moment here.
CLASSES: Final = (
    "client.consumer.filter.SqlFilterIT",
    "client.consumer.pop.BatchAckIT",
    "client.consumer.pop.NotificationIT",
    "client.consumer.pop.PopBigMessageIT",
    "client.consumer.pop.PopMessageAndForwardingIT",
    "client.consumer.pop.PopOrderlyIT",
    "client.consumer.pop.PopPriorityIT",
    "client.consumer.tag.MulTagSubIT",
    "client.consumer.tag.TagMessageWith1ConsumerIT",
    "client.consumer.topic.MulConsumerMulTopicIT",
    "client.producer.batch.BatchSendIT",
    "client.producer.exception.msg.ChinaPropIT",
    "client.producer.exception.msg.MessageUserPropIT",
    "client.producer.oneway.OneWaySendIT",
    "client.producer.order.OrderMsgIT",
    "client.producer.querymsg.QueryMsgByIdIT",
    "client.producer.querymsg.QueryMsgByKeyIT",
    "client.producer.transaction.TransactionalMsgIT",
    "delay.NormalMsgDelayIT",
    "offset.OffsetResetForPopIT",
    "recall.RecallWithTraceIT",
    "recall.SendAndRecallDelayMessageIT",
    "retry.PopConsumerRetryIT",
)

#: Settings of the brokers of RocketMQ's own IntegrationTestBase.
_REAL_CONF: Final[dict[str, str | int]] = {
    "enablePropertyFilter": "true",
    "recallMessageEnable": "true",
    "appendAckAsync": "true",
    "appendCkAsync": "true",
    "loadBalancePollNameServerInterval": 500,
    "maxTransferCountOnMessageInMemory": 1024,
    "maxTransferCountOnMessageInDisk": 1024,
}
_EMBEDDED_SETTINGS: Final[dict[str, object]] = {
    "enable_property_filter": True,
    "recall_message_enable": True,
    "max_transfer_count_on_message_in_memory": 1024,
    "max_transfer_count_on_message_in_disk": 1024,
}

_RESULT: Final = re.compile(r"result (passed|failed|skipped) (\S+)\((\S+)\) (.*)")


def programs() -> tuple[Path, Path]:
    """Return the folders of the compiled classes and of the jars, made when absent."""

    def fetch(target: Path) -> None:
        run_tool(
            [
                *("mvn", "-q", "-B", "-f", str(_JAVA / "pom.xml"), COPY_GOAL),
                f"-Drocketmq.version={VERSION}",
                f"-DoutputDirectory={target}",
            ],
            timeout_s=_TIMEOUT_S,
        )

    jars = made_once(cache_root() / f"suite-{VERSION}", fetch)
    sources = sorted(_JAVA.glob("*.java"))
    digest = hashlib.sha256(b"\0".join(each.read_bytes() for each in sources))

    def compile_all(target: Path) -> None:
        command = ["javac", "-nowarn", "-cp", f"{jars}/*", "-d", str(target)]
        run_tool([*command, *map(str, sources)], timeout_s=_TIMEOUT_S)

    classes = made_once(
        cache_root() / f"suite-classes-{digest.hexdigest()[:16]}", compile_all
    )
    return classes, jars


@contextmanager
def cluster(kind: str) -> Iterator[str]:
    """Start a name server and three brokers; the value is the name server's address."""
    if kind == "embedded":
        with EmbeddedCluster(brokers=_BROKERS, settings=_EMBEDDED_SETTINGS) as embedded:
            yield embedded.namesrv
        return
    with (
        tempfile.TemporaryDirectory() as folder,
        RealCluster(kind, Path(folder), brokers=_BROKERS, conf=_REAL_CONF) as real,
    ):
        yield real.namesrv


def run(classes: Sequence[str], namesrv: str) -> dict[str, Counter[str]]:
    """Run the tests of these classes; print those that fail or are skipped.

    Returns how many of each class passed, failed and were skipped.
    """
    compiled, jars = programs()
    counts = {each: Counter[str]() for each in classes}
    with subprocess.Popen(
        [
            *("java", "-Xmx256m", f"-Dnamesrv={namesrv}"),
            *("-cp", f"{compiled}{os.pathsep}{jars}/*"),
            "org.apache.rocketmq.test.base.Suite",
            *classes,
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # SqlFilterIT prints an error over and over
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            match = _RESULT.match(line)
            if match is None:
                continue
            outcome, test, name, why = match.groups()
            counts[name.removeprefix("org.apache.rocketmq.test.")][outcome] += 1
            if outcome != "passed":
                print(f"{outcome}: {name}.{test} {why[:500]}".rstrip(), flush=True)
    return counts


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suite; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--on", choices=("embedded", VERSION), default="embedded")
    parser.add_argument("classes", nargs="*", metavar="CLASS", default=CLASSES)
    chosen = parser.parse_args(arguments)
    with cluster(chosen.on) as namesrv:
        counts = run(chosen.classes, namesrv)
    for name, count in counts.items():
        shown = ", ".join(f"{number} {outcome}" for outcome, number in count.items())
        print(f"{name}: {shown or 'nothing ran'}")
    good = all(count["passed"] and not count["failed"] for count in counts.values())
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
