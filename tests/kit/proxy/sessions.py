"""What tests do with a `Session` from a thread of their own."""

from __future__ import annotations


def receive_now(session, endpoints, rpc, timeout_ms=None):
    """Receive in the I/O thread, and wait for the result; raises its error."""

    def task():
        found = yield session.receive(endpoints, rpc, timeout_ms)
        return found

    return session.run(task()).result()
