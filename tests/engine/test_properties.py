"""The invariants of a member, checked in every order of events.

A queue has at most one live pull. Its committed offset is at most the lowest offset
that was not consumed, and moves back only by a reset or a correction of the broker.
Counts and sizes are those of the cached messages. Nothing is committed after a drop.
Orderly calls of a queue never overlap, and an offset is consumed again only after a
failure or when the queue begins again. A message that failed is in the retry topic or
still cached.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqcli.engine.listener import ConsumeOrderlyStatus
from rmqcli.wire.pull_answer import PullStatus
from tests.engine.world import (
    ME,
    OTHER,
    World,
    no_answer,
    queue_of,
    refusal,
)

QUEUES = 2
SUSPEND = ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT


class AnyOrder:
    """A concurrent consumer; Hypothesis chooses what brokers and listeners do."""

    is_orderly = False

    def __init__(self):
        #: messages fail whose offsets modulo 4 are among these
        self.fails: tuple[int, ...] = ()
        #: (queue, offset) of each message that is consumed or need not be
        self.done: set[tuple[Any, int]] = set()
        self.high: Counter[Any] = Counter()
        #: queue -> the offset at which it begins again, until a commit shows that
        self.back_to: dict[Any, int] = {}
        self.world = World(
            queues=QUEUES,
            orderly=self.is_orderly,
            act=self.listen,
            pull_threshold_for_queue=20,
            consume_message_batch_max_size=3,
            max_reconsume_times=None,
        )
        self.world.holds_work = True
        self.world.start()

    def listen(self, messages, context):
        queue = context.message_queue
        if any(each.queue_offset % 4 in self.fails for each in messages):
            return SUSPEND if self.is_orderly else False
        self.done |= {(queue, each.queue_offset) for each in messages}
        return None

    # events

    def messages_come(self, draw):
        call = draw(st.sampled_from(self.world.pulls()))
        count, gap = draw(st.integers(1, 8)), draw(st.sampled_from([0, 0, 0, 2]))
        begin = call.args["ask"].queue_offset + gap
        queue = call.args["ask"].queue
        for offset in range(call.args["ask"].queue_offset, begin):
            self.done.add((queue, offset))  # messages with other tags
        self.world.found(range(begin, begin + count), call=call)

    def nothing_comes(self, draw):
        call = draw(st.sampled_from(self.world.pulls()))
        moved = draw(st.integers(0 if self.is_orderly else -3, 3))
        offset, queue = call.args["ask"].queue_offset, call.args["ask"].queue
        for each in range(offset, offset + moved):
            self.done.add((queue, each))
        next_offset = max(0, offset + moved)
        self.world.answer(PullStatus.NO_MATCHED_MSG, next_offset, call=call)

    def a_pull_fails(self, draw):
        error = draw(st.sampled_from([refusal(), refusal(215), no_answer()]))
        self.world.fail_pull(error, call=draw(st.sampled_from(self.world.pulls())))

    def a_broker_corrects(self, draw):
        call = draw(st.sampled_from(self.world.pulls()))
        offset = draw(st.integers(0, 40))
        queue = call.args["ask"].queue
        if self.is_live(queue) and call is self.newest_pull(queue):
            # A queue that ends before the pull begins at its first message.
            is_beyond = call.args["ask"].queue_offset > offset
            self.begin_anew(queue, 0 if is_beyond else offset)
        self.world.answer(PullStatus.OFFSET_ILLEGAL, offset, call=call)

    def offsets_are_reset(self, draw):
        number, offset = draw(st.integers(0, QUEUES - 1)), draw(st.integers(0, 40))
        if queue_of(number) in self.world.member.process_queues:
            self.begin_anew(queue_of(number), offset)
        self.world.engine.move({queue_of(number): offset})

    def members_change(self, draw):
        members = draw(st.sampled_from([[ME], [ME], [OTHER], [ME, OTHER], []]))
        self.world.network.members = members
        self.world.engine.rebalances.soon()

    def a_listener_changes_its_mind(self, draw):
        self.fails = draw(st.sampled_from([(), (0,), (1, 2), (0, 1, 2, 3)]))

    def a_listener_works(self, draw):
        workers = self.world.workers
        index = draw(st.integers(0, len(workers.requests) - 1))
        request = workers.requests.pop(index)
        workers.requests, rest = [request], workers.requests
        self.world.consume()
        workers.requests += rest

    def an_outcome_is_told(self, draw):
        outcomes = self.world.outcomes
        index = draw(st.integers(0, len(outcomes) - 1))
        told = outcomes.pop(index)
        self.world.outcomes, rest = [told], outcomes
        self.world.settle()
        self.world.outcomes += rest

    def brokers_begin_to_fail(self, draw):
        names = ["send_back", "query_offset", "lock", "update_offset"]
        name = draw(st.sampled_from(names))
        self.world.network.fail[name] = no_answer()
        if name == "send_back":
            self.world.network.fail["send_retry"] = refusal()

    def brokers_are_well_again(self, _):
        self.world.network.fail.clear()

    def time_passes(self, draw):
        times = [1, 50, 1_000, 5_000, 20_000, 31_000]
        self.world.run(draw(st.sampled_from(times)))

    def step(self, draw):
        """Carry out one event, most often the consumption of messages."""
        actions = [self.time_passes, self.time_passes, self.members_change]
        actions += [self.a_listener_changes_its_mind, self.offsets_are_reset]
        actions += [self.brokers_begin_to_fail, self.brokers_are_well_again]
        if self.world.pulls():
            actions += [self.nothing_comes, self.a_pull_fails, self.a_broker_corrects]
            actions += [self.messages_come] * 4
        if self.world.workers.requests:
            actions += [self.a_listener_works] * 6
        if self.world.outcomes:
            actions += [self.an_outcome_is_told] * 6
        draw(st.sampled_from(actions))(draw)

    # invariants

    def check(self):
        self.committed_is_done()
        self.committed_never_moves_back()
        self.counts_are_those_of_what_is_cached()
        self.a_queue_has_one_pull()

    def is_live(self, queue):
        found = self.world.member.process_queues.get(queue)
        return found is not None and not found.dropped

    def newest_pull(self, queue):
        pulls = self.world.pulls(queue)
        return pulls[-1] if pulls else None

    def begin_anew(self, queue, offset):
        """Allow the committed offset to move back to `offset` once, now or later."""
        self.done |= {(queue, each) for each in range(offset)}
        self.back_to[queue] = offset

    def committed_is_done(self):
        for queue, offset in self.world.network.committed.items():
            back = {
                (queue, call.args["message"].commit_log_offset // 1_000)
                for call in self.world.network.of("send_back")
                if not call.is_open
            }
            for each in range(offset):
                assert (queue, each) in self.done | back, f"{queue} at {offset}: {each}"

    def committed_never_moves_back(self):
        for queue, offset in self.world.network.committed.items():
            if offset < self.high[queue]:
                assert offset >= self.back_to.pop(queue, self.high[queue])
            self.high[queue] = offset

    def counts_are_those_of_what_is_cached(self):
        now = self.world.member.now()
        for each in self.world.member.process_queues.values():
            info = each.fill_info(commit_offset=0, now=now)
            count = info.cached_msg_count + info.transaction_msg_count
            assert each.msg_count == count
            assert each.msg_size_bytes == 10 * count

    def a_queue_has_one_pull(self):
        """Check that no queue has two live pulls; dropped queues may have others."""
        for queue in self.world.member.process_queues:
            if self.is_live(queue):
                live = [
                    call
                    for call in self.world.pulls(queue)
                    if call.args["process_queue"]
                    is self.world.member.process_queues[queue]
                ]
                assert len(live) <= 1


class InOrder(AnyOrder):
    """The same as AnyOrder with an orderly consumer."""

    is_orderly = True

    def __init__(self):
        self.shown: dict[Any, int] = {}
        #: violations of the order; an exception would count as a failed message
        self.wrong: list[str] = []
        super().__init__()

    def listen(self, messages, context):
        offsets = [each.queue_offset for each in messages]
        process_queue = self.world.member.process_queues.get(context.message_queue)
        before = self.shown.get(process_queue, -1)
        if process_queue is None or offsets != sorted(offsets) or offsets[0] <= before:
            self.wrong.append(f"{context.message_queue}: {offsets} after {before}")
        result = super().listen(messages, context)
        if result is None:
            self.shown[process_queue] = offsets[-1]
        return result

    def check(self):
        super().check()
        self.one_request_a_queue_is_out()
        assert not self.wrong

    def one_request_a_queue_is_out(self):
        out = [each.message_queue for each in self.world.workers.requests]
        out += [each.request.message_queue for each in self.world.outcomes]
        assert len(out) == len(set(out))


@pytest.mark.parametrize("kind", [AnyOrder, InOrder])
@settings(max_examples=20)
@given(data=st.data())
def test_the_invariants_hold_in_every_order_of_events(kind, data):
    """The invariants in the module's docstring are checked after every event."""
    life = kind()
    for _ in range(data.draw(st.integers(10, 40))):
        life.step(data.draw)
        life.check()
