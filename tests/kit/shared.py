"""Real servers that all processes of a test run share.

A broker or proxy of 5.x that has nothing to do takes a tenth of a core, and pytest runs
in several processes: with servers for each of them, idle ones took most of two cores.

They start when the first process borrows them, and end when none does any more. They
belong to a process of their own, whose program this module is, too: the one that caused
their start may end before the others do.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import subprocess
import sys
import traceback
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from tests.kit import raw
from tests.kit.artefacts import UnavailableError
from tests.kit.cluster import RealCluster, RunningCluster
from tests.kit.guard import MARK
from tests.kit.proxy.real import RealProxy, RunningProxy

if TYPE_CHECKING:
    from collections.abc import Iterator

#: What can be borrowed: one broker, one inside a proxy, and a proxy before the first.
CLUSTER, LOCAL_PROXY, CLUSTER_PROXY = KINDS = "cluster", "local-proxy", "cluster-proxy"
#: The options of clusters of a kind. The one in a proxy asks each second, instead of
#: each half minute, what became of transactions.
OPTIONS: dict[str, dict[str, Any]] = {
    CLUSTER: {},
    LOCAL_PROXY: {"proxy": True, "conf": {"transactionCheckInterval": 1_000}},
}
#: Longer than its servers may take, so that their errors are those which one sees.
_START_TIMEOUT_MS = 600_000


@contextmanager
def borrow_cluster(folder: Path, kind: str, version: str) -> Iterator[RunningCluster]:
    """Lend a cluster of this kind to a process of the run to which `folder` belongs.

    Raises RuntimeError if it does not start.
    """
    with _borrow(folder, kind, version) as state:
        yield _cluster(kind, version, state)


@contextmanager
def borrow_proxy(folder: Path, version: str) -> Iterator[RunningProxy]:
    """Lend a proxy before the cluster of the kind CLUSTER, which is borrowed, too."""
    with _borrow(folder, CLUSTER_PROXY, version) as state:
        yield RunningProxy(state["first_port"])


@contextmanager
def _borrow(folder: Path, kind: str, version: str) -> Iterator[dict[str, Any]]:
    """Lend servers; yields their `first_port` and their `directory`.

    As long as a process holds a shared lock, the owner does not get the exclusive one
    for which it waits. The system releases the lock of a process that is killed.
    """
    place = folder / f"{kind}-{version}"
    place.mkdir(exist_ok=True)
    with _file_of_users(place) as users:
        fcntl.flock(users, fcntl.LOCK_SH)
        with (place / "start").open("a") as start:
            fcntl.flock(start, fcntl.LOCK_EX)
            if not _state(place).exists():
                _start_owner(folder, kind, version)
                raw.wait_until(
                    _state(place).exists,
                    timeout_ms=_START_TIMEOUT_MS,
                    what=lambda: f"start of {place.name}, which another process owns",
                )
        state = json.loads(_state(place).read_text())
        if "error" in state:
            raise RuntimeError(f"{place.name} did not start:\n{state['error']}")
        yield state


def _cluster(kind: str, version: str, state: dict[str, Any]) -> RunningCluster:
    return RunningCluster(
        version,
        Path(state["directory"]),
        first_port=state["first_port"],
        proxy=kind == LOCAL_PROXY,
        is_brief=True,
    )


def _file_of_users(place: Path) -> IO[str]:
    return (place / "users").open("a")


def _state(place: Path) -> Path:
    return place / "state.json"


def _start_owner(folder: Path, kind: str, version: str) -> None:
    """Start the owner, which is neither a child of this process nor ends with it."""
    environment = {name: each for name, each in os.environ.items() if name != MARK}
    subprocess.run(
        [sys.executable, "-m", __name__, str(folder), kind, version],
        check=True,
        stdin=subprocess.DEVNULL,
        env=environment,
        cwd=Path(__file__).parents[2],
        start_new_session=True,
    )


def main() -> None:
    """Own servers until no process uses them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("version")
    arguments = parser.parse_args()
    if os.fork():
        os._exit(0)
    place = arguments.folder / f"{arguments.kind}-{arguments.version}"
    with (place / "owner.log").open("a") as log:
        os.dup2(log.fileno(), sys.stdout.fileno())
        os.dup2(log.fileno(), sys.stderr.fileno())
    # Those that ended before, if there were any, left their files.
    directory = place / f"{os.getpid()}"
    directory.mkdir()
    with ExitStack() as stack:
        users = stack.enter_context(_file_of_users(place))
        state: dict[str, str | int]
        try:
            server = _start(stack, arguments, directory)
        except (OSError, RuntimeError, UnavailableError):
            state = {"error": traceback.format_exc()}
        else:
            state = {"first_port": server.first_port, "directory": str(directory)}
        unfinished = directory / "state.json"
        unfinished.write_text(json.dumps(state))
        unfinished.rename(_state(place))
        fcntl.flock(users, fcntl.LOCK_EX)
        _state(place).unlink()
        # The lock is held until the servers have ended: others are started after that.


def _start(
    stack: ExitStack, chosen: argparse.Namespace, directory: Path
) -> RunningCluster | RunningProxy:
    version = chosen.version
    if chosen.kind == CLUSTER_PROXY:
        before = stack.enter_context(borrow_cluster(chosen.folder, CLUSTER, version))
        return stack.enter_context(RealProxy(before))
    options = OPTIONS[chosen.kind]
    cluster = RealCluster(version, directory, is_brief=True, **options)
    return stack.enter_context(cluster)


if __name__ == "__main__":
    main()
