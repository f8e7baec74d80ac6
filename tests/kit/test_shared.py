"""Several processes borrow one real cluster, which ends with the last of them."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kit import raw, shared
from tests.kit.guard import kill
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.java

#: Borrows, says where the name server is, and gives back at the end of its input.
PROGRAM = """
import sys
from pathlib import Path
from tests.kit import shared
with shared.borrow_cluster(Path(sys.argv[1]), shared.CLUSTER, "4.6.0") as cluster:
    print(cluster.namesrv, cluster.directory, flush=True)
    sys.stdin.read()
"""


@contextmanager
def borrower(folder):
    """A process that borrows; its input, once closed, ends it."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    ) as process:
        yield process


def is_gone(namesrv):
    try:
        raw.accepts(namesrv)
    except OSError:
        return True
    return False


def test_a_cluster_is_lent_until_no_process_has_it(tmp_path):
    with borrower(tmp_path) as first, borrower(tmp_path) as second:
        lent = first.stdout.readline()
        assert second.stdout.readline() == lent
        namesrv, directory = lent.split()
        # Which of the two started it does not matter: one goes, and it is killed.
        kill(first.pid)
        first.wait()
        assert raw.ask(namesrv, raw.GET_BROKER_CLUSTER_INFO).code == 0
        second.stdin.close()
        second.wait()
    wait_until(lambda: is_gone(namesrv))
    with borrower(tmp_path) as third:
        # What the earlier cluster stored is not in that of a later one.
        assert third.stdout.readline().split()[1] != directory


def test_each_borrower_hears_why_a_cluster_does_not_start(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))  # no Java
    for _ in range(2):
        with (
            pytest.raises(
                RuntimeError, match=r"cluster-4\.6\.0 did not start:\n(?s:.*)java"
            ),
            shared.borrow_cluster(tmp_path, shared.CLUSTER, "4.6.0"),
        ):
            pass
