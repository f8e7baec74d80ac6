"""The table of commands: the name, the function and one line of help of each.

`rmq --help` needs only this table. A command's module is imported when that command
runs or shows its own help. A test checks that each line of help equals the first line
of the function's docstring.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

if TYPE_CHECKING:
    from rmqcli.cli.options import Command

#: The help of names that are only groups of commands.
GROUPS = {
    "completion": "Set up completion of commands, topics and groups.",
    "spark": "Prepare a Spark cluster for rmqcli.",
    "topic": "List, show, create, change and delete topics.",
    "broker": "List and show brokers.",
    "group": "List, show, create, change and delete consumer groups.",
}


class CommandEntry(NamedTuple):
    """One command. `path` is what the user types after `rmq`, e.g. `topic show`.

    A NamedTuple, because every start creates this class, and creating a frozen
    dataclass takes 1 ms.
    """

    path: str
    module: str
    attribute: str
    help: str
    #: the title above it in `rmq --help`
    section: str = "Commands"
    #: the guide that explains it; see `rmqcli.cli.help`
    guide: str = ""

    def load(self) -> Command:
        """Import the command's module and return the command."""
        module = importlib.import_module(self.module)
        return cast("Command", getattr(module, self.attribute))


#: Commands by section, in the order of `rmq --help`.
COMMANDS = (
    CommandEntry(
        "tail",
        "rmqcli.cli.tail.command",
        "tail",
        "Read messages of topics without affecting any group.",
        "Messages",
        "reading",
    ),
    CommandEntry(
        "send",
        "rmqcli.cli.send",
        "send",
        "Send messages from an argument, lines, JSONL or files.",
        "Messages",
        "sending",
    ),
    CommandEntry(
        "consume",
        "rmqcli.cli.consume.command",
        "consume",
        "Consume in a group: print messages, or run a command for each.",
        "Messages",
        "consuming",
    ),
    CommandEntry(
        "lag",
        "rmqcli.cli.lag.command",
        "lag",
        "Show how far groups are behind, per queue, and why.",
        "Groups",
        "measuring",
    ),
    CommandEntry(
        "reset-offset",
        "rmqcli.cli.reset_offset.command",
        "reset_offset",
        "Plan, apply, verify or undo a change of a group's offsets.",
        "Groups",
        "resetting",
    ),
    CommandEntry(
        "groups",
        "rmqcli.cli.groups",
        "groups",
        "List consumer groups.",
        "Groups",
        "administration",
    ),
    CommandEntry(
        "group list",
        "rmqcli.cli.groups",
        "groups",
        "List consumer groups.",
        "Groups",
        "administration",
    ),
    CommandEntry(
        "group show",
        "rmqcli.cli.groups",
        "show",
        "Show a group's members, subscriptions and settings.",
        "Groups",
        "administration",
    ),
    CommandEntry(
        "group create",
        "rmqcli.cli.groups",
        "create",
        "Create a consumer group.",
        "Groups",
        "administration",
    ),
    CommandEntry(
        "group update",
        "rmqcli.cli.groups",
        "update",
        "Change settings of a consumer group.",
        "Groups",
        "administration",
    ),
    CommandEntry(
        "group delete",
        "rmqcli.cli.groups",
        "delete",
        "Delete a consumer group.",
        "Groups",
        "administration",
    ),
    CommandEntry(
        "topics",
        "rmqcli.cli.topics",
        "topics",
        "List topics.",
        "Cluster",
        "administration",
    ),
    CommandEntry(
        "topic list",
        "rmqcli.cli.topics",
        "topics",
        "List topics.",
        "Cluster",
        "administration",
    ),
    CommandEntry(
        "topic show",
        "rmqcli.cli.topics",
        "show",
        "Show a topic's queues, offsets and settings.",
        "Cluster",
        "administration",
    ),
    CommandEntry(
        "topic create",
        "rmqcli.cli.topics",
        "create",
        "Create a topic.",
        "Cluster",
        "administration",
    ),
    CommandEntry(
        "topic update",
        "rmqcli.cli.topics",
        "update",
        "Change settings of a topic.",
        "Cluster",
        "administration",
    ),
    CommandEntry(
        "topic delete",
        "rmqcli.cli.topics",
        "delete",
        "Delete a topic and its messages.",
        "Cluster",
        "administration",
    ),
    CommandEntry(
        "brokers",
        "rmqcli.cli.broker",
        "brokers",
        "List brokers with their addresses, versions and rates.",
        "Cluster",
        "administration",
    ),
    CommandEntry(
        "broker list",
        "rmqcli.cli.broker",
        "brokers",
        "List brokers with their addresses, versions and rates.",
        "Cluster",
        "administration",
    ),
    CommandEntry(
        "broker show",
        "rmqcli.cli.broker",
        "show",
        "Show what a broker reports about itself, and its settings.",
        "Cluster",
        "administration",
    ),
    CommandEntry(
        "serve",
        "rmqcli.cli.serve",
        "serve",
        "Run a name server and brokers, for development and tests.",
        "Cluster",
        "embedded-broker",
    ),
    CommandEntry(
        "export",
        "rmqcli.cli.export.command",
        "export",
        "Write a range of a topic to Parquet files or a table.",
        "Spark",
        "exporting",
    ),
    CommandEntry(
        "export-compact",
        "rmqcli.cli.export.compact",
        "export_compact",
        "Merge the small Parquet files and runs of an export.",
        "Spark",
        "exporting",
    ),
    CommandEntry(
        "import",
        "rmqcli.cli.imports",
        "import_",
        "Send the messages of an export to a topic, in queue order.",
        "Spark",
        "exporting",
    ),
    CommandEntry(
        "sql",
        "rmqcli.cli.sql",
        "sql",
        "Query topics as tables with Spark SQL.",
        "Spark",
        "querying",
    ),
    CommandEntry(
        "spark package",
        "rmqcli.cli.spark",
        "package",
        "Write rmqcli as a zip that the executors of a Spark cluster can import.",
        "Spark",
        "clusters",
    ),
    CommandEntry(
        "demo",
        "rmqcli.cli.demo",
        "demo",
        "Run a guided tour on an embedded cluster.",
        "This tool",
        "embedded-broker",
    ),
    CommandEntry(
        "completion install",
        "rmqcli.cli.completion.command",
        "install",
        "Install completion of commands, topics and groups for your shell.",
        "This tool",
    ),
    CommandEntry(
        "completion bash",
        "rmqcli.cli.completion.command",
        "bash",
        "Print the completion script of bash.",
        "This tool",
    ),
    CommandEntry(
        "completion zsh",
        "rmqcli.cli.completion.command",
        "zsh",
        "Print the completion script of zsh.",
        "This tool",
    ),
    CommandEntry(
        "completion fish",
        "rmqcli.cli.completion.command",
        "fish",
        "Print the completion script of fish.",
        "This tool",
    ),
    CommandEntry(
        "help",
        "rmqcli.cli.about",
        "help_",
        "Show a guide, or the help of a command.",
        "This tool",
    ),
    CommandEntry(
        "version",
        "rmqcli.cli.about",
        "version",
        "Show the version of rmq.",
        "This tool",
    ),
)


def entries_below(
    prefix: str, *, table: Sequence[CommandEntry]
) -> dict[str, CommandEntry | str]:
    """Map each name that can follow `prefix` to a command's entry or a group's help."""
    entries: dict[str, CommandEntry | str] = {}
    for entry in table:
        if entry.path.startswith(prefix):
            name, _, rest = entry.path.removeprefix(prefix).partition(" ")
            entries[name] = GROUPS.get(f"{prefix}{name}", "") if rest else entry
    return entries
