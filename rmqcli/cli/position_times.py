"""Times that were typed, shown as the moments that they were taken for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqcli.cli.messages import Messages


def show_times(messages: Messages, values: Mapping[str, object]) -> None:
    """Say which moment each time is, with its zone: the zone may have been assumed.

    `values` are a command's parameters by name. Times have an `echo`: positions, and
    what commands make of them; a repeated option has a list, or a list of tuples with
    the position at the end.
    """
    for name, value in values.items():
        for one in value if isinstance(value, list) else [value]:
            position = one[-1] if isinstance(one, tuple) and one else one
            echo = getattr(position, "echo", "")
            if echo:
                messages.info(f"--{name.rstrip('_').replace('_', '-')}: {echo}")
