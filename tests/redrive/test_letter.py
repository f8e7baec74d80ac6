"""The properties of the message that is sent again, cut and joined as bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqcli.producer.message import record_properties
from rmqcli.redrive.letter import redriven_properties, unique_key
from rmqcli.wire.message.properties import encode_properties, parse_properties

ADDED = b"RMQ_REDRIVEN_FROM\x01broker-a:0:7\x02RMQ_REDRIVEN_TIMES\x011\x02"


@pytest.mark.parametrize("end", [b"\x02", b""])
def test_what_clients_and_brokers_set_is_left_out_and_the_rest_keeps_its_order(end):
    raw = (
        b"RETRY_TOPIC\x01orders\x02KEYS\x01k1 k2\x02UNIQ_KEY\x017F00\x02"
        b"region\x01e\x01u\x02ORIGIN_MESSAGE_ID\x0101\x02TAGS\x01Paid"
    )
    assert redriven_properties(raw + end, "broker-a:0:7") == (
        b"KEYS\x01k1 k2\x02region\x01e\x01u\x02TAGS\x01Paid\x02" + ADDED
    )


def test_a_letter_with_nothing_of_its_producer_has_only_what_names_it():
    assert redriven_properties(b"WAIT\x01true\x02", "broker-a:0:7") == ADDED


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"a\x011\x02a\x012\x02",
        b"a\x01\x02",
        b"\x011\x02",
        b"a\x02",
        b"a\x011\x02\x02b\x012",
        "a\x01ü\x02".encode(),
        b"RMQ_REDRIVEN_TIMES\x011\x02",
        b"RMQ_REDRIVEN_FROM\x01broker-a:0:1\x02",
    ],
)
def test_properties_that_do_not_mean_what_they_say_are_left_to_the_general_rules(raw):
    assert redriven_properties(raw, "broker-a:0:7") is None


def test_the_id_is_one_more_property():
    assert unique_key("7F00") == b"UNIQ_KEY\x017F00\x02"


@given(
    st.lists(
        st.sampled_from(
            ["a", "", "KEYS", "WAIT", "RETRY_TOPIC", "\x01", "\x02", "v w", "ü"]
        ),
        max_size=12,
    )
)
def test_the_fast_way_and_the_general_rules_agree(pieces):
    raw = "".join(pieces).encode()
    fast = redriven_properties(raw, "broker-a:0:7")
    if fast is not None:
        given = record_properties(parse_properties(raw).items(), tags=None, keys=None)
        given["RMQ_REDRIVEN_FROM"] = "broker-a:0:7"
        given["RMQ_REDRIVEN_TIMES"] = "1"
        assert fast == encode_properties(given).encode()
