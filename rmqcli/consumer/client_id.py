"""Client ids: by them brokers tell members apart, and members sort themselves.

Two members with one id would each take the queues of that id, consume every message
twice, and double the retries of a message with each try. So two consumers of one group
in this process never have the same id; Java refuses a second consumer of a group for
that reason. Other processes cannot be checked: an instance name that is set by hand has
to be unique among the processes of a host.

Source: ClientConfig#buildMQClientId, #changeInstanceNameToPID (4.9).
"""

from __future__ import annotations

import threading
import weakref
from typing import Final, Protocol

from rmqcli.errors import UsageError


class Owner(Protocol):
    """The consumer that has a client id."""

    @property
    def group(self) -> str:
        """Its consumer group."""

    def wait(self, timeout_ms: int) -> bool:
        """Whether it is closed within that time."""


_DEFAULT_INSTANCE = "DEFAULT"


def make_client_id(
    *,
    ip: str,
    instance_name: str | None,
    unit_name: str | None,
    pid: int,
    nanotime: int,
    is_broadcasting: bool,
) -> str:
    """`ip@instance[@unit]`.

    Without a name of its own a clustering member is `pid#nanotime`, so that no two are
    ever the same; a broadcasting one stays DEFAULT, for its offsets lie in a file of
    that name.
    """
    instance = instance_name or _DEFAULT_INSTANCE
    if instance == _DEFAULT_INSTANCE and not is_broadcasting:
        instance = f"{pid}#{nanotime}"
    client_id = f"{ip}@{instance}"
    return f"{client_id}@{unit_name}" if unit_name else client_id


_lock: Final = threading.Lock()
#: guarded by _lock
_consumers: Final[weakref.WeakValueDictionary[tuple[str, str, str], Owner]] = (
    weakref.WeakValueDictionary()
)


def claim_client_id(consumer: Owner, namesrv: str, client_id: str) -> None:
    """Let a consumer have an id until it is closed.

    Raises UsageError while another one of its group has it. Any thread.
    """
    key = (namesrv, consumer.group, client_id)
    with _lock:
        owner = _consumers.get(key)
        if owner is not None and owner is not consumer and not owner.wait(0):
            raise UsageError(
                f"another consumer of group {consumer.group} in this process has the"
                f" client id {client_id}",
                hint="leave instance_name unset, or give each consumer another one",
            )
        _consumers[key] = consumer
