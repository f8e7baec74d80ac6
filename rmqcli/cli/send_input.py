"""What `rmq send` sends: an argument, files, lines or JSON lines.

Sources give messages, and None before they may have to wait for the next one. Lines
are bytes: nothing is decoded, only the newline is taken off.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Any, cast

from rmqcli.admin.send_message import OutgoingMessage
from rmqcli.errors import UsageError
from rmqcli.units import format_size

_READ_BYTES = 1 << 16

#: No broker takes a larger message: this is a frame's limit.
FILE_BYTES_MAX = 16 << 20
#: A line of JSON can be a few times its body: `\u00e9` for two bytes.
LINE_BYTES_MAX = 64 << 20

Messages = Iterator[OutgoingMessage | None]


def read_bodies(bodies: Iterable[bytes], *, count: int) -> Messages:
    """Each body `count` times."""
    for body in bodies:
        for _ in range(count):
            yield OutgoingMessage(body)


def read_files(names: Iterable[str], *, count: int) -> Messages:
    """Each file `count` times, as it is; `-` is stdin."""
    for name in names:
        with open_bytes(name) as file:
            body = _read_all(file, name)
        for _ in range(count):
            yield OutgoingMessage(body, source=_title(name))


def read_lines(name: str) -> Messages:
    """A message for each line; `-` is stdin."""
    for item in _lines(name):
        if item is None:
            yield None
        else:
            number, line = item
            yield OutgoingMessage(line, source=_where(name, number))


def read_records(name: str) -> Messages:
    """A message for each line of JSON; blank lines are passed over."""
    from rmqcli.admin.send_records import parse_record

    for item in _lines(name):
        if item is None:
            yield None
        elif item[1].strip():
            yield parse_record(item[1], source=_where(name, item[0]))


def first(messages: Messages, count: int) -> Messages:
    """The first `count` messages."""
    left = count
    while left > 0:
        message = next(messages, _END)
        if message is _END:
            return
        if message is not None:
            left -= 1
        yield cast("OutgoingMessage | None", message)


_END: Any = object()


@contextmanager
def open_bytes(name: str) -> Iterator[IO[bytes]]:
    """The file, unbuffered, or stdin for `-`. OSError names the file."""
    if name == "-":
        if sys.stdin is None:
            raise UsageError("stdin is closed")
        buffer = sys.stdin.buffer
        yield cast("IO[bytes]", getattr(buffer, "raw", buffer))
        return
    with open(name, "rb", buffering=0) as file:
        yield cast("IO[bytes]", file)


def _lines(name: str) -> Iterator[tuple[int, bytes] | None]:
    """Number, from 1, and bytes of each line; None before a read that may wait."""
    number = 0
    rest = bytearray()
    with open_bytes(name) as file:
        may_wait = not _is_regular(file)
        while True:
            if may_wait:
                yield None
            data = file.read(_READ_BYTES)
            if not data:
                break
            at = rest_from = 0
            while (end := data.find(b"\n", at)) >= 0:
                number += 1
                line = bytes(rest) + data[at:end] if rest else data[at:end]
                rest.clear()
                yield number, line
                at = rest_from = end + 1
            rest += data[rest_from:]
            if len(rest) > LINE_BYTES_MAX:
                raise UsageError(
                    f"{_where(name, number + 1)}: longer than"
                    f" {format_size(LINE_BYTES_MAX)}"
                )
    if rest:
        yield number + 1, bytes(rest)


def _read_all(file: IO[bytes], name: str) -> bytes:
    parts = bytearray()
    while data := file.read(_READ_BYTES):
        parts += data
        if len(parts) > FILE_BYTES_MAX:
            raise UsageError(
                f"{_title(name)}: over {format_size(FILE_BYTES_MAX)}, which no broker"
                " takes as one message",
                hint="send its lines with --lines",
            )
    return bytes(parts)


def _is_regular(file: IO[bytes]) -> bool:
    try:
        return stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    except (OSError, ValueError, AttributeError):
        return True  # memory, in a test


def _title(name: str) -> str:
    return "stdin" if name == "-" else name


def _where(name: str, number: int) -> str:
    return f"{_title(name)} line {number}"
