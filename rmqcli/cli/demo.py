"""`rmq demo`."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rmqcli.cli.ui.messages import color_is_on
from rmqcli.errors import ConfigError

if TYPE_CHECKING:
    from rmqcli.demo.tour import Tour

_SEED = 2026


def demo(
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the cluster running until Ctrl-C.")
    ] = False,
    export: Annotated[
        bool,
        typer.Option(
            "--export/--no-export", help="Include the export, which needs Java."
        ),
    ] = True,
) -> None:
    """Run a guided tour on an embedded cluster.

    A name server and a broker start in this process, orders are sent and a
    group falls behind; each step shows its command and what that prints.
    Nothing is left when it ends.

    Example: rmq demo --keep
    """
    from rmqcli.broker.cluster.embedded import EmbeddedCluster
    from rmqcli.config import ClientConfig
    from rmqcli.demo.orders import TOPIC
    from rmqcli.demo.tour import READING, Tour
    from rmqcli.demo.traffic import QUEUES, Traffic

    with tempfile.TemporaryDirectory(prefix="rmq-demo-") as folder:
        store = Path(folder, "store")
        settings = {"enable_property_filter": True}  # so that --sql can be tried
        with EmbeddedCluster(store=store, settings=settings) as cluster:
            cluster.create_topic(TOPIC, queues=QUEUES)
            tour = Tour(
                namesrv=cluster.namesrv,
                state_home=folder,
                color=color_is_on("auto", sys.stdout),
            )
            tour.heading("A RocketMQ cluster, in this process")
            tour.write(f"name server {cluster.namesrv}, broker with files in {store}")
            tour.write("orders are coming in; the group billing takes half of them")
            tour.command(f"export NAMESRV_ADDR={cluster.namesrv}")
            # What the tour does to its own consumer is no news to who watches.
            logging.getLogger("rmqcli.engine").setLevel(logging.ERROR)
            traffic = Traffic(ClientConfig(namesrv=(cluster.namesrv,)), seed=_SEED)
            try:
                traffic.start()
                for step in READING:
                    tour.show(step)
                if export:
                    _show_export(tour, os.path.join(folder, "orders"))
                _end(tour, keep=keep)
            finally:
                traffic.stop()


def _show_export(tour: Tour, folder: str) -> None:
    from rmqcli.demo.tour import export_step
    from rmqcli.spark.java import find_java

    try:
        find_java(tour.environ)
    except ConfigError as error:
        tour.heading("Everything to Parquet, through Spark")
        tour.write(f"left out: {error.message}")
        tour.write(f"to see it: {error.hint}")
        return
    tour.show(export_step(folder))
    tour.heading("What came out")
    for name in sorted(os.listdir(folder)):
        if not name.startswith((".", "_")):
            size = os.path.getsize(os.path.join(folder, name))
            tour.write(f"{size:>10,}  {name}")
    tour.write(_rows_by_tag(folder))


def _rows_by_tag(folder: str) -> str:
    """How many rows of each tag the Parquet files hold, as any reader sees them."""
    from rmqcli.spark.export.parquet_file import count_by_tag

    counts = count_by_tag(folder)
    shown = ", ".join(f"{tag} {count}" for tag, count in counts)
    return f"{sum(count for _, count in counts)} rows: {shown}"


def _end(tour: Tour, *, keep: bool) -> None:
    tour.heading("That was it")
    if not keep:
        tour.write("rmq demo --keep leaves the cluster running for you to play with")
        return
    tour.write("the cluster keeps running; in another terminal:")
    tour.command(f"export NAMESRV_ADDR={tour.environ['NAMESRV_ADDR']}")
    tour.command("rmq tail orders")
    tour.command("rmq lag billing --watch 1s")
    tour.write("Ctrl-C ends it")
    threading.Event().wait()
