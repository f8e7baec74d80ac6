"""`AsyncRedrive` and `AsyncRetryFlush`: dead letters and retries, from coroutines.

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
from typing import TYPE_CHECKING, Generic, TypeVar

from rmqcli.aio.handover import Cancellation, in_own_thread
from rmqcli.checked import check_callback

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rmqcli.admin.dlq.log import LetterResult
    from rmqcli.redrive.flush import FlushPlan, FlushRequest
    from rmqcli.redrive.library import FlushReport, LetterSending, RedriveReport
    from rmqcli.redrive.redrive import RedrivePlan, RedriveRequest

RequestT = TypeVar("RequestT", bound="RedriveRequest | FlushRequest")
PlanT = TypeVar("PlanT", bound="RedrivePlan | FlushPlan")
ReportT = TypeVar("ReportT", bound="RedriveReport | FlushReport")


class AsyncLetterSending(Generic[RequestT, PlanT, ReportT]):
    """What AsyncRedrive and AsyncRetryFlush have in common.

    Results and errors are those of `Redrive` and `RetryFlush`. It may be used in any
    event loop.
    """

    def __init__(self, sending: LetterSending[RequestT, PlanT, ReportT]) -> None:
        self._sending = sending

    def __repr__(self) -> str:
        return f"Async{self._sending!r}"

    @property
    def request(self) -> RequestT:
        """What is to be sent."""
        return self._sending.request

    async def plan(self) -> PlanT:
        """Read the letters, and say what `execute` would send. Changes nothing."""
        return await in_own_thread(self._sending.plan)

    async def execute(
        self,
        *,
        rate_per_s: float | None = None,
        on_plan: Callable[[PlanT], object] | None = None,
        on_batch: Callable[[Sequence[LetterResult]], object] | None = None,
    ) -> ReportT:
        """Plan again, and send the letters; see `Redrive.execute`.

        `on_plan` and `on_batch` are called in the thread of the call. When it is
        cancelled, it ends after the batch that is under way, and then raises
        CancelledError; before the first batch it sends nothing.
        """
        check_callback(on_plan, "on_plan")
        check_callback(on_batch, "on_batch")
        cancellation = Cancellation()
        run = partial(
            self._sending.execute,
            rate_per_s=rate_per_s,
            on_plan=partial(cancellation.step, on_plan),
            on_batch=partial(cancellation.step, on_batch),
        )
        return await in_own_thread(run, cancellation)


class AsyncRedrive(
    AsyncLetterSending["RedriveRequest", "RedrivePlan", "RedriveReport"]
):
    """Sends the dead letters of a group again. Made by `AsyncCluster.redrive`.

    Results and errors are those of `Redrive`. It may be used in any event loop.
    """


class AsyncRetryFlush(AsyncLetterSending["FlushRequest", "FlushPlan", "FlushReport"]):
    """Delivers now what waits for a group. Made by `AsyncCluster.flush_retries`.

    Results and errors are those of `RetryFlush`. It may be used in any event loop.
    """
