"""Filters of real brokers beside the same filters here, over values that are hard.

A broker goes by the hashes of tags, and by its own reading of numbers.
"""

from __future__ import annotations

import io
import json
import random
from contextlib import redirect_stderr, redirect_stdout

import pytest

from rmqcli import Producer, ProducerMessage
from rmqcli.broker.filter.sql92 import compile_sql92
from rmqcli.cli.main import run

pytestmark = [pytest.mark.java, pytest.mark.real_only]

#: "Aa" and "BB" have the same hash; that of "f5a5a608" is 0, as without a tag.
TAGS = (
    *("Aa", "BB", "aa", "A", " A", "A ", "A B", "A||B", "*", "f5a5a608", "a'b", "-1"),
    *("\u8ba2\u5355", "\uff21", "\U0001f600"),
)
VALUES = (
    *("10", "9", "010", "+3", "-0", "1.50", "1e3", " 5", "0x10", "1_0", "NaN"),
    *("Infinity", "99999999999999999999", "true", "TRUE", "null", "it's", '"q"'),
    *("\u0663", "\U0001d7db", "\xe9"),
)
NUMBERS = ("10", "9", "1e3", "3", "0", "-0", "1.5", "010", "1L", "1000.0")


def literal(text):
    return "'" + text.replace("'", "''") + "'"


def conditions(draw):
    """Yield conditions of SQL92 on the tag and the property `n` of a message."""
    texts = [*TAGS, *VALUES]
    while True:
        name = draw.choice(["n", "n", "TAGS"])
        word = draw.choice(["", "NOT "])
        low, high = sorted(draw.sample([0, 3, 9, 10, 1_000], 2))
        sign = draw.choice(["=", "<>", ">", ">=", "<", "<="])
        several = ", ".join(map(literal, draw.sample(texts, 3)))
        one = draw.choice(
            [
                f"{name} {sign} {draw.choice(NUMBERS)}",
                f"{name} {draw.choice(['=', '<>'])} {literal(draw.choice(texts))}",
                f"{name} IS {word}NULL",
                f"{name} {word}IN ({several})",
                f"{name} {word}BETWEEN {low} AND {high}",
                f"{name} = {draw.choice(['TRUE', 'FALSE'])}",
            ]
        )
        yield one
        yield f"({one}) {draw.choice(['AND', 'OR'])} {word}(n > 5)"


def test_brokers_choose_what_is_chosen_here(real_cluster):
    draw = random.Random(20)
    topic = real_cluster.create_topic(queues=2)
    with Producer(namesrv=real_cluster.namesrv) as producer:
        for value in (None, *VALUES):
            for tag in (None, *draw.sample(TAGS, 3)):
                properties = {} if value is None else {"n": value}
                producer.send(
                    ProducerMessage(topic, b"x", tags=tag, properties=properties)
                )
        for tag in TAGS:
            producer.send(ProducerMessage(topic, b"x", tags=tag))

    def chosen(*words):
        out, err = io.StringIO(), io.StringIO()
        whole = ["tail", topic, "--from", "earliest", "--to", "latest", *words]
        with redirect_stdout(out), redirect_stderr(err):
            code = run([*whole, "-n", real_cluster.namesrv, "-o", "jsonl"])
        assert code == 0, (words, err.getvalue())
        return [json.loads(line) for line in out.getvalue().splitlines()]

    everything = chosen()
    assert len(everything) == 4 * (1 + len(VALUES)) + len(TAGS)
    for tag in TAGS:
        of_tag = [each for each in everything if each["tags"] == tag]
        assert chosen("--where", f"tags = {literal(tag)}") == of_tag
        wanted = {each.strip() for each in tag.split("||")}
        of_tag = [each for each in everything if each["tags"] in wanted or tag == "*"]
        assert chosen("--tag", tag) == of_tag
    for _, text in zip(range(60), conditions(draw), strict=False):
        condition = compile_sql92(text)
        if condition is not None:
            expected = [each for each in everything if condition(each["properties"])]
            assert chosen("--sql", text) == expected, text
