"""What one broker is asked for a lag reading, and what it told."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from rmqcli.admin.lag_values import light_value

if TYPE_CHECKING:
    from rmqcli.errors import RmqError
    from rmqcli.wire.bodies_consumer import ConsumerConnection, ConsumerRunningInfo
    from rmqcli.wire.bodies_stats import QueueTimeSpan

GroupTopic = tuple[str, str]

#: Up to so many groups by name are asked for one by one.
GROUPS_ONE_BY_ONE_MAX = 32


@light_value
class LagWish:
    """What is asked for, the same for every broker. `groups` empty: all."""

    groups: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    process_queues: bool = False
    #: why members are not asked for; None: they are
    members_unknown: str | None = None

    @property
    def is_one_by_one(self) -> bool:
        """Whether groups are asked for by name rather than from the whole table."""
        return 0 < len(self.groups) <= GROUPS_ONE_BY_ONE_MAX

    @property
    def wants_owners(self) -> bool:
        """Whether it is cheap enough to ask clients for what they hold, unasked."""
        return len(self.groups) == 1


@light_value
class BrokerPart:
    """What one broker told, filled step by step; `failure` when it stopped telling."""

    broker_name: str
    address: str | None
    failure: RmqError | None = None
    #: the only name server that names it; None: the one that was asked first does
    only_namesrv: str | None = None
    #: groups this broker has settings, offsets or members of
    known_groups: set[str] = field(default_factory=set)
    #: queue id -> offset; a queue that is not in it was never committed
    committed: dict[GroupTopic, dict[int, int]] = field(default_factory=dict)
    inflight: dict[GroupTopic, dict[int, int]] = field(default_factory=dict)
    #: (min, max) by topic and queue id; a topic that is not here is None
    ends: dict[str, dict[int, tuple[int, int]] | None] = field(default_factory=dict)
    spans: dict[GroupTopic, dict[int, QueueTimeSpan]] = field(default_factory=dict)
    connections: dict[str, ConsumerConnection] = field(default_factory=dict)
    #: how many messages each group gave up on; a group that is not in it: not told
    dead_letters: dict[str, int] = field(default_factory=dict)
    group_failures: dict[str, RmqError] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)


@light_value
class SharedAnswers:
    """What needs to be asked only once, whichever broker is asked."""

    #: by group and client id; every broker knows all members and asks any of them
    clients: dict[tuple[str, str], ConsumerRunningInfo | RmqError | None] = field(
        default_factory=dict
    )
    #: groups that some broker knows
    known_groups: set[str] = field(default_factory=set)
