"""Open files of stores that are closed after the test, by a fixture of conftest."""

from __future__ import annotations

from rmqcli.store.fixed_files import OpenFiles

_OPENED: list[OpenFiles] = []


def open_files(*, writable: bool) -> OpenFiles:
    """Return open files that the fixture closes."""
    opened = OpenFiles(writable=writable)
    _OPENED.append(opened)
    return opened


def close_all() -> None:
    """Close what `open_files` returned."""
    while _OPENED:
        _OPENED.pop().close()
