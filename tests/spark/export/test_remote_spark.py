"""Exports into an object store by Spark's workers, and what a kill leaves of them."""

from __future__ import annotations

import re
import signal

import pytest

from rmqcli.spark.export.storage import storage_of
from tests.kit.object_stores import ENVIRONMENT, s3_server
from tests.kit.waiting import wait_until
from tests.spark.export.inline import expected
from tests.spark.export.processes import ExportProcess

pytest.importorskip("moto", reason="the extra dev has moto")
pytestmark = [pytest.mark.java, pytest.mark.slow]

QUEUES = {0: (0, 30_000), 1: (500, 30_000)}


@pytest.fixture
def server(monkeypatch):
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    with s3_server() as server:
        server.make_bucket("exports")
        yield server


def rows_in(url) -> list[tuple[int, int]]:
    """(queue id, queue offset) of each row that a reader of the folder gets."""
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
def test_an_export_that_was_ended_by_a_signal_goes_on(server, tmp_path, signum):
    url = server.url("exports/out")
    with ExportProcess(url, QUEUES, errors=tmp_path / "first") as export:
        wait_until(lambda: re.search("offsets_done=[1-9]", export.errors.read_text()))
        export.process.send_signal(signum)
        assert export.process.wait() == (130 if signum == signal.SIGINT else -signum)
    storage = storage_of(url, {})
    assert not storage.exists("s3://exports/out/_SUCCESS")
    with ExportProcess(
        url, QUEUES, errors=tmp_path / "second", options={"resume": True}
    ) as export:
        summary = export.summary()
    assert summary["rows"] == 59_500
    assert storage.exists("s3://exports/out/_SUCCESS")
    assert storage.list_names("s3://exports/out/_rmq/locks") == []
    assert storage.exists(f"s3://exports/out/_rmq/runs/{summary['run_id']}/spark.log")
    grown = {**QUEUES, 1: (500, 31_000)}
    with ExportProcess(
        url, grown, errors=tmp_path / "third", options={"since_last": True}
    ) as export:
        assert export.summary()["rows"] == 1_000
    assert rows_in(url) == expected(grown)
