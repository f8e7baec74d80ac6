"""`AsyncRedrive`: sends dead letters again, from coroutines.

```python
from rmqcli.aio import connect

async with connect("127.0.0.1:9876") as cluster:
    report = await cluster.redrive("billing").execute(rate_per_s=100)
    print(report.stored)
```

Each call has connections and a thread of its own, rmq-aio_0, which ends with the call.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from rmqcli.aio.handover import Cancellation, in_own_thread
from rmqcli.checked import check_callback

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rmqcli.redrive.library import Redrive, RedriveReport
    from rmqcli.redrive.log import LetterResult
    from rmqcli.redrive.redrive import RedrivePlan, RedriveRequest


class AsyncRedrive:
    """Sends the dead letters of a group again. Made by `AsyncCluster.redrive`.

    Results and errors are those of `Redrive`. It may be used in any event loop.
    """

    def __init__(self, redrive: Redrive) -> None:
        self._redrive = redrive

    def __repr__(self) -> str:
        return f"Async{self._redrive!r}"

    @property
    def request(self) -> RedriveRequest:
        """What is to be sent, and where to."""
        return self._redrive.request

    async def plan(self) -> RedrivePlan:
        """Read the letters, and say what `execute` would send. Changes nothing."""
        return await in_own_thread(self._redrive.plan)

    async def execute(
        self,
        *,
        rate_per_s: float | None = None,
        on_plan: Callable[[RedrivePlan], object] | None = None,
        on_batch: Callable[[Sequence[LetterResult]], object] | None = None,
    ) -> RedriveReport:
        """Plan again, and send the letters; see `Redrive.execute`.

        `on_plan` and `on_batch` are called in the thread of the call. When it is
        cancelled, it ends after the batch that is under way, and then raises
        CancelledError; before the first batch it sends nothing.
        """
        check_callback(on_plan, "on_plan")
        check_callback(on_batch, "on_batch")
        cancellation = Cancellation()
        run = partial(
            self._redrive.execute,
            rate_per_s=rate_per_s,
            on_plan=partial(cancellation.step, on_plan),
            on_batch=partial(cancellation.step, on_batch),
        )
        return await in_own_thread(run, cancellation)
