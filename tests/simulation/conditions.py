"""The simulated network: delays, losses, refusals and cut connections."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rmqcli.wire.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

OFFSET_CODES = frozenset(
    {
        int(RequestCode.QUERY_CONSUMER_OFFSET),
        int(RequestCode.UPDATE_CONSUMER_OFFSET),
        int(RequestCode.GET_MAX_OFFSET),
    }
)
SEND_BACK_CODES = frozenset(
    {
        int(RequestCode.CONSUMER_SEND_MSG_BACK),
        int(RequestCode.SEND_MESSAGE),
        int(RequestCode.SEND_MESSAGE_V2),
    }
)
LOCK_CODES = frozenset(
    {int(RequestCode.LOCK_BATCH_MQ), int(RequestCode.UNLOCK_BATCH_MQ)}
)
MEMBER_CODES = frozenset(
    {
        int(RequestCode.HEART_BEAT),
        int(RequestCode.GET_CONSUMER_LIST_BY_GROUP),
        int(RequestCode.CHECK_CLIENT_CONFIG),
    }
)
PULL_CODES = frozenset(
    {int(RequestCode.PULL_MESSAGE), int(RequestCode.LITE_PULL_MESSAGE)}
)


@dataclass(slots=True)
class NetworkConditions:
    """The state of the network. Rates are probabilities for each command that is sent.

    `refused` are request codes that a server answers with an error, half of the time;
    `cut` are pairs of a member's number and an address between which nothing passes.
    """

    delay_ms_max: int = 2
    drop_rate: float = 0.0
    reorder_rate: float = 0.0
    refused: AbstractSet[int] = frozenset()
    cut: set[tuple[int, str]] = field(default_factory=set)

    def heal(self) -> None:
        """End all faults of the network."""
        self.delay_ms_max = 2
        self.drop_rate = self.reorder_rate = 0.0
        self.refused = frozenset()
        self.cut.clear()
