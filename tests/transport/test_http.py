"""Where `get` connects to; tests/cli/test_schema_registry.py has what it reads."""

from __future__ import annotations

import pytest

from rmqcli.errors import ConnectError
from rmqcli.transport.http import get
from tests.transport.peer import free_port

#: An address of this machine on which nothing listens.
HERE = "127.98.76.54"


@pytest.mark.parametrize(
    ("url", "address"),
    [
        (f"http://{HERE}/subjects", f"{HERE}:80"),
        (f"https://{HERE}/subjects", f"{HERE}:443"),
        (f"https://{HERE}:1/subjects", f"{HERE}:1"),
    ],
)
def test_a_url_without_a_port_has_that_of_its_scheme(url, address):
    with pytest.raises(ConnectError) as caught:
        get(url, headers={}, timeout_ms=60_000, bytes_max=1)
    assert caught.value.address == address
    assert caught.value.message.startswith(f"cannot connect to {address}: ")


def test_an_ipv6_address_in_a_url_has_brackets():
    port = free_port()
    with pytest.raises(ConnectError) as caught:
        get(
            f"http://[::1]:{port}/",
            headers={},
            timeout_ms=60_000,
            bytes_max=1,
        )
    assert caught.value.address == f"[::1]:{port}"
