"""For tests, ours and other people's: a clock that tests move."""

from rmqcli.testing.clock import ManualClock

__all__ = ["ManualClock"]
