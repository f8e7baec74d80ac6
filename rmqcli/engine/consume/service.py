"""What concurrent and orderly consumption have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, TypeVar

from rmqcli.engine.reports import FailedDelivery, Fate, report_failed
from rmqcli.tasks import unexpected

if TYPE_CHECKING:
    from rmqcli.engine.consume.request import ConcurrentOutcome, OrderlyOutcome
    from rmqcli.engine.member import Member
    from rmqcli.engine.message import Pulled, Readable
    from rmqcli.engine.process_queue import ProcessQueue
    from rmqcli.errors import RmqError
    from rmqcli.model import MessageQueue

Outcome = TypeVar("Outcome", bound="ConcurrentOutcome | OrderlyOutcome")


class ConsumeService(ABC, Generic[Outcome]):
    """The part of both services that does not depend on the order of messages."""

    def __init__(self, member: Member) -> None:
        self._member = member

    @abstractmethod
    def is_busy(self, queue: MessageQueue) -> bool:
        """Whether a listener still needs the queue's lock."""

    @abstractmethod
    def release(self, process_queue: ProcessQueue[Pulled]) -> None:
        """Begin no further batch of the queue; the current ones end."""

    @abstractmethod
    def is_working(self, process_queue: ProcessQueue[Pulled]) -> bool:
        """Whether listeners still have messages of the queue."""

    @abstractmethod
    def _consumed(self, outcome: Outcome) -> None:
        """Process the outcome of one thread."""

    def consumed(self, outcome: Outcome) -> None:
        """Process the outcome of one thread, and continue with the queue."""
        try:
            self._consumed(outcome)
        except Exception as error:  # noqa: BLE001  # the queue must not stand still
            self._begin_anew(outcome.request.process_queue, error)

    def _begin_anew(
        self, process_queue: ProcessQueue[Pulled], error: Exception
    ) -> None:
        """Drop a queue after an unexpected error, and begin it again.

        Messages that are neither consumed nor sent back would hold its offset forever,
        and it is no longer known which of them are with a listener. It begins at its
        committed offset, so that messages may be delivered twice but none is lost.
        """
        unexpected(error)
        process_queue.drop("its consumption failed unexpectedly")
        self._member.rebalance_soon()

    @property
    def _retries_max(self) -> int | None:
        """How often a message is retried; None without a limit."""
        return self._member.config.max_reconsume_times

    def _report(
        self, message: Readable, fate: Fate, error: RmqError | None = None
    ) -> None:
        is_retry = fate in (Fate.RETRY_TOPIC, Fate.RETRY_HERE)
        delivery = FailedDelivery(
            message=message,
            fate=fate,
            retry=message.reconsume_times + 1 if is_retry else None,
            retries_max=self._retries_max if is_retry else None,
            error=error,
        )
        report_failed(self._member.listener, delivery)
