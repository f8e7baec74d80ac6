"""Every option is parsed as documented, or the error names it."""

from __future__ import annotations

import pickle
import re

import pytest

from rmqcli.errors import RmqError, UsageError
from rmqcli.model import MessageQueue
from rmqcli.position import AtOffset, AtTime, Earliest, LastN, Latest
from rmqcli.spark.options import KAFKA_NAMES
from rmqcli.spark.shown_errors import with_hints
from rmqcli.spark.source.options import NAMES, default_start, parse_options
from rmqcli.spark.source.subscription import Subscription
from tests.kit.documents import text_of
from tests.kit.rows import each_row


def parsed(**options):
    return parse_options({"subscribe": "orders", **options}, environ={})


def test_defaults_are_those_of_kafka_s_source():
    options = parsed()
    assert options.subscription == Subscription(topics=("orders",))
    assert options.connection.config.namesrv == ("127.0.0.1:9876",)
    assert (options.start.others, options.end.others) == (None, None)
    assert default_start(is_stream=False) == Earliest()
    assert default_start(is_stream=True) == Latest()
    assert options.fail_on_data_loss
    assert options.with_properties
    assert options.with_body
    assert options.partitions_min is None
    assert options.tags == frozenset()
    options.check(is_stream=False)
    options.check(is_stream=True)


def test_names_ignore_case_and_lists_their_spaces():
    options = parse_options(
        {"SUBSCRIBE": "a , b", "failondataloss": "FALSE", "tag": "x || y"}, environ={}
    )
    assert options.subscription.topics == ("a", "b")
    assert not options.fail_on_data_loss
    assert options.tags == frozenset("xy")


def test_name_servers_come_from_the_option_then_from_the_environment():
    environ = {"NAMESRV_ADDR": "c:3"}
    subscribe = {"subscribe": "orders"}
    assert parse_options(subscribe, environ=environ).connection.config.namesrv == (
        "c:3",
    )
    both = {**subscribe, "namesrv": "a:1;b:2"}
    assert parse_options(both, environ=environ).connection.config.namesrv == (
        "a:1",
        "b:2",
    )


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("earliest", Earliest()),
        ("latest", Latest()),
        ("-100", LastN(100)),
        ("12345", AtOffset(12345)),
    ],
)
def test_offsets_are_positions_of_the_command_line(text, position):
    assert parsed(startingOffsets=text).start.others == position
    assert parsed(endingOffsets=text).end.others == position


def test_offsets_may_be_json_for_each_queue():
    text = '{"orders": {"broker-a": {"0": 23, "1": "latest"}}}'
    assert parsed(startingOffsets=text).start.own == {
        MessageQueue("orders", "broker-a", 0): AtOffset(23),
        MessageQueue("orders", "broker-a", 1): Latest(),
    }


@pytest.mark.parametrize("text", ["1767322800000", "2026-01-02T03:00:00Z"])
def test_timestamps_are_milliseconds_or_rfc_3339(text):
    position = parsed(startingTimestamp=text).start.others
    assert isinstance(position, AtTime)
    assert position.epoch_ms == 1767322800000


def test_tls_follows_from_its_parts():
    assert parsed().connection.config.tls is None
    tls = parsed(tlsCa="ca.pem", tlsServerName="broker").connection.config.tls
    assert (tls.ca_file, tls.server_hostname, tls.insecure) == (
        "ca.pem",
        "broker",
        False,
    )
    assert parsed(tls="true").connection.config.tls is not None


def test_workers_get_the_address_map_with_the_options():
    options = parsed(addressMap="a:1=b:2, c=d")
    config = pickle.loads(pickle.dumps(options)).client_config()
    assert config.address_map == (("a:1", "b:2"), ("c", "d"))


def test_credentials_are_read_where_they_are_used(tmp_path):
    path = tmp_path / "acl.toml"
    options = parsed(aclFile=str(path))
    path.write_text('access_key = "reader"\nsecret_key = "s3cret-of-tests"\n')
    path.chmod(0o600)
    assert options.client_config().credentials.access_key == "reader"
    assert b"s3cret-of-tests" not in pickle.dumps(options)


@each_row(
    ("options", "message", "hint"),
    [
        (
            {"startingOffset": "earliest"},
            "option startingOffset does not exist",
            "did you mean startingOffsets?",
        ),
        (
            {"kafka.Bootstrap.servers": "h:9092"},
            "option kafka.Bootstrap.servers does not exist",
            "here it is option namesrv",
        ),
        ({"path": "/x"}, "load does not accept a path", "subscribe"),
        ({"subscribe": "a b"}, "option subscribe: 'a b' is not a valid", ""),
        ({"subscribe": "a,a"}, "option subscribe: topic a is named twice", ""),
        ({"subscribe": " "}, "option subscribe is empty", ""),
        ({"failOnDataLoss": "no"}, "option failOnDataLoss: 'no' is neither true", ""),
        ({"minPartitions": "0"}, "option minPartitions: '0' is not a positive", ""),
        ({"maxRecordsPerPartition": "1k"}, "option maxRecordsPerPartition: '1k'", ""),
        ({"startingOffsets": "first"}, "option startingOffsets: 'first'", "earliest"),
        ({"startingTimestamp": "monday"}, "option startingTimestamp: '@monday'", ""),
        ({"startingTimestamp": "1767322800"}, "looks like seconds", "000"),
        (
            {"startingOffsets": "earliest", "startingTimestamp": "1767322800000"},
            "options startingOffsets and startingTimestamp cannot be used together",
            "leave one of them out",
        ),
        ({"startingOffsets": "{"}, "option startingOffsets: not JSON", ""),
        ({"endingOffsets": '{"x": {}}'}, "topic x is not among orders", ""),
        ({"endingOffsets": '{"orders": {"b": 5}}'}, "5 of orders b is not a JSON", ""),
        ({"endingOffsets": '{"orders": 1.5}'}, "1.5 of orders is not an offset", ""),
        (
            {"startingOffsets": '{"orders": {"b": {"0": 1, "0": 2}}}'},
            "option startingOffsets: '0' is named twice",
            "",
        ),
        (
            {"startingOffsets": '{"orders": {"b": {"0": 1, "00": 2}}}'},
            "option startingOffsets: queue orders@b:0 is named twice",
            "",
        ),
        (
            {"startingOffsets": '{"orders": {}, "orders": {}}'},
            "option startingOffsets: 'orders' is named twice",
            "",
        ),
        (
            {"startingOffsets": '{"orders": ' + "[" * 100_000},
            "option startingOffsets: JSON that is nested too deeply",
            "",
        ),
        (
            {"startingOffsetsByTimestamp": '{"orders": 17e11}'},
            "of orders is not a time in ms or RFC 3339",
            "",
        ),
        (
            {"startingOffsetsByTimestamp": '{"orders": 5}', "startingOffsets": "5"},
            "options startingOffsets and startingOffsetsByTimestamp cannot be used",
            "leave one of them out",
        ),
        (
            {"startingOffsetsByTimestampStrategy": "error"},
            "startingOffsetsByTimestampStrategy needs startingTimestamp or",
            "",
        ),
        (
            {
                "startingOffsetsByTimestampStrategy": "none",
                "startingTimestamp": "1767322800000",
            },
            "option startingOffsetsByTimestampStrategy: 'none' is neither",
            "",
        ),
        (
            {"subscribePattern": ".*"},
            "options subscribe and subscribePattern cannot be used together",
            "leave one of them out",
        ),
        ({"tag": "A && B"}, "option tag: 'A && B' is not a list of tags", "||"),
        ({"tag": "A || !B"}, "option tag: 'A || !B' is not a list of tags", "||"),
        ({"tag": "A | B"}, "option tag: 'A | B' is not a list of tags", "||"),
        ({"tag": "not A"}, "option tag: 'not A' is not a list of tags", "||"),
        ({"tag": "TAGS = 'A'"}, "is not a list of tags", "||"),
        ({"timeout": "0s"}, "option timeout: '0s' must be greater than 0", ""),
        ({"retryInterval": "0ms"}, "option retryInterval: '0ms' must be greater", ""),
        ({"maxTriggerDelay": "5s"}, "maxTriggerDelay needs minOffsetsPerTrigger", ""),
        ({"minOffsetsPerTrigger": "0"}, "option minOffsetsPerTrigger: '0' is not", ""),
        (
            {"endingOffsets": '{"orders": {"b": {"0": -1}}}'},
            '-1 of orders@b:0 is not an offset; for Kafka\'s -1 write "latest"',
            "",
        ),
        ({"endingOffsets": '{"orders": {"b": {"x": 1}}}'}, "'x' is not a queue id", ""),
        ({"aclFile": "-"}, "option aclFile cannot be stdin", "every worker"),
        ({"tls": "false", "tlsCa": "f"}, "option tlsCa contradicts tls=false", ""),
        ({"tlsKey": "k"}, "option tlsKey needs tlsCert", ""),
        ({"timeout": "soon"}, "option timeout: 'soon'", ""),
        ({"commitGroup": "a b"}, "option commitGroup: 'a b' is not a valid", ""),
        ({"namesrv": ";"}, "namesrv is ';': no name server in it", ""),
    ],
)
def test_a_wrong_option_is_refused_by_its_name(options, message, hint):
    with pytest.raises(RmqError) as caught:
        parsed(**options)
    assert message in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribePattern": "("}, "'(' is not a regular expression"),
        ({"assign": "orders"}, "option assign: not JSON"),
        ({"assign": "{}"}, "option assign: names no queue"),
        ({"assign": '{"orders": [0]}'}, "[0] of orders is not a JSON object"),
        ({"assign": '{"orders": {"b": 0}}'}, "0 of orders b is not a list"),
        ({"assign": '{"orders": {"b": [0, "0"]}}'}, "orders@b:0 is named twice"),
        ({"assign": '{"orders": {"b": [true]}}'}, "True is not a queue id"),
        (
            {
                "assign": '{"orders": {"b": [0]}}',
                "startingOffsets": '{"orders": {"b": {"1": 5}}}',
            },
            "queue orders@b:1 is not among orders@b:0",
        ),
    ],
)
def test_a_wrong_choice_of_queues_is_refused_by_its_name(options, message):
    with pytest.raises(UsageError) as caught:
        parse_options(options, environ={})
    assert message in caught.value.message


def test_positions_may_be_given_for_a_topic_and_for_single_queues():
    text = '{"orders": {"b": {"1": "-5"}}, "paid": "earliest"}'
    start = parsed(subscribe="orders,paid", startingOffsets=text).start
    assert start.of(MessageQueue("orders", "b", 1)) == LastN(5)
    assert start.of(MessageQueue("orders", "b", 0)) is None
    assert start.of(MessageQueue("paid", "b", 0)) == Earliest()


def test_subscribe_is_required():
    with pytest.raises(UsageError, match="option subscribe is missing"):
        parse_options({}, environ={})


@pytest.mark.parametrize(
    "name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"]
)
def test_a_stream_refuses_options_of_batches(name):
    value = {"endingOffsets": "latest", "endingOffsetsByTimestamp": '{"orders": 0}'}
    options = parsed(**{name: value.get(name, "1767322800000")})
    with pytest.raises(UsageError, match=f"option {name} is for read, not"):
        options.check(is_stream=True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("commitGroup", "g"),
        ("maxOffsetsPerTrigger", "9"),
        ("minOffsetsPerTrigger", "9"),
    ],
)
def test_a_batch_refuses_options_of_streams(name, value):
    with pytest.raises(UsageError, match=f"option {name} is for readStream"):
        parsed(**{name: value}).check(is_stream=False)


def test_the_guide_describes_every_option():
    text = text_of("dataframes").partition("## Options")[2]
    assert [name for name in NAMES if f"`{name}`" not in text] == []


def test_the_guide_names_kafka_s_option_beside_each_that_has_another_name():
    """A user of Kafka's source who writes its name is told ours."""
    options = text_of("dataframes").partition("## Options")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(.*?)` \|.*?\|(.*?)\|", options, re.MULTILINE)
    beside = {
        kafka: ours
        for ours, cell in rows
        for kafka in re.findall(r"`([a-zA-Z.]+)`", cell)
        if kafka != "error"
    }
    assert beside == KAFKA_NAMES


def test_what_spark_shows_ends_with_the_message_and_the_hint():
    with pytest.raises(UsageError) as caught, with_hints():
        raise UsageError("it is wrong", hint="make it right")
    assert str(caught.value) == "it is wrong\nhint: make it right"
    assert caught.value.message == "it is wrong"
