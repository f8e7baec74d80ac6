"""The rules of what must not leave."""

from __future__ import annotations

from contextlib import closing

import pytest

from rmqcli.errors import ConfigError
from rmqcli.mcp.redact import make_rules, read_rules


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("authToken", "hunter2", "[redacted]"),
        ("AUTHTOKEN", "hunter2", "[redacted]"),
        ("token", "", "[redacted]"),
        ("shop", "card 4111111111111111!", "card [redacted]!"),
        ("shop", "12345", "12345"),
    ],
)
def test_properties_are_hidden_by_name_and_by_pattern(name, value, shown):
    with closing(make_rules(["*token"], [r"\b\d{16}\b"])) as rules:
        assert rules.property_value(name, value) == shown


def test_every_match_is_hidden():
    with closing(make_rules([], ["secret-[a-z]+", "(?i)pin=[0-9]{4}"])) as rules:
        assert rules.text("secret-a b PIN=1234 secret-c") == (
            "[redacted] b [redacted] [redacted]"
        )


@pytest.mark.slow
def test_a_text_that_takes_exponential_time_is_withheld_and_the_next_is_searched():
    with closing(make_rules([], ["(a+)+b", "pin=[0-9]{4}"])) as rules:
        assert rules.text("aab pin=1234") == "[redacted] [redacted]"
        for _ in range(2):
            assert rules.text("a" * 64) == (
                "[redacted: a pattern takes more than 500 ms to search this]"
            )
            assert rules.text("c\nd pin=1234 \u2028\udc80") == (
                "c\nd [redacted] \u2028\udc80"
            )


def test_rules_of_a_file_and_of_options_add_up(tmp_path):
    path = tmp_path / "hidden.toml"
    path.write_text("properties = ['a']\npatterns = ['b+']\n")
    with closing(make_rules(["c"], []).with_more(read_rules(path))) as rules:
        assert rules.property_value("a", "x") == "[redacted]"
        assert rules.property_value("c", "x") == "[redacted]"
        assert rules.text("abbc") == "a[redacted]c"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("properties = 'a'", "properties must be a list of texts"),
        ("patterns = [1]", "patterns must be a list of texts"),
        ("propertys = ['a']", "'propertys' is not known"),
        ("patterns = ['(']", "'(' is not a regular expression"),
        ("patterns = ['a*']", "'a*' matches the empty text"),
        ("patterns = [", "is not valid TOML"),
        ("\udcff", "is not valid TOML"),
    ],
)
def test_a_rule_that_would_hide_nothing_is_refused(tmp_path, text, words):
    path = tmp_path / "hidden.toml"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ConfigError) as caught:
        read_rules(path)
    assert words in caught.value.message


def test_a_file_that_is_missing_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        read_rules(tmp_path / "none.toml")
