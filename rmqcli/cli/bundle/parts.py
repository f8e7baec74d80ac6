"""Reads what goes into a bundle: the cluster once, and what rmq knows of itself.

Values have the form of `-o json` of the command that shows the same, or RocketMQ's own
names. Nothing has the name of a topic, group or server for its key: such a name may be
like that of a secret. A server that does not answer is noted in the parts that it is
missing from, and costs one timeout.
"""

from __future__ import annotations

import json
import platform
from functools import partial
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final

from rmqcli import __version__
from rmqcli.bundle.archive import BundlePart
from rmqcli.cli.ui.output import Column, row_of
from rmqcli.errors import RmqError, UnsupportedError
from rmqcli.hint import command_line
from rmqcli.model import OffsetRange
from rmqcli.units import counted, format_rfc3339
from rmqcli.wire.body import encode_body

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rmqcli.admin.doctor.facts import Facts
    from rmqcli.api.client import Client
    from rmqcli.cli.options import Common
    from rmqcli.model import MessageQueue

#: More topics than this have no statistics in a bundle.
STATISTICS_TOPICS_MAX: Final = 1_000
#: The newest messages of a topic that are in a bundle, if asked for.
MESSAGES_PER_TOPIC: Final = 10
#: The packages whose versions matter.
_PACKAGES: Final = (
    "grpcio",
    "protobuf",
    "rich",
    "typer",
    "lz4",
    "pyspark",
    "pyarrow",
    "fastavro",
)


def read_parts(
    common: Common,
    client: Client,
    *,
    messages: Sequence[str] = (),
    on_part: Callable[[str], None],
) -> Iterator[BundlePart]:
    """Yield the parts; `on_part` is told what is read next.

    Nothing is raised for a server that does not answer.
    """
    yield _of_rmq(common)
    on_part("name servers")
    yield _part(
        "name-servers.json",
        "settings of the name servers",
        "GET_NAMESRV_CONFIG",
        partial(_namesrvs, client),
    )
    on_part("brokers, topics and groups")
    yield from _of_cluster(client)
    on_part("users and rules")
    yield _part(
        "accounts.json",
        "users and rules of access control, without passwords",
        "rmq acl user list, rmq acl rule list",
        partial(_accounts, client),
    )
    on_part("producers")
    yield _part(
        "producers.json",
        "producers that are online",
        "rmq producers",
        partial(_producers, client),
    )
    on_part("statistics")
    yield _part(
        "statistics.json",
        "offsets of topics, and when a message was last stored",
        "rmq topic show",
        partial(_statistics, client),
    )
    for topic in messages:
        on_part(f"messages of {topic}")
    if messages:
        yield _part(
            "messages.json",
            f"the newest {MESSAGES_PER_TOPIC} messages of topics, with bodies",
            command_line(f"rmq tail --last {MESSAGES_PER_TOPIC}", *messages),
            partial(_messages, client, messages),
        )


def _part(
    file: str, title: str, source: str, read: Callable[[dict[str, str]], Any]
) -> BundlePart:
    """Return a part of what `read` returns, and of the errors that it notes."""
    part = partial(BundlePart, file=file, title=title, source=source)
    errors: dict[str, str] = {}
    try:
        return part(data=read(errors), errors=errors)
    except RmqError as error:
        return part(error=error.message, errors=errors)


def _note(errors: dict[str, str], found: Mapping[str, RmqError]) -> None:
    errors.update((name, error.message) for name, error in found.items())


def _of_rmq(common: Common) -> BundlePart:
    profile: dict[str, Any] | None = None
    if common.profile is not None:
        from rmqcli.cli.profile.show import shown_fields

        profile = shown_fields(common.profile)
        # Under this name, because it is no secret: it says where they come from.
        profile["login_from"] = profile.pop("credentials")
    tls = common.tls
    return BundlePart(
        file="rmq.json",
        title="rmq itself: versions and settings",
        source="rmq version, rmq profile show",
        data={
            "rmq": __version__,
            "python": platform.python_version(),
            "system": platform.platform(),
            "packages": {name: _version_of(name) for name in _PACKAGES},
            "namesrv": list(common.namesrv),
            "timeout_ms": common.timeout_ms,
            "address_map": dict(common.address_map),
            "tls": None if tls is None else row_of(_TLS_COLUMNS, tls),
            "profile": profile,
        },
    )


def _version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _namesrvs(client: Client, errors: dict[str, str]) -> Any:
    from rmqcli.api.calls.namesrv_config import get_namesrv_config

    addresses = dict.fromkeys(client.config.namesrv)
    answers = client.ask_many(
        {address: (address, get_namesrv_config()) for address in addresses}
    )
    _note(errors, {n: e for n, e in answers.items() if isinstance(e, RmqError)})
    found = [
        {"address": address, "settings": answer}
        for address, answer in answers.items()
        if not isinstance(answer, RmqError)
    ]
    if not found:
        raise RmqError("no name server answered")
    return found


def _of_cluster(client: Client) -> Iterator[BundlePart]:
    """Yield what the facts of the doctor tell: nearly all, read once."""
    from rmqcli.admin.doctor.facts import gather_facts

    try:
        facts = gather_facts(client)
    except RmqError as error:
        for file, (title, source, _) in _OF_FACTS.items():
            yield BundlePart(file=file, title=title, source=source, error=error.message)
        return
    silent = {name: error.message for name, error in facts.silent().items()}
    for file, (title, source, read) in _OF_FACTS.items():
        more: dict[str, str] = {}
        data = read(facts, more)
        errors = silent | {
            what: reason
            for what, reason in more.items()
            if not any(told in reason for told in silent.values())
        }
        yield BundlePart(
            file=file, title=title, source=source, data=data, errors=errors
        )


def _cluster(facts: Facts, errors: dict[str, str]) -> Any:
    from rmqcli.admin.cluster import summarize
    from rmqcli.cli.broker import COLUMNS
    from rmqcli.cli.monitoring.cluster import summary_json

    found = summarize(facts)
    _note(errors, found.errors)
    for each in found.refused:
        what, _, reason = each.partition(": ")
        errors.setdefault(what, reason)
    return summary_json(found, [row_of(COLUMNS, each) for each in found.brokers])


def _doctor(facts: Facts, errors: dict[str, str]) -> Any:
    from rmqcli.admin.doctor.diagnose import CHECKS, judge
    from rmqcli.cli.monitoring.doctor import diagnosis_json

    found = judge(CHECKS, facts)
    for _, finding in found.findings:
        if finding.status == "unknown":
            errors.setdefault(finding.subject, finding.evidence)
    return diagnosis_json(found)


def _brokers(facts: Facts, errors: dict[str, str]) -> Any:
    from rmqcli.cli.broker import detail_row

    for each in facts.brokers:
        if each.settings_error is not None and each.row.error is None:
            errors[each.row.process_name] = each.settings_error.message
    return [detail_row(each) for each in facts.brokers]


def _tables(tables: Mapping[str, Any], errors: dict[str, str]) -> Any:
    """Return the rows of tables of settings, with RocketMQ's own names."""
    found = []
    for broker, table in tables.items():
        if isinstance(table, RmqError):
            errors[broker] = table.message
            continue
        for _, config in sorted(table.items()):
            row = json.loads(encode_body(config))
            found.append({"broker_name": broker, **row})
    return found


#: Not the password of the key.
_TLS_COLUMNS = tuple(
    map(Column, ("ca_file", "cert_file", "key_file", "server_hostname", "insecure"))
)
_ROUTE_BROKER_COLUMNS = (Column("broker_name"), Column("addresses"))
_ROUTE_QUEUE_COLUMNS = (
    Column("broker_name"),
    Column("read_queue_nums"),
    Column("write_queue_nums"),
    Column("perm"),
)


def _routes(facts: Facts, errors: dict[str, str]) -> Any:
    found = []
    for topic, route in sorted(facts.routes.items()):
        if isinstance(route, RmqError):
            errors[f"topic {topic}"] = route.message
            continue
        brokers = [row_of(_ROUTE_BROKER_COLUMNS, each) for each in route.brokers]
        queues = [row_of(_ROUTE_QUEUE_COLUMNS, each) for each in route.queues]
        found.append({"topic": route.topic, "brokers": brokers, "queues": queues})
    return found


def _lag(facts: Facts, errors: dict[str, str]) -> Any:
    from rmqcli.cli.lag.view import LagView

    if facts.lag_error is not None:
        errors["groups"] = facts.lag_error.message
    for lag in facts.lags:
        for broker_name, reason in lag.untold():
            errors.setdefault(broker_name, reason or "it did not tell the lag")
        for what, reason in (
            ("members", lag.reading.members_unknown),
            ("dead letters", lag.reading.dead_letters_unknown),
            ("ages", lag.reading.ages_unknown),
        ):
            if reason is not None:
                errors.setdefault(what, reason)
    view = LagView(groups=facts.lags, process_queues=True)
    return [view.group_json(lag) for lag in facts.lags]


def _letters(facts: Facts, errors: dict[str, str]) -> Any:
    from rmqcli.cli.dlq.listing import letters_row

    if facts.letters is None:
        error = facts.letters_error
        errors["dead letters"] = "not read" if error is None else error.message
        return []
    _note(errors, facts.letters.errors)
    for each in facts.letters.groups:
        if each.reason is not None and not facts.letters.errors:
            errors[f"group {each.group}"] = each.reason
    return [
        {**letters_row(each), "new_in_last_hour": facts.new_letters.get(each.group)}
        for each in facts.letters.groups
    ]


#: File -> what it is, the command that shows the same, and what reads it.
_OF_FACTS: Final[dict[str, tuple[str, str, Callable[[Facts, dict[str, str]], Any]]]] = {
    "cluster.json": ("the cluster at a glance", "rmq cluster", _cluster),
    "doctor.json": ("what is wrong", "rmq doctor", _doctor),
    "brokers.json": (
        "brokers with their runtime values and settings",
        "rmq broker show",
        _brokers,
    ),
    "topics.json": (
        "settings of topics",
        "rmq topic show",
        lambda facts, errors: _tables(facts.topics, errors),
    ),
    "routes.json": ("routes of topics", "GET_ROUTEINFO_BY_TOPIC", _routes),
    "groups.json": (
        "settings of groups",
        "rmq group show",
        lambda facts, errors: _tables(facts.groups, errors),
    ),
    "lag.json": (
        "lag of groups, with what members have cached",
        "rmq lag --process-queues",
        _lag,
    ),
    "dead-letters.json": ("dead letters of groups", "rmq dlq list --all", _letters),
}


def _accounts(client: Client, errors: dict[str, str]) -> Any:
    """Return users and rules, without passwords, which brokers do not show.

    A broker that has none, as before 5.3, is named with the reason: nothing is missing.
    """
    from rmqcli.admin.acl import list_accounts
    from rmqcli.cli.acl import RULE_COLUMNS, USER_COLUMNS

    try:
        found = list_accounts(client)
    except UnsupportedError as error:
        return {"users": [], "rules": [], "without": [error.message]}
    without = {n: e for n, e in found.errors.items() if isinstance(e, UnsupportedError)}
    _note(errors, {n: e for n, e in found.errors.items() if n not in without})
    users = [each for each in found.entries if each.kind == "user"]
    rules = [each for each in found.entries if each.kind == "rule"]
    return {
        "users": [row_of(USER_COLUMNS, each) for each in users],
        "rules": [row_of(RULE_COLUMNS, each) for each in rules],
        "without": [error.message for error in without.values()],
    }


def _producers(client: Client, errors: dict[str, str]) -> Any:
    from rmqcli.admin.producers import list_producers
    from rmqcli.cli.producers import COLUMNS

    found = list_producers(client)
    _note(errors, found.errors)
    return [row_of(COLUMNS, each) for each in found.producers]


def _statistics(client: Client, errors: dict[str, str]) -> Any:
    """Return how many messages topics have in each queue, and since when."""
    from rmqcli.admin.brokers import reader_addresses
    from rmqcli.admin.topics import list_topics
    from rmqcli.api.calls.stats import get_topic_stats_info

    listed = list_topics(client)
    _note(errors, listed.errors)
    topics = [each for each in listed.topics if each.kind == "normal"]
    addresses = reader_addresses(client.cluster_info().brokers.values())
    questions = {
        (topic.topic, broker): (addresses[broker], get_topic_stats_info(topic.topic))
        for topic in topics[:STATISTICS_TOPICS_MAX]
        for broker in topic.brokers
        if broker in addresses
    }
    found: list[dict[str, Any]] = []
    for (name, broker), answer in client.ask_many(questions).items():
        if isinstance(answer, RmqError):
            errors[broker] = answer.message
            continue
        for queue, offset in sorted(answer.items()):
            stored_ms = offset.last_update_timestamp
            found.append(
                {
                    "topic": name,
                    "broker_name": queue.broker_name,
                    "queue_id": queue.queue_id,
                    "min_offset": offset.min_offset,
                    "max_offset": offset.max_offset,
                    "stored": format_rfc3339(stored_ms) if stored_ms > 0 else None,
                }
            )
    left = len(topics) - STATISTICS_TOPICS_MAX
    if left > 0:
        errors["topics"] = f"not asked about {counted(left, 'more topic')}"
    return found


def _messages(client: Client, topics: Sequence[str], errors: dict[str, str]) -> Any:
    """Return the newest messages of some topics, with their bodies."""
    found: list[dict[str, Any]] = []
    for topic in dict.fromkeys(topics):
        try:
            queues = client.route(topic).read_queues()
        except RmqError as error:
            errors[f"topic {topic}"] = error.message
            continue
        records = _newest(client, queues, errors)
        records.sort(key=_stored)
        found += records[-MESSAGES_PER_TOPIC:]
    return found


def _stored(record: Mapping[str, Any]) -> tuple[str, int]:
    return str(record["store_timestamp"]), record["commit_log_offset"] or 0


def _newest(
    client: Client, queues: Sequence[MessageQueue], errors: dict[str, str]
) -> list[dict[str, Any]]:
    """Return the newest messages of each queue; note the errors of queues."""
    from rmqcli.admin.positions import resolve_each
    from rmqcli.admin.read.range import RangeReader, ReadOptions
    from rmqcli.position import LastN
    from rmqcli.wire.message.decode import decode_messages
    from rmqcli.wire.message.json import JsonWriter

    ranges = []
    for queue, at in resolve_each(client, queues, LastN(MESSAGES_PER_TOPIC)).items():
        if isinstance(at, RmqError):
            errors[str(queue)] = at.message
        elif at.offset is not None:
            ranges.append(OffsetRange(queue, at.offset, at.max_offset))
    # A broker is asked once: one that does not answer costs one timeout.
    options = ReadOptions(raise_abandoned=False, retry_for_ms=0)
    reader = RangeReader(client, ranges, options)
    records = [
        json.loads(line)
        for chunk in reader
        for line in JsonWriter(None).lines(
            chunk.queue, list(decode_messages(chunk.body))
        )
    ]
    errors.update((str(queue), e.message) for queue, e in reader.abandoned.items())
    return records
