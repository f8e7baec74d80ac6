"""An archive of the Java classes that a session loads, so that Spark starts sooner.

Java loads the classes of an archive (AppCDS) at once instead of finding, parsing and
verifying each of them in Spark's jars: the JVM of an export needs 1.7 s of CPU instead
of 2.8 s until its first task is done. The first session of a kind records the names of
its classes, which costs nothing. When it has ended without an error, a separate process
creates the archive from the names, in the background and without starting Spark. Later
sessions use the archive.

The archive is optional: if there is any problem with it or with its folder, Spark
starts without it and reports nothing. `RMQ_SPARK_CLASS_ARCHIVE=off` switches it off.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import rmqcli
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.credentials import ENV_SECRETS
from rmqcli.files import (
    folder_fault,
    remove_temporaries,
    sync_folder,
    write_temporary,
)
from rmqcli.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rmqcli.spark.java import Java

logger = get_logger(__name__)

#: The kinds of sessions: those of one kind load about the same classes.
Kind = Literal["export", "sql"]

SWITCH: Final = "RMQ_SPARK_CLASS_ARCHIVE"
#: How many archives of each kind are kept, for users who switch between two versions.
KEPT: Final = 2
#: A part of each archive's name. Change it when archives are created differently.
_FORMAT: Final = 1
_ARCHIVE_BYTES_MAX: Final = 512 << 20
_NAMES_BYTES_MAX: Final = 16 << 20
_FREE_BYTES_MIN: Final = 1 << 30
_MAKE_S: Final = 600
_RETRY_MS: Final = 24 * 3600 * 1000
_ARCHIVE: Final = ".jsa"
_FAILED: Final = ".failed"

#: The environment variables that may change the class path of Spark's JVM.
_CLASS_PATH_ENV: Final = (
    "SPARK_CONF_DIR",
    "SPARK_DIST_CLASSPATH",
    "SPARK_PREPEND_CLASSES",
    "HADOOP_CONF_DIR",
    "YARN_CONF_DIR",
)
#: Characters that the folder must not contain: Java splits paths at a colon, and
#: Spark's launcher interprets the others or ends an option there.
_NOT_IN_PATHS: Final = frozenset(':"\\\n')

#: The checksum of the archive is verified (0.04 s), because a damaged archive would
#: crash Java. Java's complaints about an archive are kept out of Spark's log.
_USE: Final = (
    "-XX:+IgnoreUnrecognizedVMOptions -XX:+UnlockDiagnosticVMOptions"
    ' -XX:+VerifySharedSpaces -Xlog:cds=off "-XX:SharedArchiveFile={path}"'
)
_RECORD: Final = '"-XX:DumpLoadedClassList={path}"'


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The archive for sessions of one kind with one Spark and one Java.

    `path` is where the archive is, or will be created. `java` is the path of the Java
    program.
    """

    path: Path
    java: str

    def is_usable(self) -> bool:
        """Whether the archive exists and only this user could have written it."""
        try:
            found = os.lstat(self.path)
            if _folder_fault(self.path.parent) is not None:
                return False
        except OSError:
            return False
        return (
            stat.S_ISREG(found.st_mode)
            and found.st_uid == os.geteuid()
            and not found.st_mode & 0o022
        )

    def may_be_made(self) -> bool:
        """Whether a session should record its classes. Creates the folder.

        False when this user cannot write to the folder, and for a day after Java failed
        to create the archive.
        """
        folder = self.path.parent
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            fault = _folder_fault(folder)
            if fault is None and not os.access(folder, os.W_OK | os.X_OK):
                fault = "cannot be written"
        except OSError as error:
            fault = str(error)
        if fault is not None:
            logger.debug("no class archive folder=%s reason=%s", folder, fault)
            return False
        try:
            failed_s = self.path.with_suffix(_FAILED).stat().st_mtime
        except OSError:
            return True
        return SYSTEM_CLOCK.epoch_ms() - failed_s * 1000 >= _RETRY_MS

    def options_to_use(self) -> str:
        """Return Java's options for a session that uses the archive.

        Also records the time of use. If the archive does not fit or is damaged, Java
        ignores it silently.
        """
        # Archives are removed by their time of last use.
        with contextlib.suppress(OSError):
            os.utime(self.path)
        logger.debug("class archive used path=%s", self.path)
        return _USE.format(path=self.path)

    def options_to_record(self, names: str) -> str:
        """Return Java's options for a session that records the names of its classes."""
        return _RECORD.format(path=names)

    def start_making(
        self, names: str, class_path: str, environ: Mapping[str, str]
    ) -> None:
        """Create the archive in the background, from the names that a session recorded.

        Returns at once. The process that creates it may outlive this one, and runs at
        the lowest priority.
        """
        try:
            with open(names, "rb") as file:
                data = file.read(_NAMES_BYTES_MAX)
            # The session's JVM may have been killed in the middle of a line.
            data = data[: data.rfind(b"\n") + 1]
            if not data or not sys.executable:
                return
            folder = self.path.parent
            with _lock(folder) as is_ours:
                if not is_ours:
                    return
                # Processes that were killed while they created an archive have not
                # removed their temporary files.
                remove_temporaries(folder)
                kept = write_temporary(folder, data, mode=0o600)
            env = {k: v for k, v in environ.items() if k not in ENV_SECRETS}
            source = str(Path(rmqcli.__file__).parents[1])
            env["PYTHONPATH"] = os.pathsep.join(
                filter(None, (source, environ.get("PYTHONPATH")))
            )
            command = [sys.executable, "-P", "-m", "rmqcli.spark.class_archive"]
            command += [str(self.path), self.java, str(kept), class_path]
            # Through a shell, so that it is not a child of this process.
            subprocess.run(  # noqa: S603  # nothing in it is the shell's
                ["/bin/sh", "-c", '"$@" &', "sh", *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=env,
                start_new_session=True,
                check=False,
            )
        except OSError as error:
            logger.debug("no class archive path=%s reason=%s", self.path, error)

    def make(self, names: Path, class_path: str, *, timeout_s: float = _MAKE_S) -> bool:
        """Create the archive from the names in a file; return whether it was created.

        Does nothing while another process creates an archive, or when this one exists.
        Removes the file, and the least recently used archives. Raises OSError.
        """
        folder = self.path.parent
        try:
            with _lock(folder) as is_ours:
                if not is_ours or self.path.exists():
                    return False
                if shutil.disk_usage(folder).free < _FREE_BYTES_MIN:
                    return False
                # Only the process that holds the lock has a file with this name.
                mine = names.replace(folder / "names")
                try:
                    remove_temporaries(folder)
                    return self._make(mine, class_path, timeout_s)
                finally:
                    mine.unlink(missing_ok=True)
        finally:
            names.unlink(missing_ok=True)

    def _make(self, names: Path, class_path: str, timeout_s: float) -> bool:
        folder = self.path.parent
        new = write_temporary(folder, b"", mode=0o600)
        failed = self.path.with_suffix(_FAILED)
        if not self._dump(names, class_path, new, timeout_s):
            new.unlink(missing_ok=True)
            failed.touch()
            return False
        new.chmod(0o600)
        with open(new, "rb") as file:
            os.fsync(file.fileno())
        new.replace(self.path)
        sync_folder(folder)
        failed.unlink(missing_ok=True)
        _remove_old(folder)
        return True

    def _dump(self, names: Path, class_path: str, new: Path, timeout_s: float) -> bool:
        command = [self.java, "-Xshare:dump", "-Xmx1g", f"-XX:SharedArchiveFile={new}"]
        command += [f"-XX:SharedClassListFile={names}", "-cp", class_path]
        try:
            subprocess.run(  # noqa: S603  # the Java that ran the session
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=timeout_s,
                check=True,
            )
            return 0 < new.stat().st_size <= _ARCHIVE_BYTES_MAX
        except (OSError, subprocess.SubprocessError):
            return False


def find_class_archive(
    kind: Kind,
    *,
    java: Java,
    spark_home: str,
    spark_version: str,
    environ: Mapping[str, str],
) -> ClassArchive | None:
    """Return the archive for these sessions, whether it exists yet or not.

    Its name depends on Java, on Spark and on the jars in Spark's folder, by their sizes
    and modification times. Returns None when archives are switched off, when there is
    no home folder or its path cannot be used, when files of Java or Spark are missing,
    and for OpenJ9, which shares classes differently.
    """
    folder = archive_folder(environ)
    if folder is None or environ.get(SWITCH, "").lower() in ("off", "0", "no", "false"):
        return None
    try:
        name = _archive_name(kind, java, spark_home, spark_version, environ)
    except OSError as error:
        logger.debug("no class archive reason=%s", error)
        return None
    if name is None or not _NOT_IN_PATHS.isdisjoint(str(folder)):
        return None
    return ClassArchive(folder / name, java.executable)


def archive_folder(environ: Mapping[str, str]) -> Path | None:
    """Return the folder of this user's archives, None without a home folder.

    A relative XDG_CACHE_HOME is ignored, as the XDG specification requires.
    """
    cache = environ.get("XDG_CACHE_HOME", "")
    if not cache.startswith("/"):
        home = environ.get("HOME") or os.path.expanduser("~")
        cache = os.path.join(home, ".cache")
    return Path(cache, "rmq", "java") if cache.startswith("/") else None


def _archive_name(
    kind: Kind,
    java: Java,
    spark_home: str,
    spark_version: str,
    environ: Mapping[str, str],
) -> str | None:
    """Return the name of the archive's file, None for OpenJ9.

    Raises OSError when files of Java or Spark are missing.
    """
    home = os.path.realpath(java.home)
    release = ""
    with contextlib.suppress(OSError):
        release = Path(home, "release").read_text("utf-8", "replace")
    if "openj9" in release.lower():
        return None
    modules = os.stat(os.path.join(home, "lib", "modules"))
    with os.scandir(os.path.join(spark_home, "jars")) as found:
        jars = sorted(
            (jar.name, jar.stat().st_size, jar.stat().st_mtime_ns) for jar in found
        )
    facts = (
        _FORMAT,
        home,
        release,
        modules.st_size,
        modules.st_mtime_ns,
        spark_home,
        spark_version,
        jars,
        [environ.get(name) for name in _CLASS_PATH_ENV],
    )
    digest = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
    major = java.major or ""
    return f"{kind}-spark{spark_version}-java{major}-{digest}{_ARCHIVE}"


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[bool]:
    """Lock the folder for the duration of the block. Yields whether that succeeded."""
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True
    finally:
        os.close(lock)


def _folder_fault(folder: Path) -> str | None:
    """Return why archives in a folder cannot be trusted, None if they can.

    Raises OSError when the folder cannot be examined.
    """
    if os.stat(folder).st_mode & 0o022:
        return "other users can write to it"
    return folder_fault(folder)


def _remove_old(folder: Path) -> None:
    """Remove the least recently used archives and failure marks of each kind."""
    for suffix in (_ARCHIVE, _FAILED):
        kinds: dict[str, list[tuple[int, Path]]] = {}
        for path in folder.glob(f"*{suffix}"):
            kind = path.name.partition("-")[0]
            kinds.setdefault(kind, []).append((path.stat().st_mtime_ns, path))
        for found in kinds.values():
            for _, path in sorted(found, reverse=True)[KEPT:]:
                path.unlink(missing_ok=True)


def main(arguments: list[str]) -> None:
    """Create an archive.

    The arguments are its path, the path of the Java program, the path of the file with
    the names of the classes, and the class path.
    """
    path, java, names, class_path = arguments
    os.nice(19)
    with contextlib.suppress(OSError):
        ClassArchive(Path(path), java).make(Path(names), class_path)


if __name__ == "__main__":
    main(sys.argv[1:])
