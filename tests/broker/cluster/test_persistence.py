"""Tables in config files: those of real brokers, and those written here."""

from __future__ import annotations

import json
import re
import tarfile
from pathlib import Path

import pytest

from rmqcli.broker.cluster.persistence import (
    DELAYS,
    GROUPS,
    OFFSETS,
    TOPICS,
    Persistence,
)
from rmqcli.broker.profiles import profile_of
from rmqcli.broker.settings import BrokerSettings
from rmqcli.store.message_store import StoreError
from rmqcli.wire import fastjson
from rmqcli.wire.bodies.config import TopicConfig
from rmqcli.wire.bodies.data_version import DataVersion
from tests.broker.driving import Driver
from tests.golden_vectors import load

GOLDEN = Path(__file__).parents[2] / "golden"


class TextFiles:
    """Config files in a dict; writes fail when it `is_full`."""

    def __init__(self, texts: dict[str, str]) -> None:
        self.texts = texts
        self.is_full = False
        self.writes: list[str] = []

    def read(self, name: str) -> object | None:
        text = self.texts.get(name)
        return None if text is None else fastjson.loads(text)

    def write(self, name: str, text: str) -> None:
        if self.is_full:
            raise StoreError(f"no room for {name}")
        self.texts[name] = text
        self.writes.append(name)


def golden(version: str) -> dict[str, str]:
    """The config files of a real broker."""
    texts = {}
    with tarfile.open(GOLDEN / f"store-{version}.tar.gz") as archive:
        for member in archive:
            path = Path(member.name)
            content = archive.extractfile(member)
            if path.parent.name == "config" and path.suffix == ".json" and content:
                texts[path.name] = content.read().decode()
    return texts


def opened(files: TextFiles, version: str = "5.5.0") -> tuple[Driver, Persistence]:
    driver = Driver(BrokerSettings(profile=profile_of(version)))
    persistence = Persistence(driver.broker, files)
    persistence.load()
    persistence.start(driver.now)
    return driver, persistence


@pytest.mark.parametrize("version", ["4.6.0", "5.5.0"])
def test_tables_of_a_real_broker_are_written_unchanged(version: str) -> None:
    texts = golden(version)
    driver, persistence = opened(TextFiles(dict(texts)), version)
    written = TextFiles({})
    Persistence(driver.broker, written).save()
    for name, version_matters in (
        (TOPICS, True),
        (GROUPS, True),
        (OFFSETS, False),
        (DELAYS, False),
    ):
        theirs, ours = fastjson.loads(texts[name]), fastjson.loads(written.texts[name])
        assert isinstance(theirs, dict)
        assert isinstance(ours, dict)
        for data in (theirs, ours):
            if not version_matters:
                data.pop("dataVersion", None)
            # derived from the rest, in the order of a hash table
            data.pop("groupTopicMap", None)
        assert ours == theirs, name
    persistence.save()


@pytest.mark.parametrize("version", ["4.6.0", "5.5.0"])
def test_offsets_and_versions_of_a_real_broker_are_loaded(version: str) -> None:
    """The expected offsets are the broker's answers; the rest is read from its files.

    It answers 0 for a queue in which a group has committed nothing.
    """
    texts = golden(version)
    driver, _ = opened(TextFiles(dict(texts)), version)
    answered = load(f"store-{version}-offsets")
    for each in answered:
        group, topic, queue_id = each["group"], each["topic"], each["queue_id"]
        offset = driver.broker.offsets.query(group, topic, queue_id)
        assert (offset or 0) == each["committed_offset"]
    assert any(each["committed_offset"] for each in answered)
    behind = {(each["group"], each["topic"]) for each in answered}
    for group, topic in behind:
        assert driver.broker.offsets.query(group, topic, 1_000) is None

    # Keys are not quoted in these files: quote them here, without our own reader.
    delays, topics = (
        json.loads(re.sub(r"([{,]\s*)(\d+)\s*:", r'\1"\2":', texts[name]))
        for name in (DELAYS, TOPICS)
    )
    levels = {int(level): at for level, at in delays["offsetTable"].items()}
    assert len(levels) > 1
    assert driver.broker.schedule.offsets == levels
    counter = driver.broker.topics.data_version.counter
    assert counter == topics["dataVersion"]["counter"]


def test_numeric_keys_are_bare_as_java_writes_them() -> None:
    files = TextFiles({})
    driver, persistence = opened(files, "4.6.0")
    driver.broker.offsets.commit("g", "T", 1, 6)
    driver.broker.offsets.commit("g", "T", 0, 5)
    persistence.save()
    assert files.texts[OFFSETS] == (
        '{\n\t"offsetTable":{\n\t\t"T@g":{\n\t\t\t0:5,\n\t\t\t1:6\n\t\t}\n\t}\n}'
    )
    quoted = re.sub(r"(\d+):", r'"\1":', files.texts[OFFSETS])
    assert json.loads(quoted) == {"offsetTable": {"T@g": {"0": 5, "1": 6}}}


def test_only_what_changed_is_written_within_5_seconds() -> None:
    files = TextFiles({})
    driver, _ = opened(files)
    driver.broker.offsets.commit("g", "T", 0, 5)
    driver.wait(4_999)
    assert files.writes == []
    driver.wait(1)
    assert files.writes == [OFFSETS]
    driver.broker.topics.put(TopicConfig(topic_name="T"))
    driver.broker.groups.find_or_create("g")
    driver.broker.schedule.offsets[1] = 3
    driver.wait(5_000)
    assert files.writes == [OFFSETS, TOPICS, GROUPS, DELAYS]
    driver.wait(60_000)
    assert len(files.writes) == 4
    again, _ = opened(files)
    assert again.broker.offsets.query("g", "T", 0) == 5
    assert again.broker.topics.get("T") == TopicConfig(topic_name="T")
    assert again.broker.groups.get("g") is not None
    assert again.broker.schedule.offsets == {1: 3}


def test_topics_and_groups_are_written_when_they_change() -> None:
    files = TextFiles({})
    driver, persistence = opened(files)
    persistence.save_changes()
    assert files.writes == []
    driver.broker.offsets.commit("g", "T", 0, 5)
    driver.broker.topics.put(TopicConfig(topic_name="T"))
    persistence.save_changes()
    driver.broker.groups.find_or_create("g")
    persistence.save_changes()
    persistence.save_changes()
    assert files.writes == [TOPICS, GROUPS]
    files.is_full = True
    driver.broker.topics.put(TopicConfig(topic_name="U"))
    persistence.save_changes()
    files.is_full = False
    persistence.save_changes()
    assert files.writes == [TOPICS, GROUPS]
    driver.wait(5_000)
    assert files.writes == [TOPICS, GROUPS, TOPICS, OFFSETS]


def test_a_write_is_retried_after_a_full_disk(caplog: pytest.LogCaptureFixture) -> None:
    files = TextFiles({})
    driver, persistence = opened(files)
    driver.broker.offsets.commit("g", "T", 0, 5)
    files.is_full = True
    driver.wait(5_000)
    assert "no room for consumerOffset.json" in caplog.text
    with pytest.raises(StoreError, match="no room"):
        persistence.save()
    files.is_full = False
    driver.wait(5_000)
    assert files.writes == [OFFSETS]


def test_a_table_that_is_not_an_object_is_an_error() -> None:
    with pytest.raises(
        StoreError, match=r"topics\.json is not a JSON object \(found list\)"
    ):
        opened(TextFiles({TOPICS: "[]"}))


def test_entries_that_are_null_are_none_and_the_others_are_loaded() -> None:
    """As Java reads them. A key is the name of an entry that does not repeat it."""
    files = TextFiles(
        {
            TOPICS: '{"topicConfigTable":{"a":null,"b":{"perm":4}}}',
            GROUPS: '{"subscriptionGroupTable":{"g":null,"h":{"retryMaxTimes":3}}}',
            OFFSETS: '{"offsetTable":{"a@g":null,"b@h":{0:null,1:5,-1:6,2:-7,3:8}}}',
        }
    )
    driver, _ = opened(files)
    assert driver.broker.topics.get("a") is None
    assert driver.broker.topics.get("b") == TopicConfig(topic_name="b", perm=4)
    assert driver.broker.groups.get("g") is None
    found = driver.broker.groups.get("h")
    assert found is not None
    assert (found.group_name, found.retry_max_times) == ("h", 3)
    offsets = [driver.broker.offsets.query("h", "b", each) for each in range(4)]
    assert offsets == [None, 5, None, 8]


def test_forbidden_topics_survive_a_restart() -> None:
    files = TextFiles({})
    driver, persistence = opened(files)
    driver.broker.groups.set_readable("g", "T", readable=False)
    persistence.save()
    again, _ = opened(files)
    assert again.broker.groups.is_read_forbidden("g", "T")
    assert again.broker.groups.data_version == DataVersion(
        timestamp=driver.broker.started.epoch_ms, counter=1
    )
