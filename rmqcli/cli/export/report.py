"""Messages about a running export: its ranges and its progress."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.units import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqcli.cli.ui.messages import Messages
    from rmqcli.cli.ui.progress import Progress
    from rmqcli.spark.export.job import JobProgress
    from rmqcli.spark.extent import QueuePlan


class ExportReport:
    """Shows the ranges and the progress of an export. Implements Reporter.

    `is_planned` is whether the ranges are fixed: then a run to files can be resumed.
    """

    def __init__(self, messages: Messages, topic: str) -> None:
        self._messages = messages
        self._topic = topic
        self._progress: Progress | None = None
        self.is_planned = False

    def info(self, text: str) -> None:
        """Write a note that is neither progress nor a result."""
        self._messages.info(text)

    def warn(self, text: str) -> None:
        """Write a warning."""
        self._messages.warn(text)

    def planned(self, topic: str, queues: Sequence[QueuePlan]) -> None:
        """Show the range of each queue."""
        self.is_planned = True
        for queue in queues:
            self._messages.info(
                f"{topic}@{queue.broker_name}:{queue.queue_id}: "
                f"{queue.start} to {queue.end},"
                f" {counted(queue.end - queue.start, 'message')}"
            )

    def progress(self, progress: JobProgress) -> None:
        """Show the progress of the job."""
        if self._progress is None:
            from rmqcli.cli.ui.progress import Progress

            self._progress = Progress(
                self._messages, self._topic, total=progress.offsets
            )
        note = f"{progress.tasks_done} of {progress.tasks} tasks done"
        if progress.is_end:
            self._progress.end(progress.offsets_done, note)
        else:
            self._progress.update(progress.offsets_done, note)

    def close(self) -> None:
        """Remove the progress bar. Idempotent."""
        if self._progress is not None:
            self._progress.close()
