"""Requests that read or change many entries, in small batches for each server."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, TypeVar

from rmqcli.admin.brokers import lost_answer
from rmqcli.errors import BrokerError, RmqError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rmqcli.admin.definitions.model import Kind
    from rmqcli.api.call import Call
    from rmqcli.api.client import Client

#: Requests sent to one server at a time.
BATCH: Final = 32
NameT = TypeVar("NameT")
T = TypeVar("T")
#: kind, name, broker
EntryKey = tuple["Kind", str, str]


def send(
    client: Client,
    addresses: Mapping[str, str],
    calls: Mapping[str, Sequence[tuple[NameT, Call[None]]]],
    *,
    batch: int,
) -> dict[tuple[NameT, str], RmqError]:
    """Send each server its calls, `batch` at a time; return the errors.

    A server that does not answer gets no further calls.
    """
    errors: dict[tuple[NameT, str], RmqError] = {}
    silent: dict[str, RmqError] = {}
    rounds = max((len(each) for each in calls.values()), default=0)
    for start in range(0, rounds, batch):
        questions = {}
        for server, all_of_it in calls.items():
            for name, call in all_of_it[start : start + batch]:
                if server in silent:
                    errors[name, server] = silent[server]
                else:
                    questions[name, server] = (addresses[server], call)
        for (name, server), answer in client.ask_many(questions).items():
            if answer is None:
                continue
            errors[name, server] = lost_answer(answer)
            if not isinstance(answer, BrokerError):
                silent[server] = answer
    return errors


def parts(items: Iterable[T], size: int) -> Iterator[tuple[T, ...]]:
    """Split `items` into tuples of at most `size`."""
    rest = iter(items)
    while part := tuple(islice(rest, size)):
        yield part
