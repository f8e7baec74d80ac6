"""The folder by which an executor shows that it sees the folder of a table."""

from __future__ import annotations

import errno
import os

import pytest

from rmqcli.errors import ConfigError
from rmqcli.spark.tables.session import folder_near


def test_it_lies_in_the_nearest_folder_that_exists_and_is_removed(tmp_path):
    with folder_near(str(tmp_path / "lake" / "orders")) as folder:
        assert os.path.dirname(folder) == str(tmp_path)
        assert os.stat(folder).st_mode & 0o777 == 0o777
    assert os.listdir(tmp_path) == []


def test_it_lies_in_the_folder_of_a_table_that_exists(tmp_path):
    with folder_near(str(tmp_path)) as folder:
        assert os.path.dirname(folder) == str(tmp_path)
        # Delta Lake and Spark ignore names that begin with a dot.
        assert os.path.basename(folder).startswith(".")


def test_no_two_have_the_same_name(tmp_path):
    with folder_near(str(tmp_path)) as one, folder_near(str(tmp_path)) as other:
        assert one != other


def test_nothing_is_left_of_a_folder_whose_mode_cannot_be_set(tmp_path, monkeypatch):
    """Some network file systems refuse it."""

    def refuse(*_args, **_options):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "chmod", refuse)
    with (
        pytest.raises(
            ConfigError, match=r"cannot write to .*: Operation not permitted"
        ),
        folder_near(str(tmp_path)),
    ):
        pass
    assert os.listdir(tmp_path) == []


def test_a_place_that_cannot_be_written_is_an_error_of_the_settings():
    with (
        pytest.raises(ConfigError, match=r"cannot write to /proc: ") as caught,
        folder_near("/proc/lake/orders"),
    ):
        pass
    assert "executors can write to" in caught.value.hint
