"""Telemetry and heartbeats: one stream for each server that a client uses.

The client sends its settings first, and again every five minutes, when they have
changed, and when the server has lost them. A stream that ends is reopened after a pause
that grows and varies. Heartbeats are sent every 10 s; after three consecutive
heartbeats without an answer, the client reconnects.

Source: ClientSessionImpl in apache/rocketmq-clients; ClientActivity in apache/rocketmq.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import grpc
import grpc.aio

from rmqcli import tasks
from rmqcli.errors import DeadlineError, DisconnectedError, RmqError, TransportError
from rmqcli.log import get_logger
from rmqcli.proxy import rpc as calls
from rmqcli.proxy.io_thread import io_thread
from rmqcli.proxy.status import OK, error_of
from rmqcli.server_requests import FloodLimit, thread_dump
from rmqcli.transport.backoff import Backoff
from rmqcli.wire.protobuf import definition_pb2 as pb
from rmqcli.wire.protobuf import service_pb2 as service

if TYPE_CHECKING:
    import random

    from rmqcli.proxy.channel import ProxyChannel
    from rmqcli.proxy.session import Session

#: gRPC has no name for this type.
_Stream: TypeAlias = Any

logger = get_logger(__name__)

HEARTBEAT_MS: Final = 10_000
SETTINGS_MS: Final = 300_000
#: Consecutive heartbeats without an answer before the client reconnects.
_SILENT_MAX: Final = 3
#: A stream that lasted this long shows that the server works.
_PROVED_MS: Final = 10_000


class Telemetry:
    """Telemetry and heartbeats of one server. Used only in the I/O thread.

    `opened` ends with the outcome of the first attempt. `is_known` says whether the
    server has answered the settings.
    """

    def __init__(
        self, session: Session, channel: ProxyChannel, rng: random.Random
    ) -> None:
        self.channel = channel
        self.opened: tasks.Pending[None] = tasks.Pending()
        self.is_known = False
        self._session = session
        self._backoff = Backoff(rng)
        self._io = io_thread()
        self._stream: _Stream = None
        self._task: asyncio.Task[None] | None = None
        #: gRPC allows one write at a time
        self._writing = asyncio.Lock()
        #: the topics in the settings that were sent last
        self._stated: tuple[str, ...] = ()
        self._limit = FloodLimit()
        self._is_closed = False
        self._silent = 0
        #: the level at which the loss of the server was logged; None while it answers
        self._lost_level: int | None = None

    def start(self) -> None:
        """Open the stream, and keep it open until `close`."""
        if not self._is_closed:
            self._task = self._io.spawn(self._keep_open())
            self._io.call_later(HEARTBEAT_MS, self._beat)
            self._io.call_later(SETTINGS_MS, self._remind)

    def close(self) -> None:
        """End the stream and the connection."""
        self._end()
        self.channel.close()

    def retire(self) -> None:
        """End the stream; calls in flight may end for KEEP_OLD_S."""
        self._end()
        self.channel.reconnect()

    def _end(self) -> None:
        self._is_closed = True
        if self._stream is not None:
            self._stream.cancel()
        if self._task is not None:
            self._task.cancel()
        self.opened.fail(
            self._gone(f"the connection to {self.channel.address} was closed")
        )

    def state_topics(self) -> tasks.Pending[None]:
        """Send the settings if they have topics that the server does not know yet.

        The Pending ends when gRPC has accepted the message.
        """
        pending: tasks.Pending[None] = tasks.Pending()
        stream = self._stream
        if stream is None or self._stated == self._session.topics:
            pending.succeed(None)
        else:
            command = self._command()
            done = self._io.spawn(self._send_safely(stream, command))
            done.add_done_callback(lambda _: pending.succeed(None))
        return pending

    def _command(self) -> service.TelemetryCommand:
        self._stated = self._session.topics
        return self._session.settings_command(self.channel.endpoints)

    def send_settings(self) -> None:
        """Send the settings again, if the stream is open."""
        if self._stream is not None and self.is_known:
            self._send(self._command())

    def reconnect(self) -> None:
        """Use a new connection, and open the stream on it."""
        self.channel.reconnect()
        if self._stream is not None:
            self._stream.cancel()

    # --- whether the server answers ---

    @property
    def is_lost(self) -> bool:
        """Whether it was logged that the server does not answer, and it still does not.

        What fails meanwhile is a consequence of that, and no news.
        """
        return self._lost_level is not None

    def lose(self, error: RmqError, *, level: int = logging.WARNING) -> None:
        """Log once that the server does not answer; each further error only as INFO."""
        address = self.channel.address
        if self._is_closed:
            return
        if not self.is_lost:
            self._lost_level = level
            if isinstance(error, DeadlineError):
                logger.log(level, "proxy %s does not answer; retrying", address)
            else:
                what = "connection to proxy %s is lost; retrying"
                logger.log(level, what, address)
        logger.info("proxy failed address=%s error=%s", address, error)

    def _is_back(self) -> None:
        if self._lost_level is not None:
            logger.log(
                self._lost_level,
                "proxy %s is back; continuing",
                self.channel.address,
            )
            self._lost_level = None

    # --- the stream ---

    async def _keep_open(self) -> None:
        address = self.channel.address
        failures = 0
        while not self._is_closed:
            started_ms = self._session.clock.monotonic_ms()
            try:
                await self._talk()
                error: RmqError = self._gone(f"{address} ended the telemetry stream")
            except RmqError as failure:
                error = failure
            except grpc.RpcError as failure:
                timeout_ms = self._session.config.timeout_ms
                error = self.channel.error_of(failure, "telemetry", timeout_ms)
            except asyncio.CancelledError:
                if self._is_closed:
                    return
                error = self._gone(f"the telemetry stream to {address} was replaced")
            except Exception as failure:  # noqa: BLE001  # the client must continue
                error = tasks.unexpected(failure)
            finally:
                if self._stream is not None:
                    self._stream.cancel()
                    self._stream = None
            if self._is_closed:
                return
            was_known, self.is_known = self.is_known, False
            self.opened.fail(error)
            lasted_ms = self._session.clock.monotonic_ms() - started_ms
            if lasted_ms >= _PROVED_MS:
                self._backoff.succeeded()
                failures = 0
            delay_ms = self._backoff.failed()
            # The error of the first stream is raised in `open`. One that ends each time
            # soon after it was opened is reported once.
            is_news = was_known and not failures
            failures += 1
            self.lose(error, level=logging.WARNING if is_news else logging.INFO)
            await asyncio.sleep(delay_ms / 1_000)

    async def _talk(self) -> None:
        """Run one stream, from the settings to its end."""
        address = self.channel.address
        timeout_ms = self._session.config.timeout_ms
        self._stream = stream = await self.channel.telemetry()
        command = self._command()
        # Reading starts before the write: a server that refuses the client ends the
        # stream at once, and its status cannot be read after a failed write.
        reading = asyncio.ensure_future(stream.read())
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                try:
                    await self._write(stream, command)
                    data = await reading
                except grpc.RpcError as error:
                    # INTERNAL is gRPC's code for a write after the end of the stream.
                    if error.code() is not grpc.StatusCode.INTERNAL:
                        raise
                    data = await _or_eof(reading)
                    if data is grpc.aio.EOF:
                        words = f"{address} ended the telemetry stream"
                        raise self._gone(words) from None
        except TimeoutError:
            raise DeadlineError(
                f"telemetry: no settings from {address} within {timeout_ms} ms",
                address=address,
            ) from None
        finally:
            reading.cancel()
            # It may have failed as the write did: asyncio logs errors never retrieved.
            reading.add_done_callback(_read_error)
        while data is not grpc.aio.EOF:
            self.channel.has_answered = True
            self._take(service.TelemetryCommand.FromString(data))
            data = await stream.read()
        code = await stream.code()
        if code is not grpc.StatusCode.OK:
            raise self._gone(f"{address} ended the telemetry stream with {code.name}")

    def _take(self, command: service.TelemetryCommand) -> None:
        kind = command.WhichOneof("command")
        session, endpoints = self._session, self.channel.endpoints
        if kind is None and command.HasField("status") and command.status.code != OK:
            address = self.channel.address
            raise error_of(command.status, what="telemetry", address=address)
        if kind == "settings":
            self.is_known = True
            self._is_back()
            session.take_settings(command.settings)
            self.opened.succeed(None)
        elif kind == "recover_orphaned_transaction_command":
            session.take_orphaned(
                command.recover_orphaned_transaction_command, endpoints
            )
        elif not self._limit.takes(now_ms := session.clock.monotonic_ms()):
            if self._limit.is_news(now_ms):
                logger.warning(
                    "too many telemetry commands are ignored address=%s kind=%s",
                    self.channel.address,
                    kind,
                )
        elif kind == "print_thread_stack_trace_command":
            nonce = command.print_thread_stack_trace_command.nonce
            answer = service.TelemetryCommand(status=pb.Status(code=pb.Code.OK))
            answer.thread_stack_trace.nonce = nonce
            answer.thread_stack_trace.thread_stack_trace = thread_dump()
            self._send(answer)
        elif kind == "verify_message_command":
            nonce = command.verify_message_command.nonce
            session.take_verify(
                command.verify_message_command,
                endpoints,
                lambda status: self._answer_verify(nonce, status),
            )
        elif kind == "reconnect_endpoints_command":
            logger.info("asked to reconnect address=%s", self.channel.address)
            self.reconnect()
        else:
            logger.info("telemetry command ignored kind=%s", kind)

    def _answer_verify(self, nonce: str, status: pb.Status) -> None:
        answer = service.TelemetryCommand(status=status)
        answer.verify_message_result.nonce = nonce
        self._send(answer)

    def _send(self, command: service.TelemetryCommand) -> None:
        stream = self._stream
        if stream is not None and not self._is_closed:
            self._io.spawn(self._send_safely(stream, command))

    async def _send_safely(
        self, stream: _Stream, command: service.TelemetryCommand
    ) -> None:
        # The reader of the stream learns why it ended, and reopens it.
        with suppress(grpc.RpcError, asyncio.InvalidStateError):
            await self._write(stream, command)

    async def _write(self, stream: _Stream, command: service.TelemetryCommand) -> None:
        async with self._writing:
            await stream.write(command.SerializeToString())

    # --- heartbeats ---

    def _beat(self) -> None:
        session = self._session
        if self._is_closed or session.is_closed:
            return
        rpc = calls.heartbeat(session.client_type, session.group)

        def ended(pending: tasks.Pending[bool]) -> None:
            outcome = pending.outcome()
            if isinstance(outcome, RmqError):
                self._unanswered(outcome)
            else:
                self._silent = 0
                if self.is_known:
                    self._is_back()
                if not outcome:
                    self.send_settings()
            self._io.call_later(HEARTBEAT_MS, self._beat)

        self.channel.submit(rpc, session.config.timeout_ms).on_done(ended)

    def _unanswered(self, error: RmqError) -> None:
        if self._is_closed:
            return
        if isinstance(error, TransportError):
            self._silent += 1
            self.lose(error)
        else:
            logger.warning(
                "heartbeat failed address=%s error=%s", self.channel.address, error
            )
        if self._silent >= _SILENT_MAX:
            self._silent = 0
            self.reconnect()

    def _remind(self) -> None:
        if not self._is_closed:
            self.send_settings()
            self._io.call_later(SETTINGS_MS, self._remind)

    def _gone(self, words: str) -> DisconnectedError:
        return DisconnectedError(words, address=self.channel.address)


def _read_error(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()


async def _or_eof(reading: asyncio.Future[Any]) -> Any:  # noqa: ANN401  # bytes or EOF
    """The message that was read; EOF when the stream ended without one."""
    try:
        return await reading
    except grpc.RpcError:
        return grpc.aio.EOF
