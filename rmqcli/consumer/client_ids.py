"""Client ids of this process's consumers: two of one group never have the same.

Brokers know a member by its client id. Two members with one id would each take the
queues of that id, consume every message twice, and double the retries of a message with
each try. Java refuses a second consumer of a group in the same process for that reason.

Other processes cannot be seen from here: an instance name that is set by hand has to be
unique among the processes of a host.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Final

from rmqcli.errors import UsageError

if TYPE_CHECKING:
    from rmqcli.consumer.consumer import Consumer

_lock: Final = threading.Lock()
#: guarded by _lock
_consumers: Final[weakref.WeakValueDictionary[tuple[str, str, str], Consumer]] = (
    weakref.WeakValueDictionary()
)


def claim_client_id(consumer: Consumer, namesrv: str, client_id: str) -> None:
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
