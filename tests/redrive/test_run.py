"""A redrive whose broker does not answer, or whose rate is limited."""

from __future__ import annotations

import json

import pytest

from rmqcli import Admin
from rmqcli.admin.reset.cluster_identity import identity_of
from rmqcli.admin.tail.filter import make_filter
from rmqcli.api.client import Client
from rmqcli.broker import faults
from rmqcli.clock import SystemClock
from rmqcli.config import ClientConfig
from rmqcli.errors import DeadlineError, TransportError
from rmqcli.redrive import redrive as redrive_module
from rmqcli.redrive import requests
from rmqcli.redrive.log import DOUBTFUL, LetterPlace, LetterStates, open_log
from rmqcli.redrive.redrive import RedriveRequest, RedriveRun, plan_redrive
from rmqcli.wire.codes import RequestCode
from tests.admin.dlq.letters import make_letters

SENDS = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)


class SkippingClock(SystemClock):
    """The machine's clock, ahead by all waits: they take no time."""

    def __init__(self):
        self.skipped_ms = 0

    def monotonic_ms(self):
        return super().monotonic_ms() + self.skipped_ms

    def epoch_ms(self):
        return super().epoch_ms() + self.skipped_ms

    def wait_ms(self, event, timeout_ms):
        self.skipped_ms += timeout_ms
        return event.is_set()


@pytest.fixture
def cluster(rmq_cluster_factory):
    """Nine letters of the group billing on one broker."""
    cluster = rmq_cluster_factory(queues=1)
    cluster.create_topic("orders")
    cluster.create_group("billing")
    make_letters(cluster, "billing", "orders", [f"{n}" for n in range(9)])
    return cluster


@pytest.fixture
def redrive(cluster, tmp_path):
    """Run a redrive to its end; return it, its batches and the entries of its log."""

    def run(*, clock=None, timeout_ms=5_000, **options):
        config = ClientConfig(namesrv=(cluster.namesrv,), timeout_ms=timeout_ms)
        path = tmp_path / "log.jsonl"
        with Client(config, clock=clock or SystemClock()) as client:
            identity = identity_of(client.route("%DLQ%billing"))
            log = open_log(path, "billing", identity, at_ms=client.clock.epoch_ms())
            request = RedriveRequest(group="billing", filter=make_filter())
            plan = plan_redrive(client, request, log.states)
            made = RedriveRun(client, plan, log, **options)
            batches = list(made.batches())
            log.close()
        return (
            made,
            batches,
            [json.loads(line) for line in path.read_text().splitlines()],
        )

    return run


def test_a_rate_spreads_the_batches(redrive):
    clock = SkippingClock()
    begun_ms = clock.monotonic_ms()
    run, batches, entries = redrive(clock=clock, rate_per_s=3)
    assert [len(each) for each in batches] == [3, 3, 3]
    assert clock.monotonic_ms() - begun_ms >= 2_000
    assert clock.skipped_ms <= 2_000
    assert run.given_up is None
    times = [each["at_ms"] for each in entries]
    assert times == sorted(times)
    begun, _, _, second, _, third, ended = times
    assert third - begun >= 1_999
    assert second - begun >= 999
    assert ended <= clock.epoch_ms()
    assert begun > 1_700_000_000_000


def test_without_a_rate_nothing_waits(redrive):
    clock = SkippingClock()
    _, batches, _ = redrive(clock=clock)
    assert [len(each) for each in batches] == [9]
    assert clock.skipped_ms == 0


@pytest.mark.parametrize(
    ("action", "status", "error"),
    [
        (faults.drop_answer(), "UNKNOWN", DeadlineError),
        (faults.disconnect(), "UNKNOWN", TransportError),
    ],
)
def test_a_redrive_stops_at_a_batch_to_which_no_broker_answers(
    cluster, redrive, action, status, error
):
    """Further batches would only make more letters doubtful."""
    rules = [cluster.faults.add(action, code=code) for code in SENDS]
    run, batches, _ = redrive(timeout_ms=300, batch_max=3)
    assert isinstance(run.given_up, error)
    assert [[each.status for each in batch] for batch in batches] == [[status] * 3]
    for rule in rules:
        cluster.faults.remove(rule)
    run, batches, _ = redrive(batch_max=3)
    assert run.given_up is None
    assert [each.status for batch in batches for each in batch] == ["SEND_OK"] * 9
    with Admin(namesrv=cluster.namesrv) as admin:
        found = {message.body for message in admin.read("orders")}
    assert found == {b"%d" % n for n in range(9)}


def test_a_redrive_goes_on_after_a_batch_that_a_broker_refuses(cluster, redrive):
    for code in SENDS:
        cluster.faults.next(faults.answer(16, "not now"), code=code)
    run, batches, _ = redrive(batch_max=1)
    assert run.given_up is None
    statuses = [each.status for (each,) in batches]
    assert statuses == ["NO_PERMISSION", *["SEND_OK"] * 8]


def test_what_was_not_tried_any_more_is_not_sent_and_says_why(
    cluster, redrive, monkeypatch
):
    """Letters of 256 KiB have a request each."""
    monkeypatch.setattr(requests, "DEAD_AFTER", 1)  # not 5, which take half a minute
    make_letters(cluster, "billing", "orders", ["x" * (256 << 10)] * 3)
    for code in SENDS:
        cluster.faults.add(faults.disconnect(), code=code)
    run, (results,), _ = redrive(batch_max=11)
    assert run.given_up is not None
    assert [each.status for each in results] == ["UNKNOWN"] * 9 + ["NOT_SENT"] * 2
    ended = f"{cluster.broker().address} closed the connection"
    for each in (run.given_up.message, *(each.error for each in results)):
        assert ended in each


def test_a_plan_names_the_first_letters_that_may_be_sent_twice(cluster, monkeypatch):
    monkeypatch.setattr(redrive_module, "NAMED_MAX", 2)
    with Admin(namesrv=cluster.namesrv) as admin:
        letters = {one.queue_offset: one for one in admin.read("%DLQ%billing")}
    states = LetterStates()
    for offset in (0, 1, 2):
        place = offset, letters[offset].commit_log_offset
        states.set(LetterPlace("broker-a", 0, *place), DOUBTFUL)
    request = RedriveRequest(group="billing", filter=make_filter())
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        plan = plan_redrive(client, request, states)
        none = plan_redrive(client, request, LetterStates())
    assert plan.doubtful == ("broker-a:0:0", "broker-a:0:1")
    assert plan.doubtful_count == 3
    assert plan.targets == {"orders": 9}
    assert (none.doubtful, none.doubtful_count) == ((), 0)
