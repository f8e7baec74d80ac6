"""Runs the tests of arguments, help and completion with the oldest and newest Typer.

    python -m tests.cli.arguments.versions [VERSION...]

Without arguments, the installed version is left out: any run of pytest tests it. Each
other version is fetched once into the tests' cache folder.
PYTHONPATH puts it before the environment's own packages: everything else is the same.
Prints what pytest said, and a line for each version; fails when one fails.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.kit.artefacts import cache_root

#: The oldest Typer that is allowed, and the newest release. It is a fixed list, so that
#: the gate is reproducible; change the last one when a version is published.
VERSIONS = ("0.28.0", "0.29.2")

ROOT = Path(__file__).parents[3]
_TESTS = ("tests/cli/arguments", "tests/cli/test_main.py", "tests/cli/test_options.py")


def folder_of(version: str) -> Path | None:
    """Return the folder with Typer and what it needs, fetched if it is absent.

    None means that this version is the installed one.
    """
    if importlib.metadata.version("typer") == version:
        return None
    folder = cache_root() / f"typer-{version}"
    if not folder.is_dir():
        temporary = folder.with_suffix(".part")
        shutil.rmtree(temporary, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-compile"]
        subprocess.run(
            [*pip, "--target", str(temporary), f"typer=={version}"], check=True
        )
        temporary.rename(folder)
    return folder


def run(version: str) -> bool:
    """Run the tests with a version; return whether they passed."""
    folder = folder_of(version)
    environ = dict(os.environ)
    if folder is not None:
        paths = [str(folder), environ.get("PYTHONPATH", "")]
        environ["PYTHONPATH"] = ":".join(filter(None, paths))
    options = ["-q", "-m", "not java", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *_TESTS],
        cwd=ROOT,
        env=environ,
        check=False,
    )
    is_good = done.returncode == 0
    print(f"Typer {version}: {'passed' if is_good else 'FAILED'}", flush=True)
    return is_good


def main() -> int:
    """Test all versions, or those that are named as arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version", nargs="*", help="e.g. 0.28.0; all by default")
    installed = importlib.metadata.version("typer")
    others = [version for version in VERSIONS if version != installed]
    passed = [run(version) for version in parser.parse_args().version or others]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
