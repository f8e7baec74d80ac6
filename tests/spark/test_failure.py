"""The reason of a failure of Spark is found. The logs are from PySpark 4.3."""

from __future__ import annotations

import pytest

from rmqcli.spark.failure import java_reason, start_reason, text_of

REFUSED_BY_SUBMIT = """\
WARNING: Using incubator modules: jdk.incubator.vector
Exception in thread "main" org.apache.spark.SparkException: Master must either be yarn \
or start with spark, k8s, or local
\tat org.apache.spark.deploy.SparkSubmit.error(SparkSubmit.scala:1068)
\tat org.apache.spark.deploy.SparkSubmit.main(SparkSubmit.scala)
"""
WITHOUT_A_MASTER = """\
26/11/22 15:30:57 WARN StandaloneAppClient$ClientEndpoint: Failed to connect to master
org.apache.spark.SparkException: Exception thrown in awaitResult:
\tat java.base/java.lang.Thread.run(Thread.java:840)
Caused by: java.io.IOException: Failed to connect to /127.0.0.1:1
26/11/22 15:31:57 ERROR StandaloneSchedulerBackend: Application has been killed. \
Reason: All masters are unresponsive! Giving up.
26/11/22 15:31:57 WARN StandaloneSchedulerBackend: Application ID is not initialized.
"""
WITHOUT_KUBERNETES = """\
26/11/22 15:30:47 ERROR SparkContext: Error initializing SparkContext.
io.fabric8.kubernetes.client.KubernetesClientException: An error has occurred.
\tat org.apache.spark.SparkContext.<init>(SparkContext.scala:632)
Caused by: java.io.IOException: Connection refused
\t... 15 more
"""


class DeadError(Exception):
    """Like an exception of Py4J whose JVM has ended."""

    def __str__(self):
        raise ConnectionRefusedError(111, "Connection refused")


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (
            REFUSED_BY_SUBMIT,
            "Master must either be yarn or start with spark, k8s, or local",
        ),
        (WITHOUT_A_MASTER, "All masters are unresponsive! Giving up."),
        (WITHOUT_KUBERNETES, "Connection refused"),
        ("Error: could not find java\n\tat an.error(X.java)\n", "Error: could not"),
        ("", "its Java process has ended"),
    ],
)
def test_the_log_says_why_spark_did_not_start(tmp_path, log, words):
    path = tmp_path / "spark.log"
    path.write_text(log)
    assert start_reason(DeadError(), str(path)).startswith(words)


def test_without_a_log_the_exception_gives_the_reason(tmp_path):
    error = RuntimeError(
        "An error occurred while calling None.JavaSparkContext.\n"
        ": java.net.BindException: Cannot assign requested address\n\tat x.y(Z.java)"
    )
    path = str(tmp_path / "none")
    assert start_reason(error, path) == "Cannot assign requested address"
    assert start_reason(RuntimeError("no such thing"), path) == "no such thing"


def test_the_innermost_cause_is_the_reason():
    text = ": a.B: outer\n\tat a.b(C.java)\nCaused by: a.C: inner\n\tat a.b(C.java)"
    assert java_reason(text) == "inner"
    assert java_reason("no trace of Java") == ""


def test_an_exception_whose_jvm_has_ended_has_no_text():
    assert text_of(DeadError()) == ""
    assert text_of(ValueError("x")) == "x"
