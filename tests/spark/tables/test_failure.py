"""Spark's exceptions for a table that cannot be written become an error and a hint."""

from __future__ import annotations

from rmqcli.errors import (
    ConfigError,
    PartialError,
    RefusedError,
    RmqError,
    StorageDeniedError,
    StorageNotFoundError,
    StorageUnreachableError,
)
from rmqcli.spark.tables.failure import table_error
from rmqcli.spark.tables.formats import DELTA
from tests.kit.rows import each_row

_STACK = "\n\tat org.apache.spark.sql.X.y(X.scala:1)\n\tat java.base/java.lang.Z"
_CALL = "An error occurred while calling o70.save.\n: "


def error_of(text):
    return table_error(
        Exception(text),
        DELTA,
        table="./t",
        pyspark="4.0.5",
        given={"spark.jars": "delta.jar"},
        keep_log=lambda: "LOG",
    )


@each_row(
    ("text", "kind", "words"),
    [
        (
            "java.lang.NoSuchMethodError: 'void org.apache.spark.LogKey.$init$()'",
            ConfigError,
            (
                "(delta.jar) does not work with PySpark 4.0.5 (Scala 2.13):"
                " NoSuchMethodError: 'void org.apache.spark.LogKey.$init$()'"
            ),
        ),
        (
            "java.lang.NoClassDefFoundError: io/delta/storage/LogStore",
            ConfigError,
            "does not work with PySpark 4.0.5",
        ),
        ("java.lang.AbstractMethodError", ConfigError, ": AbstractMethodError"),
        (
            (
                "org.apache.spark.SparkClassNotFoundException: [DATA_SOURCE_NOT_FOUND]"
                " Failed to find the data source: delta."
            ),
            ConfigError,
            "Delta Lake is not among the packages of this Spark session",
        ),
        (
            "java.lang.ClassNotFoundException: io.delta.tables.DeltaTable",
            ConfigError,
            "Delta Lake is not among the packages",
        ),
        (
            (
                "org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for"
                ' scheme "s3"'
            ),
            ConfigError,
            "Spark has no file system for ./t: s3",
        ),
        (
            (
                "java.lang.RuntimeException: java.lang.ClassNotFoundException: Class"
                " org.apache.hadoop.fs.s3a.S3AFileSystem not found"
            ),
            ConfigError,
            "Spark has no file system for ./t: org.apache.hadoop.fs.s3a.S3AFileSystem",
        ),
        (
            (
                "java.lang.RuntimeException: java.lang.reflect."
                "InvocationTargetException\nCaused by: java.lang."
                "NoClassDefFoundError: software/amazon/awssdk/core/SdkClient"
            ),
            ConfigError,
            (
                "the file system for ./t lacks the class"
                " software.amazon.awssdk.core.SdkClient"
            ),
        ),
        (
            (
                "org.apache.hadoop.fs.s3a.UnknownStoreException: `s3a://b/t/_delta_log"
                "': getFileStatus on s3a://b/t/_delta_log: software.amazon.awssdk."
                "services.s3.model.NoSuchBucketException: The specified bucket does not"
                " exist (Service: S3, Status Code: 404, Request ID: PzC)\nCaused by:"
                " software.amazon.awssdk.services.s3.model.NoSuchBucketException: The"
                " specified bucket does not exist (Service: S3, Status Code: 404,"
                " Request ID: PzC)"
            ),
            StorageNotFoundError,
            (
                "the bucket of ./t does not exist: The specified bucket does not exist"
                " (Service: S3, Status Code: 404)"
            ),
        ),
        (
            (
                "java.nio.file.AccessDeniedException: s3a://b/t/_delta_log:"
                " getFileStatus on s3a://b/t/_delta_log: software.amazon.awssdk."
                "services.s3.model.S3Exception: null (Service: S3, Status Code: 403,"
                " Request ID: ALT):null\nCaused by: software.amazon.awssdk.services.s3."
                "model.S3Exception: null (Service: S3, Status Code: 403, Request ID:"
                " ALT)"
            ),
            StorageDeniedError,
            "access to ./t was denied: Service: S3, Status Code: 403",
        ),
        (
            (
                "java.nio.file.AccessDeniedException: s3a://b/t/_delta_log: org.apache."
                "hadoop.fs.s3a.auth.NoAuthWithAWSException: No AWS Credentials provided"
                " by IAMInstanceCredentialsProvider"
            ),
            StorageDeniedError,
            "access to ./t was denied: s3a://b/t/_delta_log: org.apache.hadoop.fs.s3a",
        ),
        (
            (
                "java.net.ConnectException: getFileStatus on s3a://b/t/_delta_log:"
                " software.amazon.awssdk.core.exception.SdkClientException: Unable to"
                " execute HTTP request: Connect to 127.0.0.1:9 failed\nCaused by:"
                " java.net.ConnectException: Connection refused"
            ),
            StorageUnreachableError,
            "the storage of ./t cannot be reached: Connection refused",
        ),
        (
            (
                "io.delta.exceptions.ConcurrentTransactionException:"
                " [DELTA_CONCURRENT_TRANSACTION] This error occurs when"
            ),
            RefusedError,
            "another commit changed ./t at the same time, and nothing was written",
        ),
        (
            "org.apache.iceberg.exceptions.AlreadyExistsException: Table already",
            RefusedError,
            "another commit changed ./t at the same time",
        ),
        ("java.lang.OutOfMemoryError: Java heap space", RmqError, "out of memory"),
        (
            "[SCHEMA_NOT_FOUND] The schema `db` cannot be found. SQLSTATE: 42704",
            RmqError,
            "./t cannot be used: The schema `db` cannot be found",
        ),
        (
            (
                "[PYTHON_DATA_SOURCE_ERROR] Failed to create a data source:"
                ' Traceback (most recent call last):\n  File "x.py", line 1, in main\n'
                "ModuleNotFoundError: No module named 'rmqcli'\n SQLSTATE: 38000"
            ),
            RmqError,
            "./t was not written: ModuleNotFoundError: No module named 'rmqcli'",
        ),
        ("java.io.IOException: no space", RmqError, "./t cannot be used: no space"),
    ],
)
def test_what_spark_says(text, kind, words):
    error = error_of(_CALL + text + _STACK)
    assert type(error) is kind
    assert words in error.message
    assert "\n" not in error.message
    assert "at org.apache" not in error.message
    assert error.hint


def test_the_jvm_that_is_gone_is_named():
    assert "Java process ended before ./t was written" in error_of("").message


def test_errors_of_the_source_come_back_as_what_they_were():
    error = error_of(
        "Job aborted\nrmqcli.errors.PartialError: T@b:0: offsets 0 to 4 are no longer"
        ' on the broker\nhint: to read what is left: .option("failOnDataLoss",'
        ' "false")\n' + _STACK
    )
    assert type(error) is PartialError
    assert error.message == "T@b:0: offsets 0 to 4 are no longer on the broker"
    assert error.hint == "to read what is left: allow_gaps=True"
    error = error_of("rmqcli.errors.DecodeError: T@b:0: the record at offset 4 cannot")
    assert type(error) is PartialError
    assert error.hint == "to leave such messages out: allow_undecodable=True"
