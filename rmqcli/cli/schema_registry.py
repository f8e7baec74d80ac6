"""`--decode`, and the schema registry that `--decode registry:URL` asks.

Each schema is asked for once, whatever became of it: readers are kept, and an error is
repeated for a while without asking again. A registry that gives no answer, or refuses
the login, is not asked for anything in this time, so that a command which follows a
topic goes on.

The login is that of the environment or of a private file, see `rmqcli.credentials`.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Final

from rmqcli.clock import SYSTEM_CLOCK, Deadline
from rmqcli.decode import Decode, parse_decode
from rmqcli.errors import BodyError, DecodeError, TransportError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from rmqcli.clock import Clock
    from rmqcli.decode.registry import Get, Read

#: For all that one schema needs.
TIMEOUT_MS: Final = 5_000
#: How long an error is repeated, and a registry without an answer is not asked.
PAUSE_MS: Final = 30_000
#: The most that an answer may have.
ANSWER_BYTES_MAX: Final = 1 << 20
#: Bounds of what is kept: schemas and errors, and the bytes of their answers.
_KEPT_MAX: Final = 1_000
_KEPT_BYTES_MAX: Final = 16 << 20
#: Statuses after which no other schema would be had either.
_REFUSED: Final = (401, 403, 407, 429, 503)


def read_decode(text: str) -> Decode:
    """Return what reads the bodies of a format. Raises as `parse_decode` does."""
    return parse_decode(text, open_registry)


def open_registry(url: str) -> SchemaRegistry:
    """Return what asks the registry at a URL, with the login of the environment.

    Nothing is sent yet. Raises ConfigError for a login that cannot be used.
    """
    from rmqcli.credentials import load_registry_login

    return SchemaRegistry(url, login=load_registry_login(os.environ))


class _Entry:
    """What was made for a key. Its fields are set before `done` is."""

    __slots__ = ("answer_bytes", "done", "error", "read", "until_ms")

    def __init__(self) -> None:
        self.done = threading.Event()
        self.read: Read | None = None
        self.error: DecodeError | None = None
        #: until when the error is repeated
        self.until_ms = 0
        self.answer_bytes = 0


class SchemaRegistry:
    """A `rmqcli.decode.registry.Registry` over HTTP. Safe to use from several threads.

    `login` is a user and a password. A thread that needs a schema which another one
    asks for waits for its answer.
    """

    def __init__(
        self,
        url: str,
        *,
        login: tuple[str, str] | None = None,
        timeout_ms: int = TIMEOUT_MS,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._url = url
        self._timeout_ms = timeout_ms
        self._clock = clock
        self._headers = {
            "Accept": "application/vnd.schemaregistry.v1+json, application/json",
            "Accept-Encoding": "identity",
            "Connection": "close",
            "User-Agent": "rmqcli",
        }
        if login is not None:
            from base64 import b64encode

            token = b64encode(":".join(login).encode()).decode()
            self._headers["Authorization"] = f"Basic {token}"
        self._lock = threading.Lock()
        #: what was made, oldest first; guarded by _lock
        self._kept: dict[Hashable, _Entry] = {}
        #: of the answers to `_kept`; guarded by _lock
        self._kept_bytes = 0
        #: why nothing is asked, and until when; guarded by _lock
        self._pause: tuple[str, int] | None = None

    def once(self, key: Hashable, make: Callable[[Get], Read]) -> Read:
        """Return what `make` returned for this key. See `Registry.once`."""
        while True:
            with self._lock:
                entry = self._kept.get(key)
                if entry is not None and self._is_over(entry):
                    self._drop(key)
                    entry = None
                is_mine = entry is None
                if entry is None:
                    entry = self._kept[key] = _Entry()
            if is_mine:
                self._make(key, entry, make)
            entry.done.wait()
            if entry.read is not None:
                return entry.read
            if entry.error is not None:
                # A new one: raising the same one again would lengthen its traceback.
                raise DecodeError(entry.error.message)
            # The thread that asked was interrupted.

    def _is_over(self, entry: _Entry) -> bool:
        """Whether an error is not to be repeated any more. The lock is held."""
        if not entry.done.is_set() or entry.error is None:
            return False
        return self._clock.monotonic_ms() >= entry.until_ms

    def _make(self, key: Hashable, entry: _Entry, make: Callable[[Get], Read]) -> None:
        deadline = Deadline(self._clock, self._timeout_ms)

        def get(url: str) -> bytes:
            body = self._get(url, deadline)
            entry.answer_bytes += len(body)
            return body

        try:
            entry.read = make(get)
        except DecodeError as error:
            entry.error = error
        finally:
            with self._lock:
                self._settle(key, entry)
            entry.done.set()

    def _settle(self, key: Hashable, entry: _Entry) -> None:
        """Keep what was made, and drop what is too much. The lock is held."""
        if entry.read is None and entry.error is None:  # an interrupt
            self._kept.pop(key, None)
            return
        now_ms = self._clock.monotonic_ms()
        entry.until_ms = now_ms + PAUSE_MS
        if self._pause is not None and entry.error is not None:
            entry.until_ms = min(entry.until_ms, max(now_ms, self._pause[1]))
        self._kept_bytes += entry.answer_bytes
        for other in list(self._kept):
            if len(self._kept) <= _KEPT_MAX and self._kept_bytes <= _KEPT_BYTES_MAX:
                break
            if other != key and self._kept[other].done.is_set():
                self._drop(other)

    def _drop(self, key: Hashable) -> None:
        self._kept_bytes -= self._kept.pop(key).answer_bytes

    def _get(self, url: str, deadline: Deadline) -> bytes:
        """Return the answer to a GET. Raises DecodeError."""
        from rmqcli.transport.http import get

        with self._lock:
            if self._pause is not None:
                if self._clock.monotonic_ms() < self._pause[1]:
                    raise DecodeError(self._pause[0])
                self._pause = None
        try:
            status, body = get(
                url,
                headers=self._headers,
                timeout_ms=max(1, deadline.left_ms()),
                bytes_max=ANSWER_BYTES_MAX,
            )
        except TransportError as error:
            raise self._paused(f"schema registry: {error.message}") from None
        except BodyError as error:
            raise DecodeError(f"schema registry: {error.message}") from None
        if status == 200:
            return body
        text = f"the schema registry answered with HTTP {status}{_reason(body)}"
        if 300 <= status < 400:
            text += ", a redirect, which is not followed"
        # RocketMQ's registry refuses with 40101, for example.
        is_refused = (status // 100 if status > 999 else status) in _REFUSED
        raise self._paused(text) if is_refused else DecodeError(text)

    def _paused(self, text: str) -> DecodeError:
        """Return the error of a registry that is not to be asked for a while."""
        with self._lock:
            self._pause = text, self._clock.monotonic_ms() + PAUSE_MS
        return DecodeError(text)


def _reason(body: bytes) -> str:
    """Return what the registry says of an error: both have it as `message`."""
    import json

    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    found = answer.get("message") if isinstance(answer, dict) else None
    if not isinstance(found, str) or not found.isprintable():
        return ""
    return f" ({found[:200]})"
