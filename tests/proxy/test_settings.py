"""A proxy's settings are taken as far as they make sense, and never beyond bounds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rmqcli.errors import BodyError, ConfigError
from rmqcli.proxy.endpoints import endpoints_of, parse_endpoints
from rmqcli.proxy.settings import CONSUMER_DEFAULTS, PRODUCER_DEFAULTS, merged
from rmqcli.wire.protobuf import definition_pb2 as pb
from tests.kit.rows import each_row

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
    said = pb.Settings()
    said.subscription.SetInParent()
    said.backoff_policy.customized_backoff.SetInParent()
    assert merged(CONSUMER_DEFAULTS, said) == CONSUMER_DEFAULTS
    said = pb.Settings()
    said.publishing.SetInParent()
    found = merged(PRODUCER_DEFAULTS, said)
    assert found.validate_message_type is False  # which is said by leaving it out
    assert replace(found, validate_message_type=True) == PRODUCER_DEFAULTS


@each_row(
    ("part", "name", "said", "field", "found"),
    [
        ("publishing", "max_body_size", 1, "max_body_bytes", 1),
        ("publishing", "max_body_size", -1, "max_body_bytes", 4_194_304),
        ("publishing", "max_body_size", 16_777_216, "max_body_bytes", 16_777_216),
        ("publishing", "max_body_size", 16_777_217, "max_body_bytes", 16_777_216),
        ("publishing", "validate_message_type", True, "validate_message_type", True),
        ("publishing", "validate_message_type", False, "validate_message_type", False),
        ("subscription", "fifo", True, "fifo", True),
        ("subscription", "fifo", False, "fifo", False),
        ("subscription", "receive_batch_size", 1, "receive_batch_size", 1),
        ("subscription", "receive_batch_size", -1, "receive_batch_size", 32),
        ("subscription", "receive_batch_size", 1_024, "receive_batch_size", 1_024),
        ("subscription", "receive_batch_size", 1_025, "receive_batch_size", 1_024),
    ],
)
def test_a_setting_is_taken_within_its_bounds(part, name, said, field, found):
    settings = pb.Settings()
    setattr(getattr(settings, part), name, said)
    assert getattr(merged(CONSUMER_DEFAULTS, settings), field) == found


@pytest.mark.parametrize(
    ("said_ms", "found_ms"),
    [
        (0, 1_000),
        (999, 1_000),
        (1_001, 1_001),
        (299_999, 299_999),
        (300_001, 300_000),
        (-5, 1_000),
    ],
)
def test_a_receive_is_held_for_a_second_to_five_minutes(said_ms, found_ms):
    said = pb.Settings()
    said.subscription.long_polling_timeout.FromMilliseconds(said_ms)
    assert merged(CONSUMER_DEFAULTS, said).long_polling_ms == found_ms


def test_at_most_64_delays_are_kept():
    said = pb.Settings()
    for delay_ms in range(70):
        said.backoff_policy.customized_backoff.next.add().FromMilliseconds(delay_ms)
    retry = merged(CONSUMER_DEFAULTS, said).retry
    assert retry.delays_ms == tuple(range(64))
    assert [retry.delay_ms(attempt) for attempt in (-1, 0, 1, 2, 64, 65)] == [
        *(0, 0, 0, 1, 63, 63)
    ]
    assert len(exponential(1, DAY_MS, 1.0001).delays_ms) == 64


@pytest.mark.parametrize(
    ("initial_ms", "max_ms", "multiplier", "delays_ms"),
    [
        (10, 100, 1.0, (10,)),
        (10, 100, 0.5, (10,)),
        (10, 20, 1.5, (10, 15, 20)),
        (10, 100, 1_000.0, (10, 100)),
        (10, 100, 1_001.0, (10,)),
        (10, 20, 2.0, (10, 20)),
        (20, 20, 2.0, (20,)),
        (30, 20, 2.0, (20,)),
        (10, 2 * DAY_MS, 10_000_000.0, (10,)),
        (DAY_MS + 1, 2 * DAY_MS, 2.0, (86_400_000,)),
    ],
)
def test_delays_end_with_the_greatest(initial_ms, max_ms, multiplier, delays_ms):
    assert exponential(initial_ms, max_ms, multiplier).delays_ms == delays_ms


def test_the_defaults_are_those_of_rocketmq_s_proxies():
    assert PRODUCER_DEFAULTS.retry.max_attempts == 3
    assert PRODUCER_DEFAULTS.retry.delays_ms == (10, 20, 40, 80, 160, 320, 640, 1_000)
    assert CONSUMER_DEFAULTS.retry.max_attempts == 17
    seconds = (
        *(1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1_200),
        *(1_800, 3_600, 7_200),
    )
    assert CONSUMER_DEFAULTS.retry.delays_ms == tuple(1_000 * each for each in seconds)
    for each in (PRODUCER_DEFAULTS, CONSUMER_DEFAULTS):
        assert (each.max_body_bytes, each.validate_message_type) == (4_194_304, True)
        assert (each.fifo, each.receive_batch_size) == (False, 32)
        assert each.long_polling_ms == 20_000


@pytest.mark.parametrize(
    ("texts", "target"),
    [
        (["10.0.0.1:8081"], "ipv4:10.0.0.1:8081"),
        (["10.0.0.1:8081", "10.0.0.2:81"], "ipv4:10.0.0.1:8081,10.0.0.2:81"),
        (["[::1]:8081", "[::2]:81"], "ipv6:[::1]:8081,[::2]:81"),
        (["proxy.example:8081"], "dns:///proxy.example:8081"),
    ],
)
def test_endpoints_become_a_target(texts, target):
    assert parse_endpoints(texts).target == target


@pytest.mark.parametrize(
    "texts",
    [
        [],
        ["host"],
        ["a:1", "b:2"],
        ["a:1", "10.0.0.1:2"],
        ["10.0.0.1:2", "a:1"],
        ["10.0.0.1:2", "[::1]:1"],
        ["1.2.3.4:0"],
    ],
)
def test_endpoints_that_cannot_be_are_refused(texts):
    with pytest.raises(ConfigError):
        parse_endpoints(texts)


@pytest.mark.parametrize(
    ("scheme", "host", "port"),
    [
        ("IPv4", "proxy.example", 8081),
        ("IPv4", "::1", 8081),
        ("IPv6", "127.0.0.1", 8081),
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


def test_endpoints_without_an_address_are_refused():
    with pytest.raises(BodyError, match="the proxy states endpoints without an addres"):
        endpoints_of(pb.Endpoints(scheme=pb.AddressScheme.IPv4))


@pytest.mark.parametrize(
    "texts",
    [
        ["10.0.0.1:8081", "10.0.0.2:81"],
        ["[::1]:8081", "[::2]:81"],
        ["proxy.example:8081"],
    ],
)
def test_endpoints_of_a_proxy_come_back_as_they_were(texts):
    ours = parse_endpoints(texts)
    assert endpoints_of(ours.to_protobuf()) == ours
    assert str(ours) == ";".join(texts)


def test_endpoints_have_a_bound():
    message = pb.Endpoints(scheme=pb.AddressScheme.IPv4)
    for _ in range(1_000):
        message.addresses.add(host="10.0.0.1", port=1)
    assert len(endpoints_of(message).addresses) == 64
