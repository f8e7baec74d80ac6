"""Rows of the table for SQL92: pulls by an expression, and its check (request 46)."""

from __future__ import annotations

import json

from tests.broker.behaviour.stage import (
    FOUND,
    V4_6,
    V5,
    Row,
    Says,
    ends,
    nothing,
    old_and_new,
    pull,
)

PULL, CHECK_CLIENT_CONFIG = 11, 46

#: Expressions and how many of T's messages match; None: all are delivered, as without
#: an expression.
SQL92 = {
    "n > 2": 2,
    "n >= 2 AND n < 4": 2,
    "n BETWEEN 1 AND 3": 3,
    "n NOT BETWEEN 1 AND 3": 2,
    "n = 1 OR n = 4": 2,
    "n <> 1": 4,
    "NOT (n = 1)": 4,
    "n > -1": 5,
    "n > 1.5": 3,
    "f > 1.5": 3,
    "f > 1": 0,  # "1.5" is not an Integer
    "f > 1 OR n = 1": 0,  # nothing matches where a part cannot be evaluated
    "n = 1 OR f > 1": 1,
    "n = '3'": 1,
    "n = 3.0": 1,
    "n = 3L": 1,
    "n < f": 5,
    "text = 'item-2'": 1,
    "text IN ('item-0', 'item-4', 'other')": 2,
    "text NOT IN ('item-0')": 4,
    "TAGS = 'B'": 2,
    "some IS NULL": 3,
    "some IS NOT NULL": 2,
    "some = 'it''s'": 1,
    "some <> 'x'": 1,  # unknown where the property is missing
    "some = 'x' OR n = 0": 2,
    "NOT some = 'x'": 0,  # NOT applies to the property alone
    "some NOT IN ('x')": 1,
    "nobody > 1": 0,
    "n": 0,
    "TRUE": 5,
    "FALSE": 0,
    "NULL": 0,
    "n = TRUE": 0,
    "n > 1 -- comment": 3,  # no end of line: what follows is ignored
    "n > 1 and": None,
    "n > 1 foo %%% bar": 3,
    "n > 1 %%% bar": None,
    "n > 1)": 3,
    "n > 1 NOT foo": None,
    "n > 1 -- comment\n": 3,
    "n > 1 /* comment */ AND n < 3": 1,
    "n between 1 and 2": 2,
    "+n > 3": 1,
    "-n > -2": 0,  # minus a text is unknown
    "n >": None,
    "n > 'a'": None,
    "n BETWEEN 3 AND 1": None,
    "n IN (1)": None,
    "'a' = 'a'": 5,
    "1 = 1": 5,
    "n = NULL": None,
    "n > 0.0": None,
    "n = 007": 1,  # read as n = 0
    "n > 9223372036854775808": None,
    "n LIKE 'a'": 0,  # read as n
    "5": None,
    "(n > 3": None,
    "n % 2 = 0": None,
}
TEXT_SQL92 = {
    "text CONTAINS 'tem-1'": 1,
    "text NOT CONTAINS 'tem-1'": 4,
    "text STARTSWITH 'item'": 5,
    "text NOT STARTSWITH 'item'": 0,
    "text ENDSWITH '-3'": 1,
    "text NOT ENDSWITH '-3'": 4,
    "text CONTAINS ''": 0,
    "some NOT CONTAINS 'x'": 1,
}


def sql92(expression: str, count: int | None, *, since: str = V4_6) -> Row:
    """A pull by an expression, which the grammar does not have before `since`."""

    def says(count: int | None) -> Says:
        if count is None:
            return FOUND
        if count == 0:
            return nothing(20, "NO_MATCHED_MESSAGE", 5)
        return Says(0, "FOUND", ends(5, 0, 5), count)

    # an unknown word ends the expression, except after NOT
    old = says(count if since == V4_6 else None if " NOT " in expression else 0)
    fields = pull(expressionType="SQL92", subscription=expression)
    return Row(expression, PULL, fields, by=old_and_new(old, says(count)))


FILTERS = [
    *(sql92(expression, count) for expression, count in SQL92.items()),
    *(sql92(expression, count, since=V5) for expression, count in TEXT_SQL92.items()),
]


def client_config(kind: str | None, expression: str | None) -> bytes:
    """The body of a request to check a subscription."""
    subscription = {"topic": "T", "expressionType": kind, "subString": expression}
    given = {key: value for key, value in subscription.items() if value is not None}
    data = {"clientId": "c", "group": "g", "subscriptionData": given}
    return json.dumps(data).encode()


def checked(name: str, body: bytes, old: int, new: int | None = None) -> Row:
    """A check of a subscription, with the codes that 4.x and 5.x answer.

    Remarks are the parser's, and are not compared.
    """
    says = old_and_new(Says(old), Says(old if new is None else new))
    return Row(name, CHECK_CLIENT_CONFIG, {}, by=says, body=body)


#: The same expressions: those that a pull cannot parse are refused here.
CHECKS = [
    *(
        checked(text, client_config("SQL92", text), 23 if count is None else 0)
        for text, count in SQL92.items()
    ),
    *(
        checked(text, client_config("SQL92", text), 23 if " NOT " in text else 0, 0)
        for text in TEXT_SQL92
    ),
    checked("empty", client_config("SQL92", ""), 23),
    checked("no expression", client_config("SQL92", None), 23),
    checked("unknown type", client_config("REGEX", "a"), 23),
    checked("type in lower case", client_config("sql92", "n > 1"), 23),
    checked("tags", client_config("TAG", "A || B"), 0),
    checked("bad tags are not looked at", client_config("TAG", "||"), 0),
    checked("no type is tags", client_config(None, "n >"), 0),
    checked("no body", b"", 1, 0),
    checked("no subscription", b'{"clientId":"c","group":"g"}', 0),
]

#: The answers where SQL92 is switched off: expressions are not parsed at all.
CHECKS_OFF = [
    *(
        Row(
            text,
            CHECK_CLIENT_CONFIG,
            {},
            Says(
                1, f"The broker does not support consumer to filter message by {kind}"
            ),
            body=client_config(kind, text),
        )
        for kind, text in (("SQL92", "n > 1"), ("SQL92", "n >"), ("REGEX", "n"))
    ),
    checked("tags", client_config("TAG", "A || B"), 0),
]
