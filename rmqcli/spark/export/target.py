"""Parse the URL of a remote storage to which an export is written. Pure.

A folder of this machine is given as a path and is not handled here. The targets are

    s3://BUCKET/PATH     also s3a://; an object store with S3's interface
    gs://BUCKET/PATH     Google Cloud Storage
    hdfs://HOST:PORT/PATH

with options such as `?endpoint_override=HOST:PORT&scheme=http`, which have pyarrow's
names. A URL must not contain keys or passwords, because it is printed and sent to
Spark's workers.
"""

from __future__ import annotations

import re
import urllib.parse
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from rmqcli.dataclass import dataclass
from rmqcli.errors import TextError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The scheme that a user may write -> the scheme of the target.
SCHEMES: Final = {"s3": "s3", "s3a": "s3", "gs": "gs", "hdfs": "hdfs"}

#: The options of a URL: the arguments of pyarrow's file systems that are not secrets.
OPTIONS: Final = {
    "s3": (
        "endpoint_override",
        "scheme",
        "region",
        "force_virtual_addressing",
        "tls_ca_file_path",
    ),
    "gs": ("endpoint_override", "scheme", "project_id", "anonymous"),
    "hdfs": ("user", "replication", "kerb_ticket"),
}
_FLAGS: Final = ("force_virtual_addressing", "anonymous")
_CREDENTIALS: Final = {
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS to the file of a service account",
    "hdfs": "log in with kinit",
}
_REGION_WITH_ENDPOINT: Final = "us-east-1"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?=/)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A folder in a remote storage. Contains no secret; pickled to Spark's workers.

    `authority` is a bucket, or `HOST:PORT` for HDFS; it is empty for the default of
    the HDFS configuration. `path` has no slash at either end, and is empty for the
    whole bucket.
    """

    scheme: str
    authority: str
    path: str
    options: tuple[tuple[str, str], ...] = ()

    @property
    def root(self) -> str:
        """The URL of the folder, without options and without a trailing slash."""
        return f"{self.prefix}/{self.path}" if self.path else self.prefix

    @property
    def prefix(self) -> str:
        """The URL of the whole bucket or file system."""
        return f"{self.scheme}://{self.authority}"

    def inner(self, url: str) -> str:
        """Return the path of a URL below `prefix` in the form that pyarrow expects."""
        rest = url.removeprefix(self.prefix)
        return rest or "/" if self.scheme == "hdfs" else f"{self.authority}{rest}"

    def option(self, name: str) -> str | None:
        """Return the value of an option, None when it is not set."""
        return dict(self.options).get(name)

    def is_set(self, name: str) -> bool:
        """Whether a boolean option is true."""
        return self.option(name) == "true"

    def with_environment(self, environ: Mapping[str, str]) -> Target:
        """Return the target with endpoint and region from AWS's environment variables.

        Options in the URL take precedence. The workers of a cluster then use the same
        endpoint as this process, whatever their own environment says.
        """
        if self.scheme != "s3":
            return self
        chosen = dict(self.options)
        url = environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL")
        if "endpoint_override" not in chosen and url:
            scheme, separator, rest = url.partition("://")
            chosen["endpoint_override"] = (rest if separator else url).rstrip("/")
            if separator:
                chosen.setdefault("scheme", scheme)
        region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
        if not region and "endpoint_override" in chosen:
            region = _REGION_WITH_ENDPOINT
        if region:
            chosen.setdefault("region", region)
        return replace(self, options=tuple(sorted(chosen.items())))


def is_target(text: str) -> bool:
    """Whether a text is a URL with a scheme that `parse_target` accepts."""
    match = _SCHEME.match(text)
    return match is not None and match[1].lower() in SCHEMES


def parse_target(text: str) -> Target:
    """Return the target that a URL names.

    Raises TextError for an unknown option, for keys or a password, and for a text that
    is not the URL of a storage. Its message does not show keys or passwords.
    """
    match = _SCHEME.match(text)
    if match is None or match[1].lower() not in SCHEMES:
        raise TextError(text, "not the URL of a storage", start=0, end=len(text))
    scheme = SCHEMES[match[1].lower()]
    if not text.startswith("//", match.end()):
        example = "hdfs:///PATH" if scheme == "hdfs" else f"{scheme}://BUCKET/PATH"
        raise TextError(
            text,
            "two slashes are missing",
            start=match.start(),
            end=match.end(),
            hint=f"write {example}",
        )
    shown = _refuse_secrets(text, scheme)
    rest, _, query = text[match.end() + 2 :].partition("?")
    authority, _, path = rest.partition("/")
    options = dict(_options(shown, scheme, query))
    if scheme == "hdfs" and "@" in authority:
        user, _, authority = authority.rpartition("@")
        options.setdefault("user", user)
    if scheme != "hdfs" and not authority:
        raise TextError(
            text,
            "the bucket is missing",
            start=match.end(),
            end=len(text),
            hint=f"write {scheme}://BUCKET/PATH",
        )
    folders = urllib.parse.unquote(path).removesuffix("/")
    if "#" in rest or any(
        name in ("", ".", "..") or not name.isprintable()
        for name in folders.split("/")
        if folders
    ):
        raise TextError(
            text, "not a path of a storage", start=match.end() + 2, end=len(text)
        )
    return Target(
        scheme=scheme,
        authority=authority,
        path=folders,
        options=tuple(sorted(options.items())),
    )


def _refuse_secrets(text: str, scheme: str) -> str:
    """Raise TextError for a URL with keys or a password in it."""
    start, authority = re.match(r"([^/]*//)([^/?]*)", text).groups()  # type: ignore[union-attr]  # it is a URL
    if ":" in (authority.rpartition("@")[0] if scheme == "hdfs" else authority):
        shown = f"{start}..."
    elif scheme != "hdfs" and "@" in authority:
        shown = f"{start}...@{text.partition('@')[2]}"
    else:
        shown = re.sub(
            r"(?i)([?&][^=&]*(?:key|secret|token|password)[^=&]*=)[^&]*", r"\1...", text
        )
    if shown != text:
        raise TextError(
            shown,
            "a URL must not contain keys or passwords",
            start=0,
            end=len(shown),
            hint=_CREDENTIALS[scheme],
        )
    return shown


def _options(text: str, scheme: str, query: str) -> list[tuple[str, str]]:
    found = urllib.parse.parse_qsl(query, keep_blank_values=True) if query else []
    for name, value in found:
        start = text.find(name, text.find("?"))
        if name not in OPTIONS[scheme]:
            raise TextError(
                text,
                f"{scheme}:// has no option {name}",
                start=max(0, start),
                end=max(0, start) + len(name),
                hint=f"its options are {', '.join(OPTIONS[scheme])}",
            )
        wanted = {
            **dict.fromkeys(_FLAGS, "true|false"),
            "scheme": "http|https",
            "replication": "[1-9][0-9]{0,3}",
        }.get(name, r"[^\s]+")
        if not re.fullmatch(wanted, value):
            raise TextError(
                text,
                f"{name} cannot be {value!r}",
                start=max(0, start),
                end=len(text),
                hint=f"write {name}={wanted}" if "|" in wanted else "",
            )
    return found
