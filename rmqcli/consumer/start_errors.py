"""Why a consumer did not start, told to the author of the program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.errors import DeadlineError, NotFoundError, TransportError
from rmqcli.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Collection

    from rmqcli.errors import RmqError


def not_joined(
    group: str,
    namesrvs: Collection[str],
    timeout_ms: int,
    *,
    reason: RmqError | None,
) -> DeadlineError:
    """The error when the time is over; `reason` is what failed last."""
    why = "" if reason is None else f": {reason.message}"
    hint = "" if reason is None else reason.hint
    return DeadlineError(
        f"no broker took a heartbeat of group {group} in {timeout_ms} ms{why}",
        address=";".join(namesrvs),
        hint=hint or "see which brokers are there with: rmq brokers",
    )


def explained(error: RmqError, namesrvs: Collection[str]) -> RmqError:
    """The same error with a hint about arguments, where those may be wrong."""
    if isinstance(error, NotFoundError):
        if error.code == int(ResponseCode.TOPIC_NOT_EXIST):
            error.hint = (
                "check the topics argument, or create the topic; to wait until it is"
                " there: start(wait_for_cluster=True)"
            )
    elif isinstance(error, TransportError) and error.address in namesrvs:
        error.hint = (
            "check the namesrv argument or NAMESRV_ADDR; to wait until a name server is"
            " there: start(wait_for_cluster=True)"
        )
    return error
