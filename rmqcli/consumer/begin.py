"""Where a group begins in queues for which it has committed no offset: `consume_from`.

It is a position in the grammar of `rmqcli.position`, of which a group can begin at
`earliest`, `latest`, `now`, a time (`@2026-01-02T03:04:05Z`), or a duration before the
start (`-15m`). ConsumerConfig has Java's settings for the same.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from rmqcli.engine.config import ConsumeFromWhere
from rmqcli.errors import ConfigError, TextError
from rmqcli.position import Ago, AtNow, AtTime, Earliest, Latest, Position, position_of

if TYPE_CHECKING:
    from rmqcli.engine.config import ConsumerConfig

#: The positions at which a group can begin.
BEGINS: Final = (Earliest, Latest, AtNow, AtTime, Ago)
_WHERE: Final = {
    Earliest: ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    Latest: ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
}
WHY_NOT: Final = "a group can begin only at earliest, latest or a time"
HINT: Final = "write earliest, latest, now, @2026-01-02T03:04:05Z or -15m"


def parse_begin(consume_from: str | Position) -> Position:
    """Return the position at which a group is to begin.

    Raises TextError for a text that is not a position, ConfigError for a position at
    which a group cannot begin, and TypeError for any other object.
    """
    position = position_of(consume_from, "consume_from")
    if isinstance(position, BEGINS):
        return position
    if isinstance(consume_from, str):
        end = len(consume_from)
        raise TextError(consume_from, WHY_NOT, start=0, end=end, hint=HINT)
    raise ConfigError(f"consume_from is {consume_from}: {WHY_NOT}", hint=HINT)


def with_begin(config: ConsumerConfig, position: Position) -> ConsumerConfig:
    """Return the settings of Java's names for a position of `BEGINS`."""
    where = _WHERE.get(type(position), ConsumeFromWhere.CONSUME_FROM_TIMESTAMP)
    settings: dict[str, Any] = {"consume_from_where": where}
    if isinstance(position, AtTime):
        settings["consume_timestamp_ms"] = position.epoch_ms
    elif isinstance(position, AtNow | Ago):
        settings["consume_timestamp_ms"] = None
        settings["consume_ago_ms"] = position.ago_ms if isinstance(position, Ago) else 0
    return replace(config, **settings)
