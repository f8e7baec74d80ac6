"""The error of a command that some of the brokers did not answer."""

from __future__ import annotations

import pytest

from rmqcli.api.broker_errors import not_found
from rmqcli.cli.by_broker import raise_if_silent
from rmqcli.errors import DeadlineError, DeniedError, PartialError, RmqError


def test_each_silent_broker_is_named_with_its_own_reason() -> None:
    """All brokers were named with the reason of the first one."""
    errors = {
        "broker-a": RmqError("connection refused"),
        "broker-b": PartialError("its queues are not known"),
        "broker-c": RmqError("connection refused"),
    }
    with pytest.raises(PartialError) as caught:
        raise_if_silent(errors)
    assert caught.value.message == (
        "broker-a, broker-c did not answer: connection refused;"
        " broker-b: its queues are not known"
    )


def test_that_no_answer_came_is_said_once() -> None:
    """The text was "broker-a did not answer: no answer from 10.0.0.1:10911 to ..."."""
    error = DeadlineError(
        "no answer from 10.0.0.1:10911 to GET_BROKER_CONFIG in 5000 ms",
        address="10.0.0.1:10911",
    )
    with pytest.raises(PartialError) as caught:
        raise_if_silent({"broker-a": error})
    assert caught.value.message == (
        "broker-a did not answer: GET_BROKER_CONFIG to 10.0.0.1:10911 timed out after"
        " 5000 ms"
    )


def test_a_broker_that_denies_access_is_not_said_to_be_silent() -> None:
    """The text was "did not answer: 10.0.0.2:10911 answered NO_PERMISSION"."""
    denied = DeniedError("10.0.0.2:10911 answered", code=16, name="NO_PERMISSION")
    with pytest.raises(PartialError) as caught:
        raise_if_silent({"broker-b": denied})
    assert caught.value.message == "broker-b denied access: 10.0.0.2:10911 answered"


def test_a_broker_that_has_no_such_topic_is_not_said_to_be_silent() -> None:
    """The text was "broker-a did not answer: topic T does not exist"."""
    with pytest.raises(PartialError) as caught:
        raise_if_silent({"broker-a": not_found("topic", "T")})
    assert caught.value.message == "broker-a: topic T does not exist"
