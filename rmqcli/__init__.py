"""rmq: consume, inspect and move Apache RocketMQ queues.

The layers, from values to commands, and the one direction in which they import each
other, are listed in `tests/test_layers.py`, which enforces them. In short: `wire`
turns bytes into values and does no I/O; `transport` owns the sockets; `api` has one
typed method per request code; `admin` answers an operator's questions; `spark` exports;
`cli` parses, calls one function below, and prints.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from rmqcli.consumer.consumer import Consumer, sql
    from rmqcli.engine.config import ConsumeFromWhere, ConsumerConfig, MessageModel
    from rmqcli.engine.listener import (
        ConsumeConcurrentlyStatus,
        ConsumeOrderlyStatus,
    )
    from rmqcli.engine.message import Message
    from rmqcli.model import MessageQueue

__all__ = [
    "ConsumeConcurrentlyStatus",
    "ConsumeFromWhere",
    "ConsumeOrderlyStatus",
    "Consumer",
    "ConsumerConfig",
    "Message",
    "MessageModel",
    "MessageQueue",
    "__version__",
    "sql",
]

#: Where the names above live; imported only for those who ask, so that `rmq` is quick.
_HOMES = {
    "ConsumeConcurrentlyStatus": "rmqcli.engine.listener",
    "ConsumeFromWhere": "rmqcli.engine.config",
    "ConsumeOrderlyStatus": "rmqcli.engine.listener",
    "Consumer": "rmqcli.consumer.consumer",
    "ConsumerConfig": "rmqcli.engine.config",
    "Message": "rmqcli.engine.message",
    "MessageModel": "rmqcli.engine.config",
    "MessageQueue": "rmqcli.model",
    "sql": "rmqcli.consumer.consumer",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)
