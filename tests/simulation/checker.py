"""What must hold in every simulated history, and the checks of it.

Messages are numbered. A number is settled once a listener has succeeded with it, or
once it is a dead letter. A record is settled once its number is, and also once a later
record of the same number is stored (the message was sent back), or once the record was
trimmed away. The checks: commits pass settled records only; no message succeeds twice
in one assignment of a queue; orderly calls of one queue do not overlap, and skip no
message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqcli.store.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rmqcli.engine.message import Pulled
    from rmqcli.engine.process_queue import ProcessQueue
    from rmqcli.model import MessageQueue
    from rmqcli.store.message_store import Appended
    from rmqcli.wire.message.encode import MessageFields
    from tests.simulation.schedule import Schedule

    Place = tuple[str, str, int]  # broker name, topic, queue id

TOPIC: Final = "sim"
GROUP: Final = "sim-group"
RETRY_TOPIC: Final = f"%RETRY%{GROUP}"
DLQ_TOPIC: Final = f"%DLQ%{GROUP}"
VIOLATIONS_MAX: Final = 10


class RecordingStore(MemoryStore):
    """A store that reports every record to the checker."""

    def __init__(
        self, broker: str, stored: Callable[[str, str, int, int, int], None]
    ) -> None:
        super().__init__()
        self._broker = broker
        self._stored = stored

    def append(
        self, messages: Sequence[MessageFields], *, tags_codes: Sequence[int]
    ) -> list[Appended]:
        places = super().append(messages, tags_codes=tags_codes)
        for fields, place in zip(messages, places, strict=True):
            if fields.body.isdigit():
                at = place.commit_log_offset
                number = int(fields.body)
                self._stored(self._broker, fields.topic, fields.queue_id, number, at)
        return places


class Life:
    """What was consumed in one assignment of a queue to a member."""

    __slots__ = ("done", "highest", "process_queue")

    def __init__(self, process_queue: ProcessQueue[Pulled]) -> None:
        self.process_queue = process_queue
        self.done: set[int] = set()
        #: orderly: the highest offset that was consumed
        self.highest = -1


class Checker:
    """Records what happens; `violations` lists what must not happen."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self.violations: list[str] = []
        #: numbers that are stored and not consumed, dead, trimmed or skipped
        self.pending: dict[int, None] = {}
        self.consumed: dict[int, int] = {}
        self.dead = 0
        self.trimmed = 0
        self.skipped = 0
        self.duplicates = 0
        self.failures = 0
        self._sequence = 0
        #: number -> its last record: sequence; broker and log offset; topic and queue
        self._last: dict[int, int] = {}
        self._where: dict[int, tuple[str, int]] = {}
        self._queue: dict[int, tuple[str, int]] = {}
        #: records of the topic and its retry topic: (number, sequence) by offset
        self._records: dict[Place, list[tuple[int, int]]] = {}
        self._frontier: dict[Place, int] = {}
        self._minimum: dict[Place, int] = {}
        self._lives: dict[int, Life] = {}

    def violation(self, what: str) -> None:
        """Record a violation."""
        self._schedule.note(f"VIOLATION {what}")
        if len(self.violations) < VIOLATIONS_MAX:
            self.violations.append(f"at {self._schedule.now_ms} ms: {what}")

    # --- records ---

    def stored(
        self, broker: str, topic: str, queue_id: int, number: int, log_offset: int
    ) -> None:
        """Note that a record of a number was stored in a queue."""
        self._sequence += 1
        self._where[number] = (broker, log_offset)
        self._queue[number] = (topic, queue_id)
        if topic == TOPIC:
            self.pending[number] = None
        self._last[number] = self._sequence
        if topic in (TOPIC, RETRY_TOPIC):
            records = self._records.setdefault((broker, topic, queue_id), [])
            records.append((number, self._sequence))
        elif topic == DLQ_TOPIC and number in self.pending:
            self.dead += 1
            del self.pending[number]

    def trimmed_to(
        self, broker: str, log_min: int, minimums: Mapping[Place, int]
    ) -> None:
        """Note that a log begins at `log_min` now: earlier messages are gone."""
        for number in list(self.pending):
            where, at = self._where[number]
            if where == broker and at < log_min:
                del self.pending[number]
                self.trimmed += 1
        self._minimum.update(minimums)

    def skipped_to(self, place: Place, offset: int) -> None:
        """Note a reset: messages before `offset` need not be consumed any more."""
        for number, sequence in self._records.get(place, ())[:offset]:
            if number in self.pending and self._last[number] == sequence:
                del self.pending[number]
                self.skipped += 1

    def oldest(self, broker: str, end: int) -> int:
        """The commit log offset of a broker's oldest record that is still needed."""
        places = [self._where[number] for number in self.pending]
        return min([at for where, at in places if where == broker], default=end)

    def where(self, number: int) -> str:
        """Describe where the last record of a number is."""
        topic, queue_id = self._queue[number]
        return f"{number} in {topic}@{self._where[number][0]}:{queue_id}"

    def number_at(self, place: Place, offset: int) -> int:
        """The number of the message in a record."""
        return self._records[place][offset][0]

    def end_of(self, place: Place) -> int:
        """The offset after the last record."""
        return len(self._records.get(place, ()))

    def places(self) -> list[Place]:
        """The queues that have records."""
        return list(self._records)

    def is_settled(self, place: Place, offset: int) -> bool:
        """Whether the record at `offset` is settled."""
        if offset < self._minimum.get(place, 0):
            return True
        number, sequence = self._records[place][offset]
        return number not in self.pending or self._last[number] > sequence

    def first_unsettled(self, place: Place) -> int:
        """The lowest offset whose record is not settled."""
        at, end = self._frontier.get(place, 0), self.end_of(place)
        while at < end and self.is_settled(place, at):
            at += 1
        self._frontier[place] = at
        return at

    def committed(
        self, broker: str, group: str, topic: str, queue_id: int, offset: int
    ) -> None:
        """Check a commit that a broker received."""
        if group != GROUP or topic not in (TOPIC, RETRY_TOPIC):
            return
        place = (broker, topic, queue_id)
        self._schedule.note(f"commit {broker} {topic} {queue_id} {offset}")
        if offset > self._frontier.get(place, 0) and offset > self.first_unsettled(
            place
        ):
            first = self._frontier[place]
            self.violation(
                f"{topic} {broker} {queue_id} committed at {offset}, but {first}"
                f" is not consumed (it ends at {self.end_of(place)})"
            )

    # --- listeners ---

    def life(self, process_queue: ProcessQueue[Pulled]) -> Life:
        """What was consumed in the assignment of this ProcessQueue."""
        found = self._lives.get(id(process_queue))
        if found is None or found.process_queue is not process_queue:
            found = self._lives[id(process_queue)] = Life(process_queue)
        return found

    def forget_lives(self) -> None:
        """Forget assignments that ended; no listener may be working on them."""
        self._lives = {
            key: life
            for key, life in self._lives.items()
            if not life.process_queue.dropped
        }

    def begun_in_order(
        self, queue: MessageQueue, life: Life, batch: Sequence[Pulled]
    ) -> None:
        """Check a call of an orderly listener: no earlier message may be left out."""
        place = (queue.broker_name, queue.topic, queue.queue_id)
        first = batch[0].queue_offset
        if first <= life.highest:
            self.violation(f"{queue} offset {first} comes after {life.highest}")
        for offset in range(life.highest + 1 if life.done else first, first):
            if not self.is_settled(place, offset):
                self.violation(f"{queue} offset {offset} was left out before {first}")

    def succeeded(
        self,
        queue: MessageQueue,
        life: Life,
        messages: Sequence[Pulled],
        *,
        is_orderly: bool,
    ) -> None:
        """Note messages with which a listener succeeded."""
        place = (queue.broker_name, queue.topic, queue.queue_id)
        for message in messages:
            offset = message.queue_offset
            number = self.number_at(place, offset)
            if offset in life.done:
                self.violation(f"{queue} offset {offset} succeeded twice in one life")
            life.done.add(offset)
            if is_orderly:
                life.highest = max(life.highest, offset)
            if number in self.pending:
                del self.pending[number]
            else:
                self.duplicates += 1
            self.consumed[number] = self.consumed.get(number, 0) + 1

    def failed(self, messages: Sequence[Pulled]) -> None:
        """Count messages with which a listener failed."""
        self.failures += len(messages)
