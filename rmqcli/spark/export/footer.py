"""What a Parquet file of ours says about itself, in its footer.

The name of a file may be changed and its manifest lost; the footer stays. A file
without our key in the footer is somebody else's.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import Final

FOOTER_KEY: Final = b"rmq.export"
FOOTER_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Footer:
    """The part a file belongs to, and the half-open range in its name.

    `rows` is the row count of the Parquet metadata itself when read back.
    """

    run_id: str
    part: int
    topic: str
    broker_name: str
    queue_id: int
    start: int
    end: int
    rows: int


def footer_to_json(footer: Footer) -> str:
    """The value of the footer's key."""
    return json.dumps({"version": FOOTER_VERSION, **asdict(footer)}, sort_keys=True)


def read_footer(path: str) -> Footer | None:
    """The footer of a file; None when it is not a regular Parquet file of ours.

    Raises OSError when it cannot be opened at all.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if os.path.islink(path) or not os.path.isfile(path):
        return None
    with open(path, "rb") as file:
        try:
            metadata = pq.read_metadata(file)
        except (pa.ArrowException, OSError):
            # pyarrow reports a footer that makes no sense as either of them.
            return None
        text = (metadata.metadata or {}).get(FOOTER_KEY)
        rows = metadata.num_rows
    if text is None:
        return None
    try:
        value = json.loads(text)
        if value.pop("version") != FOOTER_VERSION:
            return None
        return Footer(**{**value, "rows": rows})
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
