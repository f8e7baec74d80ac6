"""An interrupt while a `with` block starts its client leaves no thread behind.

The handler of a signal runs when Python calls a function, and when one of C returns. So
the interrupt comes at each of these moments, one after the other.
"""

from __future__ import annotations

import pytest

from tests.kit.program import Program

SOURCE = """
import itertools, sys, threading, time
from rmqcli import Admin, Producer, SimpleConsumer

def make():
    return {client}

def left():
    # Python goes on to list a thread whose start was interrupted before it ran.
    threads = [each for each in threading.enumerate() if each.is_alive()]
    return sorted(each.name for each in threads if each.name.startswith("rmq-"))

with make():
    pass  # what is loaded at the first start is loaded
for moment in itertools.count(1):
    passed, is_entered, where = 0, False, None

    def interrupt(frame, event, argument):
        global passed, where
        if event not in ("call", "c_return"):
            return
        name = frame.f_code.co_name if event == "call" else argument.__name__
        if name in ("__enter__", "setprofile"):
            return  # the client is not being started yet, or was
        passed += 1
        if passed == moment:
            where = f"{{frame.f_code.co_qualname}} line {{frame.f_lineno}} {{event}}"
            raise KeyboardInterrupt

    client = make()
    sys.setprofile(interrupt)
    try:
        with client:
            sys.setprofile(None)
            is_entered = True
    except KeyboardInterrupt:
        pass
    finally:
        sys.setprofile(None)
    assert client.is_closed, where
    end = time.monotonic() + 40
    while left():
        assert time.monotonic() < end, (where, left())
        time.sleep(0.001)
    if is_entered and passed < moment:
        break
print("none left", moment > 10, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "client",
    [
        "Producer(namesrv='127.0.0.1:1')",
        "Producer('g', namesrv='127.0.0.1:1', trace=True)",
        "SimpleConsumer('g', 't', namesrv='127.0.0.1:1')",
        "SimpleConsumer('g', 't', namesrv='127.0.0.1:1', trace=True)",
        "Admin(namesrv='127.0.0.1:1')",
    ],
)
def test_an_interrupt_at_any_moment_of_a_start_leaves_no_thread(tmp_path, client):
    with Program(SOURCE.format(client=client), tmp_path) as running:
        assert running.line() == "none left True", running.errors[-2000:]
        assert running.exit_code() == 0
