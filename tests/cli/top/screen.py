"""`rmq top` in Textual's pilot: a real application without a terminal."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager

from textual import events

from rmqcli.cli.top.app import TopApp
from rmqcli.cli.top.cluster import NamedCluster
from rmqcli.config import ClientConfig
from tests.kit.waiting import PATIENCE_S

_NAMES = {"/": "slash"}


class Screen:
    """A running application: presses keys, waits for texts."""

    def __init__(self, app, pilot):
        self.app = app
        self._pilot = pilot

    @property
    def text(self):
        return self.app.text

    @property
    def lines(self):
        return self.text.split("\n")

    def line(self, start):
        """Return the first line that begins with `start`."""
        return next((each for each in self.lines if each.startswith(start)), "")

    async def press(self, *keys):
        await self._pilot.press(*keys)
        await self._pilot.pause()

    async def type(self, text):
        """Type a text into the line that asks for one, and press enter."""
        await self._pilot.press(*text)
        await self._pilot.press("enter")
        await self._pilot.pause()

    def type_ahead(self, *keys):
        """Let keys come together, as from a line that is slow."""
        for key in keys:
            self.app.post_message(events.Key(_NAMES.get(key, key), key))

    async def resize(self, width, height):
        await self._pilot.resize_terminal(width, height)
        await self._pilot.pause()

    async def click(self, x, y, *, times=1):
        await self._pilot.click(offset=(x, y), times=times)
        await self._pilot.pause()

    async def until(self, *texts):
        """Wait until the screen has all the texts; return it."""
        await self._until(lambda: all(text in self.text for text in texts), texts)
        return self.text

    async def until_settled(self):
        """Wait until what is drawn has the size that it has on the screen.

        A drawing may come between a question and the line that is made for its answer.
        """
        await self._until(self._is_settled, "settled")

    def _is_settled(self):
        board, line = self.app._board, self.app._input
        is_placed = line.display == bool(line.region.height)
        return is_placed and len(board.strips) == board.size.height

    async def until_gone(self, text):
        """Wait until the screen does not have the text any more."""
        await self._until(lambda: text not in self.text, text)

    async def _until(self, claim, what):
        end = time.monotonic() + PATIENCE_S
        while not claim():
            assert time.monotonic() < end, f"never {what} in:\n{self.text}"
            await self._pilot.pause(0.01)


def cluster_of(namesrv, *, name="test", timeout_ms=5_000, **settings):
    config = ClientConfig(namesrv=(namesrv,), timeout_ms=timeout_ms)
    servers = f"namesrv {namesrv}"
    settings = {"title": name, "servers": servers, "load": lambda: config, **settings}
    return NamedCluster(name=name, **settings)


@asynccontextmanager
async def _opened(namesrv, size, timeout_ms, options):
    app = TopApp(
        cluster_of(
            namesrv,
            timeout_ms=timeout_ms,
            flags=options.pop("flags", ()),
            allow_changes=options.pop("allow_changes", False),
        ),
        **{"interval_ms": 200, **options},
    )
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        yield Screen(app, pilot)
    assert app.join(60_000), "a thread of a view has not ended"


def on_screen(namesrv, story, *, size=(80, 24), timeout_ms=5_000, **options):
    """Run `story(screen)`, a coroutine function, on a screen; return its result."""

    async def run():
        async with _opened(namesrv, size, timeout_ms, options) as screen:
            return await story(screen)

    return asyncio.run(run())
