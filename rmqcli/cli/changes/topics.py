"""`rmq topic permission` and `rmq topic attributes`: planned, changed, read back."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from rmqcli.cli.by_broker import masters_of, raise_if_silent, show_list, show_results
from rmqcli.cli.confirm import confirm
from rmqcli.cli.options import (
    Common,
    argument,
    brokers_option,
    cluster_option,
    command_options,
    option,
)
from rmqcli.cli.topics import STEP_COLUMNS, parse_attribute, parse_perm, who_is_shut_out
from rmqcli.cli.ui.escape import safe
from rmqcli.cli.ui.output import Column
from rmqcli.dataclass import dataclass
from rmqcli.errors import NotFoundError, RmqError, UsageError

if TYPE_CHECKING:
    from rmqcli.admin.brokers import Addresses
    from rmqcli.admin.topics import TopicChange
    from rmqcli.api.client import Client
    from rmqcli.wire.bodies.config import TopicConfig

    Configs = Mapping[str, TopicConfig | RmqError | None]

ATTRIBUTE_COLUMNS = (
    Column("broker_name", "broker that has the topic", title="BROKER"),
    Column(
        "result",
        "changed, unchanged, failed or unknown; null if only shown",
        title=None,
    ),
    Column("name", "name of the attribute; null for none"),
    Column("value", "its value"),
    Column("error", "why it failed, or is not known", priority=1),
)


_TOPIC = partial(argument, metavar="TOPIC", help="Name of the topic.")


@command_options(fields=STEP_COLUMNS, asks=True)
def permission(
    common: Common,
    topic: str = _TOPIC(),
    perm: int = argument(
        parser=parse_perm, metavar="rw|r|w", help="Permissions to give it."
    ),
    cluster: str | None = cluster_option(),
    broker: list[str] | None = brokers_option(),
) -> None:
    """Change who may use a topic: producers (w), consumers (r), or both.

    Example: rmq topic permission orders r

    The present permissions are shown first, and the change must be confirmed. Brokers
    refuse at once what is not permitted.
    """
    from rmqcli.admin.topics import TopicChange, perm_text

    with common.open_client() as client:
        masters, known = _known(client, topic, cluster, broker)
        changed = []
        for name, config in known.items():
            if isinstance(config, RmqError):
                common.messages.warn(f"{name} is left alone: {config.message}")
            elif config is not None and config.perm != perm:
                changed.append(name)
                before, after = perm_text([config.perm]), perm_text([perm])
                common.messages.info(f"{name}: {before}, will be {after}")
        for who in who_is_shut_out(known.values(), perm):
            common.messages.warn(f"{who} {topic} there")
        if changed:
            confirm(
                common,
                f"This changes the permissions of topic {safe(topic)} on"
                f" {', '.join(changed)}.",
            )
        elif not any(isinstance(each, RmqError) for each in known.values()):
            common.messages.info("nothing was changed: it has these permissions")
        _update(common, client, topic, masters, TopicChange(perm=perm), known)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicAttributesOptions:
    """The options of `rmq topic attributes`."""

    topic: str = _TOPIC()
    attributes: list[Any] | None = argument(
        default=None,
        parser=parse_attribute,
        metavar="+NAME=VALUE",
        help="Attributes to set (default: show those that it has).",
    )
    remove: list[str] | None = option(
        metavar="NAME",
        help="Remove this attribute, which then has its default; repeatable.",
    )
    cluster: str | None = cluster_option()
    broker: list[str] | None = brokers_option()

    @property
    def changes(self) -> bool:
        """Whether anything is to be changed."""
        return bool(self.attributes or self.remove)


@command_options(
    TopicAttributesOptions,
    fields=ATTRIBUTE_COLUMNS,
    changes=lambda options: options.changes,
    asks=True,
)
def attributes(common: Common, options: TopicAttributesOptions) -> None:
    """Show, set and remove attributes of a topic (RocketMQ 5).

    Example: rmq topic attributes orders +cleanup.policy=COMPACTION

    Brokers know which attributes there are, and which of them cannot be changed; what
    they refuse is said. A change is confirmed, and read back.
    """
    from rmqcli.admin.topics import TopicChange, check_attributes, check_removed

    given = dict(options.attributes or ())
    removed = tuple(each.removeprefix("+") for each in options.remove or ())
    if given.keys() & set(removed):
        raise UsageError("an attribute cannot be set and removed at once")
    topic = options.topic
    with common.open_client() as client:
        masters, known = _known(client, topic, options.cluster, options.broker)
        if not options.changes:
            _show_attributes(common, known)
            return
        there = [
            each.attributes
            for each in known.values()
            if each is not None and not isinstance(each, RmqError)
        ]
        if len(there) == len(known):  # all masters answered
            check_removed(f"topic {topic}", there, removed)
        shown = {n: c for n, c in known.items() if not isinstance(c, RmqError)}
        check_attributes(
            client, {name: at for name in shown if (at := masters[name]) is not None}
        )
        for name, config in known.items():
            if isinstance(config, RmqError):
                common.messages.warn(f"{name} is left alone: {config.message}")
                continue
            has = {} if config is None else config.attributes
            for key, will in {**given, **dict.fromkeys(removed, "removed")}.items():
                common.messages.info(
                    f"{name}: {key} is {has.get(key, 'not set')}, will be {will}"
                )
        confirm(common, f"This changes attributes of topic {safe(topic)}.")
        change = TopicChange(attributes=given, removed=removed)
        _update(common, client, topic, masters, change, known)


def _known(
    client: Client, topic: str, cluster: str | None, brokers: list[str] | None
) -> tuple[Addresses, Configs]:
    """Return the masters that have the topic, and its settings on each of them.

    A master that did not answer is among them. Raises NotFoundError when all answer and
    none has the topic, and DeniedError when all deny access.
    """
    from rmqcli.admin.brokers import denial_of, have_left
    from rmqcli.admin.topics import known_configs
    from rmqcli.api.broker_errors import not_found

    masters = masters_of(client, cluster, brokers)
    known = known_configs(client, topic, masters)
    there = {name: each for name, each in known.items() if each is not None}
    if have_left(there.values()):
        raise not_found("topic", topic)
    if (denial := denial_of(there.values())) is not None:
        raise denial
    return {name: masters[name] for name in there}, there


def _update(
    common: Common,
    client: Client,
    topic: str,
    masters: Addresses,
    change: TopicChange,
    known: Configs,
) -> None:
    from rmqcli.admin.topics import update_topic

    try:
        steps = update_topic(client, topic, masters, change, before=known)
    except NotFoundError as error:  # deleted in the meantime
        raise NotFoundError(
            error.message, code=error.code, name=error.name, hint="list topics again"
        ) from error
    client.forget(topic)
    show_results(common, steps, STEP_COLUMNS)


def _show_attributes(common: Common, known: Configs) -> None:
    empty = dict.fromkeys(column.name for column in ATTRIBUTE_COLUMNS)
    rows: list[dict[str, Any]] = []
    errors: dict[str, RmqError] = {}
    for name, config in known.items():
        if isinstance(config, RmqError):
            errors[name] = config
            rows.append({**empty, "broker_name": name, "error": config.message})
        elif config is not None:
            rows += [
                {**empty, "broker_name": name, "name": key, "value": value}
                for key, value in sorted(config.attributes.items())
            ]
    show_list(
        common, rows, ATTRIBUTE_COLUMNS, none="no attributes", is_complete=not errors
    )
    raise_if_silent(errors)
