"""Config files are replaced atomically, and the previous file is kept."""

from __future__ import annotations

import pytest

from rmqcli.store.config_files import ConfigFolder
from rmqcli.store.message_store import StoreError, StoreFullError


@pytest.fixture
def config(tmp_path):
    return ConfigFolder(tmp_path / "config")


def test_a_missing_file_is_none(config):
    assert config.read("topics.json") is None


def test_a_write_keeps_the_previous_file(config):
    config.write("delayOffset.json", '{"offsetTable":{1:17}}')
    config.write("delayOffset.json", '{"offsetTable":{1:18}}')
    assert config.read("delayOffset.json") == {"offsetTable": {"1": 18}}
    assert config.read("delayOffset.json.bak") == {"offsetTable": {"1": 17}}
    names = {path.name for path in config.directory.iterdir()}
    assert names == {"delayOffset.json", "delayOffset.json.bak"}


@pytest.mark.parametrize("damage", ["", '{"offsetTable":{1:'])
def test_damaged_file_is_read_from_its_bak(config, damage):
    config.write("a.json", '{"a":1}')
    config.write("a.json", '{"a":2}')
    (config.directory / "a.json").write_text(damage)
    assert config.read("a.json") == {"a": 1}


def test_two_damaged_files_are_an_error(config):
    config.write("a.json", "{1")
    with pytest.raises(StoreError, match=r"a\.json cannot be read"):
        config.read("a.json")


def test_folder_that_cannot_be_written_keeps_the_old(config):
    config.write("a.json", '{"a":1}')
    (config.directory / "a.json.bak").mkdir()
    with pytest.raises(StoreFullError, match="cannot be written"):
        config.write("a.json", '{"a":2}')
    assert config.read("a.json") == {"a": 1}
    names = {path.name for path in config.directory.iterdir()}
    assert names == {"a.json", "a.json.bak"}, "no temporary file stays"
