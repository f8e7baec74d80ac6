"""Commands in texts can be pasted into a shell, whatever their arguments are called."""

from __future__ import annotations

import pytest

from rmqcli.hint import command_line, with_options

FLAGS = ("--profile", "my cluster")


@pytest.mark.parametrize(
    ("names", "options", "expected"),
    [
        ((), (), "rmq lag"),
        (("billing",), (), "rmq lag billing"),
        (("a; reboot",), (), "rmq lag 'a; reboot'"),
        (("%RETRY%a|b",), (), "rmq lag '%RETRY%a|b'"),
        (("it's",), FLAGS, "rmq lag 'it'\"'\"'s' --profile 'my cluster'"),
        (("-billing",), (), "rmq lag -- -billing"),
        (("a", "-b"), FLAGS, "rmq lag --profile 'my cluster' -- a -b"),
    ],
)
def test_names_are_quoted_and_are_never_taken_for_options(names, options, expected):
    assert command_line("rmq lag", *names, options=options) == expected


def test_more_options_come_before_the_names_that_are_like_options():
    assert with_options(["lag", "--", "-G"], ["-q"]) == ["lag", "-q", "--", "-G"]
    assert with_options(["lag", "G"], ["-q"]) == ["lag", "G", "-q"]
