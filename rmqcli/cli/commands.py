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
    "broker": "List, show, change, drain and clean brokers.",
    "broker config": "Show, change and compare settings of brokers.",
    "nameserver": "Settings and key-value store of name servers.",
    "nameserver config": "Show and change settings of name servers.",
    "nameserver kv": "Texts by namespace and key, which name servers store.",
    "dlq": "List, show, redrive and export the dead letters of groups.",
    "retry": "Show what waits to be delivered again.",
    "message": "Find messages, and show what became of them.",
    "group": "List, show, create, change and delete consumer groups.",
    "check": "Compare lag, age, disks and more with thresholds, for monitors.",
    "profile": "Name clusters, and choose the one that commands use.",
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
        "message show",
        "rmqcli.cli.message.show",
        "show",
        "Show a message, where it is stored, and what became of it in each group.",
        "Messages",
        "messages",
    ),
    CommandEntry(
        "message find",
        "rmqcli.cli.message.find",
        "find",
        "Find messages of a topic by key, property or text.",
        "Messages",
        "messages",
    ),
    CommandEntry(
        "message trace",
        "rmqcli.cli.message.trace",
        "trace",
        "Show what producers and consumers have reported about a message.",
        "Messages",
        "messages",
    ),
    CommandEntry(
        "message resend",
        "rmqcli.cli.message.resend",
        "resend",
        "Have a member of a group consume a message now, and show its result.",
        "Messages",
        "messages",
    ),
    CommandEntry(
        "message recall",
        "rmqcli.cli.message.recall",
        "recall",
        "Withdraw a message that waits for its delivery time.",
        "Messages",
        "messages",
    ),
    CommandEntry(
        "delayed",
        "rmqcli.cli.delayed",
        "delayed",
        "Show the delayed messages of a topic, and when they are due.",
        "Messages",
        "messages",
    ),
    CommandEntry(
        "transactions",
        "rmqcli.cli.transactions",
        "transactions",
        "List the transactions of a topic that are still open.",
        "Messages",
        "messages",
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
        "dlq list",
        "rmqcli.cli.dlq.listing",
        "list_",
        "List how many dead letters groups have, and how old they are.",
        "Groups",
        "dead-letters",
    ),
    CommandEntry(
        "dlq show",
        "rmqcli.cli.dlq.show",
        "show",
        "Show the dead letters of a group, or count them by a value.",
        "Groups",
        "dead-letters",
    ),
    CommandEntry(
        "dlq redrive",
        "rmqcli.cli.dlq.redrive",
        "redrive",
        "Send dead letters again: plan, confirm, apply and verify.",
        "Groups",
        "dead-letters",
    ),
    CommandEntry(
        "dlq export",
        "rmqcli.cli.dlq.export",
        "export",
        "Write the dead letters of a group to JSON lines or Parquet.",
        "Groups",
        "dead-letters",
    ),
    CommandEntry(
        "retry show",
        "rmqcli.cli.retry",
        "show",
        "Show what waits to be delivered again to a group.",
        "Groups",
        "dead-letters",
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
        "group members",
        "rmqcli.cli.groups",
        "members",
        "List the members of a group that are online.",
        "Groups",
        "administration",
    ),
    CommandEntry(
        "group stack",
        "rmqcli.cli.groups",
        "stack",
        "Show what the threads of a group's members are doing.",
        "Groups",
        "administration",
    ),
    CommandEntry(
        "producers",
        "rmqcli.cli.producers",
        "producers",
        "List the producers that are online, or that sent to a topic.",
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
        "cluster",
        "rmqcli.cli.monitoring.cluster",
        "cluster",
        "Show what is wrong, then brokers, topics and groups.",
        "Cluster",
        "monitoring",
    ),
    CommandEntry(
        "doctor",
        "rmqcli.cli.monitoring.doctor",
        "doctor",
        "Check a cluster: what is wrong, and what to do.",
        "Cluster",
        "monitoring",
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
        "broker config get",
        "rmqcli.cli.changes.settings",
        "get_broker",
        "Show settings of brokers, masters and slaves.",
        "Cluster",
        "changes",
    ),
    CommandEntry(
        "broker config set",
        "rmqcli.cli.changes.settings",
        "set_broker",
        "Change settings of brokers, and read them back.",
        "Cluster",
        "changes",
    ),
    CommandEntry(
        "broker config diff",
        "rmqcli.cli.changes.settings",
        "diff",
        "Show in which settings brokers differ.",
        "Cluster",
        "changes",
    ),
    CommandEntry(
        "nameserver config get",
        "rmqcli.cli.changes.settings",
        "get_namesrv",
        "Show settings of name servers.",
        "Cluster",
        "changes",
    ),
    CommandEntry(
        "nameserver config set",
        "rmqcli.cli.changes.settings",
        "set_namesrv",
        "Change settings of all name servers, and read them back.",
        "Cluster",
        "changes",
    ),
    CommandEntry(
        "nameserver kv list",
        "rmqcli.cli.changes.kv",
        "list_values",
        "List the values that name servers store in a namespace.",
        "Cluster",
        "changes",
    ),
    CommandEntry(
        "nameserver kv get",
        "rmqcli.cli.changes.kv",
        "get_value",
        "Show the value of a key on each name server.",
        "Cluster",
        "changes",
    ),
    CommandEntry(
        "nameserver kv put",
        "rmqcli.cli.changes.kv",
        "put_value",
        "Store a value on every name server, and read it back.",
        "Cluster",
        "changes",
    ),
    CommandEntry(
        "nameserver kv delete",
        "rmqcli.cli.changes.kv",
        "delete_value",
        "Remove a value from every name server.",
        "Cluster",
        "changes",
    ),
    CommandEntry(
        "check lag",
        "rmqcli.cli.monitoring.check",
        "lag",
        "Check how many messages wait for groups, or how groups behave.",
        "Cluster",
        "monitoring",
    ),
    CommandEntry(
        "check age",
        "rmqcli.cli.monitoring.check",
        "age",
        "Check how old the oldest unread message of groups is.",
        "Cluster",
        "monitoring",
    ),
    CommandEntry(
        "check dlq",
        "rmqcli.cli.monitoring.check",
        "dlq",
        "Check how many dead letters groups have.",
        "Cluster",
        "monitoring",
    ),
    CommandEntry(
        "check retention",
        "rmqcli.cli.monitoring.check",
        "retention",
        "Check how soon brokers delete messages that groups have not read.",
        "Cluster",
        "monitoring",
    ),
    CommandEntry(
        "check topic",
        "rmqcli.cli.monitoring.check",
        "topic",
        "Check how long ago the newest message of topics was stored.",
        "Cluster",
        "monitoring",
    ),
    CommandEntry(
        "check broker",
        "rmqcli.cli.monitoring.check",
        "broker",
        "Check that brokers answer, and how full their disks are.",
        "Cluster",
        "monitoring",
    ),
    CommandEntry(
        "bundle",
        "rmqcli.cli.bundle.command",
        "bundle",
        "Write one archive for a support case, without secrets.",
        "Cluster",
        "troubleshooting",
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
        "rmqcli.cli.spark.imports",
        "import_",
        "Send the messages of an export to a topic, in queue order.",
        "Spark",
        "exporting",
    ),
    CommandEntry(
        "sql",
        "rmqcli.cli.spark.sql",
        "sql",
        "Query topics as tables with Spark SQL.",
        "Spark",
        "querying",
    ),
    CommandEntry(
        "spark package",
        "rmqcli.cli.spark.package",
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
        "profile list",
        "rmqcli.cli.profile.show",
        "list_",
        "List profiles, and which of them commands use.",
        "This tool",
        "profiles",
    ),
    CommandEntry(
        "profile show",
        "rmqcli.cli.profile.show",
        "show",
        "Show a profile, or which one commands use and why.",
        "This tool",
        "profiles",
    ),
    CommandEntry(
        "profile add",
        "rmqcli.cli.profile.entries",
        "add",
        "Name a cluster: add a profile with its servers.",
        "This tool",
        "profiles",
    ),
    CommandEntry(
        "profile use",
        "rmqcli.cli.profile.entries",
        "use",
        "Choose the profile that commands use.",
        "This tool",
        "profiles",
    ),
    CommandEntry(
        "profile remove",
        "rmqcli.cli.profile.entries",
        "remove",
        "Remove a profile.",
        "This tool",
        "profiles",
    ),
    CommandEntry(
        "profile edit",
        "rmqcli.cli.profile.edit",
        "edit",
        "Edit the file of profiles in your editor.",
        "This tool",
        "profiles",
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
        "rmqcli.cli.help",
        "help_",
        "Show a guide, or the help of a command.",
        "This tool",
    ),
    CommandEntry(
        "version",
        "rmqcli.cli.help",
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
