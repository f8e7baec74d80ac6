"""Comparing the values of an SQL92 expression as Java does.

A property is text (str) or missing (None). Constants are text, Integer (int), Long
(`Long`), Double (float) or Boolean (bool). What Java cannot convert makes the whole
expression fail, and the message does not match. Not imitated: hexadecimal floats.

Source: `ComparisonExpression.__compare` in apache/rocketmq.
"""

from __future__ import annotations

import math
import re
from typing import Final, TypeAlias

_INT_MAX: Final = (1 << 31) - 1
_LONG_MAX: Final = (1 << 63) - 1
_DIGITS: Final = re.compile(r"[+-]?[0-9]{1,400}")
_DOUBLE: Final = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)"
)
_JAVA_BLANKS: Final = "".join(map(chr, range(33)))


class Long(int):
    """An integer constant that Java keeps in 64 bits: too large for 32."""


Value: TypeAlias = str | int | float | bool | None


class EvaluationError(Exception):
    """The expression cannot be evaluated for this message; never leaves `sql92`."""


def to_double(text: str) -> float:
    """Source: Double.valueOf."""
    text = text.strip(_JAVA_BLANKS)
    if not _DOUBLE.fullmatch(text):
        raise EvaluationError(text)
    if not text.endswith("Infinity"):
        text = text.rstrip("fFdD")
    return float(text)


def compare(left: Value, right: Value) -> int:
    """Below, at or above 0; -1 for kinds that have no order. Neither may be None."""
    if type(left) is not type(right):
        if isinstance(left, bool):
            if isinstance(right, str):
                raise EvaluationError  # Java casts the wrong side
            return -1
        if isinstance(right, str):
            right = _converted(right, like=left)
        elif isinstance(left, str):
            left = _converted(left, like=right)
        elif isinstance(right, bool):
            return -1
    return _order(left, right)


def _converted(text: str, *, like: Value) -> Value:
    if isinstance(like, bool):
        return text.lower() == "true"
    if isinstance(like, float):
        return to_double(text)
    limit = _LONG_MAX if isinstance(like, Long) else _INT_MAX
    if not _DIGITS.fullmatch(text):
        raise EvaluationError(text)
    number = int(text)
    if not -limit - 1 <= number <= limit:
        raise EvaluationError(text)
    return number


def _order(left: Value, right: Value) -> int:
    if isinstance(left, str) and isinstance(right, str):
        one, other = left.encode("utf-16-be"), right.encode("utf-16-be")
        return (one > other) - (one < other)
    if isinstance(left, int | float) and isinstance(right, int | float):
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) - math.isnan(right)
        return (left > right) - (left < right)
    raise EvaluationError
