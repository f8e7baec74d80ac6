"""This machine's address, as a peer would see it. Nothing is sent to find it.

Source: UtilAll.getIP and MessageClientIDSetter.createFakeIP in apache/rocketmq.
"""

from __future__ import annotations

import socket

from rmqcli.errors import ConnectError
from rmqcli.transport.address import Resolver, parse_address


def local_ip(toward: str) -> str | None:
    """The IP address from which `toward` ("host:port") would be reached.

    None when there is no way to it. May block on DNS for a host name.
    """
    try:
        endpoints = Resolver().resolve(parse_address(toward))
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
