"""What `rmq export` says of a run: its ranges, its progress, and its summary.

The summary is the JSON object that is printed at the end; its keys are public. In it,
`gaps`, `filtered` and `undecodable` are numbers of messages; the gaps of each queue are
listed with their reasons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqcli.cli.ui.wording import with_flags
from rmqcli.units import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqcli.cli.ui.messages import Messages
    from rmqcli.cli.ui.progress import Progress
    from rmqcli.spark.export.job import JobProgress
    from rmqcli.spark.export.manifest import PartResult, RunRecord
    from rmqcli.spark.extent import QueueKey, QueueRange


class ExportReport:
    """Shows the ranges and the progress of an export. Implements Reporter.

    `is_planned` is whether the ranges are fixed: then a run to files can be resumed.
    """

    def __init__(self, messages: Messages, topic: str) -> None:
        self._messages = messages
        self._topic = topic
        self._progress: Progress | None = None
        self.is_planned = False
        self._troubles: set[str] = set()

    def info(self, text: str) -> None:
        """Write a note that is neither progress nor a result."""
        self._messages.info(with_flags(text))

    def warn(self, text: str) -> None:
        """Write a warning."""
        self._messages.warn(text)

    def planned(self, topic: str, queues: Sequence[QueueRange]) -> None:
        """Show the range of each queue."""
        self.is_planned = True
        for queue in queues:
            self._messages.info(
                f"{topic}@{queue.broker_name}:{queue.queue_id}: "
                f"{queue.start} to {queue.end},"
                f" {counted(queue.end - queue.start, 'message')}"
            )

    def progress(self, progress: JobProgress) -> None:
        """Show the progress of the job, and once each error that delays it."""
        for trouble in sorted(progress.troubles - self._troubles):
            self._troubles.add(trouble)
            self._messages.warn(f"{trouble}; retrying")
        if self._progress is None:
            from rmqcli.cli.ui.progress import Progress

            self._progress = Progress(
                self._messages, self._topic, total=progress.offsets
            )
        note = f"{progress.tasks_done} of {counted(progress.tasks, 'task')} ended"
        if progress.is_end:
            self._progress.end(progress.offsets_done, note)
        else:
            self._progress.update(progress.offsets_done, note)

    def close(self) -> None:
        """Remove the progress bar. Idempotent."""
        if self._progress is not None:
            self._progress.close()


def summarise(record: RunRecord, *, root: str) -> dict[str, Any]:
    """Return `{dir, run_id, rows, files, bytes, gaps, filtered, undecodable, queues}`.

    `gaps` is None when one of them has no known end, because its queue left the route.
    Where bodies were decoded, there is also `corrupt`.
    """
    from rmqcli.spark.export.manifest import length_of

    files = record.files()
    return {
        "dir": root,
        "run_id": record.run_id,
        "rows": sum(part.rows for part in record.parts),
        "files": len(files),
        "bytes": sum(file_bytes for _, file_bytes in files),
        "gaps": length_of(record.gaps()),
        "filtered": sum(part.filtered for part in record.parts),
        "undecodable": record.undecodable,
        **({} if record.request.decode is None else {"corrupt": record.corrupt}),
        "queues": queue_rows(record),
    }


def queue_rows(record: RunRecord) -> list[dict[str, Any]]:
    """Return an object for each queue of the plan, and for each that is gone."""
    parts: dict[QueueKey, list[PartResult]] = {}
    gaps: dict[QueueKey, list[dict[str, Any]]] = {}
    for part in record.parts:
        parts.setdefault(part.key, []).append(part)
    for gap in record.gaps():
        shown = {"from": gap.start, "to": gap.end, "reason": gap.reason}
        gaps.setdefault(gap.key, []).append(shown)
    ranges: dict[QueueKey, tuple[int, int | None]] = {
        gap.key: (gap.start, None) for gap in record.gone
    }
    for queue in record.queues:
        ranges[queue.key] = (queue.start, queue.end)
    rows = []
    for key, (start, end) in sorted(ranges.items()):
        mine = parts.get(key, [])
        row: dict[str, Any] = {
            "broker_name": key[0],
            "queue_id": key[1],
            "from": start,
            "to": end,
            "rows": sum(part.rows for part in mine),
            "filtered": sum(part.filtered for part in mine),
            "undecodable": sum(part.undecodable for part in mine),
            "gaps": gaps.get(key, []),
        }
        if record.request.decode is not None:
            row["corrupt"] = sum(part.corrupt for part in mine)
        rows.append(row)
    return rows
