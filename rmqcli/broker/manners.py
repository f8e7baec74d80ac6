"""What differs between RocketMQ's versions and a client can see: `--like VERSION`.

One field for each difference; the defaults are 5.5.0's.

Source: seen on real brokers of the three versions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rmqcli.errors import UsageError
from rmqcli.wire.version import V4_6_0, V4_9_7, V5_5_0


@dataclass(frozen=True, slots=True, kw_only=True)
class Manners:
    """How one version behaves. Add a field for each difference that is imitated."""

    name: str = "5.5.0"
    #: the ordinal in each answer
    version: int = V5_5_0
    #: a request with a binary header is answered in the same form
    answers_binary: bool = False


LIKE_5_5_0: Final = Manners()
LIKE_4_9_7: Final = Manners(name="4.9.7", version=V4_9_7, answers_binary=True)
LIKE_4_6_0: Final = Manners(name="4.6.0", version=V4_6_0)

MANNERS: Final = {each.name: each for each in (LIKE_4_6_0, LIKE_4_9_7, LIKE_5_5_0)}


def manners_like(name: str) -> Manners:
    """The manners of a version. Raises UsageError for one that is not imitated."""
    try:
        return MANNERS[name]
    except KeyError:
        raise UsageError(
            f"no manners of version {name!r}", hint=f"one of {', '.join(MANNERS)}"
        ) from None
