"""What the log of redrives on this machine says of dead letters.

Brokers do not know whether a letter was sent again.
"""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING

from rmqcli.errors import RmqError
from rmqcli.files import state_folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import TypeAlias

    from rmqcli.admin.dlq.log import LetterStates
    from rmqcli.api.client import Client
    from rmqcli.engine.message import PulledMessage
    from rmqcli.model import MessageQueue
    from rmqcli.wire.message.record import StoredMessage

    #: Returns what a log of redrives says of a dead letter of a group.
    SaysOfLetter: TypeAlias = "Callable[[str, PulledMessage], str | None]"


def known_redrives(client: Client) -> SaysOfLetter:
    """Return a function that says what the log of redrives has of a dead letter.

    It returns None for a letter that is not in the log of this user, and without one.
    """

    @cache
    def read(group: str) -> LetterStates | RmqError | None:
        if state_folder(os.environ, "redrive") is None:
            return None
        try:
            return redrives_of(client, group)
        except RmqError as error:
            return error

    def says(group: str, letter: PulledMessage) -> str | None:
        log = read(group)
        if isinstance(log, RmqError):
            return f"whether the letter was redriven is not known: {log.message}"
        state = is_redriven(log, letter.message_queue, letter)
        if state in (None, "no"):
            return None
        maybe = "may have been" if state == "maybe" else "was"
        return f"the letter {maybe} redriven, by the log of redrives on this machine"

    return says


def redrives_of(
    client: Client, group: str, log: Path | None = None
) -> LetterStates | None:
    """Read which letters of a group were redriven, of the usual log without `log`.

    None if there is no log: nothing is known then, for it may be on another machine.
    """
    from rmqcli.admin.dlq.log import default_path, read_log
    from rmqcli.admin.reset.cluster_identity import identity_of
    from rmqcli.model import dlq_topic

    cluster = identity_of(client.route(dlq_topic(group)))
    path = log or default_path(os.environ, group, cluster)
    return read_log(path, group, cluster)[0] if path.exists() else None


def is_redriven(
    states: LetterStates | None, queue: MessageQueue, letter: StoredMessage
) -> str | None:
    """Return yes, no, or maybe if a redrive was killed; None if it is not known."""
    from rmqcli.admin.dlq.log import LetterPlace

    if states is None:
        return None
    return ("no", "maybe", "yes")[states.get(LetterPlace.of(queue, letter))]
