"""Runs the tests of `each_version.py` with each minor version of PySpark 4.

`tables/each_version.py` tests real tables of Delta Lake and Iceberg where a release of
them supports that version, and `sql/test_only_queries.py` what `rmq sql` refuses. The
latter pytest runs with the installed version, so that here it has the others.

    python -m tests.spark.versions [VERSION...]
    python -m tests.spark.versions --oldest
    python -m tests.spark.versions --queries 300

The second command takes the oldest version only. The third one runs that
many random queries (`sql/scans.py`) with the installed version, and a sixth of them
with each other, in place of the tests.

A version that is not the installed one is fetched once into the tests' cache folder.
PYTHONPATH puts it before the environment's own packages: everything else is the same.
Two versions are tested at once. Prints what pytest said, and a line for each version;
fails when one fails or cannot be fetched.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from rmqcli.clock import SYSTEM_CLOCK
from tests.kit.artefacts import cache_root

#: The newest release of each minor version. It is a fixed list, so that the gate is
#: reproducible; add a line when a version is published.
VERSIONS = ("4.0.5", "4.1.4", "4.2.1", "4.3.0")

ROOT = Path(__file__).parents[2]
_AT_ONCE = 2
_TESTS = ("tests/spark/each_version.py", "tests/spark/tables/each_version.py")
_REFUSALS = "tests/spark/sql/test_only_queries.py"


def folder_of(version: str) -> Path | None:
    """Return the folder with PySpark and Py4J, which are fetched if they are absent.

    None means that this version is the installed one.
    """
    if importlib.metadata.version("pyspark") == version:
        return None
    folder = cache_root() / f"pyspark-{version}"
    if not folder.is_dir():
        temporary = folder.with_suffix(".part")
        shutil.rmtree(temporary, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-compile"]
        # pip builds a wheel with 0.4 GB of jars, which are already compressed.
        pip.append("--config-settings=--build-option=--compression=stored")
        subprocess.run(
            [*pip, "--target", str(temporary), f"pyspark=={version}"], check=True
        )
        temporary.rename(folder)
    return folder


def run(version: str, *, queries: int | None) -> bool:
    """Run the tests, or random queries, with a version; return whether they passed."""
    started_ms = SYSTEM_CLOCK.monotonic_ms()
    folder = folder_of(version)
    fetched_ms = SYSTEM_CLOCK.monotonic_ms()
    paths = [] if folder is None else [str(folder)]
    if os.environ.get("PYTHONPATH"):
        paths.append(os.environ["PYTHONPATH"])
    environ = {**os.environ, "RMQ_PYSPARK": version, "PYTHONPATH": ":".join(paths)}
    if not paths:
        del environ["PYTHONPATH"]
    environ.pop("SPARK_HOME", None)
    if queries is None:
        tests = _TESTS if folder is None else (*_TESTS, _REFUSALS)
        # Before 4.2, PySpark leaves sockets to the garbage collector.
        options = ["-q", "-m", "", "-p", "no:cacheprovider"]
        options += ["-W", "ignore::ResourceWarning"]
        command = ["pytest", *options, *tests]
    else:
        count = queries if folder is None else -(-queries // 6)
        command = ["tests.spark.sql.scans", "--queries", f"{count}"]
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    took_s = (SYSTEM_CLOCK.monotonic_ms() - fetched_ms) / 1000
    fetch_s = (fetched_ms - started_ms) / 1000
    word = "passed" if done.returncode == 0 else "FAILED"
    print(
        f"{done.stdout}"
        f"PySpark {version}: {word} in {took_s:.0f} s, fetched in {fetch_s:.0f} s",
        flush=True,
    )
    return done.returncode == 0


def main() -> int:
    """Test all versions, or those that are named as arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version", nargs="*", help="e.g. 4.1.4; all by default")
    parser.add_argument("--oldest", action="store_true", help="only the oldest version")
    parser.add_argument("--queries", type=int, help="random queries, e.g. 300")
    arguments = parser.parse_args()
    chosen = arguments.version or (VERSIONS[:1] if arguments.oldest else VERSIONS)
    with ThreadPoolExecutor(_AT_ONCE) as executor:
        passed = list(executor.map(partial(run, queries=arguments.queries), chosen))
    failed = [version for version, good in zip(chosen, passed, strict=True) if not good]
    print(f"PySpark {', '.join(chosen)}: {', '.join(failed) or 'none'} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
