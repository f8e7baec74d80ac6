"""Ordinary arguments are read as Typer reads them, and all others are left to it."""

from __future__ import annotations

import inspect
import re
import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqcli.cli.arguments.declared import parameters_of
from rmqcli.cli.arguments.parse import Grammar, parse
from rmqcli.cli.arguments.table import COMMANDS as GRAMMARS
from rmqcli.cli.arguments.table import COMMON
from rmqcli.cli.arguments.typer_command import run_app
from rmqcli.cli.commands import COMMANDS
from rmqcli.cli.options import make_common
from rmqcli.errors import UsageError
from tests.kit.doses import doses
from tests.kit.rows import each_row

ENTRIES = {entry.path: entry for entry in COMMANDS}

#: Values that at least one option's parser accepts, and values that none accepts.
VALUES = [
    "0",
    "1",
    "5",
    " 7",
    "1_0",
    "-3",
    "99999999999",
    "1.5",
    "٣",
    "",
    "-",
    "--",
    "x",
    "é\udcff",
    "orders",
    "a=b",
    "a=b=c",
    "=",
    "10s",
    "0s",
    "500ms",
    "3x",
    "4MiB",
    "latest",
    "now",
    "-15m",
    "@2026-01-02T03:04:05Z",
    "@x",
    "group:g",
    "b-1:3",
    "b:-1",
    "T@b:1=latest",
    "127.0.0.1:9876",
    "a:1;b:2",
    "::1",
    "100/s",
    "rw",
    "+message.type=FIFO",
    "cat 'x",
    "%v",
    "%!",
    "(",
    "file:///tmp/x",
    "s3://b/x",
    "table",
    "json",
    "jsonl",
    "help",
    "auto",
    "always",
    "lag",
    "sync",
    "4.9.7",
    "bash",
]
#: Words that no command's table of ordinary options contains.
ODD_WORDS = ["--help", "-h", "--nonsense", "--versio", "-vv", "-qv", "-x", "--=", "-="]


def words_of(path):
    """Draw options with and without values, stray words, and unusual spellings."""
    grammar = Grammar(*GRAMMARS[path])
    common = COMMON if grammar.has_common else {}
    options = {**common, **grammar.options}
    value = st.sampled_from(VALUES)

    def spelled(flag):
        _, action, reader = options[flag]
        if action not in ("store", "append"):
            return st.just([flag])
        choices = reader[1:] if reader[0] == "choice" else VALUES
        return st.sampled_from(choices).map(lambda text: [flag, text])

    flag = st.sampled_from(list(options) or ["--help"])
    return st.one_of(
        *([flag.flatmap(spelled)] * 3 if options else []),
        value.map(lambda text: [text]),
        st.tuples(flag, value).map(lambda two: ["=".join(two)]),
        st.tuples(flag, value).map(lambda two: ["".join(two)]),
        flag.map(lambda name: [name[:-1]]),
        st.sampled_from(ODD_WORDS).map(lambda word: [word]),
    )


@st.composite
def command_lines(draw):
    """Draw a command with words that are often valid for it."""
    path = draw(st.sampled_from(list(ENTRIES)))
    grammar = Grammar(*GRAMMARS[path])
    needed = [
        [flag, "G"]
        for flag, (name, _, _) in grammar.options.items()
        if name in grammar.required
    ]
    lines = draw(st.lists(words_of(path), max_size=5))
    if draw(st.booleans()):
        lines += [*needed, *([["T"]] if grammar.arguments else [])]
    return [*path.split(), *[word for line in lines for word in line]]


def completed(command, values, typed):
    """Return the arguments that the command's function would get, for comparison."""
    own = {name: values[name] for name in command.own_names if name in values}
    common = {name: value for name, value in values.items() if name not in own}
    if command.options_type is not None:
        own = command.options_type(**own)
    else:
        parameters = inspect.signature(command.function).parameters
        defaults = {name: parameters[name].default for name in command.own_names}
        own = {**defaults, **own}
    if not command.has_common:
        return own, frozenset(typed)
    try:
        common.setdefault("output", next(iter(command.formats), "table"))
        return own, make_common(typed=frozenset(typed), **common)
    except UsageError as error:  # options that cannot be used together
        return own, error.message


def by_typer(words):
    """Return the arguments that Typer reads from the words, or None for an error."""
    found = []

    def act(command, values, typed):
        found.append(completed(command, values, typed))

    try:
        entry = next(
            entry
            for length in (3, 2, 1)
            if (entry := ENTRIES.get(" ".join(words[:length])))
        )
        run_app(entry, words[len(entry.path.split()) :], act=act)
    except UsageError:
        return None
    return found[0] if found else None


def by_table(words, environ):
    try:
        found = parse(words, environ)
    except UsageError:  # an option in the place of another one's value
        return None
    if found is None:
        return None
    return completed(ENTRIES[found.path].load(), found.values, found.typed)


ADDRESSES = [None, "", "env:1;env", "::1"]


@pytest.mark.slow
@given(command_lines(), st.sampled_from(ADDRESSES), st.sampled_from(ADDRESSES))
@settings(max_examples=doses(12))
def test_whatever_is_read_is_what_typer_reads(words, namesrv, endpoints):
    given = {"NAMESRV_ADDR": namesrv, "ROCKETMQ_ENDPOINTS": endpoints}
    environ = {name: value for name, value in given.items() if value is not None}
    with pytest.MonkeyPatch.context() as patch:
        for name in given:
            patch.delenv(name, raising=False)
        for name, value in environ.items():
            patch.setenv(name, value)
        found = by_table(words, environ)
        if found is not None:
            assert found == by_typer(words)


@each_row(
    "line",
    [
        "lag",
        "lag G H -n a:1 --topic T --topic U --sort lag -o json --explain -v --verbose",
        "lag G --watch=1s --watch=2s --timeout 1s --namesrv=a:1",
        "tail T U --from -15m --to now --queue b:1 --no-follow -B 0 --property a=b",
        "consume T -g G --from first --threads 4 --exec 'cat' --exec-timeout 0",
        "send T body --key a --key b --delay 3 --rate 10/s",
        "send T -",
        "reset-offset G T --to latest --execute --yes --no-input",
        "reset-offset G T id --undo --shift -5",
        "reset-offset G T --apply plan.json",
        "export T --to-parquet dir --from earliest --partition-by date",
        "topic create T --queues 8 --perm rw --attribute +message.type=FIFO",
        "group update G --no-consume --max-retries 3",
        "serve --listen 127.0.0.1:0 --like 4.9.7 --brokers 2",
        "demo --keep --no-export",
        "completion install bash",
        "spark package --out f.zip --force",
    ],
)
def test_ordinary_arguments_are_read_without_typer(line):
    words = shlex.split(line)
    found = by_table(words, {})
    assert found is not None
    assert found == by_typer(words)


#: Java's names of options: the parameter, and its value with that name.
ALIASES = {
    "--consume-enable": ("consume_enable", True),
    "--no-consume-enable": ("consume_enable", False),
    "--consume-from-min-enable": ("consume_from_min_enable", True),
    "--no-consume-from-min-enable": ("consume_from_min_enable", False),
    "--consume-broadcast-enable": ("consume_broadcast_enable", True),
    "--no-consume-broadcast-enable": ("consume_broadcast_enable", False),
    "--consume-message-orderly": ("consume_message_orderly", True),
    "--no-consume-message-orderly": ("consume_message_orderly", False),
    "--retry-queue-nums 3": ("retry_queue_nums", 3),
    "--retry-max-times 3": ("retry_max_times", 3),
    "--broker-id 3": ("broker_id", 3),
    "--which-broker-when-consume-slowly 3": ("which_broker_when_consume_slowly", 3),
    "--notify-consumer-ids-changed": ("notify_consumer_ids_changed", True),
    "--no-notify-consumer-ids-changed": ("notify_consumer_ids_changed", False),
}
ALIAS_LINES = [
    *((f"group create G {typed}", *meant) for typed, meant in ALIASES.items()),
    *((f"group update G {typed}", *meant) for typed, meant in ALIASES.items()),
    ("consume T -g g --max-reconsume 3", "max_retries", 3),
]


@each_row(("line", "name", "value"), ALIAS_LINES)
def test_the_names_that_java_has_for_options_mean_the_same(line, name, value):
    words = shlex.split(line)
    found = parse(words, {})
    assert found is not None
    assert found.values[name] == value
    assert by_table(words, {}) == by_typer(words)


def test_every_other_name_of_an_option_is_in_the_test_above():
    other_names = {
        (entry.path, flag)
        for entry in COMMANDS
        for parameter in parameters_of(entry.load())
        for flag in (
            *parameter.accepted_flags[len(parameter.flags) :],
            *parameter.accepted_negative_flags[len(parameter.negative_flags) :],
        )
    }
    tried = {
        (" ".join(line.split()[: 2 if line.startswith("group") else 1]), word)
        for line, _, _ in ALIAS_LINES
        for word in line.split()
        if word.startswith("--")
    }
    assert tried == other_names


@each_row("entry", COMMANDS, ids=lambda entry: entry.path)
def test_the_examples_of_the_help_are_ordinary(entry):
    text = entry.load().function.__doc__
    [line] = re.findall(r"Example: rmq (.*)$", text, re.MULTILINE)
    words = shlex.split(re.split(r" [|>] ", line)[0])
    assert parse(words, {}) is not None


@each_row(
    "line",
    [
        "",
        "topic",
        "nonsense",
        "--version",
        "-q lag G",
        "lag --help",
        "lag G -o help",
        "lag G -vv",
        "lag G -na:1",
        "lag -- G",
        "lag --topi T",
        "lag --topic",
        "lag --explain=yes",
        "lag --sort nothing",
        "lag --sample 3x",
        "tail",
        "tail T --last -1",
        "tail T --last x",
        "group show",
        "group show G H",
        "consume T",
    ],
)
def test_everything_else_is_left_to_typer(line):
    assert parse(shlex.split(line), {}) is None


def test_what_was_typed_is_told_from_the_environment():
    found = parse(["lag", "G", "--tls"], {"NAMESRV_ADDR": "env:1"})
    assert found is not None
    assert found.values == {"groups": ["G"], "tls": True, "namesrv": ("env:1",)}
    assert found.typed == {"groups", "tls"}
    found = parse(["lag", "-n", "typed:1"], {"NAMESRV_ADDR": "env:1"})
    assert found is not None
    assert found.values == {"namesrv": ("typed:1",)}
    assert found.typed == {"namesrv"}
    found = parse(["send", "T", "x"], {"ROCKETMQ_ENDPOINTS": "env:1"})
    assert found is not None
    assert found.values == {"topic": "T", "body": "x", "endpoints": ("env:1",)}
    assert found.typed == {"topic", "body"}
