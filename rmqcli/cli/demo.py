"""`rmq demo`: starts a cluster with traffic in this process, and runs the tour on it.

The tour's steps are in `rmqcli.demo.tour`, the traffic in `rmqcli.demo.traffic`. All
files are in a temporary folder, which is removed at the end, even after an interrupt.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from rmqcli.cli.options import command_options, option, switch
from rmqcli.cli.ui.messages import color_is_on, is_screen, is_terminal
from rmqcli.errors import ConfigError
from rmqcli.units import counted

if TYPE_CHECKING:
    from rmqcli.demo.tour import Tour

_SEED = 2026


@command_options(has_common=False)
def demo(
    keep: bool = switch(help="Keep the cluster running until Ctrl-C."),
    export: bool = option(
        "--export/--no-export",
        default=True,
        help="Include the export, which needs Java and the extra spark.",
    ),
) -> None:
    """Run a guided tour on an embedded cluster.

    Example: rmq demo --keep

    A name server and a broker start inside this process. Orders are sent, and a
    group falls behind; each step shows a command and its output. Nothing remains
    when the tour ends.
    """
    from rmqcli.broker.cluster.embedded import EmbeddedCluster
    from rmqcli.config import ClientConfig
    from rmqcli.demo.orders import TOPIC
    from rmqcli.demo.tour import PROXY_TITLE, STEPS, Tour, proxy_step
    from rmqcli.demo.traffic import QUEUES, Traffic

    with tempfile.TemporaryDirectory(prefix="rmq-demo-") as folder:
        store = Path(folder, "store")
        settings = {"enable_property_filter": True}  # so that --sql can be tried
        no_proxy = _why_no_proxy()
        with EmbeddedCluster(
            store=store, settings=settings, proxy=not no_proxy
        ) as cluster:
            cluster.create_topic(TOPIC, queues=QUEUES)
            tour = Tour(
                namesrv=cluster.namesrv,
                state_home=folder,
                color=color_is_on("auto", sys.stdout),
                is_paged=is_screen(sys.stdout) and is_terminal(sys.stdin),
                steps=len(STEPS) + 1 + export,
            )
            tour.page(
                "A RocketMQ cluster, in this process",
                f"name server {cluster.namesrv}, broker with files in",
                f"  {store}",
                "Orders are coming in; the group billing consumes half of them.",
                "Each step shows a command, and then what it prints.",
            )
            tour.command(f"export NAMESRV_ADDR={cluster.namesrv}")
            # Do not warn about what the tour itself does to its consumer.
            logging.getLogger("rmqcli.engine").setLevel(logging.ERROR)
            traffic = Traffic(ClientConfig(namesrv=(cluster.namesrv,)), seed=_SEED)
            try:
                traffic.start()
                for step in STEPS:
                    tour.show(step)
                if no_proxy:
                    tour.page(PROXY_TITLE)
                    tour.write(f"skipped: gRPC cannot be loaded: {no_proxy}")
                else:
                    tour.show(proxy_step(cluster.endpoints))
                if export:
                    _show_export(tour, os.path.join(folder, "orders"))
                _end(tour, keep=keep)
            finally:
                traffic.stop()


def _why_no_proxy() -> str:
    """Why no proxy can be started; empty when one can."""
    try:
        import rmqcli.broker.proxy.proxy  # noqa: F401  # loads gRPC
    except ImportError as error:
        return str(error)
    return ""


def _show_export(tour: Tour, folder: str) -> None:
    from rmqcli.demo.tour import export_step
    from rmqcli.spark.extra import require_extra
    from rmqcli.spark.java import find_java

    try:
        require_extra("rmq export")
        find_java(tour.environ)
    except ConfigError as error:
        tour.page("Everything to Parquet, through Spark")
        tour.write(f"skipped: {error.message}")
        tour.write(f"to include it: {error.hint}")
        return
    tour.show(export_step(folder))
    tour.heading("The result")
    for name in sorted(os.listdir(folder)):
        if not name.startswith((".", "_")):
            size = os.path.getsize(os.path.join(folder, name))
            tour.write(f"{size:>10,}  {name}")
    from rmqcli.spark.export.parquet_file import count_by_tag

    counts = count_by_tag(folder)  # what any reader finds in the files
    shown = ", ".join(f"{tag} {count}" for tag, count in counts)
    tour.write(f"{counted(sum(count for _, count in counts), 'row')}: {shown}")


#: Commands to try while the cluster keeps running, each with what it does.
_NEXT = (
    ("rmq tail orders", "follow the orders as they come"),
    ("rmq tail orders --tag Refunded -o pretty", "only refunds, formatted"),
    ("rmq lag billing --watch 1s", "see the lag grow"),
    ("rmq lag billing --process-queues", "what its consumer has cached"),
    ("rmq group show billing", "members and subscriptions"),
    ("rmq consume orders -g me --exec cat", "a command for each message"),
    ("rmq brokers", "versions and rates"),
)


def _end(tour: Tour, *, keep: bool) -> None:
    tour.page("The end of the tour")
    if keep:
        tour.write("The cluster keeps running until Ctrl-C. In another terminal:")
        tour.command(f"export NAMESRV_ADDR={tour.environ['NAMESRV_ADDR']}")
    else:
        tour.write("With rmq demo --keep the cluster keeps running. Then try:")
    for command, what in _NEXT:
        tour.write(f"  {command:<42}  {what}")
    tour.write("rmq COMMAND --help has examples; rmq serve starts an empty cluster.")
    if keep:
        threading.Event().wait()
