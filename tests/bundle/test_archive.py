"""The files of a bundle and its manifest say what was read, without secrets."""

from __future__ import annotations

import hashlib
import json
import tarfile
import time
import zipfile
from pathlib import Path

import pytest

from rmqcli.bundle.archive import BundlePart, manifest, render, write_archive
from rmqcli.bundle.redact import Redactor

CONTENT = b'{\n  "name": "?\xc3\xbc",\n  "at": "/x"\n}\n'


def rendered(data, *, secrets=()):
    """Return the file of a part, and what the manifest says of it."""
    redactor = Redactor(secrets)
    part = BundlePart(file="a.json", title="A", source="rmq a --key hunter2", data=data)
    files = render([part], redactor)
    (listed,) = manifest(files, redactor, about={}, at_ms=0)["files"]
    return files[0], listed


def test_a_file_has_the_value_as_json_and_the_manifest_its_sum():
    file, listed = rendered({"name": "\ud800ü", "at": Path("/x")})
    assert file.content == CONTENT
    assert listed == {
        "file": "a.json",
        "what": "A",
        "source": "rmq a --key hunter2",
        "status": "ok",
        "reason": None,
        "errors": {},
        "bytes": 34,
        "sha256": hashlib.sha256(CONTENT).hexdigest(),
    }
    with pytest.raises(ValueError, match="JSON compliant"):
        rendered({"rate": float("nan")})


def test_a_file_that_still_holds_a_secret_is_left_out():
    """The names of an object's parts are known only when it is written as text."""
    file, listed = rendered({"at": Path("/hunter2")}, secrets=["hunter2"])
    assert file.content == b""
    assert listed == {
        "file": "a.json",
        "what": "A",
        "source": "rmq a --key <removed>",
        "status": "left out",
        "reason": "a secret could not be removed from it",
        "errors": {},
        "bytes": None,
        "sha256": None,
    }


@pytest.mark.parametrize(
    "told",
    [
        {"data": {"secretKey": "hunter2x"}},
        {"error": "login with password=hunter2x failed"},
        {"source": "rmq a --secret-key hunter2x"},
        {"errors": {"redis://u:hunter2x@cache:1": "is down"}},
        {"errors": {"broker-a": "login with password=hunter2x failed"}},
    ],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_a_secret_that_one_part_tells_is_removed_from_all(told, is_first):
    parts = [
        BundlePart(**{"file": "a.json", "title": "A", "source": "rmq a", **told}),
        BundlePart(file="b.json", title="B", source="rmq b", data="is hunter2x"),
    ]
    files = render(parts if is_first else parts[::-1], Redactor())
    contents = {each.name: each.content for each in files}
    assert contents["b.json"] == b'"is <removed>"\n'
    assert "hunter2x" not in str(files)


@pytest.mark.slow
def test_a_file_of_more_than_64_mib_is_left_out():
    fits = ["." * 1_000] * 66_000
    room = (64 << 20) - len(json.dumps([*fits, ""], indent=2)) - 1
    file, listed = rendered([*fits, "." * room])
    assert (len(file.content), listed["status"]) == (64 << 20, "ok")
    file, listed = rendered([*fits, "." * room + "."])
    assert (file.content, listed["status"]) == (b"", "left out")
    assert listed["reason"] == "it has 67,108,865 bytes; at most 67,108,864 fit"


def test_a_tar_has_the_manifest_first_and_is_for_its_owner_alone(tmp_path):
    path = tmp_path / "a.tar.gz"
    part = BundlePart(file="a.json", title="A", source="rmq a", data="x")
    files = render([part], Redactor())
    length = write_archive(str(path), files, {}, at_ms=1_767_225_599_999)
    assert length == path.stat().st_size
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    write_archive(str(path), files, {}, at_ms=1_767_225_599_999, overwrite=True)
    assert path.stat().st_mode & 0o777 == 0o600
    folder = "rmq-bundle-20251231T235959Z"
    with tarfile.open(path) as archive:
        found = [(e.name, e.size, e.mtime, e.mode) for e in archive.getmembers()]
    assert found == [
        (f"{folder}/manifest.json", 3, 1_767_225_599, 0o600),
        (f"{folder}/a.json", 4, 1_767_225_599, 0o600),
    ]


def test_the_time_of_an_archive_is_that_of_utc(monkeypatch, tmp_path):
    path = tmp_path / "a.zip"
    try:
        monkeypatch.setenv("TZ", "Asia/Shanghai")
        time.tzset()
        write_archive(str(path), [], {}, at_ms=1_767_225_599_999)
        with zipfile.ZipFile(path) as archive:
            (entry,) = archive.infolist()
        assert entry.filename == "rmq-bundle-20251231T235959Z/manifest.json"
        assert entry.date_time == (2025, 12, 31, 23, 59, 58)  # even seconds only
        assert entry.external_attr >> 16 == 0o100600
    finally:
        monkeypatch.undo()
        time.tzset()
