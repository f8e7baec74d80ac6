"""Draws the picture in the README: commands as they look in a terminal.

    python -m tests.picture .github/rmq.svg

Starts a cluster in this process, with a group that is behind, one that keeps up and one
without members. Runs `rmq` in a pseudo-terminal and draws what it prints, with its
colours, as an SVG image that needs no fonts from a server.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import pty
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from rmqcli import ConsumeFromWhere, Consumer, ConsumerConfig
from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.testing import ManualClock
from tests.kit.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

COLUMNS = 100
#: rich draws characters of 20 units this wide.
_CHARACTER_WIDTH = 12.2
COMMANDS = (
    "lag",
    "lag billing",
    "reset-offset billing payments --to latest --queue 0",
    "tail payments --last 3 --no-follow",
)

_THEME = TerminalTheme(
    (22, 27, 34),
    (220, 223, 228),
    [
        (110, 118, 129),
        (255, 123, 114),
        (126, 231, 135),
        (242, 204, 96),
        (121, 192, 255),
        (210, 168, 255),
        (86, 212, 221),
        (220, 223, 228),
    ],
)
#: rich's own format names fonts on a server.
_FORMAT = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" \
xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{
  font-family: Menlo, Consolas, "DejaVu Sans Mono", "Liberation Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px;
}}
.{unique_id}-title {{ font-size: 18px; font-family: arial; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" \
clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def output_of(command: str, namesrv: str) -> str:
    """Run `rmq` in a terminal of COLUMNS columns; return what it shows."""
    master, terminal = pty.openpty()
    environ = {
        **os.environ,
        "COLUMNS": str(COLUMNS),
        "LINES": "40",
        "TERM": "xterm-256color",
        "NAMESRV_ADDR": namesrv,
    }
    with subprocess.Popen(
        [sys.executable, "-m", "rmqcli", *command.split()],
        stdin=subprocess.DEVNULL,
        stdout=terminal,
        stderr=terminal,
        env=environ,
    ):
        os.close(terminal)
        shown = bytearray()
        while True:
            try:
                data = os.read(master, 65_536)
            except OSError:  # on Linux the end of the last process is an error
                break
            if not data:
                break
            shown += data
    os.close(master)
    return shown.decode().replace("\r\n", "\n")


@contextlib.contextmanager
def busy_cluster() -> Iterator[EmbeddedCluster]:
    """A cluster with a group that is behind, one that keeps up and one that stopped."""
    clock = ManualClock(SYSTEM_CLOCK.epoch_ms())
    go_on = threading.Event()
    with EmbeddedCluster(queues=4, clock=clock) as cluster:
        cluster.create_topic("payments")
        cluster.create_topic("orders")
        cluster.send("orders", [f'{{"id":{number}}}' for number in range(400)])
        for numbers in (range(100), range(100, 200), range(200, 348)):
            cluster.send("payments", [_payment(each) for each in numbers], tags="Paid")
            cluster.advance(15_000)
        with _member(cluster, "audit", "payments", 348):
            pass
        cluster.send(
            "payments", [_payment(each) for each in range(348, 420)], tags="Paid"
        )
        cluster.advance(4_200)
        with (
            _member(cluster, "shipping", "orders", 400),
            _member(cluster, "billing", "payments", 137, go_on),
        ):
            try:
                yield cluster
            finally:
                go_on.set()


@contextlib.contextmanager
def _member(
    cluster: EmbeddedCluster,
    group: str,
    topic: str,
    count: int,
    go_on: threading.Event | None = None,
) -> Iterator[None]:
    """A member that has consumed `count` messages, and then waits for `go_on`."""
    consumed = 0

    def handle(_: object) -> None:
        nonlocal consumed
        if go_on is not None and consumed == count:
            go_on.wait()
        consumed += 1

    config = ConsumerConfig(
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        consume_threads=1,
        client_ip="10.1.0.7",
        instance_name=f"{group}-1",
    )
    namesrv = cluster.namesrv
    with Consumer(group, topic, handle, namesrv=namesrv, config=config) as consumer:
        wait_until(lambda: consumed == count)
        consumer.commit()
        yield


def _payment(number: int) -> str:
    return f'{{"id":{1000 + number},"amount":{number % 40}.50}}'


def without_indents(svg: str) -> str:
    """Place text after its leading spaces, which some programs do not draw."""

    def moved(match: re.Match[str]) -> str:
        spaces = match["spaces"].count("&#160;")
        x = float(match["x"]) + spaces * _CHARACTER_WIDTH
        length = float(match["length"]) - spaces * _CHARACTER_WIDTH
        return f'x="{x:.1f}" {match["y"]} textLength="{length:.1f}"{match["rest"]}'

    return re.sub(
        r'x="(?P<x>[\d.]+)" (?P<y>y="[\d.]+") textLength="(?P<length>[\d.]+)"'
        r"(?P<rest>[^>]*>)(?P<spaces>(?:&#160;)+)(?=[^<&])",
        moved,
        svg,
    )


def main() -> None:
    """Run the commands and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path")
    path = parser.parse_args().path
    console = Console(
        record=True,
        width=COLUMNS,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
    )
    with busy_cluster() as cluster:
        for number, command in enumerate(COMMANDS):
            if number:
                console.print()
            prompt = Text.assemble(("$ ", "bold green"), (f"rmq {command}", "bold"))
            console.print(prompt)
            shown = output_of(command, cluster.namesrv).rstrip("\n")
            console.print(Text.from_ansi(shown))
    svg = console.export_svg(
        title="rmq", theme=_THEME, code_format=_FORMAT, unique_id="rmq"
    )
    Path(path).write_text(without_indents(svg), encoding="utf-8")


if __name__ == "__main__":
    main()
