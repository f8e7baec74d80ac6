"""`rmq top --serve`: the screen in a browser, by Textual's own server.

That server has no login, and each page that is opened starts a screen. So it listens on
the loopback interface only, below a path that nobody can guess, and no screen that it
starts can change a cluster.
"""

from __future__ import annotations

import secrets
import shlex
import socket
import sys
from typing import TYPE_CHECKING, Final

import aiohttp_jinja2
import jinja2
from aiohttp import web
from textual_serve.server import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_HOST: Final = "127.0.0.1"
#: How long screens may take to end.
_SHUTDOWN_S: Final = 2.0
#: The page would load a font from another host, and tell it of the page.
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self'"
        " 'unsafe-inline'; img-src 'self' data:; connect-src 'self' ws:"
    ),
    "Referrer-Policy": "no-referrer",
}


class _TopServer(Server):
    """Serves the screen of a command below a secret path."""

    def __init__(self, words: Sequence[str], port: int) -> None:
        command = shlex.join([sys.executable, "-m", "rmqcli", *words])
        super().__init__(command, host=_HOST, port=port, title="rmq top")
        self._path = f"/{secrets.token_urlsafe(24)}"

    @property
    def address(self) -> str:
        """The address of the page, with the secret."""
        return f"http://{_HOST}:{self.port}{self._path}/"

    def run(self, listening: socket.socket) -> None:
        """Serve until SIGINT or SIGTERM."""
        web.run_app(
            self._make_app(),
            sock=listening,
            shutdown_timeout=_SHUTDOWN_S,
            access_log=None,  # it would have the secret
            print=None,
        )

    async def _make_app(self) -> web.Application:
        app = web.Application()
        loader = jinja2.FileSystemLoader(self.templates_path)
        aiohttp_jinja2.setup(app, loader=loader)
        # The names are those by which the page finds the paths.
        files = self.statics_path
        app.add_routes(
            [
                web.get(f"{self._path}/", self.handle_index, name="index"),
                web.get(f"{self._path}/ws", self.handle_websocket, name="websocket"),
                web.static(f"{self._path}/static", files, name="static"),
            ]
        )
        app.on_response_prepare.append(_add_headers)
        return app


async def _add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)


def serve(words: Sequence[str], say: Callable[[str], object]) -> None:
    """Serve the screen of `rmq WORDS` until SIGINT or SIGTERM.

    `say` gets the address of the page as soon as it can be opened.
    """
    with socket.create_server((_HOST, 0)) as listening:
        server = _TopServer(words, listening.getsockname()[1])
        say(server.address)
        server.run(listening)
