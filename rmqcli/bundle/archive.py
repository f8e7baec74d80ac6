"""Writes the parts of a bundle as one archive, with a manifest.

Every part goes through a `Redactor`, names and errors too. The archive appears whole or
not at all, with mode 0600.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
import zipfile
from dataclasses import field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from rmqcli.dataclass import dataclass
from rmqcli.errors import ConfigError, RmqError
from rmqcli.files import create_file, replace_file
from rmqcli.units import format_rfc3339

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rmqcli.bundle.redact import Redactor

SUFFIXES: Final = (".tar.gz", ".tgz", ".zip")
MANIFEST: Final = "manifest.json"
#: A part that is longer is left out.
PART_BYTES_MAX: Final = 64 << 20

#: The states of a part in the manifest.
OK: Final = "ok"
PARTIAL: Final = "partial"
FAILED: Final = "failed"
LEFT_OUT: Final = "left out"


@dataclass(frozen=True, slots=True, kw_only=True)
class BundlePart:
    """One file of a bundle, and what is known about how it was made.

    `data` is a value as JSON has them; None if nothing could be read, and then `error`
    says why. `errors` are the servers that did not answer, and what else is not known,
    with the reasons. `source` is the command that shows the same, or what was asked.
    """

    file: str
    title: str
    source: str
    data: Any = field(default=None, hash=False)
    errors: Mapping[str, str] = field(default_factory=dict, hash=False)
    error: str | None = None

    @property
    def status(self) -> str:
        """OK, PARTIAL if something is not known, or FAILED."""
        if self.error is not None:
            return FAILED
        return PARTIAL if self.errors else OK


@dataclass(frozen=True, slots=True, kw_only=True)
class BundledFile:
    """A file as it is in the archive; `content` is empty unless it is in it."""

    name: str
    title: str
    source: str
    status: str
    content: bytes
    reason: str | None
    errors: Mapping[str, str] = field(hash=False)


def render(parts: Iterable[BundlePart], redactor: Redactor) -> list[BundledFile]:
    """Return the files of the parts, without secrets.

    All parts are looked through for secrets first, so that a secret which one part
    gives away by its name is removed from the others, too.
    """
    parts = list(parts)
    for part in parts:
        redactor.learn([part.data, part.error, part.source])
        redactor.learn([*part.errors, *part.errors.values()])
    return [_render(part, redactor) for part in parts]


def _render(part: BundlePart, redactor: Redactor) -> BundledFile:
    status, reason, content = part.status, part.error, b""
    if reason is None and part.errors:
        server, error = next(iter(part.errors.items()))
        more = f" (and {len(part.errors) - 1} more)" if len(part.errors) > 1 else ""
        reason = f"{server}: {error}{more}"
    if part.data is not None:
        content = _json(redactor.clean(part.data))
        if len(content) > PART_BYTES_MAX:
            status = LEFT_OUT
            reason = f"it has {len(content):,} bytes; at most {PART_BYTES_MAX:,} fit"
        elif redactor.holds_secret(content.decode()):
            status, reason = LEFT_OUT, "a secret could not be removed from it"
    return BundledFile(
        name=part.file,
        title=part.title,
        source=redactor.clean_text(part.source),
        status=status,
        content=b"" if status == LEFT_OUT else content,
        reason=None if reason is None else redactor.clean_text(reason),
        # By names of servers, which are not names of secrets.
        errors={
            redactor.clean_text(server): redactor.clean_text(error)
            for server, error in part.errors.items()
        },
    )


def manifest(
    files: Sequence[BundledFile],
    redactor: Redactor,
    *,
    about: Mapping[str, Any],
    at_ms: int,
) -> dict[str, Any]:
    """Return what was asked, what did not answer, and the sums of the files."""
    silent: dict[str, str] = {}
    for each in files:
        for server, error in each.errors.items():
            silent.setdefault(server, error)
    return {
        "made_at": format_rfc3339(at_ms),
        **redactor.clean_mapping(about),
        "did_not_answer": [
            {"server": server, "error": error}
            for server, error in sorted(silent.items())
        ],
        "secrets": {
            "removed": redactor.count,
            "too_short_to_look_for": redactor.short,
            "note": "texts that held a secret are replaced by <removed>; names of"
            " topics, groups, clients and hosts, and their addresses, are kept",
        },
        "files": [
            {
                "file": each.name,
                "what": each.title,
                "source": each.source,
                "status": each.status,
                "reason": each.reason,
                "errors": dict(each.errors),
                "bytes": len(each.content) if each.content else None,
                "sha256": hashlib.sha256(each.content).hexdigest()
                if each.content
                else None,
            }
            for each in files
        ],
    }


def _json(value: object) -> bytes:
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False, default=str)
    return text.encode("utf-8", "replace") + b"\n"


def default_name(at_ms: int) -> str:
    """Return the name of a bundle that was made at this time, in epoch ms."""
    return f"rmq-bundle-{datetime.fromtimestamp(at_ms / 1000, UTC):%Y%m%dT%H%M%SZ}"


def check_suffix(path: str) -> None:
    """Raise ConfigError unless the name says which kind of archive is meant."""
    if not path.endswith(SUFFIXES) or os.path.basename(path) in SUFFIXES:
        raise ConfigError(
            f"{path} does not say what kind of archive it is",
            hint=f"let the name end with {' or '.join(SUFFIXES)}",
        )


def write_archive(
    path: str,
    files: Sequence[BundledFile],
    manifest: Mapping[str, Any],
    *,
    at_ms: int,
    overwrite: bool = False,
) -> int:
    """Write the archive; return its length in bytes. Only its owner can read it.

    Raises ConfigError for a name of another kind, FileExistsError if something of that
    name exists and may not be overwritten, and RmqError if it cannot be written.
    """
    check_suffix(path)
    contents = {each.name: each.content for each in files if each.content}
    contents = {MANIFEST: _json(manifest), **contents}
    pack = _zip if path.endswith(".zip") else _tar
    data = pack(default_name(at_ms), contents, at_ms // 1000)
    try:
        if overwrite:
            replace_file(path, data, mode=0o600)
        else:
            create_file(path, data, mode=0o600)
    except OSError as error:
        if isinstance(error, FileExistsError):
            raise
        raise RmqError(f"{path} cannot be written: {error.strerror}") from error
    return len(data)


def _tar(folder: str, contents: Mapping[str, bytes], at_s: int) -> bytes:
    out = io.BytesIO()
    with (
        gzip.GzipFile("", "wb", fileobj=out, mtime=at_s) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for name, content in contents.items():
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size, entry.mtime, entry.mode = len(content), at_s, 0o600
            archive.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def _zip(folder: str, contents: Mapping[str, bytes], at_s: int) -> bytes:
    out = io.BytesIO()
    when = datetime.fromtimestamp(at_s, UTC).timetuple()[:6]
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in contents.items():
            entry = zipfile.ZipInfo(f"{folder}/{name}", when)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o100600 << 16
            archive.writestr(entry, content)
    return out.getvalue()
