"""Fixtures for all tests: real clusters of every version, started once and shared.

Tests that take `real_cluster` run once per version and carry the marker `java`; where
Java or Maven is missing they skip with the reason, unless RMQ_REQUIRE_JAVA is set.
"""

from __future__ import annotations

import gc
import importlib
import itertools
import logging
import os
import pkgutil
import signal
import socket
import sys
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from rmqcli.admin.lag.memory import LagMemory, memory_directory
from rmqcli.cli.options import make_common
from rmqcli.config import ClientConfig
from tests.kit import (
    artefacts,
    class_archive,
    doses,
    java_program,
    long_tests,
    selection,
    shared,
)
from tests.kit.cluster import RealCluster
from tests.kit.embedded import CLIENT_VERSION, EMBEDDED, JavaOnEmbedded
from tests.kit.failures import no_failures
from tests.kit.guard import GUARD, children, command_of, is_zombie, kill

#: The folders whose tests must cover the `source` of [tool.coverage.run].
MEASURED = ("broker", "engine", "wire")
#: The default time limit for a broker's answer, which tests in this process replace by
#: a longer one: on a busy machine healthy brokers would count as silent ones.
USERS_TIMEOUT_MS = 5_000
ANSWER_TIMEOUT_MS = 30_000


def pytest_addoption(parser):
    selection.add_option(parser)
    parser.addoption(
        "--note-long-tests",
        action="store_true",
        help="note in tests/kit/long_tests.txt which tests of this run took long",
    )
    parser.addoption(
        "--write-snapshots",
        action="store_true",
        help="write the screens of tests/cli/top/snapshots anew",
    )
    parser.addoption(
        "--engine-thread",
        choices=("plain", "leasing"),
        help="the engine thread of all consumers of tests/consumer; without it each"
        " test uses those of its marker `engine_threads`, or the leasing one",
    )


def pytest_configure(config):
    """Choose how many random examples are tried, and let signals reach commands.

    Compiled modules are kept: tests start hundreds of programs, and pytest's own form
    of the test files takes each worker twice as long to make as all else at its start.

    A run under `nohup`, or in the background of a script, starts with signals ignored,
    and child processes inherit that: rmq would rightly ignore them, too.
    """
    # gRPC closes its descriptors in a forked process, even if the child only starts
    # another program. So Java did not start when gRPC was in use elsewhere.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    doses.load("quick" if config.option.markexpr == "quick" else "rmq")
    for signum, usual in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGTERM, signal.SIG_DFL),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(signum) is signal.SIG_IGN:
            signal.signal(signum, usual)
    _set_time_limits(before=USERS_TIMEOUT_MS, after=ANSWER_TIMEOUT_MS)
    GUARD.mark_all()
    if hasattr(config, "workerinput") and (coverage := _coverage(config)) is not None:
        # pytest-cov begins to measure before it knows that this is a worker, and then
        # begins anew. The first measurement would go on whenever the second pauses.
        coverage.pause()
    # A run with files outside of this folder has no options of its own.
    notes = config.getoption("note_long_tests", default=False)
    if notes and not hasattr(config, "workerinput"):
        config.pluginmanager.register(long_tests.Notes())


def pytest_make_parametrize_id(config, val, argname):
    """Name bytes by their argument (pytest numbers those of the same name).

    Compressed bytes may hold the time, and the workers of a run must collect the same
    names, or pytest-xdist ends the run.
    """
    return argname if isinstance(val, bytes) else None


def pytest_unconfigure():
    """Kill processes that tests left; the guard does so even if pytest is killed.

    The time limits become the users' again: mutmut runs pytest several times in one
    process.
    """
    GUARD.sweep()
    _set_time_limits(before=ANSWER_TIMEOUT_MS, after=USERS_TIMEOUT_MS)


def _set_time_limits(*, before, after):
    """Replace the default time limit of each function that takes one."""
    functions: Any = {ClientConfig.__init__: "timeout_ms", make_common: "timeout"}
    for function, name in functions.items():
        if function.__kwdefaults__ is None:
            continue  # mutmut has put one of its own in the function's place
        assert function.__kwdefaults__[name] == before
        function.__kwdefaults__[name] = after


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """Let Python look for garbage seldom, and not among the collected tests.

    They are a million objects, which live as long as this process: a test that calls
    `gc.collect()` took half a second for them, each time.

    With --cov, measure what the import of a measured package runs, but not the rest of
    the collection, nor the process that only gathers the results of the workers.
    """
    if (coverage := _coverage(session.config)) is not None:
        for name in MEASURED:
            package = importlib.import_module(f"rmqcli.{name}")
            for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
                importlib.import_module(each.name)
        coverage.pause()
    gc.disable()
    if hasattr(session.config, "workerinput"):
        _import_share(session.config)
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(50_000)
        gc.enable()


def _import_share(config):
    """Import this worker's share of the test files, which compiles them for all.

    All workers go through the files in the same order, and each would compile all.
    """
    workers = config.workerinput["workercount"]
    number = int(config.workerinput["workerid"].removeprefix("gw"))
    chosen = [Path(each.partition("::")[0]).absolute() for each in config.args]
    files = (
        path
        for path in sorted(selection.TESTS.rglob("test_*.py"))
        if any(path.is_relative_to(each) for each in chosen)
        and selection.may_have(path, config.option.markexpr)
    )
    for path in itertools.islice(files, number, None, workers):
        name = path.relative_to(selection.TESTS.parent).with_suffix("")
        # pytest reports what a file raises when it comes to that file.
        with suppress(Exception, pytest.skip.Exception):
            importlib.import_module(".".join(name.parts))


def pytest_ignore_collect(collection_path, config):
    """Leave out what has no tests of the marker that -m asks for."""
    is_needed = selection.may_have(collection_path, config.option.markexpr)
    return None if is_needed else True


def pytest_itemcollected(item):
    """Refuse a test that a run of its marker would not find.

    A test with a session of Spark is slow, whatever it does with it.

    Mark the tests of some folders as quick, unless they need more than Python, if the
    run asks for that marker: to mark thousands takes each worker a second.
    """
    markers = {each.name for each in item.iter_markers()}
    if "spark" in markers and "slow" not in markers:
        item.add_marker("slow")
        markers.add("slow")
    for marker in markers & selection.SIGNS.keys():
        if not selection.may_have(item.path, marker):
            raise pytest.UsageError(
                f"`pytest -m {marker}` would not find {item.nodeid}: see HOMES and"
                " SIGNS in tests/kit/selection.py"
            )
    if (
        "quick" in item.config.option.markexpr
        and markers.isdisjoint(("java", "slow", "spark"))
        and selection.is_at_home(item.path, "quick")
    ):
        item.add_marker("quick")


@pytest.hookimpl(trylast=True)  # after -m has deselected tests
def pytest_collection_modifyitems(config, items):
    """Deselect tests of other versions, and put in order what takes long to start."""
    of_no_version = [item for item in items if _has_no_version(item)]
    if of_no_version:
        config.hook.pytest_deselected(items=of_no_version)
        items[:] = [item for item in items if item not in of_no_version]
    items.sort(key=_session_of_spark)
    long_tests.arrange(items)


def _session_of_spark(item):
    """Order tests by the session of Spark that they share: those with one come first.

    The order of modules is random. The session ends, and with it Java, before a module
    that does not use it, and the next one that does would start it again.
    """
    names = getattr(item, "fixturenames", ())
    return "sql_session" not in names, "spark" not in names


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    """With --cov, measure only the tests of packages with a coverage floor.

    Measuring makes tests take twice as long, and code that other tests merely happen to
    run is not tested by them. Their fixtures are not measured, either. Nor are random
    examples, most of the time of these packages: what they reach differs between runs.
    """
    if (coverage := _coverage(item.config)) is not None:
        package = item.path.relative_to(Path(__file__).parent).parts[0]
        is_random = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
        wanted = package in MEASURED and not is_random
        if wanted != coverage.started:
            (coverage.resume if wanted else coverage.pause)()
    return (yield)


def _coverage(config):
    """What measures the coverage in this process; None without --cov."""
    plugin = config.pluginmanager.getplugin("_cov")
    return None if plugin is None else plugin.cov_controller


def _has_no_version(item):
    """Whether --rmq-versions has no version of this test, which pytest would skip."""
    callspec = getattr(item, "callspec", None)
    return callspec is not None and not isinstance(
        callspec.params.get("rmq_version", ""), str
    )


def pytest_generate_tests(metafunc):
    """Run a test that takes `rmq_version` once per version."""
    if "rmq_version" in metafunc.fixturenames:
        only = metafunc.definition.get_closest_marker("rmq_versions")
        if only is not None and (unknown := {*only.args} - {*artefacts.VERSIONS}):
            pytest.fail(
                f"{metafunc.definition.nodeid} names unknown RocketMQ versions:"
                f" {', '.join(sorted(unknown))}"
            )
        option = metafunc.config.getoption("--rmq-versions")
        chosen = selection.versions(option, only and only.args)
        if metafunc.definition.get_closest_marker("real_only"):
            chosen = [v for v in chosen if v != EMBEDDED]
        metafunc.parametrize(
            "rmq_version",
            [pytest.param(v, marks=pytest.mark.java) for v in chosen],
            scope="session",
        )


def start_cluster(version, directory, **options):
    """Start a cluster; if that is impossible, skip, or fail if it is demanded."""
    with _available(version):
        if version == EMBEDDED:
            return JavaOnEmbedded(CLIENT_VERSION, directory, **options)
        cluster = RealCluster(version, directory, is_brief=True, **options)
    _forget_lag_of(cluster)
    return cluster


@contextmanager
def _available(version):
    """Skip if there is no real RocketMQ of this version, or fail if it is demanded."""
    try:
        class_archive.make(CLIENT_VERSION if version == EMBEDDED else version)
        yield
    except artefacts.UnavailableError as error:
        if os.environ.get("RMQ_REQUIRE_JAVA"):
            pytest.fail(
                f"RMQ_REQUIRE_JAVA is set, but real RocketMQ is not available: {error}"
            )
        pytest.skip(f"no real RocketMQ: {error}")


def _forget_lag_of(cluster):
    """An earlier cluster at these ports may have had other brokers."""
    folder = memory_directory(os.environ)
    assert folder is not None
    LagMemory(folder, [cluster.namesrv], now_ms=0).forget()


@pytest.fixture(scope="session")
def borrow(tmp_path_factory):
    """A function that lends a cluster of a kind to all workers (see kit/shared.py)."""
    folder_of_run = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder_of_run = folder_of_run.parent

    @contextmanager
    def lend(kind, version):
        if version == EMBEDDED:
            options = shared.OPTIONS[kind]
            folder = tmp_path_factory.mktemp(kind)
            with start_cluster(version, folder, **options) as cluster:
                yield cluster
            return
        with _available(version):
            artefacts.class_path(version)
        if kind == shared.CLUSTER_PROXY:
            with shared.borrow_proxy(folder_of_run, version) as proxy:
                yield proxy
            return
        with shared.borrow_cluster(folder_of_run, kind, version) as cluster:
            _forget_lag_of(cluster)
            yield cluster

    return lend


@pytest.fixture(autouse=True)
def _no_process_is_left(request):
    """Kill the processes that a test left running, and fail a test that left any.

    Processes of shared fixtures do not count: they were there before, or the guard
    watches them. Spark's live as long as this process.
    """
    before = children()
    yield
    left = {
        pid: command_of(pid)
        for pid in children() - before - {GUARD.pid, GUARD.sweeper_pid}
        if not GUARD.watches(pid) and not is_zombie(pid)
    }
    if request.node.get_closest_marker("spark") is not None:
        return
    left = {pid: each for pid, each in left.items() if "resource_tracker" not in each}
    for pid in left:
        kill(pid)
    assert not left, f"the test left processes running: {left}"


@pytest.fixture(autouse=True)
def failures(request):
    """The exceptions from which rmq went on: none, unless a test injects some.

    A client that goes on after a defect is a little later, which no test might notice.
    Afterwards logging is as it was: a command sets it up for its whole process.
    """
    logger = logging.getLogger("rmqcli")
    with no_failures("rmqcli") as texts:
        before = logger.level, logger.propagate, logger.handlers[:]
        yield texts
        logger.level, logger.propagate, logger.handlers[:] = before
        if request.node.get_closest_marker("injects_exceptions") is not None:
            texts.clear()


@pytest.fixture(autouse=True, scope="session")
def _folders_of_this_run(tmp_path_factory):
    """Keep what commands store between runs in folders of the tests.

    Yields the paths of new folders, which do not exist yet. pytest finds a new name by
    reading those of all that it has made: 6 ms after 6,000 tests.
    """
    base = tmp_path_factory.mktemp("environment")
    with pytest.MonkeyPatch.context() as patch:
        # Fixtures that several tests share store there, too.
        patch.setenv("XDG_STATE_HOME", str(base / "state"))
        patch.setenv("XDG_CACHE_HOME", str(base / "cache"))
        yield (f"{base}/{number}" for number in itertools.count())


@pytest.fixture(autouse=True)
def _folders_of_this_test(_folders_of_this_run, monkeypatch):
    """Give every test its own profiles, none in use, and its own state.

    A redrive would continue what another test began with a group of the same name.
    """
    folder = next(_folders_of_this_run)
    monkeypatch.setenv("XDG_CONFIG_HOME", f"{folder}/config")
    monkeypatch.setenv("XDG_STATE_HOME", f"{folder}/state")
    monkeypatch.delenv("RMQ_PROFILE", raising=False)


@pytest.fixture
def closed_port():
    """An address at which nothing listens, and nothing can until the test ends.

    A port that is only free may become that of a server of another test.
    """
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


@pytest.fixture(scope="module")
def start_shared(tmp_path_factory):
    """A function that starts a cluster for all tests of a module."""
    with ExitStack() as stack:

        def start(version, **options):
            directory = tmp_path_factory.mktemp(f"shared-{version}")
            return stack.enter_context(start_cluster(version, directory, **options))

        yield start


@pytest.fixture(scope="session")
def real_cluster(rmq_version, borrow):
    """One broker of `rmq_version`, shared with tests that run at the same time.

    A test makes topics and groups of its own, expects others beside them that come and
    go, and leaves the settings of the servers as they are.
    """
    with borrow(shared.CLUSTER, rmq_version) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def cluster_proxy(real_cluster, borrow):
    """A proxy in cluster mode in front of `real_cluster` (5.x), and shared like it."""
    with borrow(shared.CLUSTER_PROXY, real_cluster.version) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def local_proxy(rmq_version, borrow):
    """One broker of `rmq_version` (5.x) inside a proxy, shared like `real_cluster`.

    It asks each second, instead of each half minute, what became of transactions.
    """
    with borrow(shared.LOCAL_PROXY, rmq_version) as cluster:
        yield cluster


@pytest.fixture
def fresh_cluster(rmq_version, tmp_path_factory):
    """A function that starts a cluster for this test alone, which may damage it."""
    with ExitStack() as stack:

        def start(*, brokers=1, conf=None, version=rmq_version, **options):
            directory = tmp_path_factory.mktemp(f"fresh-{version}")
            cluster = start_cluster(
                version, directory, brokers=brokers, conf=conf, **options
            )
            return stack.enter_context(cluster)

        yield start


@pytest.fixture
def new_topic(real_cluster):
    """A function that makes a topic of this test's own and returns its name."""
    return real_cluster.create_topic


@pytest.fixture
def java_producer():
    """`java_producer(cluster, specs)`: see tests.kit.java_program."""
    return java_program.java_producer
