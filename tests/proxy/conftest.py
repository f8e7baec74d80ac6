"""A scripted proxy per test, and sessions that are closed at its end."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from rmqcli.config import ClientConfig
from rmqcli.proxy.session import PRODUCER, Session
from tests.kit.proxy.scripted import ScriptedProxy
from tests.kit.waiting import PATIENCE_S


@pytest.fixture
def proxy():
    """A proxy that answers everything with OK until the test says otherwise."""
    with ScriptedProxy() as made:
        yield made


@pytest.fixture
def open_session():
    """`open_session(proxy, **options)`: a session with that proxy, in plaintext."""
    with ExitStack() as stack:

        def make(proxy, *, timeout_ms=PATIENCE_S * 1_000, credentials=None, **options):
            options.setdefault("client_type", PRODUCER)
            config = ClientConfig(
                endpoints=(proxy.endpoints,),
                plaintext=True,
                timeout_ms=timeout_ms,
                credentials=credentials,
            )
            session = Session(config, **options)
            stack.callback(session.close)
            return session

        yield make
