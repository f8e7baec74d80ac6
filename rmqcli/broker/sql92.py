"""SQL92 expressions over a message's properties (placeholder until the parser)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqcli.broker.message_filter import Condition


def compile_sql92(expression: str) -> Condition | None:
    """The condition; None for a text that is not of the grammar."""
    return None
