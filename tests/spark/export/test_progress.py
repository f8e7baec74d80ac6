"""The progress of an export: the counters of the parts that are being written."""

from __future__ import annotations

import os

from rmqcli.broker import faults
from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.cli.export.report import ExportReport
from rmqcli.cli.ui.messages import Messages
from rmqcli.config import ClientConfig
from rmqcli.spark.export.cluster import BrokerSource
from rmqcli.spark.export.job import JobProgress, _Counters
from rmqcli.spark.export.plan import PartSpec
from rmqcli.wire.codes import RequestCode
from tests.spark.export.test_part import context_of
from tests.spark.export.test_part import write as write_part

PARTS = [PartSpec(n, "broker-a", 0, n * 100, n * 100 + 100) for n in range(3)]


def write(context, index, offsets):
    with open(context.progress_path(index), "wb") as file:
        file.write(b"%020d" % offsets)


def test_offsets_of_running_and_finished_parts_are_counted(tmp_path):
    context = context_of(tmp_path)
    counters = _Counters(PARTS, context)
    counters.update()
    assert (counters.done, counters.total) == (0, 300)
    write(context, 0, 40)
    write(context, 2, 7)
    counters.update()
    assert counters.done == 47
    write(context, 0, 100)
    counters.update()
    assert counters.done == 107


def test_a_finished_part_is_not_read_again(tmp_path):
    context = context_of(tmp_path)
    counters = _Counters(PARTS, context)
    write(context, 0, 100)
    counters.update()
    write(context, 0, 3)
    counters.finish(1)
    counters.finish(1)
    write(context, 1, 3)
    counters.update()
    assert counters.done == 200


def test_a_counter_that_cannot_be_read_counts_nothing(tmp_path):
    context = context_of(tmp_path)
    counters = _Counters(PARTS, context)
    with open(context.progress_path(0), "wb") as file:
        file.write(b"x")
    os.mkdir(context.progress_path(1))
    counters.update()
    assert counters.done == 0


def test_a_job_has_ended_when_offsets_and_tasks_are_done():
    assert JobProgress(3, 3, 2, 2).is_end
    assert not JobProgress(3, 3, 1, 2).is_end
    assert not JobProgress(2, 3, 2, 2).is_end


def test_a_broker_that_does_not_answer_is_named_while_its_part_is_tried_again(
    tmp_path, capsys
):
    """An export was silent for forty seconds while its broker was dead."""
    part = PartSpec(0, "broker-a", 0, 0, 2)
    with EmbeddedCluster(queues=1) as cluster:
        cluster.create_topic("orders", queues=1)
        cluster.send("orders", ["a", "b"])
        source = BrokerSource(ClientConfig(namesrv=(cluster.namesrv,)))
        context = context_of(tmp_path, source)
        counters = _Counters([part], context)
        counters.update()
        assert counters.troubles == {}
        cluster.faults.next(faults.disconnect(), code=RequestCode.PULL_MESSAGE)
        assert write_part(context, part).rows == 2
    counters.update()
    (trouble,) = counters.troubles.values()
    assert trouble.startswith("broker-a: ")
    report = ExportReport(Messages(), "orders")
    for _ in range(2):
        report.progress(JobProgress(0, 2, 0, 1, frozenset({trouble})))
    assert capsys.readouterr().err == f"warning: {trouble}; retrying\n"
