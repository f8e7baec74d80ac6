"""Convert the exceptions that Spark raises for a statement or a query to RmqErrors.

The text of a Spark error has a condition in brackets, a message, a SQLSTATE and often a
position in the statement. The query plan or stack trace that follows is dropped because
it does not help the author of the statement. An error that the data source raised is
already an RmqError, but Spark returns only its text, from which it is recreated.

Source: SparkThrowableHelper, ParseException, QueryContext.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException

from rmqcli.errors import RmqError, TextError, UsageError
from rmqcli.spark.failure import java_reason, one_line, says_that_java_ended, text_of
from rmqcli.spark.shown_errors import shown_error
from rmqcli.spark.sql.guess import ONE_QUERY_HINT, QUERIES_HINT

if TYPE_CHECKING:
    from collections.abc import Callable

_TEXT_MAX: Final = 400
_CONDITION: Final = re.compile(
    r"\[(?P<condition>[A-Z][A-Z0-9_.]*)\]\s*(?P<text>.*?)\s*SQLSTATE: \w{5}", re.DOTALL
)
#: `line 1 pos 7` and `(line 1, pos 7)` count from 0, `(line 1, position 8)` from 1.
_PLACE: Final = re.compile(r"\bline (\d+),? (pos|position) (\d+)")
_WORD: Final = re.compile(r"`[^`]*`|[\w.]+|\S")
#: Characters of topic names that Spark reads as operators.
_OPERATORS: Final = "%|-"
_BACKTICKS: Final = (
    "put a topic's name in backticks when it has other characters than letters, digits"
    " and _, and the statement in single quotes: 'select * from `my-topic`'"
)


def statement_error(
    error: Exception, statement: str, *, keep_log: Callable[[], str]
) -> RmqError:
    """The error to raise for a statement that Spark cannot parse, analyse or run.

    A TextError, with the line of the statement, when Spark names a position in it. A
    UsageError for another fault of the statement. An error that the data source raised
    is recreated with its class. When only Spark's log has the reason, `keep_log` is
    called to keep the log and to return its path for the hint.
    """
    text = text_of(error)
    ours = shown_error(text)
    if ours is not None:
        return ours
    if says_that_java_ended(error):
        return RmqError(
            "Spark's Java process ended before the query did",
            hint=f"see Spark's log, {keep_log()}",
        )
    if "OutOfMemoryError" in text:
        return RmqError(
            "Spark ran out of memory",
            hint="raise the setting spark.driver.memory, for example to 4g",
        )
    found = _CONDITION.search(text)
    if found is None:
        return RmqError(
            f"the query failed: {_first_line(java_reason(text) or text)}",
            hint=f"see Spark's log, {keep_log()}",
        )
    what = _shown(found["text"])
    is_of_statement = (
        isinstance(error, AnalysisException)  # ParseException is one
        or found["condition"].startswith("UNSUPPORTED_FEATURE")
    )
    place = _PLACE.search(text, found.end())
    if not is_of_statement:
        return RmqError(what)
    if place is None:
        is_script = found["condition"] == "UNSUPPORTED_FEATURE.SQL_SCRIPTING"
        return UsageError(what, hint=QUERIES_HINT if is_script else "")
    return _at(statement, what, place, condition=found["condition"])


def is_of_spark(error: BaseException) -> bool:
    """Whether an exception comes from Spark, and `statement_error` can explain it."""
    kinds = (PySparkException, Py4JError, OSError, EOFError)
    # Errors of brokers are OSErrors, too.
    return isinstance(error, kinds) and not isinstance(error, RmqError)


def _at(
    statement: str, what: str, place: re.Match[str], *, condition: str
) -> TextError:
    """The error at a position in the statement, with the line at that position."""
    lines = statement.split("\n")
    number = min(max(1, int(place[1])), len(lines))
    line = lines[number - 1].rstrip()
    start = int(place[3]) - (place[2] == "position")
    start = min(max(0, start), max(0, len(line) - 1))
    word = _WORD.match(line, start)
    end = word.end() if word else min(len(line), start + 1)
    if number > 1:
        what = f"line {number}: {what}"
    is_of_name = condition == "INVALID_IDENTIFIER" or (
        condition == "PARSE_SYNTAX_ERROR"
        and any(each in _OPERATORS for each in line[max(0, start - 1) : start + 1])
    )
    hint = _BACKTICKS if is_of_name else ""
    if condition == "PARSE_SYNTAX_ERROR" and line[:start].rstrip().endswith(";"):
        hint = ONE_QUERY_HINT
    return TextError(line, what, start=start, end=end, hint=hint)


def _shown(text: str) -> str:
    """A message of Spark as one line, without a leading capital or a full stop."""
    text = one_line(text)
    return text[:1].lower() + text[1:]


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")[
        :_TEXT_MAX
    ]
