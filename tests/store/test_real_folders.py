"""Messages read from folders of real brokers are the ones that the brokers returned."""

from __future__ import annotations

import shutil

import pytest

from rmqcli.store.config_files import ConfigFolder
from rmqcli.store.disk_store import DiskStore
from rmqcli.store.read_only import ReadOnlyStore
from tests import golden_vectors
from tests.store import folders
from tests.store.folders import stored


def _open_clean(folder):
    return DiskStore(folder)


def _open_after_kill(folder):
    (folder / "abort").touch()
    return DiskStore(folder)


def _open_without_queues(folder):
    """Open a clean folder after deleting its queues, index and checkpoint."""
    for name in ("consumequeue", "index"):
        shutil.rmtree(folder / name)
    (folder / "checkpoint").unlink()
    return DiskStore(folder)


OPENERS = [ReadOnlyStore, _open_clean, _open_after_kill, _open_without_queues]


@pytest.fixture(params=folders.VERSIONS)
def version(request):
    return request.param


@pytest.fixture(params=OPENERS)
def store(request, version, tmp_path):
    store = request.param(folders.unpack(version, tmp_path))
    yield store
    store.close()


def test_queues_hold_what_java_read(store, version):
    expected = golden_vectors.load(f"store-{version}-consumequeue")
    found = {
        key: [list(unit) for unit in store.units(*key, 0, 1_000_000)]
        for key in store.queues()
    }
    assert {key: units for key, units in found.items() if units} == {
        (case["topic"], case["queue_id"]): case["entries"] for case in expected
    }


def test_records_are_where_java_found_them(store, version):
    cases = golden_vectors.load(f"store-{version}-commitlog")
    records = [case for case in cases if "commit_log_offset" in case]
    for case in records:
        record = store.message_at(case["commit_log_offset"])
        (message,) = stored(record)
        assert message.topic == case["topic"]
        assert message.queue_offset == case["queue_offset"]
        assert message.body == golden_vectors.from_base64(case["body_b64"])
        assert len(record) == case["store_size"]
    last = records[-1]
    assert store.log_bounds() == (0, last["commit_log_offset"] + last["store_size"])


def test_units_lead_to_the_messages_that_were_pulled(store, version):
    for case in golden_vectors.load(f"store-{version}-messages"):
        units = store.units(case["topic"], case["queue_id"], case["queue_offset"], 1)
        (message,) = stored(store.read_units(units))
        assert message.commit_log_offset == case["commit_log_offset"]
        assert (
            store.store_time_ms(case["topic"], case["queue_id"], case["queue_offset"])
            == case["store_timestamp_ms"]
        )


def test_bounds_are_the_broker_s(store, version):
    for case in golden_vectors.load(f"store-{version}-offsets"):
        bounds = store.queue_bounds(case["topic"], case["queue_id"]) or (0, 0)
        assert bounds == (case["min_offset"], case["max_offset"])


def test_keys_are_found_as_the_broker_found_them(store, version):
    for case in golden_vectors.load(f"store-{version}-lookups"):
        if case["kind"] == "by_key":
            found = store.query_index(
                case["topic"], case["key"], begin_ms=0, end_ms=2**62, count_max=1000
            )
            assert sorted(found) == case["expected_commit_log_offsets"]


def test_read_only_leaves_the_folder_as_it_is(version, tmp_path):
    folder = folders.unpack(version, tmp_path)
    (folder / "abort").touch()
    before = _bytes_of(folder)
    store = ReadOnlyStore(folder)
    store.log_bounds()
    store.query_index("g_orders", "k1", begin_ms=0, end_ms=2**62, count_max=10)
    store.close()
    assert _bytes_of(folder) == before


def _bytes_of(folder):
    return {
        path.relative_to(folder): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_lengths_of_a_folder_s_files_are_kept(version, tmp_path):
    folder = folders.unpack(version, tmp_path)
    store = DiskStore(folder)
    for number in range(200):
        store.append([folders.message(number, topic="new")], tags_codes=[65])
    store.close()
    lengths = {path.stat().st_size for path in (folder / "commitlog").iterdir()}
    assert lengths == {65_536}
    assert (
        folder / "consumequeue/new/0/00000000000000000000"
    ).stat().st_size == 600_000


def test_config_is_read_with_its_bare_keys(version, tmp_path):
    config = ConfigFolder(folders.unpack(version, tmp_path) / "config")
    table = config.read("consumerOffset.json")
    assert isinstance(table, dict)
    offsets = table["offsetTable"]
    cases = [
        case
        for case in golden_vectors.load(f"store-{version}-offsets")
        if f"{case['topic']}@{case['group']}" in offsets
    ]
    assert cases
    for case in cases:
        committed = offsets[f"{case['topic']}@{case['group']}"]
        assert committed[str(case["queue_id"])] == case["committed_offset"]
