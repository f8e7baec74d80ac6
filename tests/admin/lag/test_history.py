"""The histories of `rmq check --behaviour`: what is kept, for how long, how much."""

from __future__ import annotations

import os
import stat
import threading

import pytest

from rmqcli.admin.lag import history
from rmqcli.admin.lag.behaviour import History, Point, Series
from rmqcli.admin.lag.history import HistoryFolder, history_directory

NOW_MS = 1_767_322_800_000
NAMESRV = ("127.0.0.1:9876",)
KEPT = History(
    {
        ("T", "broker-a", 0): Series(
            (Point(NOW_MS, 7, 10), Point(NOW_MS + 60_000, 7, 12)), is_bounded=True
        ),
        ("T", "broker-a", 1): Series((Point(NOW_MS, -2, 5),), is_assumed=True),
        # No message came.
        ("T", "broker-a", 2): Series(
            (Point(NOW_MS, 0, 0), Point(NOW_MS + 60_000, 0, 0))
        ),
        ("T", "broker-a", 3): Series(
            (Point(NOW_MS, 5, 5), Point(NOW_MS + 60_000, 5, 5))
        ),
    },
    is_begun=True,
)


def folder_of(path, *, namesrv=NAMESRV, window_ms=600_000):
    return HistoryFolder(path / "behaviour", namesrv, window_ms=window_ms)


def test_what_is_saved_is_loaded(tmp_path):
    folder = folder_of(tmp_path)
    assert folder.load("G") == (History(), None)
    assert folder.save("G", KEPT) is None
    assert folder_of(tmp_path).load("G") == (KEPT, None)
    assert stat.S_IMODE(os.stat(folder.path("G")).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(tmp_path / "behaviour").st_mode) == 0o700


def test_groups_windows_and_clusters_do_not_share_a_history(tmp_path):
    folder = folder_of(tmp_path)
    assert folder.save("G", KEPT) is None
    assert folder.load("H")[0] == History()
    assert folder_of(tmp_path, window_ms=60_000).load("G")[0] == History()
    assert folder_of(tmp_path, namesrv=["other:9876"]).load("G")[0] == History()


@pytest.mark.parametrize("group", ["../../etc/passwd", "a/b", "\0", "G" * 300, "组"])
def test_no_name_of_a_group_leaves_the_folder(tmp_path, group):
    folder = folder_of(tmp_path)
    assert folder.save(group, KEPT) is None
    assert folder.load(group) == (KEPT, None)
    assert [p.parent for p in tmp_path.rglob("*.json")] == [tmp_path / "behaviour"]


@pytest.mark.parametrize(
    "damage",
    [
        ("[1767322800000,7,10]", "[1767322800000,7,-10]"),
        ("[1767322800000,7,10]", "[1767322800000,7,99]"),  # the end moved back
        ("[1767322800000,7,10]", "[1767322800000,7]"),
        ("[1767322800000,7,10]", "[1767322800000,7.5,10]"),
        ("[1767322800000,7,10]", "[1767322800000,9223372036854775808,10]"),
        ("[1767322800000,7,10]", "[true,7,10]"),
        ('"broker-a",0', "null,0"),
        ('"broker-a",0', '"broker-a",-1'),
        ('"is_begun":true', '"is_begun":1'),
        ('"queues":[', '"queues":[[],'),
        ('"version":1', '"version":' + "[" * 100_000),
    ],
)
def test_a_damaged_file_is_not_used(tmp_path, damage):
    folder = folder_of(tmp_path)
    assert folder.save("G", KEPT) is None
    path = folder.path("G")
    with open(path, encoding="utf-8") as file:
        text = file.read()
    assert damage[0] in text
    with open(path, "w", encoding="utf-8") as file:
        file.write(text.replace(*damage))
    assert folder.load("G") == (History(), f"{path} cannot be used")
    assert folder.save("G", KEPT) is None
    assert folder.load("G") == (KEPT, None)


def test_a_file_of_another_version_is_not_used(tmp_path):
    folder = folder_of(tmp_path)
    os.makedirs(tmp_path / "behaviour")
    path = folder.path("G")
    with open(path, "w", encoding="utf-8") as file:
        file.write('{"version": 2, "something": "else"}')
    reason = f"{path} was written by another version of rmq"
    assert folder.load("G") == (History(), reason)


def test_a_link_or_a_pipe_is_not_followed(tmp_path):
    folder = folder_of(tmp_path)
    os.makedirs(tmp_path / "behaviour")
    (tmp_path / "target").write_text("precious")
    os.symlink(tmp_path / "target", folder.path("G"))
    os.mkfifo(folder.path("H"))
    for group in "GH":
        assert folder.load(group)[0] == History()
        assert folder.save(group, KEPT) is None
        assert folder.load(group) == (KEPT, None)
    assert (tmp_path / "target").read_text() == "precious"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_not_used(tmp_path):
    folder = folder_of(tmp_path)
    assert folder.save("G", KEPT) is None
    os.chown(folder.path("G"), 12_345, -1)
    assert folder.load("G") == (History(), f"{folder.path('G')} cannot be used")


def test_a_history_of_many_queues_is_thinned_and_then_refused(tmp_path):
    points = tuple(Point(NOW_MS + n * 30_000, 10**15, 10**16 + n) for n in range(40))
    folder = folder_of(tmp_path)

    def save(count, *, points=points):
        return folder.save(
            "G",
            History({("T", "broker-a", n): Series(points) for n in range(count)}),
        )

    assert save(1_000) is None
    assert len(folder.load("G")[0].queues["T", "broker-a", 0].points) == 40
    assert save(4_000) is None
    assert os.path.getsize(folder.path("G")) <= 4 << 20
    kept = folder.load("G")[0].queues["T", "broker-a", 3_999].points
    assert len(kept) == 11
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    refused = save(30_000, points=points[:4])
    assert refused == "the history of 30,000 queues is too large to keep"


def test_a_history_may_have_exactly_as_many_bytes_as_are_kept(tmp_path, monkeypatch):
    folder = folder_of(tmp_path)
    short = History(
        {("T", "broker-a", 0): Series(tuple(Point(n, n, n) for n in range(1, 5)))}
    )
    assert folder.save("G", short) is None
    size = os.path.getsize(folder.path("G"))
    monkeypatch.setattr(history, "_BYTES_MAX", size)
    assert folder.save("G", short) is None
    assert folder.load("G") == (short, None)
    monkeypatch.setattr(history, "_BYTES_MAX", size - 1)
    assert folder.load("G")[0] == History()
    refused = folder.save("G", short)
    assert refused == "the history of 1 queue is too large to keep"


def test_the_oldest_of_too_many_files_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(history, "_FILES_MAX", 2)
    folder = folder_of(tmp_path)
    for age_ms, group in enumerate("abcd"):
        assert folder.save(group, KEPT) is None
        written_ns = (NOW_MS - age_ms) * 1_000_000
        os.utime(folder.path(group), ns=(written_ns, written_ns))
    for _ in range(2):
        folder.clean(now_ms=NOW_MS)
        assert [folder.load(group)[0] == KEPT for group in "abcd"] == [
            *(True, True),
            *(False, False),
        ]


def test_checks_that_run_at_once_see_whole_files(tmp_path):
    folder = folder_of(tmp_path)
    assert folder.save("G", KEPT) is None
    found = []

    def check():
        own = folder_of(tmp_path)
        for _ in range(200):
            found.append(own.load("G"))
            assert own.save("G", KEPT) is None
            own.clean(now_ms=NOW_MS)

    threads = [threading.Thread(target=check) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [(KEPT, None)] * 400


def test_files_are_removed_after_a_week(tmp_path):
    folder = folder_of(tmp_path)
    for group, age_ms in (("old", 604_800_001), ("new", 604_800_000)):
        assert folder.save(group, KEPT) is None
        written_ns = (NOW_MS - age_ms) * 1_000_000
        os.utime(folder.path(group), ns=(written_ns, written_ns))
    folder.clean(now_ms=NOW_MS)
    assert folder.load("old") == (History(), None)
    assert folder.load("new") == (KEPT, None)


def test_a_folder_that_is_not_there_needs_no_cleaning(tmp_path):
    folder_of(tmp_path).clean(now_ms=NOW_MS)


def test_the_folder_is_in_the_state_of_the_user():
    found = history_directory({"XDG_STATE_HOME": "/x"})
    assert found == "/x/rmqcli/behaviour"
