"""A proxy's settings are taken as far as they make sense, and never beyond bounds."""

from __future__ import annotations

import pytest

from rmqcli.errors import BodyError, ConfigError
from rmqcli.proxy.endpoints import endpoints_of, parse_endpoints
from rmqcli.proxy.settings import CONSUMER_DEFAULTS, PRODUCER_DEFAULTS, merged
from rmqcli.wire.protobuf import definition_pb2 as pb

DAY_MS = 24 * 3_600 * 1_000


def exponential(initial_ms, max_ms, multiplier, attempts=5):
    said = pb.Settings()
    said.backoff_policy.max_attempts = attempts
    backoff = said.backoff_policy.exponential_backoff
    backoff.initial.FromMilliseconds(initial_ms)
    backoff.max.FromMilliseconds(max_ms)
    backoff.multiplier = multiplier
    return merged(PRODUCER_DEFAULTS, said).retry


def test_delays_grow_up_to_the_greatest():
    retry = exponential(10, 100, 3.0)
    assert [retry.delay_ms(attempt) for attempt in (1, 2, 3, 4, 50)] == [
        10,
        30,
        90,
        100,
        100,
    ]
    assert retry.max_attempts == 5


def test_customized_delays_are_taken_in_their_order():
    said = pb.Settings()
    for delay_ms in (1_000, 5_000):
        said.backoff_policy.customized_backoff.next.add().FromMilliseconds(delay_ms)
    retry = merged(CONSUMER_DEFAULTS, said).retry
    assert retry.delays_ms == (1_000, 5_000)
    assert retry.max_attempts == 17


@pytest.mark.parametrize("multiplier", [float("nan"), float("inf"), -1.0, 0.0])
def test_a_multiplier_that_cannot_be_keeps_the_first_delay(multiplier):
    assert exponential(10, 100, multiplier).delays_ms == (10,)


def test_absurd_numbers_are_cut():
    retry = exponential(-5, 400 * DAY_MS, 1_000.0, attempts=2**31 - 1)
    assert retry.max_attempts == 1_000
    assert min(retry.delays_ms) == 0
    assert max(retry.delays_ms) <= DAY_MS
    said = pb.Settings()
    said.publishing.max_body_size = 2**31 - 1
    assert merged(PRODUCER_DEFAULTS, said).max_body_bytes == 16 << 20
    said = pb.Settings()
    said.subscription.receive_batch_size = 2**31 - 1
    said.subscription.long_polling_timeout.seconds = 10**9
    found = merged(CONSUMER_DEFAULTS, said)
    assert (found.receive_batch_size, found.long_polling_ms) == (1_024, 300_000)


def test_what_is_not_said_stays():
    assert merged(CONSUMER_DEFAULTS, pb.Settings()) == CONSUMER_DEFAULTS


@pytest.mark.parametrize(
    ("texts", "target"),
    [
        (["10.0.0.1:8081"], "ipv4:10.0.0.1:8081"),
        (["10.0.0.1:8081", "10.0.0.2:81"], "ipv4:10.0.0.1:8081,10.0.0.2:81"),
        (["[::1]:8081"], "ipv6:[::1]:8081"),
        (["proxy.example:8081"], "dns:///proxy.example:8081"),
    ],
)
def test_endpoints_become_a_target(texts, target):
    assert parse_endpoints(texts).target == target


@pytest.mark.parametrize(
    "texts", [[], ["host"], ["a:1", "b:2"], ["a:1", "10.0.0.1:2"], ["1.2.3.4:0"]]
)
def test_endpoints_that_cannot_be_are_refused(texts):
    with pytest.raises(ConfigError):
        parse_endpoints(texts)


@pytest.mark.parametrize(
    ("scheme", "host", "port"),
    [
        ("IPv4", "proxy.example", 8081),
        ("IPv4", "127.0.0.1", 0),
        ("DOMAIN_NAME", "a b", 8081),
        ("ADDRESS_SCHEME_UNSPECIFIED", "127.0.0.1", 8081),
    ],
)
def test_endpoints_of_a_proxy_that_cannot_be_are_refused(scheme, host, port):
    message = pb.Endpoints(scheme=scheme)
    message.addresses.add(host=host, port=port)
    with pytest.raises(BodyError):
        endpoints_of(message)


def test_endpoints_of_a_proxy_come_back_as_they_were():
    ours = parse_endpoints(["10.0.0.1:8081", "10.0.0.2:81"])
    assert endpoints_of(ours.to_protobuf()) == ours


def test_endpoints_have_a_bound():
    message = pb.Endpoints(scheme=pb.AddressScheme.IPv4)
    for _ in range(1_000):
        message.addresses.add(host="10.0.0.1", port=1)
    assert len(endpoints_of(message).addresses) == 64
