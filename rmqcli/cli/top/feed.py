"""The thread that reads a view of `rmq top`, so that the screen never waits.

Each view that is shown has a feed, with a client of its own: a broker that does not
answer holds up neither the keys nor the next view.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from rmqcli.api.client import Client
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.errors import RmqError
from rmqcli.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.cli.top.view import View
    from rmqcli.config import ClientConfig

logger = get_logger(__name__)


class Closed(Exception):  # noqa: N818  # nothing is wrong
    """Ends the thread of a feed that is not wanted any more."""


class Feed:
    """Reads one view until it is closed.

    `post` is called in the feed's thread with the feed and each answer, or RmqError.
    `after` is an earlier feed of the same view; only one thread at a time may read it.
    """

    def __init__(
        self,
        view: View,
        config: ClientConfig,
        post: Callable[[Feed, object], object],
        *,
        after: Feed | None = None,
    ) -> None:
        self.view = view
        #: when servers were asked (monotonic ms); None while they are not
        self.asked_ms: int | None = None
        self._config = config
        self._post = post
        self._closed = threading.Event()
        self._wanted = threading.Event()
        self._client: Client | None = None
        self._after = after
        self._thread = threading.Thread(target=self._run, name="rmq-top", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def close(self) -> None:
        """Let the thread end: at once, or within a second while it waits for answers.

        Nothing is posted any more.
        """
        self._closed.set()
        self._wanted.set()

    def join(self, timeout_ms: int) -> bool:
        """Wait for the thread to end; return whether it has."""
        self._thread.join(timeout_ms / 1000)
        return not self._thread.is_alive()

    def wait(self) -> None:
        """Wait for the thread to end, which `close` was called for."""
        self._thread.join()

    def refresh(self) -> None:
        """End the pause between two readings."""
        self._wanted.set()

    @property
    def late_ms(self) -> int:
        """For how long servers have been silent."""
        asked_ms = self.asked_ms
        return 0 if asked_ms is None else SYSTEM_CLOCK.monotonic_ms() - asked_ms

    # --- for the view, in the thread ---

    @property
    def client(self) -> Client:
        if self._client is None:
            raise RuntimeError("the feed is not running")
        return self._client

    def begin(self) -> None:
        self.check()
        self.asked_ms = SYSTEM_CLOCK.monotonic_ms()

    def post(self, answer: object) -> None:
        self.check()
        self.asked_ms = None
        self._post(self, answer)

    def pause(self, duration_ms: int) -> None:
        self.check()
        SYSTEM_CLOCK.wait_ms(self._wanted, duration_ms)
        self._wanted.clear()
        self.check()

    def check(self) -> None:
        if self._closed.is_set():
            raise Closed

    def _run(self) -> None:
        if self._after is not None:
            self._after.wait()
            self._after = None
        try:
            with Client(self._config) as client:
                client.on_turn = self.check
                self._client = client
                self.view.run(self)
        except Closed:
            pass
        except RmqError as error:
            self._post(self, error)
        except Exception as error:
            # A defect of ours: the screen shows it in the place of the rows, which
            # would otherwise stand still for no reason that anybody can see.
            logger.exception("could not read a view view=%s", self.view.title)
            failure = RmqError(f"internal error: {type(error).__name__}: {error}")
            self._post(self, failure)
        finally:
            self._client = None  # a view that was left keeps its feed, not the buffers
