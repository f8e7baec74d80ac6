"""Which of the names that exist a mistyped name was probably meant to be."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

#: How similar a name must be, from 0 to 1, to be what was meant.
_SIMILAR = 0.75
_SUGGESTED_MAX = 3


def similar(name: str, known: Collection[str]) -> list[str]:
    """Return the names that `name` may be a mistyped form of, most similar first."""
    import difflib  # only when a name was mistyped

    same = [each for each in known if each.lower() == name.lower()]
    return same or difflib.get_close_matches(
        name, sorted(known), n=_SUGGESTED_MAX, cutoff=_SIMILAR
    )
