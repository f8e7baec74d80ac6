"""Decides how offsets can be set at a broker so that the change lasts. No I/O.

    no client reads         commit (15): only the broker's table has offsets; in a group
                            that uses POP as in the next line, where that is possible,
                            because brokers have positions of POP in memory
    clients read, 5.2+      the broker resets each queue itself (222) and refuses the
                            clients' commits until they have moved
    clients read, older     the broker asks the clients (222 -> 220): one timestamp for
                            all queues, so only if each of them gets the right offset
    otherwise               a commit would be overwritten at the clients' next persist

Source: AdminBrokerProcessor#resetOffset, Broker2Client#resetOffset,
MQClientInstance#resetOffset.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from rmqcli.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rmqcli.admin.reset.plan import QueuePlan

#: `timestamp` of 222 that means the end of every queue.
TIMESTAMP_MAX_OFFSET = -1


class Mechanism(enum.Enum):
    """How offsets are set at one broker. The values are shown to users."""

    COMMIT = "commit"
    SERVER_RESET = "server-side reset"
    CLIENT_PUSH = "reset through the clients"
    REFUSED = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class PushRequest:
    """A reset through clients: its one timestamp for all queues, and `isForce`."""

    timestamp_ms: int
    is_force: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetMethod:
    """How offsets are set at one broker. `address` is its master's.

    `is_live` is whether clients consume there: then the committed offset keeps moving.
    """

    address: str
    mechanism: Mechanism
    is_live: bool = False
    push: PushRequest | None = None
    warning: str = ""


def choose_method(
    *,
    address: str,
    version: str,
    is_live: bool,
    is_server_side: bool,
    push: PushRequest | None,
    wants_proof: bool,
    uses_pop: bool = False,
    keeps_positions: bool = False,
) -> ResetMethod:
    """Choose the method for one broker.

    With `keeps_positions` it keeps the positions of POP in a store of their own
    (popConsumerKVServiceEnable), which a commit does not change. With `wants_proof` the
    caller reads back after a persist interval, so even a commit that may be overwritten
    is worth trying.
    """
    mechanism, warning = Mechanism.COMMIT, ""
    if is_server_side and (is_live or uses_pop or keeps_positions):
        mechanism = Mechanism.SERVER_RESET
    elif uses_pop and keeps_positions:
        mechanism = Mechanism.REFUSED
        warning = (
            "the broker keeps positions of POP in RocksDB (popConsumerKVServiceEnable)"
            " and would ignore a commit; it resets them only with"
            " useServerSideResetOffset"
        )
    elif not is_live and keeps_positions:
        warning = (
            "if the group uses POP, a commit has no effect: the broker keeps positions"
            " of POP in RocksDB (popConsumerKVServiceEnable)"
        )
    elif is_live and push is not None:
        mechanism = Mechanism.CLIENT_PUSH
        warning = (
            f"RocketMQ {version} resets through its clients: they stop consuming all"
            " topics for 10 s"
        )
    elif is_live:
        warning = (
            f"RocketMQ {version} can only reset online clients with one timestamp for"
            " all queues, and no timestamp gives these offsets"
        )
        if wants_proof:
            warning += "; a plain commit will probably be overwritten"
        else:
            mechanism = Mechanism.REFUSED
    return ResetMethod(
        address=address,
        mechanism=mechanism,
        is_live=is_live,
        push=push if mechanism is Mechanism.CLIENT_PUSH else None,
        warning=warning,
    )


def find_push(
    queues: Sequence[QueuePlan],
    searches: Mapping[int, Mapping[int, int]],
) -> PushRequest | None:
    """Find a push that moves every queue exactly as wanted; None if there is none.

    `queues` are all write queues of the broker, because a push resets all of them; one
    without a target must not move.
    `searches` is timestamp -> queue id -> the answer of the broker's own search.
    """
    for timestamp_ms, found in searches.items():
        for is_force in (True, False):
            if all(
                _push_fits(each, found.get(each.queue.queue_id), is_force=is_force)
                for each in queues
            ):
                return PushRequest(timestamp_ms=timestamp_ms, is_force=is_force)
    return None


def _push_fits(queue: QueuePlan, found: int | None, *, is_force: bool) -> bool:
    # Without a stored offset in every queue the broker refuses the whole push.
    if found is None or queue.committed is None:
        return False
    # Without force, a push moves a queue only back. A queue that must stay needs a push
    # without force that does not find an earlier offset.
    target = queue.committed if queue.target is None else queue.target
    if is_force:
        return queue.target is not None and max(0, found) == target
    if target == queue.committed:
        return found >= queue.committed
    return found == target and found < queue.committed
