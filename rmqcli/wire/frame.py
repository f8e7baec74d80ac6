"""Remoting frames: where one command ends and the next begins.

    total length   4 bytes, big endian, counts everything after itself
    header length  low 3 bytes; the top byte is the SerializeType
    header data    header-length bytes
    body           the rest, often empty

The first 8 bytes decide whether the input can be a frame; headers are never read.

Source: `RemotingCommand.encode`/`decode` and `NettyDecoder` in apache/rocketmq.
"""

from __future__ import annotations

import enum
import struct

from rmqcli.dataclass import dataclass
from rmqcli.errors import FrameError

#: Largest frame accepted or sent, in bytes, its length word included; the broker's own
#: default (`com.rocketmq.remoting.frameMaxLength`). Checked as soon as the length is
#: known, so a hostile or confused peer cannot make us buffer 2 GiB.
FRAME_LENGTH_MAX = 16 * 1024 * 1024

#: Free space that is made for reads, so that few calls empty a socket.
READ_SIZE_BYTES = 256 * 1024

#: With less free space than this, more is made. It is less than READ_SIZE_BYTES,
#: because otherwise the buffer would be copied for each byte that a slow peer sends.
_ROOM_MIN_BYTES = 64 * 1024

#: A longer buffer is replaced once the frame that needed it is complete.
_RETAINED_BYTES_MAX = 1024 * 1024

_HEADER_LENGTH_MAX = 0xFFFFFF
_LENGTH = struct.Struct(">i")
_LENGTHS = struct.Struct(">iI")
_UNPACK_LENGTHS = _LENGTHS.unpack_from
_WRONG_PEER_HINT = "is this the port of a RocketMQ name server or broker, without TLS?"


class SerializeType(enum.IntEnum):
    """The encoding of a frame's header. Source: SerializeType in apache/rocketmq."""

    JSON = 0
    ROCKETMQ = 1


@dataclass(slots=True)
class Frame:
    """One undecoded command; treat as immutable.

    Not frozen, because a bulk read makes one for every answer.
    """

    serialize_type: int
    header: bytes
    body: bytes


def encode_frame(serialize_type: int, header: bytes, body: bytes) -> bytes:
    """Return the bytes of a frame, ready to send.

    Raises FrameError if the length of the header does not fit in 24 bits or the frame
    is longer than `FRAME_LENGTH_MAX`.
    """
    length = 4 + len(header) + len(body)
    if len(header) > _HEADER_LENGTH_MAX or length + 4 > FRAME_LENGTH_MAX:
        raise FrameError(
            f"frame of {length + 4} bytes with a header of {len(header)} exceeds the"
            f" limit of {FRAME_LENGTH_MAX}"
        )
    mark = serialize_type << 24 | len(header)
    return b"".join((_LENGTHS.pack(length, mark), header, body))


class FrameBuffer:
    """Turns a stream of bytes, received in any pieces, into frames. Does no I/O.

    There are two ways to add bytes, with the same result: `feed` copies them, and
    `writable` and `wrote` let a socket write into the buffer itself. The buffer holds
    at most one frame and one read. Not safe to share between threads.

    >>> buffer = FrameBuffer()
    >>> buffer.feed(b"")
    []
    """

    def __init__(self) -> None:
        self._data = bytearray(READ_SIZE_BYTES)
        #: the received bytes that were not yet returned are _data[_start:_end]
        self._start = 0
        self._end = 0

    @property
    def pending_bytes(self) -> int:
        """The number of bytes received of an incomplete frame."""
        return self._end - self._start

    def feed(self, data: bytes | bytearray | memoryview) -> list[Frame]:
        """Add received bytes; return the frames they complete, oldest first.

        Raises FrameError on bytes that cannot be a frame. It is then unknown where the
        next frame begins, so the caller must close the connection; frames that this
        same call completed are lost, too.
        """
        frames: list[Frame] = []
        given = memoryview(data)
        while given:
            room = self.writable()
            size = min(len(room), len(given))
            room[:size] = given[:size]
            room.release()
            given = given[size:]
            frames += self.wrote(size)
        return frames

    def writable(self) -> memoryview:
        """Return the free part of the buffer; release it before calling `wrote`.

        It has at least 64 KiB, and more while a large frame arrives: up to as many
        bytes as have arrived of the frame. So a peer that only declares a large frame
        causes no allocation.
        """
        if len(self._data) - self._end < _ROOM_MIN_BYTES:
            self._make_room()
        return memoryview(self._data)[self._end :]

    def wrote(self, count: int) -> list[Frame]:
        """Add the `count` bytes that were written at the start of `writable()`.

        Returns and raises as `feed` does.
        """
        data, start = self._data, self._start
        end = self._end = self._end + count
        frames: list[Frame] = []
        while end - start >= 8:
            length, mark = _UNPACK_LENGTHS(data, start)
            header_length = mark & _HEADER_LENGTH_MAX
            self._check(length, header_length, mark >> 24)
            frame_end = start + 4 + length
            if frame_end > end:
                break
            body_start = start + 8 + header_length
            with memoryview(data) as view:
                header = bytes(view[start + 8 : body_start])
                body = bytes(view[body_start:frame_end])
            frames.append(Frame(mark >> 24, header, body))
            start = frame_end
        if start == end:
            start = end = self._end = 0
            if len(data) > _RETAINED_BYTES_MAX:
                self._data = bytearray(READ_SIZE_BYTES)
        self._start = start
        if 4 <= end - start < 8:
            # Enough to recognise a peer that speaks another protocol.
            self._check_length(_LENGTH.unpack_from(data, start)[0])
        return frames

    def take_pending(self) -> bytes:
        """Return the bytes of an incomplete frame, and remove them from the buffer.

        This is for a server whose many idle connections share one buffer.
        """
        pending = bytes(self._data[self._start : self._end])
        self._start = self._end = 0
        return pending

    def _make_room(self) -> None:
        """Move the pending bytes to the front, of a longer buffer if that is needed."""
        pending = self._end - self._start
        wanted = READ_SIZE_BYTES
        if pending > wanted:
            (length,) = _LENGTH.unpack_from(self._data, self._start)
            wanted = max(wanted, min(pending, length + 4 - pending))
        kept = self._data[self._start : self._end]
        if len(self._data) - pending < wanted:
            self._data = bytearray(pending + wanted)
        self._data[:pending] = kept
        self._start, self._end = 0, pending

    def _check(self, length: int, header_length: int, serialize_type: int) -> None:
        self._check_length(length)
        if not 0 < header_length <= length - 4:
            raise FrameError(
                f"header length {header_length} is not in 1..{length - 4}",
                hint=_WRONG_PEER_HINT,
            )
        if serialize_type > SerializeType.ROCKETMQ:
            raise FrameError(f"serialize type {serialize_type} is neither 0 nor 1")

    @staticmethod
    def _check_length(length: int) -> None:
        if not 4 < length <= FRAME_LENGTH_MAX - 4:
            raise FrameError(
                f"frame length {length} is not in 5..{FRAME_LENGTH_MAX - 4}",
                hint=_WRONG_PEER_HINT,
            )
