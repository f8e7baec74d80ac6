"""rmq: consume, inspect and move Apache RocketMQ queues.

The layers, from values to commands, and the one direction in which they import each
other, are listed in `tests/test_layers.py`, which enforces them. In short: `wire`
turns bytes into values and does no I/O; `transport` owns the sockets; `api` has one
typed method per request code; `admin` answers an operator's questions; `spark` exports;
`cli` parses, calls one function below, and prints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from rmqcli.consumer.consumer import Consumer

__all__ = ["Consumer", "__version__"]


def __getattr__(name: str) -> object:
    if name == "Consumer":
        from rmqcli.consumer.consumer import Consumer  # only for those who consume

        return Consumer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
