"""Headers of what an operator changes in a name server: key-value store, permissions.

Codes 100 to 102, 205, 219, 327.

Source: the classes of the same names in apache/rocketmq.
"""

from __future__ import annotations

from rmqcli.wire.fields import declared
from rmqcli.wire.header import Header


@declared
class GetKVConfigRequestHeader(Header):
    """One value of the name server's key-value store (101)."""

    namespace: str
    key: str


@declared
class GetKVConfigResponseHeader(Header):
    """The value."""

    value: str | None = None


@declared
class PutKVConfigRequestHeader(Header):
    """Set one value (100)."""

    namespace: str
    key: str
    value: str


@declared
class DeleteKVConfigRequestHeader(Header):
    """Remove one value (102)."""

    namespace: str
    key: str


@declared
class GetKVListByNamespaceRequestHeader(Header):
    """Every value of one namespace (219)."""

    namespace: str


@declared
class WipeWritePermOfBrokerRequestHeader(Header):
    """Take a broker's topics out of writing (205)."""

    broker_name: str


@declared
class WipeWritePermOfBrokerResponseHeader(Header):
    """How many topics changed."""

    wipe_topic_count: int


@declared
class AddWritePermOfBrokerRequestHeader(Header):
    """Let a broker's topics be written again (327)."""

    broker_name: str


@declared
class AddWritePermOfBrokerResponseHeader(Header):
    """How many topics changed."""

    add_topic_count: int
