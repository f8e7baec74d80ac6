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


def test_an_interrupt_that_became_a_runtime_error_is_an_interrupt(capsys):
    """Python does that when it arrives while a wait takes its lock back."""
    error = RuntimeError("release unlocked lock")
    error.__context__ = KeyboardInterrupt()
    assert report(error, ["lag"]) == 130
    assert capsys.readouterr().err == "interrupted\n"
