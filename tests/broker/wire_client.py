"""A client that sends bytes, valid or not, for the tests of the server."""

from __future__ import annotations

import socket

from rmqcli.wire.command import RemotingCommand, decode_command, encode_command
from rmqcli.wire.frame import FrameBuffer, SerializeType
from tests.kit.waiting import PATIENCE_S


class WireClient:
    """One blocking connection. A context manager."""

    def __init__(self, address, *, timeout_s=PATIENCE_S):
        host, _, port = address.rpartition(":")
        self.sock = socket.create_connection((host, int(port)), timeout_s)
        self._buffer = FrameBuffer()
        self._frames = []
        self._opaque = 0

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.sock.close()

    def send(self, code, *, body=b"", frame_flag=0, binary=False, **ext_fields):
        """Send a request without waiting; return its opaque."""
        self._opaque += 1
        command = RemotingCommand(
            code=code,
            opaque=self._opaque,
            flag=frame_flag,
            ext_fields={k: str(v) for k, v in ext_fields.items()},
            body=body,
        )
        kind = SerializeType.ROCKETMQ if binary else SerializeType.JSON
        self.sock.sendall(encode_command(command, kind))
        return self._opaque

    def receive_frame(self):
        """The next frame; EOFError when the server closes first."""
        while not self._frames:
            data = self.sock.recv(1 << 18)
            if not data:
                raise EOFError
            self._frames += self._buffer.feed(data)
        return self._frames.pop(0)

    def receive(self):
        """The next command."""
        return decode_command(self.receive_frame())

    def ask(self, code, **options):
        """Send a request and return its answer, which must be the next command."""
        opaque = self.send(code, **options)
        answer = self.receive()
        assert answer.opaque == opaque
        return answer

    def is_closed_by_peer(self):
        """Whether the peer closes the connection; data before that is dropped."""
        try:
            while self.sock.recv(1 << 18):
                pass
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False
        return True
