"""When a member rebalances: soon after something changed, else each 20 s.

Each topic has a schedule of its own, so that one whose brokers do not answer delays no
other. One run of a topic at a time; requests during a run become one more. Two runs are
a second apart, so that a storm of members coming and going costs little; while
something is not as it should be the next run comes after that second (5.2).

Decision: news of the members does not wait for that second, only for NEWS_INTERVAL_MS:
the member that got a queue of ours asks at once where to begin, and by then we must
have committed.

Source: RebalanceService.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from rmqcli.engine.tasks import spawn
from rmqcli.errors import RmqError
from rmqcli.one_line_log import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.engine.member import Member
    from rmqcli.engine.rebalance import Rebalance

logger = one_line(logging.getLogger(__name__))

MIN_INTERVAL_MS: Final = 1_000  # rocketmq.client.rebalance.minInterval
NEWS_INTERVAL_MS: Final = 100


class RebalanceService:
    """Runs `rebalance` for every subscribed topic from `start` until `stop`."""

    def __init__(self, member: Member, rebalance: Rebalance) -> None:
        self._member = member
        self._rebalance = rebalance
        self._is_stopped = True
        self._schedules: dict[str, _Schedule] = {}

    @property
    def runs(self) -> int:
        """How often the topic that ran most often was rebalanced."""
        return max((each.runs for each in self._schedules.values()), default=0)

    def start(self) -> None:
        """Run now, and from now on."""
        self._is_stopped = False
        self.soon()

    def stop(self) -> None:
        """Begin no more runs."""
        self._is_stopped = True
        for schedule in self._schedules.values():
            schedule.is_stopped = True

    def soon(self) -> None:
        """Run as soon as may be."""
        self._run_after(MIN_INTERVAL_MS)

    def members_changed(self) -> None:
        """Run at once, for others do too (code 40)."""
        self._run_after(NEWS_INTERVAL_MS)

    def _run_after(self, interval_ms: int) -> None:
        if self._is_stopped:
            return
        for topic in self._member.subscriptions:
            if topic not in self._schedules:
                self._schedules[topic] = _Schedule(
                    self._member, self._rebalance, topic, self._ended
                )
        for schedule in list(self._schedules.values()):
            schedule.run_after(interval_ms)

    def _ended(self, topic: str) -> None:
        """A run of the topic has ended: forget one that is not subscribed any more."""
        if topic not in self._member.subscriptions:
            self._schedules.pop(topic).is_stopped = True


class _Schedule:
    """When one topic is rebalanced."""

    def __init__(
        self,
        member: Member,
        rebalance: Rebalance,
        topic: str,
        ended: Callable[[str], None],
    ) -> None:
        self._member = member
        self._rebalance = rebalance
        self._topic = topic
        self._ended = ended
        self._is_running = False
        #: asked for during a run: the shortest interval that was asked with
        self._wanted_after_ms: int | None = None
        self.is_stopped = False
        self._started_ms: int | None = None
        #: the plan that counts; older ones on the agenda do nothing
        self._plan = 0
        self.runs = 0

    def run_after(self, interval_ms: int) -> None:
        """Run, but not before `interval_ms` after the beginning of the last run."""
        if self._is_running:
            self._wanted_after_ms = min(
                interval_ms, self._wanted_after_ms or interval_ms
            )
            return
        started_ms, now_ms = self._started_ms, self._member.now_ms()
        if started_ms is None or now_ms - started_ms >= interval_ms:
            self._run()
        else:
            self._run_in(started_ms + interval_ms - now_ms)

    def _run_in(self, delay_ms: int) -> None:
        self._plan += 1
        plan = self._plan

        def run() -> None:
            if plan == self._plan and not self.is_stopped and not self._is_running:
                self._run()

        self._member.later(delay_ms, run)

    def _run(self) -> None:
        self._plan += 1
        self._is_running = True
        self._wanted_after_ms = None
        self._started_ms = self._member.now_ms()
        self.runs += 1
        spawn(self._rebalance.run(self._topic), self._ran)

    def _ran(self, is_balanced: bool | RmqError) -> None:
        self._is_running = False
        self._ended(self._topic)
        if self.is_stopped:
            return
        if isinstance(is_balanced, RmqError):
            logger.warning("rebalance of topic %s failed: %s", self._topic, is_balanced)
        if self._wanted_after_ms is not None:
            self.run_after(self._wanted_after_ms)
        elif is_balanced is True:
            self._run_in(self._member.config.rebalance_interval_ms)
        else:
            self._run_in(MIN_INTERVAL_MS)
