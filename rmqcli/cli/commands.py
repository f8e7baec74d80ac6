"""The table of commands: the name, the function and one line of help of each.

`rmq --help` needs only this table. A command's module is imported when that command
runs or shows its own help. A test checks that each line of help equals the first line
of the function's docstring.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, cast

if TYPE_CHECKING:
    from rmqcli.cli.options import Command

#: The help of names that are only groups of commands.
GROUPS = {
    "acl": "List, show and change users and rules; say which rule decides.",
    "acl user": "List, show, create, change, delete and copy users.",
    "acl rule": "List, show, create, change, delete and copy rules.",
    "completion": "Set up completion of commands, topics and groups.",
    "spark": "Prepare a Spark cluster for rmqcli.",
    "topic": "List, show, create, change and delete topics.",
    "broker": "List, show, change, drain and clean brokers.",
    "broker config": "Show, change and compare settings of brokers.",
    "nameserver": "Settings and key-value store of name servers.",
    "nameserver config": "Show and change settings of name servers.",
    "nameserver kv": "Texts by namespace and key, which name servers store.",
    "definitions": "Write, compare and apply topics and groups as one file.",
    "dlq": "List, show, redrive and export the dead letters of groups.",
    "retry": "Show what waits to be delivered again, or deliver it now.",
    "message": "Find messages, and show what became of them.",
    "group": "List, show, create, change and delete consumer groups.",
    "bench": "Measure how fast a cluster stores and delivers messages.",
    "check": "Compare lag, age, disks and more with thresholds, for monitors.",
    "profile": "Name clusters, and choose the one that commands use.",
}

#: In the order of `rmq --help`: the title above, the command, its module and function
#: below `rmqcli.cli`, the guide that explains it, and the line of help.
_TABLE: Final = (
    ("Messages", "tail", "tail.command:tail", "reading",
     "Read messages of topics without affecting any group."),
    ("Messages", "send", "send:send", "sending",
     "Send messages from an argument, lines, JSONL or files."),
    ("Messages", "consume", "consume.command:consume", "consuming",
     "Consume in a group: print messages, or run a command for each."),
    ("Messages", "copy", "copy:copy", "moving",
     "Copy a topic to another one, also of another cluster."),
    ("Messages", "message show", "message.show:show", "messages",
     "Show a message, where it is stored, and what became of it in each group."),
    ("Messages", "message find", "message.find:find", "messages",
     "Find messages of a topic by key, property or text."),
    ("Messages", "message trace", "message.trace:trace", "messages",
     "Show what producers and consumers have reported about a message."),
    ("Messages", "message resend", "message.resend:resend", "messages",
     "Have a member of a group consume a message now, and show its result."),
    ("Messages", "message recall", "message.recall:recall", "messages",
     "Withdraw a message that waits for its delivery time."),
    ("Messages", "delayed", "delayed:delayed", "messages",
     "Show the delayed messages of a topic, and when they are due."),
    ("Messages", "transactions", "transactions:transactions", "messages",
     "List the transactions of a topic that are still open."),
    ("Groups", "lag", "lag.command:lag", "measuring",
     "Show how far groups are behind, per queue, and why."),
    ("Groups", "reset-offset", "reset_offset.command:reset_offset", "resetting",
     "Plan, apply, verify or undo a change of a group's offsets."),
    ("Groups", "dlq list", "dlq.listing:list_", "dead-letters",
     "List how many dead letters groups have, and how old they are."),
    ("Groups", "dlq show", "dlq.show:show", "dead-letters",
     "Show the dead letters of a group, or count them by a value."),
    ("Groups", "dlq redrive", "dlq.redrive:redrive", "dead-letters",
     "Send dead letters again, by a plan that you confirm."),
    ("Groups", "dlq export", "dlq.export:export", "dead-letters",
     "Write the dead letters of a group to JSON lines or Parquet."),
    ("Groups", "retry show", "retry:show", "dead-letters",
     "Show what waits to be delivered again to a group."),
    ("Groups", "retry flush", "dlq.flush:flush", "dead-letters",
     "Deliver now what waits for a group, by a plan that you confirm."),
    ("Groups", "groups", "groups:groups", "administration", "List consumer groups."),
    ("Groups", "group list", "groups:groups", "administration",
     "List consumer groups."),
    ("Groups", "group show", "groups:show", "administration",
     "Show a group's members, subscriptions and settings."),
    ("Groups", "group members", "groups:members", "administration",
     "List the members of a group that are online."),
    ("Groups", "group stack", "groups:stack", "administration",
     "Show what the threads of a group's members are doing."),
    ("Groups", "producers", "producers:producers", "administration",
     "List the producers that are online, or that sent to a topic."),
    ("Groups", "group create", "groups:create", "administration",
     "Create a consumer group."),
    ("Groups", "group update", "groups:update", "administration",
     "Change settings of a consumer group."),
    ("Groups", "group pause", "changes.consumption:pause", "changes",
     "Stop the consumption of a group, on each broker."),
    ("Groups", "group resume", "changes.consumption:resume", "changes",
     "Let the members of a paused group consume again."),
    ("Groups", "group delete", "groups:delete", "administration",
     "Delete a consumer group."),
    ("Monitoring", "cluster", "monitoring.cluster:cluster", "monitoring",
     "Show what is wrong, then brokers, topics and groups."),
    ("Monitoring", "doctor", "monitoring.doctor:doctor", "monitoring",
     "Check a cluster: what is wrong, and what to do."),
    ("Monitoring", "top", "top.command:top", "watching",
     "Watch groups, topics, brokers and clusters on a full screen."),
    ("Monitoring", "check lag", "monitoring.check:lag", "monitoring",
     "Check how many messages wait for groups, or how groups behave."),
    ("Monitoring", "check age", "monitoring.check:age", "monitoring",
     "Check how old the oldest unread message of groups is."),
    ("Monitoring", "check dlq", "monitoring.check:dlq", "monitoring",
     "Check how many dead letters groups have."),
    ("Monitoring", "check retention", "monitoring.check:retention", "monitoring",
     "Check how soon brokers delete messages that groups have not read."),
    ("Monitoring", "check topic", "monitoring.check:topic", "monitoring",
     "Check how long ago the newest message of topics was stored."),
    ("Monitoring", "check broker", "monitoring.check:broker", "monitoring",
     "Check that brokers answer, and how full their disks are."),
    ("Monitoring", "exporter", "monitoring.exporter:exporter", "monitoring",
     "Serve lag, dead letters and brokers as metrics to Prometheus."),
    ("Monitoring", "mcp", "mcp:mcp", "assistants",
     "Give assistants tools that only read this cluster."),
    ("Monitoring", "bundle", "bundle.command:bundle", "troubleshooting",
     "Write one archive for a support case, without secrets."),
    ("Cluster", "topics", "topics:topics", "administration", "List topics."),
    ("Cluster", "topic list", "topics:topics", "administration", "List topics."),
    ("Cluster", "topic show", "topics:show", "administration",
     "Show a topic's queues, offsets and settings."),
    ("Cluster", "topic create", "topics:create", "administration", "Create a topic."),
    ("Cluster", "topic update", "topics:update", "administration",
     "Change settings of a topic."),
    ("Cluster", "topic permission", "changes.topics:permission", "changes",
     "Change who may use a topic: producers (w), consumers (r), or both."),
    ("Cluster", "topic attributes", "changes.topics:attributes", "changes",
     "Show, set and remove attributes of a topic (RocketMQ 5)."),
    ("Cluster", "topic delete", "topics:delete", "administration",
     "Delete a topic and its messages."),
    ("Cluster", "brokers", "broker:brokers", "administration",
     "List brokers with their addresses, versions and rates."),
    ("Cluster", "broker list", "broker:brokers", "administration",
     "List brokers with their addresses, versions and rates."),
    ("Cluster", "broker show", "broker:show", "administration",
     "Show what a broker reports about itself, and its settings."),
    ("Cluster", "broker config get", "changes.settings:get_broker", "changes",
     "Show settings of brokers, masters and slaves."),
    ("Cluster", "broker config set", "changes.settings:set_broker", "changes",
     "Change settings of brokers, and read them back."),
    ("Cluster", "broker config diff", "changes.settings:diff", "changes",
     "Show in which settings brokers differ."),
    ("Cluster", "broker drain", "changes.drain:drain", "changes",
     "Stop new messages to a broker, and wait until it is safe to stop it."),
    ("Cluster", "broker undrain", "changes.drain:undrain", "changes",
     "Let producers send to a broker again."),
    ("Cluster", "broker clean-expired-queues", "changes.clean:clean_expired", "changes",
     "Remove queues whose messages have all expired."),
    ("Cluster", "broker clean-unused-topics", "changes.clean:clean_unused", "changes",
     "Remove queues of topics that do not exist any more."),
    ("Cluster", "nameserver config get", "changes.settings:get_namesrv", "changes",
     "Show settings of name servers."),
    ("Cluster", "nameserver config set", "changes.settings:set_namesrv", "changes",
     "Change settings of all name servers, and read them back."),
    ("Cluster", "nameserver kv list", "changes.kv:list_values", "changes",
     "List the values that name servers store in a namespace."),
    ("Cluster", "nameserver kv get", "changes.kv:get_value", "changes",
     "Show the value of a key on each name server."),
    ("Cluster", "nameserver kv put", "changes.kv:put_value", "changes",
     "Store a value on every name server, and read it back."),
    ("Cluster", "nameserver kv delete", "changes.kv:delete_value", "changes",
     "Remove a value from every name server."),
    ("Cluster", "definitions export", "definitions:export", "defining",
     "Write the topics and groups of a cluster as one JSON file."),
    ("Cluster", "definitions diff", "definitions:diff", "defining",
     "Compare a file of definitions with a cluster."),
    ("Cluster", "definitions apply", "definitions:apply", "defining",
     "Create and change topics and groups as a file of definitions says."),
    ("Cluster", "acl user list", "acl:user_list", "security",
     "List the users of access control 2.0."),
    ("Cluster", "acl user show", "acl:user_show", "security",
     "Show a user on each broker."),
    ("Cluster", "acl user create", "acl:user_create", "security",
     "Create a user on each broker."),
    ("Cluster", "acl user update", "acl:user_update", "security",
     "Change the password, type or status of a user."),
    ("Cluster", "acl user delete", "acl:user_delete", "security",
     "Delete a user and its rules."),
    ("Cluster", "acl user copy", "acl:user_copy", "security",
     "Copy a user with its password from one broker to others."),
    ("Cluster", "acl rule list", "acl:rule_list", "security",
     "List the rules of users."),
    ("Cluster", "acl rule show", "acl:rule_show", "security",
     "Show a rule on each broker."),
    ("Cluster", "acl rule create", "acl:rule_create", "security",
     "Allow or deny a user actions with a resource."),
    ("Cluster", "acl rule update", "acl:rule_update", "security",
     "Change a rule of a user."),
    ("Cluster", "acl rule delete", "acl:rule_delete", "security",
     "Delete a rule of a user."),
    ("Cluster", "acl rule copy", "acl:rule_copy", "security",
     "Copy the rules of a user from one broker to others."),
    ("Cluster", "acl explain", "acl:explain", "security",
     "Show whether a user may do something, and which rule decides."),
    ("Cluster", "acl config", "acl:config", "security",
     "List the accounts of access control 1.0, of brokers before 5.3."),
    ("Cluster", "bench produce", "bench:produce", "measuring",
     "Measure how fast brokers store messages."),
    ("Cluster", "bench consume", "bench:consume", "measuring",
     "Measure how fast a group consumes, with a listener that does nothing."),
    ("Cluster", "bench latency", "bench:latency", "measuring",
     "Measure how long messages take from the sender to the listener."),
    ("Cluster", "serve", "serve:serve", "embedded-broker",
     "Run a name server and brokers, for development and tests."),
    ("Spark", "export", "export.command:export", "exporting",
     "Write a range of a topic to Parquet files or a table."),
    ("Spark", "export-compact", "export.compact:export_compact", "exporting",
     "Merge the small Parquet files and runs of an export."),
    ("Spark", "import", "spark.imports:import_", "exporting",
     "Send the messages of an export to a topic, in queue order."),
    ("Spark", "sql", "spark.sql:sql", "querying",
     "Query topics as tables with Spark SQL."),
    ("Spark", "spark package", "spark.package:package", "clusters",
     "Write rmqcli as a zip that the executors of a Spark cluster can import."),
    ("This tool", "demo", "demo:demo", "embedded-broker",
     "Run a guided tour on an embedded cluster."),
    ("This tool", "profile list", "profile.show:list_", "profiles",
     "List profiles, and which of them commands use."),
    ("This tool", "profile show", "profile.show:show", "profiles",
     "Show a profile, or which one commands use and why."),
    ("This tool", "profile add", "profile.entries:add", "profiles",
     "Name a cluster: add a profile with its servers."),
    ("This tool", "profile use", "profile.entries:use", "profiles",
     "Choose the profile that commands use."),
    ("This tool", "profile remove", "profile.entries:remove", "profiles",
     "Remove a profile."),
    ("This tool", "profile edit", "profile.edit:edit", "profiles",
     "Edit the file of profiles in your editor."),
    ("This tool", "completion install", "completion.command:install", "",
     "Install completion of commands, topics and groups for your shell."),
    ("This tool", "completion bash", "completion.command:bash", "",
     "Print the completion script of bash."),
    ("This tool", "completion zsh", "completion.command:zsh", "",
     "Print the completion script of zsh."),
    ("This tool", "completion fish", "completion.command:fish", "",
     "Print the completion script of fish."),
    ("This tool", "explain", "explain:explain", "exit-codes",
     "Explain an exit code, or a code of a server's answer."),
    ("This tool", "help", "help:help_", "", "Show a guide, or the help of a command."),
    ("This tool", "version", "help:version", "", "Show the version of rmq."),
)  # fmt: skip


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


COMMANDS = tuple(
    CommandEntry(path, f"rmqcli.cli.{module}", attribute, help_line, section, guide)
    for section, path, place, guide, help_line in _TABLE
    for module, attribute in [place.split(":")]
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
