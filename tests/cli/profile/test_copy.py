"""The parsed copy of a file of settings never answers for another text."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from rmqcli.cli.configuration.file import read_config, table_of
from tests.kit.waiting import PATIENCE_S

TEXT = 'use = "dev"\n[profiles.dev]\nnamesrv = "dev:1"\n'


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The folder of the copies."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "rmq" / "settings"


def servers():
    """The name servers of the profile dev, as a command reads them."""
    return read_config(os.environ).profile("dev").namesrv


def the_copy(cache):
    (path,) = cache.iterdir()
    return path


def plant(cache, **changed):
    """Change the only copy: it names another server."""
    path = the_copy(cache)
    content = json.loads(path.read_text())
    content["table"]["profiles"]["dev"]["namesrv"] = "planted:1"
    path.write_text(json.dumps(content | changed))
    return path


def test_a_copy_is_private_and_answers_for_the_same_text(write, cache):
    write(TEXT)
    assert servers() == ("dev:1",)
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    path = the_copy(cache)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text()) == {
        "text": TEXT,
        "table": {"use": "dev", "profiles": {"dev": {"namesrv": "dev:1"}}},
    }
    plant(cache)
    assert servers() == ("planted:1",)  # so it was the copy that answered


@pytest.mark.parametrize(
    "edited", [TEXT.replace("dev:1", "dev:2"), TEXT.replace("dev:1", "dev:2") + "#"]
)
def test_an_edited_file_is_never_answered_from_the_copy(write, cache, edited):
    """Even one of the same length and time, whose inode is the same."""
    path = write(TEXT)
    assert servers() == ("dev:1",)
    before = path.stat()
    with path.open("r+", encoding="utf-8") as file:
        file.write(edited)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_ino == before.st_ino
    assert servers() == ("dev:2",)
    path.write_text(TEXT, encoding="utf-8")
    assert servers() == ("dev:1",)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"dev:1"', '"dev:1"\naccess_key = "a"\nsecret_key = "s3cret"'),
        ('"dev:1"', '"dev:1"\n# secret_key = "s3cret"'),
        ('"dev:1"', '"dev:1"\n"secret\\u005fkey" = "s3cret"\naccess\\u005fkey = "a"'),
        ('use = "dev"', "use = 1979-05-27"),
        ('use = "dev"', "use = nan"),
        ('use = "dev"', "[profiles.dev"),
    ],
)
def test_what_may_hold_a_key_or_is_no_json_has_no_copy(write, cache, probe, old, new):
    write(TEXT.replace(old, new))
    probe()
    assert not cache.exists() or list(cache.iterdir()) == []


def _writable(path):
    path.chmod(0o620)


def _readable(path):
    path.chmod(0o604)


def _link(path):
    path.rename(path.with_name("other"))
    path.symlink_to(path.with_name("other"))


def _folder(path):
    path.unlink()
    path.mkdir()


def _pipe(path):
    path.unlink()
    os.mkfifo(path, 0o600)


@pytest.mark.parametrize("spoil", [_writable, _readable, _link, _folder, _pipe])
def test_a_copy_that_others_may_have_made_is_ignored(write, cache, spoil):
    write(TEXT)
    servers()
    spoil(plant(cache))
    assert servers() == ("dev:1",)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("is_folder", [False, True])
def test_a_copy_of_another_user_is_ignored_and_none_is_put_beside_it(
    write, cache, is_folder
):
    write(TEXT)
    servers()
    path = plant(cache)
    os.chown(path, 12345, -1)
    if is_folder:
        os.chown(cache, 12345, -1)
    assert servers() == ("dev:1",)
    assert path.stat().st_uid == (12345 if is_folder else 0)


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"\xff", b"[]", b"1", b"{}", b'{"text": 1, "table": {}}'),
        json.dumps({"text": TEXT}).encode(),
        json.dumps({"text": TEXT, "table": None}).encode(),
        json.dumps({"text": TEXT, "table": [1]}).encode(),
        json.dumps({"text": TEXT + " ", "table": {"profiles": {}}}).encode(),
        b'{"text": ' + b"[" * 100_000,
    ],
)
def test_a_copy_that_is_none_is_replaced(write, cache, content):
    write(TEXT)
    servers()
    path = the_copy(cache)
    path.write_bytes(content)
    assert servers() == ("dev:1",)
    assert json.loads(path.read_text())["text"] == TEXT


def test_a_folder_that_cannot_be_made_is_not_told(write, cache, probe):
    cache.parent.parent.touch()
    write(TEXT)
    code, shown, err = probe()
    assert (code, shown["servers"], err) == (0, "namesrv='dev:1'", "")


def test_copies_of_two_files_do_not_answer_for_each_other(
    write, cache, probe, tmp_path, monkeypatch
):
    write(TEXT)
    project = tmp_path / ".rmq.toml"
    project.write_text('namesrv = "shop:1"\n')
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert probe()[1]["servers"] == "namesrv='shop:1'"
        assert probe("--profile", "dev")[1]["servers"] == "namesrv='dev:1'"
    project.write_text('namesrv = "shop:2"\n')
    assert probe()[1]["servers"] == "namesrv='shop:2'"


def test_any_number_of_files_has_few_copies(write, cache, tmp_path):
    for number in range(200):
        path = str(tmp_path / f"{number}.toml")
        assert table_of(f"a = {number}", path, os.environ) == {"a": number}
    assert len(list(cache.iterdir())) <= 64
    for number in range(200):
        path = str(tmp_path / f"{number}.toml")
        assert table_of(f"a = {number}", path, os.environ) == {"a": number}


@pytest.mark.parametrize("more", [[], ["--profile", "dev"], ["-n", "127.0.0.1:1"]])
def test_with_a_copy_python_s_parser_is_not_loaded(write, cache, more):
    write(TEXT.replace("dev:1", "127.0.0.1:1"))
    code = (
        "import sys; from rmqcli.cli.main import run\n"
        "run(sys.argv[1:]); print('tomllib' in sys.modules)"
    )
    loaded = [
        subprocess.run(
            [sys.executable, "-c", code, "topics", *more],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=PATIENCE_S,
            cwd=Path(__file__).parents[3],
        ).stdout
        for _ in range(2)
    ]
    assert loaded == ["True\n", "False\n"]
