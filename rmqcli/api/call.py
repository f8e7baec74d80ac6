"""A request as a value: what to send, and how to read the answer.

Calls are made by the functions of `api.calls` and carried out by `Client`. A call names
the oldest version that understands it, because a broker before 4.9.2 does not answer a
code that it does not know.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from rmqcli.wire.codes import ResponseCode
from rmqcli.wire.header import to_ext_fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.wire.command import RemotingCommand
    from rmqcli.wire.header import Header

T = TypeVar("T")

_SUCCESS = frozenset((int(ResponseCode.SUCCESS),))


@dataclass(slots=True, kw_only=True)
class Call(Generic[T]):
    """One request; treat as immutable (one is made for every pull).

    `parse` gets every answer whose code is in `ok_codes`; any other code is raised as
    a BrokerError. `what`, as text, says in an error what was asked for.
    `needs_version` is an MQVersion ordinal, 0 for what every broker since 4.6.0
    understands.
    """

    code: int
    parse: Callable[[RemotingCommand], T]
    what: object
    ext_fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    ok_codes: frozenset[int] = _SUCCESS
    needs_version: int = 0


def make_call(
    code: int,
    parse: Callable[[RemotingCommand], T],
    *,
    what: str,
    header: Header | None = None,
    body: bytes = b"",
    also_ok: tuple[int, ...] = (),
    needs_version: int = 0,
) -> Call[T]:
    """A call whose fields are those of `header`; `also_ok` codes reach `parse` too."""
    return Call(
        code=int(code),
        parse=parse,
        what=what,
        ext_fields={} if header is None else to_ext_fields(header),
        body=body,
        ok_codes=_SUCCESS.union(map(int, also_ok)) if also_ok else _SUCCESS,
        needs_version=needs_version,
    )


def nothing(_answer: RemotingCommand) -> None:
    """The parser of answers that say no more than their code."""
