"""Convert the exceptions of Spark and of a table format to errors of rmqcli."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from rmqcli.errors import (
    ConfigError,
    DecodeError,
    PartialError,
    RefusedError,
    RmqError,
    StorageDeniedError,
    StorageNotFoundError,
    StorageUnreachableError,
)
from rmqcli.hint import Hint, Setting
from rmqcli.spark.failure import java_reason, one_line, says_that_java_ended, text_of
from rmqcli.spark.shown_errors import shown_error
from rmqcli.spark.tables.formats import missing_error, unfit_error

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rmqcli.spark.tables.formats import Format

_FILE_SYSTEM_PACKAGE: Final = Setting(
    "conf", "spark.jars.packages=org.apache.hadoop:hadoop-aws:VERSION"
)
#: Java's errors for a class that was built against another version of a class it uses.
_LINKAGE: Final = re.compile(
    r"java\.lang\.((?:NoSuchMethod|NoSuchField|NoClassDefFound|AbstractMethod"
    r"|IncompatibleClassChange|IllegalAccess|InstantiationError|Verify|ClassFormat"
    r"|UnsupportedClassVersion|BootstrapMethod|Linkage)Error(?:: [^\n]{1,200})?)"
)
#: The errors for a format or a class that is missing.
_ABSENT: Final = re.compile(
    r"DATA_SOURCE_NOT_FOUND|(?:CatalogNotFoundException|Cannot find catalog plugin"
    r" class)|ClassNotFoundException: (?:\S*\.)?(?:delta|iceberg)\."
)
_FILE_SYSTEM: Final = re.compile(
    r"No FileSystem for scheme \"?(\w+)|Class(?:NotFoundException:)?"
    r" (org\.apache\.hadoop\.fs\.\S+|com\.google\.cloud\.hadoop\.\S+)"
    r"(?: not found)?"
)
#: Classes that file systems of object stores need from other packages.
_SDK: Final = re.compile(
    r"NoClassDefFoundError: (?:Could not initialize class )?"
    r"((?:software[/.]amazon|com[/.]amazonaws)[/.][\w/.$]+)"
)
#: The errors of Hadoop's S3A and of the AWS SDK in the order in which they are sought,
#: with the class, the text and the hint of ours.
_STORAGE: Final = (
    (
        re.compile(r"\b(?:UnknownStoreException|NoSuchBucketException)\b"),
        StorageNotFoundError,
        "the bucket of {} does not exist",
        "create the bucket, or check its name, region and endpoint",
    ),
    (
        re.compile(
            r"AccessDeniedException: s3a?:|\bNoAuthWithAWSException\b"
            r"|\(Service: S3, Status Code: 40[13]\b"
        ),
        StorageDeniedError,
        "access to {} was denied",
        "check the credentials in Spark's settings and in the environment",
    ),
    (
        re.compile(
            r"SdkClientException: Unable to execute HTTP request"
            r"|\(Service: S3, Status Code: 5\d\d\b"
        ),
        StorageUnreachableError,
        "the storage of {} cannot be reached",
        (
            "check that the endpoint is right and can be reached from the cluster and"
            " from this machine"
        ),
    ),
)
#: The part of an AWS SDK error that is different for every request.
_REQUEST_ID: Final = re.compile(r", Request ID: [^)]*")
_CONCURRENT: Final = re.compile(
    r"DELTA_(?:CONCURRENT|METADATA_CHANGED|PROTOCOL_CHANGED)"
    r"|(?:Concurrent\w*|MetadataChanged|ProtocolChanged|CommitFailed|AlreadyExists)"
    r"Exception"
)
#: The last line of a Python traceback.
_PYTHON: Final = re.compile(
    r"^\s*([A-Za-z_][\w.]*(?:Error|Exception)\b.*)$", re.MULTILINE
)
_CONDITION: Final = re.compile(
    r"\[(?P<condition>[A-Z][A-Z0-9_.]*)\]\s*(?P<text>.*?)\s*(?:SQLSTATE: \w{5}|\n|\Z)",
    re.DOTALL,
)


def table_error(
    error: BaseException,
    kind: Format,
    *,
    table: str,
    pyspark: str,
    given: Mapping[str, str],
    keep_log: Callable[[], str],
) -> RmqError:
    """The error to raise for a table that Spark cannot open, read or write.

    An error that the data source raised is recreated with its class. When only Spark's
    log has the reason, `keep_log` is called to keep the log and to return its path for
    the hint.
    """
    text = text_of(error)
    ours = shown_error(text)
    if ours is not None:
        return _of_source(ours)
    if says_that_java_ended(error):
        return RmqError(
            f"Spark's Java process ended before {table} was written",
            hint=f"see Spark's log, {keep_log()}",
        )
    found = _FILE_SYSTEM.search(text)
    if found is not None:
        return ConfigError(
            f"Spark has no file system for {table}: {found[1] or found[2]}",
            hint=Hint(
                "give its package, such as ",
                _FILE_SYSTEM_PACKAGE,
                ", and for an object store a URL such as s3a://BUCKET/PATH",
            ),
        )
    found = _SDK.search(text)
    if found is not None:
        return ConfigError(
            f"the file system for {table} lacks the class {found[1].replace('/', '.')}",
            hint=Hint(
                "give its package with all dependencies, such as ",
                _FILE_SYSTEM_PACKAGE,
            ),
        )
    found = _LINKAGE.search(text)
    if found is not None:
        return unfit_error(kind, found[1].strip(), pyspark=pyspark, given=given)
    if _ABSENT.search(text):
        return missing_error(kind, pyspark=pyspark)
    if _CONCURRENT.search(text):
        return RefusedError(
            f"another commit changed {table} at the same time, and nothing was written",
            hint="check whether another export writes to it, then run this one again",
        )
    if "OutOfMemoryError" in text:
        return RmqError(
            "Spark ran out of memory",
            hint=Hint("give it more with ", Setting("conf", "spark.driver.memory=4g")),
        )
    stored = _storage_error(text, table)
    if stored is not None:
        return stored
    raised = _PYTHON.findall(text) if "Traceback" in text else []
    if raised:
        return RmqError(
            f"{table} was not written: {one_line(raised[-1])}",
            hint=f"see Spark's log, {keep_log()}",
        )
    found = _CONDITION.search(text)
    what = found["text"] if found is not None else java_reason(text) or text
    return RmqError(
        f"{table} cannot be used: {one_line(what)}",
        hint=f"see Spark's log, {keep_log()}",
    )


def _storage_error(text: str, table: str) -> RmqError | None:
    """The error for a text of S3's file system, None for any other text."""
    reason = _REQUEST_ID.sub("", java_reason(text) or text)
    if reason.startswith("null ("):  # S3 gave no reason, only a status
        reason = reason.removeprefix("null ").strip("()")
    for pattern, kind, what, hint in _STORAGE:
        if pattern.search(text):
            what = f"{what.format(table)}: {one_line(reason)}"
            return kind(what, place=table, hint=hint)
    return None


def _of_source(error: RmqError) -> RmqError:
    """The error of a worker, with the hint that fits an export."""
    if isinstance(error, DecodeError):
        return PartialError(
            error.message,
            hint=Hint(
                "to leave such messages out: ", Setting("allow_undecodable", True)
            ),
        )
    before, option, after = error.hint.partition('.option("failOnDataLoss", "false")')
    if option:
        error.hint = Hint(before, Setting("allow_gaps", True), after)
    return error
