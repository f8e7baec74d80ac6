"""Any exception can be reported, even one that fails to give its text."""

from __future__ import annotations

from rmqcli.cli.ui.errors import describe, report


class MuteError(Exception):
    """Behaves like an exception of Py4J after the JVM has ended."""

    def __str__(self):
        raise ConnectionRefusedError(111, "Connection refused")


def test_an_exception_that_cannot_say_its_text_is_still_reported(capsys):
    assert describe(MuteError()).message == (
        "internal error: MuteError:"
        " (its text could not be read: ConnectionRefusedError)"
    )
    assert report(MuteError(), ["lag", "-vv"]) == 1
    assert "internal error: MuteError" in capsys.readouterr().err
