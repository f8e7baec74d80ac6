"""`rmq help`, `rmq version`, and the help of `rmq` and of its commands; the guides.

It is made of our declarations, so that it does not depend on Typer. In the help
of a command the first paragraph of its docstring and the example come first, then its
arguments and options, then the other paragraphs, and last the common options, of which
only the most used are shown.

The guides are the Markdown files of `rmqcli/docs`. On a terminal a guide is drawn, and
shown by the user's pager (PAGER, else `less`) if it is longer than the screen.
Elsewhere it is written as Markdown with lines of 80 columns, with links that name the
command for the other guide.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import re
import shlex
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from rmqcli.cli.arguments.habits import hint_for_command
from rmqcli.cli.commands import COMMANDS, GROUPS, CommandEntry, entries_below
from rmqcli.cli.options import COMMON_SECTION, argument, command_options
from rmqcli.cli.ui.messages import color_is_on, is_screen, screen_size, wrap_words
from rmqcli.errors import UsageError
from rmqcli.hint import command_line
from rmqcli.names import similar

if TYPE_CHECKING:
    from rmqcli.cli.arguments.declared import Parameter

_WIDTH_MAX = 100
#: The greatest width of the left column; a longer entry has a line of its own.
_LEFT_MAX = 28
#: So many commands are named in place of one that does not exist.
_WRITTEN_MAX = 3

_BEGIN = (
    ("rmq demo", "a guided tour, which needs no cluster"),
    ("export NAMESRV_ADDR=HOST:9876", "the name servers of your cluster"),
    ("rmq topics", "what it holds; rmq brokers: where"),
    ("rmq tail TOPIC", "read messages"),
    ("rmq lag", "how far groups are behind"),
)
#: Values of `--output` that show something about the output.
_ABOUT = {"help": "help lists the fields", "schema": "schema prints the JSON Schema"}
#: The common options that the help of each command shows.
_BRIEF = ("namesrv", "output", "timeout")
_FOLDER = Path(__file__).parents[1] / "docs"

#: The names of the guides, in the order of `rmq help`.
GUIDES = (
    "reading",
    "messages",
    "positions",
    "consuming",
    "sending",
    "moving",
    "measuring",
    "watching",
    "resetting",
    "dead-letters",
    "administration",
    "changes",
    "defining",
    "monitoring",
    "assistants",
    "exporting",
    "lakehouse",
    "querying",
    "dataframes",
    "clusters",
    "profiles",
    "offline",
    "proxies",
    "library",
    "asyncio",
    "testing",
    "embedded-broker",
    "security",
    "exit-codes",
    "mqadmin",
    "troubleshooting",
)

_COMMENT = re.compile(r"^<!--.*?-->\n", re.MULTILINE | re.DOTALL)
#: What is said to tests after the language of a block of code.
_FENCE = re.compile(r"^(```\w+) .*$", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")
_TO_A_GUIDE = re.compile(r"([\w-]+)\.md(?:#[\w-]+)?")
#: Links to the place of something in the same guide.
_INSIDE = "#"
#: The mark of an item of a list, with the blanks around it.
_ITEM = re.compile(r" *([-*]|\d+\.) +")
_CODE = re.compile(r"`[^`]+`")
#: `less` ends at once if the text fits, shows styles, and leaves the text there.
_LESS = "FRX"


def show(text: str) -> None:
    """Write help to stdout."""
    sys.stdout.write(text)


def general_help(table: Sequence[CommandEntry] = COMMANDS) -> str:
    """Return the help of `rmq`: how to begin, and the commands by section."""
    parts = [
        "Usage: rmq COMMAND [OPTIONS] [ARGUMENTS]\n",
        _paragraph("Read, measure and move the messages of Apache RocketMQ."),
        _section("To begin", _BEGIN),
    ]
    sections: dict[str, list[tuple[str, str]]] = {}
    for name, entry in entries_below("", table=table).items():
        if isinstance(entry, CommandEntry):
            sections.setdefault(entry.section, []).append((name, entry.help))
            continue
        members = [each for each in table if each.path.startswith(f"{name} ")]
        row = (f"{name} ...", entry)
        sections.setdefault(members[0].section, []).append(row)
    parts += [_section(title, rows) for title, rows in sections.items()]
    parts.append(
        _paragraph(
            "rmq COMMAND --help shows a command's options and an example; rmq help"
            " lists the guides."
        )
    )
    return "\n".join(parts)


def group_help(prefix: str, table: Sequence[CommandEntry] = COMMANDS) -> str:
    """Return the help of commands that begin with `prefix`, as "topic "."""
    rows = [
        (name, entry if isinstance(entry, str) else entry.help)
        for name, entry in entries_below(prefix, table=table).items()
    ]
    text = GROUPS.get(prefix.strip(), "")
    parts = [f"Usage: rmq {prefix}COMMAND [OPTIONS] [ARGUMENTS]\n"]
    if text:
        parts.append(_paragraph(text))
    parts.append(_section("Commands", rows))
    return "\n".join(parts)


def command_help(entry: CommandEntry) -> str:
    """Return the help of a command."""
    from rmqcli.cli.arguments.declared import parameters_of

    command = entry.load()
    parameters = parameters_of(command)
    text = inspect.cleandoc(command.function.__doc__ or "")
    first, _, rest = text.partition("\n\n")
    example, _, notes = rest.partition("\n\n")
    arguments = [each for each in parameters if each.declaration.is_argument]
    usage = " ".join(
        each.metavar
        if each.is_required or each.metavar.startswith("[")
        else f"[{each.metavar}]"
        for each in arguments
    )
    parts = [f"Usage: rmq {entry.path} [OPTIONS] {usage}".rstrip() + "\n"]
    parts.append(_paragraph(first))
    parts.append(textwrap.indent(example, "  ") + "\n")
    if arguments:
        parts.append(
            _section("Arguments", [(each.metavar, _text(each)) for each in arguments])
        )
    sections: dict[str, list[tuple[str, str]]] = {}
    for each in parameters:
        declaration = each.declaration
        if not declaration.is_argument and declaration.section != COMMON_SECTION:
            title = declaration.section or "Options"
            sections.setdefault(title, []).append((_left(each), _text(each)))
    help_row = ("-h, --help", "Show this help.")
    if not command.has_common:
        sections.setdefault("Options", []).append(help_row)
    parts += [_section(title, rows) for title, rows in sections.items()]
    parts += [_paragraph(each) for each in notes.split("\n\n") if each]
    if entry.guide:
        parts.append(_paragraph(f"The guide: rmq help {entry.guide}"))
    if command.has_common:
        shared = {p.name: p for p in parameters}
        rows = [
            (_left(shared[name]), _text(shared[name]))
            for name in _BRIEF
            if name in shared
        ]
        rows.append(("-q, -v, ...", "All common options: rmq help options."))
        parts.append(_section(COMMON_SECTION, [*rows, help_row]))
    return "\n".join(parts)


def _left(parameter: Parameter) -> str:
    """Return the flags of an option, short ones first, and what stands for a value."""
    flags = ", ".join(sorted(parameter.flags, key=lambda flag: flag.startswith("--")))
    if parameter.negative_flags:
        flags += " / " + ", ".join(parameter.negative_flags)
    metavar = parameter.metavar
    if parameter.name == "output" and parameter.declaration.choices:
        metavar = "FORMAT"
    return f"{flags} {metavar}".strip()


def _text(parameter: Parameter) -> str:
    """Return the help of a parameter, with its variable and its default."""
    declaration = parameter.declaration
    text = declaration.help
    if parameter.name == "output" and declaration.choices:
        formats = [each for each in declaration.choices if each not in _ABOUT]
        about = [_ABOUT[each] for each in declaration.choices if each in _ABOUT]
        text = "; ".join([f"Output format: {', '.join(formats)}", *about]) + "."
    extra = []
    if declaration.envvar:
        extra.append(f"env var: {declaration.envvar}")
    default = _default(parameter)
    if default:
        extra.append(f"default: {default}")
    return f"{text}  [{'; '.join(extra)}]" if extra else text


def _default(parameter: Parameter) -> str:
    default = parameter.default
    if default is None or not parameter.declaration.show_default:
        return ""
    if parameter.is_switch:
        if not parameter.negative_flags:
            return ""
        flags = parameter.flags if default else parameter.negative_flags
        return flags[0].lstrip("-")
    return str(default)


def _width() -> int:
    return min(screen_size(sys.stdout).columns, _WIDTH_MAX)


def _paragraph(text: str) -> str:
    lines = wrap_words(" ".join(text.split()), max(20, _width() - 2))
    return "".join(f"  {line}\n" for line in lines)


def _section(title: str, rows: Iterable[tuple[str, str]]) -> str:
    return "".join([f"{title}:\n", *_lines(list(rows))])


def _lines(rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield the lines of two columns, the right one wrapped."""
    lengths = [len(left) for left, _ in rows if len(left) <= _LEFT_MAX]
    left_width = max(lengths, default=_LEFT_MAX)
    room = max(20, _width() - left_width - 4)
    for left, text in rows:
        if len(left) > left_width:
            yield f"  {left}\n"
            left = ""
        for line in wrap_words(text, room) or [""]:
            yield f"  {left:<{left_width}}  {line}\n"
            left = ""


def _options_page() -> str:
    from rmqcli.cli.arguments.declared import common_parameters, parameters_of

    parts = [
        _paragraph(
            "Every command that uses a cluster takes these options, after its name or"
            " before it: rmq -n HOST lag, rmq lag -n HOST."
        )
    ]
    sections: dict[str, list[tuple[str, str]]] = {}
    output = (
        "-o, --output FORMAT",
        "Output format; a command's help lists those it has.",
    )
    for each in common_parameters():
        is_access = each.name.startswith(("tls", "acl"))
        title = "Access and TLS" if is_access else COMMON_SECTION
        sections.setdefault(title, []).append((_left(each), _text(each)))
    sections[COMMON_SECTION].insert(1, output)
    tail = next(each for each in COMMANDS if each.path == "tail")
    sections["Instead of name servers, with a proxy of RocketMQ 5"] = [
        (_left(each), _text(each))
        for each in parameters_of(tail.load())
        if each.name in ("endpoints", "plaintext")
    ]
    parts += [_section(title, rows) for title, rows in sections.items()]
    parts.append(
        _paragraph(
            "Of several sources the first one counts: the option, then the environment,"
            " then the default. Durations are 500ms, 5s, 2m, 1h or 7d."
        )
    )
    return "\n".join(parts)


#: The pages that are made of declarations, not files: what they are about.
_PAGES = {"options": "Options that all commands take"}


def topics_help() -> str:
    """Return what `rmq help` shows: the guides, and how to get the help of commands."""
    rows = [(name, guide_title(name)) for name in GUIDES]
    return "\n".join(
        [
            "Usage: rmq help [TOPIC|COMMAND]\n",
            _section("Guides", [*rows, *_PAGES.items()]),
            _paragraph(
                "rmq --help lists the commands; rmq help COMMAND, or rmq COMMAND"
                " --help, shows a command's options and an example."
            ),
        ]
    )


def help_of_topic(topic: str) -> str:
    """Return the help of what follows `rmq help`, unless it is a guide.

    Raises UsageError for a topic that does not exist.
    """
    if not topic:
        return topics_help()
    if topic == "options":
        return _options_page()
    if any(f"{each.path} ".startswith(f"{topic} ") for each in COMMANDS):
        return help_of(topic)
    first = topic.partition(" ")[0]
    if first != topic or hint_for_command(topic):
        raise unknown_command(topic, COMMANDS)
    near = similar(topic, [*GUIDES, *_PAGES, *entries_below("", table=COMMANDS)])
    message = f"help topic {topic} does not exist"
    if near:
        raise UsageError(f"{message}; did you mean {' or '.join(near)}?")
    raise UsageError(message, hint="see: rmq help")


def help_of(path: str, table: Sequence[CommandEntry] = COMMANDS) -> str:
    """Return the help of a path: "", a command, or a group of commands.

    Raises UsageError if there is none.
    """
    if not path:
        return general_help(table)
    entry = next((each for each in table if each.path == path), None)
    if entry is not None:
        return command_help(entry)
    if entries_below(f"{path} ", table=table):
        return group_help(f"{path} ", table)
    raise unknown_command(path, table)


def unknown_command(path: str, table: Sequence[CommandEntry]) -> UsageError:
    """Return the error for words that name no command."""
    from rmqcli.cli.ui.errors import unknown_name

    words = path.split(" ")
    for command in (each.path for each in table):
        if path.startswith(f"{command} "):
            return UsageError(
                f"command {path} does not exist", hint=f"write: rmq help {command}"
            )
    depth = max(1, len(words) - 1)
    while depth > 1 and not entries_below(f"{' '.join(words[:depth])} ", table=table):
        depth -= 1
    first, rest = " ".join(words[:depth]), " ".join(words[depth:])
    below = entries_below(f"{first} ", table=table)
    if not (rest and below):
        if hint := hint_for_command(first):
            return UsageError(f"command {first} does not exist", hint=hint)
        below = entries_below("", table=table)
        return unknown_name("command", first, below, help_command="rmq")
    word = rest.partition(" ")[0]
    show = command_line(f"rmq {first} show", word)
    is_near = bool(similar(word, below))
    deeper = [
        f"rmq {each.path}"
        for each in table
        if each.path.startswith(f"{first} ") and each.path.endswith(f" {word}")
    ]
    hint = hint_for_command(f"{first} {word}")
    if not hint and first == "message" and not is_near:
        hint = f"write: {show}"
    elif not hint and deeper:
        hint = f"write: {' or '.join(deeper[:_WRITTEN_MAX])}"
    elif not hint and "show" in below and not is_near:
        hint = f"to show what has this name: {show}; commands: rmq {first} --help"
    if hint:
        return UsageError(f"command {word} does not exist", hint=hint)
    return unknown_name("command", word, below, help_command=f"rmq {first}")


def guide_source(name: str) -> str:
    """Return the Markdown of a guide, as it is in its file."""
    return (_FOLDER / f"{name}.md").read_text(encoding="utf-8")


def guide_title(name: str) -> str:
    """Return what a guide is about: the text of its heading."""
    return guide_source(name).partition("\n")[0].removeprefix("# ").replace("`", "")


def guide_text(name: str) -> str:
    """Return the Markdown of a guide as it is shown, with `rmq help` for links."""
    text = _FENCE.sub(r"\1", _COMMENT.sub("", guide_source(name)))
    return _LINK.sub(_shown_link, text)


def _shown_link(link: re.Match[str]) -> str:
    words, target = link[1], link[2]
    guide = _TO_A_GUIDE.fullmatch(target)
    if guide is not None and guide[1] in GUIDES:
        return f"{words} (`rmq help {guide[1]}`)"
    return words if target.startswith(_INSIDE) else f"{words} ({target})"


def _wrapped(markdown: str) -> str:
    """Wrap the paragraphs and items of Markdown, not its code, tables and headings."""
    found: list[str] = []
    text = ""  # a paragraph or an item, as far as it was read
    is_code = False
    for line in [*markdown.splitlines(), "```"]:
        is_fence = line.startswith("```")
        is_text = bool(line) and not is_code and not is_fence and line[0] not in "|#"
        is_code ^= is_fence
        if text and is_text and not _ITEM.match(line):
            text += f" {line.strip()}"
            continue
        if text:
            found.append(_filled(text))
        text = line if is_text else ""
        if not is_text:
            found.append(line)
    return "\n".join(found[:-1]) + "\n"


def _filled(text: str) -> str:
    """Wrap a paragraph or an item at 80 columns, but not inside of code."""
    mark = _ITEM.match(text)
    indent = " " * (mark.end() if mark else 0)
    lines = wrap_words(_CODE.sub(_in_one_line, text), 80, rest=indent)
    return "\n".join(lines).replace("\0", " ")


def _in_one_line(code: re.Match[str]) -> str:
    return code[0].replace(" ", "\0") if len(code[0]) <= 76 else code[0]


def show_guide(name: str) -> None:
    """Write a guide to stdout; on a terminal, drawn and screen by screen."""
    text = guide_text(name)
    if not is_screen(sys.stdout):
        sys.stdout.write(_wrapped(text))
        return
    from rmqcli.cli.ui.rich.markdown import drawn_markdown

    color = color_is_on("auto", sys.stdout)
    drawn = drawn_markdown(text, stream=sys.stdout, color=color)
    show_in_pager(drawn, stream=sys.stdout)


def show_in_pager(text: str, *, stream: TextIO) -> None:
    """Show `text` by the pager, on whose terminal it has to be; wait for its end.

    Writes to `stream` if the text fits the screen, or PAGER is empty, `cat`, or cannot
    be started. The user may leave the pager at any place; Ctrl-C belongs to the pager.
    """
    try:
        words = shlex.split(os.environ.get("PAGER", "less"))
    except ValueError:  # a quote that is not closed
        words = []
    if words in ([], ["cat"]) or text.count("\n") < screen_size(stream).lines:
        stream.write(text)
        return
    stream.flush()
    import subprocess  # only for the pager

    try:
        process = subprocess.Popen(  # noqa: S603  # the user's own program
            words,
            stdin=subprocess.PIPE,
            encoding="utf-8",
            env={"LESS": _LESS, **os.environ},
        )
    except OSError:
        stream.write(text)
        return
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        process.communicate(text)
    while True:
        with contextlib.suppress(KeyboardInterrupt):
            process.wait()
            return


@command_options(has_common=False)
def help_(
    words: list[str] | None = argument(
        default=None,
        metavar="[TOPIC|COMMAND]...",
        help="A guide, a command or its group, or options.",
        words=(*GUIDES, "options", *entries_below("", table=COMMANDS)),
    ),
) -> None:
    """Show a guide, or the help of a command.

    Example: rmq help reading

    Without a topic, the guides are listed. On a terminal a long guide is shown by the
    program in PAGER, less by default.
    """
    topic = " ".join(words or [])
    if topic in GUIDES:
        show_guide(topic)
    else:
        show(help_of_topic(topic))


@command_options(has_common=False)
def version() -> None:
    """Show the version of rmq.

    Example: rmq version
    """
    from rmqcli import __version__

    show(f"rmq {__version__}\n")
