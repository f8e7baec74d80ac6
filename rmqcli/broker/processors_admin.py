"""The requests of mqadmin: tables, statistics, settings, resets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqcli.broker.processors import Processor

ADMIN_PROCESSORS: Final[Mapping[int, Processor]] = {}
