"""Topics whose broker keeps only the last message of each key.

Measured on 5.5.0 (`cleanup.policy=COMPACTION`) after a compaction of 2,000 messages, of
which 422 were left: MIN stays 0, a pull of a removed offset is answered with the
messages after it, a reader shows the holes as missing, and the index still finds
removed messages.
"""

from __future__ import annotations

import json

import pytest

from rmqcli.cli.main import run

pytestmark = [
    pytest.mark.java,
    pytest.mark.real_only,
    pytest.mark.rmq_versions("5.5.0"),
]


def test_the_number_of_messages_of_a_compacted_topic_is_unknown(real_cluster, capsys):
    """`topic show` counted messages that the broker had removed."""
    topic = real_cluster.create_topic(queues=2, attributes="+cleanup.policy=COMPACTION")
    show = ["topic", "show", topic, "-n", real_cluster.namesrv]

    run([*show, "-o", "json"])
    queues = json.loads(capsys.readouterr().out)["queues"]
    run(show)
    text = capsys.readouterr().out

    assert [(q["max_offset"], q["messages"]) for q in queues] == [(0, None), (0, None)]
    assert (
        "2 queues, messages unknown"
        " (compacted: older messages with the key of a newer one are removed)"
    ) in text
