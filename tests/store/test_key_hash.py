"""Hashing many keys at once gives Java's hash of each key."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rmqcli.store.index import index_hash, index_hashes

TEXT = st.text(max_size=70) | st.text("abz01-~\x7f", max_size=70)


def test_the_hash_equals_java_s():
    """The value is that of Java's `IndexFile.indexKeyHashMethod`."""
    assert index_hash("TopicT", "k1") == 1_902_674_620
    assert index_hashes(["TopicT"], ["k1"]) == [1_902_674_620]


@given(st.lists(st.tuples(TEXT, TEXT), max_size=40))
def test_hashing_many_keys_equals_hashing_each(pairs):
    topics, keys = [each[0] for each in pairs], [each[1] for each in pairs]
    assert index_hashes(topics, keys) == [index_hash(*pair) for pair in pairs]
