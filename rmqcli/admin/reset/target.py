"""The request for a reset: its target and its scope. Pure."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from rmqcli.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqcli.admin.reset.cluster_identity import ClusterIdentity
    from rmqcli.admin.witness import Noted
    from rmqcli.model import MessageQueue
    from rmqcli.position import Position
    from rmqcli.queue_selector import QueueSelector


@dataclass(frozen=True, slots=True)
class ToPosition:
    """A position, resolved in each queue; it may be another group's offsets."""

    position: Position


@dataclass(frozen=True, slots=True)
class Shift:
    """`count` messages forward, or back when negative."""

    count: int


@dataclass(frozen=True, slots=True)
class PastMessage:
    """The offset after one message, in its queue only; see `message.find`."""

    message_id: str
    queue: MessageQueue
    queue_offset: int


@dataclass(frozen=True, slots=True)
class ToOffsets:
    """The offsets of queues in a plan file.

    `planned_from` has the offsets that were committed when the plan was made, for the
    queues of which the file records them. `cluster` is where the plan was made, None
    when the file does not record it. `noted` has the ends of queues, and their last
    messages, as far as the file records them: by these the queues are recognized.
    """

    targets: Mapping[MessageQueue, int]
    planned_from: Mapping[MessageQueue, int | None] = field(default_factory=dict)
    cluster: ClusterIdentity | None = None
    noted: Mapping[MessageQueue, Noted] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Restore:
    """The committed offsets in a backup; None where nothing was committed.

    `noted` has what the backup notes of the queues, by which they are recognized. It is
    empty for offsets that are meant for any topic of that name.
    """

    committed: Mapping[MessageQueue, int | None]
    noted: Mapping[MessageQueue, Noted] = field(default_factory=dict)


Target = ToPosition | Shift | PastMessage | ToOffsets | Restore


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetRequest:
    """The parameters of a reset, except whether to carry it out.

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
