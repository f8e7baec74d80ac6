"""The archive of Java's classes: its name, permissions, creation and removal.

If there is any problem with an archive, Spark starts without it, and silently.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rmqcli.spark.class_archive import (
    SWITCH,
    ClassArchive,
    archive_folder,
    find_class_archive,
)
from rmqcli.spark.java import Java, find_java
from tests.kit.spark import no_java
from tests.kit.waiting import PATIENCE_S, wait_until

NAME = "export-spark4.3.0-java17-0123456789abcdef.jsa"
NAMES = b"java/lang/Object\norg/apache/spark/SparkContext\n"

#: A fake Java that writes its input into the archive.
JAVA = """#!/bin/sh
for argument do
  case "$argument" in
    -XX:SharedArchiveFile=*) archive=${argument#*=};;
    -XX:SharedClassListFile=*) names=${argument#*=};;
  esac
  last=$argument
done
{ cat "$names"; echo "$last"; env; } >"$archive"
"""


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "archives"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def java(tmp_path):
    return write_java(tmp_path / "java", JAVA)


def write_java(path, text):
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def write_names(folder):
    path = folder / "recorded"
    path.write_bytes(NAMES)
    return path


@pytest.fixture
def parts(tmp_path):
    """The files of Java and Spark that `find_class_archive` examines."""
    home, spark = tmp_path / "jdk", tmp_path / "spark"
    (home / "lib").mkdir(parents=True)
    (home / "lib" / "modules").write_bytes(b"m")
    (home / "release").write_text('IMPLEMENTOR="A"\nJAVA_VERSION="17.0.15"\n')
    (spark / "jars").mkdir(parents=True)
    (spark / "jars" / "a.jar").write_bytes(b"a")
    found = {
        "java": Java(str(home), "here", 17, has_vector=True),
        "spark_home": str(spark),
        "spark_version": "4.3.0",
        "environ": {"XDG_CACHE_HOME": str(tmp_path / "cache")},
    }
    return home, spark, found


def name_of(found, kind="export"):
    archive = find_class_archive(kind, **found)
    assert archive is not None
    return archive.path.name


def test_the_folder_is_in_the_user_s_cache():
    assert archive_folder({"XDG_CACHE_HOME": "/c"}) == Path("/c/rmq/java")
    for cache in ({}, {"XDG_CACHE_HOME": "relative"}):
        environ = {"HOME": "/home/u", **cache}
        assert archive_folder(environ) == Path("/home/u/.cache/rmq/java")
    assert archive_folder({"HOME": "nowhere"}) is None


def test_the_name_says_for_what_and_changes_with_all_that_counts(parts):
    home, spark, found = parts
    name = name_of(found)
    assert name.startswith("export-spark4.3.0-java17-")
    assert name.endswith(".jsa")
    assert len(name) == len(NAME)
    assert name_of(found) == name
    names = {name, name_of(found, "sql")}
    names.add(name_of({**found, "spark_version": "4.3.1"}))
    environ = {**found["environ"], "SPARK_CONF_DIR": "/etc/spark"}
    names.add(name_of({**found, "environ": environ}))
    jar = spark / "jars" / "a.jar"
    os.utime(jar, ns=(1, 1))
    names.add(name_of(found))
    jar.write_bytes(b"ab")
    os.utime(jar, ns=(1, 1))
    names.add(name_of(found))
    (spark / "jars" / "b.jar").touch()
    names.add(name_of(found))
    (home / "release").write_text('IMPLEMENTOR="B"\nJAVA_VERSION="17.0.15"\n')
    names.add(name_of(found))
    os.utime(home / "lib" / "modules", ns=(1, 1))
    names.add(name_of(found))
    assert len(names) == 9


@pytest.mark.parametrize("value", ["off", "0", "No", "FALSE"])
def test_the_environment_switches_it_off(parts, value):
    _, _, found = parts
    environ = {**found["environ"], SWITCH: value}
    assert find_class_archive("export", **{**found, "environ": environ}) is None


def test_there_is_none_where_java_could_not_read_its_path(parts, tmp_path):
    _, _, found = parts
    for character in ':"\\\n':
        environ = {"XDG_CACHE_HOME": str(tmp_path / f"a{character}b")}
        assert find_class_archive("export", **{**found, "environ": environ}) is None


def test_there_is_none_without_the_files_of_java_or_spark(parts):
    home, spark, found = parts
    (home / "release").write_text('JVM_VARIANT="Openj9"\nJAVA_VERSION="17.0.15"\n')
    assert find_class_archive("export", **found) is None
    (home / "release").unlink()
    assert find_class_archive("export", **found) is not None
    (home / "lib" / "modules").unlink()
    assert find_class_archive("export", **found) is None
    (home / "lib" / "modules").touch()
    (spark / "jars" / "a.jar").unlink()
    (spark / "jars").rmdir()
    assert find_class_archive("export", **found) is None


def test_an_archive_is_used_only_if_no_one_else_could_have_written_it(
    folder, monkeypatch
):
    archive = ClassArchive(folder / NAME, "java")
    assert not archive.is_usable()
    archive.path.touch(mode=0o600)
    assert archive.is_usable()
    archive.path.chmod(0o620)
    assert not archive.is_usable()
    archive.path.chmod(0o600)
    folder.chmod(0o770)
    assert not archive.is_usable()
    folder.chmod(0o700)
    assert archive.is_usable()
    link = ClassArchive(folder / "link.jsa", "java")
    link.path.symlink_to(archive.path)
    assert not link.is_usable()
    owner = os.geteuid()
    monkeypatch.setattr("os.geteuid", lambda: owner + 1)
    assert not archive.is_usable()
    assert not archive.may_be_made()


def test_an_archive_is_made_whole_and_leaves_nothing_else(folder, java):
    (folder / ".rmq-0123.part").write_bytes(b"of a process that was killed")
    archive = ClassArchive(folder / NAME, java)
    assert archive.may_be_made()
    assert archive.make(write_names(folder), "a.jar:b.jar")
    assert sorted(os.listdir(folder)) == [NAME, "lock"]
    assert archive.path.read_bytes().startswith(NAMES + b"a.jar:b.jar\n")
    assert archive.is_usable()


def test_an_archive_that_is_there_is_not_made_again(folder, java):
    archive = ClassArchive(folder / NAME, java)
    archive.path.write_bytes(b"old")
    assert not archive.make(write_names(folder), "a.jar")
    assert archive.path.read_bytes() == b"old"
    assert sorted(os.listdir(folder)) == [NAME, "lock"]


def test_one_process_makes_an_archive_at_a_time(folder, java):
    archive = ClassArchive(folder / NAME, java)
    with open(folder / "lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert not archive.make(write_names(folder), "a.jar")
    assert os.listdir(folder) == ["lock"]


@pytest.mark.parametrize(
    "script",
    [
        pytest.param("exit 1", id="fails"),
        pytest.param("exit 0", id="writes nothing"),
        pytest.param("sleep 600", id="does not end"),
        pytest.param(None, id="is gone"),
    ],
)
def test_a_java_that_cannot_make_one_is_left_alone_for_a_day(tmp_path, folder, script):
    java = str(tmp_path / "absent")
    if script is not None:
        java = write_java(tmp_path / "java", f"#!/bin/sh\nexec {script}\n")
    archive = ClassArchive(folder / NAME, java)
    # The script that does not end is stopped after this time; the others end earlier.
    limit_s = 0.05 if script == "sleep 600" else PATIENCE_S
    assert not archive.make(write_names(folder), "a.jar", timeout_s=limit_s)
    failed = folder / NAME.replace(".jsa", ".failed")
    assert sorted(os.listdir(folder)) == sorted([failed.name, "lock"])
    assert not archive.may_be_made()
    # A second more than a day, because the file's time may be ahead of the clock.
    day_ago = failed.stat().st_mtime - 24 * 3600 - 1
    os.utime(failed, (day_ago, day_ago))
    assert archive.may_be_made()


def test_the_two_archives_of_each_kind_that_were_used_last_are_kept(folder, java):
    for number, name in enumerate(
        ["export-a.jsa", "export-b.jsa", "export-c.jsa", "sql-a.jsa", "export-a.failed"]
    ):
        path = folder / name
        path.write_bytes(b"old")
        os.utime(path, (1000 + number, 1000 + number))
    assert ClassArchive(folder / "export-a.jsa", java).options_to_use()
    archive = ClassArchive(folder / NAME, java)
    assert archive.make(write_names(folder), "a.jar")
    assert sorted(os.listdir(folder)) == sorted(
        [NAME, "export-a.jsa", "sql-a.jsa", "export-a.failed", "lock"]
    )


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path, java):
    (tmp_path / "file").write_bytes(b"")
    archive = ClassArchive(tmp_path / "file" / "java" / NAME, java)
    assert not archive.is_usable()
    assert not archive.may_be_made()
    archive.start_making(str(write_names(tmp_path)), "a.jar", os.environ)
    assert (tmp_path / "file").read_bytes() == b""


def test_it_is_made_in_the_background_without_the_keys(folder, tmp_path, java):
    names = write_names(tmp_path)
    # The JVM was killed in the middle of a line.
    names.write_bytes(NAMES + b"org/apa")
    (folder / ".rmq-0123.part").write_bytes(b"of a process that was killed")
    archive = ClassArchive(folder / NAME, java)
    environ = {**os.environ, "RMQ_SECRET_KEY": "hunter2"}
    archive.start_making(str(names), "a.jar", environ)
    wait_until(archive.path.exists, "the archive is there")
    text = archive.path.read_bytes()
    assert text.startswith(NAMES + b"a.jar\n")
    assert b"hunter2" not in text
    with open(folder / "lock", "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # wait until the process has ended
    assert sorted(os.listdir(folder)) == [NAME, "lock"]


needs_java = pytest.mark.skipif(no_java() is not None, reason=f"{no_java()}")


@needs_java
def test_java_says_nothing_of_an_archive_that_is_damaged_or_absent(folder):
    java = find_java(os.environ).executable
    archive = ClassArchive(folder / NAME, java)
    # Spark's launcher removes the quotes.
    options = archive.options_to_use().replace('"', "").split()
    for content in (None, b"", b"no archive\n" * 1000):
        if content is not None:
            archive.path.write_bytes(content)
        ran = subprocess.run(
            [java, *options, "-XX:+UseSerialGC", "-version"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert ran.stdout == ""
        assert "cds" not in ran.stderr
        assert "archive" not in ran.stderr
        assert "warning" not in ran.stderr.lower()


SESSION = """
import sys
from rmqcli.spark.session import SessionOptions, spark_context
with spark_context(SessionOptions(name="n", log_path=sys.argv[1], workers_max=1)) as c:
    print(c.parallelize([1, 2], 1).map(str).collect())
"""


@pytest.mark.slow
@pytest.mark.spark
@needs_java
def test_the_second_session_uses_what_the_first_recorded(tmp_path):
    """A third session, whose archive is damaged, also starts. No session reports
    anything."""
    loaded, log = tmp_path / "loaded", tmp_path / "log"
    environ = {
        **os.environ,
        SWITCH: "",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "SPARK_SUBMIT_OPTS": f"-Xlog:class+load:file={loaded}",
    }

    def shared():
        """Run a session; return how many of Spark's classes came from the archive."""
        log.unlink(missing_ok=True)
        ran = subprocess.run(
            [sys.executable, "-c", SESSION, str(log)],
            capture_output=True,
            text=True,
            check=True,
            env=environ,
        )
        assert (ran.stdout, ran.stderr) == ("['1', '2']\n", "")
        for word in ("[cds]", "[aot]", "archive"):
            assert word not in log.read_text()
        lines = loaded.read_text().splitlines()
        spark = [line for line in lines if " org.apache.spark." in line]
        assert spark
        return sum("source: shared objects file" in line for line in spark)

    assert shared() == 0
    folder = tmp_path / "cache" / "rmq" / "java"
    (archive,) = wait_until(lambda: list(folder.glob("*.jsa")), "an archive")
    assert shared() > 500
    with open(archive, "r+b") as file:
        file.seek(archive.stat().st_size // 2)
        file.write(b"damaged " * 1000)
    assert shared() == 0
    assert sorted(os.listdir(folder)) == sorted([archive.name, "lock"])
