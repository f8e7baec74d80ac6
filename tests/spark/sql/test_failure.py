"""Spark's errors become an error and a hint. The texts are from PySpark 4.0 to 4.3."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import AnalysisException, ParseException, PySparkException

from rmqcli.errors import (
    ConnectError,
    DeniedError,
    ExitCode,
    PartialError,
    RmqError,
    TextError,
    UsageError,
)
from rmqcli.spark.shown_errors import shown_error, shown_warnings
from rmqcli.spark.sql.failure import is_of_spark, statement_error


def explained(error, statement="select 1"):
    return statement_error(error, statement, keep_log=lambda: "/tmp/kept.log")


def test_a_syntax_error_shows_its_position():
    error = ParseException(
        message="\n[PARSE_SYNTAX_ERROR] Syntax error at or near 'form': extra input"
        " 'form'. SQLSTATE: 42601 (line 2, pos 2)\n\n== SQL ==\nselect *\n  form orders"
        "\n--^^^\n"
    )
    found = explained(error, "select *\n  form orders")
    assert isinstance(found, TextError)
    assert found.text[found.start : found.end] == "form"
    assert found.text == "  form orders"
    assert found.what == ("line 2: syntax error at or near 'form': extra input 'form'")
    assert found.hint == ""


def test_the_error_for_an_unknown_column_does_not_show_the_plan():
    error = AnalysisException(
        message="[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function"
        " parameter with name `tag` cannot be resolved. Did you mean one of the"
        " following? [`tags`, `body`]. SQLSTATE: 42703; line 1 pos 7;\n'Project ['tag]"
        "\n+- SubqueryAlias orders\n"
    )
    found = explained(error, "select tag from orders")
    assert isinstance(found, TextError)
    assert (found.start, found.end) == (7, 10)
    assert found.what == (
        "a column, variable, or function parameter with name `tag` cannot be resolved."
        " Did you mean one of the following? [`tags`, `body`]"
    )


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        (
            (
                "[INVALID_IDENTIFIER] The unquoted identifier my-topic is invalid and"
                " must be back quoted as: `my-topic`. SQLSTATE: 42602 (line 1, pos 16)"
            ),
            "select * from my-topic",
        ),
        (
            (
                "[PARSE_SYNTAX_ERROR] Syntax error at or near '%'. SQLSTATE: 42601"
                " (line 1, pos 14)"
            ),
            "select * from %RETRY%billing",
        ),
    ],
)
def test_a_topic_that_needs_backticks_is_explained(text, statement):
    found = explained(ParseException(message=text), statement)
    assert "backticks" in found.hint


def test_a_position_outside_the_statement_is_clamped():
    text = "[X] Wrong. SQLSTATE: 42000 (line 900, pos 900)"
    found = explained(ParseException(message=text), "select 1")
    assert (found.text, found.start, found.end) == ("select 1", 7, 8)


def test_an_error_in_the_data_is_not_a_usage_error():
    error = PySparkException(
        message="[DIVIDE_BY_ZERO] Division by zero. Use `try_divide` to tolerate"
        " divisor being 0 and return NULL instead. SQLSTATE: 22012\n== SQL (line 1,"
        " position 8) ==\nselect 1/0\n       ^^^\n"
    )
    found = explained(error, "select 1/0")
    assert type(found) is RmqError
    assert found.message.startswith("division by zero. Use `try_divide` to tolerate")
    assert found.exit_code == ExitCode.FAILED


def test_an_analysis_error_without_a_position_is_a_usage_error():
    text = "[MISSING_GROUP_BY] The query does not include a GROUP BY. SQLSTATE: 42803;"
    found = explained(AnalysisException(message=text))
    assert type(found) is UsageError
    assert found.message == "the query does not include a GROUP BY"


def test_an_unsupported_feature_is_a_usage_error():
    """PySpark 4.0 raises this error for a script."""
    text = (
        "[UNSUPPORTED_FEATURE.SQL_SCRIPTING] The feature is not supported: SQL"
        " Scripting is under development. SQLSTATE: 0A000"
    )
    found = explained(PySparkException(message=text))
    assert type(found) is UsageError


def test_an_error_that_a_worker_raised_keeps_its_class_and_hint():
    found = explained(
        PySparkException(
            message="Job aborted due to stage failure: Task 0 in stage 0.0\n"
            "Traceback (most recent call last):\n  File x\n"
            "rmqcli.errors.PartialError: orders@broker-a:0: offsets 0 to 1 are no"
            ' longer on the broker\nhint: to read what is left: .option("a", "b")\n\n'
            "\tat org.apache.spark.api.python.BasePythonRunner"
        )
    )
    assert type(found) is PartialError
    assert found.message == (
        "orders@broker-a:0: offsets 0 to 1 are no longer on the broker"
    )
    assert found.hint == 'to read what is left: .option("a", "b")'


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("ConnectError", ExitCode.UNREACHABLE),
        ("DeadlineError", ExitCode.UNREACHABLE),
        ("NotFoundError", ExitCode.NOT_FOUND),
        ("DeniedError", ExitCode.DENIED),
        ("BusyError", ExitCode.FAILED),
        ("BrokerError", ExitCode.FAILED),
        ("ConfigError", ExitCode.USAGE),
        ("SendUnknownError", ExitCode.UNREACHABLE),
        ("AckError", ExitCode.FAILED),
    ],
)
def test_an_error_keeps_its_exit_code(name, code):
    found = shown_error(f"x\nrmqcli.errors.{name}: no\n")
    assert found is not None
    assert (found.message, found.hint, found.exit_code) == ("no", "", code)


def test_a_denied_request_keeps_its_code():
    found = shown_error("rmqcli.errors.DeniedError: no")
    assert isinstance(found, DeniedError)
    assert (found.code, found.name) == (16, "NO_PERMISSION")


def test_a_text_without_an_rmq_error_yields_none():
    assert shown_error("rmqcli.errors is a module") is None


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (Py4JNetworkError("Answer from Java side is empty"), "Java process ended"),
        (EOFError(), "Java process ended"),
        (PySparkException(message="something\nelse"), "the query failed: something"),
    ],
)
def test_the_log_is_kept_when_only_it_has_the_reason(error, words):
    found = explained(error)
    assert words in found.message
    assert found.hint == "see Spark's log, /tmp/kept.log"


def test_an_out_of_memory_error_is_named():
    text = "Job aborted: java.lang.OutOfMemoryError: Java heap space"
    found = explained(PySparkException(message=text))
    assert found.message == "Spark ran out of memory"
    assert "spark.driver.memory" in found.hint


def test_warnings_of_workers_are_found_in_the_log_once():
    log = "26/01/02 INFO x\nrocketmq: a is gone\nrocketmq: b\nrocketmq: a is gone\n"
    assert shown_warnings(log) == ["a is gone", "b"]


def test_an_error_of_a_broker_is_not_taken_for_one_of_spark():
    """A ConnectError is an OSError, as the errors of Spark's sockets are."""
    assert not is_of_spark(ConnectError("refused", address="127.0.0.1:9"))
    assert is_of_spark(ConnectionResetError())
