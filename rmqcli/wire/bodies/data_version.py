"""The version of a broker's table. Source: DataVersion in apache/rocketmq."""

from __future__ import annotations

from dataclasses import replace

from rmqcli.wire.body import Body
from rmqcli.wire.fields import declared


@declared
class DataVersion(Body):
    """The version of a table. A name server accepts topics whose version differs."""

    counter: int = 0
    state_version: int | None = 0  # 5.0
    timestamp: int = 0

    def next(self, epoch_ms: int | None = None) -> DataVersion:
        """Return the version after one more change."""
        timestamp = self.timestamp if epoch_ms is None else epoch_ms
        return replace(self, counter=self.counter + 1, timestamp=timestamp)
