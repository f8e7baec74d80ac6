"""Long polling as a client sees it: acts for the embedded broker and for real ones.

An act is a function that takes a stage and asserts; its time limits are wide enough for
real brokers.
"""

from __future__ import annotations

import select
import time
from typing import TYPE_CHECKING, Any

from rmqcli.wire.message.decode import decode_messages
from tests.broker.behaviour.stage import pull
from tests.broker.wire_client import WireClient

if TYPE_CHECKING:
    from tests.broker.behaviour.stage import Stage

HELD_S = 0.3
WAKE_MS_MAX = 2_000
CHECK_MS_MAX = 6_500  # the next check, 5 s at most, and what a busy machine adds


class Waiting:
    """A pull on its own connection that is not answered at once."""

    def __init__(self, stage: Stage, **changes: Any) -> None:
        self._stage = stage
        self._client = WireClient(stage.address)
        fields = {"sysFlag": 6, "suspendTimeoutMillis": 20_000, **changes}
        names = stage.names
        texts = {k: str(v).format(**names) for k, v in pull(**fields).items()}
        self.opaque = self._client.send(11, **texts)

    def is_held(self) -> bool:
        """Whether the broker holds the pull: it does not answer within HELD_S."""
        readable, _, _ = select.select([self._client.sock], [], [], HELD_S)
        return not readable

    def answer(self, *, within_ms: int) -> Any:
        """Return the answer, which must arrive within `within_ms`."""
        self._client.sock.settimeout(within_ms / 1000)
        answer = self._client.receive()
        assert answer.opaque == self.opaque
        self._client.sock.close()
        return answer


def a_message_wakes(stage: Stage) -> None:
    """An arriving message is the answer to every pull that is held for its queue."""
    waiting = [Waiting(stage, topic="{H}"), Waiting(stage, topic="{H}")]
    elsewhere = Waiting(stage, topic="{H}", queueId=1)
    assert all(each.is_held() for each in (*waiting, elsewhere))
    stage.send(stage.names["H"], "A")
    for each in waiting:
        answer = each.answer(within_ms=WAKE_MS_MAX)
        assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (0, "1")
        assert len(decode_messages(answer.body)) == 1
    stage.send(stage.names["H"], "A", queue_id=1)
    assert elsewhere.answer(within_ms=WAKE_MS_MAX).code == 0


def only_its_tag_wakes(stage: Stage) -> None:
    """A message with another tag does not wake a pull, whose next offset skips it."""
    waiting = Waiting(stage, topic="{F}", subscription="A")
    assert waiting.is_held()
    stage.send(stage.names["F"], "B")
    stage.send(stage.names["F"], "A")
    answer = waiting.answer(within_ms=CHECK_MS_MAX)
    if answer.code == 20:  # the check of all holds came first: it knows no tag
        assert answer.ext_fields["nextBeginOffset"] == "1"
        return
    assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (0, "2")
    assert len(decode_messages(answer.body)) == 1


def the_check_knows_no_tag(stage: Stage) -> None:
    """After a message with another tag, the next check answers 20 and a new offset."""
    waiting = Waiting(stage, topic="{C}", subscription="A")
    assert waiting.is_held()
    stage.send(stage.names["C"], "B")
    answer = waiting.answer(within_ms=CHECK_MS_MAX)
    assert (answer.code, answer.remark) == (20, "NO_MATCHED_MESSAGE")
    assert answer.ext_fields["nextBeginOffset"] == "1"


def no_time_ends_at_the_check(stage: Stage) -> None:
    """A hold of 0 ms is answered 19 by the next check."""
    answer = Waiting(stage, topic="{E}", suspendTimeoutMillis=0).answer(
        within_ms=CHECK_MS_MAX
    )
    assert (answer.code, answer.remark) == (19, "NO_MESSAGE_IN_QUEUE")


def an_end_of_a_queue_is_held(stage: Stage) -> None:
    """A pull at the end of a queue is held, too; its commit is stored at once."""
    waiting = Waiting(
        stage,
        queueOffset=5,
        suspendTimeoutMillis=0,
        sysFlag=7,  # commit too
        commitOffset=4,
        consumerGroup="{holds}",
    )
    fields = {"consumerGroup": "{holds}", "topic": "{T}", "queueId": 0}
    end = time.monotonic() + WAKE_MS_MAX / 1000
    while stage.ask(14, fields).ext_fields.get("offset") != "4":
        assert time.monotonic() < end, "not committed before it is answered"
    answer = waiting.answer(within_ms=CHECK_MS_MAX)
    assert (answer.code, answer.remark) == (19, "OFFSET_OVERFLOW_ONE")
    assert answer.ext_fields["nextBeginOffset"] == "5"


def without_the_flag_nothing_is_held(stage: Stage) -> None:
    """Without the suspend flag 19 comes at once, whatever the time-out."""
    waiting = Waiting(stage, topic="{E}", sysFlag=4)
    assert waiting.answer(within_ms=WAKE_MS_MAX).code == 19


def a_wrong_offset_is_never_held(stage: Stage) -> None:
    """A pull at a wrong offset is answered 21 at once."""
    waiting = Waiting(stage, queueOffset=77)
    assert waiting.answer(within_ms=WAKE_MS_MAX).code == 21


ACTS = [
    a_message_wakes,
    only_its_tag_wakes,
    the_check_knows_no_tag,
    no_time_ends_at_the_check,
    an_end_of_a_queue_is_held,
    without_the_flag_nothing_is_held,
    a_wrong_offset_is_never_held,
]
