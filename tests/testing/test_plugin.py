"""The pytest fixtures for other projects work, and cost nothing unless used."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from rmqcli.broker.cluster.embedded import (
    ClusterArguments,
    GroupArguments,
    TopicArguments,
)
from rmqcli.testing import ClusterOptions
from rmqcli.wire.bodies.config import SubscriptionGroupConfig, TopicConfig
from tests.kit.waiting import PATIENCE_S

PLUGIN = ["-p", "rmqcli.testing.plugin", "-p", "no:cacheprovider"]


def run_pytest(folder, text, *options):
    """Run one test file in a separate process, as another project would."""
    path = folder / "test_it.py"
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", *options]
    installed = "rmqcli = " in _entry_points()
    return subprocess.run(
        [*command, *([] if installed else PLUGIN), str(path)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def _entry_points():
    from importlib.metadata import entry_points

    return "".join(
        f"{each.name} = {each.value}\n" for each in entry_points(group="pytest11")
    )


@pytest.mark.slow
def test_the_fixtures_work_in_another_project(tmp_path):
    done = run_pytest(
        tmp_path,
        """
        def test_one(rmq_cluster, rmq_topic):
            placed = rmq_cluster.send(rmq_topic, ["a", "b"])
            assert [p.broker_name for p in placed] == ["broker-a", "broker-a"]

        def test_several(rmq_cluster_factory, rmq_clock):
            first = rmq_cluster_factory(brokers=2, like="4.6.0", clock=rmq_clock)
            second = rmq_cluster_factory()
            assert first.namesrv != second.namesrv
            first.advance(1_000)

        def test_nothing_is_left():
            import threading
            assert [t.name for t in threading.enumerate()] == ["MainThread"]
        """,
        "-p",
        "no:randomly",
        "-p",
        "no:xdist",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


def sql_is_allowed(cluster):
    settings = cluster.call(lambda: cluster.broker().state.settings)
    return settings.enable_property_filter


def test_the_brokers_of_the_fixtures_allow_sql_filters(
    rmq_cluster, rmq_cluster_factory
):
    assert sql_is_allowed(rmq_cluster)
    assert sql_is_allowed(rmq_cluster_factory(settings={"slave_read_enable": True}))
    off = {"enable_property_filter": False}
    assert not sql_is_allowed(rmq_cluster_factory(settings=off))
    options = ClusterOptions(queues=2, settings=off)
    cluster = rmq_cluster_factory(options=options)
    assert not sql_is_allowed(cluster)
    assert cluster.options.queues == 2


@pytest.mark.slow
def test_a_test_that_asks_for_none_loads_nothing(tmp_path):
    done = run_pytest(
        tmp_path,
        """
        import sys

        def test_it():
            loaded = {name for name in sys.modules if name.startswith("rmqcli")}
            assert loaded <= {
                "rmqcli", "rmqcli.testing", "rmqcli.testing.plugin",
                "rmqcli.testing.clock",
            }
        """,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "values", "others"),
    [
        (ClusterArguments, ClusterOptions, set()),
        (TopicArguments, TopicConfig, {"topic_name"}),
        (GroupArguments, SubscriptionGroupConfig, {"group_name", "raw"}),
    ],
)
def test_every_field_is_an_argument_of_the_same_type(arguments, values, others):
    """The types are texts, because nothing evaluates them."""
    fields = {
        name: kind
        for name, kind in values.__annotations__.items()
        if name not in others
    }
    written = {
        name: kind.__forward_arg__ for name, kind in arguments.__annotations__.items()
    }
    assert written == fields
