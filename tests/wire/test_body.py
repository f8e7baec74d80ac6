"""The mapper of JSON bodies reads and writes bodies as they are declared."""

from __future__ import annotations

from dataclasses import field

import pytest

from rmqcli.errors import BodyError
from rmqcli.model import MessageQueue
from rmqcli.wire.body import (
    Body,
    decode_body,
    encode_body,
    from_json,
    json_object,
)
from rmqcli.wire.fields import declared, wire_field
from tests.kit.rows import each_row


@declared
class Item(Body):
    """An element of a table."""

    item_name: str
    count: int = 0


@declared
class Everything(Body):
    """A field of each kind."""

    must_be: int
    client_id: str = wire_field("clientID", default="", also="clientId")
    flag: bool = True
    rate: float | None = None
    anything: object = None
    kind: str | None = wire_field(default="TAG", absent=None)
    quiet: bool = wire_field(default=False, is_sent_at_default=False)
    items: tuple[Item, ...] = ()
    names: frozenset[str] = frozenset()
    by_id: dict[int, str] = field(default_factory=dict)
    by_queue: dict[MessageQueue, Item] = field(default_factory=dict)
    by_name: dict[str, Item] = wire_field(default_factory=dict, key="itemName")
    nested: dict[str, dict[MessageQueue, int]] | None = None


@declared
class Open(Body):
    """A body whose unknown fields are kept."""

    name: str
    size: int = 4
    raw: dict[str, object] = wire_field(default_factory=dict, holds_the_rest=True)


QUEUE = MessageQueue("T", "b", 3)
QUEUE_TEXT = '{"brokerName":"b","queueId":3,"topic":"T"}'


def test_absent_fields_are_what_is_declared():
    found = decode_body(Everything, '{"mustBe":1}')

    assert found == Everything(must_be=1, kind=None)
    assert found.by_id is not decode_body(Everything, '{"mustBe":1}').by_id


def test_null_is_absent_and_unknown_keys_are_ignored():
    found = decode_body(
        Everything,
        '{"mustBe":1,"flag":null,"rate":null,"items":[null],"byId":{1:null},"new":[1]}',
    )

    assert found == Everything(must_be=1, kind=None)


def test_a_field_without_a_default_must_be_there():
    for text in ("{}", '{"mustBe":null}'):
        with pytest.raises(BodyError, match="Everything: mustBe is missing"):
            decode_body(Everything, text)


@each_row(
    ("given", "name", "value"),
    [
        ('"mustBe":"5"', "must_be", 5),
        ('"mustBe":5.0', "must_be", 5),
        ('"mustBe":1,"clientID":7', "client_id", "7"),
        ('"mustBe":1,"clientId":"c"', "client_id", "c"),
        ('"mustBe":1,"clientID":"a","clientId":"c"', "client_id", "a"),
        ('"mustBe":1,"flag":"FALSE"', "flag", False),
        ('"mustBe":1,"flag":0', "flag", False),
        ('"mustBe":1,"rate":2', "rate", 2.0),
        ('"mustBe":1,"rate":NaN', "rate", None),
        (f'"mustBe":1,"rate":"1{"0" * 40}"', "rate", 1e40),
        ('"mustBe":1,"anything":[{"a":1}]', "anything", [{"a": 1}]),
        ('"mustBe":1,"names":["a","a",null]', "names", frozenset(("a",))),
        ('"mustBe":1,"byId":{0:"a","12":"b"}', "by_id", {0: "a", 12: "b"}),
    ],
)
def test_values_are_read_as_fastjson_reads_them(given, name, value):
    assert getattr(decode_body(Everything, f"{{{given}}}"), name) == value


@each_row(
    ("given", "fault"),
    [
        ('"mustBe":true', "mustBe is not a 64-bit integer: True"),
        ('"mustBe":9223372036854775808', "mustBe is not a 64-bit integer: "),
        ('"mustBe":"1_0"', "mustBe is not a 64-bit integer: '1_0'"),
        ('"mustBe":1,"clientID":[]', "clientID is not text: a list"),
        ('"mustBe":1,"flag":{}', "flag is not true or false: an object"),
        ('"mustBe":1,"rate":"x"', "rate is not a number: 'x'"),
        ('"mustBe":1,"rate":"1_0"', "rate is not a number: '1_0'"),
        (f'"mustBe":1,"rate":"1{" " * 40}x"', "rate is not a number: '1 "),
        ('"mustBe":1,"items":{}', "items is not a list: an object"),
        ('"mustBe":1,"items":[5]', "items is not an object: 5"),
        ('"mustBe":1,"items":[{}]', "itemName is missing"),
        ('"mustBe":1,"byId":{"x":"a"}', "byId is not a 64-bit integer"),
        ('"mustBe":1,"byQueue":{"x":{}}', "byQueue has the key 'x'"),
        (
            f'"mustBe":1,"byQueue":{{{QUEUE_TEXT}:{{"$ref":"$"}}}}',
            "byQueue is a reference where an object is expected",
        ),
    ],
)
def test_an_impossible_value_is_an_error_that_names_the_field(given, fault):
    with pytest.raises(BodyError) as caught:
        decode_body(Everything, f"{{{given}}}")

    assert caught.value.message.startswith(f"Everything: {fault}")


def test_tables_are_read_by_queue_and_by_name():
    found = decode_body(
        Everything,
        f'{{"mustBe":1,"byQueue":{{{QUEUE_TEXT}:{{"itemName":"q"}}}},'
        '"byName":{"a":{"count":2},"b":{"itemName":"own"}},'
        f'"nested":{{"c":{{{QUEUE_TEXT}:9}}}}}}',
    )

    assert found.by_queue == {QUEUE: Item(item_name="q")}
    assert found.by_name == {
        "a": Item(item_name="a", count=2),
        "b": Item(item_name="own"),
    }
    assert found.nested == {"c": {QUEUE: 9}}


def test_a_body_is_written_with_sorted_keys_and_without_what_is_none():
    value = Everything(
        must_be=1,
        client_id="c",
        kind=None,
        items=(Item(item_name="i", count=2),),
        names=frozenset("ba"),
        by_id={7: "x"},
        by_queue={QUEUE: Item(item_name="q")},
    )
    text = (
        '{"byId":{%s:"x"},"byName":{},"byQueue":{' + QUEUE_TEXT + ":"
        '{"count":0,"itemName":"q"}},"clientID":"c","flag":true,'
        '"items":[{"count":2,"itemName":"i"}],"mustBe":1,"names":["a","b"]}'
    )

    assert encode_body(value).decode() == text % '"7"'
    assert encode_body(value, bare_numbers=True).decode() == text % "7"
    assert decode_body(Everything, encode_body(value)) == value


def test_a_field_that_is_not_sent_at_its_default_is_sent_otherwise():
    assert "quiet" not in json_object(Everything(must_be=1))
    assert json_object(Everything(must_be=1), with_defaults=True)["quiet"] is False
    assert json_object(Everything(must_be=1, quiet=True))["quiet"] is True


def test_unknown_fields_are_written_back_where_the_class_keeps_them():
    found = from_json(Open, {"new": [1], "name": "n", "size": 4})

    assert json_object(found) == {"new": [1], "name": "n", "size": 4}
    assert json_object(Open(name="n")) == {"name": "n"}
    assert json_object(Open(name="n", size=5)) == {"name": "n", "size": 5}


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("", "Item: the body is empty"),
        ("[]", "Item: the body is not an object: a list"),
        ("{", "Item: JSON ends at character 1"),
    ],
)
def test_what_is_no_object_is_an_error_that_names_the_body(body, fault):
    with pytest.raises(BodyError) as caught:
        decode_body(Item, body)

    assert caught.value.message.startswith(fault)
