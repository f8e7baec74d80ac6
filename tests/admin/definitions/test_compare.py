"""Definitions are compared with each broker; what its version lacks is named."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rmqcli.admin.definitions.compare import (
    DefinitionChange,
    SettingDifference,
    compare,
)
from rmqcli.admin.definitions.entries import BrokerEntries, ClusterEntries
from rmqcli.admin.definitions.model import Definition, Definitions
from rmqcli.admin.definitions.read import definitions_of
from rmqcli.wire.version import V4_6_0, V5_5_0

NAMES = st.sampled_from(["t1", "t2", "t3", "t4"])
SETTINGS = st.fixed_dictionaries(
    {"read_queue_nums": st.integers(1, 3), "perm": st.sampled_from(["rw", "r"])}
)


def cluster_of(topics, groups=None, versions=None):
    """A cluster from broker name -> topic -> settings."""
    return ClusterEntries(
        cluster="C",
        brokers={
            name: BrokerEntries(
                broker_name=name,
                address=f"{name}:10911",
                version=(versions or {}).get(name, V5_5_0),
                entries={"topic": found, "group": (groups or {}).get(name, {})},
            )
            for name, found in topics.items()
        },
        errors={},
    )


def file_of(*definitions):
    return Definitions(definitions=definitions, kinds=("topic",))


def topic(name, brokers=None, **settings):
    return Definition(kind="topic", name=name, settings=settings, brokers=brokers)


def change(action, name, brokers, reason=None, **settings):
    return DefinitionChange(
        action=action,
        kind="topic",
        name=name,
        brokers=brokers,
        settings=tuple(
            SettingDifference(setting=key, now=now, wanted=wanted)
            for key, (now, wanted) in settings.items()
        ),
        reason=reason,
    )


def test_each_difference_names_its_brokers_and_settings():
    cluster = cluster_of(
        {
            "a": {"same": {"perm": "rw"}, "old": {"perm": "r"}, "more": {"perm": "r"}},
            "b": {"same": {"perm": "rw"}, "new": {"perm": "rw"}},
        }
    )
    wanted = file_of(
        topic("same", perm="rw"),
        topic("old", brokers=("a",), perm="rw"),
        topic("new", perm="rw"),
        topic("far", brokers=("c",)),
    )
    assert compare(wanted, cluster) == [
        change("create", "new", ("a",), perm=(None, "rw")),
        change("change", "old", ("a",), perm=("r", "rw")),
        change("skip", "far", ("c",), reason="cluster C has no broker c"),
        change("extra", "more", ("a",)),
    ]


def test_what_the_file_has_on_other_brokers_is_extra_with_a_reason():
    cluster = cluster_of({"a": {"t": {}}, "b": {"t": {}}})
    assert compare(file_of(topic("t", brokers=("a",))), cluster) == [
        change("extra", "t", ("b",), reason="the file has it on other brokers only")
    ]


def test_a_setting_that_the_file_does_not_name_is_no_difference():
    cluster = cluster_of({"a": {"t": {"perm": "r", "read_queue_nums": 3}}})
    assert compare(file_of(topic("t", perm="r")), cluster) == []


def test_a_kind_without_a_section_is_not_compared():
    cluster = cluster_of({"a": {}}, groups={"a": {"g": {}}})
    assert compare(file_of(), cluster) == []


def test_what_an_old_broker_cannot_have_is_skipped_and_the_rest_is_done():
    cluster = cluster_of({"a": {}, "b": {}}, versions={"a": V4_6_0})
    fifo = {"message.type": "FIFO"}
    assert compare(file_of(topic("t", perm="rw", attributes=fifo)), cluster) == [
        change("create", "t", ("a",), perm=(None, "rw")),
        change("create", "t", ("b",), perm=(None, "rw"), attributes=(None, fifo)),
        change(
            "skip",
            "t",
            ("a",),
            attributes=(None, fifo),
            reason="attributes: needs RocketMQ 5.0.0, and the broker has 4.6.0",
        ),
    ]


def test_the_default_of_a_setting_that_an_old_broker_lacks_is_no_difference():
    cluster = cluster_of({"a": {"t": {"perm": "rw"}}}, versions={"a": V4_6_0})
    assert compare(file_of(topic("t", perm="rw", attributes={})), cluster) == []


@given(
    st.dictionaries(
        st.sampled_from(["a", "b", "c"]),
        st.dictionaries(NAMES, SETTINGS),
        min_size=1,
    )
)
def test_a_cluster_does_not_differ_from_its_own_definitions(topics):
    cluster = cluster_of(topics)
    assert compare(definitions_of(cluster, ("topic", "group")), cluster) == []


def test_equal_settings_on_all_brokers_are_one_definition_without_brokers():
    cluster = cluster_of(
        {
            "a": {"t": {"perm": "rw"}, "u": {"perm": "rw"}},
            "b": {"t": {"perm": "rw"}, "u": {"perm": "r"}},
        }
    )
    assert definitions_of(cluster, ("topic",)).definitions == (
        topic("t", perm="rw"),
        topic("u", brokers=("a",), perm="rw"),
        topic("u", brokers=("b",), perm="r"),
    )
