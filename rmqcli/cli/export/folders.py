"""Folders as arguments: a path, a `file://` URL, or the URL of a remote storage."""

from __future__ import annotations

import os
import re

from rmqcli.errors import TextError

_PLACES = "folders on this machine and s3, gs and hdfs URLs"


def parse_place(
    text: str,
    *,
    verb: str = "write to",
    instead: str = "export to a folder and copy it",
) -> str:
    """Return the path of a folder, or the URL of a remote storage unchanged.

    The folder may be given as a file:// URL. Raises TextError for other schemes: its
    message says that rmq cannot `verb` them, and its hint is `instead`.
    """
    from rmqcli.spark.export.target import is_target, parse_target

    if is_target(text):
        parse_target(text)  # raises TextError for an invalid URL
        return text
    return parse_folder(text, verb=verb, instead=instead, places=_PLACES)


def parse_folder(
    text: str,
    *,
    verb: str = "write to",
    instead: str = "export to a folder and copy it",
    places: str = "folders on this machine",
) -> str:
    """Return the path of a folder, which may be given as a file:// URL.

    Raises TextError for other schemes: its message says that rmq cannot `verb` them,
    but only `places`, and its hint is `instead`.
    """
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):(?=/)", text)
    if scheme is None:
        return text
    if scheme[1].lower() != "file":
        raise TextError(
            text,
            f"rmq cannot {verb} {scheme[1]} URLs, only {verb.split()[-1]} {places}",
            start=0,
            end=scheme.end(),
            hint=f"{instead}; for a folder with this name write ./{text}",
        )
    rest = text[scheme.end() :]
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host.lower() not in ("", "localhost"):
            at = scheme.end() + 2
            raise TextError(
                text,
                "the file URL names another machine",
                start=at,
                end=at + len(host),
                hint="write file:///path",
            )
        rest = slash + path
    from urllib.parse import unquote_to_bytes  # only for the rare URL

    path = os.fsdecode(unquote_to_bytes(os.fsencode(rest)))
    if not path.strip("/") or "\0" in path:
        raise TextError(text, "the URL has no path")
    return path
