"""fastjson's dialect is read as in four releases, and nonsense at linear cost."""

from __future__ import annotations

import contextlib
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqcli.errors import BodyError
from rmqcli.model import MessageQueue
from rmqcli.wire import fastjson
from rmqcli.wire.fastjson import ObjectKey
from rmqcli.wire.fastjson_reader import DEPTH_MAX, TolerantReader
from tests.golden_vectors import load
from tests.kit.rows import each_row

QUEUE = '{"brokerName":"b-a","queueId":0,"topic":"T"}'
BODIES = load("bodies")
ACCEPTED = load("bodies-accepted")


def normal(value: object) -> object:
    """Normalize: maps with object keys become sorted lists of [key, value]; no nulls.

    Lists are sorted, too, because the vectors do not say which of them were sets.
    """
    if isinstance(value, dict):
        if any(isinstance(key, ObjectKey) for key in value):
            return normal([[key.value, item] for key, item in value.items()])
        kept = {k: normal(v) for k, v in value.items() if v is not None}
        return dict(sorted(kept.items()))
    if isinstance(value, list):
        return sorted(map(normal, value), key=repr)
    return float(value) if type(value) is int else value


@pytest.mark.parametrize("version", ["4.6.0", "4.9.7", "5.3.3", "5.5.0"])
def test_bodies_of_java_are_read(version):
    """They have every body class, also in the indented form of configuration files."""
    cases = [case for case in BODIES if case["rocketmq"] == version]
    assert len(cases) > 50

    for case in cases:
        value = fastjson.loads(case["text"].encode())
        assert normal(value) == normal(case["expected"]), case["name"]
        again = fastjson.loads(fastjson.dumps(value))
        assert normal(again) == normal(value)


def test_texts_that_some_version_reads_are_read():
    """Texts that no version reads raise BodyError, except for one form."""
    ours = {"list form"}  # ResetOffsetBodyForC, which is another class
    names = {case["name"] for case in ACCEPTED}
    for name in names:
        cases = [case for case in ACCEPTED if case["name"] == name]
        for text in {case["text"] for case in cases}:
            if any(c["accepted"] for c in cases if c["text"] == text) or name in ours:
                assert isinstance(fastjson.loads(text.encode()), dict)
            else:
                with pytest.raises(BodyError):
                    fastjson.loads(text.encode())


@each_row(
    ("text", "value"),
    [
        ('{0:"a",-1:"b"}', {"0": "a", "-1": "b"}),
        ('{0:5,1:{2:"x"}}', {"0": 5, "1": {"2": "x"}}),
        ("{0:5,}", {"0": 5}),
        ("{0 : 5 , 1 : 6}", {"0": 5, "1": 6}),
        ("{a:1,'b':2,\"c\":3}", {"a": 1, "b": 2, "c": 3}),
        (r"""{'a\'b"c\n':'\u0041\\'}""", {"a'b\"c\n": "A\\"}),
        ("[1,,2,]", [1, 2]),
        ("{,}", {}),
        ('\ufeff{"a":1}', {"a": 1}),
        ('{/* } */"a"/**/:/*:*/1}// end', {"a": 1}),
        ('{"a":NaN,b:undefined}', {"a": None, "b": None}),
        (
            "{a:1.5,b:-0.5e3,c:+7,d:.5,e:1.}",
            {"a": 1.5, "b": -500.0, "c": 7, "d": 0.5, "e": 1.0},
        ),
        ("{a:true,b:false,c:null}", {"a": True, "b": False, "c": None}),
        ('{"a":1,"a":2}', {"a": 2}),
        ('{"a":"x\ty\x01"}', {"a": "x\ty\x01"}),
        ('{"$ref":"$"}', {"$ref": "$"}),
        ('{"T@g{0:1}":{0:5}}', {"T@g{0:1}": {"0": 5}}),
        ("5", 5),
        (' "x" ', "x"),
    ],
)
def test_sloppy_forms(text, value):
    """fastjson 1.2 reads them in the same way."""
    assert fastjson.loads(text) == value
    assert fastjson.loads(text.encode()) == value


@each_row(
    "text",
    [
        *("", " ", "{", "}", "[", "]", ":", ",", "{:1}", '{"a"}', '{"a":}', '{"a" 1}'),
        *('{"a":1 "b":2}', "[1 2]", '{"a":1]', "[1}", '{"a":b}', '{"a":1} x', "nul"),
        *('{"a":"x', "{'a:1}", "{a:'x}", "{/* x", "{/", "'", '"\\', '{"a":"\\u12"}'),
        *("{{}", "{{}:", "{{}:}", "{{{}:1}:2}", '{{"a":{{}:1}}:2}', "{[]:1}", "0:5"),
        *("{0:5}1:6}", "{0:5}}", "{1:" + "9" * 5000 + "}", '{"a":' + "9" * 5000 + "}"),
    ],
)
def test_nonsense_is_a_body_error(text):
    """The messages are short, and say where the error is."""
    with pytest.raises(BodyError) as caught:
        fastjson.loads(text)
    assert len(caught.value.message) < 200


def test_object_keys_hold_their_object():
    """A key is compact JSON in the order in which it was written, with its object."""
    data = fastjson.loads(
        f'{{"t":{{{QUEUE}:5, {{ "queueId" : 1 }} : {{0:7}}, {{a:[1]}}:6}}}}'
    )
    assert isinstance(data, dict)
    table = data["t"]
    assert isinstance(table, dict)

    first, second, third = table
    assert (first, second, third) == (QUEUE, '{"queueId":1}', '{"a":[1]}')
    assert isinstance(first, ObjectKey)
    assert first.value == {"brokerName": "b-a", "queueId": 0, "topic": "T"}
    assert list(table.values()) == [5, {"0": 7}, 6]


def test_dumps_writes_object_keys_raw():
    """4.6.0 and 5.5.0 refuse object keys that are quoted."""
    queue = MessageQueue('T"x', "b-a", 3)
    text = fastjson.dumps(
        {"offsetTable": {queue: 5, ObjectKey("{}"): None}, 7: [queue]}
    )

    assert text == (
        '{"offsetTable":{{"brokerName":"b-a","queueId":3,"topic":"T\\"x"}:5,{}:null},'
        '"7":[{"brokerName":"b-a","queueId":3,"topic":"T\\"x"}]}'
    )


def test_dumps_writes_what_json_has_not_as_java_does():
    """NaN becomes null, and a lone surrogate becomes an escape."""
    value = {"a": float("nan"), "b": [True, None, 1.5, ()], "c": "é\ud800", "d": {}}

    assert fastjson.dumps(value) == (
        '{"a":null,"b":[true,null,1.5,[]],"c":"\\u00e9\\ud800","d":{}}'
    )
    with pytest.raises(TypeError):
        fastjson.dumps({1, 2})


TABLE = "{" + QUEUE + ':{"brokerOffset":1,"x":"}{:,\\""},' + QUEUE + ":{}}"


@pytest.mark.parametrize(
    "text",
    [
        TABLE,
        '{"offsetTable":{"T@g":{0:5,1:6},\'a\':{/*x*/2:"y"}},"n":[1,{"a":null}]}',
        fastjson.dumps({"x": ["é😀", 1.5, {"y": True}]}),
    ],
)
def test_a_body_cut_anywhere_is_a_body_error(text):
    """After no character is the text taken for complete or another error raised."""
    fastjson.loads(text)
    for end in range(len(text)):
        with pytest.raises(BodyError):
            fastjson.loads(text[:end])


DEEP = 10_000


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("[" * DEEP, id="lists, open"),
        pytest.param("[" * DEEP + "]" * DEEP, id="lists, closed"),
        pytest.param('{"a":' * DEEP, id="objects"),
        pytest.param("{a:" * DEEP + "1" + "}" * DEEP, id="bare keys"),
        pytest.param("{" * DEEP, id="object keys"),
        pytest.param("{{}:" * DEEP + "1" + "}" * DEEP, id="object keyed values"),
        pytest.param("{{{}:{}}}".format(QUEUE, "[" * DEEP), id="under an object key"),
        pytest.param("'" * DEEP, id="quotes"),
        pytest.param("/*" * DEEP, id="comments"),
    ],
)
def test_deep_nesting_is_a_body_error(text):
    """It is never a RecursionError."""
    with pytest.raises(BodyError):
        fastjson.loads(text)
    with pytest.raises(BodyError):
        fastjson.loads(text.encode())


def test_what_the_tolerant_reader_takes_can_be_nested():
    """The depth may be DEPTH_MAX, but not greater."""
    inner = DEPTH_MAX - 1
    fastjson.loads("{a:" + "[" * inner + "]" * inner + "}")
    with pytest.raises(BodyError):
        fastjson.loads("{a:" + "[" * (inner + 1) + "]" * (inner + 1) + "}")


def test_dumps_of_a_deep_value_is_a_body_error():
    """The strict reader may have accepted a header's extension value of any depth."""
    value: object = 1
    for _ in range(5000):
        value = [value]
    with pytest.raises(BodyError):
        fastjson.dumps(value)


#: Pieces that an attacker may repeat. The cost per byte must not depend on the length.
REPEATED = {
    "object keys": ('{"t":{', QUEUE + ":5,", "}}"),
    "object keys, then a fault": ('{"t":{', QUEUE + ':{0:"x"},', ""),
    "object keys that fail": ("{", QUEUE + ":{a:1},", "}"),
    "number keys": ("{", "0:5,", "}"),
    "number keys with lists": ("{", "0:[],", "}"),
    "strings never closed": ("{", "\"a':", ""),
    "single quotes": ("{", "'a\\'':'\"',", "}"),
    "escapes": ("{a:'", "\\n", "'}"),
    "escapes, not closed": ("{a:'", "\\n", ""),
    "comments": ("{", "/**/", "}"),
    "comments, not closed": ("{", "/* *", ""),
    "line comments": ("{", "//\n", "}"),
    "blanks": ("{", " ", "a:1}"),
    "commas": ("{a:1", ",", "}"),
    "words": ("{a:[", "true,", "]}"),
    "digits": ("{", "1", ":1}"),
    "long string": ('{a:"', "x", '"}'),
    "closed at once": ("[", "[]," + "{},", "]"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(REPEATED))
def test_time_is_linear_in_the_input(name):
    """Ten times the input takes about ten times the CPU time, not a hundred times."""
    start, part, end = REPEATED[name]

    def cost(size: int) -> float:
        text = start + part * (size // len(part)) + end
        best = float("inf")
        for _ in range(3):
            began = time.thread_time()
            with contextlib.suppress(BodyError):
                fastjson.loads(text)
            best = min(best, time.thread_time() - began)
        return best

    small, large = cost(10_000), cost(100_000)
    assert large < 50 * small + 0.1


def test_a_body_of_100_megabytes_is_read_or_refused():
    """The body is larger than any frame; the parser must just not hang or crash."""
    text = '{"t":{' + ",".join([QUEUE + ':"' + "x" * 1_000_000 + '"'] * 100)
    data = fastjson.loads(text + "}}")
    assert isinstance(data, dict)
    with pytest.raises(BodyError):
        fastjson.loads(text)


KEYS = st.text(max_size=5)
QUEUES = st.builds(MessageQueue, KEYS, KEYS, st.integers(0, 99))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | KEYS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(KEYS, inner, max_size=4)
        | st.dictionaries(QUEUES, inner, max_size=4)
    ),
    max_leaves=15,
)


def plain(value: object) -> object:
    """Return `value` as `loads` returns it: keys that are queues become their JSON."""
    if isinstance(value, dict):
        return {
            fastjson.dumps(k) if isinstance(k, MessageQueue) else k: plain(v)
            for k, v in value.items()
        }
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return None
    return [plain(item) for item in value] if isinstance(value, list) else value


@given(VALUES)
def test_what_is_written_is_read_the_same(value):
    """This is a round trip, including object keys."""
    assert fastjson.loads(fastjson.dumps(value)) == plain(value)


@given(st.recursive(KEYS | st.integers() | st.none(), st.lists, max_leaves=9))
def test_the_tolerant_reader_agrees_with_the_strict_one(value):
    """Both give the same value for strict JSON."""
    text = json.dumps({"a": value, "b": [value]})

    assert TolerantReader(text).read() == json.loads(text)


@given(st.text(alphabet="{}[]:,\"'\\/* \n01.-+eaNtrue\ufeff", max_size=40))
def test_random_text_raises_only_body_error(text):
    """A value that is accepted can be written again."""
    try:
        value = fastjson.loads(text)
    except BodyError:
        return
    fastjson.dumps(value)


@given(st.binary(max_size=60))
def test_random_bytes_raise_only_body_error(data):
    """A peer may send any bytes."""
    try:
        fastjson.loads(data)
    except BodyError:
        return


@given(st.data())
def test_a_damaged_body_raises_only_body_error(data):
    """One to three characters of a real body are changed."""
    text = list(data.draw(st.sampled_from(BODIES))["text"])
    for _ in range(data.draw(st.integers(1, 3))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(
            st.sampled_from("{}[]:,\"'0\\")
        )
    try:
        fastjson.loads("".join(text))
    except BodyError:
        return
