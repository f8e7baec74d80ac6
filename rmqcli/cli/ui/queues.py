"""Many queues in few words: ranges of ids, and one line for queues that are alike."""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rmqcli.model import MessageQueue

#: The end of an error's message, which differs by a millisecond between queues.
_WAITED = re.compile(r" in \d+ ms$")


def queue_ranges(queues: Sequence[MessageQueue]) -> str:
    """Format sorted queues briefly: `T@broker-a:0-3,5; T@broker-b:0`.

    Queue id -1, which stands for all queues of a broker, gives `T@broker-a`.
    """
    parts = []
    for (topic, broker), some in groupby(queues, lambda q: (q.topic, q.broker_name)):
        ids = [queue.queue_id for queue in some]
        if ids == [-1]:
            parts.append(f"{topic}@{broker}")
            continue
        spans: list[list[int]] = []
        for queue_id in ids:
            if spans and spans[-1][1] == queue_id - 1:
                spans[-1][1] = queue_id
            else:
                spans.append([queue_id, queue_id])
        text = ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in spans)
        parts.append(f"{topic}@{broker}:{text}")
    return "; ".join(parts)


def lines_about(texts: Mapping[MessageQueue, str]) -> list[str]:
    """Return a line for each text and broker, with the queues that the text is about.

    `T@broker-a:0: 5 to 7`, and of several queues `T@broker-a:1-3: each 0 to 0`. Texts
    that differ only in how long an answer was awaited are alike: the first is shown.
    """
    alike: dict[tuple[str, str, str], list[MessageQueue]] = {}
    for queue in sorted(texts):
        text = _WAITED.sub("", texts[queue])
        key = (queue.topic, queue.broker_name, text)
        alike.setdefault(key, []).append(queue)
    return [
        f"{queue_ranges(queues)}: {'each ' if len(queues) > 1 else ''}"
        f"{texts[queues[0]]}"
        for queues in alike.values()
    ]
