"""Client ids, by which servers tell clients apart and members of a group are sorted.

Two members with the same id would both take the queues of that id. Every message would
be consumed twice, and each attempt would double the retries of a message. So two
consumers of one group in this process never have the same id; for that reason Java
refuses a second consumer of a group. Other processes cannot be checked: an instance
name that the user sets must be unique among the processes of a host.

Source: ClientConfig#buildMQClientId, #changeInstanceNameToPID (4.9); ClientId in
apache/rocketmq-clients.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
import weakref
from typing import Final, Protocol

from rmqcli.errors import UsageError

_DEFAULT_INSTANCE: Final = "DEFAULT"
#: Characters of a client id of gRPC: host@pid@index@random.
_GRPC_SEPARATORS: Final = 3
#: Numbers that distinguish the clients of this process.
_NUMBERS: Final = itertools.count()


class Owner(Protocol):
    """What has the client id of a member: the back end of a consumer."""

    @property
    def group(self) -> str:
        """The consumer group."""

    @property
    def has_ended(self) -> bool:
        """Whether the consumer is closed."""


def make_client_id(
    *,
    ip: str,
    instance_name: str | None,
    pid: int,
    nanotime: int,
    is_broadcasting: bool,
) -> str:
    """Return a client id: `ip@instance`.

    Without an instance name, that of a clustering member is `pid#nanotime`, so that no
    two are the same. That of a broadcasting member stays DEFAULT, because its offsets
    are stored under that name.
    """
    instance = instance_name or _DEFAULT_INSTANCE
    if instance == _DEFAULT_INSTANCE and not is_broadcasting:
        instance = f"{pid}#{nanotime}"
    return f"{ip}@{instance}"


def new_client_id(
    *,
    ip: str,
    instance_name: str | None = None,
    is_broadcasting: bool = False,
) -> str:
    """Return an id for a client of this process; see `make_client_id`."""
    return make_client_id(
        ip=ip,
        instance_name=instance_name,
        pid=os.getpid(),
        nanotime=int(f"{time.monotonic_ns()}{next(_NUMBERS)}"),
        is_broadcasting=is_broadcasting,
    )


def new_proxy_client_id(host_name: str) -> str:
    """Return a new id `host@pid@number@random`, in the form of the official clients."""
    return f"{host_name}@{os.getpid()}@{next(_NUMBERS)}@{os.urandom(4).hex()}"


_lock: Final = threading.Lock()
#: guarded by _lock
_owners: Final[weakref.WeakValueDictionary[tuple[str, str, str], Owner]] = (
    weakref.WeakValueDictionary()
)


def claim_client_id(owner: Owner, namesrv: str, client_id: str) -> None:
    """Reserve a client id for a member of a group until its consumer is closed.

    Raises UsageError while another member of the group has the id. Safe to call from
    any thread.
    """
    key = (namesrv, owner.group, client_id)
    with _lock:
        other = _owners.get(key)
        if other is not None and other is not owner and not other.has_ended:
            raise UsageError(
                f"another consumer of group {owner.group} in this process has the"
                f" client id {client_id}",
                hint="leave instance_name unset, or give each consumer another one",
            )
        _owners[key] = owner


def is_grpc_client(client_id: str) -> bool:
    """Return whether a client id is one of gRPC, `host@pid@index@random`.

    Remoting clients have ids such as `10.0.0.1@4711#1234567`. A gRPC client cannot
    answer what a broker asks of members: only its proxy talks to it.
    """
    return client_id.count("@") >= _GRPC_SEPARATORS and "#" not in client_id
