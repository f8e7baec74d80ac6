"""A first look at what an export wrote."""

from __future__ import annotations

import os


def count_by_tag(folder: str) -> list[tuple[str, int]]:
    """How many rows of each tag the Parquet files of `folder` hold, by tag.

    Files that are not Parquet, and those still being written, are left alone.
    """
    import pyarrow.parquet as pq

    counts: dict[str, int] = {}
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".parquet"):
            continue
        tags = pq.read_table(os.path.join(folder, name), columns=["tags"]).column(0)
        for entry in tags.value_counts().to_pylist():
            tag = entry["values"] or "-"
            counts[tag] = counts.get(tag, 0) + entry["counts"]
    return sorted(counts.items())
