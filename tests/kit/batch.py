"""The messages of a batch, read from the body of SEND_BATCH_MESSAGE."""

from __future__ import annotations

from rmqcli.wire.message.batch import BatchItem, split_batch
from rmqcli.wire.message.properties import parse_properties


def decode_batch(data: bytes) -> list[BatchItem]:
    """Return the items of a batch. Raises AssertionError unless all are complete."""
    spans, error = split_batch(data)
    assert not error, error
    return [
        BatchItem(
            body=data[span.body_at : span.body_end],
            properties=parse_properties(data[span.properties_at : span.end]),
            flag=span.flag,
        )
        for span in spans
    ]
