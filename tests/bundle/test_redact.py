"""No secret leaves: those that have a name, those that are known, and encoded ones."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqcli.bundle.redact import Redactor
from tests.kit.rows import each_row

SECRET = "x7Kq-91_zT/w+Q"


def cleaned(value, *secrets):
    redactor = Redactor(secrets)
    redactor.learn(value)
    return redactor.clean(value)


@each_row(
    "name",
    [
        "password",
        "tlsKeyPassword",
        "tls.server.keyPassword",
        "secretKey",
        "secret_key",
        "accessKey",
        "objectStoreAccessKeyId",
        "securityToken",
        "innerClientAuthenticationCredentials",
        "initAuthenticationUser",
        "metricsGrpcExporterHeader",
        "Authorization",
        "apiKey",
        "api-key",
        "private_key",
        "passwd",
        "sasl.jaas.config",
        "pass\\u0077ord",
        "pass_word",
        "PASS-PHRASE",
        "Pass Word",
        "db.pass",
        "userPass",
        "keystorepass",
        "ACCESS__KEY",
        "rocketmq.ak",
        "rocketmq_sk",
        "db_pw",
    ],
)
def test_a_value_whose_name_says_that_it_is_a_secret_is_removed(name):
    found = cleaned({name: "hunter2", "other": "before hunter2 after"})
    assert found == {name: "<removed>", "other": "before <removed> after"}


@pytest.mark.parametrize("value", [None, True, False, "", "true", "FALSE", " null "])
def test_a_setting_that_is_only_on_or_off_stays(value):
    assert cleaned({"passwordRequired": value}) == {"passwordRequired": value}


@pytest.mark.parametrize(
    "name",
    [
        "authenticationEnabled",
        "brokerName",
        "keys",
        "key",
        "passiveMode",
        "bypassCheck",
        "bypass",
        "diskRatio",
        "task",
        "tlsKeyPath",
        "compressedRegister",
    ],
)
def test_a_setting_with_another_name_stays(name):
    assert cleaned({name: "value"}) == {name: "value"}


@each_row(
    "text",
    [
        '{"password": {"value": "hunter2x"}}',
        '{"tokens": ["a1b2c3d4", "hunter2x"]}',
        '{\n  "a": {\n    "secretKey": [\n      "hunter2x"\n    ]\n  }\n}',
        '{\\"password\\": {\\"value\\": \\"hunter2x\\"}}',
        '[{"name": "DB_PASSWORD", "value": "hunter2x"}]',
        '[{"value": "hunter2x", "name": "DB_PASSWORD"}]',
        "- name: DB_PASSWORD\n  value: hunter2x\n",
        '<property name="password" value="hunter2x"/>',
        "password:\n  value: hunter2x\n",
        "password: |\n  hunter2x\n",
        "db:\n  password: >-\n    hunter2x\n",
        "tokens:\n  - abcdef\n  - hunter2x\n",
        "tokens: [abcdef, hunter2x]",
        "password: !!str hunter2x",
        "- password: &anchor hunter2x",
        "db.password hunter2x",
        "db.password=correct horse hunter2x",
        "DB-PASS = hunter2x",
        'secret_key = """\nhunter2x"""',
    ],
)
def test_a_setting_of_a_text_is_removed_wherever_its_value_ends(text):
    """Of a list, an object or several lines only the first word was removed."""
    (found,) = cleaned([text])
    assert "hunter2x" not in found
    assert "<removed>" in found


def test_a_secret_in_a_list_of_a_text_is_known_in_other_texts():
    found = cleaned(['{"tokens": ["a1b2c3d4", "hunter2x"]}', "it was hunter2x"])
    assert found == ["<removed>", "it was <removed>"]


@pytest.mark.parametrize("name", ["name", "key", "setting"])
@pytest.mark.parametrize("value", ["value", "Value"])
def test_a_row_with_a_name_and_a_value_is_like_an_entry(name, value):
    rows = [{name: "secretKey", value: "hunter2"}, {name: "brokerName", value: "b"}]
    assert cleaned(rows) == [
        {name: "secretKey", value: "<removed>"},
        {name: "brokerName", value: "b"},
    ]


def test_all_that_is_below_a_secret_name_is_removed_and_known():
    value = {"credentials": {"a": ["hunter2"]}, "note": "is hunter2"}
    assert cleaned(value) == {"credentials": "<removed>", "note": "is <removed>"}


@each_row(
    ("text", "left"),
    [
        ("jdbc:mysql://u:hunter2@db/x", "jdbc:mysql://<removed>@db/x"),
        ("https://hunter2@host", "https://<removed>@host"),
        ("http://u:p@hunter2/w@host:1/p", "http://<removed>@host:1/p"),
        ("a=1 password=hunter2 b=2", "a=1 password=<removed> b=2"),
        ("--secret-key hunter2 -n x", "--secret-key <removed> -n x"),
        ('{"secretKey": "hunt er2", "a": 1}', '{"secretKey": <removed>, "a": 1}'),
        ("Authorization: Bearer hunter2x", "Authorization: <removed>"),
        ("got Bearer hunter2x", "got Bearer <removed>"),
        ("<password>hunter2</password>", "<password><removed></password>"),
        ("key AKIAIOSFODNN7EXAMPLE.", "key <removed>."),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
            "-----BEGIN RSA PRIVATE KEY-----<removed>-----END RSA PRIVATE KEY-----",
        ),
        ("eyJhbGciOiJI.eyJzdWIi.c2ln", "<removed>"),
    ],
)
def test_a_secret_in_a_text_is_removed_and_the_rest_stays(text, left):
    assert cleaned(text) == left


#: Words that are in every cluster, and stay.
ORDINARY = ("rocketmq", "default", "unknown", "broker", "localhost")
ENCODINGS = {
    "plain": lambda s: s,
    "escapes of JSON": lambda s: "".join(f"\\u{ord(c):04x}" for c in s),
    # Not of a part of another escape, which would no longer be one.
    "some escapes of JSON": lambda s: (
        s if "\\" in s[:4] else s[:3] + f"\\u{ord(s[3]):04X}" + s[4:]
    ),
    "slashes of JSON": lambda s: json.dumps(s).replace("/", "\\/"),
    "JSON in JSON": lambda s: json.dumps(json.dumps({"k": s + "ü"})),
    "percent signs": lambda s: quote(s, safe=""),
    "base64": lambda s: base64.b64encode(s.encode()).decode(),
    "base64 for URLs": lambda s: base64.urlsafe_b64encode(s.encode()).decode(),
    "base64 without padding": lambda s: (
        base64.b64encode(s.encode()).decode().strip("=")
    ),
    "base64 of more": lambda s: base64.b64encode(f"user:{s}:x".encode()).decode(),
    "base64 twice": lambda s: base64.b64encode(base64.b64encode(s.encode())).decode(),
    "base64 with a prefix": lambda s: "key" + base64.b64encode(s.encode()).decode(),
    "base64 in lines": lambda s: "\n".join(
        base64.b64encode(s.encode()).decode()[i : i + 7] for i in range(0, 30, 7)
    ),
    "base64 of escapes": lambda s: base64.b64encode(
        "".join(f"\\u{ord(c):04x}" for c in s).encode()
    ).decode(),
    "base64 behind escapes": lambda s: (
        base64.b64encode(s.encode()).decode().replace("=", "\\u003d")
    ),
    "base64 among bytes": lambda s: base64.b64encode(
        bytes(range(128, 228)) + s.encode() + b"\xff" * 50
    ).decode(),
    "base64 before more": lambda s: (
        base64.b64encode(s.encode()).decode().strip("=") + "AB"
    ),
    "digits": lambda s: s.encode().hex(),
    "digits after another one": lambda s: "a" + s.encode().hex(),
    "entities": lambda s: "".join(f"&#{ord(c)};" for c in s),
    "entities without semicolons": lambda s: "".join(f"&#{ord(c)}" for c in s),
    "entities with names": lambda s: s.replace("_", "&UnderBar;"),
}


@each_row("encoding", ENCODINGS)
def test_a_known_secret_is_found_behind_its_encoding(encoding):
    text = ENCODINGS[encoding](SECRET)
    found = cleaned({"a": f"before {text} after", text: [text]}, SECRET)
    assert "<removed>" in found["a"]
    shown = json.dumps(found)
    assert text not in shown
    assert SECRET not in shown


@given(
    secret=st.text(
        st.characters(max_codepoint=0xFFFF, exclude_categories=("Cs", "Z", "C")),
        min_size=6,
        max_size=40,
    ).filter(lambda s: s.strip().lower() not in ORDINARY and s not in "<removed>"),
    steps=st.lists(st.sampled_from(sorted(ENCODINGS)), max_size=2),
    around=st.tuples(st.text(max_size=10), st.text(max_size=10)),
)
def test_no_known_secret_is_left_in_any_text(secret, steps, around):
    text = secret
    for step in steps:
        if step != "base64 in lines":  # of this length only
            text = ENCODINGS[step](text) if len(text) > 4 else text
    shown = cleaned(f"{around[0]} {text} {around[1]}", secret)
    assert secret not in shown
    assert text not in shown


def test_a_password_hidden_in_a_text_takes_the_whole_text_with_it():
    text = base64.b64encode(b'{"secretKey": "hunter2x"}').decode()
    assert cleaned(["before " + text, "and hunter2x"]) == [
        "<removed>",
        "and <removed>",
    ]


@pytest.mark.parametrize(
    "text", [r"\u006\u0038unter2", r"\x\u00368unter2", r"\x6\x38unter2"]
)
def test_a_secret_is_found_behind_escapes_of_escapes(text):
    assert cleaned(text, "hunter2") == "<removed>"


@pytest.mark.parametrize(
    ("secret", "text"),
    [
        ("hun\nter", r"hun\nter"),
        ("hun\tter", r"hun\tter"),
        ("hun\rter", r"hun\rter"),
        ("hun\bter", r"hun\bter"),
        ("hun\fter", r"hun\fter"),
        ("hun\0ter", r"hun\0ter"),
        ("hun\N{KEY}ter", r"hun\ud83d\udd11ter"),
        ('hun"ter', r"hun\"ter"),
    ],
)
def test_a_secret_is_found_behind_the_escape_of_any_character(secret, text):
    assert cleaned(["is " + text, "is " + secret], secret) == [
        "<removed>",
        "is <removed>",
    ]
    redactor = Redactor([secret])
    assert redactor.holds_secret("is " + text)
    assert redactor.holds_secret("is " + secret)
    assert not redactor.holds_secret("is hunter")


@pytest.mark.parametrize(
    "value",
    [
        [{"password": "hunter2x"}],
        ({"password": "hunter2x"},),
        {"password": ["a", {"b": ("c", "hunter2x")}]},
        {"password": r"hunter\u0032x"},
        {"password": "'hunter2x' "},
        {"password=hunter2x": 1},
        {"credentials": "user=u password=hunter2x"},
        {"a": {"b": "http://u:hunter2x@h"}},
    ],
)
def test_a_secret_is_known_wherever_it_was_told(value):
    assert cleaned([value, "is hunter2x"])[1] == "is <removed>"


def test_a_secret_that_is_learnt_later_is_removed_from_the_same_text():
    redactor = Redactor(["another1"])
    assert redactor.clean("is hunter2x") == "is hunter2x"
    redactor.learn({"password": "hunter2x"})
    assert redactor.clean("is hunter2x") == "is <removed>"


@pytest.mark.parametrize("half", [r"\ud83d", r"\ude00", r"\ude00\ud83d"])
def test_an_escape_of_half_a_character_hides_no_secret(half):
    assert cleaned(f"a {half} b", SECRET) == f"a {half} b"
    assert cleaned(f"a {half} h\\u0075nter2x", "hunter2x") == "<removed>"


def test_what_is_removed_is_counted():
    redactor = Redactor(["hunter2x", "12345678"])
    value = {
        "password": ["a", "b"],
        "at": 12345678,
        "hunter2x": None,
        "text": ["is hunter2x", "is hunter2x", "nothing", "http://u:p@h"],
        "until": 12345678,
        "token": "c",
    }
    assert redactor.clean(value) == {
        "password": "<removed>",
        "at": "<removed>",
        "<removed>": None,
        "text": ["is <removed>", "is <removed>", "nothing", "http://<removed>@h"],
        "until": "<removed>",
        "token": "<removed>",
    }
    assert redactor.count == 8


@pytest.mark.parametrize("times", range(1, 9))
def test_a_text_is_removed_however_often_its_secret_is_encoded(times):
    text = SECRET
    for _ in range(times):
        text = base64.b64encode(text.encode()).decode()
    assert cleaned(text, SECRET) == "<removed>"


def test_a_password_is_known_also_from_a_text_that_is_encoded_too_often():
    text = "its password=hunter2x " + "\\" * 64
    assert cleaned([text, "and hunter2x"]) == ["<removed>", "and <removed>"]


def test_short_secrets_are_counted_and_ordinary_words_stay():
    redactor = Redactor(["abc", "", " ", "RocketMQ", "TRUE", "null", "ab12", "xyz"])
    assert redactor.short == 2
    text = "abc RocketMQ True null"
    assert redactor.clean(f"{text} ab12") == f"{text} <removed>"


@pytest.mark.parametrize(
    ("told", "text"),
    [
        ("hunt2", "is hunt2"),  # may be part of another word
        ("hunt22", "is <removed>"),
    ],
)
def test_a_secret_that_only_its_name_tells_has_six_characters(told, text):
    assert cleaned([{"password": told}, f"is {told}"]) == [
        {"password": "<removed>"},
        text,
    ]


def test_a_word_beside_the_name_of_a_secret_is_removed_there_only():
    """`password=required` says nothing of the word in other texts."""
    assert cleaned(["password=required", "an account is required"]) == [
        "password=<removed>",
        "an account is required",
    ]
    assert cleaned(["password=requiredxy", "is requiredxy"])[1] == "is <removed>"


def test_a_secret_that_was_given_in_quotes_is_found_without_them():
    assert cleaned("is hunter21 here", '"hunter21"') == "is <removed> here"


def test_a_secret_that_begins_with_another_one_is_removed_whole():
    text = "hunter21 hunter21-tail -hunter21"
    secrets = ["hunter21-tail", "hunter21", "-hunter21"]
    assert cleaned(text, *secrets) == "<removed> <removed> <removed>"


def test_a_number_is_removed_if_it_is_a_secret():
    assert cleaned({"secretKey": 12345678, "at": 12345678, "n": 5}) == {
        "secretKey": "<removed>",
        "at": "<removed>",
        "n": 5,
    }


def test_keys_that_become_alike_are_kept_apart():
    assert cleaned({"of-hunter2": 1, "OF": "hunter2"}, "of-hunter2", "hunter2") == {
        "<removed>": 1,
        "OF": "<removed>",
    }
    assert cleaned({"hunter21": 1, "hunter22": 2}, "hunter21", "hunter22") == {
        "<removed>": 1,
        "<removed> (2)": 2,
    }


@each_row(
    "text",
    [
        "orders",
        "127.0.0.1:10911",
        "password=null a=1",
        'password="null" a=1',
        "password: 'false'",
        base64.b64encode(
            base64.b64encode(base64.b64encode(base64.b64encode(b"an ordinary text")))
        ).decode(),
        "%RETRY%billing",
        "2026-11-27T18:40:57.123Z",
        "its disk is 83 % full",
        "broker-a@DefaultCluster",
        "192.168.0.1@1234#5678",
        "cannot connect to 127.0.0.1:1: connection refused",
        "a" * 2_000,
        "AC11000100001F89AB83270A4C0E0000",
    ],
)
def test_ordinary_texts_stay_as_they_are(text):
    assert cleaned(text, SECRET) == text


@pytest.mark.slow
def test_a_text_that_is_too_long_to_look_at_is_removed():
    text = "password=hunter2x".ljust(1 << 20)
    assert cleaned([text, "is hunter2x"]) == [
        "password=<removed>".ljust((1 << 20) + 1),
        "is <removed>",
    ]
    assert cleaned([text + " ", "is hunter2x"]) == ["<removed>", "is hunter2x"]


@pytest.mark.slow
@pytest.mark.parametrize("word", ["token", "a://", "-token", "-", "abc.", "eyJ"])
def test_a_long_text_of_one_word_is_searched_once_and_not_from_each_of_its_places(word):
    # With searches that go to its end each time this would take hours.
    text = word * (300_000 // len(word))
    assert cleaned(text) == text
