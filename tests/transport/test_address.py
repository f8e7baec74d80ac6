"""Addresses of peers that are accepted, and the errors for addresses that are not."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import pytest

from rmqcli.errors import ConnectError, UsageError
from rmqcli.transport.address import (
    check_listens,
    look_up,
    map_address,
    parse_address,
)
from tests.kit.rows import each_row


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:9876", "127.0.0.1", 9876),
        ("broker-a.example:10911", "broker-a.example", 10911),
        ("localhost:1", "localhost", 1),
        ("h:65535", "h", 65535),
        ("[::1]:9876", "::1", 9876),
        ("[fe80::1%eth0]:80", "fe80::1%eth0", 80),
        ("bücher.example:80", "bücher.example", 80),
    ],
)
def test_parse_takes_host_and_port(text, host, port):
    address = parse_address(text)

    assert (address.host, address.port) == (host, port)
    assert str(address) == text


@each_row(
    "text",
    [
        "",
        ":",
        ":9876",
        "host",
        "host:",
        "host:0",
        "host:65536",
        "host:-1",
        "host:+80",
        "host:8 0",
        "host:٣",  # a digit, but not an ASCII digit
        "host:123456789012345678901234567890",
        "::1:9876",  # without brackets it is unclear where the port begins
        "[::1]",
        "[host]:80",
        "[]:80",
        "http://host:80",
        "a b:80",
        "a\x00b:80",
        "a\x1b[2Jb:80",
        "user@host:80",
        "a;b:80",
        "x" * 254 + ":80",
    ],
)
def test_parse_refuses_what_is_no_address(text):
    with pytest.raises(UsageError) as caught:
        parse_address(text)
    assert repr(text.rpartition(":")[2])[1:-1] in caught.value.message


def test_a_literal_is_its_own_endpoint():
    endpoints = look_up(parse_address("127.0.0.1:9876"))

    assert endpoints == [(socket.AF_INET, ("127.0.0.1", 9876))]


@pytest.mark.parametrize("host", ["nowhere.invalid", "a" * 64 + ".invalid", "ü..x"])
def test_a_look_up_names_the_host_that_is_not_known(host):
    with pytest.raises(ConnectError) as caught:
        look_up(parse_address(f"{host}:9876"))

    assert caught.value.address == f"{host}:9876"
    assert repr(host) in caught.value.message


@pytest.mark.parametrize(
    ("text", "host", "port", "certificate_host"),
    [
        ("a:1", "b", 2, "a"),
        ("a:3", "c", 3, "a"),
        ("[::1]:4", "d", 4, "::1"),
        ("e:5", "e", 5, "e"),
        ("f:6", "::1", 6, "f"),
    ],
)
def test_a_mapped_address_keeps_its_text_and_the_host_of_its_certificate(
    text, host, port, certificate_host
):
    address_map = {"a:1": "b:2", "a": "c", "[::1]": "d", "f": "[::1]"}
    address = map_address(text, address_map)
    assert (address.text, address.host, address.port) == (text, host, port)
    assert address.certificate_host == certificate_host


def test_a_mapped_address_names_both_in_messages():
    assert str(map_address("a:1", {"a": "[::1]"})) == "a:1 (mapped to [::1]:1)"
    assert str(map_address("a:1", {"b": "c"})) == "a:1"


def test_a_check_of_an_address_that_does_not_answer_ends_with_its_time():
    """A queue of connections that is full drops further ones."""
    with (
        socket.create_server(("127.0.0.1", 0), backlog=0) as server,
        ExitStack() as open_,
    ):
        address = parse_address(f"127.0.0.1:{server.getsockname()[1]}")
        check_listens(address, timeout_ms=60_000)
        for _ in range(3):
            waiting = open_.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        with pytest.raises(ConnectError, match="timed out"):
            check_listens(address, timeout_ms=50)
