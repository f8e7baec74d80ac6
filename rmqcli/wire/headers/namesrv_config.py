"""Headers of administering a name server: key-value store and write permissions.

Codes 100 to 102, 205, 219, 327.

Source: the classes of the same names in apache/rocketmq.
"""

from __future__ import annotations

from rmqcli.wire.fields import declared
from rmqcli.wire.header import Header


@declared
class GetKVConfigRequestHeader(Header):
    """Query one value of the name server's key-value store (101)."""

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
    """Query every value of one namespace (219)."""

    namespace: str


@declared
class WipeWritePermOfBrokerRequestHeader(Header):
    """Remove the write permission of a broker's topics (205)."""

    broker_name: str


@declared
class WipeWritePermOfBrokerResponseHeader(Header):
    """The number of topics that changed."""

    wipe_topic_count: int


@declared
class AddWritePermOfBrokerRequestHeader(Header):
    """Restore the write permission of a broker's topics (327)."""

    broker_name: str


@declared
class AddWritePermOfBrokerResponseHeader(Header):
    """The number of topics that changed."""

    add_topic_count: int
