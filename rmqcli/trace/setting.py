"""The argument `trace` of clients: whether, and to which topic, they write traces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqcli.checked import check_type
from rmqcli.errors import UnsupportedError
from rmqcli.names import check_topic

if TYPE_CHECKING:
    from rmqcli.config import ClientConfig

#: The topic to which clients write traces by default.  TopicValidator
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"


def trace_topic(trace: bool | str, config: ClientConfig) -> str | None:
    """Return the topic of traces, or None for a client that writes none.

    True stands for RMQ_SYS_TRACE_TOPIC. Raises TypeError for another type, ConfigError
    for a name that no topic can have, and UnsupportedError through a proxy: the gRPC
    protocol has no traces, and the official clients write none either.
    """
    check_type(trace, (bool, str), "trace")
    if trace is False:
        return None
    topic = TRACE_TOPIC if trace is True else str(trace)
    check_topic(topic)
    if config.endpoints:
        raise UnsupportedError(
            "message traces cannot be written through a proxy",
            hint="use name servers, or leave trace out",
        )
    return topic
