"""Spark's workers export into an object store; killed exports are continued."""

from __future__ import annotations

import re
import signal
import sys

import pytest

from rmqcli.spark.export.storage import storage_of
from tests.kit.object_stores import ENVIRONMENT, s3_server
from tests.kit.waiting import wait_until
from tests.spark.export.inline import expected
from tests.spark.export.processes import ExportProcess
from tests.spark.export.test_job import spark_cluster  # noqa: F401  # a fixture

pytest.importorskip("moto", reason="the extra dev has moto")
pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.nightly]

QUEUES = {0: (0, 30_000), 1: (500, 30_000)}


@pytest.fixture(scope="module", autouse=True)
def server():
    """A server whose environment is set before other fixtures start executors."""
    with pytest.MonkeyPatch.context() as patch, s3_server() as server:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        server.make_bucket("exports")
        yield server


def rows_in(url) -> list[tuple[int, int]]:
    """Return (queue id, queue offset) of each row that readers of the folder see."""
    import pyarrow.dataset as ds

    storage = storage_of(url, {})
    table = ds.dataset(
        storage.target.inner(storage.root_of(url)),  # type: ignore[attr-defined]  # a remote one
        filesystem=storage._fs,  # type: ignore[attr-defined]
        format="parquet",
    ).to_table(["queue_id", "queue_offset"], use_threads=False)
    columns = (table[name].to_pylist() for name in ("queue_id", "queue_offset"))
    return sorted(zip(*columns, strict=True))


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGINT])
def test_an_export_that_a_signal_ended_is_continued(server, tmp_path, signum):
    root = f"s3://exports/{signum.name}"
    url = server.url(f"exports/{signum.name}")
    with ExportProcess(url, QUEUES, errors=tmp_path / "first") as export:
        wait_until(lambda: re.search("offsets_done=[1-9]", export.errors.read_text()))
        export.process.send_signal(signum)
        assert export.process.wait() == (130 if signum == signal.SIGINT else -signum)
    storage = storage_of(url, {})
    assert not storage.exists(f"{root}/_SUCCESS")
    with ExportProcess(
        url, QUEUES, errors=tmp_path / "second", options={"resume": True}
    ) as export:
        summary = export.summary()
    assert summary["rows"] == 59_500
    assert storage.exists(f"{root}/_SUCCESS")
    assert storage.list_names(f"{root}/_rmq/locks") == []
    assert storage.exists(f"{root}/_rmq/runs/{summary['run_id']}/spark.log")
    grown = {**QUEUES, 1: (500, 31_000)}
    with ExportProcess(
        url, grown, errors=tmp_path / "third", options={"since_last": True}
    ) as export:
        assert export.summary()["rows"] == 1_000
    assert rows_in(url) == expected(grown)


def test_executors_of_a_cluster_write_with_credentials_of_their_own(
    server,
    tmp_path,
    spark_cluster,  # noqa: F811
):
    """The executors share no folder with the driver, and one task is retried."""
    url = server.url("exports/cluster")
    queues = {0: (0, 10_000), 1: (500, 8_000)}
    with ExportProcess(
        url,
        queues,
        errors=tmp_path / "stderr",
        options={"master": spark_cluster},
        source={"fail_at": 8500, "fail_once": str(tmp_path / "failed")},
        env={"PYSPARK_PYTHON": sys.executable},
    ) as export:
        assert export.summary()["rows"] == 17_500
    assert rows_in(url) == expected(queues)
    assert storage_of(url, {}).list_names("s3://exports/cluster/_rmq/locks") == []
