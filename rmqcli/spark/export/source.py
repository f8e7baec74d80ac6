"""What a part is read from: the port, and its broker side.

A source is a value that can be pickled to a worker; `connect` makes of it, there, an
object with connections. Tests give sources that hold bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from rmqcli.model import MessageQueue, OffsetRange


class Chunk(Protocol):
    """The records of offsets `start <= o < end` of one queue, as a broker stores them.

    `missing` are the sub-ranges the broker does not have.
    """

    @property
    def queue(self) -> MessageQueue: ...
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def body(self) -> bytes | memoryview: ...
    @property
    def missing(self) -> Sequence[tuple[int, int]]: ...


class ChunkReader(Protocol):
    """Connected. Used by one thread."""

    def read(self, wanted: OffsetRange) -> Iterator[Chunk]:
        """Chunks in offset order, contiguous, that cover `wanted` exactly."""


class ChunkSource(Protocol):
    """Where chunks come from; pickled, so it holds no connection."""

    @property
    def is_secret(self) -> bool:
        """Whether it may only be sent over connections that are encrypted."""

    def connect(self) -> AbstractContextManager[ChunkReader]:
        """Open what is needed; the context manager closes it again."""
