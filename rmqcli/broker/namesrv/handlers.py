"""The requests that a name server answers: importing this completes the table."""

from __future__ import annotations

from rmqcli.broker.namesrv import (  # noqa: F401  # each registers its handlers
    admin,
    registration,
    topics,
)
from rmqcli.broker.namesrv.state import NAMESRV_REQUESTS

__all__ = ["NAMESRV_REQUESTS"]
