"""Transactions: how a local transaction ended, and the broker's checks of it.

A broker, or a proxy for it, asks a producer of the group about a half message whose
transaction is undecided. `TransactionChecks` calls the user's `on_check` for it, one
check after the other, in a thread of its own:

| thread | runs | ended by |
|---|---|---|
| rmq-check_0 | `on_check`, once a check has arrived | close() |

Source: TransactionMQProducer, TransactionListener and LocalTransactionState in
apache/rocketmq.
"""

from __future__ import annotations

import enum
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from rmqcli.callbacks import call_back
from rmqcli.checked import check_returned
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.dataclass import dataclass
from rmqcli.log import get_logger
from rmqcli.producer.backend import SendResult
from rmqcli.server_requests import FloodLimit
from rmqcli.units import counted

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from rmqcli.errors import RmqError

logger = get_logger(__name__)

_CHECKS_MAX: Final = 2_000  # TransactionMQProducer.checkRequestHoldMax
#: Most bytes of checks that wait. Java bounds only their number.
_CHECKS_BYTES_MAX: Final = 64 << 20


class LocalTransactionState(enum.Enum):
    """How a local transaction ended. Members keep Java's names."""

    COMMIT_MESSAGE = "COMMIT_MESSAGE"
    ROLLBACK_MESSAGE = "ROLLBACK_MESSAGE"
    #: undecided or unknown: the broker will ask `on_check`
    UNKNOW = "UNKNOW"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSendResult(SendResult):
    """A half message, and how its local transaction ended."""

    local_transaction_state: LocalTransactionState


def transaction_result(
    half: SendResult, state: LocalTransactionState
) -> TransactionSendResult:
    """The result for the user."""
    values = {each.name: getattr(half, each.name) for each in fields(half)}
    return TransactionSendResult(**values, local_transaction_state=state)


def decided(found: object) -> LocalTransactionState:
    """The decision of a listener; any other value counts as UNKNOW, as in Java."""
    if isinstance(found, LocalTransactionState):
        return found
    check_returned(found, "the transaction's function")
    if found is not None:
        logger.error(
            "a transaction listener returned %r, which is not a LocalTransactionState",
            found,
        )
    return LocalTransactionState.UNKNOW


def warn_of_end(
    half: SendResult, state: LocalTransactionState, error: RmqError
) -> None:
    """Log a decision that did not arrive."""
    logger.warning(
        "end of transaction not delivered msg_id=%s state=%s; the broker will ask"
        " on_check: %s",
        half.msg_id,
        state.value,
        error,
    )


class TransactionChecks:
    """Calls `on_check` for half messages, in the thread rmq-check_0. Thread-safe."""

    def __init__(self, on_check: Callable[[Any], object]) -> None:
        self._on_check = on_check
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="rmq-check")
        self._lock = threading.Lock()
        #: checks that wait, run, or have an answer on the way, and their bytes; guarded
        #: by _lock
        self._open = self._open_bytes = 0
        self._ignored = FloodLimit()  # for the log only; guarded by _lock

    def close(self) -> None:
        """Drop the checks that wait. Does not wait for the one that runs."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def ask(
        self,
        message: Any,  # noqa: ANN401  # a message of either protocol
        answer: Callable[[LocalTransactionState], Future[None] | None],
        *,
        body_bytes: int,
    ) -> None:
        """Have a half message checked; `answer` is called with the decision.

        `answer` returns the future of its request, or None if it sends none. When too
        many checks or bytes are open the check is dropped, and the broker asks again.
        """
        with self._lock:
            others, others_bytes = self._open, self._open_bytes
            is_full = others >= _CHECKS_MAX or (
                others > 0 and others_bytes + body_bytes > _CHECKS_BYTES_MAX
            )
            if not is_full:
                self._open += 1
                self._open_bytes += body_bytes
        if is_full:
            self.ignore(
                f"msg_id={message.msg_id}: {counted(others, 'other check')} with"
                f" {counted(others_bytes, 'byte')} in total wait for on_check"
            )
            return
        try:
            self._pool.submit(self._check, message, answer, body_bytes)
        except RuntimeError:  # the producer is being closed
            self._ended(body_bytes)

    def ignore(self, why: str) -> None:
        """Log that a check is ignored, once in a flood; the broker will ask again."""
        with self._lock:
            is_news = self._ignored.is_news(SYSTEM_CLOCK.monotonic_ms())
        if is_news:
            logger.warning("check of a transaction ignored %s", why)

    def _check(
        self,
        message: Any,  # noqa: ANN401
        answer: Callable[[LocalTransactionState], Future[None] | None],
        body_bytes: int,
    ) -> None:
        found = call_back(self._on_check, message, "on_check", msg_id=message.msg_id)
        sent = answer(decided(found))
        if sent is None:
            self._ended(body_bytes)
            return

        def done(sent: Future[None]) -> None:
            self._ended(body_bytes)
            if sent.exception() is not None:
                logger.warning(
                    "answer to a check not delivered msg_id=%s; the broker will ask"
                    " again: %s",
                    message.msg_id,
                    sent.exception(),
                )

        sent.add_done_callback(done)

    def _ended(self, body_bytes: int) -> None:
        with self._lock:
            self._open -= 1
            self._open_bytes -= body_bytes
