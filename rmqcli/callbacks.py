"""How this library's threads call functions of the program, such as `on_failed`.

Such a thread also works for others: it owns a consumer's engine, or ends the futures of
a producer. So whatever a function raises is logged and ends there. That includes
SystemExit, and the exceptions of `pytest.fail` and `pytest.skip`, none of which is an
Exception; as with listeners, they end neither the thread nor the process.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeVar

from rmqcli.checked import check_returned
from rmqcli.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

Argument = TypeVar("Argument")
Result = TypeVar("Result")

logger = get_logger(__name__)


def call_back(
    function: Callable[[Argument], Result],
    argument: Argument,
    name: str,
    **about: object,
) -> Result | None:
    """Return `function(argument)`, or None after an exception, which is logged.

    `name` is what the program knows the function as, and `about` says in the log for
    what it was called. In a child that the function forked, an exception that is not an
    Exception is raised: there it ends the process.
    """
    pid = os.getpid()
    try:
        result = function(argument)
        check_returned(result, name)
    except Exception:
        logger.exception("%s failed %s", name, _text(about))
    except BaseException as error:
        if os.getpid() != pid:
            raise
        logger.exception(
            "%s raised %s, which ends neither its thread nor the process %s",
            name,
            type(error).__name__,
            _text(about),
        )
    else:
        return result
    return None


def _text(about: dict[str, object]) -> str:
    return " ".join(f"{name}={value}" for name, value in about.items())
