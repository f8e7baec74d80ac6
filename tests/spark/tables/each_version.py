"""Tests with real tables of Delta Lake and Iceberg, for every version of PySpark 4.

`python -m tests.spark.versions` runs them. The contents of a table are read from its
log and files, without Spark and rmqcli.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.config import ClientConfig
from rmqcli.errors import RefusedError, RmqError
from rmqcli.position import AtOffset, Earliest, Latest
from rmqcli.spark.export.cluster import BrokerCluster
from rmqcli.spark.export.export import ExportOptions
from rmqcli.spark.export.plan import ExportRequest
from rmqcli.spark.tables.export import TableExport
from rmqcli.spark.tables.formats import FORMATS
from rmqcli.spark.tables.session import TableOptions, open_table
from rmqcli.testing import faults
from rmqcli.wire.codes import RequestCode
from tests.kit.artefacts import UnavailableError
from tests.kit.spark_cluster import SparkCluster
from tests.kit.waiting import PATIENCE_S, wait_until
from tests.spark.export.processes import PROJECT, in_session
from tests.spark.tables.jars import COORDINATES, jars_of, pyspark_minor

pytestmark = pytest.mark.spark


class DeltaFolder:
    """A Delta table, read by its log, which has a file of JSON lines per version."""

    kind = "delta"

    def __init__(self, folder):
        self.folder = folder / "table"
        self.target = str(self.folder)
        self.conf: tuple[tuple[str, str], ...] = ()

    def versions(self):
        return sorted((self.folder / "_delta_log").glob("*.json"))

    def files(self):
        found = set()
        for version in self.versions():
            for line in version.read_text(encoding="utf-8").splitlines():
                action = json.loads(line)
                if "add" in action:
                    found.add(self.folder / action["add"]["path"])
                elif "remove" in action:
                    found.discard(self.folder / action["remove"]["path"])
        return found


class IcebergFolder:
    """An Iceberg table in a hadoop catalog, read by its metadata and manifests."""

    kind = "iceberg"

    def __init__(self, folder):
        self.folder = folder / "lake" / "db" / "orders"
        self.target = "lake.db.orders"
        self.conf: tuple[tuple[str, str], ...] = (
            # needed for CALL
            (
                "spark.sql.extensions",
                "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            ),
            ("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog"),
            ("spark.sql.catalog.lake.type", "hadoop"),
            ("spark.sql.catalog.lake.warehouse", str(folder / "lake")),
        )

    def versions(self):
        return sorted((self.folder / "metadata").glob("v*.metadata.json"))

    def files(self):
        if not self.versions():
            return set()
        metadata = json.loads(self.versions()[-1].read_text(encoding="utf-8"))
        current = metadata["current-snapshot-id"]
        (snapshot,) = (
            each for each in metadata["snapshots"] if each["snapshot-id"] == current
        )
        return {
            path_of(entry["data_file"]["file_path"])
            for manifest in avro_rows(snapshot["manifest-list"])
            for entry in avro_rows(manifest["manifest_path"])
            if entry["status"] != 2  # deleted
        }


def path_of(text):
    return Path(text.removeprefix("file:"))


def avro_rows(path):
    with path_of(path).open("rb") as file:
        return list(fastavro.reader(file))


@pytest.fixture(params=[DeltaFolder, IcebergFolder], ids=["delta", "iceberg"])
def table(request, tmp_path):
    kind = request.param.kind
    if (kind, pyspark_minor()) not in COORDINATES:
        pytest.skip(f"no {kind} for PySpark {pyspark_minor()} is tried here")
    try:
        jars = jars_of(kind, pyspark_minor())
    except UnavailableError as error:
        pytest.skip(str(error))
    table = request.param(tmp_path)
    key, _, value = jars.partition("=")
    table.conf = ((key, value), *table.conf)
    return table


@pytest.fixture
def cluster():
    with EmbeddedCluster(queues=2) as cluster:
        cluster.create_topic("orders", queues=2)
        cluster.send("orders", [f'{{"id": {n}}}' for n in range(50)], tags="New")
        yield cluster


def rmq(cluster, *arguments):
    command = [sys.executable, "-m", "rmqcli", *arguments, "-n", cluster.namesrv]
    return subprocess.run(
        command,
        cwd=PROJECT,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},  # for a cluster
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def command_of(table):
    found = ["export", "orders", "--format", table.kind, "--to-table", table.target]
    for key, value in table.conf:
        found += ["--conf", f"{key}={value}"]
    return found


def exported(cluster, table, *arguments):
    done = rmq(cluster, *command_of(table), *arguments, "-o", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


COLUMNS = ["queue_id", "queue_offset", "msg_id", "tags", "body"]


def rows_of(table):
    """Return the rows of a table, sorted, including duplicates."""
    files = sorted(table.files())
    if not files:
        return []
    tables = [pq.ParquetFile(path).read(columns=COLUMNS) for path in files]
    rows = pa.concat_tables(tables).to_pylist()
    return sorted(
        (*(row[name] for name in COLUMNS[:-1]), row["body"].decode()) for row in rows
    )


def tailed(cluster):
    done = rmq(
        cluster, "tail", "orders", "--from", "earliest", "--to", "latest", "-o", "jsonl"
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return sorted(tuple(row[name] for name in COLUMNS) for row in rows)


@contextlib.contextmanager
def begun(cluster, table, *arguments):
    """Start an export in a new session, whose processes have ended after the block."""
    command = [sys.executable, "-m", "rmqcli", *command_of(table), *arguments]
    with subprocess.Popen(
        [*command, "-n", cluster.namesrv],
        cwd=PROJECT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        yield process
        process.wait()
        wait_until(lambda: not in_session(process.pid), "Java and the workers end")


def test_a_run_that_is_killed_leaves_no_row_or_all(cluster, table):
    held = cluster.faults.add(
        faults.drop_answer(),
        nth=2,  # the first one notes the last message
        code=RequestCode.PULL_MESSAGE,
        topic="orders",
        queue_id=1,
    )
    with begun(cluster, table) as process:
        # one task has begun to write, and another one waits for the broker
        wait_until(lambda: list(table.folder.rglob("*.parquet")))
        os.kill(process.pid, signal.SIGKILL)
    cluster.faults.remove(held)
    assert rows_of(table) == []
    run = exported(cluster, table)
    assert (run["rows"], run["offsets"]) == (50, 50)
    assert rows_of(table) == tailed(cluster)
    # a run that is killed after its commit
    cluster.send("orders", ["größer"] * 7, tags="Paid")
    versions = len(table.versions())
    with begun(cluster, table, "--since-last") as process:
        wait_until(lambda: len(table.versions()) > versions)
        os.kill(process.pid, signal.SIGKILL)
    assert rows_of(table) == tailed(cluster)
    run = exported(cluster, table, "--since-last")
    assert (run["version"], run["rows"]) == (None, 0)
    assert rows_of(table) == tailed(cluster)


CLUSTER = (
    ("spark.driver.host", "127.0.0.1"),
    ("spark.driver.bindAddress", "127.0.0.1"),
    ("spark.executor.memory", "512m"),
    ("spark.executor.extraJavaOptions", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"),
    ("spark.ui.enabled", "false"),
    ("spark.sql.shuffle.partitions", "1"),
    ("spark.databricks.delta.snapshotPartitions", "1"),
)


@pytest.mark.parametrize("table", [DeltaFolder], ids=["delta"], indirect=True)
def test_the_workers_of_a_cluster_write_into_a_folder_that_they_see(
    cluster, table, tmp_path
):
    table.conf = (*table.conf, *CLUSTER)
    with SparkCluster(tmp_path / "spark", workers=1) as spark:
        run = exported(cluster, table, "--master", spark.url)
    assert (run["rows"], run["offsets"]) == (50, 50)
    assert rows_of(table) == tailed(cluster)
    # nothing is left of the folder by which the worker showed that it sees this one
    names = {path.name for path in (*table.folder.iterdir(), *tmp_path.iterdir())}
    assert not {name for name in names if name.startswith(".rmq")}


class Quiet:
    def info(self, text): ...
    def planned(self, topic, queues): ...
    def progress(self, progress): ...


class OvertakenTable:
    """A table to which another export commits just before this one writes."""

    def __init__(self, table, export):
        self.name = table.name
        self._table = table
        self._export = export
        self.state = table.state
        self.is_empty = table.is_empty
        self.committed = table.committed
        self.warnings = table.warnings
        self.other: Any = None

    def write(self, view, record, *, watch):
        self.other = self._export()
        self._table.write(view, record, watch=watch)


def export_into(table, cluster, *, end=None, **options):
    position = end or Latest()
    is_first = not options
    return TableExport(
        request=ExportRequest(
            topic="orders",
            from_position="earliest",
            to_position=str(position),
            decode="json" if is_first else None,
            decode_infer=5 if is_first else None,
        ),
        options=ExportOptions(path="", **options),
        cluster=BrokerCluster(
            config=ClientConfig(namesrv=(cluster.namesrv,)),
            start=Earliest(),
            end=position,
            note=print,
        ),
        report=Quiet(),
        clock=SYSTEM_CLOCK,
        open_session=lambda: contextlib.nullcontext(table),
    ).run()


def test_decoded_bodies_two_exports_at_once_and_a_table_that_goes_back(cluster, table):
    options = TableOptions(
        topic="orders",
        target=table.target,
        format=FORMATS[table.kind],
        is_secret=False,
        note=print,
        conf=table.conf,
    )

    def follow(session):
        return export_into(session, cluster, since_last=True)

    with open_table(options) as session:
        first: Any = export_into(session, cluster, end=AtOffset(20))
        assert first.commit.rows == 40
        state: Any = session.state()
        assert dict(state.columns)["value"] == "struct<id:bigint>"
        overtaken = OvertakenTable(session, lambda: follow(session))
        kind = RefusedError if table.kind == "delta" else RmqError
        with pytest.raises(kind, match="committed to") as caught:
            follow(overtaken)
        if table.kind == "delta":
            assert "nothing was written" in caught.value.message
            assert len(rows_of(table)) == 50
            back = f"RESTORE TABLE delta.`{table.target}` TO VERSION AS OF 0"
        else:
            assert overtaken.other.run_id in caught.value.message
            assert len(rows_of(table)) == 60
            back = (
                "CALL lake.system.rollback_to_snapshot('db.orders',"
                f" {first.commit.version})"
            )
        session.spark.sql(back).collect()
        assert len(rows_of(table)) == 40
        state = session.state()
        assert state.newest.run_id == first.run_id
        offsets = [each.queue_offset for each in state.newest.noted.values()]
        assert offsets == [19, 19]
        assert follow(session).commit.rows == 10
        assert len(rows_of(table)) == 50
        assert follow(session).commit is None
