"""`rmq top --serve`: the screen in a browser."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import contextmanager

import aiohttp
import pytest

from rmqcli.cli.main import run
from tests.kit.waiting import PATIENCE_S

CHROMIUM = shutil.which("chromium")


@contextmanager
def served(namesrv, *, group="billing"):
    """Serve the screen of a group; yield its address and the process."""
    process = subprocess.Popen(
        [sys.executable, "-m", "rmqcli", "top", group, "--serve", "-n", namesrv],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip(), process
    finally:
        process.kill()
        process.communicate()


def status_of(address):
    """Return the HTTP status of a page."""
    try:
        with urllib.request.urlopen(address, timeout=PATIENCE_S) as response:
            return response.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


async def shown(address, wanted):
    """Open the screen as a page does; return what it has written up to `wanted`."""
    seen = b""
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{address}ws?width=100&height=30") as page,
        asyncio.timeout(PATIENCE_S),
    ):
        while wanted not in seen:
            seen += (await page.receive()).data
    return seen


def test_the_screen_is_at_a_secret_address_until_it_is_interrupted(rmq_cluster):
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.create_group("billing")
    with served(rmq_cluster.namesrv) as (address, process):
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{32}/", address)
        host = address.rpartition("/")[0].rpartition("/")[0]
        assert [
            status_of(each)
            for each in (address, f"{host}/", f"{host}/ws", f"{host}/{'x' * 32}/ws")
        ] == [200, 404, 404, 404]
        screen = asyncio.run(shown(address, b"How far billing is behind is unknown"))
        assert b"rmq top" in screen
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0


def test_a_page_loads_nothing_from_other_hosts(rmq_cluster):
    """The page of Textual's server names a font of another host."""
    with served(rmq_cluster.namesrv) as (address, _):
        with urllib.request.urlopen(address, timeout=PATIENCE_S) as response:
            policy = response.headers["Content-Security-Policy"]
            assert response.headers["Referrer-Policy"] == "no-referrer"
        assert policy.split("; ")[0] == "default-src 'self'"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--allow-changes"], "--serve and --allow-changes cannot be used together"),
        (["--acl-file", "-"], "--serve cannot use --acl-file -"),
    ],
)
def test_what_a_browser_must_not_or_cannot_do_is_refused(options, words, capsys):
    assert run(["top", "--serve", "-n", "127.0.0.1:1", *options]) == 2
    assert words in capsys.readouterr().err


async def class_of_page(port):
    """Return the class of the body of the page, once the screen is there."""
    async with aiohttp.ClientSession() as session, asyncio.timeout(PATIENCE_S):
        pages: list[dict[str, str]] = []
        while not pages:
            async with session.get(f"http://127.0.0.1:{port}/json") as response:
                tabs = await response.json()
            pages = [each for each in tabs if each["type"] == "page"]
        async with session.ws_connect(pages[0]["webSocketDebuggerUrl"]) as browser:
            found = ""
            while "-first-byte" not in found:
                code = {"expression": "document.body && document.body.className"}
                await browser.send_json(
                    {"id": 1, "method": "Runtime.evaluate", "params": code}
                )
                found = json.loads((await browser.receive()).data)["result"]["result"]
                found = str(found.get("value"))
                await asyncio.sleep(0.1)
    return found


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_a_browser_without_a_window_shows_it(rmq_cluster, tmp_path):
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.create_group("billing")
    assert CHROMIUM is not None
    with served(rmq_cluster.namesrv) as (address, _):
        browser = subprocess.Popen(
            [
                *(CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu"),
                *(f"--user-data-dir={tmp_path}", "--remote-debugging-port=0", address),
            ],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "HOME": str(tmp_path)},
        )
        assert browser.stderr is not None
        try:
            port = next(
                found[1]
                for line in browser.stderr
                if (found := re.search(r"ws://127\.0\.0\.1:(\d+)/", line))
            )
            assert "-first-byte" in asyncio.run(class_of_page(port))
        finally:
            browser.kill()
            browser.communicate()
