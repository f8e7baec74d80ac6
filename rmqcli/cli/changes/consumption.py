"""`rmq group pause` and `rmq group resume`: consumption of a group, off and on."""

from __future__ import annotations

from rmqcli.cli.by_broker import masters_of, show_results
from rmqcli.cli.confirm import confirm
from rmqcli.cli.groups import RESULT_COLUMNS
from rmqcli.cli.options import (
    Common,
    argument,
    brokers_option,
    cluster_option,
    command_options,
)
from rmqcli.cli.ui.escape import safe
from rmqcli.errors import RmqError

_GROUP = argument(metavar="GROUP", help="Name of the group.")


@command_options(fields=RESULT_COLUMNS, asks=True)
def pause(
    common: Common,
    group: str = _GROUP,
    cluster: str | None = cluster_option(),
    broker: list[str] | None = brokers_option(),
) -> None:
    """Stop the consumption of a group, on each broker.

    Example: rmq group pause billing

    Brokers then refuse requests of its members for messages. Members stay online and
    keep their queues; they still finish, commit and retry what they have. Offsets are
    kept, but messages may expire meanwhile.
    """
    _set(common, group, cluster, broker, is_on=False)


@command_options(fields=RESULT_COLUMNS, asks=True)
def resume(
    common: Common,
    group: str = _GROUP,
    cluster: str | None = cluster_option(),
    broker: list[str] | None = brokers_option(),
) -> None:
    """Let the members of a paused group consume again.

    Example: rmq group resume billing

    Members of Java ask again within 3 s.
    """
    _set(common, group, cluster, broker, is_on=True)


def _set(
    common: Common,
    group: str,
    cluster: str | None,
    brokers: list[str] | None,
    *,
    is_on: bool,
) -> None:
    from rmqcli.admin.brokers import denial_of
    from rmqcli.admin.groups import GroupChange, read_consume_enable, update_group

    with common.open_client() as client:
        masters = masters_of(client, cluster, brokers)
        known = read_consume_enable(client, group, masters)
        if (denial := denial_of(known.values())) is not None:
            raise denial
        changed = []
        for name, now in known.items():
            if isinstance(now, RmqError):
                common.messages.warn(f"{name}: {now.message}")
                if masters[name] is not None:  # it may answer when it is changed
                    changed.append(name)
            elif now is None:
                note = f"{name} has no settings of the group"
                if not is_on:
                    note += (
                        ", and creates them with consumption on if a member connects"
                    )
                common.messages.warn(note)
            elif now is not is_on:
                changed.append(name)
                before, after = ("on", "off") if now else ("off", "on")
                common.messages.info(
                    f"{name}: consumption is {before}, will be {after}"
                )
        if changed:
            does = "resumes" if is_on else "stops"
            confirm(
                common,
                f"This {does} the consumption of group {safe(group)} on"
                f" {', '.join(changed)}.",
            )
        elif not any(isinstance(now, RmqError) for now in known.values()):
            common.messages.info(
                f"nothing was changed: consumption is {'on' if is_on else 'off'}"
            )
        there = {name: at for name, at in masters.items() if known[name] is not None}
        results = update_group(client, group, there, GroupChange(consume_enable=is_on))
    show_results(common, results, RESULT_COLUMNS)
