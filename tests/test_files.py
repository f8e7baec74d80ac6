"""Names are checked before they come near a path; files appear whole, or not at all."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqcli.errors import UsageError
from rmqcli.files import (
    check_readable,
    create_file,
    file_name_fault,
    folder_fault,
    open_locked,
    read_regular,
    remove_temporaries,
    replace_file,
    state_folder,
    write_temporary,
)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "is empty"),
        (".", "must not be"),
        ("..", "must not be"),
        ("a/b", "slash"),
        ("/", "slash"),
        ("../../etc", "slash"),
        ("a\0b", "NUL"),
        ("a\ud800", "surrogate"),
        ("x" * 256, "256 bytes"),
        ("é" * 128, "256 bytes"),
    ],
)
def test_a_name_that_no_file_can_have_is_told_why(name, words):
    fault = file_name_fault(name)
    assert fault is not None
    assert words in fault


@pytest.mark.parametrize("name", ["a", "...", "%RETRY%g", "x" * 255, "é" * 127 + "x"])
def test_a_name_that_a_file_can_have_has_no_fault(name):
    assert file_name_fault(name) is None


@settings(deadline=None)
@given(st.text(max_size=300))
def test_a_name_without_fault_makes_one_file_in_the_folder(name):
    if file_name_fault(name) is not None:
        return
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / name).write_bytes(b"")
        assert os.listdir(directory) == [name]


def test_a_replaced_file_is_whole_and_leaves_nothing_beside_it(tmp_path):
    path = tmp_path / "a.json"
    replace_file(path, b"one")
    replace_file(path, b"two")
    assert path.read_bytes() == b"two"
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_link_of_the_file_s_name_is_replaced_and_not_followed(tmp_path):
    other = tmp_path / "other"
    other.write_bytes(b"of somebody")
    path = tmp_path / "a.json"
    path.symlink_to(other)
    replace_file(path, b"new")
    assert other.read_bytes() == b"of somebody"
    assert not path.is_symlink()
    assert path.read_bytes() == b"new"


def test_a_file_that_cannot_be_replaced_stays_and_nothing_is_left(tmp_path):
    path = tmp_path / "a.json"
    path.mkdir()
    with pytest.raises(OSError, match="directory"):
        replace_file(path, b"new")
    assert os.listdir(tmp_path) == ["a.json"]


def test_temporary_files_have_names_that_nobody_can_guess_and_the_mode_asked_for(
    tmp_path,
):
    paths = [Path(write_temporary(tmp_path, b"x", mode=0o600)) for _ in range(20)]
    assert len({path.name for path in paths}) == 20
    assert {len(path.name) for path in paths} == {len(".rmq-") + 32 + len(".part")}
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths} == {0o600}


def test_only_what_kills_left_behind_is_removed(tmp_path):
    write_temporary(tmp_path, b"x", mode=0o600)
    for name in (".rmq-notes", "a.part", "topics.json"):
        (tmp_path / name).touch()
    remove_temporaries(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".rmq-notes", "a.part", "topics.json"]
    remove_temporaries(tmp_path / "nowhere")


def test_a_regular_file_is_read_as_far_as_asked(tmp_path):
    (tmp_path / "f").write_bytes(b"0123456789")
    assert read_regular(tmp_path / "f", 4) == b"0123"
    assert read_regular(tmp_path / "f", 99) == b"0123456789"


@pytest.mark.parametrize("kind", ["pipe", "folder", "link", "device"])
def test_what_is_no_regular_file_is_neither_read_nor_waited_for(tmp_path, kind):
    path = tmp_path / "f"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "link":
        (tmp_path / "g").touch()
        path.symlink_to(tmp_path / "g")
    else:
        path = Path("/dev/zero")
    with pytest.raises(OSError, match=r".+") as found:
        read_regular(path, 10)
    assert found.value.filename == str(path)


def test_a_folder_of_ours_and_one_that_is_not_there_may_be_written(tmp_path):
    assert folder_fault(tmp_path) is None
    assert folder_fault(tmp_path / "new") is None


def test_a_folder_and_a_link_of_another_owner_may_not_be_written(tmp_path, foreign):
    folder, uid = foreign
    expected = f"belongs to user {uid}, not to {os.geteuid()}"
    assert folder_fault(folder) == expected
    link = tmp_path / "link"
    link.symlink_to(folder)
    assert folder_fault(link) == expected
    if os.geteuid() == 0:
        (tmp_path / "ours").mkdir()
        theirs = tmp_path / "theirs"
        theirs.symlink_to(tmp_path / "ours")
        os.chown(theirs, uid, -1, follow_symlinks=False)
        assert folder_fault(theirs) == expected


@pytest.fixture
def foreign(tmp_path):
    """A folder of another user, and that user's id."""
    if os.geteuid() != 0:
        return Path("/"), os.stat("/").st_uid
    folder = tmp_path / "foreign"
    folder.mkdir()
    os.chown(folder, 12_345, -1)
    return folder, 12_345


def test_a_new_file_is_created_once(tmp_path):
    path = tmp_path / "f"
    create_file(path, b"first")
    with pytest.raises(FileExistsError):
        create_file(path, b"second")
    assert path.read_bytes() == b"first"
    (tmp_path / "link").symlink_to(tmp_path / "none")
    with pytest.raises(FileExistsError):
        create_file(tmp_path / "link", b"x")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["f", "link"]


def test_the_old_file_is_kept_as_the_backup(tmp_path):
    path, backup = tmp_path / "a.json", tmp_path / "a.json.bak"
    for text in (b"1", b"2", b"3"):
        replace_file(path, text, backup=backup)
    assert (path.read_bytes(), backup.read_bytes()) == (b"3", b"2")
    assert sorted(os.listdir(tmp_path)) == ["a.json", "a.json.bak"]


def test_a_lock_is_held_until_its_file_is_closed(tmp_path):
    path = str(tmp_path / "lock")
    held = open_locked(path)
    with pytest.raises(BlockingIOError):
        open_locked(path)
    os.close(held)
    os.close(open_locked(path, os.O_RDWR))


def test_a_lock_file_that_is_a_link_is_not_followed(tmp_path):
    (tmp_path / "lock").symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="symbolic links"):
        open_locked(str(tmp_path / "lock"))
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({}, "/home/someone/.local/state/rmqcli/lag"),
        ({"XDG_STATE_HOME": ""}, "/home/someone/.local/state/rmqcli/lag"),
        ({"XDG_STATE_HOME": "relative"}, "/home/someone/.local/state/rmqcli/lag"),
        ({"XDG_STATE_HOME": "/s"}, "/s/rmqcli/lag"),
    ],
)
def test_state_is_where_xdg_says(monkeypatch, environ, folder):
    monkeypatch.setenv("HOME", "/home/someone")
    assert state_folder(environ, "lag") == folder


def test_without_a_home_directory_there_is_no_state_folder(monkeypatch):
    monkeypatch.setenv("HOME", "nowhere")
    assert state_folder({}, "lag") is None


def test_a_file_that_cannot_be_read_is_a_usage_error_with_its_reason(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"")
    check_readable(str(file))
    for path, words in (
        (tmp_path / "missing", "missing: no such file or directory"),
        (tmp_path, ": is a directory"),
        (file / "below", "below: not a directory"),
        ("a\0b", "not the name of a file"),
    ):
        with pytest.raises(UsageError, match=words):
            check_readable(str(path))
