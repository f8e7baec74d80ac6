"""`SendFuture`: what the standard library promises of a future holds for it, too."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter
from concurrent.futures import ALL_COMPLETED, InvalidStateError, as_completed, wait

import pytest

from rmqcli.api.calls.send import SendStatus
from rmqcli.errors import DeadlineError
from rmqcli.producer.backend import SendResult
from rmqcli.producer.future import SendFuture
from tests.kit.waiting import PATIENCE_S


def result_of(index):
    return SendResult(
        msg_id=f"m{index}",
        status=SendStatus.SEND_OK,
        queue=None,
        queue_offset=index,
        offset_msg_id=None,
    )


def ended(index=0):
    future = SendFuture()
    future.set_stored(result_of, index)
    return future


def failed():
    future = SendFuture()
    future.set_exception(DeadlineError("late", address=""))
    return future


def test_the_result_is_made_once_and_is_the_same_each_time():
    future = ended(7)
    assert future.done()
    assert future.exception() is None
    assert future.result().msg_id == "m7"
    assert future.result() is future.result()


def test_a_future_shows_its_state_and_not_how_it_keeps_its_result():
    """It was "state=finished returned tuple", also in the log of a callback."""
    shown = [repr(each) for each in (SendFuture(), ended(), failed())]
    assert shown == [
        "SendFuture(running)",
        "SendFuture(stored)",
        "SendFuture(raised DeadlineError)",
    ]


def test_a_failed_future_raises_its_error_each_time():
    future = failed()
    assert isinstance(future.exception(), DeadlineError)
    for _ in range(2):
        with pytest.raises(DeadlineError, match="late"):
            future.result()


@pytest.mark.parametrize("end", ["stored", "failed"])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_call_at_the_end_comes_once_whichever_is_first(end, is_first):
    calls: list[str] = []
    future = SendFuture()
    if is_first:
        future.on_end(calls.append, "end")
        assert calls == []
    if end == "stored":
        future.set_stored(result_of, 3)
    else:
        future.set_exception(DeadlineError("late", address=""))
    if not is_first:
        future.on_end(calls.append, "end")
    assert calls == ["end"]
    if end == "stored":
        assert future.result().msg_id == "m3"
    else:
        with pytest.raises(DeadlineError, match="late"):
            future.result()
    with pytest.raises(InvalidStateError):
        future.set_result(result_of(4))
    assert calls == ["end"]


def test_a_call_at_the_end_is_not_lost_between_two_threads():
    for _ in range(2_000):
        future, called = SendFuture(), threading.Event()
        other = threading.Thread(target=future.set_stored, args=(result_of, 1))
        other.start()
        future.on_end(threading.Event.set, called)
        assert called.wait(PATIENCE_S)
        other.join()


def test_without_an_outcome_a_wait_ends_after_its_time():
    future = SendFuture()
    assert (future.done(), future.running(), future.cancelled()) == (False, True, False)
    assert future.cancel() is False
    with pytest.raises(TimeoutError):
        future.result(0)
    with pytest.raises(TimeoutError):
        future.exception(0)
    future.set_result(result_of(1))
    assert future.result(0).msg_id == "m1"


def test_a_future_ends_once():
    future = ended()
    with pytest.raises(InvalidStateError):
        future.set_result(result_of(1))
    with pytest.raises(InvalidStateError):
        future.set_exception(ValueError())


def test_callbacks_run_once_whether_added_before_the_end_or_after_it():
    seen = []
    future = SendFuture()
    future.add_done_callback(lambda done: seen.append(("before", done)))
    assert seen == []
    future.set_stored(result_of, 0)
    future.add_done_callback(lambda done: seen.append(("after", done)))
    late = ended()
    late.add_done_callback(lambda done: seen.append(("late", done)))
    assert seen == [("before", future), ("after", future), ("late", late)]


def test_wait_and_as_completed_take_ended_failed_and_open_futures_together():
    opened = [SendFuture() for _ in range(3)]
    futures = [ended(), failed(), *opened]
    done, left = wait(futures, timeout=0)
    assert (len(done), len(left)) == (2, 3)

    found = []
    for each in as_completed(futures, timeout=PATIENCE_S):
        found.append(each)
        if len(found) == 2:  # those that had ended; it waits for the others now
            opened[0].set_stored(result_of, 1)
            opened[1].set_exception(DeadlineError("late", address=""))
            opened[2].set_stored(result_of, 2)
    assert (set(found), len(found)) == (set(futures), 5)
    done, left = wait(futures, timeout=PATIENCE_S, return_when=ALL_COMPLETED)
    assert (done, left) == (set(futures), set())


def test_asyncio_waits_for_it():
    async def main():
        future = SendFuture()
        wrapped = asyncio.wrap_future(future)
        threading.Thread(target=future.set_stored, args=(result_of, 3)).start()
        return await asyncio.wait_for(wrapped, PATIENCE_S)

    assert asyncio.run(main()).msg_id == "m3"


def test_no_end_is_missed_by_threads_that_wait_or_add_a_callback_meanwhile():
    """Thousands of futures end while others wait for them; threads change often."""
    futures = [SendFuture() for _ in range(4_000)]
    called: list[object] = []
    found: list[int | None] = []

    def look():
        for future in futures:
            future.add_done_callback(called.append)
            found.append(future.result(PATIENCE_S).queue_offset)

    def end():
        for index, future in enumerate(futures):
            future.set_stored(result_of, index)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=each) for each in (look, look, end)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
    finally:
        sys.setswitchinterval(before)
    assert Counter(found) == Counter([*range(4_000), *range(4_000)])
    assert len(called) == 8_000
