"""Which member of a group gets which queue.

Every member computes this by itself, so each must come to the same result from the same
two sorted lists as Java's members do.

Source: AllocateMessageQueueStrategy and the classes that implement it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from rmqcli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rmqcli.model import MessageQueue


class AllocateMessageQueueStrategy(Protocol):
    """A way to share queues out. Values: two of one kind and settings are equal."""

    @property
    def name(self) -> str:
        """As Java's `getName` gives it."""

    def allocate(
        self,
        *,
        group: str,
        current_cid: str,
        queues: Sequence[MessageQueue],
        cids: Sequence[str],
    ) -> list[MessageQueue]:
        """The queues of `current_cid`; both lists sorted, `cids` those of the group.

        None for an id that is not in the list: it was not noticed yet. Raises
        UsageError where Java's raises: for empty lists, or an empty id.
        """


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")


def sort_client_ids(cids: Iterable[str]) -> list[str]:
    """Sorted as Java compares strings: by UTF-16 units."""
    found = list(cids)
    if all(map(str.isascii, found)):
        return sorted(found)
    return sorted(found, key=_utf16)


def sort_queues(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """Sorted by topic, broker name and queue id, as Java does."""
    found = list(queues)
    if all(q.topic.isascii() and q.broker_name.isascii() for q in found):
        return sorted(found)
    return sorted(
        found, key=lambda q: (_utf16(q.topic), _utf16(q.broker_name), q.queue_id)
    )


def is_member(
    current_cid: str, queues: Sequence[MessageQueue], cids: Sequence[str]
) -> bool:
    """Whether the id is in the list. Raises UsageError for empty arguments."""
    if not current_cid:
        raise UsageError("the client id is empty: no queues can be shared out")
    if not queues:
        raise UsageError("there are no queues to share out")
    if not cids:
        raise UsageError("there are no members to share queues out to")
    return current_cid in cids


class AllocateMessageQueueAveragely:
    """Neighbouring queues to each member; the first ones get one more."""

    name = "AVG"

    def allocate(
        self,
        *,
        group: str,
        current_cid: str,
        queues: Sequence[MessageQueue],
        cids: Sequence[str],
    ) -> list[MessageQueue]:
        """See AllocateMessageQueueStrategy."""
        del group
        if not is_member(current_cid, queues, cids):
            return []
        index = list(cids).index(current_cid)
        size, more = divmod(len(queues), len(cids))
        start = index * size + min(index, more)
        return list(queues[start : start + size + (index < more)])


class AllocateMessageQueueAveragelyByCircle:
    """One queue to each member in turn."""

    name = "AVG_BY_CIRCLE"

    def allocate(
        self,
        *,
        group: str,
        current_cid: str,
        queues: Sequence[MessageQueue],
        cids: Sequence[str],
    ) -> list[MessageQueue]:
        """See AllocateMessageQueueStrategy."""
        del group
        if not is_member(current_cid, queues, cids):
            return []
        return list(queues[list(cids).index(current_cid) :: len(cids)])


class AllocateMessageQueueByConfig:
    """What was configured, whoever else is there."""

    name = "CONFIG"

    def __init__(self, queues: Iterable[MessageQueue]) -> None:
        self.queues = list(queues)

    def allocate(
        self,
        *,
        group: str,
        current_cid: str,
        queues: Sequence[MessageQueue],
        cids: Sequence[str],
    ) -> list[MessageQueue]:
        """See AllocateMessageQueueStrategy."""
        del group, current_cid, queues, cids
        return list(self.queues)


def strategy_named(name: str) -> AllocateMessageQueueStrategy:
    """The strategy of that name, which needs no settings. Raises UsageError."""
    from rmqcli.engine.allocate_hash import AllocateMessageQueueConsistentHash

    known: dict[str, type[AllocateMessageQueueStrategy]] = {
        "AVG": AllocateMessageQueueAveragely,
        "AVG_BY_CIRCLE": AllocateMessageQueueAveragelyByCircle,
        "CIRCLE": AllocateMessageQueueAveragelyByCircle,
        "CONSISTENT_HASH": AllocateMessageQueueConsistentHash,
        "HASH": AllocateMessageQueueConsistentHash,
    }
    found = known.get(name.upper())
    if found is None:
        raise UsageError(
            f"there is no allocation strategy {name!r}", hint="try avg, circle or hash"
        )
    return found()
