"""One test checks many rows, and says which of them failed."""

from __future__ import annotations

import inspect

import pytest

from tests.kit.rows import each_row


def notes_of(test, **fixtures):
    """Run a test that fails, and return what is noted on its errors."""
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - of any kind
        test(**fixtures)
    error = caught.value
    each = error.exceptions if isinstance(error, BaseExceptionGroup) else [error]
    return [note for one in each for note in one.__notes__]


def test_all_rows_are_run():
    seen = []

    @each_row("a, b", [(1, 2), (3, 4)])
    def check(a, b):
        seen.append((a, b))

    check()
    assert seen == [(1, 2), (3, 4)]


def test_one_row_that_fails_is_named_and_the_others_are_run():
    seen = []

    @each_row("number", [1, 2, 3])
    def check(number):
        seen.append(number)
        assert number != 2

    assert notes_of(check) == ["in row 2"]
    assert seen == [1, 2, 3]


def test_several_rows_that_fail_are_one_error_that_names_them():
    @each_row("number", [1, 2, 3], ids=["one", "two", "three"])
    def check(number):
        assert number == 1

    with pytest.raises(BaseExceptionGroup, match="2 of 3 rows failed:\ntwo\nthree"):
        check()
    assert notes_of(check) == ["in row two", "in row three"]


def test_an_expected_error_that_is_not_raised_fails_its_row():
    @each_row("text", ["1", "x", "2"])
    def check(text):
        with pytest.raises(ValueError):  # noqa: PT011 - which one is int's affair
            int(text)

    assert notes_of(check) == ["in row '1'", "in row '2'"]


def test_a_row_is_named_by_its_id_or_by_a_function():
    @each_row("a, b", [pytest.param(1, 2, id="the first"), (3, 4)], ids=lambda n: n + 1)
    def check(a, b):
        raise ValueError

    assert notes_of(check) == ["in row the first", "in row 4-5"]


def test_a_row_of_one_argument_may_be_a_tuple():
    seen = []

    @each_row("pair", [(1, 2), pytest.param((3, 4))])
    def check(pair):
        seen.append(pair)

    check()
    assert seen == [(1, 2), (3, 4)]


def test_other_arguments_are_fixtures():
    seen = []

    @each_row("number", [1, 2])
    @each_row("letter", "ab")
    def check(letter, number, fixture):
        seen.append((fixture, number, letter))

    assert [*inspect.signature(check).parameters] == ["fixture"]
    check(fixture="f")
    assert seen == [("f", 1, "a"), ("f", 1, "b"), ("f", 2, "a"), ("f", 2, "b")]


def test_a_table_without_rows_is_refused():
    with pytest.raises(ValueError, match="no rows for number"):
        each_row("number", [])


def test_an_argument_that_the_test_does_not_take_is_refused():
    with pytest.raises(TypeError, match="check does not take nubmer"):

        @each_row("nubmer", [1])
        def check(number):
            pass
