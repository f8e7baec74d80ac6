"""This machine's address, as a peer would see it. Nothing is sent to find it.

Source: UtilAll.getIP and MessageClientIDSetter.createFakeIP in apache/rocketmq.
"""

from __future__ import annotations

import socket
from typing import Final

from rmqcli.errors import ConnectError
from rmqcli.transport.address import parse_address
from rmqcli.transport.lookups import look_up_within

LOOK_UP_MS: Final = 1_000


def local_ip(toward: str) -> str | None:
    """The IP address from which `toward` ("host:port") would be reached.

    None when there is no way to it, or its name is not known within LOOK_UP_MS.
    """
    try:
        endpoints = look_up_within(parse_address(toward), LOOK_UP_MS)
    except ConnectError:
        return None
    for family, sockaddr in endpoints:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                # A datagram socket's connect only looks up the way.
                probe.connect(sockaddr)
                return str(probe.getsockname()[0]).partition("%")[0]
        except OSError:
            continue
    return None
