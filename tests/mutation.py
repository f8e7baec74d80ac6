"""`python -m tests.mutation PACKAGE`: would the tests notice if the code were wrong?

mutmut changes one operator, number, argument or assignment at a time, and the tests
that run the changed function have to fail. This command chooses which mutants count,
draws a sample that a seed repeats, and prints a diff of each survivor and the share
that the tests killed. Slow tests do not count, because each mutant would run them.
Several seeds draw a sample each, all for one run of the tests that finds out which of
them run which functions.
Needs the extra `mutation`.

Mutants do not count, killed or not, that change nothing but

- a text, such as the message or the hint of an error, a log line or the name of a
  thread: texts are for readers to judge;
- a type, which is the first argument of `cast`;
- a False that becomes None, which is as false;
- what `repr` shows;
- a clock or a source of random numbers that a caller passes on: programs use the
  default, and only tests pass others;
- the `strict` of a `zip`: it ends a program only where two lists that the program has
  made itself differ in length.

A mutant that the tests let pass is shown to mypy, which the README's test command runs,
too: it counts as killed if mypy refuses it, such as None in the place of a text. One of
`spark` is then shown to the tests of its module that start Spark: each takes minutes,
and they run in processes in which mutmut notes nothing. One of `cli` is shown to all
tests of its module once more, now in the module's own place, where `rmq` as a process
and the tests find it that are left out because mutmut changes what they look at.

Everything happens in a copy of the working tree, in a temporary folder. A mutant whose
tests have not ended 90 seconds after twice their usual time counts as killed, and is
listed, because a machine that is too busy looks the same.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import functools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Scope:
    """Which files are changed, and which tests have to notice.

    Both are patterns. In one of files `*` stands for folders, too. `leave_out` names
    tests that fail with any mutants: those of processes in which mutmut, which the
    changed modules import, is not installed, and those of a module's text.
    """

    files: tuple[str, ...]
    tests: tuple[str, ...]
    leave_out: tuple[str, ...] = ()
    #: Which tests a mutant is shown to that the others let pass, as a mark of pytest:
    #: the module stands in its place in the tree, so that other processes run it, too.
    late_mark: str = ""


#: `mcp` and `process` are not among them: their tests look at other processes, in which
#: no mutant runs.
SCOPES = {
    "admin": Scope(
        ("rmqcli/admin/*.py",),
        (
            "tests/admin",
            "tests/cli/changes",
            "tests/cli/reset_offset",
            "tests/cli/tail",
            "tests/cli/dlq",
            "tests/cli/message",
            "tests/cli/monitoring/test_check.py",
            "tests/cli/monitoring/test_cluster.py",
            "tests/cli/test_acl.py",
            "tests/cli/test_broker.py",
            "tests/cli/test_definitions.py",
            "tests/cli/test_groups.py",
            "tests/cli/test_lag*.py",
            "tests/cli/test_members.py",
            "tests/cli/test_retry.py",
            "tests/cli/test_topic*.py",
        ),
        # The first reads the texts of checks from their modules, which have those of
        # mutants, too. The second compares names of methods, and mutmut adds some.
        leave_out=(
            (
                "tests/admin/doctor/test_commands.py::test_every_command_of_rmq_that_a"
                "_check_suggests_can_be_parsed"
            ),
            "tests/admin/test_admin.py::test_the_table_has_every_method_with_places",
        ),
    ),
    "aio": Scope(
        ("rmqcli/aio/*.py",),
        ("tests/aio", "tests/test_cluster.py"),
        # They compare the names of methods, and mutmut adds some.
        leave_out=(
            (
                "tests/test_cluster.py::test_every_public_method_of_a_cluster_has_its"
                "_asynchronous_form"
            ),
            (
                "tests/test_cluster.py::test_plans_and_runs_have_the_same_methods_in"
                "_both_forms"
            ),
        ),
    ),
    "api": Scope(
        ("rmqcli/api/*.py", "rmqcli/tasks.py"),
        (
            "tests/api",
            "tests/admin",
            "tests/consumer/simple/test_consumer.py",
            "tests/consumer/test_remoting_network.py",
            "tests/producer/test_producer.py",
            "tests/producer/test_transactions.py",
            "tests/test_tasks.py",
        ),
    ),
    "benchmark": Scope(
        ("rmqcli/benchmark/*.py",), ("tests/benchmark", "tests/cli/test_bench*.py")
    ),
    "broker": Scope(("rmqcli/broker/*.py",), ("tests/broker",)),
    "bundle": Scope(("rmqcli/bundle/*.py",), ("tests/bundle", "tests/cli/bundle")),
    "cli": Scope(
        ("rmqcli/cli/*.py",),
        ("tests/cli",),
        # mutmut adds a line to a file that the first compares with a text, repeats the
        # calls that the second counts, changes the texts that the next three find in
        # the source, and loads a module that, by the last, is not loaded.
        leave_out=(
            "tests/cli/arguments/test_table.py::test_the_table_is_up_to_date",
            "tests/cli/profile/test_guard.py::test_no_other_module_asks_a_question",
            (
                "tests/cli/ui/test_wording.py"
                "::test_a_number_that_can_be_one_is_counted_with_its_noun"
            ),
            (
                "tests/cli/ui/test_wording.py"
                "::test_the_command_line_has_words_for_all_that_hints_name"
            ),
            "tests/cli/ui/test_wording.py::test_the_command_of_every_call_exists",
            (
                "tests/cli/profile/test_copy.py"
                "::test_with_a_copy_python_s_parser_is_not_loaded"
            ),
        ),
        late_mark="not java and not slow",
    ),
    "consumer": Scope(
        ("rmqcli/consumer/*.py",),
        ("tests/consumer", "tests/test_checked.py"),
        # They count what a process of their own keeps, and mutmut keeps more.
        leave_out=("tests/consumer/test_leaks.py",),
    ),
    "copy": Scope(("rmqcli/copy/*.py",), ("tests/copy", "tests/cli/test_copy.py")),
    "decode": Scope(("rmqcli/decode/*.py",), ("tests/decode",)),
    "engine": Scope(
        ("rmqcli/engine/*.py",), ("tests/engine", "tests/admin/lag/test_model.py")
    ),
    "exporter": Scope(
        ("rmqcli/exporter/*.py",),
        ("tests/exporter", "tests/cli/monitoring/test_exporter.py"),
    ),
    "producer": Scope(
        ("rmqcli/producer/*.py",),
        ("tests/producer", "tests/cli/test_send*.py", "tests/test_checked.py"),
    ),
    "proxy": Scope(
        ("rmqcli/proxy/*.py",),
        (
            "tests/proxy",
            "tests/producer/proxy",
            "tests/cli/test_topic_proxy.py",
            "tests/consumer/test_consumer_proxy.py",
            "tests/consumer/simple/test_proxy.py",
        ),
    ),
    "redrive": Scope(("rmqcli/redrive/*.py",), ("tests/redrive", "tests/cli/dlq")),
    "spark": Scope(
        ("rmqcli/spark/*.py",),
        ("tests/spark",),
        leave_out=(
            (
                "tests/spark/test_package.py::test_the_library_is_imported_from_the_zip"
                "_with_compiled_packages_beside"
            ),
        ),
        late_mark="spark and not java",
    ),
    "store": Scope(("rmqcli/store/*.py",), ("tests/store",)),
    "trace": Scope(("rmqcli/trace/*.py",), ("tests/trace",)),
    "transport": Scope(
        ("rmqcli/transport/*.py",),
        (
            "tests/transport",
            "tests/cli/completion",
            "tests/cli/test_schema_registry.py",
        ),
    ),
    "wire": Scope(("rmqcli/wire/*.py",), ("tests/wire", "tests/api")),
}

#: mutmut's exit codes of a mutant that the tests did not notice: every test passed,
#: or no test runs the function at all.
_SURVIVED = {0: "survived", 33: "no test runs it"}
_KILLED = 1
_TIMED_OUT = -signal.SIGXCPU
#: See _note_what_imports_run.
_FIRST_TEST = "tests/test_nothing.py"
#: How tests failed without a change: mutmut does not show it.
_FAILURES = "failures.txt"
_UNCHANGED_FAILED = "Failed to run clean test"

_ARGUMENTS = (
    *("-p", "no:randomly", "-p", "tests.mutation", "-q"),
    *("-m", "not java and not spark and not slow"),
    # Nobody reads how a test fails, and to explain it takes minutes for long values.
    *("--hypothesis-profile", "mutation", "--assert", "plain"),
)
_CONFIG = """
[tool.mutmut]
source_paths = ["rmqcli"]
only_mutate = {files}
also_copy = ["tests", "README.md", "LICENSE", "completions"]
pytest_add_cli_args_test_selection = {tests}
pytest_add_cli_args = {arguments}
# Each run of pytest has a process in which none ran before: a second one in the same
# process names tests with a backslash in their parameters differently, and forks beside
# the threads that the first one left.
process_isolation = "forkserver"
forkserver_warmup = "none"
timeout_constant = 45.0  # (seconds + this) * the multiplier
timeout_multiplier = 2.0
"""


def main() -> int:
    """Make the mutants, run a sample of them, print what survived."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutation", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("package", choices=sorted(SCOPES))
    parser.add_argument("--sample", type=int, default=100, help="mutants to run")
    parser.add_argument(
        "--seed", type=int, nargs="+", default=[1], help="which sample to draw"
    )
    parser.add_argument("--jobs", type=int, default=1, help="mutants run side by side")
    parser.add_argument("--only", default="", help="only mutants with this in the name")
    parser.add_argument("--at-least", type=float, default=0.0, help="per cent to reach")
    options = parser.parse_args()
    if shutil.which("mutmut") is None:
        print("mutmut is missing: pip install -e '.[mutation]'", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="rmq-mutation-") as folder:
        copy = Path(folder)
        _copy_tree(copy, SCOPES[options.package])
        # A name that no mutant has: mutmut makes all mutants, notes which tests run
        # which functions, and ends there.
        stats = copy / "mutants" / "mutmut-stats.json"
        output = _mutmut(copy, "no-mutant")
        if not stats.exists():
            _report_unsteady(copy)
            output = _mutmut(copy, "no-mutant")
        if not stats.exists():
            raise SystemExit(f"mutmut made no mutants:\n{output[-4000:]}")
        _note_what_imports_run(stats)
        decisive = _decisive(copy / "mutants")
        names = sorted(name for name in decisive if options.only in name)
        if not names:
            print("no mutant has that in its name", file=sys.stderr)
            return 2
        count = min(options.sample, len(names))
        samples = {
            seed: random.Random(seed).sample(names, count) for seed in options.seed
        }
        all_samples = sorted(set().union(*samples.values()))
        run = functools.partial(_mutmut, copy, f"--max-children={options.jobs}")
        output = run(*all_samples)
        if _UNCHANGED_FAILED in output:
            _report_unsteady(copy)
            output = run(*all_samples)
        if _UNCHANGED_FAILED in output:
            raise SystemExit(f"tests fail without a change, too:\n{output[-4000:]}")
        late_mark = SCOPES[options.package].late_mark
        rate = _report(copy, decisive, samples, len(names), late_mark=late_mark)
        if rate is None:
            raise SystemExit(f"no mutant was run:\n{output[-4000:]}")
        return 0 if rate >= options.at_least else 1


def _copy_tree(copy: Path, scope: Scope) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    (copy / _FIRST_TEST).write_text("def test_nothing():\n    pass\n")
    tests = [_FIRST_TEST] + [
        path.relative_to(ROOT).as_posix()
        for pattern in scope.tests
        for path in sorted(ROOT.glob(pattern))
    ]
    with (copy / "pyproject.toml").open("a") as file:
        file.write(
            _CONFIG.format(
                files=json.dumps(scope.files),
                tests=json.dumps(tests),
                arguments=json.dumps(
                    [*_ARGUMENTS, *(f"--deselect={each}" for each in scope.leave_out)]
                ),
            )
        )


def _mutmut(copy: Path, *arguments: str) -> str:
    """Run `mutmut run`, and return what it printed."""
    with (copy / "output.txt").open("w+") as output:
        mutmut = subprocess.Popen(
            ["mutmut", "run", *arguments],
            cwd=copy,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            mutmut.wait()
        finally:
            # What the tests of a mutant started outlives them when its time is over.
            with suppress(ProcessLookupError):
                os.killpg(mutmut.pid, signal.SIGKILL)
        output.seek(0)
        # Lines that begin with a braille pattern are the spinner's: thousands in a run.
        return re.sub("^[\u2800-\u28ff] .*\n", "", output.read(), flags=re.MULTILINE)


def _note_what_imports_run(stats: Path) -> None:
    """Let every test notice mutants of a function that runs while modules are imported.

    An example is what declares the fields of a class. mutmut notes it for the test that
    runs first, which is one without content, and for those that call it once more.
    """
    noted = json.loads(stats.read_text())
    every_test = list(noted["duration_by_test"])
    for function, tests in noted["tests_by_mangled_function_name"].items():
        if any(test.startswith(_FIRST_TEST) for test in tests):
            noted["tests_by_mangled_function_name"][function] = every_test
    stats.write_text(json.dumps(noted))


def pytest_configure() -> None:
    """Let functions call each other as deeply as without mutants.

    mutmut calls every function through two of its own, and the nested texts that a
    parser has to accept need hundreds of calls.
    """
    sys.setrecursionlimit(3 * 1000)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep how a test fails without a mutant."""
    if report.failed and os.environ.get("MUTANT_UNDER_TEST") in ("", "stats"):
        lines = report.longreprtext.splitlines()
        with Path(_FAILURES).open("a") as file:
            file.write("\n".join([f"{report.nodeid} fails:", *lines[-20:], ""]))


def _report_unsteady(copy: Path) -> None:
    """Print how tests failed without a mutant, before they are tried once more.

    One unsteady test would otherwise cost all that a run has done before.
    """
    failures = copy / "mutants" / _FAILURES
    if failures.exists():
        print(f"UNSTEADY {failures.read_text()}", file=sys.stderr, flush=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files of the quickest tests: most mutants need no others.

    mutmut names the tests in any order.
    """
    stats = Path("mutmut-stats.json")
    if not stats.exists():
        return
    durations = json.loads(stats.read_text())["duration_by_test"]
    files: dict[Path, list[float]] = {}
    for item in items:
        files.setdefault(item.path, []).append(durations.get(item.nodeid, 0.0))
    means = {path: (sum(each) / len(each), path) for path, each in files.items()}
    items.sort(key=lambda item: means[item.path])


def _decisive(mutants: Path) -> dict[str, tuple[Path, str]]:
    """The mutants that change more than a text: name -> (file, diff)."""
    decisive = {}
    for meta in sorted(mutants.rglob("*.py.meta")):
        source = meta.with_suffix("")
        spans = source.with_name(f"{source.name}.spans")
        if not spans.exists():
            continue
        lines = source.read_text().splitlines()
        places = json.loads(spans.read_text())["spans"]

        def function(name: str, lines=lines, places=places) -> str:
            first, last = places[name]
            return textwrap.dedent("\n".join(lines[first - 1 : last]))

        for name in json.loads(meta.read_text())["exit_code_by_key"]:
            mutant_name = name.rpartition(".")[2]
            before_name = f"{mutant_name.rpartition('__mutmut_')[0]}__mutmut_orig"
            before, after = function(before_name), function(mutant_name)
            after = after.replace(mutant_name, before_name)
            if _decisions(before) != _decisions(after):
                path = source.relative_to(mutants)
                decisive[name] = path, _difference(before, after)
    return decisive


@functools.lru_cache(maxsize=2)  # the original comes with each of its mutants
def _decisions(function: str) -> str:
    """What a function does, without what the module's docstring leaves out."""
    return ast.dump(_WithoutTexts().visit(ast.parse(function)))


class _WithoutTexts(ast.NodeTransformer):
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if "__repr__" in node.name:
            node.body = [ast.Pass()]
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if node.value is False:
            return ast.Constant(None)
        return ast.Constant("") if isinstance(node.value, str) else node

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        if isinstance(node.exc, ast.Call):
            node.exc = node.exc.func
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        is_hint = ast.unparse(node.targets[0]).endswith(".hint")
        return ast.Pass() if is_hint else self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        text = ast.unparse(node)
        is_log = text.startswith(("logger.", "_log."))
        return ast.Pass() if is_log else self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        called = ast.unparse(node.func).rpartition(".")[2]
        if called == "cast":
            node.args = node.args[-1:]
        ignored = {"clock", "hint", "rng"}
        if called in ("Thread", "ThreadPoolExecutor"):
            ignored |= {"name", "thread_name_prefix"}
        if called == "zip":
            ignored.add("strict")
        node.keywords = [each for each in node.keywords if each.arg not in ignored]
        return self.generic_visit(node)


def _difference(before: str, after: str) -> str:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=1)
    return "\n".join(line for line in list(lines)[2:] if not line.startswith("@@"))


def _is_refused_by(module: str, arguments: Sequence[str], mutant: _Mutant) -> bool:
    """Whether a Python program fails for a mutant; without a change it must not."""
    place = mutant.copy / mutant.path
    before = place.read_text()
    _check_unchanged(mutant.copy, module, *arguments)
    place.write_text(
        _with_mutant(before, mutant.copy / "mutants" / mutant.path, mutant.name)
    )
    try:
        return _run(mutant.copy, module, *arguments).returncode == 1
    finally:
        place.write_text(before)


@functools.cache  # mypy's own cache is filled, too
def _check_unchanged(copy: Path, module: str, *arguments: str) -> None:
    done = _run(copy, module, *arguments)
    if done.returncode:
        output = done.stdout.decode(errors="replace")
        raise SystemExit(
            f"{module} {arguments} fails without a change:\n{output[-4000:]}"
        )


def _run(
    copy: Path, module: str, *arguments: str
) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, cwd=copy, capture_output=True, check=False)


def _late_tests(mutant: _Mutant, mark: str) -> list[str]:
    """The arguments of pytest for the tests of a mutant's module.

    These are the files with its name in their names, or else its whole folder.
    """
    folder = Path("tests", *mutant.path.parent.parts[1:])
    while not (mutant.copy / folder).is_dir():
        folder = folder.parent
    named = sorted((mutant.copy / folder).glob(f"test_*{mutant.path.stem}*.py"))
    paths = [str(each.relative_to(mutant.copy)) for each in named] or [str(folder)]
    return ["-x", "-q", "-p", "no:randomly", "-m", mark, *paths]


class _Mutant(NamedTuple):
    """A mutant in a copy of the tree, and the path of its module there."""

    copy: Path
    path: Path
    name: str


def _with_mutant(source: str, mutated: Path, name: str) -> str:
    """Put a mutant into the source of its module, in the place of the original."""
    mutant_name = name.rpartition(".")[2]
    places = json.loads(mutated.with_name(f"{mutated.name}.spans").read_text())["spans"]
    first, last = places[mutant_name]
    mutant = textwrap.dedent(
        "\n".join(mutated.read_text().splitlines()[first - 1 : last])
    )
    # `x_function`, or `xǁClassǁmethod`.
    path = mutant_name.rpartition("__mutmut_")[0].removeprefix("x")
    *classes, function = path.split("ǁ")[1:] if "ǁ" in path else [path[1:]]
    scope: ast.AST = ast.parse(source)
    for each in [*classes, function]:
        # The last one: those before it are overloads.
        scope = [
            node
            for node in ast.walk(scope)
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and node.name == each
        ][-1]
    assert isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef)
    mutant = mutant.replace(mutant_name, function)
    lines = source.splitlines()
    lines[scope.lineno - 1 : scope.end_lineno] = textwrap.indent(
        mutant, " " * scope.col_offset
    ).splitlines()
    return "\n".join([*lines, ""])


def _report(
    copy: Path,
    decisive: dict[str, tuple[Path, str]],
    samples: dict[int, list[str]],
    mutant_count: int,
    *,
    late_mark: str,
) -> float | None:
    """Print what became of the samples.

    Returns the lowest share that was killed, in per cent; None if none was run.
    """
    codes: dict[str, int | None] = {}
    for meta in (copy / "mutants").rglob("*.py.meta"):
        codes.update(json.loads(meta.read_text())["exit_code_by_key"])
    for name in sorted(set().union(*samples.values())):
        path, difference = decisive[name]
        code = codes[name]
        title = f"--- {path} {name.rpartition('.')[2]}"
        mutant = _Mutant(copy, path, name)
        types = ("--no-error-summary", str(path))
        if code is None:
            print(f"{title}: not run, does not count")
        elif code in _SURVIVED and _is_refused_by("mypy", types, mutant):
            print(f"{title}: killed by mypy")
            codes[name] = _KILLED
        elif (
            code in _SURVIVED
            and late_mark
            and _is_refused_by("pytest", _late_tests(mutant, late_mark), mutant)
        ):
            print(f"{title}: killed by tests with the mark {late_mark!r}")
            codes[name] = _KILLED
        elif code in _SURVIVED:
            print(f"{title}: {_SURVIVED[code]}")
            print(difference)
        elif code == _TIMED_OUT:
            print(f"{title}: killed, its time was over")
    rates = []
    for seed, sample in samples.items():
        ran = [name for name in sample if codes[name] is not None]
        killed = [name for name in ran if codes[name] not in _SURVIVED]
        counts = Counter(decisive[name][0] for name in ran)
        kills = Counter(decisive[name][0] for name in killed)
        print()
        for path in sorted(counts):
            print(f"{kills[path]:5} of {counts[path]:4} killed  {path}")
        if ran:
            rates.append(100 * len(killed) / len(ran))
            print(
                f"seed {seed}: {len(killed)} of {len(ran)} killed: {rates[-1]:.1f} %,"
                f" of {mutant_count} mutants"
            )
    return min(rates, default=None)


if __name__ == "__main__":
    raise SystemExit(main())
