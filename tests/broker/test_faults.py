"""Which requests a fault applies to, and how often."""

from __future__ import annotations

import pytest

from rmqcli.broker.faults import Faults, answer, delay, drop_answer
from rmqcli.wire.command import RemotingCommand

PULL = RemotingCommand(
    11, ext_fields={"consumerGroup": "g", "topic": "t", "queueId": "3"}
)
SEND = RemotingCommand(310, ext_fields={"a": "p", "b": "t", "e": "3"})


@pytest.mark.parametrize(
    ("which", "command", "applies"),
    [
        ({}, PULL, True),
        ({"code": 11}, PULL, True),
        ({"code": 12}, PULL, False),
        ({"group": "g", "topic": "t", "queue_id": 3}, PULL, True),
        ({"group": "h"}, PULL, False),
        ({"topic": "u"}, PULL, False),
        ({"queue_id": 0}, PULL, False),
        # the short names of a V2 send
        ({"group": "p", "topic": "t", "queue_id": 3}, SEND, True),
        ({"broker": "broker-b"}, PULL, False),
        ({"broker": "broker-a"}, PULL, True),
    ],
)
def test_a_fault_applies_to_the_requests_that_it_names(which, command, applies):
    faults = Faults()
    faults.add(delay(1), **which)
    assert (faults.decide("broker-a", command) == delay(1)) == applies


def test_nth_and_times_count_only_matching_requests():
    faults = Faults()
    rule = faults.add(answer(2), code=11, nth=2, times=2)
    decided = [
        faults.decide("broker-a", command) is not None
        for command in (PULL, SEND, PULL, PULL, SEND, PULL)
    ]
    assert decided == [False, False, True, True, False, False]
    assert (rule.seen, rule.hits) == (4, 2)


def test_the_first_rule_wins_and_observers_see_all():
    faults = Faults()
    faults.next(answer(2))
    second = faults.add(drop_answer())
    seen = faults.observe(topic="t")
    assert faults.decide("broker-a", PULL) == answer(2)
    assert faults.decide("broker-a", PULL) == drop_answer()
    assert second.seen == 1
    assert [o.command.code for o in seen.requests] == [11, 11]


@pytest.mark.injects_exceptions
@pytest.mark.parametrize("error", [ValueError, pytest.fail.Exception])
def test_an_observer_that_raises_changes_nothing(error, caplog):
    def fail(_):
        raise error("injected")

    faults = Faults()
    seen = faults.observe(on_request=fail)
    faults.add(answer(2))
    assert faults.decide("broker-a", PULL) == answer(2)
    assert len(seen.requests) == 1
    assert "injected" in caplog.text


def test_removed_rules_do_nothing():
    faults = Faults()
    rule = faults.add(answer(2))
    faults.remove(rule)
    faults.remove(rule)
    assert faults.decide("broker-a", PULL) is None
    faults.add(answer(2))
    faults.clear()
    assert faults.decide("broker-a", PULL) is None


def test_an_unknown_field_is_an_error():
    with pytest.raises(TypeError, match="tpic"):
        Faults().add(answer(2), tpic="t")  # type: ignore[call-arg]  # the point
