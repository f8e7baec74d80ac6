"""`AsyncCopy`: copies the messages of a topic to another one, from coroutines.

```python
from rmqcli.aio import connect

async with connect("127.0.0.1:9876") as old, connect("new:9876") as new:
    report = await old.copy("orders", "orders", to=new).execute()
    print(report.copied, report.is_complete)
```

Each call has connections and a thread of its own, rmq-aio_0, which ends with the call.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from rmqcli.aio.handover import Cancellation, in_own_thread
from rmqcli.checked import check_callback

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.admin.admin import PlannedReset
    from rmqcli.copy.copy import CopyPlan, CopyReport, CopyRequest
    from rmqcli.copy.library import Copy


class AsyncCopy:
    """Copies the messages of a topic to another one. Made by `AsyncCluster.copy`.

    Results and errors are those of `Copy`. It may be used in any event loop.
    """

    def __init__(self, copy: Copy) -> None:
        self._copy = copy

    def __repr__(self) -> str:
        return f"Async{self._copy!r}"

    @property
    def request(self) -> CopyRequest:
        """What is to be copied, and where to."""
        return self._copy.request

    async def plan(self) -> CopyPlan:
        """Say what `execute` would copy. Changes nothing."""
        return await in_own_thread(self._copy.plan)

    async def execute(
        self,
        *,
        rate_per_s: float | None = None,
        follow: bool = False,
        on_plan: Callable[[CopyPlan], object] | None = None,
        on_batch: Callable[[CopyReport], object] | None = None,
    ) -> CopyReport:
        """Plan again, and copy; see `Copy.execute`.

        `on_plan` and `on_batch` are called in the thread of the call. When it is
        cancelled, which is how one with `follow` is ended, it ends after the batch that
        is under way, and then raises CancelledError.
        """
        check_callback(on_plan, "on_plan")
        check_callback(on_batch, "on_batch")
        cancellation = Cancellation()
        run = partial(
            self._copy.execute,
            rate_per_s=rate_per_s,
            follow=follow,
            on_plan=partial(cancellation.step, on_plan),
            on_batch=partial(cancellation.step, on_batch),
        )
        return await in_own_thread(run, cancellation)

    async def plan_group(self, group: str) -> PlannedReset:
        """Plan the positions in the copy of a group; see `Copy.plan_group`."""
        return await in_own_thread(partial(self._copy.plan_group, group))
