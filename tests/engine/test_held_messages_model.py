"""`HeldMessages` together with a model of the broker, in any order of events.

The model delivers messages as RocketMQ does: a message is hidden while its lease lasts,
a queue of a FIFO group delivers no message while one of its messages is hidden, and a
handle is valid until another delivery or a renewal replaces it.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from rmqcli.engine.config import ConsumerConfig
from rmqcli.engine.held_messages import (
    INVISIBLE_MS,
    HeldMessages,
    HeldState,
    Settlement,
)
from tests.engine.held import BROKER, Delivery, Retry

COUNT_MAX = 6
QUEUES = 2
GROUPS = (None, "a", "b")


class Stored:
    """A message of the model."""

    def __init__(self, queue_id, offset, group):
        self.queue_id, self.offset, self.group = queue_id, offset, group
        self.attempt = 0
        self.handle = ""
        self.hidden_until_ms = 0
        self.is_acked = False
        #: whether a listener has consumed it or it has become a dead letter
        self.is_done = False


class Model(RuleBasedStateMachine):
    in_order = False

    @initialize()
    def begin(self):
        config = ConsumerConfig(
            pull_threshold_for_queue=COUNT_MAX,
            consume_message_batch_max_size=2,
            consume_timeout_ms=100_000,
        )
        self.held = HeldMessages(config, Retry(), in_order=self.in_order)
        self.now_ms = 0
        self.stored = []
        self.numbers = 0
        #: messages that listeners have
        self.running = []
        self.renewing = []
        self.settling = []
        #: the number of messages that each receive under way requested
        self.asked = []

    # --- the broker ---

    @rule(queue_id=st.integers(0, QUEUES - 1), group=st.sampled_from(GROUPS))
    def send(self, queue_id, group):
        # As with a proxy, all messages of a message group are in one queue.
        queue_id = {"a": 0, "b": 1}.get(group, queue_id)
        offset = sum(each.queue_id == queue_id for each in self.stored)
        self.stored.append(Stored(queue_id, offset, group))

    @rule(count=st.integers(1, 4))
    def ask(self, count):
        asked = self.held.begin_receive(BROKER, count)
        if asked:
            self.asked.append(asked)

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def answer(self, data):
        asked = self.asked.pop(data.draw(st.integers(0, len(self.asked) - 1)))
        found = self.pop(asked)
        self.carry_out(self.held.end_receive(BROKER, asked, found, now_ms=self.now_ms))

    def pop(self, count):
        found: list[Delivery] = []
        for queue_id in range(QUEUES):
            queue = [e for e in self.stored if e.queue_id == queue_id]
            open_ = [e for e in queue if not e.is_acked]
            hidden = [e for e in open_ if e.hidden_until_ms > self.now_ms]
            if self.in_order and hidden:
                continue
            for each in open_:
                if each not in hidden and len(found) < count:
                    self.hide(each, INVISIBLE_MS)
                    each.attempt += 1
                    found.append(
                        Delivery(
                            each.offset,
                            queue_id=queue_id,
                            message_group=each.group,
                            delivery_attempt=each.attempt,
                            receipt_handle=each.handle,
                        )
                    )
        return found

    def hide(self, each, for_ms):
        self.numbers += 1
        each.handle = f"handle {self.numbers}"
        each.hidden_until_ms = self.now_ms + for_ms
        return each.handle

    def by_handle(self, held):
        for each in self.stored:
            if each.handle == held.receipt_handle and not each.is_acked:
                return each if each.hidden_until_ms > self.now_ms else None
        return None

    def of(self, held):
        queue_id = held.message.queue_id
        offset = held.message.queue_offset
        (found,) = [
            e for e in self.stored if (e.queue_id, e.offset) == (queue_id, offset)
        ]
        return found

    # --- the member ---

    @rule()
    def hand_out(self):
        self.look()
        batch = self.held.next_batch(self.now_ms)
        for each in batch:
            assert each not in self.running, "handed out twice while held"
            assert each.until_ms > self.now_ms
            mine = self.of(each)
            if self.in_order:
                assert not any(self.of(e) is mine for e in self.running)
                self.check_order(mine)
        if self.in_order:
            assert len(batch) <= 1
        self.running += batch

    def check_order(self, mine):
        for other in self.stored:
            is_before = other.queue_id == mine.queue_id and other.offset < mine.offset
            if is_before and other.group == mine.group:
                assert other.is_done, "a message overtook an earlier one of its group"

    @precondition(lambda self: self.running)
    @rule(data=st.data(), succeeds=st.booleans())
    def return_from_listener(self, data, succeeds):
        held = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        if succeeds:
            self.of(held).is_done = True
            self.carry_out(self.held.succeeded(held))
        else:
            self.carry_out(self.held.failed(held, now_ms=self.now_ms))

    def carry_out(self, verdicts):
        for each in verdicts:
            if each.settlement in (Settlement.LOST, Settlement.TRY_HERE):
                continue
            self.settling.append(each)

    @precondition(lambda self: self.settling)
    @rule(data=st.data(), works=st.booleans())
    def settle(self, data, works):
        at = data.draw(st.integers(0, len(self.settling) - 1))
        verdict = self.settling.pop(at)
        stored = self.by_handle(verdict.held)
        if works and stored is not None:
            if verdict.settlement is Settlement.REDELIVER:
                self.hide(stored, verdict.delay_ms)
            else:
                stored.is_acked = stored.is_done = True
        elif verdict.settlement is Settlement.DEAD_LETTER:
            # If that fails, the member keeps the message until its lease has ended.
            if self.in_order and stored is not None:
                self.settling.append(verdict)
                return
            self.carry_out(self.held.lost(verdict.held))
            return
        self.held.settled(verdict.held)

    @precondition(lambda self: self.renewing)
    @rule(data=st.data(), how=st.sampled_from(["done", "unsent", "unanswered"]))
    def renewal_ends(self, data, how):
        held = self.renewing.pop(data.draw(st.integers(0, len(self.renewing) - 1)))
        stored = next(
            (e for e in self.stored if e.handle == held.renewing and not e.is_acked),
            None,
        )
        if stored is not None and stored.hidden_until_ms <= self.now_ms:
            stored = None
        if how != "unsent" and stored is not None:
            handle = self.hide(stored, INVISIBLE_MS)
            if how == "done":
                self.carry_out(self.held.renewed(held, handle, now_ms=self.now_ms))
                return
        self.carry_out(
            self.held.not_renewed(
                held,
                now_ms=self.now_ms,
                is_doubtful=how == "unanswered",
                is_lost=how == "done",
            )
        )

    @rule(by_ms=st.sampled_from([1, 500, 1_000, 5_000, 29_000, 31_000, 61_000]))
    def time_passes(self, by_ms):
        self.now_ms += by_ms
        self.look()

    def look(self):
        due = self.held.run_due(self.now_ms)
        for each in due.renew:
            assert each not in self.renewing
        self.renewing += due.renew
        self.carry_out(due.verdicts)

    # --- invariants ---

    @invariant()
    def tables_agree(self):
        if hasattr(self, "held"):
            self.held.validate()

    @invariant()
    def limits_hold(self):
        if hasattr(self, "held"):
            # Room was reserved for each delivery when it was requested.
            assert self.held.held_count + sum(self.asked) <= COUNT_MAX

    @invariant()
    def running_is_known(self):
        if hasattr(self, "held"):
            assert self.held.count(HeldState.RUNNING) == len(self.running)

    def teardown(self):
        """Check that all messages are consumed once network and listeners work."""
        if not hasattr(self, "held"):
            return
        # A second each: what nobody gave back is hidden until its lease has ended.
        for _ in range(2 * INVISIBLE_MS // 1_000 + 20 * len(self.stored)):
            while self.renewing:
                held = self.renewing.pop()
                stored = self.by_handle(held)
                if stored is None:
                    verdicts = self.held.not_renewed(
                        held, now_ms=self.now_ms, is_doubtful=False, is_lost=True
                    )
                else:
                    handle = self.hide(stored, INVISIBLE_MS)
                    verdicts = self.held.renewed(held, handle, now_ms=self.now_ms)
                self.carry_out(verdicts)
            while self.running:
                held = self.running.pop()
                self.of(held).is_done = True
                self.carry_out(self.held.succeeded(held))
            while self.settling:
                verdict = self.settling.pop()
                stored = self.by_handle(verdict.held)
                if stored is not None and verdict.settlement is Settlement.REDELIVER:
                    self.hide(stored, verdict.delay_ms)
                elif stored is not None:
                    stored.is_acked = stored.is_done = True
                self.held.settled(verdict.held)
            for asked in self.asked:
                self.held.end_receive(BROKER, asked, [], now_ms=self.now_ms)
            self.asked.clear()
            self.look()
            asked = self.held.begin_receive(BROKER, 4)
            if asked:
                found = self.pop(asked)
                self.carry_out(
                    self.held.end_receive(BROKER, asked, found, now_ms=self.now_ms)
                )
            self.hand_out()
            self.held.validate()
            self.now_ms += 1_000
        assert all(each.is_acked for each in self.stored), "a message was lost"


class InOrder(Model):
    in_order = True


TestConcurrent = Model.TestCase
TestInOrder = InOrder.TestCase
