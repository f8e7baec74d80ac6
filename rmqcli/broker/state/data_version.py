"""How a table tells that it changed. Source: `DataVersion` in apache/rocketmq."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class DataVersion:
    """Compared for equality only: name servers take topics whose version differs."""

    state_version: int = 0
    timestamp: int = 0
    counter: int = 0

    def next(self, epoch_ms: int | None = None) -> DataVersion:
        """The version after one more change."""
        timestamp = self.timestamp if epoch_ms is None else epoch_ms
        return replace(self, counter=self.counter + 1, timestamp=timestamp)

    def to_json(self) -> dict[str, object]:
        """As it stands in bodies and config files."""
        return {
            "counter": self.counter,
            "stateVersion": self.state_version,
            "timestamp": self.timestamp,
        }
