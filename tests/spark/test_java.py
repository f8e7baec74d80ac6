"""The choice of the Java that runs Spark, and the error when there is none."""

from __future__ import annotations

import subprocess

import pytest

from rmqcli.errors import ConfigError
from rmqcli.spark import java
from rmqcli.spark.java import Java, find_java, read_java, write_shim

VECTOR = "java.base jdk.incubator.vector"


@pytest.fixture
def no_bundle(monkeypatch):
    monkeypatch.setattr(java, "_bundled_home", lambda: None)


def make_java(home, *, release):
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text('#!/bin/sh\nfor a do echo "$a"; done\n')
    program.chmod(0o755)
    if release is not None:
        (home / "release").write_text(release)
    return home


@pytest.mark.parametrize(
    ("release", "major", "has_vector"),
    [
        (f'JAVA_VERSION="17.0.15"\nMODULES="{VECTOR}"\n', 17, True),
        ('JAVA_VERSION="25.0.2"\nMODULES="java.base"\n', 25, False),
        ('JAVA_VERSION="1.8.0_422"\n', 8, True),
        ('JAVA_VERSION="26-ea"\n', 26, True),
        ("nonsense", None, True),
        (None, None, True),
    ],
)
def test_release_file_says_version_and_modules(tmp_path, release, major, has_vector):
    home = make_java(tmp_path / "jdk", release=release)
    found = read_java(str(home), origin="here")
    assert found == Java(str(home), "here", major, has_vector)


def test_java_home_is_taken_before_path(tmp_path, no_bundle):
    first = make_java(tmp_path / "a", release='JAVA_VERSION="21.0.1"\n')
    second = make_java(tmp_path / "b", release='JAVA_VERSION="17.0.1"\n')
    environ = {"JAVA_HOME": str(first), "PATH": str(second / "bin")}
    assert find_java(environ).home == str(first)
    assert find_java({"PATH": str(second / "bin")}).home == str(second)


def test_java_that_is_too_old_is_skipped(tmp_path, no_bundle):
    old = make_java(tmp_path / "old", release='JAVA_VERSION="1.8.0_422"\n')
    good = make_java(tmp_path / "good", release='JAVA_VERSION="17.0.1"\n')
    environ = {"JAVA_HOME": str(old), "PATH": str(good / "bin")}
    assert find_java(environ).home == str(good)
    with pytest.raises(ConfigError, match="JAVA_HOME is Java 8"):
        find_java({"JAVA_HOME": str(old), "PATH": ""})


def test_without_java_the_error_names_the_extra(no_bundle):
    with pytest.raises(ConfigError, match="needs Java 17 or newer") as caught:
        find_java({"PATH": ""})
    assert caught.value.hint == "pip install 'rmqcli[jre]'"


def test_bundled_java_is_the_last_resort(tmp_path, monkeypatch):
    home = make_java(tmp_path / "jre", release='JAVA_VERSION="25.0.2"\n')
    monkeypatch.setattr(java, "_bundled_home", lambda: str(home))
    assert find_java({"PATH": ""}).origin == "the jre extra"


def test_shim_drops_one_argument_and_keeps_the_others(tmp_path):
    home = make_java(tmp_path / "jre", release='MODULES="java.base"\n')
    found = read_java(str(home), origin="here")
    assert found is not None
    shim = write_shim(found, str(tmp_path))
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "", "--x=$HOME"]
    done = subprocess.run(
        [f"{shim}/bin/java", *arguments], capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n") == ["-cp", "a b", "", "--x=$HOME", ""]
