"""Reads the golden vectors: bytes that RocketMQ's Java code wrote, and their meaning.

`tests/golden/README.md` says what each file holds and which release made it.
"""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent / "golden"


def path(name: str) -> Path:
    """The file of that name, such as `frames` or `answers/oracle-5.5.0`."""
    for ending in ("", ".jsonl", ".jsonl.gz"):
        candidate = GOLDEN / (name + ending)
        if candidate.is_file():
            return candidate
    raise FileNotFoundError(f"no golden vectors named {name} in {GOLDEN}")


def load(name: str) -> list[dict[str, Any]]:
    """Return all cases of one file, in order; a gzip file is decompressed."""
    data = path(name).read_bytes()
    if data.startswith(b"\x1f\x8b"):
        data = gzip.decompress(data)
    return [json.loads(line) for line in data.splitlines() if line.strip()]


def from_base64(text: str | None) -> bytes:
    """The bytes of a `_b64` field; none when it is null."""
    return b"" if text is None else base64.b64decode(text)
