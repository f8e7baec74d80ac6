"""Makes archives of the Java classes that servers and clients load.

Java loads the classes from the archive (AppCDS), instead of finding, parsing and
verifying each in some hundred jars. The tests start thousands of short Java processes,
for which that is most of the work. `python -m tests.kit.class_archive` makes those of
all versions before the tests, whose workers would wait for each other, and that of the
official gRPC client.
"""

from __future__ import annotations

import subprocess
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rmqcli import Admin, ClientConfig, Producer, ProducerMessage
from rmqcli.broker.cluster.embedded import EmbeddedCluster
from tests.kit.artefacts import (
    VERSIONS,
    UnavailableError,
    class_archive,
    class_path,
    made_once,
)
from tests.kit.clients.member import GrpcMember
from tests.kit.clients.official import java_class_path
from tests.kit.cluster import RealCluster
from tests.kit.java_program import JavaConsumer, java_producer, mqadmin
from tests.kit.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

_DUMP_TIMEOUT_S = 300
_AT_ONCE = 2


def main() -> None:
    """Make every archive. Raises UnavailableError."""
    # Processes, because each makes its Java write with a variable of the environment.
    with ProcessPoolExecutor(_AT_ONCE) as pool:
        of_grpc = pool.submit(make_of_grpc_client)
        list(pool.map(make, VERSIONS))
        of_grpc.result()


def make(version: str) -> None:
    """Make the archive of a version, unless there is one.

    Starts a cluster of this version, which takes half a minute, and runs a program of
    each kind. Raises UnavailableError.
    """
    _make(class_path(version), lambda folder: _run_each_program(version, folder))


def make_of_grpc_client() -> None:
    """Make the archive of the official gRPC client, unless there is one.

    Runs a member of a group behind an embedded proxy. Raises UnavailableError.
    """
    _make(java_class_path(), _run_grpc_member)


def _make(path: str, run: Callable[[Path], None]) -> None:
    made_once(
        class_archive(path).parent, lambda target: _dump(path, target, _recorded(run))
    )


def _recorded(run: Callable[[Path], None]) -> list[str]:
    """The names of the classes that each program loads, as Java writes them."""
    with tempfile.TemporaryDirectory(prefix="rmq-classes-") as directory:
        folder = Path(directory)
        record = f"-XX:DumpLoadedClassList={folder}/%p.names"
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("JDK_JAVA_OPTIONS", record)
            run(folder)
        names = dict[str, None]()
        for file in sorted(folder.glob("*.names")):
            # Servers are killed, perhaps in the middle of a line.
            whole, _, _ = file.read_text().rpartition("\n")
            names |= dict.fromkeys(whole.splitlines())
        return list(names)


def _run_each_program(version: str, folder: Path) -> None:
    has_proxy = not version.startswith("4.")
    with RealCluster(version, folder / "cluster", proxy=has_proxy) as cluster:
        topic = cluster.create_topic()
        mqadmin(cluster, "topicStatus", "-t", topic)
        java_producer(cluster, [{"topic": topic, "bodyB64": "eA=="}])
        with JavaConsumer(cluster, "classes", topic) as consumer:
            consumer.wait_for(1)


def _run_grpc_member(folder: Path) -> None:
    with EmbeddedCluster(proxy=True) as cluster:
        with Admin(namesrv=cluster.namesrv) as admin:
            admin.create_topic("classes", queue_nums=1)
            admin.create_group("classes")
        member = GrpcMember(
            "java",
            "push",
            endpoints=cluster.endpoints,
            group="classes",
            topic="classes",
            directory=folder,
        )
        client = ClientConfig(endpoints=(cluster.endpoints,), plaintext=True)
        with Producer(client=client) as producer:
            producer.send(ProducerMessage("classes", b"x"))
        wait_until(lambda: member.bodies("done"), "the message")
        member.stop()


def _dump(path: str, target: Path, names: list[str]) -> None:
    listing = target / "names.txt"
    listing.write_text("".join(f"{line}\n" for line in names))
    command = ["java", "-Xshare:dump", "-XX:+UseSerialGC"]
    command += [f"-XX:SharedClassListFile={listing}"]
    command += [f"-XX:SharedArchiveFile={target / class_archive('').name}"]
    done = subprocess.run(
        [*command, "-cp", path],
        capture_output=True,
        text=True,
        timeout=_DUMP_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise UnavailableError(f"no class archive: {done.stdout[-2000:]}")


if __name__ == "__main__":
    main()
