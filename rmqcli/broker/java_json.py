"""JSON as fastjson writes a broker's config files: numeric keys bare, tabs.

Java reads strict JSON as well; this is for whoever compares files, and for programs
that read those of real brokers only. Source: `RemotingSerializable.toJson`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.wire import fastjson

if TYPE_CHECKING:
    from collections.abc import Callable


def dumps(value: object, *, pretty: bool = False) -> str:
    """Text of `value`; keys that are int are not quoted."""
    out: list[str] = []
    _write(value, out.append, "\n" if pretty else "")
    return "".join(out)


def _write(value: object, put: Callable[[str], object], line: str) -> None:
    inner = line + "\t" if line else ""
    if isinstance(value, dict) and value:
        mark = "{"
        for key, item in value.items():
            shown = str(key) if isinstance(key, int) else fastjson.dumps(key)
            put(f"{mark}{inner}{shown}:")
            _write(item, put, inner)
            mark = ","
        put(line + "}")
    elif isinstance(value, list) and value:
        mark = "["
        for item in value:
            put(mark + inner)
            _write(item, put, inner)
            mark = ","
        put(line + "]")
    else:
        put(fastjson.dumps(value))
