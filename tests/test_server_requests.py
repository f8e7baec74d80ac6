"""The stacks of all threads that servers and operators request."""

from __future__ import annotations

import re
import threading

from rmqcli.server_requests import thread_dump


def deep(calls: int, ready: threading.Semaphore, over: threading.Event) -> None:
    if calls:
        deep(calls - 1, ready, over)
    else:
        ready.release()
        over.wait()


def test_a_dump_without_room_says_how_many_threads_it_leaves_out():
    ready, over = threading.Semaphore(0), threading.Event()
    before = threading.active_count()
    threads = [
        threading.Thread(target=deep, args=(200, ready, over), name=f"deep-{n}")
        for n in range(20)
    ]
    try:
        for each in threads:
            each.start()
        for _ in threads:
            ready.acquire()
        dump = thread_dump()
    finally:
        over.set()
        for each in threads:
            each.join()
    assert len(dump) <= 66_000
    names = re.findall(r'^"(.*)"$', dump, re.MULTILINE)
    left_out = re.fullmatch(r"([0-9]+) more threads, for want of room", names[-1])
    assert left_out is not None
    assert len(names) - 1 + int(left_out[1]) == before + 20
    assert dump.count("\tat tests.test_server_requests.deep(") >= 201
