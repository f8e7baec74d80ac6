"""What a cluster has of the kinds that a file of definitions names.

Read by `read.py`; compared with a file by `compare.py`.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from rmqcli.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqcli.admin.definitions.model import Kind
    from rmqcli.admin.definitions.settings import Settings
    from rmqcli.errors import DeniedError, RmqError
    from rmqcli.wire.bodies.config import SubscriptionGroupConfig, TopicConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerEntries:
    """What one broker has: the settings of each entry, by kind and name.

    `unknown` says why nothing is known of a kind. `topics` and `groups` are what the
    broker sent of those, without its `static` topics.
    """

    broker_name: str
    address: str
    version: int
    entries: Mapping[Kind, Mapping[str, Settings]] = field(hash=False)
    unknown: Mapping[Kind, RmqError] = field(default_factory=dict, hash=False)
    topics: Mapping[str, TopicConfig] = field(default_factory=dict, hash=False)
    groups: Mapping[str, SubscriptionGroupConfig] = field(
        default_factory=dict, hash=False
    )
    static: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterEntries:
    """What a cluster has. `errors` are those of brokers that did not answer.

    `denial` is the error if all brokers denied access.
    """

    cluster: str
    brokers: Mapping[str, BrokerEntries] = field(hash=False)
    errors: Mapping[str, RmqError] = field(hash=False)
    denial: DeniedError | None = None
