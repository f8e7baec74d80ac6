"""A request as a value: what to send, and how to read the answer.

The functions of `api.calls` create calls, and `Client` sends them. A call names the
oldest version that understands it, because a broker before 4.9.2 does not answer a code
that it does not know.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from rmqcli.dataclass import dataclass
from rmqcli.wire.codes import ResponseCode
from rmqcli.wire.header import Header, from_ext_fields, to_ext_fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.wire.command import RemotingCommand

T = TypeVar("T")
U = TypeVar("U")
HeaderT = TypeVar("HeaderT", bound=Header)

_SUCCESS = frozenset((int(ResponseCode.SUCCESS),))


@dataclass(slots=True, kw_only=True)
class Call(Generic[T]):
    """One request; treat as immutable (one is created for every pull).

    `parse` receives every answer whose code is in `ok_codes`; any other code becomes an
    error (see `broker_errors`). `what`, converted to text, names the request in errors.
    `needs_version` is an MQVersion ordinal, or 0 if every broker since 4.6.0
    understands the request.
    """

    code: int
    parse: Callable[[RemotingCommand], T]
    what: object
    ext_fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    ok_codes: frozenset[int] = _SUCCESS
    needs_version: int = 0

    def then(self, change: Callable[[T], U]) -> Call[U]:
        """Return the call whose result is what `change` makes of this one's."""
        parse = self.parse
        return replace(self, parse=lambda answer: change(parse(answer)))  # type: ignore[return-value, arg-type]


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
    """Create a call with the fields of `header`.

    Answers with one of the codes `also_ok` reach `parse`, too.
    """
    return Call(
        code=int(code),
        parse=parse,
        what=what,
        ext_fields={} if header is None else to_ext_fields(header),
        body=body,
        ok_codes=_SUCCESS.union(map(int, also_ok)) if also_ok else _SUCCESS,
        needs_version=needs_version,
    )


def of_broker(call: Call[T], broker_name: str) -> Call[T]:
    """Return the call with the name of the broker that it is for.

    Brokers ignore the name; a proxy's remoting port needs it (Java: since 4.9.5).
    """
    return replace(call, ext_fields={**call.ext_fields, "bname": broker_name})


def header_of(cls: type[HeaderT], answer: RemotingCommand) -> HeaderT:
    """Return the header of an answer. Raises HeaderError."""
    return from_ext_fields(cls, answer.ext_fields)


def nothing(_answer: RemotingCommand) -> None:
    """Parse an answer that contains nothing but its code."""
