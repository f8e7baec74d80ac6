"""What a reset is asked to do: its targets and its scope. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqcli.admin.reset.cluster_identity import ClusterIdentity
    from rmqcli.model import MessageQueue
    from rmqcli.position import Position
    from rmqcli.queue_selector import QueueSelector


@dataclass(frozen=True, slots=True)
class ToPosition:
    """A position, resolved in each queue; where group H stands is one of them."""

    position: Position


@dataclass(frozen=True, slots=True)
class Shift:
    """So many messages on, or back when negative."""

    count: int


@dataclass(frozen=True, slots=True)
class PastMessage:
    """Behind one message, in its queue only. `message_id` is either kind of id."""

    message_id: str


@dataclass(frozen=True, slots=True)
class ToOffsets:
    """Given offsets of given queues, out of a plan file.

    `planned_from` is what was committed when the plan was made, for those queues where
    the file says it. `cluster` is where it was made, None when the file does not say.
    """

    targets: Mapping[MessageQueue, int]
    planned_from: Mapping[MessageQueue, int | None] = field(default_factory=dict)
    cluster: ClusterIdentity | None = None


@dataclass(frozen=True, slots=True)
class Restore:
    """What a backup holds; None where nothing was committed."""

    committed: Mapping[MessageQueue, int | None]


Target = ToPosition | Shift | PastMessage | ToOffsets | Restore


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetRequest:
    """Everything that was asked for, except whether to carry it out.

    `include_retry` also moves the group's retry topic; `wants_proof` promises a second
    read-back after a persist interval; `with_edges` also reads the messages on each
    side of the targets.
    """

    group: str
    topic: str
    target: Target
    selectors: tuple[QueueSelector, ...] = ()
    include_retry: bool = False
    wants_proof: bool = False
    with_edges: bool = False
